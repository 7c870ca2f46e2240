/** Two browsers in conversation over NATS, with everything going down once meanwhile: the server, and each browser as a whole. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { allowErrors, browserName, inPage, newPage, scripts } from "./fixtures/harness.mjs";
import { launch } from "./support/browsers.mjs";
import { natsClient, startNats, WEBSOCKET_ERRORS } from "./support/nats.mjs";

allowErrors(...WEBSOCKET_ERRORS);

/** Dialogs that each side begins, and messages that each side sends in each of them: 2 000 each way, and the ends. */
const DIALOGS = 10;
const MESSAGES = 100;

let server;
before(async () => {
  scripts.set("/nats-client.js", await natsClient());
  server = await startNats();
  scripts.set("/nats-url.js", `export default ${JSON.stringify(server.url)};`);
}, { timeout: 120_000 });
after(() => server?.close());

/** A browser with a profile that outlives it, and a page with a broker in it. */
class Side {
  constructor(own, far) { Object.assign(this, { own, far }); }

  async start() {
    this.profile ??= await mkdtemp(join(tmpdir(), "pocket-broker-profile-"));
    this.browser = await launch(browserName, { userDataDir: this.profile });
    this.page = await newPage(this.browser);
    await this.page.step(work, { url: server.url, own: this.own, far: this.far, DIALOGS, MESSAGES });
  }

  /** The whole browser, at once. */
  async kill() {
    const gone = new Promise((done) => this.browser.process().once("exit", done));
    this.browser.process().kill("SIGKILL");
    await gone;
  }

  /** Until this page has handled so many messages; there is more to be done then. */
  handled(count) {
    return this.page.step(async (h, _, { count, DIALOGS }) => {
      await h.until(() => h.state.handled >= count, `${count} handled messages`, 60_000);
      h.ok(await h.state.broker.count("ledger") < 2 * DIALOGS, "it is in the middle of its work");
    }, { count, DIALOGS });
  }

  async close() {
    await this.browser?.close().catch(() => {});
    if (this.profile) await rm(this.profile, { recursive: true, force: true, maxRetries: 5 });
  }
}

/** What a page does, and goes on with after a crash: all that it knows is in its database. */
async function work(h, pb, { url, own, far, DIALOGS, MESSAGES }) {
  const { wsconnect } = await import("/nats-client.js");
  const { natsTransport } = await import("pocket-broker/nats");
  const broker = await h.open({ definitions: {
    messageTypes: { Order: "json", Confirm: "json" },
    contracts: { Trade: { Order: "initiator", Confirm: "target" } },
    queues: { desk: {}, ledger: {} },
    services: { [own]: { queue: "desk", contracts: ["Trade"] } },
  } }, "side");
  Object.assign(h.state, { broker, handled: 0, critical: h.collect(broker, "critical-error"), failing: h.collect(broker, "message-failed") });
  const connection = await wsconnect({ servers: url, maxReconnectAttempts: -1, reconnectTimeWait: 100, waitOnFirstConnect: true });
  h.afterwards(() => connection.close());
  await broker.route({ service: "*", transport: natsTransport({ connection, stream: "TRADE" }) });

  // An order is confirmed. Who began a dialog ends it when all is confirmed, and writes down what it took, as the other side does when it hears of the end.
  broker.activate("desk", async (messages, tx) => {
    const [{ conversationHandle, conversationId }] = messages;
    h.state.handled += messages.length;
    const state = await tx.getGroupState(messages[0]) ?? { taken: [] };
    for (const { messageTypeName: type, body } of messages) {
      if (type === "Order" || type === "Confirm") state.taken.push(body);
      if (type === "Order") await tx.send(conversationHandle, "Confirm", body);
      else if (type !== "Confirm" || state.taken.length === MESSAGES) {
        await tx.enqueue("ledger", { conversationId, taken: state.taken, sent: state.sent ?? 0, type });
        await tx.endConversation(conversationHandle);
        return;
      }
    }
    await tx.setGroupState(messages[0], state);
  }, { maxReaders: 4, top: 10 });

  // What an earlier page has begun goes on where it is.
  const mine = (await broker.conversations({ service: own }).toArray()).filter(({ isInitiator }) => isInitiator);
  const isOver = (await broker.select("ledger").toArray()).filter(({ body }) => body.sent > 0).length;
  const handles = mine.map(({ conversationHandle }) => conversationHandle);
  while (handles.length + isOver < DIALOGS) {
    handles.push(await broker.transaction(async (tx) => {
      const dialog = await tx.beginDialog({ from: own, to: far, contract: "Trade" });
      await tx.setGroupState(dialog, { taken: [], sent: 0 });
      return dialog.handle;
    }));
  }
  const sendFive = (handle) => broker.transaction(async (tx) => {
    const dialog = { handle };
    const state = await tx.getGroupState(dialog);
    if (state.sent === MESSAGES) return false;
    await tx.sendMany(dialog, Array.from({ length: 5 }, (_, at) => ({ messageType: "Order", body: state.sent + at })));
    await tx.setGroupState(dialog, { ...state, sent: state.sent + 5 });
    return true;
  }).catch((error) => {
    // Its reader is at it; or it is over.
    if (error.code === "GroupLocked") return true;
    if (error.code === "ConversationNotFound") return false;
    throw error;
  });
  for (const handle of handles) void (async () => { while (await sendFive(handle)); })();
}

test("20 conversations of 100 messages each way: exactly once, in order, both sides end clean", { timeout: 280_000 }, async () => {
  const sides = [new Side("Counter", "Kitchen"), new Side("Kitchen", "Counter")];
  const began = Date.now();
  const tell = (what) => console.log(`# after ${Date.now() - began} ms: ${what}`);
  try {
    for (const side of sides) await side.start();
    await sides[0].handled(200);
    await server.kill();
    tell("the server is killed");
    await server.start();
    for (const side of sides) {
      await side.handled(300);
      await side.kill();
      tell(`the browser of ${side.own} is killed`);
      await side.start();
    }
    for (const { page, own } of sides) {
      await page.step(async (h, pb, { DIALOGS, MESSAGES }) => {
        const { broker, critical, failing } = h.state;
        await h.until(async () => await broker.count("ledger") === 2 * DIALOGS, "all conversations over", 150_000);
        const rows = (await broker.select("ledger").toArray()).map(({ body }) => body);
        h.equal(new Set(rows.map(({ conversationId }) => conversationId)).size, 2 * DIALOGS);
        for (const { taken } of rows) h.equal(taken, Array.from({ length: MESSAGES }, (_, at) => at));
        const count = (sent, type) => rows.filter((row) => row.sent === sent && row.type === type).length;
        h.equal([count(MESSAGES, "Confirm"), count(0, pb.SystemMessage.EndDialog)], [DIALOGS, DIALOGS]);
        await h.until(async () => (await broker.stats()).transmissionQueued === 0, "an empty transmission queue", 60_000);
        // Finished targets are shown for half an hour; the one in CO is the ledger's lane.
        const { failed, openConversations: { CD, CO, ...others } } = await broker.stats();
        h.equal([failed, CD, CO, Object.values(others), critical, failing], [0, DIALOGS, 1, [0, 0, 0, 0, 0], [], []]);
      }, { DIALOGS, MESSAGES });
      tell(`${own} is through`);
    }
    await sides[0].page.step(async (h, _, url) => {
      const n = await import("/fixtures/nats.mjs");
      // Not the stream's messages are counted: nats-server 2.9 that is killed has some again that were taken, and hands them to nobody.
      const { consumers } = await n.manager(await n.connect(url));
      await h.until(async () => {
        const queues = [];
        for await (const queue of consumers.list("TRADE")) queues.push(queue);
        return queues.length === 4 && queues.every(({ num_pending, num_ack_pending }) => num_pending === 0 && num_ack_pending === 0);
      }, "four queues that nothing waits in", 100_000);
    }, server.url);
    tell("nothing waits at the server");
    for (const { page } of sides) await page.cleanUp();
    for (const { page } of sides) await page.close();
  } finally {
    for (const side of sides) await side.close();
  }
});

inPage("three brokers serve one service: a conversation lives on one of them with all of its messages, and waits for it while it is away", async (h, pb) => {
  const n = await import("/fixtures/nats.mjs");
  const { default: url } = await import("/nats-url.js");
  const names = n.freshNames();
  const [dialogs, messages] = [30, 20];
  const trade = { messageTypes: { Order: "json", Confirm: "json" }, contracts: { Trade: { Order: "initiator", Confirm: "target" } } };
  const start = async (definitions, database) => {
    const broker = await h.open({ definitions: { ...trade, ...definitions } }, database);
    await broker.route({ service: "*", transport: n.natsTransport({ connection: await n.connect(url), ...names }) });
    return broker;
  };
  const taken = new Map();
  const openKitchen = async (database) => {
    const kitchen = await start({ queues: { kitchen: {} }, services: { Kitchen: { queue: "kitchen", contracts: ["Trade"] } } }, database);
    kitchen.activate("kitchen", async (orders, tx) => {
      for (const order of orders) await tx.send(order, "Confirm", { n: order.body, by: kitchen.instanceId });
    }, { maxReaders: 4, top: 20 });
    return kitchen;
  };
  const databases = [1, 2, 3].map(() => h.name());
  databases.forEach(h.forget);
  const kitchens = await Promise.all(databases.map(openKitchen));
  const customer = await start({ queues: { desk: {} }, services: { Desk: { queue: "desk" } } });
  const reading = new AbortController();
  h.afterwards(() => reading.abort());
  const read = async () => {
    for (;;) for (const { conversationId, body } of await customer.receive("desk", { timeout: Infinity, signal: reading.signal })) taken.set(conversationId, [...taken.get(conversationId) ?? [], body]);
  };
  for (let reader = 0; reader < 4; reader += 1) read().catch(() => {}); // With the signal; without, the test misses what it waits for.
  const open = await Promise.all(Array.from({ length: dialogs }, () => customer.beginDialog({ from: "Desk", to: "Kitchen", contract: "Trade" })));
  const half = (from) => Promise.all(open.map((dialog) => dialog.sendMany(Array.from({ length: messages / 2 }, (_, at) => ({ messageType: "Order", body: from + at })))));
  const confirmed = (conversationIds, count) => conversationIds.every((id) => taken.get(id)?.length === count);
  const ids = open.map(({ conversationId }) => conversationId);
  await half(0);
  await h.until(() => confirmed(ids, messages / 2), "the first half", 60_000);
  const owner = new Map(ids.map((id) => [id, taken.get(id)[0].by]));
  h.ok(new Set(owner.values()).size > 1, "more than one of them has some");
  // One that has some goes away: its conversations wait, those of the others go on.
  const away = kitchens.find(({ instanceId }) => instanceId === owner.get(ids[0]));
  const [waiting, going] = [ids.filter((id) => owner.get(id) === away.instanceId), ids.filter((id) => owner.get(id) !== away.instanceId)];
  await away.close();
  await half(messages / 2);
  await h.until(() => confirmed(going, messages), "the second half of the others", 60_000);
  h.ok(confirmed(waiting, messages / 2), "nobody else answers in its place");
  const again = await openKitchen(away.name);
  h.equal(again.instanceId, away.instanceId);
  await h.until(() => confirmed(ids, messages), "all", 60_000);
  for (const id of ids) h.equal(taken.get(id), Array.from({ length: messages }, (_, at) => ({ n: at, by: owner.get(id) })));
  const endpoints = await Promise.all([...kitchens.filter((kitchen) => kitchen !== away), again].map((kitchen) => kitchen.conversations().toArray()));
  h.equal(endpoints.flat().map(({ conversationId }) => conversationId).sort(), [...ids].sort(), "each is on one of them");
});

/** The NATS transport and what the server does to it: it is killed and comes back, and it lets nobody speak for another. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { test, before } from "node:test";
import assert from "node:assert/strict";
import { allowErrors, newPage, scripts } from "./fixtures/harness.mjs";
import { natsClient, startNats, WEBSOCKET_ERRORS } from "./support/nats.mjs";
import { ROOT } from "./support/paths.mjs";

allowErrors(...WEBSOCKET_ERRORS);

before(async () => { scripts.set("/nats-client.js", await natsClient()); }, { timeout: 120_000 });

/** A test with a server and a page of its own. */
function withServer(title, body, config = async () => "") {
  test(title, { timeout: 90_000 }, async () => {
    const server = await startNats(await config());
    try {
      const page = await newPage();
      try {
        await body(page, server);
        await page.cleanUp();
      } finally {
        await page.close();
      }
    } finally {
      await server.close();
    }
  });
}

withServer("a server that is killed and started again loses nothing and delivers the rest; what was handed over is offered again", async (page, server) => {
  await page.step(async (h, pb, url) => {
    const n = await import("/fixtures/nats.mjs");
    const names = n.freshNames();
    const shop = new n.Peer(await n.connect(url), names).listen("Kitchen");
    const customer = new n.Peer(await n.connect(url), names).listen();
    const reasons = [];
    const sent = [];
    const go = { on: true };
    /** As a broker would: one after the other, each until the server has it. */
    const sending = (async () => {
      for (let sequence = 0; go.on; sequence += 1) {
        const envelope = customer.first("Kitchen", { toBroker: shop.id, sequence });
        for (;;) {
          const [result] = await customer.send(envelope);
          if (result.status === "accepted") break;
          reasons.push(result.reason);
          await new Promise((resolve) => setTimeout(resolve, 20));
        }
        sent.push(sequence);
      }
    })();
    Object.assign(h.state, { n, shop, customer, reasons, sent, go, sending });
    await h.until(() => shop.messages.length > 50, "a beginning");
  }, server.url);
  await server.kill();
  await page.step(async (h) => {
    const { reasons } = h.state;
    await h.until(() => reasons.some((reason) => /there is no connection to the NATS server/.test(reason)), "the reason");
    h.ok(reasons.every((reason) => /no connection|broke before it answered/.test(reason)), `nobody waits for what won't come: ${[...new Set(reasons)]}`);
  });
  await server.start();
  await page.step(async (h) => {
    const { n, shop, customer, sent, go, sending } = h.state;
    const before = sent.length;
    await h.until(() => sent.length > before + 50, "more that is sent", 20_000);
    go.on = false;
    await sending;
    await h.until(() => customer.acknowledgements.at(-1)?.envelope.sequence === sent.length - 1, "the last acknowledgement", 60_000);
    h.equal([...new Set(shop.messages.map(({ sequence }) => sequence))].sort((one, other) => one - other), sent);
    h.ok(shop.offers > 0 && customer.offers > 0, "both were told to offer again");
    // With the signal everything goes: no subscription but that for answers, and nobody who listens to the connection.
    shop.stop();
    customer.stop();
    await h.until(() => [shop, customer].every(({ connection: { protocol } }) => protocol.listeners.length === 0 && protocol.subscriptions.size() <= 1), "an end");
  });
});

/** The lists of docs/nats.md, and somebody who may do everything. */
async function documentedUsers() {
  const text = await readFile(join(ROOT, "docs/nats.md"), "utf8");
  const lists = [...text.matchAll(/```text\n# user: a (\w+)\n([^`]*)```/g)].map(([, name, permissions]) => `{ user: ${name}, password: secret, permissions: { ${permissions} } }`);
  assert.equal(lists.length, 2, "docs/nats.md shows two users");
  return `authorization { users: [ { user: admin, password: secret }\n${lists.join("\n")} ] }`;
}

withServer("the documented permissions are enough, and nobody speaks, listens or passes on for another", async (page, { url }) => {
  await page.step(async (h, pb, url) => {
    const n = await import("/fixtures/nats.mjs");
    const names = { stream: "POCKET" };
    const as = (user, id) => n.connect(url, { user, pass: "secret", ...(id ? { inboxPrefix: `_INBOX_${id}` } : {}) });
    const [customerId, kitchenId] = ["11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"];
    const [customers, kitchens, admins] = [await as("customer", customerId), await as("kitchen", kitchenId), await as("admin")];
    const customer = new n.Peer(customers, names, { id: customerId });
    const [early] = await customer.send(customer.first("Kitchen"));
    h.equal(early.status, "retry", "there is no stream, and it may not make one");
    h.ok(early.reason.length > 20, early.reason);
    await new n.Peer(admins, names).send(customer.first("Nowhere", { fromBroker: customerId }));

    const kitchen = new n.Peer(kitchens, names, { id: kitchenId }).listen("Kitchen");
    customer.listen();
    const envelope = customer.first("Kitchen");
    h.equal((await customer.send(envelope))[0].status, "accepted");
    await h.until(() => customer.acknowledgements.length === 1, "the acknowledgement");
    h.equal([kitchen.messages, customer.acknowledgements[0].from], [[envelope], kitchenId]);
    // Another broker had claimed it: it is passed on, which takes a permission as well.
    const other = crypto.randomUUID();
    const moved = customer.first("Kitchen");
    await n.jetstream(admins).publish(`pocket-broker.claim.${moved.conversationId}`, other);
    await customer.send(moved);
    const elsewhere = new n.Peer(admins, names, { id: other }).listen();
    await h.until(() => elsewhere.messages.length === 1, "what was passed on");
    h.equal([elsewhere.messages, elsewhere.got[0].from], [[moved], customerId]);
    h.equal([customer.errors, kitchen.errors], [[], []]);

    // Nobody else's name.
    const [forged] = await customer.send(customer.first("Kitchen", { fromBroker: kitchenId }));
    h.equal(forged.status, "retry");
    h.match(forged.reason, /Permissions Violation for Publish/);
    const publish = (connection, subject) => n.jetstream(connection).publish(subject, JSON.stringify(envelope)).then(() => "stored", (error) => String(error.message));
    for (const subject of [`pocket-broker.to.${kitchenId}.S2l0Y2hlbg.${customerId}`, `pocket-broker.to.${kitchenId}.S2l0Y2hlbg.${kitchenId}`, `pocket-broker.claim.${envelope.conversationId}`, `pocket-broker.to.${customerId}.${kitchenId}`]) {
      h.match(await publish(customers, subject), /Permissions Violation/, subject);
    }
    h.match(await publish(kitchens, `pocket-broker.to.${kitchenId}.${n.token("Bar")}.${customerId}`), /Permissions Violation/, "it serves no bar");
    // Nobody else's messages, and it is told why there is silence.
    const curious = new n.Peer(customers, names, { id: kitchenId }).listen("Kitchen");
    await h.until(() => curious.errors.length >= 2, "both queues");
    h.ok(curious.errors.every((text) => /can't be read.*Permissions Violation/.test(text)), curious.errors.join("\n"));
    const { consumers } = await n.manager(customers);
    for (const filter of [">", `pocket-broker.to.${kitchenId}.>`]) {
      h.ok(await consumers.add("POCKET", { durable_name: `to-${customerId}`, filter_subject: filter, ack_policy: "explicit" }).then(() => false, () => true), `its queue with the filter ${filter}`);
    }
    h.equal(curious.got, []);
  }, url);
}, documentedUsers);

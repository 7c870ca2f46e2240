/** `httpTransport` with a broker: messages leave a page through a bad network, and each is done once, in the order of its conversation. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { copyFile, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { crash, discard, openTab } from "./fixtures/crashing.mjs";
import { serveFaulty } from "./fixtures/faulty-server.mjs";
import { allowErrors, browserName, inPage as inPageOf, newPage, packageDirectory } from "./fixtures/harness.mjs";
import { serveScripted } from "./fixtures/scripted-endpoint.mjs";
import { proxyTo } from "./fixtures/tcp-proxy.mjs";
import { serveBroker } from "./fixtures/wire-server.mjs";
import { ROOT } from "./support/paths.mjs";

const folder = await mkdtemp(join(tmpdir(), "pocket-broker-http-"));
const endpoint = await serveScripted();
const server = await serveFaulty({ file: join(folder, "faulty.jsonl"), handle: ({ body }) => ({ messageType: "Confirm", body }) });
const network = await proxyTo(server.url);
after(async () => {
  await network.close();
  await server.close();
  await endpoint.close();
  await rm(folder, { recursive: true });
});
allowErrors(endpoint.url, network.url);

const DEFINITIONS = {
  messageTypes: { Order: "none", Note: "none", Confirm: "none", Secret: "none" },
  contracts: { Ordering: { Order: "initiator", Note: "any", Confirm: "target" } },
  queues: { counter: {} },
  services: { Counter: { queue: "counter" } },
};

const given = (body) => `async (h, pb) => {
  const t = { ...await import("/pkg/dist/http.js"), ...await import("/fixtures/envelopes.mjs") };
  t.at = (path, parameters) => t.scripted("${endpoint.url}", path, parameters);
  t.seen = async (mark) => (await t.seenBy("${endpoint.url}", mark)).requests;
  t.open = (options) => h.open({ definitions: ${JSON.stringify(DEFINITIONS)}, ...options });
  t.begin = (broker) => broker.beginDialog({ from: "Counter", to: "Kitchen", contract: "Ordering" });
  t.route = (broker, options) => broker.route({ service: "Kitchen", transport: t.httpTransport(options) });
  t.gone = (broker) => h.until(async () => (await broker.stats()).transmissionQueued === 0, "an empty transmission queue");
  await (${body})(h, pb, t);
}`;
const inPage = (title, body) => inPageOf(title, given(body));

inPage("messages of any kind leave by a route, and answers come back as messages on the conversation", async (h, pb, t) => {
  const broker = await t.open();
  const { url, mark } = t.at("/answer", { headers: { "Content-Type": "application/json" }, body: { messageType: "Confirm", body: { minutes: 5 } } });
  await t.route(broker, { url });
  const conversation = await t.begin(broker);
  const bytes = Uint8Array.from({ length: 256 }, (_, n) => n);
  const bodies = [{ dish: "soup" }, bytes, new Blob([bytes], { type: "image/png" }), undefined];
  for (const body of bodies) await conversation.send("Order", body, { headers: { trace: "t1" } });
  await t.gone(broker);
  const seen = await t.seen(mark);
  h.equal(seen.map(({ headers }) => headers["idempotency-key"]), bodies.map((_, n) => `${conversation.conversationId}/i/${n}`));
  h.equal(seen.map(({ headers }) => headers["content-type"]), ["application/json", "application/octet-stream", "image/png", undefined]);
  h.equal([atob(seen[0].body), atob(seen[1].body) === String.fromCharCode(...bytes), atob(seen[2].body).length, seen[3].body, seen[3].headers.trace], ['{"dish":"soup"}', true, 256, "", "t1"]);
  const answers = await broker.receive("counter", { timeout: 10_000 });
  h.equal(answers.map(({ messageTypeName, body, conversationHandle }) => [messageTypeName, body, conversationHandle]), bodies.map(() => ["Confirm", { minutes: 5 }, conversation.handle]));
  h.equal([await h.stateOf(broker, conversation), (await broker.stats()).transmitted >= bodies.length], ["CO", true]);
  await conversation.end();
  await t.gone(broker);
  h.equal([(await t.seen(mark)).length, await broker.conversation(conversation).info()], [bodies.length, null], "a plain endpoint is not told of the end");
});

inPage("an answer that the contract does not let the far side send is dropped, and told; the message has arrived all the same", async (h, pb, t) => {
  const broker = await t.open();
  const dropped = h.collect(broker, "message-dropped");
  await t.route(broker, { url: t.at("/answer", { headers: { "Content-Type": "application/json" }, body: { messageType: "Order" } }).url });
  const conversation = await t.begin(broker);
  await conversation.send("Order", 1);
  await t.gone(broker);
  await h.until(() => dropped.length === 1, "message-dropped");
  h.match(dropped[0].reason, /Order/);
  h.equal(await broker.count("counter"), 0);
});

inPage("what is refused goes to the error queue with HttpStatus and HttpBody, and the conversation goes on", async (h, pb, t) => {
  const broker = await t.open();
  const failures = h.collect(broker, "message-failed");
  let isRefused = true;
  const refusal = t.at("/answer", { status: 422, text: "No", body: "no such dish" });
  const fine = t.at("/answer");
  await t.route(broker, { url: fine.url, request: ({ sequence }) => new Request(isRefused && sequence === 1 ? refusal.url : fine.url, { method: "POST" }) });
  const conversation = await t.begin(broker);
  for (const n of [0, 1, 2]) await conversation.send("Order", { n });
  await t.gone(broker);
  h.equal((await t.seen(fine.mark)).map(({ headers }) => headers["idempotency-key"]), [0, 2].map((n) => `${conversation.conversationId}/i/${n}`));
  const failed = await broker.failed().toArray();
  h.equal(failed.map(({ body, headers, exceptionMessage }) => [body, headers.HttpStatus, headers.HttpBody, exceptionMessage]), [[{ n: 1 }, "422", "no such dish", "The server answered 422 (No): no such dish"]]);
  await h.until(() => failures.length === 1, "message-failed");
  h.equal([failures[0].next, failures[0].conversationHandle, failures[0].messageId], ["error-queue", conversation.handle, failed[0].messageId]);
  h.equal(await h.stateOf(broker, conversation), "CO");
  isRefused = false;
  h.equal(await broker.returnToSource(), 1, "it is sent again, as a message of its own");
  await t.gone(broker);
  h.equal((await t.seen(fine.mark)).length, 3);
});

inPage("onRefused \"end\": an Error on the conversation, whose code is the status; what is behind it is not sent", async (h, pb, t) => {
  const broker = await t.open();
  const { url, mark } = t.at("/answer", { status: 402, text: "Payment Required", body: "pay first" });
  const conversation = await t.begin(broker);
  for (const n of [0, 1, 2]) await conversation.send("Order", { n });
  await t.route(broker, { url, onRefused: "end" });
  const [error] = await broker.receive("counter", { timeout: 10_000 });
  h.equal([error.messageTypeName, error.body], [pb.SystemMessage.Error, { code: 402, description: "The server answered 402 (Payment Required): pay first" }]);
  h.equal([await h.stateOf(broker, conversation), (await t.seen(mark)).length, await broker.count("error")], ["ER", 1, 0]);
  await h.rejects(conversation.send("Order", 3), { code: "InvalidState" });
});

inPage("what JSON does not carry goes to the error queue, and says why", async (h, pb, t) => {
  const broker = await t.open();
  const { url, mark } = t.at("/answer");
  await t.route(broker, { url });
  const conversation = await t.begin(broker);
  await conversation.send("Order", new Map([["a", 1n]]));
  await conversation.send("Order", "fine", { headers: { "two words": "x" } });
  await conversation.send("Order", "fine");
  await t.gone(broker);
  const failed = await broker.failed().toArray();
  h.equal(failed.map(({ body, headers }) => [typeof body, headers.HttpStatus]), [["object", undefined], ["string", undefined]]);
  h.ok(/`body` is a Map/.test(failed[0].exceptionMessage) && /two words/.test(failed[1].exceptionMessage), failed.map(({ exceptionMessage }) => exceptionMessage).join("\n"));
  h.equal((await t.seen(mark)).map(({ body }) => atob(body)), ['"fine"']);
});

inPage("what waits says why and until when; a token that is missing loses nothing", async (h, pb, t) => {
  h.state.now = 1_000_000_000_000;
  const broker = await t.open({ clock: { now: () => h.state.now } });
  const failures = h.collect(broker, "transmission-failed");
  let token;
  const { url, mark } = t.at("/answer", { status: 503, text: "Busy", headers: { "Retry-After": "600" } });
  const fetch = (input, init) => (token === undefined ? Promise.resolve(new Response(null, { status: 401 })) : globalThis.fetch(input, init));
  await t.route(broker, { url, fetch, headers: () => (token === undefined ? {} : { Authorization: token }) });
  const conversation = await t.begin(broker);
  await conversation.send("Order", 1);
  await h.until(() => failures.length === 1, "transmission-failed");
  h.match(failures[0].status, /401/);
  token = "Bearer x";
  h.equal(await broker.transmit(), { sent: 0, remaining: 1 });
  const [row] = await broker.transmissionQueue().toArray();
  h.equal([row.attempts, row.nextAttempt - h.state.now], [2, 600_000]);
  h.match(row.transmissionStatus, /503 \(Busy\)/);
  h.equal((await t.seen(mark)).map(({ headers }) => [headers.authorization, headers["idempotency-key"]]), [["Bearer x", `${conversation.conversationId}/i/0`]]);
});

inPage("closing the broker cuts the request that is under way; the message is sent again, with the same key", async (h, pb, t) => {
  const broker = await t.open();
  const held = t.at("/hold", { id: "never" });
  await t.route(broker, { url: held.url });
  const conversation = await t.begin(broker);
  await conversation.send("Order", 1);
  await h.until(async () => (await t.seen(held.mark)).length === 1, "the request");
  await broker.close();
  await h.until(async () => (await t.seen(held.mark))[0].isCut, "the request to be cut");
  const again = await h.open({}, broker.name);
  const { url, mark } = t.at("/answer");
  await t.route(again, { url });
  await t.gone(again);
  h.equal((await t.seen(mark)).map(({ headers }) => headers["idempotency-key"]), [`${conversation.conversationId}/i/0`]);
});

// ── docs/http.md ──

const fixture = (name) => join(ROOT, "tests/js/fixtures", name);

test("the page about HTTP shows what is tested here", async () => {
  const shown = [...(await readFile(join(ROOT, "docs/http.md"), "utf8")).matchAll(/^```js\n(.*?)^```$/gms)].map(([, code]) => code);
  for (const name of ["http-page.js", "message-server.mjs", "http-server-example.mjs"]) assert.ok(shown.includes(await readFile(fixture(name), "utf8")), `docs/http.md does not show ${name} as it is`);
});

test("the page and the server of docs/http.md: an order, and its answer; a restart of the server forgets no key", { timeout: 60_000 }, async () => {
  // A port that is free, and an origin that is this test's.
  const code = (await readFile(fixture("http-server-example.mjs"), "utf8")).replace("https://shop.example", "*").replace(".listen(8080)", ".listen(0, \"127.0.0.1\", function () { console.log(this.address().port); })");
  await copyFile(fixture("message-server.mjs"), join(folder, "message-server.mjs"));
  await writeFile(join(folder, "example.mjs"), code);
  const start = async () => {
    const child = spawn(process.execPath, ["example.mjs"], { cwd: folder, stdio: ["ignore", "pipe", "inherit"] });
    const [port] = await once(child.stdout, "data");
    return { url: `http://127.0.0.1:${String(port).trim()}`, stop: async () => { const gone = once(child, "exit"); child.kill(); await gone; } };
  };
  const post = async (url, key, body) => {
    const response = await fetch(`${url}/orders`, { method: "POST", headers: { "Idempotency-Key": key, "Content-Type": "application/json", "X-Message-Type": "Order" }, body: JSON.stringify(body) });
    return [response.status, await response.text()];
  };
  let example = await start();
  try {
    const page = await newPage();
    const source = (await readFile(fixture("http-page.js"), "utf8")).replace('"/orders"', `"${example.url}/orders"`);
    await page.run(async (h, pb, source) => {
      h.afterwards(() => pb.deleteBroker("orders"));
      const printed = [];
      h.patch(console, "log", () => (...values) => void printed.push(values));
      await import(URL.createObjectURL(new Blob([source], { type: "text/javascript" })));
      h.equal(printed, [["Confirmed", { minutes: 5 }]]);
    }, source);
    await page.close();
    assert.deepEqual(await post(example.url, "k1", { dish: "ice cream" }), [422, "There is no ice cream."]);
    assert.deepEqual(await post(example.url, "k2", { dish: "bread" }), [200, '{"messageType":"Confirmed","body":{"minutes":5}}']);
    await example.stop();
    // As if it had died over a line.
    await writeFile(join(folder, "answers.jsonl"), `${await readFile(join(folder, "answers.jsonl"), "utf8")}["k3",[2`);
    example = await start();
    assert.deepEqual(await post(example.url, "k2", { dish: "ice cream" }), [200, '{"messageType":"Confirmed","body":{"minutes":5}}'], "the answer that the first one got");
    assert.deepEqual(await post(example.url, "k1", { dish: "bread" }), [422, "There is no ice cream."]);
    assert.deepEqual(await post(example.url, "k3", { dish: "bread" }), [200, '{"messageType":"Confirmed","body":{"minutes":5}}']);
    await example.stop();
    example = await start();
    assert.deepEqual(await post(example.url, "k3", { dish: "ice cream" }), [200, '{"messageType":"Confirmed","body":{"minutes":5}}']);
  } finally {
    await example.stop();
  }
});

// ── another broker behind the endpoint ──

/** Begins dialogs with the far kitchen, over an endpoint that speaks the wire protocol. */
const openWire = async (h, pb, { url, definitions }) => {
  const { httpTransport } = await import("pocket-broker/http");
  h.state.broker = await h.open({ definitions });
  h.state.dropped = h.collect(h.state.broker, "message-dropped");
  await h.state.broker.route({ service: "Kitchen", transport: httpTransport({ url, protocol: "envelope", timeout: 2_000 }) });
  const hurry = setInterval(() => dispatchEvent(new Event("online")), 50);
  h.afterwards(() => clearInterval(hurry));
};

test("two brokers over the wire protocol: orders and answers of any kind, each once and in order, with connections that break; both sides end clean", { timeout: 120_000 }, async () => {
  const orders = [];
  const far = await serveBroker({
    packageDirectory, queue: "kitchen",
    definitions: { ...DEFINITIONS, queues: { kitchen: {} }, services: { Kitchen: { queue: "kitchen", contracts: ["Ordering"] } } },
    handler: { Order: async (message, tx) => {
      orders.push(message.body);
      await tx.send(message, "Confirm", new Map([["order", message.body], ["seen", new Date(0)]]));
    } },
  });
  const way = await proxyTo(far.url);
  allowErrors(way.url, far.url);
  const page = await newPage();
  try {
    await page.step(openWire, { url: way.url, definitions: DEFINITIONS });
    far.posted = (count) => { if ([3, 6, 9, 12, 15].includes(count)) way.reset(); };
    await page.step(async (h) => {
      const { broker } = h.state;
      h.state.all = await Promise.all([0, 1, 2].map(() => broker.beginDialog({ from: "Counter", to: "Kitchen", contract: "Ordering" })));
      for (let n = 0; n < 30; n += 1) for (const [table, conversation] of h.state.all.entries()) await conversation.send("Order", { table, n, at: new Date(n), bytes: new Uint8Array([n]) });
      await h.until(async () => (await broker.count("counter")) === 90, "the answers", 60_000);
      for (const [table, conversation] of h.state.all.entries()) {
        const answers = await conversation.receive();
        h.equal(answers.map(({ body }) => body.get("order")), Array.from({ length: 30 }, (_, n) => ({ table, n, at: new Date(n), bytes: new Uint8Array([n]) })));
        h.equal([answers.every(({ messageTypeName }) => messageTypeName === "Confirm"), await h.stateOf(broker, conversation)], [true, "CO"]);
      }
    });
    way.reset();
    await page.step(async (h) => {
      const { broker, all } = h.state;
      for (const conversation of all) await conversation.end();
      await h.until(async () => (await broker.conversations().toArray()).length === 0, "all to have ended", 30_000);
      h.equal([(await broker.stats()).transmissionQueued, await broker.count("error")], [0, 0]);
    });
    for (let table = 0; table < 3; table += 1) assert.deepEqual(orders.filter((body) => body.table === table).map(({ n }) => n), Array.from({ length: 30 }, (_, n) => n));
    // A target that has ended is shown for a while.
    for (;;) {
      const changed = once(far.broker, "conversation-changed");
      if ((await far.broker.conversations().toArray()).every(({ state }) => state === "CD")) break;
      await changed;
    }
    assert.deepEqual([await far.broker.count("error"), (await far.broker.stats()).transmissionQueued], [0, 0], "nothing is left of it there");
    console.log(`# ${far.posts.length} requests for 90 orders and 90 answers`);
    await page.cleanUp();
  } finally {
    await page.close();
    await way.close();
    await far.close();
  }
});

test("a service that the far broker does not have is an Error on the conversation", { timeout: 60_000 }, async () => {
  const far = await serveBroker({ packageDirectory, queue: "kitchen", definitions: { ...DEFINITIONS, queues: { kitchen: {} }, services: {} }, handler: () => {} });
  allowErrors(far.url);
  const page = await newPage();
  try {
    await page.step(openWire, { url: far.url, definitions: DEFINITIONS });
    await page.step(async (h, pb) => {
      const { broker } = h.state;
      const conversation = await broker.beginDialog({ from: "Counter", to: "Kitchen", contract: "Ordering" });
      await conversation.send("Order", 1);
      const [error] = await broker.receive("counter", { timeout: 10_000 });
      h.equal([error.messageTypeName, error.body.code, await h.stateOf(broker, conversation)], [pb.SystemMessage.Error, -8490, "ER"]);
    });
    await page.cleanUp();
  } finally {
    await page.close();
    await far.close();
  }
});

// ── a bad day ──

const CONVERSATIONS = 20;
const MESSAGES = 50;

const openShop = async (h, pb, { name, url, definitions }) => {
  const { httpTransport } = await import("pocket-broker/http");
  h.state.broker = await h.open({ definitions }, name);
  h.state.trouble = h.collect(h.state.broker, "critical-error");
  await h.state.broker.route({ service: "Kitchen", transport: httpTransport({ url, timeout: 2_000 }) });
  // Waits are of a second and more: what has failed is tried again as soon as the page is told that it is online.
  h.state.hurry = setInterval(() => dispatchEvent(new Event("online")), 50);
  h.afterwards(() => clearInterval(h.state.hurry));
};
/** Sends the next orders of every conversation that is there, and begins those that are not. */
const order = async (h, _, { conversations, from, count }) => {
  const { broker } = h.state;
  const all = await Promise.all(Array.from({ length: conversations }, (_, n) => broker.beginDialog({ from: "Counter", to: "Kitchen", contract: "Ordering", reuse: `table ${n}` })));
  await Promise.all(all.map((conversation, table) => conversation.sendMany(Array.from({ length: count }, (_, n) => ({ messageType: "Order", body: { table, n: from + n } })))));
};

test("1 000 messages in 20 conversations are done once each, in order, and answered once, with pages reloaded and crashed, the network cut and the server away", { timeout: 280_000, skip: browserName === "webkit" && "needs puppeteer" }, async () => {
  const name = `http-${crypto.randomUUID()}`;
  const faults = [undefined, "late", undefined, "cut before", undefined, undefined, "cut after", undefined, "twice", undefined, "500", undefined, undefined, undefined, "429", undefined, "401", undefined, undefined, "409", undefined, "503", undefined, undefined];
  let arrived = 0;
  let wake = () => {};
  server.fault(() => { arrived += 1; wake(); return faults[arrived % faults.length]; });
  const until = async (accepted) => { while (server.accepted.length < accepted) await new Promise((resolve) => { wake = resolve; }); };
  const begun = Date.now();
  const argument = { name, url: network.url, definitions: DEFINITIONS };

  const home = await newPage();
  await home.step(openShop, argument);
  let other = await openTab();
  await other.step(openShop, argument);
  const send = (tab, from, count) => tab.step(order, { conversations: CONVERSATIONS, from, count });

  await send(other, 0, 20);
  await until(100);
  network.cut();
  await send(home, 20, 5);
  await network.restore();
  await until(200);
  await home.reload();
  await home.step(openShop, argument);
  await until(300);
  await crash(other);
  await discard(other);
  await until(400);
  network.stall();
  await send(home, 25, 10);
  network.reset();
  await network.restore();
  await until(500);
  other = await openTab();
  await other.step(openShop, argument);
  await network.refuse();
  await send(other, 35, 10);
  await network.restore();
  await until(600);
  await crash(other);
  await discard(other);
  await server.goAway();
  await send(home, 45, 5);
  await server.comeBack();
  await home.step((h) => h.until(async () => (await h.state.broker.stats()).transmissionQueued === 0, "an empty transmission queue", 200_000));

  const { accepted, arrivals } = server;
  assert.equal(accepted.length, CONVERSATIONS * MESSAGES);
  assert.equal(new Set(accepted.map(({ key }) => key)).size, accepted.length, "no key twice");
  for (let table = 0; table < CONVERSATIONS; table += 1) {
    const own = accepted.filter(({ body }) => body.table === table);
    assert.deepEqual(own.map(({ body }) => body.n), Array.from({ length: MESSAGES }, (_, n) => n), `table ${table}`);
    assert.deepEqual(own.map(({ key }) => key), own.map(({ conversationId }, n) => `${conversationId}/i/${n}`), `the keys of table ${table}`);
  }
  const kinds = new Set(arrivals.map(({ fault }) => fault));
  assert.deepEqual(faults.filter((fault) => !kinds.has(fault)), [], "every fault has happened");
  console.log(`# ${arrivals.length} requests for ${accepted.length} messages in ${Date.now() - begun} ms`);
  await home.step(async (h, _, [conversations, messages]) => {
    const { broker, trouble } = h.state;
    const answers = [];
    for (let rows = await broker.receive("counter"); rows.length > 0; rows = await broker.receive("counter")) answers.push(...rows);
    h.equal([answers.length, trouble, await broker.count("error")], [conversations * messages, [], 0]);
    for (let table = 0; table < conversations; table += 1) h.equal(answers.filter(({ body }) => body.table === table).map(({ body }) => body.n), Array.from({ length: messages }, (_, n) => n), `answers to table ${table}`);
    for await (const { conversationHandle } of broker.conversations()) await broker.endConversation(conversationHandle);
    await h.until(async () => (await broker.stats()).transmissionQueued === 0, "the ends");
    h.equal(await broker.conversations().toArray(), [], "every conversation has ended");
  }, [CONVERSATIONS, MESSAGES]);
  await home.step((h, _, name) => h.forget(name), name);
  await home.cleanUp();
  await home.close();
});

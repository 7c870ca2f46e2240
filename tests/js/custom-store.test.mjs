/** Delayed messages in a store of the application's own, as a page gives it. */
import { inPage } from "./fixtures/harness.mjs";

/** In the page: a store in memory that does as its contract says. */
const makeStore = `(() => {
  const rows = [];
  const log = [];
  const gone = (message) => { const index = rows.findIndex((row) => row.messageId === message.messageId); return index < 0 ? undefined : rows.splice(index, 1)[0]; };
  const store = {
    rows, log,
    async setupInfrastructure(context) { log.push(["setupInfrastructure", context.endpointName, context.transactionMode, typeof context.instanceId, context.signal instanceof AbortSignal]); },
    async initialize(endpointName, transactionMode, signal) { log.push(["initialize", endpointName, transactionMode, signal instanceof AbortSignal]); },
    async store(message) { if (rows.some((row) => row.messageId === message.messageId)) return false; rows.push({ ...message }); },
    async remove(message) { return gone(message) !== undefined; },
    async incrementFailureCount(message, nextAttempt) { const row = rows.find((one) => one.messageId === message.messageId); if (row === undefined) return false; Object.assign(row, { time: nextAttempt, numberOfRetries: row.numberOfRetries + 1, held: false }); return true; },
    async next() { return rows.length === 0 ? null : new Date(Math.min(...rows.map((row) => Number(row.time)))); },
    async fetchNextDueTimeout(at) { const [row] = rows.filter((one) => !one.held && one.time <= at).sort((one, other) => one.time - other.time); if (row === undefined) return null; row.held = true; const { held, ...message } = row; return message; },
    async select(filter) { return rows.filter((row) => filter.before === undefined || row.time < filter.before).map(({ held, ...message }) => message); },
    async count() { return rows.length; },
  };
  return store;
})()`;

inPage("l05, l06: a message goes through a store of the application's own as it is, by real time", async (h, pb, make) => {
  const store = eval(make);
  const broker = await h.openShop({}, { delayedDelivery: { store } });
  h.equal(store.log, [["setupInfrastructure", broker.name, "sends-atomic-with-receive", "string", true], ["initialize", broker.name, "sends-atomic-with-receive", true]]);
  const conversation = await h.dialog(broker);
  const body = { map: new Map([["k", 1n]]), blob: new Blob(["blob"], { type: "text/plain" }), list: [undefined, new Date(5)] };
  const id = await conversation.send("Order", body, { delay: 150, headers: { trace: "t1" } });
  await h.until(() => store.rows.length === 1);
  const [row] = store.rows;
  h.equal([row.messageId, row.destination, row.headers, row.properties, row.numberOfRetries], [id, conversation.handle, { trace: "t1" }, { messageType: "Order" }, 0]);
  h.equal([row.time instanceof Date, row.body.map.get("k"), await row.body.blob.text()], [true, 1n, "blob"]);
  await h.until(async () => (await broker.delayed.count()) === 1);
  h.equal([(await broker.delayed.select().toArray()).map(({ messageId }) => messageId), await broker.delayed.next()], [[id], row.time]);
  const [order] = await broker.receive("kitchen", { timeout: 10_000 });
  h.equal([order.messageId, order.headers, order.body.map.get("k"), await order.body.blob.text(), order.body.list[1]], [id, { trace: "t1" }, 1n, "blob", new Date(5)]);
  await h.until(() => store.rows.length === 0);
  const { delayedDispatched, breakers } = await broker.stats();
  h.equal([delayedDispatched, breakers], [1, { store: "disarmed", fetch: "disarmed", dispatch: "disarmed" }]);
}, { argument: makeStore });

inPage("l04: what is no store, and a mode that is not to be had, are refused", async (h, pb, make) => {
  const options = (delayedDelivery) => ({ delayedDelivery });
  for (const store of [null, 5, "store", {}, { ...eval(make), next: 5 }]) {
    await h.rejects(h.openShop({}, options({ store })), { code: "InvalidArgument", details: { argument: "delayedDelivery.store" } });
  }
  await h.rejects(h.openShop({}, options({ store: eval(make), transactionMode: "transaction-scope" })), { code: "UnsupportedTransactionMode" });
  const refusal = new Error("no transactions here");
  const store = { ...eval(make), async initialize() { throw refusal; } };
  const refused = await h.rejects(h.openShop({}, options({ store, transactionMode: "none" })), { code: "UnsupportedTransactionMode", details: { transactionMode: "none" } });
  h.equal(refused.cause === refusal, true);
  const late = { ...eval(make), async setupInfrastructure() { throw new Error("offline"); } };
  await h.rejects(h.openShop({}, options({ store: late })), { code: "DelayedStoreFailed", retryable: true });
  const broker = await h.openShop({}, options({ store: eval(make) }));
  await h.rejects(pb.openBroker(broker.name, options({ store: eval(make) })), { code: "InvalidArgument", details: { argument: "delayedDelivery.store" } });
}, { argument: makeStore });

inPage("l11: what a store gives in place of a message goes to the error queue, and is no hot loop", async (h, pb, make) => {
  const store = eval(make);
  const planted = [
    { messageId: crypto.randomUUID(), destination: "counter", time: new Date(0), headers: {}, properties: {}, body: 1, numberOfRetries: 0 },
    { messageId: crypto.randomUUID(), destination: 5, time: new Date(0), headers: {}, properties: {}, body: 2, numberOfRetries: 0 },
    { messageId: "m1", destination: "counter", time: new Date(0), headers: { a: 1 }, properties: { messageType: "DEFAULT", priority: "5" }, body: 3, numberOfRetries: 0 },
    { messageId: crypto.randomUUID(), destination: "counter", time: new Date(0), headers: {}, properties: { messageType: "DEFAULT", priority: "5" }, body: () => {}, numberOfRetries: 0 },
    "a text", 7, [],
  ];
  const { fetchNextDueTimeout } = store;
  const left = [...planted];
  store.fetchNextDueTimeout = async (at) => left.shift() ?? fetchNextDueTimeout.call(store, at);
  const broker = await h.openShop({}, { delayedDelivery: { store } });
  await h.until(async () => { await broker.poll().catch(() => {}); return (await broker.stats()).failed === planted.length; });
  const failed = await broker.failed().toArray();
  h.ok(failed.every(({ exceptionMessage }) => exceptionMessage.includes("no message")), JSON.stringify(failed.map(({ exceptionMessage }) => exceptionMessage)));
  h.equal(await broker.count("counter"), 0);
}, { argument: makeStore });

inPage("l12: what a store throws is said with its cause, and one that never takes a message says so", async (h, pb, make) => {
  const store = eval(make);
  const refusal = new pb.UnrecoverableError("too long");
  store.store = async () => { throw refusal; };
  const broker = await h.openShop({}, { delayedDelivery: { store } });
  const failures = h.collect(broker, "message-failed");
  const id = await broker.enqueue("counter", "note", { delay: 1_000_000 });
  await h.until(() => failures.length === 1);
  const [failed] = await broker.failed().toArray();
  h.equal([failed.messageId, failed.failedQueue, failed.body, failed.exceptionMessage.includes("too long")], [id, "counter", "note", true]);
  h.equal([await broker.delayed.count(), (await broker.stats()).breakers.store], [0, "disarmed"]);
  store.remove = async () => { throw undefined; };
  const unknown = await h.rejects(broker.delayed.cancel(crypto.randomUUID()), { code: "DelayedStoreFailed", retryable: true });
  h.ok(unknown.message.includes("could not be asked to remove"), unknown.message);
}, { argument: makeStore });

inPage("l16: close aborts what the store is asked, and asks it no more", async (h, pb, make) => {
  const store = eval(make);
  let asked = false;
  let aborted = false;
  store.fetchNextDueTimeout = (at, signal) => new Promise((_, reject) => { asked = true; signal.addEventListener("abort", () => { aborted = true; reject(signal.reason); }); });
  const broker = await h.openShop({}, { delayedDelivery: { store } });
  await h.until(() => asked);
  await broker.close();
  await h.until(() => aborted);
  h.equal(store.rows.length, 0);
}, { argument: makeStore });

inPage("l05, l09: a test clock goes from due instant to due instant through a store of the application's own, handlers and their retries included", async (h, pb, make) => {
  const { testClock } = await import("/pkg/dist/testing.js");
  const clock = testClock(1_000_000);
  const store = eval(make);
  const broker = await h.openShop({}, { clock, delayedDelivery: { store } });
  const handled = [];
  const activation = broker.activate("counter", ([message], tx) => {
    handled.push([message.body, clock.now()]);
    if (message.body === "first") return tx.enqueue("counter", "second", { delay: 86_400_000 });
    if (message.attempts === 0) throw new Error("not yet");
  }, { recoverability: { immediateRetries: 0, delayedRetries: 1, timeIncrease: 5_000 } });
  await broker.enqueue("counter", "first", { delay: 60_000 });
  await clock.advance(59_999);
  h.equal([handled, store.rows.length], [[], 1]);
  await clock.advance(1);
  h.equal(handled, [["first", 1_060_000]]);
  await clock.advance(86_400_000 + 5_000);
  h.equal(handled, [["first", 1_060_000], ["second", 87_460_000], ["second", 87_465_000]]);
  h.equal([store.rows.length, await broker.delayed.count(), (await broker.stats()).failed], [0, 0, 0]);
  await activation.stop();
}, { argument: makeStore });

inPage("l14: what is cancelled or moved in a handler is so with the handler's commit", async (h, pb, make) => {
  const store = eval(make);
  const broker = await h.openShop({}, { delayedDelivery: { store } });
  const [first, second] = [await broker.enqueue("counter", 1, { delay: 1e9 }), await broker.enqueue("counter", 2, { delay: 1e9 })];
  await h.until(async () => store.rows.length === 2 && (await broker.stats()).delayed === 0);
  await broker.enqueue("kitchen", "go");
  const failure = new Error("not this time");
  let fail = true;
  const drained = async () => broker.drain("kitchen", async (_, tx) => {
    h.equal([await tx.delayed.cancel(first), await tx.delayed.reschedule(second, Date.now() + 200)], [true, true]);
    if (fail) throw failure;
  }, { recoverability: { immediateRetries: 0, delayedRetries: 1, timeIncrease: 1 } });
  h.equal([(await drained()).handled, (await broker.delayed.select().toArray()).length], [0, 2]);
  fail = false;
  await h.until(async () => (await drained()).handled === 1);
  h.equal(h.bodies(await broker.receive("counter", { timeout: 10_000 })), [2]);
  await h.until(() => store.rows.length === 0);
}, { argument: makeStore });

inPage("l04: a store serves one name, and what it has as an optional method is one", async (h, pb, make) => {
  const store = eval(make);
  const broker = await h.openShop({}, { delayedDelivery: { store } });
  await h.rejects(h.openShop({}, { delayedDelivery: { store } }), { code: "InvalidArgument", details: { argument: "delayedDelivery.store" } });
  await (await h.reopen(broker, { delayedDelivery: { store } })).close();
  for (const method of ["setupInfrastructure", "release", "select", "count"]) {
    await h.rejects(h.openShop({}, { delayedDelivery: { store: { ...eval(make), [method]: 5 } } }), { code: "InvalidArgument", details: { argument: `delayedDelivery.store.${method}` } });
    await (await h.openShop({}, { delayedDelivery: { store: { ...eval(make), [method]: null } } })).close();
  }
}, { argument: makeStore });

inPage("l16: who gives up opening, or closes, leaves the store in peace", async (h, pb, make) => {
  const hanging = { ...eval(make), initialize: (endpointName, mode, signal) => new Promise((_, reject) => { signal.addEventListener("abort", () => reject(signal.reason)); }) };
  const name = h.name();
  const controller = new AbortController();
  const opening = pb.openBroker(name, { signal: controller.signal, delayedDelivery: { store: hanging } }).catch((error) => error);
  await h.until(() => true);
  controller.abort();
  h.equal((await opening) === controller.signal.reason, true);
  const store = eval(make);
  const broker = await h.open({ delayedDelivery: { store } }, name);
  const asked = [];
  for (const method of ["select", "count", "remove"]) {
    const own = store[method].bind(store);
    store[method] = (...given) => { asked.push(given.at(-1)); return own(...given); };
  }
  const calls = [broker.delayed.select().toArray(), broker.delayed.count(), broker.delayed.cancel(crypto.randomUUID())].map((call) => call.catch(({ code }) => code));
  await broker.close();
  await Promise.all(calls);
  const before = asked.length;
  await h.until(() => true);
  h.ok(asked.length === before && asked.every((signal) => signal instanceof AbortSignal), "nothing is asked after the close");
}, { argument: makeStore });

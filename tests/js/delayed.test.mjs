/** Delayed delivery, as a page sees it. Where real time passes, the timers are short, and the test waits for what comes of them. */
import { inPage } from "./fixtures/harness.mjs";

inPage("l01, l02: a delayed message comes when it is due, on a conversation and into a queue", async (h) => {
  const broker = await h.openShop();
  const conversation = await h.dialog(broker);
  const arrivals = h.collect(broker, "message-enqueued");
  const before = Date.now();
  const first = await conversation.send("Order", { table: 4 }, { delay: 60, headers: { trace: "t1" } });
  const second = await broker.enqueue("counter", "later", { deliverAt: new Date(before + 80), priority: 7, key: "k" });
  h.equal([await broker.count("kitchen"), await broker.count("counter"), await broker.delayed.count()], [0, 0, 2]);
  await h.until(() => arrivals.length === 2);
  h.ok(Date.now() >= before + 80, "not before its time");
  const [order] = await broker.receive("kitchen");
  h.equal([order.messageId, order.body, order.headers, order.messageSequenceNumber], [first, { table: 4 }, { trace: "t1" }, 0]);
  h.ok(order.messageEnqueueTime >= before + 60, "as if it had been sent then");
  const [note] = await broker.receive("counter");
  h.equal([note.messageId, note.body, note.priority, note.key], [second, "later", 7, "k"]);
  const { delayed, delayedDispatched } = await broker.stats();
  h.equal([delayed, delayedDispatched, await broker.delayed.next()], [0, 2, null]);
});

// P27, P28.
inPage("l01: both kinds at once, and what is no time, are refused at the call", async (h) => {
  const broker = await h.openShop();
  const conversation = await h.dialog(broker, { lifetime: 60_000 });
  const wrong = [[{ delay: -1 }, "delay"], [{ delay: NaN }, "delay"], [{ delay: Infinity }, "delay"], [{ delay: "5" }, "delay"], [{ deliverAt: new Date(NaN) }, "deliverAt"],
    [{ deliverAt: "tomorrow" }, "deliverAt"], [{ deliverAt: Infinity }, "deliverAt"], [{ delay: 1, deliverAt: 2 }, "deliverAt"]];
  for (const [options, argument] of wrong) {
    const calls = [() => conversation.send("Order", 1, options), () => conversation.sendMany([{ messageType: "Order" }], options),
      () => broker.enqueue("kitchen", 1, options), () => broker.enqueueMany("kitchen", [1], options)];
    for (const call of calls) {
      await h.rejects(call(), { code: "InvalidArgument", details: { argument } }, JSON.stringify(options));
    }
  }
  await h.rejects(conversation.send("Order", 1, { delay: 60_001 }), { code: "TimerBeyondLifetime" });
  await h.rejects(broker.delayed.cancel("m1"), { code: "InvalidArgument", details: { argument: "id" } });
  await h.rejects(broker.delayed.cancel(5), { code: "InvalidArgument", details: { argument: "id" } });
  await h.rejects(broker.delayed.reschedule(crypto.randomUUID(), "soon"), { code: "InvalidArgument", details: { argument: "to" } });
  await h.rejects(broker.delayed.select({ destinaton: "kitchen" }).toArray(), { code: "InvalidArgument" });
  h.equal(await broker.delayed.count(), 0);
});

inPage("l14: what waits can be looked at, cancelled and rescheduled, by an application's clock", async (h) => {
  h.state.now = 1_000_000;
  const broker = await h.openShop({}, { clock: { now: () => h.state.now } });
  const conversation = await h.dialog(broker);
  const [a, b] = await conversation.sendMany([{ messageType: "Order", body: 1 }, { messageType: "Order", body: 2, headers: { n: "2" } }], { delay: 1_000 });
  const c = await broker.enqueue("counter", new Map([["k", 1n]]), { deliverAt: 1_000_500, key: "x", priority: 3 });
  const all = await broker.delayed.select().toArray();
  h.equal(all, [
    { messageId: c, destination: "counter", time: new Date(1_000_500), headers: {}, properties: { messageType: "DEFAULT", priority: "3", key: "x" }, body: new Map([["k", 1n]]), numberOfRetries: 0 },
    { messageId: a, destination: conversation.handle, time: new Date(1_001_000), headers: {}, properties: { messageType: "Order" }, body: 1, numberOfRetries: 0 },
    { messageId: b, destination: conversation.handle, time: new Date(1_001_000), headers: { n: "2" }, properties: { messageType: "Order" }, body: 2, numberOfRetries: 0 },
  ]);
  const ids = async (filter) => (await broker.delayed.select(filter).toArray()).map(({ messageId }) => messageId);
  h.equal([await ids({ destination: "counter" }), await ids({ before: new Date(1_001_000) }), await ids({ limit: 2 })], [[c], [c], [c, a]]);
  h.equal([(await broker.delayed.select().first()).messageId, await broker.delayed.next()], [c, new Date(1_000_500)]);
  const changed = h.next(broker, "changed");
  h.equal([await broker.delayed.cancel(a), await broker.delayed.cancel(a), await broker.delayed.reschedule(b, new Date(1_000_100))], [true, false, true]);
  h.equal((await changed).delayed, true);
  h.state.now += 100;
  h.equal([await broker.poll(), h.bodies(await broker.receive("kitchen"))], [1, [2]]);
  h.state.now += 10_000;
  h.equal([await broker.poll(), h.bodies(await broker.receive("counter"))], [1, [new Map([["k", 1n]])]]);
});

// P32.
inPage("l02, l14: in a transaction a delay counts from the commit, cancel may conflict, and a handler's delay is one", async (h) => {
  h.state.now = 1_000_000;
  const broker = await h.openShop({}, { clock: { now: () => h.state.now } });
  const thrown = new Error("changed my mind");
  await broker.transaction(async (tx) => {
    await tx.enqueue("kitchen", 1, { delay: 5 });
    throw thrown;
  }).catch((error) => h.equal(error, thrown));
  const id = await broker.transaction(async (tx) => {
    const given = await tx.enqueue("kitchen", 2, { delay: 1_000 });
    h.equal(await tx.delayed.count(), 0, "not before the commit");
    h.state.now += 500;
    return given;
  });
  h.equal([(await broker.delayed.select().first()).messageId, await broker.delayed.next()], [id, new Date(1_001_500)]);
  await h.rejects(broker.transaction(async (tx) => {
    h.equal([await tx.delayed.cancel(id), await tx.delayed.cancel(id)], [true, false]);
    h.state.now += 1_000;
    h.equal(await broker.poll(), 1);
  }), { code: "Conflict", retryable: true, details: { messageId: id } });
  await broker.drain("kitchen", ([message], tx) => tx.enqueue("counter", message.body, { delay: 10 }));
  h.equal([await broker.delayed.count(), await broker.count("counter")], [1, 0]);
  h.state.now += 10;
  await broker.poll();
  h.equal(h.bodies(await broker.receive("counter")), [2]);
});

inPage("l18: END takes along what is under way, and says how much", async (h) => {
  const broker = await h.openShop();
  const conversation = await h.order(broker, 1);
  await conversation.sendMany([{ messageType: "Order" }, { messageType: "Order" }], { delay: 3_600_000 });
  h.equal([await conversation.end(), await broker.delayed.count()], [{ discarded: 2, archived: 0 }, 0]);
});

// P44.
inPage("l09, l10: what can't go where it was to go is in the error queue, and comes back from there", async (h) => {
  h.state.now = 1_000_000;
  const broker = await h.openShop({}, { clock: { now: () => h.state.now } });
  await broker.define({ queues: { jobs: {} } });
  const id = await broker.enqueue("jobs", "job", { delay: 10, headers: { own: "1" } });
  await broker.dropQueue("jobs");
  const failed = h.next(broker, "message-failed");
  h.state.now += 10;
  h.equal(await broker.poll(), 0);
  const told = await failed;
  h.equal([told.messageId, told.queue, told.next, told.error.code], [id, "jobs", "error-queue", "QueueNotFound"]);
  const row = await broker.failed().first();
  h.equal([row.failedQueue, row.attempts, row.headers.FailedQ, row.headers.own], ["jobs", 1, "jobs", "1"]);
  h.equal(await broker.returnToSource(), 0, "it is still gone");
  await broker.define({ queues: { jobs: {} } });
  h.equal(await broker.returnToSource(), 1);
  const [message] = await broker.receive("jobs");
  h.equal([message.messageId, message.body, message.headers], [id, "job", { own: "1" }]);
});

// P70.
inPage("l03: a reload in the middle loses nothing and delivers once", async (h) => {
  const broker = await h.openShop();
  await broker.enqueueMany("kitchen", [1, 2, 3], { delay: 30 });
  const again = await h.reopen(broker);
  await h.until(async () => (await again.count("kitchen")) === 3);
  h.equal([h.bodies(await again.receive("kitchen")), await again.delayed.count()], [[1, 2, 3], 0]);
});

// P64.
inPage("l13: settings of delayed delivery have bounds, and are the same for all brokers of a database", async (h, pb) => {
  const given = { transactionMode: "none", numberOfRetries: 0, timeToTriggerStoreCircuitBreaker: 1, timeToTriggerFetchCircuitBreaker: 5_000, timeToTriggerDispatchCircuitBreaker: 1,
    maximumRecoveryFailuresPerSecond: 1, errorQueue: "error" };
  const broker = await h.openShop({}, { delayedDelivery: given });
  h.equal((await broker.stats()).breakers, { store: "disarmed", fetch: "disarmed", dispatch: "disarmed" });
  await h.rejects(pb.openBroker(broker.name), { code: "InvalidArgument", details: { argument: "delayedDelivery" } });
  await (await pb.openBroker(broker.name, { delayedDelivery: { ...given } })).close();
  const wrong = { transactionMode: ["all"], numberOfRetries: [-1, 0.5], timeToTriggerStoreCircuitBreaker: [0, Infinity], timeToTriggerFetchCircuitBreaker: [0, -1, NaN, "1"],
    timeToTriggerDispatchCircuitBreaker: [0], maximumRecoveryFailuresPerSecond: [0], errorQueue: [5] };
  for (const [option, values] of Object.entries(wrong)) {
    for (const value of values) await h.rejects(h.open({ delayedDelivery: { [option]: value } }), { code: "InvalidArgument", details: { argument: (name) => name.endsWith(option) } }, `${option} ${value}`);
  }
});

inPage("l11: what somebody has put into the store under another kind of key stands in nobody's way", async (h) => {
  const broker = await h.openShop();
  const database = await h.raw(broker.name);
  const store = database.transaction("delayed", "readwrite").objectStore("delayed");
  for (const key of [new Date(5), new Uint8Array([1]), "zzz", 5, ["x", 1], [[], 1]]) store.put("garbage", key);
  await h.completed(store.transaction);
  database.close();
  await broker.enqueueMany("kitchen", [1, 2], { delay: 0 });
  await h.until(async () => (await broker.count("kitchen")) === 2);
  h.equal([await broker.delayed.count(), await broker.delayed.next(), await broker.delayed.select().toArray(), await broker.poll()], [0, null, [], 0]);
});

inPage("l11: what lies among the messages under a key that is none of theirs stands in nobody's way, however many are due", async (h) => {
  h.state.now = 1_000_000;
  const broker = await h.openShop({}, { clock: { now: () => h.state.now } });
  const database = await h.raw(broker.name);
  const store = database.transaction("delayed", "readwrite").objectStore("delayed");
  const strange = [[5], [5, []], [5, "x"], [5, -1], [5, 1.5], [-Infinity, 1], [-Infinity], [2_000_000], [2_000_000, ["x"]]];
  for (const key of strange) store.put("garbage", key);
  await h.completed(store.transaction);
  await broker.enqueueMany("kitchen", Array.from({ length: 600 }, (_, n) => n), { delay: 5 });
  h.state.now += 5;
  await h.within(10_000, broker.poll(), "what is due");
  h.equal(h.bodies(await broker.receive("kitchen", { top: 1_000 })), Array.from({ length: 600 }, (_, n) => n));
  h.equal([await h.within(5_000, broker.poll(), "nothing"), await broker.delayed.select().toArray()], [0, []]);
  h.state.now += 2_000_000;
  await broker.enqueue("kitchen", "last", { delay: 0 });
  h.equal([await h.within(5_000, broker.poll(), "the last one"), h.bodies(await broker.receive("kitchen"))], [1, ["last"]]);
  database.close();
});

// P16.
inPage("l03: hundreds that are due at once go while time passes", async (h) => {
  const broker = await h.openShop();
  await broker.enqueueMany("kitchen", Array.from({ length: 1_500 }, (_, n) => n), { delay: 20 });
  await h.until(async () => (await broker.count("kitchen")) === 1_500);
  h.equal(h.bodies(await broker.receive("kitchen")), Array.from({ length: 1_500 }, (_, n) => n));
});

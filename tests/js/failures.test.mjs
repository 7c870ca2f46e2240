/** What counts as a failure of a handler, and what is nobody's (D35). */
import assert from "node:assert/strict";
import { inPage, withPages } from "./fixtures/harness.mjs";

/** How many groups anybody holds. */
const held = async (broker) => (await broker.groups().toArray()).filter(({ heldBy }) => heldBy !== null).length;

/** From `break` to `mend` commits fail, though marks of attempts can be written; the pause after that ends with `goOn`. */
const breaking = (h) => {
  let isBroken = false;
  let later = 0;
  for (const method of ["put", "delete"]) {
    h.patch(IDBObjectStore.prototype, method, (original) => function (...args) {
      if (isBroken && this.transaction.durability !== "relaxed") throw new DOMException("The disk is on fire.", "UnknownError");
      return original.apply(this, args);
    });
  }
  h.patch(Date, "now", (original) => () => original() + later);
  let over;
  const paused = new Promise((resolve) => {
    h.patch(globalThis, "setTimeout", (original) => (work, ms, ...more) => {
      if (!isBroken || over !== undefined || ms < 500 || ms > 1_000) return original(work, ms, ...more);
      over = work;
      resolve();
      return 0;
    });
  });
  const goOn = () => { later = 1_000; over(); };
  return { break: () => { isBroken = true; }, mend: () => { isBroken = false; }, paused, goOn };
};

/** A test in the page that the file's tests share, which has `held` and `breaking`. */
const test = (title, body) => inPage(title, `async (h, pb) => { h.held = ${held}; h.breaking = () => (${breaking})(h); await (${body})(h, pb); }`);

test("d35: another broker that is closed is no reason to stop: the attempt counts, and nothing is held", async (h) => {
  const broker = await h.openShop();
  const other = await h.openShop();
  await other.close();
  await h.order(broker, 1);
  const failures = h.collect(broker, "message-failed");
  const activation = broker.activate("kitchen", async ([message], tx) => {
    await tx.send(message, "Confirm");
    await other.enqueue("kitchen", 1);
  }, { recoverability: { immediateRetries: 0, delayedRetries: 1 } });
  await activation.idle();
  const [row] = await broker.select("kitchen").toArray();
  h.equal([row.attempts, row.lastError?.includes("closed")], [1, true]);
  h.equal([failures.map(({ error }) => error.code), await h.held(broker)], [["Closed"], 0]);
  await activation.stop();
});

test("d35: whatever a handler rejects with counts, and the readers go on: another transaction's loss, a full disk, a lock", async (h, pb) => {
  const broker = await h.openShop();
  const handled = [];
  const reasons = [
    new pb.BrokerError("TransactionClosed", "of another transaction", { details: { reason: "robbed" } }),
    new pb.BrokerError("GroupLocked", "another group"), new pb.BrokerError("QuotaExceeded", "another store"),
    new pb.BrokerError("StorageUnavailable", "another store"), new pb.BrokerError("Terminated", "another instance"),
  ];
  const troubles = h.collect(broker, "critical-error");
  for (const _ of reasons) await h.order(broker, 1);
  const activation = broker.activate("kitchen", async () => {
    handled.push(reasons[handled.length]?.code);
    if (handled.length <= reasons.length) throw reasons[handled.length - 1];
  }, { recoverability: { immediateRetries: 0, delayedRetries: 1 } });
  await activation.idle();
  h.equal(handled, reasons.map(({ code }) => code), "one after the other, without a pause");
  const rows = await broker.select("kitchen").toArray();
  h.equal(rows.map(({ attempts, lastError }) => [attempts, lastError]), reasons.map(({ message }) => [1, message]));
  h.equal([troubles, await h.held(broker)], [[], 0]);
  await activation.stop();
});

test("d35: a batch whose commit fails by storage is no failure of its messages: a pause, then it comes again as a whole", async (h) => {
  const disk = h.breaking();
  const broker = await h.openShop();
  await h.order(broker, 5);
  const troubles = h.collect(broker, "critical-error");
  const calls = [];
  const activation = broker.activate("kitchen", (messages) => {
    calls.push(messages.map(({ body, attempts }) => [body.n, attempts]));
    if (calls.length === 1) disk.break();
  }, { top: 10 });
  await h.within(10_000, disk.paused, "the pause");
  const whole = Array.from({ length: 5 }, (_, n) => [n, 0]);
  h.equal([calls, troubles.length, troubles[0]?.source, troubles[0]?.error.code], [[whole], 1, "recovery", "StorageUnavailable"]);
  disk.mend();
  h.equal([await h.held(broker), (await broker.select("kitchen").toArray()).map(({ attempts }) => attempts)], [0, [0, 0, 0, 0, 0]]);
  h.equal(calls.length, 1, "not before the pause is over");
  disk.goOn();
  await h.until(() => calls.length === 2, "the second call");
  await activation.idle();
  h.equal([calls, troubles.length, await broker.count("kitchen")], [[whole, whole], 1, 0]);
  await activation.stop();
});

withPages("d36: trouble with the storage is told in every broker of the origin, once, as name, message and code", 2, async ([here, there]) => {
  const name = `failures-${crypto.randomUUID()}`;
  const open = async (h, _, name) => {
    h.state.broker = await h.open({ definitions: h.shop() }, name);
    h.state.told = ["critical-error", "changed", "message-enqueued"].map((type) => h.collect(h.state.broker, type));
  };
  for (const page of [here, there]) await page.step(open, name);
  await here.step(`async (h) => {
    const disk = (${breaking})(h);
    const second = await h.open({}, h.state.broker.name);
    h.state.second = h.collect(second, "critical-error");
    await h.order(h.state.broker, 1);
    const activation = second.activate("kitchen", () => { disk.break(); });
    await h.within(10_000, disk.paused, "the pause");
    disk.mend();
    disk.goOn();
    await activation.stop();
  }`);
  const told = [];
  for (const page of [here, there]) {
    told.push(await page.step(async (h) => {
      const [troubles, changes] = h.state.told;
      await h.until(() => troubles.length > 0, "the news");
      const empty = changes.filter(({ queues, conversations }) => queues.length === 0 && !conversations);
      return [troubles, structuredClone(h.state.second ?? troubles), empty];
    }));
  }
  const [{ error: { message } }] = told[0][0];
  const trouble = { source: "recovery", error: { name: "BrokerError", message, code: "StorageUnavailable" } };
  assert.match(message, /fire/);
  for (const one of told) assert.deepEqual(one, [[trouble], [trouble], []], "and it is no change of anything");
});

test("d35: what was put off is tried at once when online, whoever put it off: a drain that has ended, a broker that is closed", async (h, pb) => {
  const broker = await h.openShop();
  const conversation = await h.order(broker, 1);
  await broker.enqueue("kitchen", { n: 1 }, { ordered: false });
  await conversation.send("Order", { n: 2 });
  const putOff = () => { throw new pb.RetryLater(3_600_000); };
  h.equal(await broker.drain("kitchen", putOff), { handled: 0, failed: 2, remaining: 3 });
  const other = await h.open({}, broker.name);
  await broker.close();
  const bad = await other.beginDialog({ from: "Counter", to: "Kitchen", contract: "Ordering" });
  await bad.send("Order", { n: 3 });
  h.equal(await other.drain("kitchen", () => { throw new Error("bad"); }, { recoverability: { immediateRetries: 0 } }), { handled: 0, failed: 1, remaining: 4 });
  const handled = [];
  const activation = other.activate("kitchen", ([message]) => { handled.push([message.body.n, message.attempts]); });
  await activation.idle();
  h.equal(handled, []);
  globalThis.dispatchEvent(new Event("online"));
  await h.until(() => handled.length === 3, "what was put off");
  await activation.idle();
  h.equal(handled.sort(), [[0, 0], [1, 0], [2, 0]], "what failed waits on");
  await activation.stop();
  await other.close();
  globalThis.dispatchEvent(new Event("online"));
});

withPages("d35: what was put off before a reload, or in another page, is tried at once when online", 2, async ([page, other]) => {
  const name = `failures-${crypto.randomUUID()}`;
  const open = async (h, _, name) => { h.state.broker = await h.open({ definitions: h.shop() }, name); };
  for (const each of [page, other]) await each.step(open, name);
  await page.step(async (h, pb) => {
    await h.order(h.state.broker, 2);
    const activation = h.state.broker.activate("kitchen", () => { throw new pb.RetryLater(3_600_000); });
    await activation.idle();
  });
  await page.reload();
  const begin = async (h, _, name) => {
    h.state.broker ??= await h.open({}, name);
    h.state.handled = [];
    h.state.activation = h.state.broker.activate("kitchen", ([message]) => { h.state.handled.push(message.body.n); });
    await h.state.activation.idle();
  };
  await page.step(begin, name);
  assert.deepEqual(await page.step((h) => h.state.handled), []);
  // In the page that handles nothing.
  await other.step(() => { globalThis.dispatchEvent(new Event("online")); });
  assert.deepEqual(await page.step(async (h) => {
    await h.until(() => h.state.handled.length === 2, "both");
    await h.state.activation.stop();
    return h.state.handled;
  }), [0, 1]);
});

withPages("d36: a failed attempt is told in every broker of the origin", 2, async ([here, there]) => {
  const name = `failures-${crypto.randomUUID()}`;
  const open = async (h, _, name) => {
    h.state.broker = await h.open({ definitions: h.shop() }, name);
    h.state.failures = h.collect(h.state.broker, "message-failed");
  };
  for (const page of [here, there]) await page.step(open, name);
  const row = await here.step(async (h, pb) => {
    const { broker } = h.state;
    await h.order(broker, 1);
    const { messageId, conversationHandle } = await broker.select("kitchen").first();
    await broker.drain("kitchen", () => { throw new RangeError("no bread"); }, { recoverability: { immediateRetries: 0, delayedRetries: 2 } });
    await h.until(() => h.state.failures.length > 0);
    return { messageId, conversationHandle, retryAt: Number((await broker.select("kitchen").first()).retryAt) };
  });
  for (const page of [here, there]) {
    const [failures, isDate] = await page.step(async (h) => {
      await h.until(() => h.state.failures.length > 0, "the news");
      return [h.state.failures.map((failure) => ({ ...failure, retryAt: Number(failure.retryAt) })), h.state.failures[0].retryAt instanceof Date];
    });
    assert.deepEqual([failures, isDate], [[{ ...row, queue: "kitchen", error: { name: "RangeError", message: "no bread" }, attempts: 1, next: "delayed" }], true]);
  }
});

test("l10: another queue than error takes what fails, if the application names it", async (h, pb) => {
  const delayedDelivery = { errorQueue: "trouble" };
  h.match((await h.rejects(h.openShop({}, { delayedDelivery }), { code: "QueueNotFound", details: { name: "trouble" } })).message, /delayedDelivery\.errorQueue/);
  const broker = await h.openShop({ queues: { trouble: {}, jobs: {} } }, { delayedDelivery });
  await h.rejects(pb.openBroker(broker.name), { code: "InvalidArgument", details: { argument: "delayedDelivery" } });
  await h.rejects(broker.dropQueue("trouble"), { code: "InvalidArgument" });
  const id = await broker.enqueue("jobs", 1, { delay: 20 });
  await broker.dropQueue("jobs");
  await h.until(async () => (await broker.stats()).failed === 1);
  await broker.enqueue("kitchen", 2);
  await broker.drain("kitchen", () => { throw new pb.UnrecoverableError("no"); });
  const rows = await broker.failed().toArray();
  h.equal([rows.map((row) => [row.body, row.failedQueue]), await broker.count("trouble"), await broker.count("error")], [[[1, "jobs"], [2, "kitchen"]], 2, 0]);
  h.equal([(await broker.failed({ limit: 1 }).toArray()).length, rows[0].messageId === id, (await broker.stats()).failed], [1, true, 2]);
  await broker.close();
  // Whoever names none sees them all the same.
  const other = await pb.openBroker(broker.name);
  h.equal([(await other.failed({ failedQueue: "kitchen" }).toArray()).map((row) => row.body), await other.returnToSource({ failedQueue: "kitchen" }), await other.count("kitchen")], [[2], 1, 1]);
  h.equal([await other.discardFailed({}), await other.failed().toArray()], [1, []]);
});

/** Which attempts a failing handler gets, and what is kept of what it throws (D35). */
import { inPage } from "./fixtures/harness.mjs";

/** A shop with a clock of its own, and the failures that it tells of. */
const watched = async (h) => {
  h.state.now = 1_000_000;
  const broker = await h.openShop({}, { clock: { now: () => h.state.now } });
  const failures = h.collect(broker, "message-failed");
  /** Lets everything happen that happens by itself, then moves the time to the end of the wait. Gives how long that was. */
  const pass = async (activation) => {
    await activation.idle();
    await h.until(() => failures.length > 0);
    const { retryAt } = failures.at(-1);
    const wait = Number(retryAt) - h.state.now;
    h.state.now = Number(retryAt);
    await broker.poll();
    return wait;
  };
  return { broker, failures, pass };
};

/** A test in the page that the file's tests share, which has `watched`. */
const test = (title, body) => inPage(title, `async (h, pb) => { h.watched = () => (${watched})(h); await (${body})(h, pb); }`);

test("d35: without options: six attempts in each of four rounds, waits of 10, 20 and 30 s, then the error queue", async (h) => {
  const { broker, failures, pass } = await h.watched();
  await h.order(broker, 1);
  let calls = 0;
  const activation = broker.activate("kitchen", () => {
    calls += 1;
    throw new Error("bad");
  });
  for (const [round, wait] of [10_000, 20_000, 30_000].entries()) {
    h.equal(await pass(activation), wait);
    h.equal([calls >= 6 * (round + 1), failures.at(-1).attempts], [true, 6 * (round + 1)]);
  }
  await activation.idle();
  await h.until(() => failures.length === 24);
  h.equal([calls, failures.map(({ attempts }) => attempts)], [24, Array.from({ length: 24 }, (_, n) => n + 1)]);
  const round = (last) => [...Array.from({ length: 5 }, () => "immediate"), last];
  h.equal(failures.map(({ next }) => next), ["delayed", "delayed", "delayed", "error-queue"].flatMap(round));
  h.equal([await broker.count("kitchen"), (await broker.failed().first()).attempts], [0, 24]);
  await activation.stop();
});

test("d35: finally retry-forever: more rounds, waits of a minute at most, order kept, nothing in the error queue", async (h) => {
  const { broker, failures, pass } = await h.watched();
  await h.order(broker, 2);
  let isBad = true;
  const handled = [];
  const activation = broker.activate("kitchen", ([message]) => {
    if (isBad) throw new Error("bad");
    handled.push(message.body.n);
  }, { recoverability: { immediateRetries: 0, delayedRetries: 1, timeIncrease: 25_000, finally: "retry-forever" } });
  const waits = [];
  for (let n = 0; n < 5; n += 1) waits.push(await pass(activation));
  h.equal(waits, [25_000, 50_000, 60_000, 60_000, 60_000]);
  await activation.idle();
  h.equal([failures.every(({ next }) => next === "delayed"), await broker.count("error"), await broker.count("kitchen")], [true, 0, 2]);
  isBad = false;
  await pass(activation);
  await activation.idle();
  h.equal(handled, [0, 1]);
  await activation.stop();
});

inPage("d35: five readers that fail in the same moment are five conversations that failed once: the queue stays on", async (h) => {
  const broker = await h.openShop();
  for (let n = 0; n < 5; n += 1) await h.order(broker, 1);
  let running = 0;
  let most = 0;
  let isDown = true;
  let release;
  const all = new Promise((resolve) => { release = resolve; });
  const activation = broker.activate("kitchen", async () => {
    if (!isDown) return;
    running += 1;
    most = Math.max(most, running);
    if (running === 5) {
      isDown = false;
      release();
    }
    await all;
    throw new TypeError("Failed to fetch");
  }, { maxReaders: 5, recoverability: { finally: "rollback" } });
  await h.within(10_000, all, "five readers");
  await activation.idle();
  const queue = (await broker.queues()).find(({ name }) => name === "kitchen");
  h.equal([most, queue.isReceiveEnabled, queue.consecutiveRollbacks, queue.ready], [5, true, 0, 0]);
  h.equal((await broker.stats()).rollbacks, 5);
  await activation.stop();
});

inPage("d35: RetryLater and UnrecoverableError are recognised by their names; RetryLater takes an instant", async (h) => {
  const broker = await h.openShop();
  const own = (name, more = {}) => Object.assign(new Error("own"), { name, ...more });
  const at = new Date(Date.now() + 7_200_000);
  await h.order(broker, 1);
  h.equal(await broker.drain("kitchen", () => { throw own("RetryLater", { after: at }); }), { handled: 0, failed: 1, remaining: 1 });
  const row = await broker.select("kitchen").first();
  h.ok(row.attempts === 0 && Math.abs(row.retryAt - at) < 2_000, `${row.attempts} ${row.retryAt}`);
  globalThis.dispatchEvent(new Event("online"));
  await h.until(async () => (await broker.select("kitchen").first()).retryAt === null, "its turn");
  h.equal(await broker.drain("kitchen", () => { throw own("UnrecoverableError"); }), { handled: 0, failed: 1, remaining: 0 });
  const failed = await broker.failed().first();
  h.equal([failed.exceptionType, failed.attempts], ["UnrecoverableError", 1]);
});

// P49.
inPage("d35: an instant that has gone by waits no time; texts of errors are cut at 16 384 characters", async (h, pb) => {
  const broker = await h.openShop();
  await h.order(broker, 1);
  let calls = 0;
  const activation = broker.activate("kitchen", () => {
    calls += 1;
    if (calls < 3) throw new pb.RetryLater(new Date(0));
    throw Object.assign(new pb.UnrecoverableError("x".repeat(20_000)), { stack: "y".repeat(20_000) });
  });
  await h.until(async () => (await broker.failed().first()) !== undefined, "the message in the error queue");
  const { exceptionMessage, stackTrace } = await broker.failed().first();
  h.equal([calls, exceptionMessage.length, stackTrace.length], [3, 16_384, 16_384]);
  await activation.stop();
});

inPage("d35: a type that no handler is for goes to the error queue at once", async (h) => {
  const broker = await h.openShop();
  await broker.enqueue("kitchen", 1);
  h.equal(await broker.drain("kitchen", { Order: () => {} }), { handled: 0, failed: 1, remaining: 0 });
  const failed = await broker.failed().first();
  h.equal([failed.exceptionType, failed.attempts, failed.body], ["UnrecoverableError", 1, 1]);
  h.ok(failed.exceptionMessage.includes("DEFAULT"), failed.exceptionMessage);
});

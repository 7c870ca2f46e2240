/** `pocket-broker/testing`: what an application's tests have. */
import { inPage } from "./fixtures/harness.mjs";

inPage("a test clock goes from due instant to due instant, handlers included", async (h) => {
  const { testClock } = await import("pocket-broker/testing");
  const clock = testClock(new Date("2027-01-01"));
  const start = Date.parse("2027-01-01");
  const broker = await h.openShop({}, { clock });
  h.equal(clock.now(), start);
  const seen = [];
  const activation = broker.activate("kitchen", async ([message], tx) => {
    seen.push([message.body, clock.now() - start]);
    if (message.body < 3) await tx.enqueue("kitchen", message.body + 1, { delay: 3_600_000 });
  });
  await broker.enqueue("kitchen", 1, { delay: 86_400_000 });
  await clock.advance(86_399_999);
  h.equal(seen, []);
  await clock.advance(1);
  h.equal(seen, [[1, 86_400_000]]);
  await clock.advance(86_400_000);
  h.equal(seen, [[1, 86_400_000], [2, 90_000_000], [3, 93_600_000]], "each at its own instant");
  h.equal(clock.now() - start, 172_800_000);
  await activation.stop();
});

inPage("retries and timers come in their order, and ten years pass at once", async (h) => {
  const { testClock } = await import("pocket-broker/testing");
  const clock = testClock(0);
  const broker = await h.openShop({}, { clock });
  const failed = [];
  broker.addEventListener("message-failed", ({ detail }) => failed.push([clock.now(), detail.next]));
  const activation = broker.activate("kitchen", () => { throw new Error("no"); }, { recoverability: { immediateRetries: 0 } });
  const conversation = await h.order(broker, 1);
  await conversation.beginTimer(15_000, { name: "between" });
  await clock.advance(0);
  h.equal(failed.map(([at]) => at), [0]);
  await clock.advance(315_576_000_000);
  h.equal(failed, [[0, "delayed"], [10_000, "delayed"], [30_000, "delayed"], [60_000, "error-queue"]]);
  h.equal([clock.now(), h.types(await broker.receive("counter"))], [315_576_000_000, ["DialogTimer"]]);
  await activation.stop();
});

inPage("a handler that sleeps by the clock is woken on the way; calls go one after the other", async (h) => {
  const { testClock } = await import("pocket-broker/testing");
  const clock = testClock();
  const start = clock.now();
  const broker = await h.openShop({}, { clock });
  const at = [];
  const activation = broker.activate("kitchen", async () => {
    await clock.sleep(500);
    at.push(clock.now() - start);
  });
  await broker.enqueueMany("kitchen", [1, 2], { ordered: true });
  await Promise.all([clock.advance(400), clock.advance(300), clock.advance(300)]);
  h.equal([at, clock.now() - start], [[500, 1_000], 1_000]);
  for (const ms of [-1, NaN, Infinity, "5"]) await h.rejects(clock.advance(ms), { code: "InvalidArgument", details: { argument: "ms" } });
  await activation.stop();
  await broker.close();
  await clock.advance(1_000);
  const controller = new AbortController();
  const sleeping = clock.sleep(5, controller.signal);
  controller.abort("enough");
  h.equal(await sleeping.catch((reason) => reason), "enough");
});

inPage("time goes on where the storage fails: what is due waits, the breaker triggers, and it comes once it can be read", async (h) => {
  const { testClock } = await import("pocket-broker/testing");
  const clock = testClock(0);
  const broker = await h.openShop({}, { clock });
  await broker.enqueue("kitchen", 1, { delay: 1_000 });
  const told = h.collect(broker, "critical-error");
  const { getAll } = IDBObjectStore.prototype;
  IDBObjectStore.prototype.getAll = function refusing(...given) {
    if (this.name === "delayed") throw new DOMException("as if the disk failed", "UnknownError");
    return getAll.apply(this, given);
  };
  try {
    await clock.advance(1_000);
    h.equal([clock.now(), (await broker.stats()).breakers.fetch, told.length], [1_000, "armed", 0]);
    await clock.advance(30_000);
    h.equal([clock.now(), (await broker.stats()).breakers.fetch, told.map(({ source }) => source)], [31_000, "triggered", ["fetch"]]);
  } finally {
    IDBObjectStore.prototype.getAll = getAll;
  }
  await clock.advance(10_000);
  h.equal([(await broker.stats()).breakers.fetch, h.bodies(await broker.receive("kitchen"))], ["disarmed", [1]]);
});

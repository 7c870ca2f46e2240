/**
 * Pages in the background of Chromium, as users have them: puppeteer's flags switch off what these tests are about. Hidden pages have timers
 * once a second, and soon once a minute; frozen ones have none. Nobody waits for them, and nothing is lost (D26).
 */
import assert from "node:assert/strict";
import { launchWith, withPages } from "./fixtures/harness.mjs";
import { hold, open, receive } from "./fixtures/steps.mjs";

launchWith({
  ignoreDefaultArgs: ["--disable-background-timer-throttling", "--disable-renderer-backgrounding", "--disable-backgrounding-occluded-windows", "--disable-back-forward-cache"],
  // Once a minute after so many seconds, not after five minutes.
  args: ["--enable-features=IntensiveWakeUpThrottling:grace_period_seconds/20"],
});

const database = () => `throttling-${crypto.randomUUID()}`;

// ── hidden ──

withPages("d26: a hidden page whose timers run once a minute shows signs of life at most 60 s apart, and does what is due", 2, async ([left, right], context) => {
  const name = database();
  await left.step(open, name);
  await left.step((h) => h.order(h.state.broker, 1).then(() => {}));
  assert.deepEqual(await left.step(hold), [{ n: 0 }]);
  await left.step(async ({ dialog, state, state: { broker } }) => {
    // What any other code of the page finds: a chain of timers, and how long it stood still.
    state.still = 0;
    let ran = performance.now();
    const chain = () => {
      state.still = Math.max(state.still, performance.now() - ran);
      ran = performance.now();
      setTimeout(chain, 100);
    };
    chain();
    state.ran = () => ran;
    // One timer after the other, and how late each was.
    state.late = [];
    let due = performance.now() + 5_000;
    await (await dialog(broker)).beginTimer(5_000);
    broker.activate("counter", async ([timer], tx) => {
      state.late.push(Math.round(performance.now() - due));
      due = performance.now() + 5_000;
      await tx.beginConversationTimer(timer, 5_000);
    });
  });
  await right.page.bringToFront();
  assert.equal(await left.step(() => document.visibilityState), "hidden");
  // The page in front has no broker: it looks at what is stored.
  const signs = await right.step(async (h, _, name) => {
    const began = performance.now();
    const db = await h.raw(name);
    const seen = new Map();
    const range = IDBKeyRange.bound(["lease"], ["lease", []]);
    await h.until(async () => {
      const [lease] = await h.done(db.transaction("meta").objectStore("meta").getAll(range));
      if (lease !== undefined && !seen.has(String(lease))) seen.set(String(lease), Math.round(performance.now() - began));
      return seen.size === 2;
    }, "two signs of life", 150_000);
    db.close();
    return [...seen.values()];
  }, name);
  const found = await left.step(async (h) => {
    const { late, ran, still, trouble, work } = h.state;
    const chain = Math.round(Math.max(still, performance.now() - ran()));
    h.state.go();
    await work;
    return { late, chain, trouble, isHidden: document.visibilityState === "hidden" };
  });
  context.diagnostic(`signs of life after ${signs.join(" and ")} ms; due rows late by ${found.late.join(", ")} ms; a chain of timers stood still for ${found.chain} ms`);
  assert.ok(found.isHidden && found.chain > 10_000, `the page is throttled: ${found.chain} ms`);
  assert.ok(signs[0] <= 60_000 && signs[1] - signs[0] <= 60_000, `signs of life after ${signs} ms`);
  assert.ok(found.late.length > 3 && Math.max(...found.late) < 60_000, `late by ${found.late} ms`);
  assert.deepEqual(found.trouble, []);
}, { timeout: 200_000 });

// ── frozen ──

/** Freezes a page while `meanwhile` runs. */
async function frozen(page, meanwhile) {
  const session = await page.page.createCDPSession();
  await session.send("Page.setWebLifecycleState", { state: "frozen" });
  try { await meanwhile(); } finally { await session.send("Page.setWebLifecycleState", { state: "active" }); }
}

withPages("d26: a page that is frozen lets go of its groups at once, and goes on when it is back", 2, async ([left, right]) => {
  const name = database();
  await left.step(open, name);
  await right.step(open, name);
  await left.step((h) => h.order(h.state.broker, 1).then(() => {}));
  assert.deepEqual(await left.step(hold), [{ n: 0 }]);
  await left.step((h) => { h.state.reader = h.state.broker.receive("other", { timeout: Infinity }); });
  const dialog = await right.step(async (h) => (await h.dialog(h.state.broker)).handle);
  await frozen(left, async () => {
    assert.deepEqual(await right.step(receive), [{ n: 0 }]);
    await right.step(async (h, _, handle) => {
      await h.state.broker.conversation(handle).beginTimer(50);
      await h.until(async () => (await h.state.broker.count("counter")) === 1, "the timer");
      await h.state.broker.enqueue("other", "while it slept");
    }, dialog);
  });
  const seen = await left.step(async (h) => [h.bodies(await h.within(20_000, h.state.reader, "the reader")), h.state.outcome, h.state.tx.signal.aborted, await h.rows(h.state.broker, "counter"), h.state.trouble]);
  assert.deepEqual(seen, [["while it slept"], ["TransactionClosed", "suspended"], true, ["1 DialogTimer 0"], []]);
});

withPages("a page that freezes in the middle of its work holds up nobody", 2, async ([left, right]) => {
  const name = database();
  await left.step(open, name);
  await right.step(open, name);
  await left.step((h) => {
    h.state.sent = 0;
    h.state.busy = (async () => { for (let n = 0; !h.state.isEnough; n += 1) { await h.state.broker.enqueue("other", n); h.state.sent = n + 1; } })();
    return h.until(() => h.state.sent > 5, "some work");
  });
  await frozen(left, async () => {
    const rows = await right.step(async (h) => {
      const { broker } = h.state;
      const counts = [];
      for (let round = 0; round < 2; round += 1) {
        await h.within(5_000, broker.enqueue("kitchen", "mine"), "a commit");
        counts.push(await broker.count("other"));
      }
      return counts;
    });
    assert.equal(rows[0], rows[1], "it stands still");
  });
  const [sent, all] = await left.step(async (h) => {
    const { broker, sent } = h.state;
    await h.until(() => h.state.sent > sent, "it goes on");
    h.state.isEnough = true;
    await h.within(60_000, h.state.busy, "the rest of its work");
    return [h.state.sent, h.bodies(await broker.select("other").toArray())];
  });
  assert.deepEqual(all, Array.from({ length: sent }, (_, n) => n));
});

withPages("a frozen page is in nobody's way: another page deletes the database", 2, async ([left, right]) => {
  const name = database();
  await left.step(open, name);
  await left.step((h) => { h.state.closed = h.collect(h.state.broker, "close"); });
  await frozen(left, () => right.step((h, pb, name) => h.within(3_000, pb.deleteBroker(name), "deleteBroker"), name));
  const reasons = await left.step(async (h) => { await h.until(() => h.state.closed.length > 0, "close"); return h.state.closed; });
  assert.deepEqual(reasons, [{ reason: "deleted" }]);
});

withPages("p72, d26: a page that is hidden and frozen for minutes sends what was due meanwhile when it is back, each once and in order", 2, async ([left, right]) => {
  const name = database();
  const minutes = 10 * 60_000;
  await left.step(async (h, _, name) => {
    globalThis.instant = Date.now();
    const broker = h.state.broker = await h.open({ definitions: h.shop(), clock: { now: () => globalThis.instant } }, name);
    h.state.trouble = h.collect(broker, "critical-error");
    // The first is due within the poller's sleep, the last after many of them; some share an instant.
    for (let n = 0; n < 20; n += 1) await broker.enqueue("kitchen", n, { delay: 30_000 * Math.floor(n / 2 + 1) });
    await broker.enqueue("kitchen", "later", { delay: 3_600_000 });
  }, name);
  await right.page.bringToFront();
  assert.equal(await left.step(() => document.visibilityState), "hidden");
  await frozen(left, async () => {
    // Nobody else has the database open: what is due waits for the page. Its clock goes on, as the machine's does; a frozen page runs no timer.
    await left.page.evaluate((ms) => { globalThis.instant += ms; }, minutes);
    const rows = await right.step(async (h, _, name) => {
      const db = await h.raw(name);
      const count = await h.done(db.transaction("messages").objectStore("messages").count());
      db.close();
      return count;
    }, name);
    assert.equal(rows, 0, "nothing was sent while it stood still");
  });
  const seen = await left.step(async (h) => {
    const { broker } = h.state;
    await h.until(async () => (await broker.count("kitchen")) === 20, "what was due");
    await broker.poll();
    return [h.bodies(await broker.receive("kitchen", { top: 100 })), await broker.delayed.count(), (await broker.stats()).delayedDispatched, h.state.trouble];
  });
  assert.deepEqual(seen, [Array.from({ length: 20 }, (_, n) => n), 1, 20, []]);
});

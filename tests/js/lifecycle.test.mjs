/** Pages that are put away and come back: nobody waits for them, and nothing is lost (D26). Those that are frozen are in throttling.test.mjs. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { address, browserName, inPage, launchWith, newPage, serveWith, withPages } from "./fixtures/harness.mjs";
import { hold, open, receive } from "./fixtures/steps.mjs";

// What must not be stored is not kept for the way back, and puppeteer switches that off.
serveWith({ "Cache-Control": "no-cache" });
if (browserName === "chromium") launchWith({ ignoreDefaultArgs: ["--disable-back-forward-cache"] });

const database = () => `lifecycle-${crypto.randomUUID()}`;

// ── by events that the tests make, in every browser ──

/** What a page is told when it is put away for the way back, and when it is there again. */
const events = (h) => {
  h.state.putAway = () => dispatchEvent(new PageTransitionEvent("pagehide", { persisted: true }));
  h.state.comeBack = () => dispatchEvent(new PageTransitionEvent("pageshow", { persisted: true }));
};

/** A test in the page that the file's tests share, which has `putAway` and `comeBack`. */
const asleep = (title, body) => inPage(title, `async (h, pb) => { (${events})(h); try { await (${body})(h, pb); } finally { h.state.comeBack(); } }`);

asleep("a page that is put away holds no lock, no connection and no channel, and its transactions are rolled back", async (h) => {
  const broker = await h.openShop();
  const channels = [];
  h.patch(BroadcastChannel.prototype, "close", (original) => function () { channels.push(this.name); return original.call(this); });
  await h.order(broker, 1);
  let began;
  const received = new Promise((resolve) => { began = resolve; });
  const reasons = [];
  let later;
  const work = broker.transaction(async (tx) => {
    tx.signal.addEventListener("abort", () => {
      reasons.push(tx.signal.reason);
      later = h.rejects(tx.receive("kitchen"), { code: "TransactionClosed", details: { reason: "suspended" } });
    });
    began(await tx.receive("kitchen"));
    await new Promise(() => {});
  });
  h.equal(h.bodies(await received), [{ n: 0 }]);
  const mine = async () => {
    const { held, pending } = await navigator.locks.query();
    return [...held, ...pending].filter(({ name }) => name.includes(broker.name)).length;
  };
  h.equal(await mine(), 1);
  h.state.putAway();
  const error = await h.rejects(work, { code: "TransactionClosed", details: { reason: "suspended" } });
  h.ok(error.retryable && error.message.includes("put away or frozen"), error.message);
  h.equal(reasons, [error]);
  await later;
  await h.until(async () => (await mine()) === 0, "the free lock");
  h.equal(channels, [`pocket-broker:${broker.name}`]);
  // A connection would be asked to close, and close the broker with it.
  const closed = h.collect(broker, "close");
  await h.within(3_000, h.done(indexedDB.open(broker.name, 99)).then((db) => db.close(), () => {}), "an upgrade that nobody is in the way of");
  h.equal(closed, []);
  h.state.comeBack();
  await h.rejects(broker.queues(), { code: "Closed", details: { reason: "upgraded-elsewhere" } });
  h.equal(closed, [{ reason: "upgraded-elsewhere" }]);
});

asleep("a page that is put away while a broker is opened holds no connection and no channel, and the broker goes on when it is back", async (h) => {
  const name = h.name();
  h.forget(name);
  const channels = new Set();
  h.patch(BroadcastChannel.prototype, "close", (original) => function () { channels.delete(this.name); return original.call(this); });
  h.patch(globalThis, "BroadcastChannel", (Original) => class extends Original { constructor(channel) { super(channel); channels.add(channel); } });
  const restore = h.patch(IDBFactory.prototype, "open", (original) => function (...args) {
    restore();
    h.state.putAway();
    return original.apply(this, args);
  });
  const broker = await h.within(3_000, h.open({}, name), "the broker");
  h.equal([...channels], []);
  const reader = broker.queues();
  await h.within(3_000, h.done(indexedDB.open(name, 99)).then((db) => db.close(), () => {}), "an upgrade that nobody is in the way of");
  h.state.comeBack();
  await h.rejects(reader, { code: "Closed", details: { reason: "upgraded-elsewhere" } });
});

asleep("the same Broker goes on: readers that wait, an activation, a request, and calls that were made meanwhile", async (h) => {
  const broker = await h.openShop({ queues: { jobs: {}, mails: {} } });
  const trouble = h.collect(broker, "critical-error");
  const handled = [];
  let holding;
  const held = new Promise((resolve) => { holding = resolve; });
  const activation = broker.activate("jobs", async ([message], tx) => {
    handled.push(message.body);
    if (handled.length > 1) return;
    holding();
    await new Promise((resolve) => { tx.signal.addEventListener("abort", resolve); });
  });
  await broker.enqueue("jobs", "job");
  await held;
  const reader = broker.receive("mails", { timeout: Infinity });
  const asked = broker.request({ from: "Counter", to: "Kitchen", contract: "Ordering" }, "Order", "soup");
  await h.until(async () => (await broker.count("kitchen")) === 1, "the question");
  for (let round = 0; round < 3; round += 1) {
    h.state.putAway();
    h.state.putAway();
    h.state.comeBack();
    h.state.comeBack();
  }
  h.state.putAway();
  const calls = [broker.enqueue("mails", "meanwhile"), broker.count("jobs"), broker.transaction((tx) => tx.receive("kitchen").then(async ([message]) => { await tx.send(message, "Confirm", "soup is ready"); }))];
  const pending = await Promise.race([Promise.any(calls).then(() => "it did not wait"), new Promise((resolve) => { setTimeout(resolve, 50, "it waits"); })]);
  h.equal(pending, "it waits");
  const seen = h.spy();
  h.equal(seen.opens, []);
  h.state.comeBack();
  await Promise.all(calls);
  h.equal(seen.opens, [broker.name], "one connection");
  h.equal(h.bodies(await reader), ["meanwhile"]);
  h.equal((await asked).body, "soup is ready");
  await activation.idle();
  h.equal(handled, ["job", "job"], "handed over again, and counted as no failure");
  h.equal(trouble, []);
  h.equal((await broker.stats()).rollbacks > 0, true);
  h.equal((await broker.queues()).filter(({ consecutiveRollbacks }) => consecutiveRollbacks > 0), []);
  await activation.stop();
});

asleep("a storage transaction is cut off in the middle and begun again: nobody waits for it, and it happens once", async (h) => {
  const broker = await h.openShop({ queues: { jobs: {} } });
  let rounds = 0;
  h.patch(IDBDatabase.prototype, "transaction", (original) => function (...args) {
    const transaction = original.apply(this, args);
    // After the first of its reads has been asked for.
    if (rounds < 6) queueMicrotask(() => queueMicrotask(() => { rounds += 1; h.state.putAway(); setTimeout(h.state.comeBack, 1); }));
    return transaction;
  });
  await broker.enqueue("jobs", 1);
  h.ok(rounds > 1, `${rounds} rounds`);
  h.equal(h.bodies(await broker.select("jobs").toArray()), [1]);
  h.equal(h.bodies(await broker.receive("jobs")), [1]);
  await h.order(broker, 1);
  h.equal(await broker.count("kitchen"), 1);
});

asleep("what is due meanwhile happens once, when the page is back", async (h) => {
  const naps = [];
  const broker = await h.open({ definitions: h.shop(), clock: { now: () => Date.now(), sleep: (ms) => new Promise((wake) => { naps.push({ ms, wake }); }) } });
  const conversation = await h.dialog(broker);
  await conversation.beginTimer(20);
  await h.until(() => naps.length === 1, "a poller that sleeps");
  h.state.putAway();
  await new Promise((resolve) => { setTimeout(resolve, 30); });
  naps.splice(0).forEach(({ wake }) => wake());
  await new Promise((resolve) => { setTimeout(resolve, 30); });
  h.equal(naps, [], "nobody sleeps meanwhile");
  h.state.comeBack();
  await h.until(() => naps.length > 0, "the poller");
  h.equal(naps.map(({ ms }) => ms), [10], "one poller");
  naps.splice(0).forEach(({ wake }) => wake());
  await h.until(async () => (await broker.count("counter")) === 1, "the DialogTimer");
  h.equal(await h.rows(broker, "counter"), ["1 DialogTimer 0"]);
});

asleep("a database that is deleted meanwhile closes its broker when the page is back", async (h) => {
  const broker = await h.openShop();
  const waiting = h.rejects(broker.receive("kitchen", { timeout: Infinity }), { code: "Closed", details: { reason: "deleted" } });
  const closed = h.next(broker, "close");
  h.state.putAway();
  await h.within(3_000, h.done(indexedDB.deleteDatabase(broker.name)), "a delete that nobody is in the way of");
  h.state.comeBack();
  h.equal(await closed, { reason: "deleted" });
  await waiting;
  await h.rejects(broker.queues(), { code: "Closed", details: { reason: "deleted" } });
  // WebKit lists what was never made at version 0.
  h.ok(!(await h.versionOf(broker.name)), "nothing was made in its place");
});

withPages("a database that was deleted and made again meanwhile is another one", 2, async ([left, right]) => {
  const name = database();
  await left.step(open, name);
  await left.step(events);
  await left.step((h) => { h.state.closed = h.next(h.state.broker, "close"); h.state.putAway(); });
  await right.step((h, pb, name) => h.within(3_000, pb.deleteBroker(name), "deleteBroker"), name);
  await right.step(open, name);
  await right.step((h) => h.state.broker.enqueue("other", "new"));
  const reason = await left.step(async (h) => {
    h.state.comeBack();
    await h.rejects(h.state.broker.enqueue("other", "old"), { code: "Closed", details: { reason: "deleted" } });
    return h.state.closed;
  });
  assert.deepEqual(reason, { reason: "deleted" });
  assert.deepEqual(await right.step(async (h) => h.bodies(await h.state.broker.select("other").toArray())), ["new"]);
});

asleep("close() while the page is put away: what was asked for is done when it is back, and then nothing is left open", async (h) => {
  const broker = await h.openShop({ queues: { jobs: {} } });
  const other = await h.open({}, broker.name);
  h.state.putAway();
  await h.within(3_000, other.close(), "a close with nothing to do");
  const sent = broker.enqueue("jobs", "last words");
  const closed = broker.close();
  h.equal(await Promise.race([closed, new Promise((resolve) => { setTimeout(resolve, 50, "waits"); })]), "waits");
  h.state.comeBack();
  await Promise.all([sent, closed]);
  const again = await h.open({}, broker.name);
  h.equal(h.bodies(await again.receive("jobs")), ["last words"]);
});

asleep("listeners of the page's life are there while a broker is open, and for no longer", async (h, pb) => {
  const there = [];
  const name = (target, type) => `${target === document ? "document" : "window"} ${type}`;
  const isOurs = (type) => ["pagehide", "pageshow", "freeze", "resume"].includes(type);
  h.patch(EventTarget.prototype, "addEventListener", (original) => function (type, ...rest) { if (isOurs(type)) there.push(name(this, type)); return original.call(this, type, ...rest); });
  h.patch(EventTarget.prototype, "removeEventListener", (original) => function (type, ...rest) { if (isOurs(type)) there.splice(there.indexOf(name(this, type)), 1); return original.call(this, type, ...rest); });
  await pb.init();
  const memory = await h.open({ storage: "memory" });
  h.equal(there, []);
  const first = await h.open();
  const second = await h.open({}, first.name);
  const all = ["document freeze", "document resume", "window pagehide", "window pageshow"];
  h.equal(there.toSorted(), all);
  await first.close();
  h.equal(there.toSorted(), all);
  await second.close();
  h.equal(there, []);
  const third = await h.open();
  h.equal(there.toSorted(), all);
  await pb.deleteBroker(third.name);
  h.equal(there, []);
  await memory.close();
});

// ── real pages ──

/** The way back. */
async function back({ page }) {
  if (browserName !== "firefox") return page.goBack();
  // Puppeteer would wait for a load, which a page that was kept has not.
  await page.evaluate(() => { history.back(); });
  for (const end = Date.now() + 20_000; (await page.evaluate(() => location.pathname).catch(() => "")) !== "/fixtures/blank.html";) {
    if (Date.now() > end) throw new Error("the page did not come back");
  }
}

/** Leaves the page and comes back to it. */
async function awayAndBack(page, meanwhile = async () => {}) {
  await page.step((h) => {
    h.state.shown = [];
    h.state.hidden = [];
    addEventListener("pageshow", ({ persisted }) => h.state.shown.push(persisted), { once: true });
    addEventListener("pagehide", ({ persisted }) => h.state.hidden.push(persisted), { once: true });
  });
  await page.page.goto(address("/fixtures/away.html"));
  await meanwhile();
  await back(page);
  await page.ready();
  return page.step((h) => ({ hidden: h.state.hidden, shown: h.state.shown, reasons: performance.getEntriesByType("navigation")[0].notRestoredReasons ?? null }));
}

const RESTORED = { hidden: [true], shown: [true], reasons: null };

test("a page with an open broker is kept for the way back, and goes on with the same one", { timeout: 90_000 }, async () => {
  const name = database();
  const page = await newPage();
  try {
    await page.step(open, name);
    await page.step(async (h) => {
      const { broker } = h.state;
      h.state.reader = broker.receive("other", { timeout: Infinity });
      h.state.changed = h.next(broker, "changed", 60_000);
      h.state.activation = broker.activate("kitchen", () => {});
      await h.state.activation.idle();
      const dialog = await h.dialog(broker);
      await dialog.beginTimer(300, { name: "due" });
      // The app's own last words.
      addEventListener("pagehide", () => { h.state.said = broker.enqueue("other", "said on the way out"); }, { once: true });
    });
    assert.deepEqual(await awayAndBack(page), RESTORED);
    const seen = await page.step(async (h) => {
      const { broker } = h.state;
      await h.within(20_000, h.state.said, "what was said on the way out");
      const first = await h.within(20_000, h.state.reader, "the reader");
      await h.until(async () => (await broker.count("counter")) > 0, "the timer", 20_000);
      await broker.poll();
      const order = await h.order(broker, 1);
      await h.until(async () => (await broker.count("kitchen")) === 0, "the activation", 20_000);
      return { first: h.bodies(first), timers: await h.rows(broker, "counter", { status: 1 }), trouble: h.state.trouble, handled: order !== undefined };
    });
    assert.deepEqual(seen, { first: ["said on the way out"], timers: ["1 DialogTimer 0"], trouble: [], handled: true });
    await page.cleanUp();
  } finally {
    await page.close();
  }
});

withPages("d26: while a page is away, other pages have its groups, and it hears of what they did", 2, async ([left, right]) => {
  const name = database();
  await left.step(open, name);
  await right.step(open, name);
  await left.step((h) => h.order(h.state.broker, 1).then(() => {}));
  assert.deepEqual(await left.step(hold), [{ n: 0 }]);
  const life = await awayAndBack(left, async () => {
    assert.deepEqual(await right.step(receive), [{ n: 0 }]);
    await right.step((h) => h.state.broker.define({ queues: { news: {} } }).then(() => h.state.broker.enqueue("news", "for you")).then(() => {}));
  });
  if (browserName === "firefox") {
    assert.equal(life.shown, undefined, "a page that holds a lock when it is left is not kept, but loaded again");
    return;
  }
  assert.deepEqual(life, RESTORED);
  const seen = await left.step(async (h) => [h.state.outcome, h.state.tx.signal.aborted, h.bodies(await h.state.broker.receive("news")), h.bodies(await h.state.broker.receive("kitchen"))]);
  assert.deepEqual(seen, [["TransactionClosed", "suspended"], true, ["for you"], []]);
});

/** A page that holds a group and stands still is robbed of it by another page, through the browser's own locks; one that shows signs of life is not (D26). */
import assert from "node:assert/strict";
import { withPages } from "./fixtures/harness.mjs";

const BEAT = 30_000;
const LIFE = 150_000;
/** WebKit's driver speaks to one page at a time, which is enough here: no step waits for another page. */
const options = { locks: true, webkit: true };

/**
 * The page's own time, which only `pass` moves: whoever sleeps just so long wakes. What sleeps for less than a reader's look is the test's own,
 * and a reader never looks by itself, so what it gets it was woken for.
 */
const travel = (h, _, start) => {
  const LOOK = 15_000;
  const sleepers = new Set();
  let now = start;
  h.patch(Date, "now", () => () => now);
  h.patch(globalThis, "setTimeout", (original) => (work, ms, ...rest) => {
    if (!(ms >= LOOK)) return original.call(globalThis, work, ms, ...rest);
    const sleeper = { work, ms };
    sleepers.add(sleeper);
    return sleeper;
  });
  h.patch(globalThis, "clearTimeout", (original) => (sleeper) => { if (!sleepers.delete(sleeper)) original.call(globalThis, sleeper); });
  h.state.asleep = (ms) => h.until(() => [...sleepers].some((sleeper) => sleeper.ms === ms), `a sleep of ${ms} ms`);
  h.state.pass = (ms) => {
    now += ms;
    for (const sleeper of sleepers) if (sleeper.ms === ms && sleepers.delete(sleeper)) sleeper.work();
  };
};

/** One message, a page that holds its group, and one whose reader waits for it. */
async function held([left, right]) {
  const name = `robbing-${crypto.randomUUID()}`;
  const start = Date.now();
  for (const page of [left, right]) {
    await page.step(async (h, _, name) => { h.state.broker = await h.open({ definitions: h.shop() }, name); }, name);
    await page.step(travel, start);
  }
  await left.step((h) => h.order(h.state.broker, 1).then(() => {}));
  const got = await left.step((h) => new Promise((resolve) => {
    h.state.work = h.state.broker.transaction(async (tx) => {
      h.state.tx = tx;
      resolve(h.bodies(await tx.receive("kitchen")));
      await new Promise((go) => { h.state.go = go; });
    });
    h.state.work.catch(() => {});
  }));
  assert.deepEqual(got, [{ n: 0 }]);
  await right.step((h) => {
    h.state.got = [];
    h.state.reader = h.state.broker.receive("kitchen", { timeout: Infinity }).then((messages) => { h.state.got = h.bodies(messages); });
    h.state.reader.catch(() => {});
  });
}

/** The reader's page takes notice of the holder, and waits in line for as long as a holder may be silent. */
const besiege = async (h, _, { BEAT, LIFE }) => {
  await h.state.asleep(BEAT);
  h.state.pass(BEAT);
  await h.state.asleep(LIFE);
};

/** The locks of the database and who waits for one, as the browser tells, and the leases that are stored. */
const look = async (h) => {
  const { broker } = h.state;
  const ours = ({ name }) => name.includes(broker.name);
  const { held, pending } = await navigator.locks.query();
  const db = await h.raw(broker.name);
  const leases = await h.done(db.transaction("meta").objectStore("meta").getAllKeys(IDBKeyRange.bound(["lease"], ["lease", []])));
  db.close();
  return { held: held.filter(ours).length, waits: pending.some(ours), leases: leases.length };
};
const untilFree = `(h) => h.until(async () => {
  const { held, leases } = await (${look})(h);
  return held + leases === 0;
}, "the end of lock and lease")`;

withPages("d26: a holder that shows no sign of life is robbed by another page: its signal aborts, its verbs and its commit are refused", 2, async ([left, right]) => {
  await held([left, right]);
  await right.step(besiege, { BEAT, LIFE });
  assert.deepEqual(await right.step((h) => h.state.got), []);
  assert.deepEqual(await left.step(look), { held: 1, waits: true, leases: 0 });
  const got = await right.step(async (h, _, LIFE) => {
    h.state.pass(LIFE);
    await h.within(10_000, h.state.reader, "the reader");
    return h.state.got;
  }, LIFE);
  assert.deepEqual(got, [{ n: 0 }]);
  const heard = await left.step(async (h) => {
    const { tx, work } = h.state;
    await h.until(() => tx.signal.aborted, "the signal");
    const robbed = { code: "TransactionClosed", details: { reason: "robbed" } };
    await h.rejects(tx.receive("kitchen"), robbed);
    h.state.go();
    await h.rejects(work, robbed);
    return [tx.signal.reason.code, tx.signal.reason.details.reason, await h.state.broker.count("kitchen")];
  });
  assert.deepEqual(heard, ["TransactionClosed", "robbed", 0]);
  await left.step(untilFree);
}, options);

withPages("d26: a holder that shows signs of life keeps its group, however long another page waits, and commits", 2, async ([left, right]) => {
  await held([left, right]);
  for (let beats = 0; beats < 6; beats += 1) {
    await left.step(async (h, _, BEAT) => {
      await h.state.asleep(BEAT);
      h.state.pass(BEAT);
      // The next sleep begins when the sign is stored.
      await h.state.asleep(BEAT);
    }, BEAT);
  }
  await right.step(besiege, { BEAT, LIFE });
  const got = await right.step(async (h, _, LIFE) => {
    h.state.pass(LIFE);
    // The last sign was just now.
    await h.state.asleep(LIFE);
    return [h.state.got, h.bodies(await h.state.broker.receive("kitchen"))];
  }, LIFE);
  assert.deepEqual(got, [[], []]);
  assert.deepEqual(await left.step(look), { held: 1, waits: true, leases: 1 });
  const seen = await left.step(async (h) => {
    h.state.go();
    await h.state.work;
    return [h.state.tx.signal.aborted, await h.state.broker.count("kitchen")];
  });
  assert.deepEqual(seen, [false, 0]);
  await right.step(untilFree);
  assert.deepEqual(await right.step((h) => h.state.got), []);
}, options);

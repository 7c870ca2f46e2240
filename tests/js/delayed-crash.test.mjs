/** Delayed messages, and tabs that die while they send them. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { crash, discard, openTab } from "./fixtures/crashing.mjs";
import { newPage } from "./fixtures/harness.mjs";

const MESSAGES = 10_000;

/** Does what is due, as any page with an open broker. */
const serve = async (h, pb, name) => { await pb.openBroker(name); };

// P23.
test("l03, l07: ten thousand messages that are due at once are sent once and in order, however many tabs die over them", { timeout: 120_000 }, async () => {
  const name = `delayed-crash-${crypto.randomUUID()}`;
  const home = await newPage();
  // This one does nothing by itself: it never wakes.
  await home.step(async (h, _, { name, total }) => {
    h.state.broker = await h.open({ definitions: h.shop(), clock: { now: () => Date.now(), sleep: () => new Promise(() => {}) } }, name);
    h.state.ids = await h.state.broker.enqueueMany("kitchen", Array.from({ length: total }, (_, n) => n), { delay: 0 });
  }, { name, total: MESSAGES });
  const sent = () => home.step((h) => h.state.broker.count("kitchen", { status: 1 }));
  const more = async (than) => {
    for (;;) {
      const count = await sent();
      if (count > than || count === MESSAGES) return count;
    }
  };
  let before = 0;
  const counts = [];
  for (let death = 0; death < 2; death += 1) {
    const doomed = await openTab();
    await doomed.step(serve, name);
    before = await more(before);
    await crash(doomed);
    counts.push(await sent());
    await discard(doomed);
  }
  const last = await newPage();
  await last.step(serve, name);
  console.log(`# sent when the two pages were dead: ${counts.join(" and ")} of ${MESSAGES}`);
  await home.step(async (h, _, total) => {
    const { broker, ids } = h.state;
    await h.until(async () => (await broker.count("kitchen", { status: 1 })) === total, "all of them", 60_000);
    const seen = [];
    for (let rows = await broker.receive("kitchen", { top: 1_000 }); rows.length > 0; rows = await broker.receive("kitchen", { top: 1_000 })) seen.push(...rows);
    h.equal(seen.map(({ body }) => body), Array.from({ length: total }, (_, n) => n), "in order, each once");
    h.equal(seen.map(({ messageId }) => messageId), ids, "with the ids that they were given");
    h.equal([await broker.delayed.count(), await broker.delayed.next()], [0, null]);
  }, MESSAGES);
  await last.close();
  await home.cleanUp();
  await home.close();
});

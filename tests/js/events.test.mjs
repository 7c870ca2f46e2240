/** What the brokers of an origin hear of a commit (D36), and of messages that go nowhere (D13): in one page and in others. */
import assert from "node:assert/strict";
import { inPage, withPages } from "./fixtures/harness.mjs";

const listen = async (h, _, { name, count }) => {
  const types = ["changed", "message-enqueued", "conversation-changed", "queue-disabled", "message-dropped", "close"];
  h.state.brokers = [];
  for (let n = 0; n < count; n += 1) h.state.brokers.push(await h.open({ definitions: h.shop() }, name));
  [h.state.broker] = h.state.brokers;
  h.state.heard = h.state.brokers.map((broker) => Object.fromEntries(types.map((type) => [type, h.collect(broker, type)])));
};
const heard = (h) => structuredClone(h.state.heard);
/** Waits for the last of it. */
const settled = async (h, _, queue) => {
  await h.until(() => h.state.heard.every((seen) => seen["queue-disabled"].some((event) => event.queue === queue)), `the news of ${queue}`);
};

withPages("d36: every broker of the origin hears of every commit, in its own page and in others", 2, async ([left, right]) => {
  const name = `events-${crypto.randomUUID()}`;
  await right.step(listen, { name, count: 2 });
  await left.step(listen, { name, count: 1 });
  const [initiator, target] = await right.step(async (h) => {
    const { broker } = h.state;
    await broker.alterQueue("kitchen", { status: "off" });
    await broker.alterQueue("kitchen", { status: "on" });
    h.state.heard.forEach((seen) => Object.values(seen).forEach((events) => events.splice(0)));
    const dialog = await h.dialog(broker);
    await broker.transaction(async (tx) => {
      for (let n = 0; n < 3; n += 1) await tx.send(dialog, "Order", { n });
    });
    const handles = await broker.transaction(async (tx) => {
      const [message] = await tx.receive("kitchen");
      await tx.send(message, "Confirm");
      await tx.endConversation(message);
      return [dialog.handle, message.conversationHandle];
    });
    await broker.alterQueue("counter", { status: "off" });
    return handles;
  });
  for (const page of [left, right]) await page.step(settled, "counter");
  const [[there], here] = [await left.step(heard), await right.step(heard)];
  assert.deepEqual(here[0], here[1], "two brokers of one page hear the same");
  const [own] = here;
  assert.equal(own.changed.length, 4, "BEGIN, three SENDs in one, the answer, ALTER QUEUE");
  assert.deepEqual(own.changed[2], { queues: own.changed[2].queues, conversations: true, delayed: false, transmission: false, archive: false });
  assert.deepEqual([...own.changed[2].queues].sort(), ["counter", "kitchen"]);
  assert.deepEqual(own["message-enqueued"], [{ queue: "kitchen" }, { queue: "counter" }], "once per queue and commit");
  const states = [{ handle: initiator, state: "CO" }, { handle: initiator, state: "DI" }, { handle: target, state: "CD" }];
  assert.deepEqual(own["conversation-changed"].map(({ state }) => state).sort(), ["CD", "CO", "DI"]);
  for (const state of states) assert.ok(own["conversation-changed"].some((event) => JSON.stringify(event) === JSON.stringify(state)), JSON.stringify(state));
  assert.deepEqual(own["queue-disabled"], [{ queue: "counter", reason: "altered" }]);
  // Another page may hear of several commits at once.
  assert.deepEqual(there["conversation-changed"], own["conversation-changed"]);
  assert.deepEqual(there["queue-disabled"].slice(-1), own["queue-disabled"]);
  assert.deepEqual([...new Set(there["message-enqueued"].map(({ queue }) => queue))].sort(), ["counter", "kitchen"]);
  assert.ok(there.changed.length > 0 && there.changed.every(({ queues }) => Array.isArray(queues)));
  assert.deepEqual([there.close, own.close], [[], []]);
});

withPages("d13: who fires and forgets, and is answered: every page hears that the answer went nowhere", 2, async ([left, right]) => {
  const name = `events-${crypto.randomUUID()}`;
  await right.step(listen, { name, count: 1 });
  await left.step(listen, { name, count: 1 });
  const { id, handle, conversationId, before } = await right.step(async (h) => {
    const { broker } = h.state;
    const dialog = await h.order(broker, 1);
    await dialog.end({ cleanup: true });
    const [message] = await broker.receive("kitchen");
    const before = Date.now();
    const id = await broker.send(message, "Confirm");
    return { id, handle: message.conversationHandle, conversationId: message.conversationId, before };
  });
  for (const page of [left, right]) {
    const [dropped, isDate] = await page.step(async (h) => {
      const [seen] = h.state.heard;
      await h.until(() => seen["message-dropped"].length > 0, "the news");
      const { reason, message: { messageEnqueueTime, ...message } } = seen["message-dropped"][0];
      return [{ count: seen["message-dropped"].length, reason, message, time: messageEnqueueTime.getTime() }, messageEnqueueTime instanceof Date];
    });
    assert.deepEqual(dropped.message, {
      messageId: id, messageTypeName: "Confirm", conversationHandle: handle, conversationId, serviceName: "Counter", serviceContractName: "Ordering",
    });
    assert.match(dropped.reason, /gone/);
    assert.ok(isDate && dropped.time >= before && dropped.time <= Date.now());
    assert.equal(dropped.count, 1);
  }
  const counts = [];
  for (const page of [left, right]) counts.push(await page.step(async (h) => (await h.state.broker.stats()).dropped));
  assert.deepEqual(counts, [0, 1], "counters are of the broker that did it");
});

withPages("groups() says who holds a group: this page, another one, nobody", 2, async ([left, right]) => {
  const name = `events-${crypto.randomUUID()}`;
  for (const page of [left, right]) await page.step(listen, { name, count: 1 });
  const groups = async (h) => (await h.state.broker.groups({ service: "Kitchen" }).toArray()).map(({ conversations, ready, heldBy, queue }) => [queue, conversations, ready, heldBy]);
  await left.step(async (h) => {
    const { broker } = h.state;
    await h.order(broker, 3);
    await new Promise((taken) => {
      h.state.working = broker.transaction(async (tx) => {
        await tx.receive("kitchen", { top: 1 });
        taken();
        await new Promise((resolve) => { h.state.finish = resolve; });
      });
    });
  });
  assert.deepEqual(await left.step(groups), [["kitchen", 1, 3, "this"]]);
  assert.deepEqual(await right.step(groups), [["kitchen", 1, 3, "other"]]);
  await left.step(async (h) => { h.state.finish(); await h.state.working; });
  for (const page of [left, right]) assert.deepEqual(await page.step(groups), [["kitchen", 1, 2, null]]);
});

inPage("nothing is told of what changed nothing", async (h) => {
  const broker = await h.openShop();
  const dialog = await h.order(broker, 1);
  const changed = h.collect(broker, "changed");
  await h.rejects(dialog.send("Confirm"), { code: "WrongDirection" });
  await broker.alterQueue("kitchen", { retention: false });
  await broker.transaction(async (tx) => { await tx.receive("kitchen"); await tx.send(dialog, "Order"); throw new RangeError("no"); }).catch(() => {});
  await broker.receive("counter");
  await broker.define(h.shop());
  const before = changed.filter(({ queues }) => queues.length === 0);
  h.equal(before, [], "each names what it touched");
  await dialog.send("Order", { n: 1 });
  const last = changed.pop();
  h.equal([last.queues, last.conversations], [["kitchen"], true]);
});

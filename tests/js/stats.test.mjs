/** `stats()` and `groups()`, and how to find the conversations that nobody ends (D36). */
import { inPage } from "./fixtures/harness.mjs";

const START = Date.UTC(2026, 0, 1);

inPage("d36: stats() has every counter and gauge, in plain objects", async (h, _, START) => {
  const clock = { time: START, now() { return this.time; } };
  const broker = await h.openShop({}, { clock });
  const states = (more) => ({ SO: 0, SI: 0, CO: 0, DI: 0, DO: 0, ER: 0, CD: 0, ...more });
  const nothing = {
    sends: 0, receives: 0, enqueued: 0, delayedDispatched: 0, transmitted: 0, rollbacks: 0, dropped: 0, activations: 0, timers: 0,
    openConversations: states(), delayed: 0, transmissionQueued: 0, failed: 0, oldestReady: null, oldestTransmission: null,
    breakers: { store: "disarmed", fetch: "disarmed", dispatch: "disarmed" },
  };
  h.equal(await broker.stats(), nothing);
  h.equal(JSON.parse(JSON.stringify(await broker.stats())), nothing);
  const dialog = await h.order(broker, 2);
  clock.time += 1_000;
  await broker.transaction(async (tx) => {
    const [message] = await tx.receive("kitchen", { top: 1 });
    await tx.send(message, "Confirm");
    h.equal((await tx.stats()).receives, 0, "nothing is committed yet");
  });
  await broker.transaction(async (tx) => { await tx.receive("kitchen"); throw new RangeError("not today"); }).catch(() => {});
  await dialog.beginTimer(0);
  await broker.poll();
  await h.until(async () => (await broker.stats()).timers === 1, "the timer");
  await broker.alterQueue("kitchen", { status: "off" });
  clock.time += 1_000;
  await dialog.send("Order", { n: 2 });
  await h.dialog(broker);
  h.equal(await broker.stats(), {
    ...nothing, sends: 4, receives: 1, enqueued: 4, rollbacks: 1, timers: 1, openConversations: states({ SO: 1, CO: 2 }),
    transmissionQueued: 1, oldestReady: new Date(START), oldestTransmission: new Date(START + 2_000),
  });
  const second = await h.open({ clock }, broker.name);
  const { sends, openConversations } = await second.stats();
  h.equal([sends, openConversations], [0, states({ SO: 1, CO: 2 })], "counters are of one Broker, gauges of the database");
  await second.close();
  await h.rejects(second.stats(), { code: "Closed" });
}, { argument: START });

inPage("stats() counts the readers of activate and drain, and what failed to the last attempt", async (h) => {
  const broker = await h.openShop();
  await h.order(broker, 2);
  await broker.drain("kitchen", () => {});
  const { activations, receives, rollbacks, failed } = await broker.stats();
  h.equal([activations, receives, rollbacks, failed], [2, 2, 0, 0], "one message each");
  await broker.enqueue("counter", "bad");
  await broker.drain("counter", () => { throw new RangeError("never"); }, { recoverability: { immediateRetries: 0, delayedRetries: 0 } });
  const after = await broker.stats();
  h.equal([after.activations, after.rollbacks, after.failed], [3, 1, 1]);
});

inPage("groups() of a broker and of a transaction, walked, taken at once, the first", async (h) => {
  const broker = await h.openShop();
  h.equal([await broker.groups().toArray(), await broker.groups().first()], [[], undefined]);
  const one = await h.order(broker, 2);
  const two = await h.order(broker, 1, { relatedConversation: one });
  const shared = { conversationGroupId: one.groupId, service: "Counter", queue: "counter", conversations: 2, ready: 0, heldBy: null };
  h.equal(two.groupId, one.groupId);
  h.equal(await broker.groups().first(), shared);
  h.equal(await broker.groups({ service: "Counter" }).toArray(), [shared]);
  await broker.transaction(async (tx) => {
    const [message] = await tx.receive("kitchen");
    const walked = [];
    for await (const group of tx.groups({ service: "Kitchen" })) walked.push([group.conversationGroupId === message.conversationGroupId, group.ready, group.heldBy]);
    h.equal(walked, [[true, 2, "this"], [false, 1, null]]);
  });
  await h.rejects(broker.groups({ services: "Kitchen" }).toArray(), { code: "InvalidArgument" });
});

inPage("conversations that nobody ends show by state and age", async (h, _, START) => {
  const clock = { time: START, now() { return this.time; } };
  const broker = await h.openShop({}, { clock });
  const leak = await h.order(broker, 1);
  await leak.end();
  clock.time += 86_400_000;
  const fresh = await h.order(broker, 1);
  await fresh.end();
  const old = await broker.conversations({ state: "DI", createdBefore: new Date(clock.time - 3_600_000) }).toArray();
  h.equal(old.map(({ conversationId, service, createdAt }) => [conversationId, service, createdAt]), [[leak.conversationId, "Kitchen", new Date(START)]]);
  h.equal((await broker.conversations({ state: "DI", createdBefore: clock.time + 1 }).toArray()).length, 2);
  h.equal((await broker.conversations({ state: "DI" }).first()).conversationId, leak.conversationId);
  h.equal(await broker.conversations({ state: "ER" }).first(), undefined);
  for (const { conversationHandle } of old) await broker.endConversation(conversationHandle);
  h.equal((await broker.stats()).openConversations.DI, 1);
}, { argument: START });

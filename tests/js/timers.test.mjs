/** Timers and lifetimes, as a page sees them. Real time passes here: short timers, and waiting for what comes of them. */
import { inPage } from "./fixtures/harness.mjs";

inPage("a timer sends a DialogTimer to its own side, once", async (h, pb) => {
  const broker = await h.openShop();
  const conversation = await h.dialog(broker);
  const enqueued = h.next(broker, "message-enqueued");
  const before = Date.now();
  h.equal(await conversation.beginTimer(50), undefined);
  const { dialogTimer } = await conversation.info();
  h.ok(dialogTimer instanceof Date && dialogTimer >= before + 50 && dialogTimer <= Date.now() + 50, String(dialogTimer));
  h.equal(await enqueued, { queue: "counter" });
  h.ok(Date.now() >= before + 50, "not before its time");
  const [message, ...others] = await conversation.receive();
  h.equal([others, message.messageTypeName, message.body, message.conversationHandle], [[], pb.SystemMessage.DialogTimer, undefined, conversation.handle]);
  h.equal((await conversation.info()).dialogTimer, null);
  h.equal([await broker.poll(), await broker.count("counter"), await broker.count("kitchen")], [0, 0, 0]);
});

inPage("d08: name and body come back as { name, body }; names are timers of their own", async (h) => {
  const clock = { now: () => h.state.now };
  h.state.now = 1_000_000;
  const broker = await h.openShop({}, { clock });
  const conversation = await h.order(broker, 1);
  const body = { at: new Date(5), list: [1n, undefined] };
  await broker.beginConversationTimer(conversation, 1_000, { name: "named" });
  await broker.beginConversationTimer(conversation.handle, 1_000, { body });
  await broker.beginConversationTimer(conversation, 1_000, { name: "both", body: null });
  await broker.beginConversationTimer(conversation, 1_000, { name: "gone", body: 1 });
  await broker.beginConversationTimer(conversation, null, { name: "gone", body: () => {} });
  body.list.length = 0;
  h.equal(await broker.poll(), 0);
  h.state.now += 1_000;
  h.equal(await broker.poll(), 3);
  const messages = await conversation.receive();
  h.equal(h.types(messages), ["DialogTimer", "DialogTimer", "DialogTimer"]);
  h.equal(h.bodies(messages), [{ name: "named", body: undefined }, { name: "", body: { at: new Date(5), list: [1n, undefined] } }, { name: "both", body: null }]);
});

inPage("a Blob in a timer's body comes back, where the store takes Blobs and where it does not", async (h) => {
  for (const refuses of [false, true]) {
    if (refuses) h.refuseBlobs();
    const broker = await h.openShop();
    const conversation = await h.dialog(broker);
    const enqueued = h.next(broker, "message-enqueued");
    await conversation.beginTimer(0, { body: { file: new Blob(["text"], { type: "text/plain" }) } });
    await enqueued;
    const [{ body }] = await conversation.receive();
    h.equal([body.name, body.body.file.type, await body.body.file.text()], ["", "text/plain", "text"]);
  }
});

inPage("in a transaction a timer begins with the commit, and END takes it along", async (h) => {
  const broker = await h.openShop();
  const conversation = await h.order(broker, 1);
  const thrown = await broker.transaction(async (tx) => {
    await tx.beginConversationTimer(conversation, 0);
    await tx.conversation(conversation).beginTimer(0, { name: "second" });
    await h.rejects(tx.beginConversationTimer(conversation, -1), { code: "InvalidArgument" });
    throw await broker.poll();
  }).catch((reason) => reason);
  h.equal(thrown, 0, "nothing was due before the commit, and there was none");
  h.equal((await conversation.info()).dialogTimer, null);
  const far = await h.farSide(broker, conversation);
  await broker.transaction(async (tx) => {
    const [order] = await tx.receive("kitchen");
    await tx.beginConversationTimer(order, 60_000, { name: "pay", body: order.body });
  });
  h.ok((await far.info()).dialogTimer > new Date());
  h.equal(await far.end(), { discarded: 1, archived: 0 });
});

inPage("what is wrong with a timer is said at the call", async (h) => {
  const broker = await h.openShop();
  const conversation = await h.dialog(broker, { lifetime: 60_000 });
  for (const timeout of [-1, NaN, Infinity, "5", undefined]) await h.rejects(conversation.beginTimer(timeout), { code: "InvalidArgument", details: { argument: "timeout" } }, String(timeout));
  await h.rejects(conversation.beginTimer(1, { nam: "x" }), { code: "InvalidArgument", details: { option: "nam" } });
  await h.rejects(conversation.beginTimer(1, { name: 5 }), { code: "InvalidArgument", details: { argument: "name" } });
  await h.rejects(conversation.beginTimer(1, { name: "\ud800" }), { code: "InvalidArgument", details: { argument: "name" } });
  await h.rejects(conversation.beginTimer(1, { body: { deep: () => {} } }), { code: "NotCloneable", details: { path: (path) => path.endsWith("body.deep") } });
  await h.rejects(conversation.beginTimer(120_000), { code: "TimerBeyondLifetime", number: 8410 });
  await conversation.end();
  await h.rejects(conversation.beginTimer(1), { code: "ConversationNotFound", number: 8426 });
  const small = await h.open({ maxMessageBytes: 100, storage: "memory", definitions: h.shop() });
  await h.rejects((await h.dialog(small)).beginTimer(1, { body: "x".repeat(1_000) }), { code: "MessageTooLarge" });
});

inPage("b85, b86: after its lifetime a conversation has an Error on both sides and waits for both ENDs", async (h, pb) => {
  const broker = await h.openShop();
  const changed = h.collect(broker, "conversation-changed");
  const conversation = await h.order(broker, 1, { lifetime: 100 });
  await h.until(() => changed.filter(({ state }) => state === "ER").length === 2, "both ends in state ER");
  await h.rejects(conversation.send("Order", 1), { code: "InvalidState", number: 8429, details: { state: "ER" } });
  const [error] = await conversation.receive();
  h.equal([error.messageTypeName, error.body.code], [pb.SystemMessage.Error, -8489]);
  const messages = await broker.receive("kitchen");
  h.equal(h.types(messages), ["Error", "Order"]);
  await conversation.end();
  await broker.endConversation(messages[0]);
  h.equal(await broker.conversations().toArray(), []);
});

// P68.
inPage("nothing is due: no timer and no storage transaction; and none is left after close", async (h) => {
  const timers = new Set();
  h.patch(globalThis, "setTimeout", (original) => (work, ms, ...more) => {
    const id = original(() => { timers.delete(id); work(...more); }, ms);
    if (ms >= 9_000 && ms < 15_000) timers.add(id);
    return id;
  });
  h.patch(globalThis, "clearTimeout", (original) => (id) => { timers.delete(id); original(id); });
  const broker = await h.openShop();
  const conversation = await h.order(broker, 1);
  h.equal(timers.size, 0);
  await conversation.beginTimer(14_000);
  await h.until(() => timers.size === 1, "the poller's sleep");
  await conversation.beginTimer(10_000);
  await broker.close();
  h.equal(timers.size, 0);
});

inPage("beginDialog with `reuse` gives the dialog that is open", async (h) => {
  const broker = await h.openShop();
  const [one, two] = await Promise.all([h.dialog(broker, { reuse: "x" }), h.dialog(broker, { reuse: "x" })]);
  h.equal([two.handle, two.groupId], [one.handle, one.groupId]);
  h.ok((await h.dialog(broker, { reuse: "y" })).handle !== one.handle);
  await one.send("Order", 1);
  const inside = await broker.transaction((tx) => tx.beginDialog({ from: "Counter", to: "Kitchen", contract: "Ordering", reuse: "x" }));
  h.equal(inside.handle, one.handle);
  await inside.send("Order", 2);
  h.equal((await broker.receive("kitchen")).length, 2);
  await one.end();
  h.ok((await h.dialog(broker, { reuse: "x" })).handle !== one.handle);
  await h.rejects(h.dialog(broker, { reuse: "" }), { code: "InvalidArgument", details: { argument: "reuse" } });
  await h.rejects(h.dialog(broker, { reuse: 5 }), { code: "InvalidArgument", details: { argument: "reuse" } });
});

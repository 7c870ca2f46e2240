/** What a send refuses, and all-or-none over several conversations and messages. */
import { inPage } from "./fixtures/harness.mjs";

inPage("send: unknown type, not in the contract, wrong direction, unknown handle; nothing is stored", async (h) => {
  const broker = await h.openShop({ contracts: { Other: { Unused: "any" } } });
  const counter = await h.order(broker, 1);
  const kitchen = await h.farSide(broker, counter);
  const before = [await h.rows(broker, "kitchen"), await h.rows(broker, "counter"), await counter.info()];
  const unknown = await h.rejects(counter.send("Odrer"), { code: "MessageTypeNotFound", number: 8428 });
  h.match(unknown.message, /Odrer/);
  const outside = await h.rejects(counter.send("Unused"), { code: "NotInContract", number: 8431 });
  h.match(outside.message, /Unused[^]*Ordering|Ordering[^]*Unused/);
  const mine = await h.rejects(counter.send("Confirm"), { code: "WrongDirection", number: 8432 });
  h.match(mine.message, /Confirm/);
  await h.rejects(kitchen.send("Order"), { code: "WrongDirection", number: 8434 });
  const handle = crypto.randomUUID();
  const lost = await h.rejects(broker.send(handle, "Order"), { code: "ConversationNotFound", number: 8426, details: { handle } });
  h.equal(lost.retryable, false);
  h.match(lost.message, new RegExp(handle));
  await h.rejects(broker.send("not a handle", "Order"), { codes: ["ConversationNotFound", "InvalidArgument"] });
  for (const to of [undefined, null, 5, {}, { handle: 5 }, [undefined]]) await h.rejects(broker.send(to, "Order"), { code: "InvalidArgument" }, JSON.stringify(to));
  for (const type of [undefined, null, 5, ""]) await h.rejects(counter.send(type), { codes: ["InvalidArgument", "MessageTypeNotFound"] }, JSON.stringify(type));
  h.equal([await h.rows(broker, "kitchen"), await h.rows(broker, "counter"), await counter.info()], before, "nothing changed");
  await counter.send("Order", "still works");
  h.equal(await broker.count("kitchen"), 2);
});

inPage("system messages can't be sent by hand", async (h, pb) => {
  const broker = await h.openShop();
  const counter = await h.order(broker, 1);
  for (const type of Object.values(pb.SystemMessage)) await h.rejects(counter.send(type), { codes: ["InvalidArgument", "NotInContract", "MessageTypeNotFound"] }, type);
  h.equal([await broker.count("kitchen"), await h.stateOf(broker, counter)], [1, "CO"]);
});

inPage("several conversations: one id each, in order of the list; refs of every kind", async (h) => {
  const broker = await h.openShop();
  const dialogs = await Promise.all([h.order(broker, 0), h.order(broker, 0), h.order(broker, 0)]);
  const ids = await broker.send([dialogs[2], dialogs[0].handle, { handle: dialogs[1].handle }], "Order", "all");
  h.equal([ids.length, new Set(ids).size], [3, 3]);
  const rows = await broker.select("kitchen").toArray();
  const idOf = async (conversation) => rows.find((row) => row.conversationId === conversation.conversationId).messageId;
  h.equal(ids, [await idOf(dialogs[2]), await idOf(dialogs[0]), await idOf(dialogs[1])]);
  const answers = await broker.send(rows, "Confirm", "received rows are refs");
  h.equal([answers.length, await broker.count("counter")], [3, 3]);
  h.ok(typeof (await broker.send(dialogs[0], "Order")) === "string", "one conversation, one id");
});

inPage("several conversations, one of which can't send: none gets the message", async (h) => {
  const broker = await h.openShop();
  const dialogs = await Promise.all([h.order(broker, 1), h.order(broker, 1), h.order(broker, 1)]);
  await (await h.farSide(broker, dialogs[1])).end();
  const before = [await h.rows(broker, "kitchen"), await broker.conversations().toArray()];
  const error = await h.rejects(broker.send(dialogs, "Order"), { code: "InvalidState", number: 8429, details: { state: "DI" } });
  h.match(`${error.message} ${JSON.stringify(error.details)}`, new RegExp(dialogs[1].handle));
  await h.rejects(broker.send([dialogs[0], crypto.randomUUID()], "Order"), { code: "ConversationNotFound", number: 8426 });
  await h.rejects(broker.send([dialogs[0], await h.farSide(broker, dialogs[0])], "Order"), { code: "WrongDirection", number: 8434 });
  h.equal([await h.rows(broker, "kitchen"), await broker.conversations().toArray()], before);
});

inPage("the same conversation twice in one send is refused, by whatever it is named", async (h) => {
  const broker = await h.openShop();
  const counter = await h.order(broker, 0);
  await h.rejects(broker.send([counter, counter], "Order"), { code: "InvalidArgument" });
  await h.rejects(broker.send([counter, counter.handle], "Order"), { code: "InvalidArgument" });
  h.equal([await broker.count("kitchen"), await h.stateOf(broker, counter)], [0, "SO"]);
});

inPage("sendMany: in order, all or none", async (h) => {
  const broker = await h.openShop();
  const counter = await h.order(broker, 0);
  const ids = await counter.sendMany([{ messageType: "Order", body: 0 }, { messageType: "Cancel", body: 1, headers: { trace: "z" } }, { messageType: "Note" }]);
  const rows = await broker.select("kitchen").toArray();
  h.equal(rows.map((row) => [row.messageTypeName, row.body, row.messageSequenceNumber, row.headers]), [["Order", 0, 0, {}], ["Cancel", 1, 1, { trace: "z" }], ["Note", undefined, 2, {}]]);
  h.equal(ids, rows.map((row) => row.messageId));
  h.equal(new Set(rows.map((row) => row.queuingOrder)).size, 3);
  const bad = [
    [[{ messageType: "Order" }, { messageType: "Confirm" }], "WrongDirection"], [[{ messageType: "Order" }, { messageType: "Unused" }], "NotInContract"],
    [[{ messageType: "Order" }, { messageType: "Nope" }], "MessageTypeNotFound"], [[{ messageType: "Order" }, { messageType: "Order", body: () => 1 }], "NotCloneable"],
    [[{ messageType: "Order" }, {}], "NotInContract"],
  ];
  for (const [messages, code] of bad) await h.rejects(counter.sendMany(messages), { code }, code);
  h.equal([await broker.count("kitchen"), (await counter.info()).sendSequence], [3, 3]);
  h.equal(await counter.sendMany([]), []);
});

inPage("headers are kept, and must be text", async (h) => {
  const broker = await h.openShop();
  const counter = await h.order(broker, 0);
  const headers = { trace: "00-ab", emoji: "🍲", "": "empty key", empty: "" };
  const sending = counter.send("Order", null, { headers });
  headers.trace = "changed later";
  await sending;
  h.equal((await broker.receive("kitchen"))[0].headers, { trace: "00-ab", emoji: "🍲", "": "empty key", empty: "" });
  for (const bad of [{ a: 1 }, { a: null }, { a: "\ud800" }, "text", { a: undefined }]) await h.rejects(counter.send("Order", null, { headers: bad }), { code: "InvalidArgument" }, JSON.stringify(bad));
  h.equal(await broker.count("kitchen"), 0);
});

inPage("a signal that is already aborted: its reason, and nothing is stored", async (h) => {
  const broker = await h.openShop();
  const counter = await h.order(broker, 0);
  const reason = new RangeError("no longer needed");
  const caught = await counter.send("Order", 1, { signal: AbortSignal.abort(reason) }).catch((error) => error);
  h.ok(caught === reason, "the reason, untouched");
  h.equal([await broker.count("kitchen"), await h.stateOf(broker, counter)], [0, "SO"]);
});

inPage("own queue off: with retention the send fails with 9618, without it works", async (h) => {
  const broker = await h.openShop({ counter: { status: "off", retention: true }, queues: { quiet: { status: "off" } }, services: { Quiet: { queue: "quiet" } } });
  const kept = await h.order(broker, 0);
  await h.rejects(kept.send("Order"), { code: "QueueDisabled", number: 9618, details: { retention: true } });
  h.equal(await h.stateOf(broker, kept), "SO");
  const quiet = await h.order(broker, 1, { from: "Quiet" });
  h.equal([await h.stateOf(broker, quiet), await h.rows(broker, "kitchen")], ["CO", ["1 Order 0"]]);
});

inPage("group state: undefined until set, under the group, gone with its last conversation", async (h) => {
  let broker = await h.openShop();
  const one = await h.order(broker, 1);
  const two = await h.dialog(broker, { relatedConversation: one });
  h.equal([await broker.getGroupState(one), await broker.getGroupState(one.groupId)], [undefined, undefined]);
  const state = { step: 1, at: new Date(7), items: new Map([["a", 1n]]) };
  const setting = broker.setGroupState(one, state);
  state.step = 99;
  await setting;
  h.equal(await broker.getGroupState(two.handle), { step: 1, at: new Date(7), items: new Map([["a", 1n]]) }, "cloned at the call, one for the group");
  const far = await h.farSide(broker, one);
  h.equal(await broker.getGroupState(far), undefined, "the far side has a group of its own");
  await h.rejects(broker.getGroupState(crypto.randomUUID()), { codes: ["GroupNotFound", "ConversationNotFound"] });
  await h.rejects(broker.setGroupState(one, () => 1), { code: "NotCloneable" });
  broker = await h.reopen(broker);
  h.equal((await broker.getGroupState(one.groupId)).step, 1);
  await broker.endConversation(one.handle);
  h.equal((await broker.getGroupState(two.handle)).step, 1, "while a conversation is left");
  await broker.endConversation(two.handle);
  await h.rejects(broker.getGroupState(one.groupId), { code: "GroupNotFound" });
});

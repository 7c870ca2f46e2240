/** Beginning, talking, ending: endpoints and their states, system messages, what END throws away (D5 to D20, section 4). */
import { inPage } from "./fixtures/harness.mjs";

inPage("a dialog from its first word to its last", async (h, pb) => {
  const broker = await h.openShop();
  const counter = await h.dialog(broker);
  h.equal([counter.isInitiator, counter.service, counter.farService, counter.contract], [true, "Counter", "Kitchen", "Ordering"]);
  h.equal(new Set([counter.handle, counter.groupId, counter.conversationId]).size, 3, "three ids");
  const states = h.collect(broker, "conversation-changed");
  const id = await counter.send("Order", { dish: "soup" });
  const [order] = await broker.receive("kitchen");
  h.equal([order.messageId, order.messageTypeName, order.body, order.status, order.messageSequenceNumber], [id, "Order", { dish: "soup" }, 0, 0]);
  h.equal([order.serviceName, order.serviceContractName, order.validation, order.priority, order.conversationId], ["Kitchen", "Ordering", "N", 5, counter.conversationId]);
  h.equal([order.headers, order.key, order.attempts, order.retryAt, order.lastError], [{}, null, 0, null, null]);
  h.ok(order.conversationHandle !== counter.handle && order.conversationGroupId !== counter.groupId, "the target has a handle and a group of its own");
  h.ok(order.messageEnqueueTime instanceof Date && Math.abs(order.messageEnqueueTime - Date.now()) < 60_000, "enqueue time");
  await broker.send(order, "Confirm", { minutes: 5 });
  const [confirm] = await counter.receive();
  h.equal([confirm.body, confirm.messageSequenceNumber, confirm.serviceName, confirm.conversationHandle], [{ minutes: 5 }, 0, "Counter", counter.handle]);
  h.equal(await broker.endConversation(order), { discarded: 0, archived: 0 });
  const [end] = await broker.receive("counter");
  h.equal([end.messageTypeName, end.body, end.validation, end.messageSequenceNumber], [pb.SystemMessage.EndDialog, undefined, "E", 1]);
  await broker.endConversation(end);
  h.equal(await broker.conversations().toArray(), []);
  h.equal([await broker.count("counter"), await broker.count("kitchen")], [0, 0]);
  const [ours, theirs] = [counter.handle, order.conversationHandle].map((handle) => states.filter((each) => each.handle === handle).map(({ state }) => state));
  h.equal([ours, theirs], [["CO", "DI", "CD"], ["CD"]], "the last that is heard of an endpoint is that it is closed");
});

inPage("endpoints: SO, CO and what their rows say", async (h) => {
  const broker = await h.openShop();
  const counter = await h.dialog(broker, { lifetime: 3_600_000 });
  const begun = await counter.info();
  h.equal([begun.state, begun.sendSequence, begun.receiveSequence, begun.isInitiator, begun.service, begun.farService, begun.contract, begun.priority],
    ["SO", 0, 0, true, "Counter", "Kitchen", "Ordering", 5]);
  h.equal([begun.conversationHandle, begun.conversationId, begun.conversationGroupId], [counter.handle, counter.conversationId, counter.groupId]);
  h.equal([begun.key, begun.dialogTimer, begun.createdAt instanceof Date], [null, null, true]);
  const left = begun.lifetime - Date.now();
  h.ok(left > 3_500_000 && left <= 3_600_000, `lifetime ends in ${left} ms`);
  h.equal((await broker.conversations().toArray()).length, 1, "no target before the first send");
  await counter.send("Order");
  const far = await (await h.farSide(broker, counter)).info();
  h.equal([(await counter.info()).state, (await counter.info()).sendSequence], ["CO", 1]);
  h.equal([far.state, far.isInitiator, far.service, far.farService, far.conversationId, far.receiveSequence, far.sendSequence], ["CO", false, "Kitchen", "Counter", counter.conversationId, 1, 0]);
  h.equal(await broker.conversation(crypto.randomUUID()).info(), null);
});

inPage("beginDialog: what must exist, and what need not yet", async (h) => {
  const broker = await h.openShop({ services: { Other: { queue: "kitchen" } } });
  await h.rejects(h.dialog(broker, { from: "Nobody" }), { code: "ServiceNotFound", number: 8423 });
  await h.rejects(h.dialog(broker, { contract: "Nothing" }), { code: "ContractNotFound", number: 8425 });
  await h.rejects(h.dialog(broker, { relatedConversation: crypto.randomUUID() }), { code: "ConversationNotFound", number: 8426 });
  for (const lifetime of [0, -1, NaN]) await h.rejects(h.dialog(broker, { lifetime }), { code: "InvalidLifetime" }, `lifetime ${lifetime}`);
  h.equal(await broker.conversations().toArray(), []);
  const one = await h.dialog(broker, { to: "Nobody yet" });
  const related = await h.dialog(broker, { relatedConversation: one });
  h.equal(related.groupId, one.groupId);
  await h.rejects(h.dialog(broker, { relatedConversation: one, relatedGroup: one.groupId }), { code: "InvalidArgument" });
  await h.rejects(broker.beginDialog({ from: "Other", to: "Counter", contract: "Ordering", relatedConversation: one }), { code: "GroupInvalid", number: 9610 });
  const group = crypto.randomUUID();
  const third = await h.dialog(broker, { relatedGroup: group });
  h.equal(third.groupId, group, "a group that did not exist is made with this id");
  h.equal((await broker.conversations({ group }).toArray()).map((row) => row.conversationHandle), [third.handle]);
  await one.send("Order");
  h.equal(await h.stateOf(broker, one), "CO", "a send to a service that is not there is not an error");
  h.equal(await broker.count("kitchen"), 0);
});

// b24.
inPage("without a contract the DEFAULT contract and message type are used, by both sides", async (h) => {
  const broker = await h.openShop({ services: { Kitchen: { queue: "kitchen", contracts: ["DEFAULT"] } } });
  const counter = await broker.beginDialog({ from: "Counter", to: "Kitchen" });
  h.equal(counter.contract, "DEFAULT");
  await counter.send("DEFAULT", 1);
  await counter.sendMany([{ body: 2 }, {}]);
  const got = await broker.receive("kitchen");
  h.equal(got.map((message) => [message.messageTypeName, message.body]), [["DEFAULT", 1], ["DEFAULT", 2], ["DEFAULT", undefined]]);
  await broker.send(got[0], "DEFAULT", "back");
  h.equal(h.bodies(await counter.receive()), ["back"]);
  const again = await broker.beginDialog({ from: "Counter", to: "Kitchen", contract: "Ordering" }).then((each) => each.send("DEFAULT")).catch((error) => error.code);
  h.equal(again, "NotInContract");
});

inPage("END by the target: EndDialog after what was sent, DI, no more sends, what remains can be received", async (h) => {
  const broker = await h.openShop();
  const counter = await h.order(broker, 1);
  const kitchen = await h.farSide(broker, counter);
  await kitchen.sendMany([{ messageType: "Confirm", body: 1 }, { messageType: "Note", body: 2 }]);
  h.equal(await kitchen.end(), { discarded: 1, archived: 0 });
  h.equal(await kitchen.info(), null, "delivery acknowledges at once: no DO, no CD");
  h.equal(await h.stateOf(broker, counter), "DI");
  const error = await h.rejects(counter.send("Order"), { code: "InvalidState", number: 8429, details: { state: "DI" } });
  h.match(error.message, /DI/);
  h.equal(h.types(await counter.receive()), ["Confirm", "Note", "EndDialog"]);
  await h.rejects(kitchen.end(), { code: "ConversationNotFound", number: 8426 });
  h.equal(await counter.end(), { discarded: 0, archived: 0 });
  h.equal(await broker.conversations().toArray(), []);
  h.equal([await broker.count("kitchen"), await broker.count("counter")], [0, 0], "nobody is told twice");
});

inPage("END by the initiator tells the target, and unread rows are counted", async (h) => {
  const broker = await h.openShop();
  const counter = await h.order(broker, 3);
  const kitchen = await h.farSide(broker, counter);
  await kitchen.send("Confirm");
  h.equal(await counter.end(), { discarded: 1, archived: 0 });
  h.equal([await counter.info(), await h.stateOf(broker, kitchen), await broker.count("counter")], [null, "DI", 0]);
  await h.rejects(kitchen.send("Confirm"), { code: "InvalidState", number: 8429, details: { state: "DI" } });
  h.equal(h.types(await kitchen.receive({ top: 3 })), ["Order", "Order", "Order"]);
  h.equal(h.types(await kitchen.receive()), ["EndDialog"]);
  await kitchen.end();
  h.equal([await broker.count("kitchen"), await broker.count("counter"), (await broker.conversations().toArray()).length], [0, 0, 0]);
});

inPage("END with error: Error comes first, state ER, the rest can still be received, END closes", async (h, pb) => {
  const broker = await h.openShop();
  const counter = await h.order(broker, 2);
  const kitchen = await h.farSide(broker, counter);
  await counter.end({ error: { code: 42, description: "the guest has left" } });
  h.equal([await counter.info(), await h.stateOf(broker, kitchen)], [null, "ER"]);
  await h.rejects(kitchen.send("Confirm"), { code: "InvalidState", number: 8429, details: { state: "ER" } });
  const [error] = await kitchen.receive({ top: 1 });
  h.equal([error.messageTypeName, error.body, error.status, error.validation], [pb.SystemMessage.Error, { code: 42, description: "the guest has left" }, 0, "J"]);
  h.equal(h.types(await kitchen.receive()), ["Order", "Order"]);
  h.equal(await kitchen.receive(), []);
  h.equal(await h.stateOf(broker, kitchen), "ER");
  await kitchen.end();
  h.equal([await broker.count("counter"), (await broker.conversations().toArray()).length], [0, 0], "nothing is sent back");
});

inPage("Error, then sequence, in one batch too; END WITH ERROR to a side that has ended tells nobody", async (h) => {
  const broker = await h.openShop();
  const counter = await h.order(broker, 2);
  const kitchen = await h.farSide(broker, counter);
  await kitchen.sendMany([{ messageType: "Confirm" }, { messageType: "Note" }]);
  await kitchen.end({ error: { code: 7, description: "burnt" } });
  h.equal(h.types(await broker.receive("counter")), ["Error", "Confirm", "Note"]);
  await counter.end({ error: { code: 8, description: "and out" } });
  h.equal([await broker.count("kitchen"), await broker.count("counter"), (await broker.conversations().toArray()).length], [0, 0, 0]);
});

inPage("the arguments of END with error are checked, and a refused END changes nothing", async (h) => {
  const broker = await h.openShop();
  const counter = await h.order(broker, 1);
  for (const code of [0, -1, 1.5, NaN, "7", undefined, null, Infinity]) await h.rejects(counter.end({ error: { code, description: "x" } }), { code: "InvalidEndError", number: 8419, details: { argument: "error.code" } }, `code ${code}`);
  for (const description of ["", "x".repeat(3_001), undefined, null, 5]) await h.rejects(counter.end({ error: { code: 1, description } }), { code: "InvalidEndError", number: 8422, details: { argument: "error.description" } }, `description ${String(description).length}`);
  for (const error of [{}, { code: undefined, description: null }]) await h.rejects(counter.end({ error }), { code: "InvalidEndError", number: 8424, details: { argument: "error" } });
  await h.rejects(counter.end({ error: { code: 1, description: "x" }, cleanup: true }), { codes: ["InvalidArgument", "InvalidEndError"] });
  h.equal([await h.stateOf(broker, counter), await h.rows(broker, "kitchen")], ["CO", ["1 Order 0"]]);
  const long = "ü".repeat(3_000);
  await counter.end({ error: { code: 2_147_483_647, description: long } });
  h.equal((await broker.receive("kitchen"))[0].body, { code: 2_147_483_647, description: long });
});

inPage("END from SO tells nobody; END twice is ConversationNotFound", async (h) => {
  const broker = await h.openShop();
  for (const options of [undefined, { error: { code: 1, description: "changed my mind" } }, { cleanup: true }]) {
    const counter = await h.order(broker, 0);
    await counter.end(options);
    h.equal(await counter.info(), null);
    const error = await h.rejects(counter.end(options), { code: "ConversationNotFound", number: 8426 });
    h.match(`${error.message} ${JSON.stringify(error.details)}`, new RegExp(counter.handle));
    await h.rejects(counter.send("Order"), { code: "ConversationNotFound", number: 8426 });
  }
  h.equal([await broker.count("kitchen"), await broker.count("counter"), (await broker.conversations().toArray()).length], [0, 0, 0]);
});

inPage("cleanup: the far side is not told; what it sends then is dropped, said so, and answered with Error -8462", async (h, pb) => {
  const broker = await h.openShop();
  const counter = await h.order(broker, 2);
  const kitchen = await h.farSide(broker, counter);
  const dropped = h.collect(broker, "message-dropped");
  h.equal(await kitchen.end({ cleanup: true }), { discarded: 2, archived: 0 });
  h.equal([await kitchen.info(), await broker.count("kitchen"), await h.stateOf(broker, counter), await broker.count("counter")], [null, 0, "CO", 0]);
  const arrived = h.next(broker, "message-dropped");
  h.ok(typeof (await counter.send("Order", "into the void")) === "string", "the send itself succeeds");
  h.ok(typeof (await arrived).reason === "string");
  h.equal([dropped.length, await h.stateOf(broker, counter), await broker.count("kitchen")], [1, "ER", 0]);
  const [error, ...rest] = await broker.receive("counter");
  h.equal([error.messageTypeName, error.body.code, typeof error.body.description, rest], [pb.SystemMessage.Error, -8462, "string", []]);
  await h.rejects(counter.send("Order"), { code: "InvalidState", details: { state: "ER" } });
  await counter.end();
  h.equal(await broker.conversations().toArray(), []);
});

inPage("cleanup by the initiator leaves the target as it is", async (h) => {
  const broker = await h.openShop();
  const counter = await h.order(broker, 2);
  const kitchen = await h.farSide(broker, counter);
  await counter.end({ cleanup: true });
  h.equal([await counter.info(), await h.stateOf(broker, kitchen), await h.rows(broker, "kitchen")], [null, "CO", ["1 Order 0", "1 Order 1"]]);
  await kitchen.send("Confirm");
  h.equal([await h.stateOf(broker, kitchen), h.types(await kitchen.receive())], ["ER", ["Error", "Order", "Order"]]);
  h.equal(await kitchen.end(), { discarded: 0, archived: 0 });
});

inPage("a contract that the target does not accept: the send succeeds, and an Error -8409 comes back", async (h, pb) => {
  const broker = await h.openShop({ contracts: { Unwanted: { Order: "any" } } });
  const counter = await h.dialog(broker, { contract: "Unwanted" });
  await counter.send("Order");
  h.equal([await broker.count("kitchen"), await h.stateOf(broker, counter)], [0, "ER"]);
  const [error] = await counter.receive();
  h.equal([error.messageTypeName, error.body.code], [pb.SystemMessage.Error, -8409]);
  h.match(error.body.description, /Unwanted|contract/i);
  await counter.end();
  h.equal(await broker.conversations().toArray(), []);
});

inPage("the target queue is off: the message waits, END waits behind it as DO, cleanup drops both", async (h) => {
  const broker = await h.openShop({ kitchen: { status: "off" } });
  const counter = await h.order(broker, 2);
  h.equal([await broker.count("kitchen"), await h.rows(broker, "kitchen"), await h.stateOf(broker, counter)], [0, [], "CO"]);
  await counter.end();
  h.equal(await h.stateOf(broker, counter), "DO");
  const error = await h.rejects(counter.send("Order"), { code: "InvalidState", number: 8429, details: { state: "DO" } });
  h.match(error.message, /DO/);
  await h.rejects(counter.end(), { code: "InvalidState", number: 8427, details: { state: "DO" } });
  await counter.end({ cleanup: true });
  h.equal(await counter.info(), null);
});

inPage("a target queue that comes back on gets what waited, in order, EndDialog last", async (h) => {
  const broker = await h.openShop({ kitchen: { status: "off" } });
  const [counter, other] = [await h.order(broker, 2), await h.order(broker, 1)];
  const waiting = await broker.transmissionQueue({ conversation: counter }).toArray();
  h.equal(waiting.map((row) => [row.messageType, row.messageSequenceNumber, row.fromService, row.toService, row.contract, row.body, row.isEndOfDialog, row.isConversationError, row.conversationHandle]),
    [0, 1].map((n) => ["Order", n, "Counter", "Kitchen", "Ordering", { n }, false, false, counter.handle]));
  h.ok(waiting.every((row) => row.transmissionStatus.length > 0 && row.enqueueTime instanceof Date), "and says why");
  await counter.end();
  h.equal((await broker.transmissionQueue().toArray()).length, 4);
  await broker.alterQueue("kitchen", { status: "on" });
  h.equal([await broker.transmissionQueue().toArray(), await h.stateOf(broker, counter)], [[], null]);
  h.equal([h.types(await broker.receive("kitchen")), h.bodies(await broker.receive("kitchen"))], [["Order", "Order", "EndDialog"], [{ n: 0 }]]);
  await other.send("Order", { n: 1 });
  await broker.alterQueue("kitchen", { status: "off" });
  await h.rejects(broker.receive("kitchen"), { code: "QueueDisabled", number: 9617 });
  await other.send("Order", { n: 2 });
  const again = await h.reopen(broker);
  await again.alterQueue("kitchen", { status: "on" });
  h.equal(h.bodies(await again.receive("kitchen")), [{ n: 1 }, { n: 2 }]);
  await h.rejects(again.alterQueue("nowhere", { status: "on" }), { code: "QueueNotFound" });
});

inPage("both services may be one: a service that talks to itself", async (h) => {
  const broker = await h.open({ definitions: { queues: { q: {} }, services: { Self: { queue: "q", contracts: ["DEFAULT"] } } } });
  const here = await broker.beginDialog({ from: "Self", to: "Self" });
  await here.send("DEFAULT", "to myself");
  const [message] = await broker.receive("q");
  h.ok(message.conversationHandle !== here.handle);
  await broker.send(message, "DEFAULT", "from myself");
  h.equal(h.bodies(await here.receive()), ["from myself"]);
  await broker.endConversation(message);
  h.equal(h.types(await broker.receive("q")), ["EndDialog"]);
  await here.end();
  h.equal(await broker.conversations().toArray(), []);
});

inPage("endpoints survive: every state is the same after closing and opening", async (h) => {
  let broker = await h.openShop();
  const [so, co, di, er] = await Promise.all([h.order(broker, 0), h.order(broker), h.order(broker), h.order(broker)]);
  await (await h.farSide(broker, di)).end();
  await (await h.farSide(broker, er)).end({ error: { code: 1, description: "x" } });
  const before = await broker.conversations().toArray();
  broker = await h.reopen(broker);
  h.equal(await broker.conversations().toArray(), before);
  h.equal(await Promise.all([so, co, di, er].map((each) => h.stateOf(broker, each.handle))), ["SO", "CO", "DI", "ER"]);
  await broker.send(co.handle, "Order", "after");
  h.equal((await broker.receive("kitchen", { conversation: await h.farSide(broker, co) })).map((row) => [row.messageSequenceNumber, row.body]), [[0, { n: 0 }], [1, "after"]]);
});

/** Which messages a receive gives: one group, by priority and age, in order, and never twice. */
import { inPage } from "./fixtures/harness.mjs";

inPage("an empty queue gives [], an unknown one QueueNotFound, one that is off QueueDisabled", async (h) => {
  const broker = await h.openShop({ queues: { off: { status: "off" } } });
  h.equal(await broker.receive("kitchen"), []);
  h.equal(await broker.receive("kitchen", { top: 5 }), []);
  const missing = await h.rejects(broker.receive("kitchn"), { code: "QueueNotFound" });
  h.match(missing.message, /kitchn/);
  const off = await h.rejects(broker.receive("off"), { code: "QueueDisabled", number: 9617 });
  h.match(off.message, /off/);
  await h.rejects(broker.receive("Kitchen"), { code: "QueueNotFound" }, "a service is not a queue");
});

inPage("top must be a whole number above zero", async (h) => {
  const broker = await h.openShop();
  await h.order(broker, 3);
  for (const top of [0, -1, 1.5, NaN, -0, "2", {}, 1n]) {
    const error = await h.rejects(broker.receive("kitchen", { top }), { code: "InvalidArgument" }, `top ${String(top)}`);
    h.match(error.message, /top/);
  }
  h.equal(await h.rows(broker, "kitchen"), ["1 Order 0", "1 Order 1", "1 Order 2"], "nothing was taken");
  h.equal((await broker.receive("kitchen", { top: 1 })).length, 1);
  h.equal((await broker.receive("kitchen", { top: 2 ** 31 })).length, 2, "a large top is an upper bound like any other");
  h.equal((await broker.receive("kitchen", {})).length, 0);
});

inPage("rows of one group only, never filled up from another", async (h) => {
  const broker = await h.openShop();
  for (const count of [2, 3, 1]) await h.order(broker, count);
  const batches = [];
  for (let batch = await broker.receive("kitchen", { top: 100 }); batch.length > 0; batch = await broker.receive("kitchen", { top: 100 })) batches.push(batch);
  h.equal(batches.map((batch) => batch.length), [2, 3, 1], "the group that has waited longest comes first");
  for (const batch of batches) h.equal(new Set(batch.map((message) => message.conversationGroupId)).size, 1);
});

inPage("order within a conversation, whatever the size of the batches and however they were sent", async (h) => {
  const broker = await h.openShop();
  const counter = await h.order(broker, 0);
  let sent = 0;
  for (const size of [1, 1, 300, 1, 2, 600, 1]) {
    if (size === 1) await counter.send("Order", sent++);
    else await counter.sendMany(Array.from({ length: size }, () => ({ messageType: "Order", body: sent++ })));
  }
  const got = [];
  for (const top of [1, 255, 1, 256, 2, 257, 1_000]) got.push(...(await broker.receive("kitchen", { top })));
  h.equal(h.bodies(got), Array.from({ length: 906 }, (_, n) => n));
  h.equal(got.map((message) => message.messageSequenceNumber), Array.from({ length: 906 }, (_, n) => n));
  h.ok(got.every((message, index) => index === 0 || message.queuingOrder > got[index - 1].queuingOrder), "queuing order rises");
});

inPage("without top: everything the group has, up to 10 000 rows", async (h) => {
  const broker = await h.openShop();
  const counter = await h.order(broker, 10_000);
  await counter.sendMany(Array.from({ length: 5 }, (_, n) => ({ messageType: "Order", body: { n: 10_000 + n } })));
  h.equal((await broker.receive("kitchen")).length, 10_000);
  h.equal((await broker.receive("kitchen")).map((message) => message.body.n), [10_000, 10_001, 10_002, 10_003, 10_004]);
});

inPage("conversation: only that one, though its group has others; group: any member", async (h) => {
  const broker = await h.openShop();
  const one = await h.order(broker, 1);
  const two = await h.order(broker, 1, { relatedConversation: one });
  const [far1, far2] = [await h.farSide(broker, one), await h.farSide(broker, two)];
  await far1.send("Confirm", "to one");
  await far2.send("Confirm", "to two");
  h.equal(h.bodies(await broker.receive("counter", { conversation: two })), ["to two"]);
  h.equal(h.bodies(await broker.receive("counter", { conversation: two.handle })), []);
  await far2.send("Confirm", "to two again");
  const both = await broker.receive("counter", { group: one.groupId });
  h.equal([h.bodies(both).sort(), new Set(both.map((message) => message.conversationGroupId)).size], [["to one", "to two again"], 1]);
  const [order] = await broker.receive("kitchen", { conversation: far1 });
  await one.send("Order", "a received row as filter");
  h.equal(h.bodies(await broker.receive("kitchen", { conversation: order })), ["a received row as filter"]);
  h.equal(await broker.receive("kitchen", { group: order.conversationGroupId }), []);
});

inPage("an unknown conversation or group, or one of another queue, is an error and not an empty set", async (h) => {
  const broker = await h.openShop();
  const counter = await h.order(broker, 1);
  const kitchen = await h.farSide(broker, counter);
  await h.rejects(broker.receive("kitchen", { conversation: crypto.randomUUID() }), { code: "ConversationNotFound", number: 8426 });
  await h.rejects(broker.receive("kitchen", { group: crypto.randomUUID() }), { code: "GroupNotFound", number: 8436 });
  await h.rejects(broker.receive("kitchen", { conversation: counter }), { code: "ConversationNotFound", number: 8426 });
  await h.rejects(broker.receive("kitchen", { group: counter.groupId }), { code: "GroupNotFound", number: 8436 });
  await h.rejects(broker.receive("kitchen", { conversation: kitchen, group: counter.groupId }), { code: "InvalidArgument" });
  await kitchen.end();
  await h.rejects(broker.receive("kitchen", { conversation: kitchen }), { code: "ConversationNotFound", number: 8426 });
});

inPage("priorities: the group with the highest comes first; fixed when the conversation begins", async (h) => {
  const names = ["Low", "Mid", "High"];
  const definitions = h.shop({ contracts: Object.fromEntries(names.map((name) => [name, { Order: "initiator", Confirm: "target" }])), services: { Kitchen: { queue: "kitchen", contracts: ["Ordering", ...names] } },
    priorities: { low: { contract: "Low", level: 1 }, high: { contract: "High", level: 10 } } });
  const broker = await h.open({ definitions });
  for (const name of names) await h.order(broker, 1, { contract: name });
  await broker.define({ priorities: { mid: { contract: "Mid", level: 9 } } });
  await h.order(broker, 1, { contract: "Mid" });
  const got = [];
  for (let batch = await broker.receive("kitchen"); batch.length > 0; batch = await broker.receive("kitchen")) got.push(...batch.map((message) => [message.serviceContractName, message.priority]));
  h.equal(got, [["High", 10], ["Mid", 9], ["Mid", 5], ["Low", 1]]);
});

inPage("priority rules: the most specific wins, and each side is rated by its own local service", async (h) => {
  const rules = { clr: { contract: "Ordering", localService: "Kitchen", remoteService: "Counter", level: 10 }, cl: { contract: "Ordering", localService: "Kitchen", level: 9 }, cr: { contract: "Ordering", remoteService: "Kitchen", level: 8 },
    c: { contract: "Ordering", level: 7 }, lr: { localService: "Kitchen", remoteService: "Counter", level: 6 }, l: { localService: "Kitchen", level: 4 }, r: { remoteService: "Kitchen", level: 3 }, any: { level: 2 } };
  const expected = [["clr", 10, 8], ["cl", 9, 8], ["cr", 7, 8], ["c", 7, 7], ["lr", 6, 3], ["l", 4, 3], ["r", 2, 3], ["any", 2, 2]];
  const names = Object.keys(rules);
  for (const [from, target, initiator] of expected) {
    const broker = await h.openShop({ priorities: Object.fromEntries(names.slice(names.indexOf(from)).map((name) => [name, rules[name]])) });
    const counter = await h.order(broker, 1);
    h.equal([(await (await h.farSide(broker, counter)).info()).priority, (await counter.info()).priority], [target, initiator], from);
  }
});

inPage("two conversations in one group: all of one before any of the other, higher priority first", async (h) => {
  const broker = await h.openShop({ contracts: { Urgent: { Order: "initiator", Confirm: "target" } }, services: { Kitchen: { queue: "kitchen", contracts: ["Ordering", "Urgent"] } }, priorities: { urgent: { contract: "Urgent", level: 8 } } });
  const slow = await h.order(broker, 1);
  const fast = await h.order(broker, 1, { contract: "Urgent", relatedConversation: slow });
  for (const body of [1, 2]) {
    await (await h.farSide(broker, slow)).send("Confirm", `slow ${body}`);
    await (await h.farSide(broker, fast)).send("Confirm", `fast ${body}`);
  }
  h.equal(h.bodies(await broker.receive("counter")), ["fast 1", "fast 2", "slow 1", "slow 2"]);
});

inPage("equal priority: the group whose oldest ready row has waited longest (D17)", async (h) => {
  const broker = await h.openShop();
  const one = await h.order(broker, 3);
  const two = await h.order(broker, 2);
  await one.send("Order", { n: 3 });
  const order = [];
  for (let batch = await broker.receive("kitchen", { top: 1 }); batch.length > 0; batch = await broker.receive("kitchen", { top: 1 })) {
    order.push(batch[0].conversationId === one.conversationId ? "one" : "two");
    if (order.length === 3) await two.send("Order", "late");
  }
  h.equal(order, ["one", "one", "one", "two", "two", "one", "two"], "one's last row came after two's first");
});

inPage("receives side by side never give a message twice, and leave none", async (h) => {
  const broker = await h.openShop();
  for (let each = 0; each < 5; each += 1) await h.order(broker, 20);
  const [first, second] = await Promise.all([broker.receive("kitchen", { top: 7 }), broker.receive("kitchen", { top: 7 })]);
  const ids = [...first, ...second].map((message) => message.messageId);
  h.equal(new Set(ids).size, ids.length);
  for (let round = 0; round < 40 && (await broker.count("kitchen")) > 0; round += 1) {
    const batches = await Promise.all(Array.from({ length: 8 }, () => broker.receive("kitchen", { top: 3 })));
    ids.push(...batches.flat().map((message) => message.messageId));
  }
  h.equal([ids.length, new Set(ids).size, await broker.count("kitchen")], [100, 100, 0]);
});

inPage("several conversations at once stay apart, across a restart", async (h) => {
  let broker = await h.openShop();
  const dialogs = await Promise.all(Array.from({ length: 10 }, () => h.order(broker, 0)));
  await Promise.all(dialogs.flatMap((each, who) => Array.from({ length: 10 }, (_, n) => each.send("Order", { who, n }))));
  const got = new Map();
  for (let round = 0; ; round += 1) {
    if (round === 5) broker = await h.reopen(broker);
    const batch = await broker.receive("kitchen", { top: 4 });
    if (batch.length === 0) break;
    for (const { conversationId, body } of batch) got.set(conversationId, [...(got.get(conversationId) ?? []), body]);
  }
  h.equal(got.size, 10);
  dialogs.forEach((each, who) => h.equal(got.get(each.conversationId), Array.from({ length: 10 }, (_, n) => ({ who, n }))));
});

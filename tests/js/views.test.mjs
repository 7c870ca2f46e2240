/** Reading: select, count, queues, conversations, archive, their filters, and iterating while others write (D39). */
import { inPage } from "./fixtures/harness.mjs";

inPage("select filters by status, conversation, group and type, alone and together", async (h) => {
  const { broker, one, two } = await h.filled();
  const bodies = async (filter) => (await broker.select("kitchen", filter).toArray()).map((row) => row.body?.n ?? row.body);
  const far = await h.farSide(broker, one);
  const group = (await far.info()).conversationGroupId;
  h.equal(await bodies(), [0, 1, 2, 3, 0, 1, 2, "a note"]);
  h.equal(await bodies({}), [0, 1, 2, 3, 0, 1, 2, "a note"]);
  h.equal(await bodies({ status: 0 }), [0, 1]);
  h.equal(await bodies({ status: 1 }), [2, 3, 0, 1, 2, "a note"]);
  h.equal(await bodies({ status: 3 }), []);
  h.equal(await bodies({ status: 2 }), []);
  h.equal(await bodies({ status: [0, 3] }), [0, 1]);
  h.equal(await bodies({ status: [0, 1] }), [0, 1, 2, 3, 0, 1, 2, "a note"]);
  h.equal(await bodies({ conversation: far }), [0, 1, 2, 3]);
  h.equal(await bodies({ conversation: (await broker.select("kitchen").first()).conversationHandle, status: 1 }), [2, 3]);
  h.equal(await bodies({ group }), [0, 1, 2, 3]);
  h.equal(await bodies({ messageType: "Note" }), ["a note"]);
  h.equal(await bodies({ messageType: "Order", status: 1, conversation: await h.farSide(broker, two) }), [0, 1, 2]);
  h.equal(await bodies({ messageType: "Cancel" }), []);
  h.equal((await broker.select("counter", { status: 3, conversation: two }).toArray()).map((row) => row.messageTypeName), ["Order", "Order", "Order", "Note"]);
});

inPage("after, limit, reverse and first; count takes the same filters", async (h) => {
  const { broker, one } = await h.filled();
  const all = await broker.select("kitchen").toArray();
  const orders = all.map((row) => row.queuingOrder);
  h.ok(orders.every((order, index) => index === 0 || order > orders[index - 1]), "queuing order");
  const seen = async (filter) => (await broker.select("kitchen", filter).toArray()).map((row) => orders.indexOf(row.queuingOrder));
  h.equal(await seen({ limit: 3 }), [0, 1, 2]);
  h.equal(await seen({ reverse: true }), [7, 6, 5, 4, 3, 2, 1, 0]);
  h.equal(await seen({ reverse: true, limit: 2 }), [7, 6]);
  h.equal(await seen({ after: orders[2] }), [3, 4, 5, 6, 7]);
  h.equal(await seen({ after: orders[2], limit: 2 }), [3, 4]);
  h.equal(await seen({ after: orders[2], reverse: true }), [7, 6, 5, 4, 3]);
  h.equal(await seen({ after: orders[7] }), []);
  h.equal(await seen({ after: -1, status: 1, limit: 2 }), [2, 3]);
  h.equal(await seen({ status: 1, reverse: true, limit: 1, conversation: await h.farSide(broker, one) }), [3]);
  h.equal([(await broker.select("kitchen").first()).queuingOrder, (await broker.select("kitchen", { reverse: true }).first()).queuingOrder, await broker.select("kitchen", { status: 3 }).first()], [orders[0], orders[7], undefined]);
  const counts = [undefined, { status: 1 }, { status: 0 }, { status: [0, 1] }, { messageType: "Note" }, { conversation: await h.farSide(broker, one) }, { after: orders[5] }, { limit: 3 }];
  h.equal(await Promise.all(counts.map((filter) => broker.count("kitchen", filter))), [8, 6, 2, 8, 1, 4, 2, 3]);
  for (const bad of [{ limit: -1 }, { limit: 1.5 }, { limit: NaN }, { status: 4 }, { status: "1" }, { after: NaN }, { conversation: 5 }]) {
    await h.rejects(broker.select("kitchen", bad).toArray(), { code: "InvalidArgument" }, JSON.stringify(bad));
    await h.rejects(broker.count("kitchen", bad), { code: "InvalidArgument" }, `count ${JSON.stringify(bad)}`);
  }
  for (const read of [() => broker.select("nowhere").toArray(), () => broker.select("nowhere").first(), () => broker.count("nowhere"), async () => { for await (const _ of broker.select("nowhere")) h.ok(false); }]) {
    await h.rejects(read(), { code: "QueueNotFound" });
  }
});

inPage("queues: counters follow every verb and agree with the rows", async (h) => {
  const { broker, one, two } = await h.filled();
  const agree = async (step) => {
    for (const queue of await broker.queues()) {
      const rows = await broker.select(queue.name).toArray();
      h.equal([queue.ready, queue.retained], [rows.filter((row) => row.status === 1).length, rows.filter((row) => row.status === 0 || row.status === 3).length], `${step}: ${queue.name}`);
    }
    return Object.fromEntries((await broker.queues()).map((queue) => [queue.name, [queue.ready, queue.retained]]));
  };
  h.equal(await agree("filled"), { counter: [0, 8], kitchen: [6, 2], error: [0, 0] });
  await (await h.farSide(broker, one)).send("Confirm");
  h.equal(await agree("answered"), { counter: [1, 8], kitchen: [6, 3], error: [0, 0] });
  await one.receive();
  await broker.transaction(async (tx) => { await tx.receive("kitchen"); throw new Error("x"); }).catch(() => {});
  h.equal(await agree("rolled back"), { counter: [0, 9], kitchen: [6, 3], error: [0, 0] });
  await (await h.farSide(broker, one)).end();
  await two.end({ error: { code: 1, description: "x" } });
  h.equal(await agree("ended"), { counter: [1, 5], kitchen: [5, 0], error: [0, 0] });
});

inPage("conversations: filters by service, state, group and age", async (h) => {
  const { broker, one, two } = await h.filled();
  const three = await h.order(broker, 0, { relatedConversation: one });
  await (await h.farSide(broker, two)).end();
  const handles = async (filter) => (await broker.conversations(filter).toArray()).map((row) => row.conversationHandle).sort();
  const sorted = (...all) => all.map((each) => each.handle).sort();
  h.equal((await handles()).length, 4);
  h.equal(await handles({ service: "Counter" }), sorted(one, two, three));
  h.equal((await handles({ service: "Kitchen" })).length, 1);
  h.equal([await handles({ state: "SO" }), await handles({ state: "DI" }), await handles({ state: "CD" })], [sorted(three), sorted(two), []]);
  h.equal(await handles({ group: one.groupId }), sorted(one, three));
  h.equal(await handles({ group: one.groupId, state: "CO" }), sorted(one));
  h.equal((await handles({ conversationId: one.conversationId })).length, 2);
  h.equal([(await handles({ createdBefore: Date.now() + 1_000 })).length, await handles({ createdBefore: new Date(5) })], [4, []]);
  h.equal([await handles({ conversationId: crypto.randomUUID() }), await handles({ service: "Nobody" })], [[], []]);
  let count = 0;
  for await (const row of broker.conversations()) count += row.createdAt instanceof Date ? 1 : 0;
  h.equal(count, 4);
  h.equal((await broker.conversations({ service: "Kitchen" }).first()).conversationId, one.conversationId);
});

inPage("conversation(ref) looks nothing up, and speaks for whatever refers to it", async (h) => {
  const { broker, one } = await h.filled();
  const unknown = broker.conversation(crypto.randomUUID());
  h.equal(await unknown.info(), null);
  await h.rejects(unknown.send("Order"), { code: "ConversationNotFound", number: 8426 });
  await h.rejects(unknown.end(), { code: "ConversationNotFound", number: 8426 });
  const row = await broker.select("kitchen").first();
  for (const ref of [row, row.conversationHandle, { handle: row.conversationHandle }]) {
    const far = broker.conversation(ref);
    h.equal(far.handle, row.conversationHandle);
    await far.send("Confirm");
  }
  h.equal((await broker.conversation(one.handle).receive()).length, 3);
});

inPage("archive: filters by queue, conversation, type, status, limit and direction", async (h) => {
  const { broker, one, two } = await h.filled();
  for (const each of [one, two]) await (await h.farSide(broker, each)).end();
  const seen = async (filter) => (await broker.archive(filter).toArray()).map((row) => row.body?.n ?? row.body);
  h.equal([...(await seen())].map(String).sort(), ["0", "0", "1", "1", "2", "2", "3", "a note"]);
  h.equal([(await seen({ queue: "kitchen" })).length, await seen({ queue: "counter" })], [8, []]);
  h.equal([[...(await seen({ conversationId: one.conversationId }))].sort(), await seen({ messageType: "Note" }), [...(await seen({ status: 0 }))].sort()], [[0, 1, 2, 3], ["a note"], [0, 1]]);
  h.equal([(await seen({ limit: 3 })).length, (await seen({ conversationId: two.conversationId, messageType: "Order" })).length, await seen({ conversationId: crypto.randomUUID() })], [3, 3, []]);
  const times = (await broker.archive({ reverse: true }).toArray()).map((row) => row.archivedAt.getTime());
  h.ok(times.every((time, index) => index === 0 || time <= times[index - 1]), "newest first");
  let count = 0;
  for await (const row of broker.archive()) count += row.archivedAt instanceof Date ? 1 : 0;
  h.equal(count, 8);
});

// d39.
inPage("iterating a thousand rows while others send and receive: no row twice, in order, none invented", async (h) => {
  const broker = await h.openShop();
  const counter = await h.order(broker, 1_000);
  const other = await h.order(broker, 0);
  const [orders, bodies] = [[], []];
  for await (const row of broker.select("kitchen")) {
    orders.push(row.queuingOrder);
    bodies.push(row.body.n);
    if (orders.length === 10) {
      await broker.receive("kitchen", { top: 400 });
      await other.sendMany(Array.from({ length: 50 }, (_, n) => ({ messageType: "Order", body: { n: 5_000 + n } })));
    }
    if (orders.length % 100 === 0) await counter.send("Order", { n: 9_000 });
  }
  h.equal(new Set(orders).size, orders.length, "no row twice");
  h.ok(orders.every((order, index) => index === 0 || order > orders[index - 1]), "in order");
  const first = bodies.filter((n) => n < 5_000);
  h.ok(first.length >= 600 && first.length <= 1_000, `${first.length} of the first thousand`);
  h.equal(first.slice(-600), Array.from({ length: 600 }, (_, n) => 400 + n), "whoever stayed was seen");
  let reversed = 0;
  for await (const row of broker.select("kitchen", { reverse: true })) {
    h.equal(row.messageTypeName, "Order");
    reversed += 1;
    if (reversed === 300) break;
  }
  h.equal(reversed, 300, "a loop may be left");
  await counter.send("Order", "after leaving the loop");
});

// d39.
inPage("toArray is one snapshot, whatever is written while it reads", async (h) => {
  const broker = await h.openShop();
  const counter = await h.order(broker, 2_000);
  const sends = [];
  const reading = broker.select("kitchen").toArray();
  for (let n = 0; n < 20; n += 1) sends.push(counter.sendMany([{ messageType: "Order", body: { pair: n } }, { messageType: "Order", body: { pair: n } }]));
  const rows = await reading;
  await Promise.all(sends);
  const pairs = rows.filter((row) => "pair" in row.body).length;
  h.equal([rows.length - pairs, pairs % 2, new Set(rows.map((row) => row.messageId)).size], [2_000, 0, rows.length], "never half of a commit");
  h.equal((await broker.select("kitchen").toArray()).length, 2_040);
});

inPage("Rows can be read several times, each time anew", async (h) => {
  const broker = await h.openShop();
  const counter = await h.order(broker, 2);
  const rows = broker.select("kitchen");
  h.equal((await rows.toArray()).length, 2);
  await counter.send("Order");
  h.equal([(await rows.toArray()).length, (await rows.first()).body], [3, { n: 0 }]);
  const seen = [];
  for await (const row of rows) seen.push(row.messageSequenceNumber);
  h.equal(seen, [0, 1, 2]);
});

inPage("ten thousand rows of a hundred conversations: select, count, first and last", async (h) => {
  const broker = await h.openShop({ kitchen: { retention: true } });
  const dialogs = await Promise.all(Array.from({ length: 100 }, () => h.order(broker, 100)));
  h.equal([await broker.count("kitchen"), (await broker.select("kitchen").toArray()).length], [10_000, 10_000]);
  await broker.receive("kitchen");
  h.equal([await broker.count("kitchen", { status: 1 }), await broker.count("kitchen", { status: 0 }), await broker.count("kitchen", { conversation: await h.farSide(broker, dialogs[50]) })], [9_900, 100, 100]);
  const rows = await broker.select("kitchen").toArray();
  h.equal(new Set(rows.map((row) => row.queuingOrder)).size, 10_000);
  for (const [index, row] of rows.entries()) if (index > 0 && row.queuingOrder <= rows[index - 1].queuingOrder) h.ok(false, `order at ${index}`);
  h.equal([(await broker.select("kitchen").first()).messageId, (await broker.select("kitchen", { reverse: true }).first()).messageId], [rows[0].messageId, rows.at(-1).messageId]);
  const perConversation = Map.groupBy ? Map.groupBy(rows, (row) => row.conversationId) : rows.reduce((map, row) => map.set(row.conversationId, [...(map.get(row.conversationId) ?? []), row]), new Map());
  h.equal([perConversation.size, [...perConversation.values()].every((list) => list.every((row, n) => row.body.n === n))], [100, true]);
});

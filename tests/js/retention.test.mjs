/** Message retention, line by line of section 3.3, and what it is for: walking back, undoing, keeping a copy. */
import { inPage } from "./fixtures/harness.mjs";


inPage("both queues ON: every line of the table", async (h) => {
  const broker = await h.openShop({ counter: { retention: true }, kitchen: { retention: true } });
  const both = async () => [await h.rows(broker, "counter"), await h.rows(broker, "kitchen")];
  const counter = await h.dialog(broker);
  await counter.send("Order", "m1");
  h.equal(await both(), [["3 Order 0"], ["1 Order 0"]], "the initiator sends m1");
  const kitchen = await h.farSide(broker, counter);
  const [copy] = await broker.select("counter").toArray();
  h.equal([copy.conversationHandle, copy.serviceName, copy.body, copy.conversationGroupId], [counter.handle, "Kitchen", "m1", counter.groupId], "the copy is the sender's, addressed to the far service");
  h.equal(await broker.receive("counter"), [], "nobody receives his own copy");
  const [m1] = await broker.receive("kitchen");
  h.equal([m1.status, m1.conversationHandle, m1.messageId === copy.messageId], [0, kitchen.handle, true]);
  h.equal(await both(), [["3 Order 0"], ["0 Order 0"]], "the target receives m1");
  h.equal(await broker.receive("kitchen"), [], "nothing is received twice");
  await kitchen.send("Confirm", "r1");
  h.equal(await both(), [["3 Order 0", "1 Confirm 0"], ["0 Order 0", "3 Confirm 0"]], "the target sends r1");
  h.equal((await broker.select("kitchen").toArray()).map((row) => row.serviceName), ["Kitchen", "Counter"]);
  await counter.receive();
  h.equal(await both(), [["3 Order 0", "0 Confirm 0"], ["0 Order 0", "3 Confirm 0"]], "the initiator receives r1");
  h.equal([await broker.receive("counter"), await broker.receive("kitchen")], [[], []]);
  h.equal(await kitchen.end(), { discarded: 0, archived: 0 });
  h.equal(await both(), [["3 Order 0", "0 Confirm 0", "1 EndDialog 1"], []], "only the target ends");
  await counter.receive();
  h.equal(await both(), [["3 Order 0", "0 Confirm 0", "0 EndDialog 1"], []], "EndDialog is retained like any other");
  await counter.end();
  h.equal(await both(), [[], []], "then the initiator ends");
});

inPage("both queues OFF: no row stays", async (h) => {
  const broker = await h.openShop();
  const both = async () => [await h.rows(broker, "counter"), await h.rows(broker, "kitchen")];
  const counter = await h.dialog(broker);
  await counter.send("Order", "m1");
  h.equal(await both(), [[], ["1 Order 0"]]);
  const [m1] = await broker.receive("kitchen");
  h.equal([m1.status, await both()], [0, [[], []]], "a returned row shows 0 all the same");
  await broker.send(m1, "Confirm", "r1");
  h.equal(await both(), [["1 Confirm 0"], []]);
  await counter.receive();
  h.equal(await both(), [[], []]);
  await broker.endConversation(m1);
  h.equal(await both(), [["1 EndDialog 1"], []]);
  await counter.end();
  h.equal(await both(), [[], []]);
});

inPage("the setting belongs to each queue: one ON, the other OFF, both ways round", async (h) => {
  for (const side of ["counter", "kitchen"]) {
    const broker = await h.openShop({ [side]: { retention: true } });
    const counter = await h.order(broker, 1);
    const [m1] = await broker.receive("kitchen");
    await broker.send(m1, "Confirm");
    await counter.receive();
    h.equal([await h.rows(broker, "counter"), await h.rows(broker, "kitchen")], side === "counter" ? [["3 Order 0", "0 Confirm 0"], []] : [[], ["0 Order 0", "3 Confirm 0"]], side);
    await (side === "counter" ? counter.end() : broker.endConversation(m1));
    h.equal([await broker.count("counter"), await broker.count("kitchen")], side === "counter" ? [0, 1] : [1, 0], "only the far side's EndDialog is left");
  }
});

inPage("both services on one queue: one send gives two rows, status 3 and status 1", async (h) => {
  const broker = await h.open({ definitions: { queues: { one: { retention: true } }, services: { A: { queue: "one" }, B: { queue: "one", contracts: ["DEFAULT"] } } } });
  const here = await broker.beginDialog({ from: "A", to: "B" });
  await here.send("DEFAULT", "m1");
  const there = await h.farSide(broker, here);
  const seen = async () => (await broker.select("one").toArray()).map((row) => [row.status, row.conversationHandle === here.handle ? "A" : "B", row.serviceName, row.body]).sort();
  h.equal(await seen(), [[1, "B", "B", "m1"], [3, "A", "B", "m1"]]);
  h.equal(h.bodies(await broker.receive("one")), ["m1"]);
  h.equal(await seen(), [[0, "B", "B", "m1"], [3, "A", "B", "m1"]]);
  await there.send("DEFAULT", "r1");
  h.equal(h.bodies(await broker.receive("one")), ["r1"]);
  h.equal(await seen(), [[0, "A", "A", "r1"], [0, "B", "B", "m1"], [3, "A", "B", "m1"], [3, "B", "A", "r1"]]);
  h.equal(await broker.receive("one"), []);
  await there.end();
  h.equal((await seen()).map((row) => row[1]), ["A", "A", "A"]);
  await here.end();
  h.equal(await seen(), []);
});

inPage("cleanup on one side takes its rows and leaves the other side untouched and open", async (h) => {
  for (const who of ["initiator", "target"]) {
    const broker = await h.openShop({ counter: { retention: true }, kitchen: { retention: true } });
    const counter = await h.order(broker, 2);
    const kitchen = await h.farSide(broker, counter);
    await kitchen.receive({ top: 1 });
    await kitchen.send("Confirm");
    await (who === "initiator" ? counter : kitchen).end({ cleanup: true });
    h.equal([await h.rows(broker, "counter"), await h.rows(broker, "kitchen")],
      who === "initiator" ? [[], ["0 Order 0", "1 Order 1", "3 Confirm 0"]] : [["3 Order 0", "3 Order 1", "1 Confirm 0"], []], who);
    h.equal(await h.stateOf(broker, who === "initiator" ? kitchen : counter), "CO");
  }
});

inPage("Error is retained like any other message, and goes with END", async (h) => {
  const broker = await h.openShop({ counter: { retention: true } });
  const counter = await h.order(broker, 1);
  await (await h.farSide(broker, counter)).end({ error: { code: 5, description: "sold out" } });
  h.equal(h.types(await counter.receive()), ["Error"]);
  const rows = await h.rows(broker, "counter");
  h.equal(rows.map((row) => row.slice(0, 7)), ["3 Order", "0 Error"]);
  await counter.end();
  h.equal(await h.rows(broker, "counter"), []);
});

inPage("switching ON applies from then on; OFF leaves what was retained until END (D5)", async (h) => {
  const broker = await h.openShop();
  const retention = (value) => broker.define({ queues: { kitchen: { retention: value }, counter: { retention: value } } });
  const counter = await h.order(broker, 6);
  await broker.receive("kitchen", { top: 2 });
  await retention(true);
  await broker.receive("kitchen", { top: 2 });
  await counter.send("Order");
  await retention(false);
  await broker.receive("kitchen", { top: 2 });
  await counter.send("Order");
  h.equal(await h.rows(broker, "kitchen"), ["0 Order 2", "0 Order 3", "1 Order 6", "1 Order 7"], "0, 1 and 4, 5 are gone, 2 and 3 stay");
  h.equal(await h.rows(broker, "counter"), ["3 Order 6"]);
  await retention(true);
  await broker.receive("kitchen", { top: 1 });
  await counter.send("Order");
  h.equal(await h.rows(broker, "kitchen"), ["0 Order 2", "0 Order 3", "0 Order 6", "1 Order 7", "1 Order 8"]);
  h.equal(await h.rows(broker, "counter"), ["3 Order 6", "3 Order 8"]);
  const info = (await broker.queues()).find((queue) => queue.name === "kitchen");
  h.equal([info.ready, info.retained], [2, 3]);
  const again = await h.reopen(broker);
  h.equal(await h.rows(again, "kitchen"), ["0 Order 2", "0 Order 3", "0 Order 6", "1 Order 7", "1 Order 8"], "after a restart too");
  const kitchen = await h.farSide(again, counter);
  h.equal(await kitchen.end(), { discarded: 2, archived: 0 });
  h.equal(await h.rows(again, "kitchen"), []);
});

inPage("a rolled back receive is status 1 again, a rolled back send leaves no status 3", async (h) => {
  const broker = await h.openShop({ counter: { retention: true }, kitchen: { retention: true } });
  const counter = await h.order(broker, 2);
  const before = [await broker.select("counter").toArray(), await broker.select("kitchen").toArray()];
  const reason = new Error("undo");
  const caught = await broker.transaction(async (tx) => {
    const messages = await tx.receive("kitchen");
    h.equal(messages.length, 2);
    await tx.send(messages[0], "Confirm");
    await tx.send(counter, "Order");
    throw reason;
  }).catch((error) => error);
  h.ok(caught === reason);
  h.equal([await broker.select("counter").toArray(), await broker.select("kitchen").toArray()], before);
  h.equal((await broker.receive("kitchen")).length, 2);
});

inPage("the compensation walk: retained rows newest first, undo each, END", async (h) => {
  const broker = await h.openShop({ kitchen: { retention: true } });
  const ledger = [];
  const counter = await h.order(broker, 4);
  await counter.send("Cancel");
  for (const message of await broker.receive("kitchen", { top: 4 })) ledger.push(message.body.n);
  const undone = await broker.transaction(async (tx) => {
    const [cancel] = await tx.receive("kitchen");
    h.equal(cancel.messageTypeName, "Cancel");
    const undone = [];
    for await (const row of tx.select("kitchen", { conversation: cancel, status: 0, messageType: "Order", reverse: true })) undone.push(row.body.n);
    await tx.endConversation(cancel, { error: { code: 1, description: "cancelled" } });
    return undone;
  });
  h.equal([ledger, undone], [[0, 1, 2, 3], [3, 2, 1, 0]]);
  h.equal([await h.rows(broker, "kitchen"), h.types(await counter.receive())], [[], ["Error"]]);
});

inPage("archive: true copies every row of this side, in the same transaction, and END says how many", async (h) => {
  const broker = await h.openShop({ counter: { retention: true }, kitchen: { retention: true } });
  const counter = await h.order(broker, 3);
  const kitchen = await h.farSide(broker, counter);
  await kitchen.receive({ top: 2 });
  await kitchen.send("Confirm", { when: new Date(9), bytes: new Uint8Array([1, 2]) });
  const rows = await broker.select("kitchen").toArray();
  const before = Date.now();
  await broker.transaction(async (tx) => { await tx.endConversation(kitchen, { archive: true }); throw new Error("not yet"); }).catch(() => {});
  h.equal([(await broker.archive().toArray()).length, await broker.count("kitchen")], [0, 4], "rolled back with the rest");
  h.equal(await kitchen.end({ archive: true }), { discarded: 1, archived: 4 });
  h.equal([await broker.count("kitchen"), await broker.count("counter")], [0, 5], "3 copies, Confirm, EndDialog: the other side's rows are no business of this END");
  const kept = await broker.archive().toArray();
  const inOrder = [...kept].sort((one, two) => one.queuingOrder - two.queuingOrder);
  h.equal(inOrder.map(({ archivedAt, queue, ...row }) => row), rows, "the rows as they were");
  h.ok(kept.every((row) => row.queue === "kitchen" && row.archivedAt instanceof Date && row.archivedAt >= before - 5 && row.archivedAt <= Date.now() + 5));
  const again = await h.reopen(broker);
  h.equal(await again.archive().toArray(), kept);
});

inPage("a queue with archive: true archives at every END; without rows there is nothing to archive", async (h) => {
  const broker = await h.openShop({ kitchen: { retention: true, archive: true } });
  for (let each = 0; each < 3; each += 1) {
    const counter = await h.order(broker, 2);
    const [first] = await broker.receive("kitchen");
    h.equal(await broker.endConversation(first), { discarded: 0, archived: 2 });
    h.equal(await counter.end(), { discarded: 1, archived: 0 }, "the counter's queue does not archive");
  }
  const loose = await h.order(broker, 1);
  h.equal(await (await h.farSide(broker, loose)).end({ cleanup: true }), { discarded: 1, archived: 1 });
  h.equal((await broker.archive({ queue: "kitchen" }).toArray()).length, 7);
  h.equal(await broker.archive({ queue: "counter" }).toArray(), []);
  h.equal(await (await h.order(broker, 0)).end({ archive: true }), { discarded: 0, archived: 0 });
});

inPage("purgeArchive deletes what is older, and says how much", async (h) => {
  const broker = await h.openShop({ kitchen: { retention: true, archive: true } });
  const cut = [];
  for (let each = 0; each < 3; each += 1) {
    const counter = await h.order(broker, each + 1);
    await (await h.farSide(broker, counter)).end();
    const last = (await broker.archive({ reverse: true }).first()).archivedAt.getTime();
    await h.until(() => Date.now() > last + 1, "the next millisecond");
    cut.push(new Date(last + 1));
  }
  h.equal((await broker.archive().toArray()).length, 6);
  h.equal(await broker.purgeArchive(0), 0);
  h.equal(await broker.purgeArchive(cut[0]), 1);
  h.equal(await broker.purgeArchive(cut[1].getTime()), 2);
  h.equal((await broker.archive().toArray()).map((row) => row.body.n), [0, 1, 2]);
  h.equal(await broker.purgeArchive(cut[2]), 3);
  h.equal([await broker.archive().toArray(), await broker.purgeArchive(Date.now() + 1_000)], [[], 0]);
  for (const bad of [NaN, "yesterday", undefined, new Date(NaN)]) await h.rejects(broker.purgeArchive(bad), { code: "InvalidArgument" }, String(bad));
});

inPage("END of ten thousand retained rows, archived and not, leaves nothing behind", async (h) => {
  const broker = await h.openShop({ kitchen: { retention: true } });
  for (const archive of [false, true]) {
    const counter = await h.order(broker, 10_000);
    let received = 0;
    for (let batch = await broker.receive("kitchen"); batch.length > 0; batch = await broker.receive("kitchen")) received += batch.length;
    h.equal([received, await broker.count("kitchen", { status: 0 })], [10_000, 10_000]);
    h.equal(await (await h.farSide(broker, counter)).end({ archive }), { discarded: 0, archived: archive ? 10_000 : 0 });
    h.equal([await broker.count("kitchen"), await broker.select("kitchen").first()], [0, undefined]);
    await counter.end();
  }
  h.equal((await broker.archive().toArray()).length, 10_000);
});

inPage("bounds: the oldest retained rows of the queue go, by number and by age", async (h) => {
  h.state.now = 1_000_000;
  const broker = await h.open({ definitions: { queues: { jobs: { retention: { maxRows: 3 } } } }, clock: { now: () => h.state.now } });
  await broker.enqueueMany("jobs", [1, 2, 3, 4, 5, 6], { key: "a" });
  await broker.receive("jobs", { top: 5 });
  h.equal((await broker.select("jobs").toArray()).map((row) => [row.status, row.body]), [[0, 3], [0, 4], [0, 5], [1, 6]]);
  const [{ isRetentionEnabled, retained }] = (await broker.queues()).filter((queue) => queue.name === "jobs");
  h.equal([isRetentionEnabled, retained], [true, 3]);
  await broker.alterQueue("jobs", { retention: { maxAge: 1_000 } });
  h.state.now += 500;
  await broker.enqueue("jobs", 7, { key: "b" });
  await broker.receive("jobs");
  await broker.receive("jobs");
  h.state.now += 500;
  h.equal(await broker.poll(), 0);
  h.equal(h.bodies(await broker.select("jobs").toArray()), [7]);
  h.state.now += 500;
  await broker.poll();
  h.equal([await broker.count("jobs"), await broker.conversations().toArray()], [0, []]);
  await h.rejects(broker.alterQueue("jobs", { retention: { maxRows: -1 } }), { code: "InvalidArgument" });
});

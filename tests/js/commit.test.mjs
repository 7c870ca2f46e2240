/** Group commit: calls made together share storage transactions, fail alone, and resolve only when it is on disk. */
import { inPage } from "./fixtures/harness.mjs";

inPage("ten thousand sends that nobody awaits need at most a hundred storage transactions", async (h) => {
  const broker = await h.openShop();
  const counter = await h.order(broker, 0);
  const seen = h.spy();
  const ids = await Promise.all(Array.from({ length: 10_000 }, (_, n) => counter.send("Order", { n })));
  const used = seen.transactions.length;
  h.ok(used >= 1 && used <= 100, `${used} transactions`);
  h.ok(seen.transactions.every((each) => each.mode === "readonly" || each.complete), "every write is complete");
  h.equal(new Set(ids).size, 10_000);
  h.equal(await broker.count("kitchen"), 10_000);
  const rows = await broker.select("kitchen").toArray();
  h.equal(rows.map((row) => row.body.n), Array.from({ length: 10_000 }, (_, n) => n));
  h.equal(rows.map((row) => row.messageId), ids);
}, { timeout: 120_000 });

inPage("sends over many conversations, receives and ends share transactions too", async (h) => {
  const broker = await h.openShop();
  const dialogs = await Promise.all(Array.from({ length: 200 }, () => h.dialog(broker)));
  const seen = h.spy();
  await Promise.all(dialogs.map((each, n) => each.send("Order", n)));
  h.ok(seen.transactions.length >= 1 && seen.transactions.length <= 20, `${seen.transactions.length} for 200 sends`);
  const before = seen.transactions.length;
  const got = await Promise.all(Array.from({ length: 200 }, () => broker.receive("kitchen")));
  h.ok(seen.transactions.length - before <= 20, `${seen.transactions.length - before} for 200 receives`);
  h.equal(got.map((batch) => batch.length), Array(200).fill(1));
  h.equal(got.flat().map((message) => message.body).sort((one, two) => one - two), Array.from({ length: 200 }, (_, n) => n));
});

inPage("calls made in one tick happen in the order they were made", async (h) => {
  const broker = await h.openShop();
  const counter = await h.order(broker, 0);
  const results = await Promise.all([counter.send("Order", 1), counter.send("Order", 2), broker.receive("kitchen"), counter.send("Order", 3), broker.receive("kitchen"), counter.end(), broker.receive("kitchen")]);
  h.equal([h.bodies(results[2]), h.bodies(results[4]), h.types(results[6])], [[1, 2], [3], ["EndDialog"]]);
});

inPage("one bad call among good ones fails alone", async (h) => {
  const broker = await h.openShop();
  const counter = await h.order(broker, 0);
  const gone = await h.order(broker, 0);
  await gone.end();
  const settled = await Promise.allSettled([counter.send("Order", 0), counter.send("Confirm", 1), counter.send("Order", 2), counter.send("Order", () => 3), gone.send("Order", 4), broker.receive("nowhere"), broker.send(crypto.randomUUID(), "Order", 6),
    counter.send("Order", 7), h.dialog(broker, { from: "Nobody" }), counter.send("Nope", 9), broker.receive("kitchen", { top: 0 }), counter.send("Order", 11)]);
  h.equal(settled.map((each) => each.reason?.code ?? "ok"), ["ok", "WrongDirection", "ok", "NotCloneable", "ConversationNotFound", "QueueNotFound", "ConversationNotFound", "ok", "ServiceNotFound", "MessageTypeNotFound", "InvalidArgument", "ok"]);
  h.equal((await broker.receive("kitchen")).map((message) => [message.messageSequenceNumber, message.body]), [[0, 0], [1, 2], [2, 7], [3, 11]], "no gap in the sequence");
});

inPage("a promise resolves after the transaction's complete event, and commit() is called", async (h) => {
  const broker = await h.openShop();
  const counter = await h.order(broker, 2);
  // The first reader of a queue does not know yet whose lock it needs, and looks twice.
  await broker.receive("kitchen", { top: 1 });
  const seen = h.spy();
  const verbs = { send: () => counter.send("Order"), sendMany: () => counter.sendMany([{ messageType: "Order" }]), receive: () => broker.receive("kitchen"), transaction: () => broker.transaction((tx) => tx.send(counter, "Order")),
    state: () => broker.setGroupState(counter, 1), begin: () => h.dialog(broker), end: () => counter.end() };
  for (const [verb, call] of Object.entries(verbs)) {
    const [from, commits] = [seen.transactions.length, seen.commits];
    await call();
    const writes = seen.transactions.slice(from).filter((each) => each.mode === "readwrite");
    h.ok(writes.length >= 1 && writes.every((each) => each.complete), `${verb}: ${JSON.stringify(writes)}`);
    h.ok(seen.commits > commits, `${verb} calls commit()`);
  }
});

inPage("what a resolved send wrote can be read at once over another connection, and by nobody before", async (h) => {
  const broker = await h.openShop();
  const counter = await h.order(broker, 0);
  const db = await h.raw(broker.name);
  const everything = async () => {
    const names = [...db.objectStoreNames];
    const transaction = db.transaction(names, "readonly");
    const all = await Promise.all(names.map((name) => h.done(transaction.objectStore(name).getAll())));
    return all.flat().some(function holds(value) { return value === "needle" || (typeof value === "object" && value !== null && !ArrayBuffer.isView(value) && Object.values(value).some(holds)); });
  };
  h.equal(await everything(), false);
  await counter.send("Order", "needle");
  h.equal(await everything(), true);
});

inPage("a storage transaction that aborts once is tried again: each message is stored exactly once (D27)", async (h) => {
  const broker = await h.openShop();
  const counter = await h.order(broker, 0);
  let aborted = 0;
  for (const method of ["put", "add"]) {
    h.patch(IDBObjectStore.prototype, method, (original) => function (...args) {
      const request = original.apply(this, args);
      if (aborted === 0) { aborted += 1; this.transaction.abort(); }
      return request;
    });
  }
  const settled = await h.within(10_000, Promise.allSettled(Array.from({ length: 5 }, (_, n) => counter.send("Order", n))), "the sends");
  h.equal([aborted, settled.map((each) => each.reason?.code ?? "ok")], [1, Array(5).fill("ok")]);
  h.equal(h.bodies(await broker.receive("kitchen")), [0, 1, 2, 3, 4]);
});

inPage("storage that keeps failing rejects with a named error, stores nothing, and recovers", async (h) => {
  const broker = await h.openShop();
  const counter = await h.order(broker, 1);
  const restore = ["put", "add"].map((method) => h.patch(IDBObjectStore.prototype, method, () => () => { throw new DOMException("the disk said no", "UnknownError"); }));
  const error = await h.rejects(h.within(10_000, counter.send("Order", "never"), "the send"), { codes: ["StorageUnavailable", "StorageLost"] });
  h.match(`${error.message} ${error.cause} ${JSON.stringify(error.details)}`, /disk said no|UnknownError/);
  restore.forEach((each) => each());
  await counter.send("Order", "now");
  h.equal(h.bodies(await broker.receive("kitchen")), [{ n: 0 }, "now"]);
});

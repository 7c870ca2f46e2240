/** Records edited to garbage by hand: a named error that says where, the others go on, nothing hangs. */
import { inPage } from "./fixtures/harness.mjs";

const GARBAGE = ["text", "number", "null", "empty-object", "empty-array", "truncated", "wrong-types", "deep"];

for (const store of ["messages", "conversations", "turns"]) {
  for (const kind of GARBAGE) {
    inPage(`${store}: a record that is ${kind}`, async (h, pb, { store, kind }) => {
      const first = await h.openShop({ kitchen: { retention: true } });
      const bad = await h.order(first, 3);
      const good = await h.order(first, 3);
      const [badFar, goodFar] = [(await h.farSide(first, bad)).handle, (await h.farSide(first, good)).handle];
      await first.close();

      // The records of the first conversation are those that are there before the second one's: keys rise with conversations.
      const db = await h.raw(first.name);
      const transaction = db.transaction(store, "readwrite");
      const [keys, values] = await Promise.all([h.done(transaction.objectStore(store).getAllKeys()), h.done(transaction.objectStore(store).getAll())]);
      h.equal([keys.length > 1, typeof values[0]], [true, "object"], "the layout of this test");
      const twist = (value) => (typeof value === "number" ? "x" : Array.isArray(value) ? value.map(twist) : typeof value === "object" && value !== null ? Object.fromEntries(Object.entries(value).map(([key, each]) => [key, twist(each)])) : 7);
      const half = (value) => (Array.isArray(value) ? value.slice(0, Math.ceil(value.length / 3)) : Object.fromEntries(Object.entries(value).slice(0, Math.ceil(Object.keys(value).length / 3))));
      let deep = 1;
      for (let level = 0; level < 2_000; level += 1) deep = [deep];
      const garbage = { text: "garbage", number: 42, null: null, "empty-object": {}, "empty-array": [], truncated: half(values[0]), "wrong-types": twist(values[0]), deep }[kind];
      const finished = h.completed(transaction);
      transaction.objectStore(store).put(garbage, keys[0]);
      await finished;
      db.close();

      const broker = await h.within(10_000, h.open({}, first.name), "opening");
      // Who asks for nothing in particular gets what can be read.
      const [next] = await h.within(10_000, broker.receive("kitchen", { top: 1 }), "a receive without filter");
      h.equal([next.conversationHandle, next.body], [goodFar, { n: 0 }]);
      const shown = (await h.within(10_000, broker.conversations().toArray(), "conversations")).filter((each) => each.service !== "error").map((each) => each.conversationHandle);
      h.equal(shown.sort(), [good.handle, goodFar, ...(store === "conversations" ? [] : [bad.handle, badFar])].sort());

      const attempts = { send: () => broker.send(bad.handle, "Order"), receive: () => broker.receive("kitchen", { conversation: badFar }), select: () => broker.select("kitchen", { conversation: badFar }).toArray(),
        info: () => broker.conversation(bad.handle).info(), end: () => broker.transaction(async (tx) => { await tx.endConversation(bad.handle); throw new Error("only trying"); }) };
      const named = [];
      for (const [verb, attempt] of Object.entries(attempts)) {
        const error = await h.within(10_000, attempt().then(() => null, (each) => each), verb);
        if (error === null || error.message === "only trying") continue;
        if (error.code === "StorageCorrupt") {
          await h.rejects(Promise.reject(error), { code: "StorageCorrupt", details: { store, key: (key) => JSON.stringify(key) === JSON.stringify(keys[0]), handle: (handle) => [bad.handle, badFar].includes(handle) } }, verb);
          h.match(error.message, new RegExp(store), verb);
          named.push(verb);
        } else {
          h.ok(pb.isBrokerError(error) && !["Terminated", "Closed", "StorageUnavailable"].includes(error.code), `${verb}: ${error.code} ${error.message}`);
        }
      }
      // A turn is needed by who asks for nothing in particular, and by nobody else.
      h.equal(named, [], "StorageCorrupt was said by");
      if (store !== "turns") {
        const failed = await broker.failed().toArray();
        h.equal(failed.length > 1, store === "conversations", "its messages are there, too");
        h.equal(failed.slice(-1).map(({ failedQueue, attempts, body: { store, key, record } }) => ({ failedQueue, attempts, store, key, record: kind === "deep" ? null : record })),
          [{ failedQueue: store === "messages" ? "kitchen" : "error", attempts: 0, store, key: keys[0], record: kind === "deep" ? null : garbage }]);
        h.equal([await broker.returnToSource(), await broker.discardFailed({})], [0, failed.length]);
      }

      // The other conversation knows nothing of it.
      await h.within(10_000, broker.send(good.handle, "Order", "still"), "a send on the other conversation");
      const got = await h.within(10_000, broker.receive("kitchen", { conversation: goodFar }), "a receive on the other conversation");
      h.equal(h.bodies(got), [{ n: 1 }, { n: 2 }, "still"]);
      await broker.send(got[0], "Confirm", "answered");
      h.equal(h.bodies(await broker.receive("counter", { conversation: good.handle })), ["answered"]);
      for (let round = 0; round < 3; round += 1) {
        const outcome = await h.within(10_000, broker.receive("kitchen").then((rows) => rows.length, (error) => error.code), "a receive without filter");
        h.equal(outcome, 0, "nothing else is to be had");
        await broker.send(good.handle, "Order", round);
        h.equal(h.bodies(await h.within(10_000, broker.receive("kitchen"), "a receive without filter")), [round]);
      }
      await h.within(10_000, broker.endConversation(goodFar), "END of the other conversation");
      const begun = await h.within(10_000, h.order(broker, 1), "a new conversation");
      h.equal((await begun.info()).state, "CO");
    }, { argument: { store, kind } });
  }
}

inPage("a whole store emptied by hand: errors, but nothing hangs and deleteBroker still works", async (h, pb) => {
  const first = await h.openShop({ kitchen: { retention: true } });
  const counter = await h.order(first, 3);
  await first.close();
  const db = await h.raw(first.name);
  const names = [...db.objectStoreNames];
  h.ok(names.includes("conversations") && names.includes("messages"), names.join());
  const transaction = db.transaction(["conversations", "messages"], "readwrite");
  const finished = h.completed(transaction);
  transaction.objectStore("conversations").clear();
  transaction.objectStore("messages").clear();
  await finished;
  db.close();
  const broker = await h.open({}, first.name);
  await h.rejects(h.within(10_000, broker.send(counter.handle, "Order"), "send"), { codes: ["ConversationNotFound", "StorageCorrupt"] });
  const outcome = await h.within(10_000, broker.receive("kitchen").then((rows) => rows.length, (error) => error.code), "receive");
  h.ok([0, "StorageCorrupt"].includes(outcome), String(outcome));
  h.equal(h.bodies(await h.within(10_000, (async () => { const fresh = await h.order(broker, 1); return broker.receive("kitchen", { conversation: await h.farSide(broker, fresh) }); })(), "a new conversation")), [{ n: 0 }]);
  await h.within(8_000, pb.deleteBroker(first.name), "deleteBroker");
});

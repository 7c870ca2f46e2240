/** All or nothing: commit, rollback, what is seen inside, what holds until the end, and how it ends (D15, D16, D25, D27, D29). */
import { inPage } from "./fixtures/harness.mjs";

inPage("commit: received rows, sends, ends, begins and group state become visible together", async (h) => {
  let broker = await h.openShop({ kitchen: { retention: true } });
  const counter = await h.order(broker, 2);
  const finished = await h.order(broker, 1);
  const result = await broker.transaction(async (tx) => {
    const messages = await tx.receive("kitchen");
    await tx.send(messages[0], "Confirm", "first");
    await tx.sendMany(messages[0], [{ messageType: "Note", body: "second" }, { messageType: "Note", body: "third" }]);
    await tx.setGroupState(messages[0], { seen: 2 });
    await tx.endConversation(await h.farSide(broker, finished));
    const begun = await tx.beginDialog({ from: "Counter", to: "Kitchen", contract: "Ordering" });
    await begun.send("Order", "begun inside");
    h.equal([await broker.count("counter"), (await broker.conversations().toArray()).length, await h.rows(broker, "kitchen")], [0, 4, ["1 Order 0", "1 Order 1", "1 Order 0"]], "outside nothing has happened");
    return { handle: messages[0].conversationHandle, bodies: messages.map((message) => message.body), begun };
  });
  h.equal(result.bodies, [{ n: 0 }, { n: 1 }]);
  const { begun, handle } = result;
  await begun.send("Order", "a conversation of the transaction speaks through the broker after it");
  broker = await h.reopen(broker);
  h.equal(h.bodies(await broker.receive("counter", { conversation: counter.handle })), ["first", "second", "third"]);
  h.equal(h.types(await broker.receive("counter", { conversation: finished.handle })), ["EndDialog"]);
  h.equal(await broker.getGroupState(handle), { seen: 2 });
  h.equal(await h.rows(broker, "kitchen", { status: [0, 1] }), ["0 Order 0", "0 Order 1", "1 Order 0", "1 Order 1"]);
  h.equal([await h.stateOf(broker, begun.handle), await h.stateOf(broker, finished.handle)], ["CO", "DI"]);
});

inPage("rollback: the same reason, and nothing of it ever happened", async (h) => {
  const broker = await h.openShop();
  const counter = await h.order(broker, 3);
  const kitchen = await h.farSide(broker, counter);
  await broker.setGroupState(kitchen, "before");
  const snapshot = async () => [await broker.select("kitchen").toArray(), await broker.select("counter").toArray(), await broker.conversations().toArray(), await broker.getGroupState(kitchen)];
  const before = await snapshot();
  for (const reason of [new RangeError("no"), undefined, null, { code: 5 }]) {
    let begun;
    const outcome = await broker.transaction(async (tx) => {
      const messages = await tx.receive("kitchen", { top: 2 });
      h.equal(h.bodies(messages), [{ n: 0 }, { n: 1 }]);
      await tx.send(messages[0], "Confirm");
      await tx.setGroupState(messages[0], "inside");
      h.equal(await tx.getGroupState(messages[0]), "inside", "its own view");
      begun = await tx.beginDialog({ from: "Counter", to: "Kitchen", contract: "Ordering" });
      await begun.send("Order");
      await tx.endConversation(messages[0], { error: { code: 1, description: "x" } });
      throw reason;
    }).then(() => "resolved", (caught) => ({ caught }));
    h.ok(outcome !== "resolved" && Object.is(outcome.caught, reason), `the reason, untouched: ${String(reason)}`);
    h.equal(await snapshot(), before);
    await h.rejects(begun.send("Order"), { code: "ConversationNotFound", number: 8426 });
  }
});

inPage("work may be synchronous, may throw synchronously, and may do nothing", async (h) => {
  const broker = await h.openShop();
  h.equal(await broker.transaction(() => 5), 5);
  const reason = new Error("at once");
  h.ok((await broker.transaction(() => { throw reason; }).catch((caught) => caught)) === reason);
  await h.rejects(broker.transaction("not a function"), { code: "InvalidArgument" });
  await h.rejects(broker.transaction(), { code: "InvalidArgument" });
});

inPage("own sends are not seen inside, own receives are not given twice (D15)", async (h) => {
  const broker = await h.openShop();
  const counter = await h.order(broker, 3);
  await broker.transaction(async (tx) => {
    await tx.send(counter, "Order", "own");
    h.equal(h.bodies(await tx.receive("kitchen", { top: 2 })), [{ n: 0 }, { n: 1 }]);
    h.equal(h.bodies(await tx.receive("kitchen")), [{ n: 2 }]);
    h.equal(await tx.receive("kitchen"), []);
    h.equal(await tx.receive("kitchen", { conversation: await h.farSide(broker, counter) }), []);
  });
  h.equal(h.bodies(await broker.receive("kitchen")), ["own"]);
});

inPage("preconditions are checked at the call, against the transaction's own view (D29)", async (h) => {
  const broker = await h.openShop();
  const counter = await h.order(broker, 1);
  const kitchen = await h.farSide(broker, counter);
  await broker.transaction(async (tx) => {
    await h.rejects(tx.send(counter, "Confirm"), { code: "WrongDirection" });
    await h.rejects(tx.send(counter, "Order", () => 1), { code: "NotCloneable" });
    await h.rejects(tx.receive("nowhere"), { code: "QueueNotFound" });
    await tx.send(counter, "Order", "before the end");
    await tx.endConversation(counter);
    await h.rejects(tx.send(counter, "Order"), { codes: ["ConversationNotFound", "InvalidState"] });
    await h.rejects(tx.endConversation(counter), { codes: ["ConversationNotFound", "InvalidState"] });
  });
  h.equal(h.types(await kitchen.receive()), ["Order", "Order", "EndDialog"], "refused calls don't spoil the rest");
  const begun = await broker.transaction(async (tx) => {
    const begun = await tx.beginDialog({ from: "Counter", to: "Kitchen", contract: "Ordering" });
    await begun.send("Order", 1);
    await tx.send(begun, "Order", 2);
    await tx.send(begun.handle, "Order", 3);
    h.equal((await begun.info())?.state ?? "CO", "CO");
    return begun;
  });
  h.equal((await broker.receive("kitchen", { conversation: await h.farSide(broker, begun) })).map((row) => [row.body, row.messageSequenceNumber]), [[1, 0], [2, 1], [3, 2]]);
});

inPage("what is gone at commit rejects the transaction, and says so (D29)", async (h) => {
  const broker = await h.openShop();
  const [counter, other] = [await h.order(broker, 1), await h.order(broker, 0)];
  const failing = broker.transaction(async (tx) => {
    await tx.send(other, "Order", "must not arrive");
    await tx.send(counter, "Order", "nor this");
    await broker.endConversation(counter);
  });
  await h.rejects(failing, { code: "ConversationNotFound", number: 8426, details: { at: "commit" } });
  h.equal([await h.stateOf(broker, other), await h.rows(broker, "kitchen")], ["SO", ["1 Order 0", "1 EndDialog 1"]]);
});

inPage("a send that finds DI only at commit is dropped and reported; the rest commits (D29)", async (h) => {
  const broker = await h.openShop();
  const [counter, other] = [await h.order(broker, 1), await h.order(broker, 0)];
  const dropped = h.next(broker, "message-dropped");
  await broker.transaction(async (tx) => {
    await tx.send(counter, "Order", "too late");
    await tx.send(other, "Order", "in time");
    await (await h.farSide(broker, counter)).end();
  });
  h.ok(typeof (await dropped).reason === "string");
  h.equal(h.bodies(await broker.receive("kitchen")), ["in time"]);
  h.equal(await h.stateOf(broker, counter), "DI");
});

inPage("work may await whatever it likes: a fetch, a timer, another broker", async (h) => {
  const broker = await h.openShop();
  const other = await h.openShop();
  await h.order(broker, 1);
  const counts = await broker.transaction(async (tx) => {
    const [message] = await tx.receive("kitchen");
    const text = await (await fetch("/fixtures/empty.html")).text();
    await new Promise((resolve) => setTimeout(resolve, 0));
    await h.order(other, 1);
    await new Promise((resolve) => (globalThis.requestIdleCallback ?? setTimeout)(() => resolve(), { timeout: 1_000 })); // WebKit has none.
    await tx.send(message, "Confirm", text.length);
    return [await other.count("kitchen"), text.length > 0];
  });
  h.equal(counts, [1, true]);
  h.equal([await broker.count("kitchen"), await broker.count("counter")], [0, 1]);
});

inPage("after the end every verb of the transaction is TransactionClosed, after a rollback too", async (h) => {
  const broker = await h.openShop();
  const counter = await h.order(broker, 1);
  for (const fail of [false, true]) {
    let escaped;
    await broker.transaction(async (tx) => { escaped = tx; h.equal(tx.signal.aborted, false); if (fail) throw new Error("x"); }).catch(() => {});
    const calls = { receive: () => escaped.receive("kitchen"), send: () => escaped.send(counter, "Order"), sendMany: () => escaped.sendMany(counter, [{ messageType: "Order" }]), end: () => escaped.endConversation(counter),
      begin: () => escaped.beginDialog({ from: "Counter", to: "Kitchen", contract: "Ordering" }), state: () => escaped.getGroupState(counter), setState: () => escaped.setGroupState(counter, 1),
      select: () => escaped.select("kitchen").toArray(), count: () => escaped.count("kitchen"), queues: () => escaped.queues() };
    for (const [verb, call] of Object.entries(calls)) await h.rejects(call(), { code: "TransactionClosed" }, verb);
  }
  h.equal([await h.rows(broker, "kitchen"), await h.stateOf(broker, counter)], [["1 Order 0"], "CO"]);
});

inPage("a verb that is not awaited is part of the transaction or says TransactionClosed, never half", async (h) => {
  const broker = await h.openShop();
  const counter = await h.order(broker, 0);
  let floating;
  await broker.transaction((tx) => { floating = tx.send(counter, "Order", "floating").then(() => "sent", (error) => error.code); });
  const outcome = await h.within(5_000, floating, "the send");
  h.ok(["sent", "TransactionClosed"].includes(outcome), outcome);
  h.equal(await broker.count("kitchen"), outcome === "sent" ? 1 : 0);
});

inPage("close during an open transaction rolls back at once: the signal aborts, its verbs and the transaction say Closed", async (h) => {
  const broker = await h.openShop();
  const counter = await h.order(broker, 2);
  const reached = Promise.withResolvers?.() ?? (() => { const all = {}; all.promise = new Promise((resolve) => { all.resolve = resolve; }); return all; })();
  let release;
  const held = new Promise((resolve) => { release = resolve; });
  let inside;
  const transaction = broker.transaction(async (tx) => {
    inside = tx;
    const messages = await tx.receive("kitchen");
    await tx.send(messages[0], "Confirm");
    reached.resolve();
    await held;
    return "committed";
  });
  const outcome = h.rejects(h.within(8_000, transaction, "the transaction"), { code: "Closed" });
  await reached.promise;
  await h.within(5_000, broker.close(), "close, while work still runs");
  h.ok(inside.signal.aborted, "its signal is aborted");
  await h.rejects(inside.send(counter, "Order"), { code: "Closed" });
  release();
  await outcome;
  const again = await h.reopen(broker);
  h.equal([await h.rows(again, "kitchen"), await again.count("counter")], [["1 Order 0", "1 Order 1"], 0]);
});

inPage("the caller's signal rolls back with its own reason", async (h) => {
  const broker = await h.openShop();
  const counter = await h.order(broker, 1);
  const reason = new RangeError("the user has gone");
  let ran = false;
  h.ok((await broker.transaction(() => { ran = true; }, { signal: AbortSignal.abort(reason) }).catch((error) => error)) === reason);
  h.equal(ran, false, "work never began");
  const controller = new AbortController();
  const caught = await h.within(8_000, broker.transaction(async (tx) => {
    const [message] = await tx.receive("kitchen");
    await tx.send(message, "Confirm");
    controller.abort(reason);
    h.ok(tx.signal.aborted && tx.signal.reason === reason, "tx.signal follows");
  }, { signal: controller.signal }).catch((error) => error), "the aborted transaction");
  h.ok(caught === reason, String(caught));
  h.equal([await h.rows(broker, "kitchen"), await broker.count("counter"), await h.stateOf(broker, counter)], [["1 Order 0"], 0, "CO"]);
});

inPage("two transactions over the same messages: exactly one gets them, and after a rollback the other may", async (h) => {
  const broker = await h.openShop();
  await h.order(broker, 3);
  for (const first of ["rolls back", "commits"]) {
    let second;
    const outcome = await broker.transaction(async (tx) => {
      const mine = await tx.receive("kitchen");
      h.equal(mine.length, 3);
      second = await broker.transaction((inner) => inner.receive("kitchen"));
      h.equal(await broker.receive("kitchen"), [], "nor by the broker itself");
      if (first === "rolls back") throw new Error("back");
      return mine.length;
    }).catch(() => "rolled back");
    h.equal([second, outcome], [[], first === "commits" ? 3 : "rolled back"]);
    h.equal(await broker.count("kitchen", { status: 1 }), first === "commits" ? 0 : 3);
  }
});

inPage("transactions side by side over many groups: each message is committed once", async (h) => {
  const broker = await h.openShop();
  for (let each = 0; each < 8; each += 1) await h.order(broker, 5);
  const done = [];
  const reader = async () => {
    while ((await broker.count("kitchen", { status: 1 })) > 0) {
      try {
        done.push(...(await broker.transaction(async (tx) => {
          const messages = await tx.receive("kitchen", { top: 2 });
          await fetch("/fixtures/empty.html");
          for (const message of messages) await tx.send(message, "Confirm", message.body);
          return messages.map((message) => message.messageId);
        })));
      } catch (error) { if (!error.retryable && error.code !== "TransactionClosed") throw error; }
    }
  };
  await Promise.all([reader(), reader(), reader(), reader()]);
  h.equal([done.length, new Set(done).size, await broker.count("kitchen"), await broker.count("counter")], [40, 40, 0, 40]);
});

inPage("a verb that waits for a group while its broker closes is Closed, as later calls are", async (h, pb) => {
  const holder = await h.openShop();
  const counter = await h.order(holder, 1);
  const closing = await h.open({ lockTimeout: 60_000 }, holder.name);
  await holder.transaction(async (tx) => {
    const [message] = await tx.receive("kitchen");
    const waiting = [closing.endConversation(message), closing.getGroupState(message), closing.transaction((inner) => inner.endConversation(message))]
      .map((each) => h.rejects(h.within(8_000, each, "the wait"), { code: "Closed", details: { reason: "closed" } }));
    await closing.count("kitchen");
    await closing.close();
    waiting.push(h.rejects(closing.send(counter, "Order"), { code: "Closed", details: { reason: "closed" } }));
    for (const error of await Promise.all(waiting)) h.ok(error.message.includes(holder.name), error.message);
  });
});

inPage("a group held by another: GroupLocked after lockTimeout, retryable, 1222; sends are not blocked (D16, D25)", async (h) => {
  const broker = await h.openShop({}, { lockTimeout: 100 });
  const counter = await h.order(broker, 1);
  const kitchen = await h.farSide(broker, counter);
  await broker.transaction(async (tx) => {
    const [message] = await tx.receive("kitchen");
    await h.within(5_000, counter.send("Order", "arrives"), "a send to a locked group");
    const error = await h.rejects(h.within(5_000, broker.endConversation(message), "END"), { code: "GroupLocked", number: 1222, details: { group: message.conversationGroupId } });
    h.ok(error.retryable);
    h.equal(await h.within(5_000, broker.receive("kitchen", { conversation: kitchen }), "receive"), [], "without a timeout a held conversation gives []");
  });
  h.equal(h.bodies(await kitchen.receive()), ["arrives"]);
  await kitchen.end();
});

inPage("a verb that waits for a group sleeps by the clock that was given", async (h) => {
  const naps = [];
  let nap = () => Promise.resolve();
  const clock = { now: () => 1_000_000, sleep(ms, signal) { naps.push({ owner: this, ms, signal }); return nap(signal); } };
  const broker = await h.openShop({}, { clock, lockTimeout: 60_000 });
  const counter = await h.order(broker, 1);
  const kitchen = await h.farSide(broker, counter);
  const held = (work) => broker.transaction(async (tx) => {
    await tx.receive("kitchen");
    await work();
    throw new Error("enough");
  }).catch((error) => { if (error.message !== "enough") throw error; });

  await held(() => h.rejects(h.within(5_000, kitchen.end(), "END"), { code: "GroupLocked" }));
  h.equal(naps.map(({ owner, ms, signal }) => [owner === clock, ms, signal instanceof AbortSignal, signal.aborted]), [[true, 60_000, true, false]], "the clock says when the time is over");

  nap = (signal) => new Promise((_, reject) => signal.addEventListener("abort", () => { broker.count("kitchen"); reject(signal.reason); }));
  let waiting;
  await held(async () => {
    waiting = broker.setGroupState(kitchen, { n: 1 });
    await h.until(() => naps.length === 2, "the nap");
    h.ok(!naps[1].signal.aborted, "it is waited for");
  });
  await h.within(5_000, waiting, "the state");
  await h.until(() => naps[1].signal.aborted, "the abort, once nobody waits any more");
  h.equal(await broker.getGroupState(kitchen), { n: 1 });
});

inPage("a clock that can't sleep is not waited by: the wait is over in real time all the same", async (h, pb) => {
  const naps = [() => { throw new Error("no sleep"); }, () => Promise.reject(new Error("no sleep")), () => undefined];
  const clock = { now: () => 1_000_000, sleep: () => naps[0]() };
  const broker = await h.openShop({}, { clock, lockTimeout: 50 });
  const kitchen = await h.farSide(broker, await h.order(broker, 1));
  while (naps.length > 0) {
    await broker.transaction(async (tx) => {
      await tx.receive("kitchen");
      await h.rejects(h.within(5_000, kitchen.end(), "END"), { code: "GroupLocked" });
      throw new Error("enough");
    }).catch((error) => { if (error.message !== "enough") throw error; });
    naps.shift();
  }
  const error = await h.rejects(pb.openBroker(h.name(), { clock: { now: () => 1, sleep: 5 } }), { code: "InvalidArgument" });
  h.match(error.message, /clock\.sleep/);
});

inPage("two transactions that end the same conversation: one does, the other is told", async (h) => {
  const broker = await h.openShop({}, { lockTimeout: 2_000 });
  const counter = await h.order(broker, 1);
  const settled = await h.within(10_000, Promise.allSettled([broker.transaction((tx) => tx.endConversation(counter)), broker.transaction((tx) => tx.endConversation(counter))]), "both");
  h.equal(settled.map((each) => each.status).sort(), ["fulfilled", "rejected"]);
  h.ok(["ConversationNotFound", "GroupLocked", "TransactionClosed", "Conflict"].includes(settled.find((each) => each.status === "rejected").reason.code));
  h.equal(h.types(await broker.receive("kitchen")), ["Order", "EndDialog"]);
});

inPage("views inside a transaction read what is committed, its own received rows aside or not, and never lock", async (h) => {
  const broker = await h.openShop({ kitchen: { retention: true } });
  const counter = await h.order(broker, 3);
  await broker.transaction(async (tx) => {
    const rows = await tx.select("kitchen").toArray();
    h.equal(rows.map((row) => row.body), [{ n: 0 }, { n: 1 }, { n: 2 }]);
    h.equal((await tx.queues()).length, 3);
    h.equal((await tx.conversations({ conversationId: counter.conversationId }).toArray()).length, 2);
    h.equal((await tx.conversation(counter).info()).state, "CO");
    await tx.conversation(counter).send("Order", "through the view");
  });
  h.equal(await broker.count("kitchen"), 4);
});

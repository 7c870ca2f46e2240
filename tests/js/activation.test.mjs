/** Activation: readers that start by themselves, and what a failing handler means. */
import assert from "node:assert/strict";
import { inPage, inPageAndWorkers, withPages } from "./fixtures/harness.mjs";

inPageAndWorkers("b102: an arrival on an idle queue starts a reader; a handler's sends commit with it", async (h) => {
  const broker = await h.openShop();
  const activation = broker.activate("kitchen", async ([message], tx) => { await tx.send(message, "Confirm", { for: message.body.n }); });
  h.equal([activation.queue, activation.readers], ["kitchen", 0]);
  await activation.idle();
  await h.order(broker, 3);
  await activation.idle();
  h.equal([await broker.count("kitchen"), await broker.count("counter", { status: 1 })], [0, 3]);
  h.equal((await broker.stats()).activations, 3);
  h.equal(h.bodies(await broker.receive("counter")), [{ for: 0 }, { for: 1 }, { for: 2 }]);
  await activation.stop();
  await activation.done;
  await h.order(broker, 1);
  h.equal(await broker.count("kitchen"), 1, "nobody takes it any more");
});

inPageAndWorkers("b103, b104: as many readers as allowed, one group each; one conversation has one", async (h) => {
  const broker = await h.openShop();
  let running = 0;
  let most = 0;
  let isFull = true;
  const groups = new Set();
  const work = async ([message]) => {
    if (groups.has(message.conversationGroupId)) throw new Error("two readers of one group");
    groups.add(message.conversationGroupId);
    running += 1;
    most = Math.max(most, running);
    if (isFull) await h.until(() => most === 3, "three readers");
    const { readers } = (await broker.queues()).find(({ name }) => name === "kitchen");
    h.ok(readers >= 1 && readers <= 3, `${readers} readers`);
    await new Promise((resolve) => { setTimeout(resolve); });
    running -= 1;
    groups.delete(message.conversationGroupId);
  };
  for (let each = 0; each < 8; each += 1) await h.order(broker, 2);
  const activation = broker.activate("kitchen", work, { maxReaders: 3, recoverability: { immediateRetries: 0, delayedRetries: 0 } });
  await activation.idle();
  h.equal([most, running, activation.readers, await broker.count("kitchen")], [3, 0, 0, 0]);
  isFull = false;
  most = 0;
  await h.order(broker, 12);
  await activation.idle();
  h.equal([most, await broker.count("kitchen")], [1, 0]);
  await activation.stop();
});

inPageAndWorkers("b107: a DialogTimer starts a reader", async (h, pb) => {
  const broker = await h.openShop();
  const conversation = await h.dialog(broker);
  const seen = [];
  const activation = broker.activate("counter", ([message]) => { seen.push(message.messageTypeName); });
  await activation.idle();
  await conversation.beginTimer(20);
  await h.until(() => seen.length > 0);
  h.equal(seen, [pb.SystemMessage.DialogTimer]);
  await activation.stop();
});

inPage("one handler for each message type: EndDialog and Error without one are answered with END", async (h) => {
  const broker = await h.openShop();
  const seen = [];
  const activation = broker.activate("kitchen", { Order: (message, tx) => { seen.push([message.body.n, typeof tx.send]); } });
  const [first, second] = [await h.order(broker, 2), await h.order(broker, 1)];
  await first.end();
  await second.end({ error: { code: 7, description: "no" } });
  await activation.idle();
  h.equal(seen, [[0, "function"], [1, "function"]], "an Error comes before what is unread, which goes with END");
  h.equal(await broker.conversations().toArray(), []);
  await activation.stop();
});

inPage("a handler that fails is tried again, with its attempts; then its conversation waits and others go on, order kept", async (h) => {
  const clock = { now: () => h.state.now };
  h.state.now = 1_000_000;
  const broker = await h.openShop({}, { clock });
  const failures = [];
  broker.addEventListener("message-failed", ({ detail }) => failures.push(detail));
  const handled = [];
  let isBad = true;
  const conversation = await h.order(broker, 2);
  h.state.bad = (await broker.conversations({ service: "Kitchen", conversationId: conversation.conversationId }).toArray())[0].conversationHandle;
  const activation = broker.activate("kitchen", ([message]) => {
    if (isBad && message.conversationHandle === h.state.bad && message.body.n === 0) throw new TypeError("no bread");
    handled.push([message.conversationHandle === h.state.bad, message.body.n, message.attempts]);
  }, { recoverability: { immediateRetries: 2, delayedRetries: 1 } });
  await activation.idle();
  await h.order(broker, 1);
  await activation.idle();
  h.equal(handled, [[false, 0, 0]], "others go on");
  h.equal(failures.map(({ attempts, next, error }) => [attempts, next, error.name, error.message]), [
    [1, "immediate", "TypeError", "no bread"], [2, "immediate", "TypeError", "no bread"], [3, "delayed", "TypeError", "no bread"],
  ]);
  h.equal(failures[2].retryAt, new Date(1_010_000));
  const [first, second] = await broker.select("kitchen").toArray();
  h.equal([first.attempts, first.lastError, first.retryAt, second.attempts, second.retryAt], [3, "no bread", new Date(1_010_000), 0, null]);
  isBad = false;
  h.state.now += 10_000;
  await broker.poll();
  await activation.idle();
  h.equal(handled.slice(1), [[true, 0, 3], [true, 1, 0]], "in order");
  await activation.stop();
});

// d35.
inPage("a batch that fails is handed over one at a time: only the bad one waits", async (h) => {
  const broker = await h.openShop();
  await h.order(broker, 5);
  const calls = [];
  const { handled, failed, remaining } = await broker.drain("kitchen", (messages) => {
    calls.push(messages.map(({ body }) => body.n));
    if (messages.some(({ body }) => body.n === 3)) throw new Error("bad");
  }, { top: 10, recoverability: { immediateRetries: 0, delayedRetries: 1 } });
  h.equal(calls, [[0, 1, 2, 3, 4], [0], [1], [2], [3]]);
  h.equal([handled, failed, remaining], [3, 1, 2]);
});

inPage("finally rollback: five failures switch the queue off; without poison handling it pauses instead of running hot", async (h) => {
  const broker = await h.openShop();
  await h.order(broker, 1);
  let calls = 0;
  const work = () => {
    calls += 1;
    throw new Error("bad");
  };
  const options = { recoverability: { finally: "rollback" } };
  h.equal(await broker.drain("kitchen", work, options), { handled: 0, failed: 5, remaining: 1 });
  h.equal([calls, (await broker.queues()).find(({ name }) => name === "kitchen").isReceiveEnabled], [5, false]);
  await broker.alterQueue("kitchen", { status: "on", poisonMessageHandling: false });
  await broker.receive("kitchen");
  await h.order(broker, 1);
  calls = 0;
  h.equal([(await broker.drain("kitchen", work, options)).remaining, calls], [1, 5]);
});

inPage("RetryLater: not counted, its conversation waits, others go on, at once when online", async (h, pb) => {
  const broker = await h.openShop();
  let isOnline = false;
  const handled = [];
  const activation = broker.activate("kitchen", ([message]) => {
    if (!isOnline && message.body.n === 0) throw new pb.RetryLater(3_600_000, "offline");
    handled.push(message.body.n);
  });
  await h.order(broker, 2);
  await activation.idle();
  const [first] = await broker.select("kitchen").toArray();
  h.equal([first.attempts, first.lastError, first.retryAt > Date.now() + 3_500_000], [0, "offline", true]);
  isOnline = true;
  globalThis.dispatchEvent(new Event("online"));
  await h.until(() => handled.length === 2);
  h.equal(handled, [0, 1]);
  await activation.stop();
});

inPageAndWorkers("b105: activation off pauses after the running handlers, durably; on starts again; a queue that is off is waited for", async (h) => {
  const broker = await h.openShop();
  const handled = [];
  const activation = broker.activate("kitchen", ([message]) => { handled.push(message.body.n); });
  await broker.alterQueue("kitchen", { activation: "off" });
  await h.order(broker, 2);
  await activation.idle();
  h.equal([handled, await broker.count("kitchen", { status: 1 })], [[], 2]);
  h.equal(await broker.drain("kitchen", () => { throw new Error("not now"); }), { handled: 0, failed: 0, remaining: 2 });
  await broker.alterQueue("kitchen", { activation: "on" });
  await h.until(() => handled.length === 2);
  await broker.alterQueue("kitchen", { status: "off" });
  await activation.idle();
  await broker.alterQueue("kitchen", { status: "on" });
  await h.order(broker, 1);
  await h.until(() => handled.length === 3);
  await activation.stop();
});

inPage("idle and drain leave nothing behind that a reader held while they looked", async (h) => {
  const broker = await h.openShop();
  for (let round = 0; round < 25; round += 1) {
    await h.order(broker, 4);
    const { handled, remaining } = await broker.drain("kitchen", () => {}, { maxReaders: 3 });
    h.equal([handled, remaining], [4, 0]);
  }
  const activation = broker.activate("kitchen", () => {}, { maxReaders: 3 });
  for (let round = 0; round < 25; round += 1) {
    await h.order(broker, 4);
    await activation.idle();
    h.equal(await broker.count("kitchen"), 0);
  }
  await activation.stop();
});

inPage("handlerTimeout aborts tx.signal and counts as a failure; a handler that goes on is nobody's any more", async (h) => {
  const broker = await h.openShop();
  await h.order(broker, 1);
  let late;
  const { failed } = await broker.drain("kitchen", async ([message], tx) => {
    await new Promise((resolve) => { tx.signal.addEventListener("abort", resolve, { once: true }); });
    late = h.rejects(tx.send(message, "Confirm"), { code: "TransactionClosed" });
    await late;
  }, { handlerTimeout: 20, recoverability: { immediateRetries: 0, delayedRetries: 1 } });
  await late;
  h.equal([failed, (await broker.select("kitchen").first()).attempts], [1, 1]);
  h.ok((await broker.select("kitchen").first()).lastError.includes("handlerTimeout"));
});

inPage("a handler may close its broker; done says so, and nothing hangs", async (h) => {
  const broker = await h.openShop();
  await h.order(broker, 1);
  const activation = broker.activate("kitchen", async () => { await broker.close(); });
  await h.rejects(activation.done, { code: "Closed" });
  await activation.stop();
  await h.rejects((await h.openShop()).activate("nowhere", () => {}).done, { code: "QueueNotFound" });
});

inPage("bad arguments are refused by name, at the call", async (h) => {
  const broker = await h.openShop();
  for (const [args, argument] of [
    [[1, () => {}], "queue"], [["kitchen"], "handler"], [["kitchen", { Order: 1 }], 'handler["Order"]'], [["kitchen", new Map()], "handler"],
    [["kitchen", () => {}, { maxReaders: 0 }], "maxReaders"], [["kitchen", () => {}, { top: 1.5 }], "top"], [["kitchen", () => {}, { handlerTimeout: -1 }], "handlerTimeout"],
    [["kitchen", () => {}, { recoverability: { immediateRetries: -1 } }], "recoverability.immediateRetries"],
    [["kitchen", () => {}, { recoverability: { finally: "never" } }], "recoverability.finally"],
    [["kitchen", () => {}, { retries: 1 }], "retries"],
  ]) {
    let thrown;
    try { broker.activate(...args); } catch (error) { thrown = error; }
    h.equal([thrown?.code, thrown?.details.argument], ["InvalidArgument", argument]);
    await h.rejects(broker.drain(...args), { code: "InvalidArgument" });
  }
});

inPage("request: a question and its answer; an Error and silence are told", async (h) => {
  const broker = await h.openShop();
  const dialog = { from: "Counter", to: "Kitchen", contract: "Ordering" };
  const activation = broker.activate("kitchen", {
    Order: async (message, tx) => {
      if (message.body.n === 1) await tx.send(message, "Confirm", { for: 1 });
      if (message.body.n === 2) await tx.endConversation(message, { error: { code: 42, description: "no bread" } });
    },
  });
  const answer = await broker.request(dialog, "Order", { n: 1 });
  h.equal([answer.messageTypeName, answer.body], ["Confirm", { for: 1 }]);
  const error = await h.rejects(broker.request(dialog, "Order", { n: 2 }), { code: "RemoteError" });
  h.equal([error.details.code, error.details.description], [42, "no bread"]);
  await h.rejects(broker.request({ ...dialog, timeout: 20 }, "Order", { n: 3 }), { code: "Timeout" });
  await activation.idle();
  h.equal(await broker.conversations().toArray(), [], "nothing is left open");
  const controller = new AbortController();
  const asked = broker.request({ ...dialog, signal: controller.signal }, "Order", { n: 3 }).then(() => undefined, (reason) => reason);
  await activation.idle();
  controller.abort("enough");
  h.equal(await asked, "enough");
  await activation.idle();
  h.equal(await broker.conversations().toArray(), []);
  await activation.stop();
});

inPage("after the last attempt a message moves to the error queue, with what failed, and its conversation goes on; it can come back", async (h, pb) => {
  const broker = await h.openShop();
  await h.order(broker, 2);
  const failures = h.collect(broker, "message-failed");
  let isBad = true;
  const work = ([message]) => {
    if (isBad && message.body.n === 0) throw new RangeError("no bread");
  };
  const options = { recoverability: { immediateRetries: 1, delayedRetries: 0 } };
  h.equal(await broker.drain("kitchen", work, options), { handled: 1, failed: 1, remaining: 0 });
  await h.until(() => failures.length === 2);
  h.equal(failures.map(({ attempts, next }) => [attempts, next]), [[1, "immediate"], [2, "error-queue"]]);
  const [failed, ...others] = await broker.failed().toArray();
  h.equal([others, failed.body, failed.failedQueue, failed.exceptionType, failed.exceptionMessage, failed.retries, failed.attempts], [[], { n: 0 }, "kitchen", "RangeError", "no bread", 1, 2]);
  h.ok(failed.stackTrace.length > 0 && failed.timeOfFailure instanceof Date && failed.messageId === failures[0].messageId);
  const [row] = await broker.select("error").toArray();
  const { FailedQ, Retries, ProcessingEndpoint, TimeOfFailure, ...exception } = row.headers;
  h.equal([FailedQ, Retries, ProcessingEndpoint, TimeOfFailure], ["kitchen", "1", broker.name, failed.timeOfFailure.toISOString()]);
  h.equal([exception["ExceptionInfo.ExceptionType"], exception["ExceptionInfo.Message"]], ["RangeError", "no bread"]);
  h.equal([await broker.count("error"), await broker.failed({ failedQueue: "counter" }).toArray(), (await broker.failed({ limit: 1 }).first()).body], [1, [], { n: 0 }]);
  isBad = false;
  h.equal([await broker.returnToSource({ messageId: failed.messageId }), await broker.failed().toArray()], [1, []]);
  const [back] = await broker.select("kitchen").toArray();
  h.equal([back.headers, back.messageId, back.messageSequenceNumber, back.conversationHandle === failed.conversationHandle], [{}, failed.messageId, 0, false]);
  h.equal(await broker.drain("kitchen", work, options), { handled: 1, failed: 0, remaining: 0 });

  await broker.enqueue("kitchen", { n: 0 });
  h.equal(await broker.drain("kitchen", () => { throw new pb.UnrecoverableError("never"); }), { handled: 0, failed: 1, remaining: 0 });
  h.equal((await broker.failed().first()).exceptionType, "UnrecoverableError");
  h.equal(await broker.drain("kitchen", { Order: () => {} }, options), { handled: 0, failed: 0, remaining: 0 });
  await h.rejects(broker.discardFailed(), { code: "InvalidArgument" });
  h.equal([await broker.discardFailed({}), await broker.failed().first()], [1, undefined]);
});

withPages("several pages activating one queue share the work, whoever sends, and each message is handled once, in order", 3, async ([sender, ...pages]) => {
  const name = `activation-${crypto.randomUUID()}`;
  await sender.step(async (h, _, name) => { h.state.broker = await h.open({ definitions: h.shop() }, name); }, name);
  for (const [page, by] of pages.map((page, index) => [page, `page ${index}`])) {
    await page.step(async (h, _, { name, by }) => {
      h.state.broker = await h.open({}, name);
      const channel = new BroadcastChannel(`${name} begun`);
      h.afterwards(() => channel.close());
      const others = new Promise((resolve) => { channel.onmessage = resolve; });
      h.state.activation = h.state.broker.activate("kitchen", async ([message], tx) => {
        // No page does it all before the other one has woken.
        channel.postMessage(by);
        await h.within(30_000, others, "a handler in the other page");
        await tx.send(message, "Confirm", { n: message.body.n, by });
      }, { maxReaders: 2 });
      await h.state.activation.idle();
    }, { name, by });
  }
  const answers = await sender.step(async (h) => {
    const { broker } = h.state;
    for (let each = 0; each < 10; each += 1) await h.order(broker, 10);
    await h.until(async () => (await broker.count("counter", { status: 1 })) === 100, "every answer", 60_000);
    const rows = await broker.select("counter").toArray();
    return rows.map(({ conversationId, messageSequenceNumber, body }) => ({ conversationId, number: messageSequenceNumber, ...body }));
  });
  for (const page of pages) await page.step((h) => h.state.activation.stop());
  assert.equal(answers.length, 100);
  assert.equal(new Set(answers.map(({ conversationId }) => conversationId)).size, 10);
  // Of each conversation the answers came in the order in which they were sent, which is that of their numbers.
  assert.deepEqual(answers.filter(({ number, n }) => number !== n), [], "each once, in order");
  assert.deepEqual([...new Set(answers.map(({ by }) => by))].sort(), ["page 0", "page 1"]);
});

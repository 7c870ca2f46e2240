/** RECEIVE that waits, and groups that have one reader over all tabs. */
import assert from "node:assert/strict";
import { inPage, withPages } from "./fixtures/harness.mjs";

inPage("a waiting receive ends with a message, a timeout, an abort, the queue's end, or the broker's", async (h, pb) => {
  const broker = await h.openShop();
  h.equal(await broker.receive("kitchen", { timeout: 20 }), []);
  const coming = broker.receive("kitchen", { timeout: Infinity });
  const counter = await h.order(broker, 1);
  h.equal((await coming).map(({ body }) => body.n), [0], "a message");
  const own = counter.receive({ timeout: 60_000 });
  const [got] = await Promise.all([own, broker.conversations({ service: "Kitchen" }).first().then((far) => broker.send(far, "Confirm", "yes"))]);
  h.equal(got[0].body, "yes", "by a conversation of its own queue");

  const controller = new AbortController();
  const reason = { why: "enough" };
  const aborted = broker.receive("kitchen", { timeout: Infinity, signal: controller.signal });
  const inside = broker.transaction((tx) => tx.receive("kitchen", { timeout: Infinity, signal: controller.signal }));
  const reasons = Promise.all([aborted, inside].map((call) => call.catch((error) => error)));
  await broker.queues();
  controller.abort(reason);
  h.ok((await reasons).every((error) => error === reason), "the reason, untouched");
  h.ok(await broker.receive("kitchen", { timeout: Infinity, signal: controller.signal }).catch((error) => error) === reason, "at once");

  const offline = broker.receive("kitchen", { timeout: Infinity });
  const disabled = h.rejects(offline, { code: "QueueDisabled", details: { queue: "kitchen" } });
  await broker.queues();
  await broker.alterQueue("kitchen", { status: "off" });
  await disabled;
  await broker.alterQueue("kitchen", { status: "on" });
  const closed = [broker.receive("kitchen", { timeout: Infinity }), broker.transaction((tx) => tx.receive("kitchen", { timeout: Infinity }))];
  const refused = Promise.all(closed.map((call) => h.rejects(call, { code: "Closed" })));
  await broker.queues();
  await broker.close();
  await refused;
  for (const timeout of [-1, NaN, "5", null]) await h.rejects((await h.openShop()).receive("kitchen", { timeout }), { code: "InvalidArgument", details: { argument: "timeout" } });
});

// d25.
inPage("a handler may call any verb of its broker, close() included, and nothing hangs", async (h) => {
  const broker = await h.openShop({}, { lockTimeout: 50 });
  await h.order(broker, 1);
  await broker.transaction(async (tx) => {
    const [message] = await tx.receive("kitchen");
    await broker.send(message, "Note", "from within");
    h.equal(await broker.receive("kitchen"), [], "its own group is held");
    await h.rejects(broker.endConversation(message), { code: "GroupLocked", number: 1222, retryable: true, details: { group: message.conversationGroupId } });
    await broker.queues();
  });
  const work = broker.transaction(async (tx) => {
    await tx.receive("kitchen");
    await broker.close();
  });
  await h.rejects(work, { code: "Closed" });
});

inPage("getConversationGroup locks the next group, and receives nothing", async (h) => {
  const broker = await h.openShop();
  h.equal(await broker.transaction((tx) => tx.getConversationGroup("kitchen")), null);
  await h.order(broker, 1);
  await h.order(broker, 1);
  await broker.transaction(async (tx) => {
    const group = await tx.getConversationGroup("kitchen");
    const other = await tx.getConversationGroup("kitchen", { timeout: 60_000 });
    h.ok(group !== other && other !== null, "two groups");
    h.equal([await tx.getConversationGroup("kitchen", { timeout: 10 }), await broker.receive("kitchen"), await broker.count("kitchen", { status: 1 })], [null, [], 2]);
    const messages = await tx.receive("kitchen", { group });
    h.equal(messages.map((message) => message.conversationGroupId), [group]);
  });
  h.equal(await broker.count("kitchen", { status: 1 }), 1);
  await h.rejects(broker.transaction((tx) => tx.getConversationGroup("nowhere")), { code: "QueueNotFound" });
});

const open = async (h, _, name) => { h.state.broker = await h.open({ definitions: h.shop(), lockTimeout: 100 }, name); };
/** Begins a transaction that receives, and keeps it open until `h.state.finish` is called. */
const hold = (h) => new Promise((resolve, reject) => {
  h.state.work = h.state.broker.transaction(async (tx) => {
    const messages = await tx.receive("kitchen");
    resolve(messages.map(({ body }) => body.n));
    await new Promise((finish) => { h.state.finish = finish; });
  });
  h.state.work.catch(reject);
});

withPages("a group has one reader over all pages, and others go on (D21, b44, b45)", 2, async ([left, right]) => {
  const name = `tabs-${crypto.randomUUID()}`;
  await left.step(open, name);
  await right.step(open, name);
  await left.step((h) => h.order(h.state.broker, 1).then(() => {}));
  assert.deepEqual(await left.step(hold), [0]);
  const seen = await right.step(async (h) => {
    const { broker } = h.state;
    const [row] = await broker.select("kitchen").toArray();
    const nothing = [await broker.receive("kitchen"), await broker.receive("kitchen", { conversation: row }), await broker.transaction((tx) => tx.getConversationGroup("kitchen"))];
    await h.rejects(broker.endConversation(row), { code: "GroupLocked", details: { group: row.conversationGroupId } });
    await broker.send(await broker.conversations({ service: "Counter" }).first(), "Note", { n: "arrivals are not blocked" });
    await h.order(broker, 1);
    return [nothing, (await broker.receive("kitchen")).map(({ body }) => body.n)];
  });
  assert.deepEqual(seen, [[[], [], null], [0]]);
  await left.step(async (h) => { h.state.finish(); await h.state.work; });
  const rest = await right.step(async (h) => (await h.state.broker.receive("kitchen")).map(({ body }) => body.n));
  assert.deepEqual(rest, ["arrivals are not blocked"]);
});

withPages("a page that goes away lets go of its groups: the lock wakes the reader, and its work never happened", 3, async ([left, right, third]) => {
  const name = `tabs-${crypto.randomUUID()}`;
  for (const page of [left, right, third]) await page.step(open, name);
  await left.step((h) => h.order(h.state.broker, 1).then(() => {}));
  assert.deepEqual(await left.step(hold), [0]);
  const began = Date.now();
  const waiting = right.step(async (h) => (await h.state.broker.receive("kitchen", { timeout: Infinity })).map(({ body }) => body.n));
  // It queues for the lock only after it has looked: the third page sees that.
  await third.step(async (h) => { while ((await navigator.locks.query()).pending.length === 0); });
  await left.reload();
  assert.deepEqual(await waiting, [0]);
  assert.ok(Date.now() - began < 10_000, "it did not wait for the next look");
}, { locks: true });

// d03.
withPages("an idle waiting reader opens no storage transaction: commits that leave its queue alone do not wake it, and its poll looks once", 2, async ([left, right]) => {
  const name = `tabs-${crypto.randomUUID()}`;
  await right.step(async (h, _, name) => {
    h.state.naps = [];
    const sleep = (ms) => new Promise((wake) => { h.state.naps.push({ ms, wake }); });
    h.state.broker = await h.open({ definitions: h.shop({ queues: { other: {}, last: {} } }), clock: { now: () => Date.now(), sleep } }, name);
    h.state.seen = h.spy();
    h.state.waiting = h.state.broker.receive("kitchen", { timeout: Infinity });
    await h.until(() => h.state.naps.length > 0, "a reader that sleeps");
    h.state.seen.transactions.length = 0;
    h.state.heard = h.collect(h.state.broker, "message-enqueued");
  }, name);
  await left.step(async (h, _, name) => {
    const broker = h.state.broker = await h.open({}, name);
    for (let n = 0; n < 20; n += 1) await broker.enqueue("other", n);
    await broker.enqueue("last", 20);
  }, name);
  const idle = await right.step(async (h) => {
    await h.until(() => h.state.heard.some(({ queue }) => queue === "last"), "news of the last commit");
    return [h.state.seen.transactions.length, h.state.naps.map(({ ms }) => ms)];
  });
  assert.deepEqual(idle, [0, [15_000]]);
  const polled = await right.step(async (h) => {
    h.state.naps[0].wake();
    await h.until(() => h.state.naps.length === 2, "the next sleep");
    return h.state.seen.transactions.length;
  });
  assert.equal(polled, 1);
  await left.step((h) => h.order(h.state.broker, 1).then(() => {}));
  assert.deepEqual(await right.step(async (h) => (await h.state.waiting).map(({ body }) => body.n)), [0]);
});

withPages("a commit in one page wakes a reader in another (b34)", 2, async ([left, right]) => {
  const name = `tabs-${crypto.randomUUID()}`;
  await left.step(open, name);
  await right.step(open, name);
  const waiting = right.step(async (h) => (await h.state.broker.receive("kitchen", { timeout: Infinity })).map(({ body }) => body.n));
  await left.step((h) => h.order(h.state.broker, 3).then(() => {}));
  assert.deepEqual((await waiting)[0], 0);
});

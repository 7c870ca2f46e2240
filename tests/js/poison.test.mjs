/** Poison messages, as pages see them. */
import assert from "node:assert/strict";
import { inPage, withPages } from "./fixtures/harness.mjs";

inPage("b97: five failures in a row switch the queue off, four and a commit do not (b98)", async (h) => {
  const broker = await h.openShop();
  const conversation = await h.order(broker, 2);
  const info = async () => (await broker.queues()).find(({ name }) => name === "kitchen");
  const failOnce = async () => {
    await broker.transaction(async (tx) => {
      await tx.receive("kitchen", { top: 1 });
      throw new Error("bad message");
    }).catch(() => {});
  };
  const reason = new Error("bad message");
  const thrown = await broker.transaction(async (tx) => {
    await tx.receive("kitchen", { top: 1 });
    throw reason;
  }).catch((error) => error);
  h.ok(thrown === reason, "it rejects with the reason itself");
  for (let count = 1; count < 4; count += 1) await failOnce();
  h.equal((await info()).consecutiveRollbacks, 4);
  await broker.transaction((tx) => tx.receive("kitchen", { top: 1 }));
  h.equal((await info()).consecutiveRollbacks, 0);
  for (let count = 0; count < 4; count += 1) await failOnce();
  const disabled = h.next(broker, "queue-disabled");
  await failOnce();
  h.equal(await disabled, { queue: "kitchen", reason: "poison" });
  const { isReceiveEnabled, isEnqueueEnabled, consecutiveRollbacks, ready } = await info();
  h.equal([isReceiveEnabled, isEnqueueEnabled, consecutiveRollbacks, ready], [false, false, 5, 1]);
  await h.rejects(broker.receive("kitchen"), { code: "QueueDisabled", number: 9617 });
  await conversation.send("Order", { n: 2 });
  h.equal((await broker.transmissionQueue().toArray()).map(({ body }) => body), [{ n: 2 }]);
  await broker.alterQueue("kitchen", { status: "on" });
  h.equal([(await info()).consecutiveRollbacks, h.bodies(await broker.receive("kitchen"))], [0, [{ n: 1 }, { n: 2 }]]);
});

inPage("d04: an abort, a closed broker and a lock are nobody's poison", async (h, pb) => {
  const broker = await h.openShop();
  await h.order(broker, 1);
  for (let count = 0; count < 6; count += 1) {
    const controller = new AbortController();
    await broker.transaction(async (tx) => {
      await tx.receive("kitchen");
      controller.abort(new Error("no time"));
      await new Promise(() => {});
    }, { signal: controller.signal }).catch(() => {});
    await broker.transaction(async (tx) => {
      await tx.receive("kitchen");
      throw new pb.BrokerError("GroupLocked", "another reader has it");
    }).catch(() => {});
  }
  const [{ consecutiveRollbacks, isReceiveEnabled }] = (await broker.queues()).filter(({ name }) => name === "kitchen");
  h.equal([consecutiveRollbacks, isReceiveEnabled], [0, true]);
  h.equal((await broker.receive("kitchen")).length, 1);
});

// b97.
withPages("d04: the count goes over pages and reloads, and every page hears of the end once", 2, async ([left, right]) => {
  const name = `poison-${crypto.randomUUID()}`;
  const open = async (h, _, name) => {
    h.state.broker = await h.open({ definitions: h.shop() }, name);
    h.state.heard = [];
    h.state.broker.addEventListener("queue-disabled", ({ detail }) => h.state.heard.push(detail));
  };
  const failOnce = async (h) => {
    await h.state.broker.transaction(async (tx) => {
      await tx.receive("kitchen");
      throw new Error("bad message");
    }).catch(() => {});
    return (await h.state.broker.queues()).find(({ name }) => name === "kitchen").consecutiveRollbacks;
  };
  await left.step(open, name);
  await right.step(open, name);
  await left.step(async (h) => { await h.order(h.state.broker, 1); });
  assert.deepEqual([await left.step(failOnce), await right.step(failOnce), await left.step(failOnce)], [1, 2, 3]);
  await right.reload();
  await right.step(open, name);
  assert.equal(await right.step(failOnce), 4);
  const heard = right.step(async (h) => {
    if (h.state.heard.length === 0) await h.next(h.state.broker, "queue-disabled");
    return h.state.heard;
  });
  assert.equal(await left.step(failOnce), 5);
  assert.deepEqual(await heard, [{ queue: "kitchen", reason: "poison" }]);
  assert.deepEqual(await left.step((h) => h.state.heard), [{ queue: "kitchen", reason: "poison" }]);
});

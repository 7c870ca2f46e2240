/** Messages for services of other brokers: routes, transports that the page gives, and what becomes of what waits. */
import { inPage } from "./fixtures/harness.mjs";

inPage("b92: a message for a far service waits, says why, and leaves by a route that comes later", async (h, pb) => {
  const broker = await h.openShop();
  const unsent = h.collect(broker, "transmission-failed");
  const transmitted = h.collect(broker, "message-transmitted");
  const conversation = await broker.beginDialog({ from: "Counter", to: "Bank", contract: "Ordering" });
  const id = await conversation.send("Order", { table: 4, at: new Date(5), tags: new Set(["a"]) }, { headers: { trace: "t1" } });
  const [row] = await broker.transmissionQueue().toArray();
  h.equal([row.messageType, row.attempts, row.nextAttempt, row.toService], ["Order", 0, null, "Bank"]);
  h.ok(row.transmissionStatus.includes("no route"), row.transmissionStatus);
  await h.until(() => unsent.length === 1);
  h.equal([unsent[0].conversationHandle, unsent[0].status.includes("Bank")], [conversation.handle, true]);
  const calls = [];
  await broker.route({ service: "Bank", transport: { send: async (envelopes) => { calls.push(envelopes); return envelopes.map(() => ({ status: "acknowledged" })); } } });
  await h.until(() => transmitted.length === 1);
  h.equal(transmitted, [{ messageId: id, conversationHandle: conversation.handle }]);
  const [[envelope]] = calls;
  const { body, ...head } = envelope;
  h.equal(head, {
    v: 1, kind: "message", messageId: id, conversationId: conversation.conversationId, fromInitiator: true, sequence: 0, fromService: "Counter", fromBroker: broker.instanceId,
    toService: "Bank", toBroker: null, contract: "Ordering", messageType: "Order", lifetime: null, headers: { trace: "t1" }, bodyEncoding: "devalue",
  });
  h.equal(JSON.parse(JSON.stringify(envelope)), envelope, "JSON keeps it");
  h.equal(pb.decodeBody(envelope), { table: 4, at: new Date(5), tags: new Set(["a"]) });
  const { transmitted: count, transmissionQueued, oldestTransmission } = await broker.stats();
  h.equal([count, transmissionQueued, oldestTransmission], [1, 0, null]);
});

inPage("routes are checked at the call, and taken back", async (h) => {
  const broker = await h.openShop();
  const transport = { send: async (envelopes) => envelopes.map(() => ({ status: "acknowledged" })) };
  const wrong = [[undefined, "route.service"], [{ service: "Bank" }, "route.transport"], [{ service: "Bank", transport: {} }, "route.transport"], [{ service: 5, transport }, "route.service"],
    [{ service: "Bank", transport, batch: 0 }, "route.batch"], [{ service: "Bank", transport: { ...transport, listen: 5 } }, "route.transport.listen"], [{ service: "Bank", transport, bach: 5 }, "route.bach"]];
  for (const [route, argument] of wrong) await h.rejects(broker.route(route), { code: "InvalidArgument", details: { argument } }, JSON.stringify(route));
  await h.rejects(broker.route({ service: "", transport }), { code: "InvalidArgument" });
  const route = await broker.route({ service: "Bank", transport });
  await h.rejects(broker.route({ service: "Bank", transport }), { code: "AlreadyExists" });
  await route.remove();
  await route.remove();
  await (await broker.route({ service: "Bank", transport })).remove();
  await broker.close();
  await h.rejects(broker.route({ service: "Bank", transport }), { code: "Closed" });
  await h.rejects(broker.transmit(), { code: "Closed" });
});

inPage("what a transport answers may be anything: nothing is lost by it", async (h) => {
  const broker = await h.openShop();
  let answer;
  await broker.route({ service: "*", transport: { send: (envelopes, { signal }) => answer(envelopes, signal) } });
  const conversation = await broker.beginDialog({ from: "Counter", to: "Bank", contract: "Ordering" });
  answer = () => { throw new Error("thrown at once"); };
  await conversation.send("Order", 1);
  const statuses = [];
  const status = async () => (await broker.transmissionQueue().first())?.transmissionStatus;
  await h.until(async () => (await status())?.includes("thrown at once"));
  const odd = [
    [() => undefined, "array"], [() => Promise.reject(), "gave no reason|undefined"], [() => [5], "can't be read"], [() => [{ status: "done" }], "can't be read"], [() => [], "fewer"],
    [() => [{ status: "acknowledged", upTo: -1 }], "upTo"], [() => [{ status: "acknowledged", fromBroker: 7 }], "fromBroker"], [() => [{ status: "acknowledged", fromBroker: "me" }], "no broker's instance id"],
    [() => [{ status: "retry", after: "soon" }], "after"], [() => [{ status: "retry" }], "did not say why"], [() => [new Proxy({}, { get() { throw new Error("a trap"); } })], "a trap"],
    [async () => { throw new DOMException("cut", "NetworkError"); }, "cut"],
  ];
  for (const [given, expected] of odd) {
    answer = given;
    const { sent, remaining } = await broker.transmit();
    h.equal([sent, remaining], [0, 1], expected);
    statuses.push(await status());
    h.ok(new RegExp(expected).test(statuses.at(-1)), `${expected}: ${statuses.at(-1)}`);
  }
  answer = (envelopes) => envelopes.map(() => ({ status: "acknowledged", upTo: 1_000_000 }));
  h.equal(await broker.transmit(), { sent: 1, remaining: 0 });
  answer = (envelopes) => [...envelopes, 1, 2].map(() => ({ status: "acknowledged" }));
  await conversation.send("Order", 2);
  await h.until(async () => (await broker.stats()).transmissionQueued === 0);
});

inPage("what can't travel goes to the error queue, and what is behind it goes on", async (h) => {
  const broker = await h.openShop();
  const sent = [];
  await broker.route({ service: "Bank", transport: { send: async (envelopes) => { sent.push(...envelopes.map(({ sequence }) => sequence)); return envelopes.map(() => ({ status: "acknowledged" })); } } });
  const conversation = await broker.beginDialog({ from: "Counter", to: "Bank", contract: "Ordering" });
  await conversation.send("Order", 0);
  let deep = {};
  for (let level = 0; level < 1_500; level += 1) deep = { deep };
  await conversation.sendMany([{ messageType: "Order", body: 1 }, { messageType: "Order", body: deep }, { messageType: "Order", body: 3 }]);
  await h.until(async () => (await broker.stats()).transmissionQueued === 0);
  h.equal(sent, [0, 1, 3]);
  const [failed] = await broker.failed().toArray();
  h.equal([failed.failedQueue, failed.retries, failed.exceptionMessage.includes("can't be sent")], [conversation.handle, 0, true]);
});

inPage("an answer brings a message, if its type and body may be", async (h, pb) => {
  const validator = { "~standard": { version: 1, vendor: "test", validate: (value) => (typeof value?.receipt === "number" ? { value } : { issues: [{ message: "has no receipt" }] }) } };
  const broker = await pb.openBroker(h.name(), { definitions: {
    messageTypes: { Order: "none", Receipt: validator }, contracts: { Sale: { Order: "initiator", Receipt: "target" } },
    queues: { till: {} }, services: { Till: { queue: "till" } } } });
  const dropped = h.collect(broker, "message-dropped");
  const replies = [{ messageType: "Receipt", body: { receipt: 1 } }, { messageType: "Receipt", body: {} }, { messageType: "Order" }, { body: 1 }, { messageType: "Receipt", body: () => {} }];
  await broker.route({ service: "Bank", transport: { send: async (envelopes) => envelopes.map(() => ({ status: "acknowledged", reply: replies.shift() })) } });
  const conversation = await broker.beginDialog({ from: "Till", to: "Bank", contract: "Sale" });
  for (let count = 0; count < 5; count += 1) await conversation.send("Order", count);
  await h.until(() => dropped.length === 4);
  h.ok(dropped.every(({ reason }) => reason.includes("answer")), JSON.stringify(dropped));
  const [message] = await conversation.receive();
  h.equal([message.messageTypeName, message.body, message.messageSequenceNumber], ["Receipt", { receipt: 1 }, 0]);
  h.equal(await broker.count("till"), 0);
});

inPage("a signal aborts when nobody waits for the answer", async (h) => {
  const broker = await h.openShop();
  const aborted = [];
  let called;
  const hanging = { send: (_, { signal }) => new Promise(() => { signal.addEventListener("abort", () => aborted.push("aborted")); called(); }) };
  const conversation = await broker.beginDialog({ from: "Counter", to: "Bank", contract: "Ordering" });
  for (const end of [(route) => route.remove(), () => broker.close()]) {
    const call = new Promise((resolve) => { called = resolve; });
    const route = await broker.route({ service: "Bank", transport: hanging });
    if (aborted.length === 0) await conversation.send("Order", 1);
    await call;
    const abort = new AbortController();
    const waiting = broker.transmit({ signal: abort.signal });
    abort.abort(new Error("enough"));
    h.equal(await waiting.catch((reason) => reason.message), "enough");
    const before = aborted.length;
    await end(route);
    await h.until(() => aborted.length === before + 1);
  }
});

inPage("offline one conversation is tried at a time, and nothing stops", async (h) => {
  const broker = await h.openShop();
  let isOnLine = false;
  Object.defineProperty(navigator, "onLine", { configurable: true, get: () => isOnLine });
  let calls = 0, underWay = 0, most = 0;
  const release = [];
  for (let order = 0; order < 6; order += 1) await (await broker.beginDialog({ from: "Counter", to: "Bank", contract: "Ordering" })).send("Order", order);
  await broker.route({ service: "Bank", transport: { send: async (envelopes) => {
    [calls, underWay] = [calls + 1, underWay + 1];
    most = Math.max(most, underWay);
    if (isOnLine) await new Promise((resolve) => { release.push(resolve); });
    // A call of another conversation would begin meanwhile.
    else await broker.stats();
    underWay -= 1;
    if (calls === 2) isOnLine = true;
    return envelopes.map(() => ({ status: "acknowledged" }));
  } } });
  await h.until(() => release.length === 4, "the other four side by side");
  h.equal([calls, most], [6, 4]);
  delete navigator.onLine;
  for (const resolve of release) resolve();
  await h.until(async () => (await broker.stats()).transmissionQueued === 0);
});

inPage("online tries what has failed at once", async (h) => {
  const broker = await h.openShop();
  let calls = 0;
  await broker.route({ service: "Bank", transport: { send: async (envelopes) => { calls += 1; return envelopes.map(() => (calls === 1 ? { status: "retry", after: 3_600_000, reason: "away" } : { status: "acknowledged" })); } } });
  const conversation = await broker.beginDialog({ from: "Counter", to: "Bank", contract: "Ordering" });
  await conversation.send("Order", 1);
  await h.until(async () => (await broker.transmissionQueue().first())?.attempts === 1);
  const { nextAttempt } = await broker.transmissionQueue().first();
  h.ok(nextAttempt - Date.now() > 3_000_000, String(nextAttempt));
  globalThis.dispatchEvent(new Event("online"));
  await h.until(async () => (await broker.stats()).transmissionQueued === 0);
  h.equal(calls, 2);
});

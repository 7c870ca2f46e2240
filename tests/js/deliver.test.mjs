/** What arrives from outside, as a page hands it over: validators, hostile objects, and what becomes of each envelope. */
import { inPage } from "./fixtures/harness.mjs";

/** Another broker's envelopes: part of each test's text, since a body closes over nothing. */
const far = `
  const FAR = "6ba7b810-9dad-41d1-80b4-00c04fd430c8";
  const END_DIALOG = "http://schemas.microsoft.com/SQL/ServiceBroker/EndDialog";
  const ERROR = "http://schemas.microsoft.com/SQL/ServiceBroker/Error";
  const conversationId = crypto.randomUUID();
  const envelope = (sequence, more = {}) => ({
    v: 1, kind: "message", messageId: crypto.randomUUID(), conversationId, fromInitiator: true, sequence, fromService: "Desk", fromBroker: FAR, toService: "Kitchen", toBroker: null,
    contract: "Ordering", messageType: "Order", lifetime: null, headers: {}, bodyEncoding: "json", body: { n: sequence }, ...more,
  });
  const acknowledgement = (sequence) => ({ v: 1, kind: "acknowledgement", conversationId, fromInitiator: true, sequence, fromBroker: broker.instanceId, toBroker: FAR });
  const one = async (given, context) => { const [delivery, ...others] = await broker.deliver(given, context); h.equal(others, [], "one for one"); return delivery; };
`;
const withFar = (body) => new Function("return " + body.toString().replace("/* far */", far))();

inPage("b88, b89: an envelope that comes twice is one row, one that overtakes waits; bodies are what was encoded", withFar(async (h, pb) => {
  const broker = await h.openShop();
  /* far */
  const body = { table: 4, at: new Date(5), tags: new Set(["a"]), bytes: new Uint8Array([1, 2]) };
  const first = envelope(0, { ...await pb.encodeBody(body), headers: { trace: "t1" } });
  h.equal(await broker.deliver(first), [{ status: "stored", acknowledgement: acknowledgement(0) }]);
  h.equal(await broker.deliver([JSON.parse(JSON.stringify(first))]), [{ status: "repeated", acknowledgement: acknowledgement(0) }]);
  h.equal(await one(envelope(2)), { status: "stored", acknowledgement: acknowledgement(0) });
  h.equal(await h.rows(broker, "kitchen"), ["1 Order 0", "2 Order 2"]);
  const [message] = await broker.receive("kitchen");
  h.equal([message.body, message.headers, message.messageId, message.conversationId], [body, { trace: "t1" }, first.messageId, conversationId]);
  h.equal(await broker.receive("kitchen"), []);
  h.equal(await one(envelope(1)), { status: "stored", acknowledgement: acknowledgement(2) });
  h.equal(h.bodies(await broker.receive("kitchen")), [{ n: 1 }, { n: 2 }]);
  const info = await broker.conversation(message).info();
  h.equal([info.isInitiator, info.farService, info.farBrokerInstance, info.state, info.receiveSequence], [false, "Desk", FAR, "CO", 3]);
  h.equal(await one(envelope(3, { messageType: END_DIALOG, bodyEncoding: "none", body: undefined })), { status: "stored", acknowledgement: acknowledgement(3) });
  await broker.endConversation(message);
  h.equal([await h.stateOf(broker, message), await broker.deliver([])], ["CD", []]);
}));

inPage("whatever is handed in is refused by name: nothing is thrown, nothing stays, and every page hears of it", withFar(async (h, pb) => {
  const broker = await h.openShop();
  /* far */
  const dropped = h.collect(broker, "message-dropped");
  const thrower = new Proxy({}, { get() { throw new Error("no entry"); }, has() { throw new Error("no entry"); }, getOwnPropertyDescriptor() { throw new Error("no entry"); }, ownKeys() { throw new Error("no entry"); } });
  const { proxy: revoked, revoke } = Proxy.revocable({}, {});
  revoke();
  const knot = { a: 1 };
  knot.self = knot;
  const odd = { get message() { throw new Error("not even that"); } };
  Object.setPrototypeOf(odd, Error.prototype);
  const cases = [
    [undefined, "malformed"], [null, "malformed"], ["{}", "malformed"], [7n, "malformed"], [Symbol("x"), "malformed"], [() => {}, "malformed"], [new Map([["v", 1]]), "malformed"], [{}, "malformed"],
    [thrower, "malformed: no entry"], [revoked, "malformed"], [[[]], "malformed"],
    [{ ...envelope(0), get sequence() { throw new Error("no number"); } }, "malformed"],
    [Object.defineProperty(envelope(0), "contract", { get() { throw odd; } }), "malformed: reading it threw something that can't be shown"],
    [Object.defineProperty(envelope(0), "contract", { get() { throw undefined; } }), "malformed: reading it threw undefined"],
    [envelope(0, { v: 2 }), "unknown version"], [envelope(0, { kind: "letter" }), "unknown kind"], [envelope(0, { sequence: "0" }), "malformed: `sequence`"], [envelope(0, { sequence: 2 ** 53 }), "malformed: `sequence`"],
    [envelope(0, { sequence: { valueOf: () => 0 } }), "malformed: `sequence`"], [envelope(0, { toService: "Kitchen\uD800" }), "malformed: `toService` holds a lone surrogate"],
    [envelope(0, { fromService: "x".repeat(129) }), "malformed: `fromService`"], [envelope(0, { messageType: "" }), "malformed: `messageType`"], [envelope(0, { conversationId: "constructor" }), "malformed: `conversationId`"],
    [envelope(0, { headers: null }), "malformed: `headers`"], [envelope(0, { headers: [] }), "malformed: `headers`"], [envelope(0, { headers: { a: 1 } }), "malformed: `headers`"], [envelope(0, { headers: new Map() }), "malformed: `headers`"],
    [envelope(0, { headers: { a: "\uDC00" } }), "malformed: `headers`"], [envelope(0, { headers: { FailedQ: "x" } }), "reserved header"], [envelope(0, { headers: { "ExceptionInfo.Message": "x" } }), "reserved header"],
    [envelope(0, { headers: JSON.parse(`{"__proto__":7}`) }), "malformed: `headers`"], [envelope(0, { headers: { get a() { throw new Error("no header"); } } }), "malformed: no header"],
    [envelope(0, { bodyEncoding: "xml" }), "malformed: `bodyEncoding`"], [envelope(0, { bodyEncoding: "none" }), "malformed: `body`"], [envelope(0, { body: undefined }), "malformed: `body`"],
    [envelope(0, { body: knot }), "malformed: `body`"], [envelope(0, { body: { a: () => {} } }), "malformed: `body`"], [envelope(0, { bodyEncoding: "base64", bodyType: "Uint8Array", body: "?" }), "malformed: `body`"],
    [envelope(0, { bodyEncoding: "base64", bodyType: "HTMLElement", body: "" }), "malformed: `bodyType`"], [envelope(0, { bodyEncoding: "devalue", body: "[" }), "malformed: `body`"],
    [envelope(0, { bodyEncoding: "base64", bodyType: "Uint8Array", body: btoa("x".repeat(4_194_305)) }), "too large"], [envelope(0, { bodyEncoding: "devalue", body: "x".repeat(17_000_000) }), "too large"],
    [envelope(0, { messageType: "http://schemas.microsoft.com/SQL/ServiceBroker/DialogTimer", bodyEncoding: "none", body: undefined }), "dialog timer"],
    [envelope(0, { messageType: ERROR, body: { code: 0.5, description: "x" } }), "malformed: `body` of an Error"], [envelope(0, { messageType: END_DIALOG }), "malformed: `body`"],
    [{ ...acknowledgement(0), fromBroker: FAR, toBroker: broker.instanceId }, "no such conversation"], [{ ...acknowledgement(0), toBroker: null }, "malformed: `toBroker`"],
  ];
  for (const [given, reason] of cases) {
    const delivery = await one(given);
    h.ok(delivery.status === "refused" && delivery.reason.startsWith(reason) && !("reply" in delivery), `${reason}: ${JSON.stringify(delivery)}`);
  }
  await h.until(() => dropped.length === cases.length, "each is told");
  h.ok(dropped.every(({ reason, envelope: shown }) => typeof reason === "string" && typeof shown === "object"), "with what can be shown of it");
  h.equal(dropped.find(({ reason }) => reason.startsWith("unknown version")).envelope, (({ body, headers, ...shown }) => shown)(envelope(0, { v: 2, messageId: dropped.find(({ reason }) => reason.startsWith("unknown version")).envelope.messageId })));
  h.equal([await h.rows(broker, "kitchen"), await broker.conversations().toArray(), (await broker.stats()).dropped], [[], [], cases.length]);
  // What is right among them is taken.
  const [bad, good, worse] = await broker.deliver([thrower, envelope(0), , ]);
  h.equal([bad.status, good.status, worse?.status], ["refused", "stored", "refused"]);
  h.equal(await broker.deliver(new Proxy([envelope(1)], {})), [{ status: "stored", acknowledgement: acknowledgement(1) }]);
  h.equal(await broker.deliver(Object.create(envelope(2))).then(([{ status }]) => status), "refused", "only own fields count");
}));

inPage("d10: a body from outside is validated; who can't tell asks for it again", withFar(async (h, pb) => {
  const checked = [];
  const validator = { "~standard": { version: 1, vendor: "test", validate: (value) => { checked.push(value); if (typeof value === "object") value.seen = true; return value?.n === 7 ? { issues: [{ message: "too salty" }] } : { value: "another" }; } } };
  const later = { "~standard": { version: 1, vendor: "test", validate: async () => ({ value: 1 }) } };
  const types = { Order: validator, Cancel: later, Note: "json", Empty: "empty" };
  const definitions = h.shop({ messageTypes: types, contracts: { Ordering: { Order: "initiator", Cancel: "initiator", Confirm: "target", Note: "any", Empty: "any" } } });
  const broker = await h.open({ definitions });
  /* far */
  const refused = await one(envelope(0, { body: { n: 7 } }));
  h.equal([refused.status, refused.reason.includes("too salty")], ["refused", true]);
  const { messageId, body: { description, ...code }, ...reply } = refused.reply;
  h.equal(reply, { v: 1, kind: "message", conversationId, fromInitiator: false, sequence: 0, fromService: "Kitchen", fromBroker: broker.instanceId, toService: "Desk", toBroker: FAR, contract: "Ordering", messageType: ERROR, lifetime: null, headers: {}, bodyEncoding: "json" });
  h.equal([code, description.includes("too salty"), typeof messageId], [{ code: -9615 }, true, "string"]);
  h.equal((await one(envelope(0))).status, "stored");
  h.equal(h.bodies(await broker.receive("kitchen")), [{ n: 0 }], "as it came: what a validator does to it is not kept");
  const postponed = await one(envelope(1, { messageType: "Cancel" }));
  h.equal([postponed.status, postponed.reason.includes("promise")], ["later", true]);
  h.equal((await one(envelope(1, { messageType: "Note", bodyEncoding: "devalue", body: "[[\"Set\"]]" }))).status, "stored", "its number is used up");
  const [error] = await broker.receive("kitchen");
  h.equal([error.messageTypeName, error.body.code], [ERROR, -9615]);
  h.equal((await broker.transmissionQueue().toArray()).map((row) => [row.isConversationError, row.body.code, row.toBroker]), [[true, -9615, FAR]]);
  await broker.endConversation(error);
  h.equal(await h.stateOf(broker, error), "DO");
  // Without the validators.
  await broker.close();
  const bare = await h.open({}, broker.name);
  const [missing] = await bare.deliver(envelope(0, { conversationId: crypto.randomUUID() }));
  h.equal([missing.status, missing.reason.includes("was not given here")], ["later", true]);
  h.equal((await bare.deliver(envelope(0, { conversationId: crypto.randomUUID(), messageType: "Empty", bodyEncoding: "none", body: undefined })))[0].status, "stored");
}));

inPage("the peer is who the transport says; a broker that is closed takes nothing", withFar(async (h) => {
  const broker = await h.openShop();
  /* far */
  const other = crypto.randomUUID();
  h.equal((await one(envelope(0), { from: other })).status, "refused");
  h.equal((await one(envelope(0), { from: FAR.toUpperCase() })).status, "stored");
  for (const context of [5, { from: 7 }, { form: FAR }]) await h.rejects(broker.deliver(envelope(1), context), { code: "InvalidArgument" });
  h.equal((await one(envelope(1, { fromBroker: other }))).reason, "wrong sender: the conversation is another broker's");
  await broker.close();
  await h.rejects(broker.deliver(envelope(1)), { code: "Closed" });
  await h.rejects(broker.deliver([]), { code: "Closed" });
}));

inPage("two brokers in conversation over a wire that loses, repeats and reorders: each message once, in order, and both ends end", async (h) => {
  const one = await h.openShop();
  const other = await h.openShop();
  let seed = 7;
  const chance = (below) => { seed = (seed * 48271) % 0x7fffffff; return seed % below; };
  // Over JSON, as a network does it. What is acknowledged comes back beside the answer, or is lost.
  const wire = (from, to) => ({
    send: async (envelopes) => {
      const carried = JSON.parse(JSON.stringify(envelopes)).flatMap((envelope) => (chance(4) === 0 ? [] : chance(4) === 0 ? [envelope, envelope] : [envelope]));
      carried.sort(() => chance(3) - 1);
      const deliveries = await to().deliver(carried, { from: from().instanceId });
      const back = deliveries.flatMap((delivery) => delivery.acknowledgement ?? delivery.reply ?? []).filter(() => chance(3) > 0);
      await from().deliver(JSON.parse(JSON.stringify(back)), { from: to().instanceId });
      return envelopes.map(() => ({ status: "accepted", retryAfter: 0 }));
    },
  });
  await one.route({ service: "Shop", transport: wire(() => one, () => other) });
  await other.route({ service: "*", transport: wire(() => other, () => one) });
  await other.define({ services: { Shop: { queue: "kitchen", contracts: ["Ordering"] } } });
  const conversation = await one.beginDialog({ from: "Counter", to: "Shop", contract: "Ordering" });
  for (let n = 0; n < 40; n++) await conversation.send("Order", { n, at: new Date(n) });
  const seen = [];
  const kitchen = other.activate("kitchen", { Order: async (message, tx) => { seen.push(message.body.n); await tx.send(message, "Confirm", message.body); } });
  const confirmed = [];
  const counter = one.activate("counter", { Confirm: (message) => { confirmed.push(message.body); } });
  const pushed = async (done) => { while (!await done()) { await one.transmit(); await other.transmit(); } };
  await h.within(60_000, pushed(() => confirmed.length === 40), "40 answers");
  h.equal(seen, Array.from({ length: 40 }, (_, n) => n));
  h.equal(confirmed, Array.from({ length: 40 }, (_, n) => ({ n, at: new Date(n) })));
  await conversation.end();
  await h.within(60_000, pushed(async () => await conversation.info() === null && (await other.conversations().first())?.state === "CD"), "both ends");
  h.equal([await one.transmissionQueue().toArray(), await other.transmissionQueue().toArray(), (await one.stats()).transmissionQueued], [[], [], 0]);
  await Promise.all([kitchen.stop(), counter.stop()]);
});

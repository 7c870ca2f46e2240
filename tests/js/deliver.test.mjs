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

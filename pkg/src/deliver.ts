// Envelopes from outside. Anything may be in them: each is read once, into an object of our own, and what throws meanwhile is what is wrong with it.
import { takeBody, type Body } from "./bodies.js";
import { describe, isWellFormed, options, plain, text } from "./check.js";
import { openRaw, rethrowOf, type Core } from "./core.js";
import { decodeBody, type EncodedBody } from "./encode.js";
import { BrokerError, reading, shown } from "./errors.js";
import { SystemMessage } from "./messages.js";
import type { RawDelivery, RawGivenEnvelope } from "./raw.js";
import type { Acknowledgement, Delivery, MessageEnvelope } from "./types/transmission.js";
import { validate } from "./validation.js";

const FIELDS = [
  "v", "kind", "messageId", "conversationId", "fromInitiator", "sequence", "fromService", "fromBroker", "toService", "toBroker", "contract", "messageType", "lifetime", "headers",
  "bodyEncoding", "bodyType",
];

const SYSTEM: readonly string[] = Object.values(SystemMessage);

/** A body whose text is longer than this is not even decoded: four times what a body may take. */
const LONGEST_TEXT = 16_777_216;

/** One Delivery per envelope, in order, after the commit. `via`: the names of the routes of the transport that delivers, if it is one. */
export async function deliver(core: Core, envelopes: unknown, context?: { from?: string }, via?: readonly string[]): Promise<Delivery[]> {
  const { from } = reading(() => options(context, "context", { from: text }));
  openRaw(core);
  const given = await Promise.all(listed(envelopes).map((envelope) => read(core, envelope)));
  const deliveries = await openRaw(core).deliver(given, from, via).catch(rethrowOf(core));
  return deliveries.map(delivery);
}

/** What is no array is one envelope, whatever it is. */
function listed(envelopes: unknown): unknown[] {
  try {
    // Array.from, because map leaves holes out.
    if (Array.isArray(envelopes)) return Array.from(envelopes as unknown[]);
  } catch {
    // A proxy that answers nothing.
  }
  return [envelopes];
}

/** Never rejects. */
async function read(core: Core, envelope: unknown): Promise<RawGivenEnvelope> {
  const fields: Record<string, unknown> = {};
  try {
    const encoded = readFields(envelope, fields);
    if (encoded === undefined) return { fields, verdict: "fine", body: undefined, packing: 0, size: 0 };
    if (typeof encoded.body === "string" && encoded.body.length > LONGEST_TEXT) return { fields, verdict: "large", size: encoded.body.length };
    return await readBody(core, fields, encoded);
  } catch (error) {
    return { fields, verdict: "malformed", problem: problemOf(error) };
  }
}

/** Copies the fields of an envelope. Gives those of the body; undefined: it is no message. */
function readFields(envelope: unknown, fields: Record<string, unknown>): EncodedBody | undefined {
  if (typeof envelope !== "object" || envelope === null || Array.isArray(envelope)) throw new TypeError(`an envelope is an object, not ${describe(envelope)}`);
  const own = (name: string): unknown => (Object.hasOwn(envelope, name) ? (envelope as Record<string, unknown>)[name] : undefined);
  for (const name of FIELDS) {
    const value = own(name);
    if (typeof value === "string" && !isWellFormed(value)) throw new TypeError(`\`${name}\` holds a lone surrogate, half of a character`);
    if (value !== undefined) fields[name] = name === "headers" ? copied(value) : value;
  }
  if (fields["kind"] !== "message") return undefined;
  return { bodyEncoding: fields["bodyEncoding"], bodyType: fields["bodyType"], body: own("body") } as EncodedBody;
}

/** Headers as an object of our own; the wasm side sees whether they are texts. */
function copied(headers: unknown): unknown {
  if (typeof headers !== "object" || headers === null) return headers;
  const given = plain(headers, "headers");
  return Object.fromEntries(Object.keys(given).map((name) => {
    const value = given[name];
    for (const part of [name, value]) text(part, "headers");
    return [name, value];
  }));
}

async function readBody(core: Core, fields: Record<string, unknown>, encoded: EncodedBody): Promise<RawGivenEnvelope> {
  const body = decodeBody(encoded);
  let taken: Body;
  try {
    taken = takeBody(core, body, "body");
  } catch (error) {
    if (error instanceof BrokerError && error.code === "MessageTooLarge") return { fields, verdict: "large", size: Number(error.details["size"]) };
    throw error;
  }
  const type = fields["messageType"];
  if (typeof type === "string" && !SYSTEM.includes(type)) {
    try {
      const late = validate(core, "messageType", [type], [body], [taken], () => "body");
      if (late !== undefined) {
        await late.ready;
        late.check();
        // One that another tab is just defining is known the next time.
        if (core.raw.validationOf(type) === undefined) return { fields, verdict: "unchecked", problem: `the message type ${JSON.stringify(type)} is not known here` };
      }
    } catch (error) {
      const { details } = error as BrokerError;
      const isRefused = error instanceof BrokerError && error.code === "ValidationFailed" && details["missing"] !== true && details["async"] !== true;
      return { fields, verdict: isRefused ? "invalid" : "unchecked", problem: problemOf(error) };
    }
  }
  await taken.ready;
  return { fields, verdict: "fine", body: taken.value, packing: taken.packing, size: taken.size };
}

/** What is wrong with an envelope, by what reading it threw. */
function problemOf(error: unknown): string {
  // The fields of the envelope are what decodeBody calls "encoded".
  if (error instanceof BrokerError) return error.message.replaceAll("`encoded.", "`");
  const { name, message } = shown(error);
  return name === undefined ? `reading it threw ${message}` : message;
}

function delivery(raw: RawDelivery): Delivery {
  switch (raw.status) {
    case "stored":
    case "repeated": {
      const acknowledgement: Acknowledgement | null = raw.acknowledgement && { v: 1, kind: "acknowledgement", ...raw.acknowledgement };
      return { status: raw.status, acknowledgement };
    }
    case "refused": {
      const { status, reason, reply } = raw;
      if (reply === undefined) return { status, reason };
      // An Error says a code and a description, which JSON keeps.
      const { packing: _, headers: __, body, ...fields } = reply;
      const error: MessageEnvelope = { v: 1, kind: "message", ...fields, headers: {}, bodyEncoding: "json", body };
      return { status, reason, reply: error };
    }
    default: return raw;
  }
}

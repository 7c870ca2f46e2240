// One POST for each message, to an endpoint that need not know what a conversation is.
import { describe } from "./check.js";
import { drain, judge, readUpTo, text, type Arrived } from "./http-answer.js";
import { exchange, limited, textOf, type Call } from "./http-call.js";
import type { TransportSettings } from "./http-options.js";
import { decodeBody, SystemMessage } from "./index.js";
import { jsonProblem } from "./json.js";
import type { MessageEnvelope, SendResult, Transport } from "./types/transmission.js";

/** The broker gives a call up after 120 s: nothing is begun that might not have its answer by then. */
const LONGEST_CALL = 110_000;
/** An answer that is longer is no message. */
const LONGEST_REPLY = 4 * 1024 * 1024;
/** SQL Server's number for a message whose body is not what it has to be. */
const UNSENDABLE = -9615;

const NOT_BEGUN: SendResult = { status: "retry", after: 0, reason: "Not sent yet: the requests before it have taken long." };

type Reply = Extract<SendResult, { status: "acknowledged" }>["reply"];

/** Not this message, whenever it is tried. */
class Unsendable extends Error {}

export function plainTransport(settings: TransportSettings): Transport {
  return {
    async send(envelopes, { signal }) {
      const last = performance.now() + Math.max(0, LONGEST_CALL - settings.timeout);
      const results: SendResult[] = [];
      const conversations = new Map<string, number[]>();
      for (const [index, { conversationId }] of envelopes.entries()) {
        const indices = conversations.get(conversationId);
        if (indices === undefined) conversations.set(conversationId, [index]);
        else indices.push(index);
      }
      await Promise.all([...conversations.values()].map(async (indices) => {
        let rest: SendResult | undefined;
        for (const [place, index] of indices.entries()) {
          // The first is sent whatever the time.
          const result: SendResult = rest ?? await sendOne(settings, envelopes[index] as MessageEnvelope, signal, () => place > 0 && performance.now() > last) ?? NOT_BEGUN;
          results[index] = result;
          rest ??= following(result);
        }
      }));
      return results;
    },
  };
}

/** What the result of one message means for those behind it; undefined when they may be sent. */
function following(result: SendResult): SendResult | undefined {
  if (result.status === "retry") return result === NOT_BEGUN ? result : { ...result, reason: "Waits for the message before it." };
  if (result.status === "refused" && result.then === "end") return { status: "retry", reason: "Not sent: a message before it was refused, which ends the conversation." };
  return undefined;
}

/** undefined when it was too late to begin. */
async function sendOne(settings: TransportSettings, envelope: MessageEnvelope, signal: AbortSignal, isLate: () => boolean): Promise<SendResult | undefined> {
  try {
    const call = await limited(settings.timeout, signal, "Making the request", async () => callFor(settings, envelope));
    if (call === null) return { status: "acknowledged" };
    return await exchange<SendResult>(call, settings, signal, async (arrived) => {
      const answer = await judge(arrived, true);
      if (answer.kind === "retry") return { status: "retry", ...(answer.after !== undefined && { after: answer.after }), reason: answer.reason };
      if (answer.kind === "refused") {
        const { status, description, body } = answer;
        return { status: "refused", code: status, description, then: settings.onRefused, httpStatus: status, httpBody: body };
      }
      const reply = arrived.response.ok ? await replyIn(arrived, envelope, settings) : undefined;
      return { status: "acknowledged", ...(reply !== undefined && { reply }) };
    }, isLate);
  } catch (error) {
    if (error instanceof Unsendable) return { status: "refused", code: UNSENDABLE, description: error.message };
    return { status: "retry", reason: textOf(error) };
  }
}

// ── the request ──

/** null when nothing is to be sent. */
async function callFor(settings: TransportSettings, envelope: MessageEnvelope): Promise<Call | null> {
  let own: RequestInit = {};
  if (settings.request !== undefined) {
    const given = await settings.request(envelope);
    if (given === null) return null;
    if (typeof given !== "object") throw new TypeError(`\`request\` must give a RequestInit, a Request, or null to send nothing, not ${describe(given)}.`);
    if (isRequest(given)) {
      const headers = new Headers(given.headers);
      if (!headers.has("idempotency-key")) headers.set("idempotency-key", keyOf(envelope));
      return { input: given, init: { headers, redirect: "manual" } };
    }
    own = given;
  } else if (envelope.messageType === SystemMessage.EndDialog || envelope.messageType === SystemMessage.Error) {
    return null;
  }
  const method = own.method ?? "POST";
  const headers = new Headers();
  let body: BodyInit | null | undefined = own.body;
  if (body === undefined && !/^(get|head)$/i.test(method)) {
    const content = contentOf(envelope);
    body = content?.body;
    if (content !== undefined) headers.set("content-type", content.type);
  }
  for (const [name, value] of Object.entries(envelope.headers)) headers.set(...fieldOf(name, value));
  for (const [name, value] of await settings.headers()) headers.set(name, value);
  headers.set("idempotency-key", keyOf(envelope));
  headers.set("x-conversation-id", envelope.conversationId);
  headers.set(...fieldOf("x-message-type", envelope.messageType));
  for (const [name, value] of new Headers(own.headers)) headers.set(name, value);
  // A redirect that is followed turns a POST into a GET: the page that it leads to would say 200.
  const init: RequestInit = { redirect: "manual", ...own, method, headers, ...(body != null && { body }) };
  if (settings.request !== undefined) checkInit(settings.url, init);
  return { input: settings.url, init };
}

/** Of any realm. */
function isRequest(given: RequestInit | Request): given is Request {
  return Object.prototype.toString.call(given) === "[object Request]";
}

/** Throws for what `fetch` would refuse, whose error there looks like a network's. */
function checkInit(url: string, { body: _, ...init }: RequestInit): void {
  try {
    new Request(url, init);
  } catch (cause) {
    throw new TypeError(`\`request\` gave what can't be sent: ${textOf(cause)}`, { cause });
  }
}

/** The same at each attempt. */
function keyOf({ conversationId, fromInitiator, sequence }: MessageEnvelope): string {
  return `${conversationId}/${fromInitiator ? "i" : "t"}/${sequence}`;
}

/** As a header's value: printable ASCII as it is; any other text so that decodeURIComponent gives it back. */
function fieldOf(name: string, value: string): [string, string] {
  if (!/^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/.test(name)) {
    throw new Unsendable(`The message has a header ${JSON.stringify(name)}, which is no name that HTTP knows: letters, digits and !#$%&'*+-.^_\`|~ make one. Call it something else.`);
  }
  if (/^([!-~]([ -~]*[!-~])?)?$/.test(value)) return [name, value];
  try {
    return [name, value.replace(/[^ -$&-~]+|^ +| +$/gu, encodeURIComponent)];
  } catch {
    throw new Unsendable(`The message's header ${JSON.stringify(name)} holds half of a character, which can't be encoded.`);
  }
}

function contentOf(envelope: MessageEnvelope): { body: BodyInit; type: string } | undefined {
  let body: unknown;
  try {
    body = envelope.bodyEncoding === "json" ? envelope.body : decodeBody(envelope);
  } catch (error) {
    throw new Unsendable(`The message's body can't be read: ${textOf(error)}`);
  }
  if (body === undefined) return undefined;
  if (body instanceof ArrayBuffer || ArrayBuffer.isView(body)) return { body: body as ArrayBuffer, type: "application/octet-stream" };
  if (body instanceof Blob) return { body, type: body.type === "" ? "application/octet-stream" : body.type };
  const problem = jsonProblem(body, "body");
  if (problem !== undefined) {
    throw new Unsendable(`\`${problem.path}\` ${problem.problem}, which JSON does not carry. Send plain data, bytes or a Blob, give the message type the validation "json" to be told by \`send\`, or have \`request\` make the body.`);
  }
  try {
    return { body: JSON.stringify(body), type: "application/json" };
  } catch (error) {
    throw new Unsendable(`The message's body can't be written as JSON: ${textOf(error)}`);
  }
}

// ── the answer ──

async function replyIn(arrived: Arrived, envelope: MessageEnvelope, { reply }: TransportSettings): Promise<Reply> {
  const { response } = arrived;
  if (reply !== undefined) {
    const own: unknown = await reply(response, envelope);
    drain(arrived);
    if (own === undefined || own === null) return undefined;
    if (typeof own !== "object") throw new TypeError(`\`reply\` must give an object with messageType and body, or nothing, not ${describe(own)}.`);
    const { messageType, body } = own as NonNullable<Reply>;
    if (messageType !== undefined && typeof messageType !== "string") throw new TypeError(`The \`messageType\` that \`reply\` gives must be a string, not ${describe(messageType)}.`);
    return { ...(messageType !== undefined && { messageType }), ...(body !== undefined && { body }) };
  }
  if (!/^application\/([\w.+-]+\+)?json\b/i.test(response.headers.get("content-type") ?? "")) {
    drain(arrived);
    return undefined;
  }
  const content = await readUpTo(arrived, LONGEST_REPLY);
  if (!content.isWhole) return undefined;
  let value: unknown;
  try {
    value = JSON.parse(text(content));
  } catch {
    // It is no message of ours; what was sent has arrived all the same.
    return undefined;
  }
  if (typeof value !== "object" || value === null || !Object.hasOwn(value, "messageType")) return undefined;
  const { messageType, body } = value as { messageType: unknown; body?: unknown };
  return typeof messageType === "string" ? { messageType, ...(body !== undefined && { body }) } : undefined;
}

// An outbox without services: requests as bodies of messages, and the handler that sends them.
import { describe } from "./check.js";
import { drain, judge } from "./http-answer.js";
import { exchange, limited, textOf, type Call } from "./http-call.js";
import { checked, replayOptions, type RequestSettings } from "./http-options.js";
import { invalid } from "./errors.js";
import { BrokerError, RetryLater, SystemMessage, UnrecoverableError } from "./index.js";
import type { Handler } from "./types/activation.js";
import type { Transaction } from "./types/broker.js";
import type { HttpOptions, StoredRequest } from "./types/http.js";
import type { Message } from "./types/messages.js";

/** From here on bytes are kept as a Blob, which need not lie in memory. */
const LARGE = 1024 * 1024;
const TEXT = /^(text\/|application\/([\w.+-]+\+)?(json|xml)\b|application\/x-www-form-urlencoded\b)/i;

/** What a service worker sees of these the browser sends by itself. */
const OF_THE_BROWSER = /^(sec-.*|user-agent|upgrade-insecure-requests)$/;

/**
 * A request as data, to be stored: `enqueue(queue, await toStoredRequest(request))`. The request may still be used afterwards, but must not have been before: give a service worker's
 * `event.request.clone()` to `fetch`. Kept are address, method, headers and body; not mode, credentials, cache and redirect, which `replay` leaves to its `fetch`.
 *
 * Errors: InvalidArgument.
 */
export async function toStoredRequest(request: Request): Promise<StoredRequest> {
  checked(() => {
    if (Object.prototype.toString.call(request) !== "[object Request]") throw invalid("request", `must be a Request, not ${describe(request)}`);
    if (request.bodyUsed) throw invalid("request", "has had its body read already. Give `request.clone()` to whoever reads it first, to `fetch` say");
    if (!/^https?:/.test(request.url)) throw invalid("request", `must be of http or https, not of ${new URL(request.url).protocol.slice(0, -1)}`);
  });
  const { url, method } = request;
  const headers = Object.fromEntries([...request.headers].filter(([name]) => !OF_THE_BROWSER.test(name)));
  let bytes: ArrayBuffer;
  try {
    bytes = await request.clone().arrayBuffer();
  } catch (cause) {
    throw new BrokerError("InvalidArgument", `The body of \`request\` can't be read: ${textOf(cause)}.`, { details: { argument: "request" }, cause });
  }
  if (bytes.byteLength === 0) return { url, method, headers };
  // A Blob without a type: the header says what it is.
  if (bytes.byteLength >= LARGE) return { url, method, headers, body: new Blob([bytes]) };
  return { url, method, headers, body: (TEXT.test(headers["content-type"] ?? "") ? asText(bytes) : undefined) ?? bytes };
}

/** undefined when it would not be the same bytes again. */
function asText(bytes: ArrayBuffer): string | undefined {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return undefined;
  }
}

/**
 * A handler for `activate` and `drain` that sends stored requests. Each gets the message's id as `Idempotency-Key`, the same at each attempt, unless it has one. 2xx, 409 and 412 mean
 * done; no answer, 401, 403, 408, 425, 429, 5xx and redirects mean `RetryLater`, with the server's `Retry-After` up to an hour; another 4xx means the error queue.
 * A conversation that the far side has ended is ended here, too.
 *
 * Errors: InvalidArgument.
 */
export function replay(options?: HttpOptions): Handler<StoredRequest> {
  const settings = replayOptions(options);
  return async (messages: Message<StoredRequest>[], tx: Transaction) => {
    for (const message of messages) {
      const { messageTypeName: type } = message;
      if (type === SystemMessage.EndDialog || type === SystemMessage.Error) await tx.endConversation(message);
      else await send(settings, message, tx.signal);
    }
  };
}

async function send(settings: RequestSettings, message: Message<StoredRequest>, signal: AbortSignal): Promise<void> {
  let outcome: Awaited<ReturnType<typeof judge>>;
  try {
    const call = await limited(settings.timeout, signal, "Asking for the headers", async () => callFor(message, await settings.headers()));
    outcome = await exchange(call, settings, signal, async (arrived) => {
      const answer = await judge(arrived, true);
      if (arrived.response.ok) drain(arrived);
      return answer;
    }) as typeof outcome;
  } catch (error) {
    if (error instanceof UnrecoverableError) throw error;
    signal.throwIfAborted();
    throw new RetryLater(undefined, textOf(error), { cause: error });
  }
  if (outcome.kind === "retry") throw new RetryLater(outcome.after, outcome.reason);
  if (outcome.kind === "refused") throw new UnrecoverableError(outcome.description);
}

function callFor({ body: stored, messageId }: Message<StoredRequest>, more: Headers): Call {
  const wrong = (what: string, cause?: unknown): UnrecoverableError => new UnrecoverableError(`The message's body is no stored request: ${what}. toStoredRequest makes one.`, { cause });
  if (typeof stored !== "object" || stored === null) throw wrong(`it is ${describe(stored)}`);
  const { url, method, headers: own, body } = stored;
  if (typeof url !== "string" || typeof method !== "string") throw wrong("url and method must be strings");
  if (!/^https?:/i.test(url)) throw wrong("its url must be an absolute one, of http or https");
  const isBody = body === undefined || typeof body === "string" || body instanceof ArrayBuffer || body instanceof Blob;
  if (!isBody) throw wrong(`its body must be a string, an ArrayBuffer or a Blob, not ${describe(body)}`);
  let headers: Headers;
  try {
    headers = new Headers(own);
    // fetch would refuse these, with an error that looks like a network's.
    new Request(url, { method, headers });
    if (body !== undefined && /^(get|head)$/i.test(method)) throw new TypeError(`${method} has no body`);
  } catch (cause) {
    throw wrong(textOf(cause), cause);
  }
  for (const [name, value] of more) headers.set(name, value);
  if (!headers.has("idempotency-key")) headers.set("idempotency-key", messageId);
  return { input: url, init: { method, headers, redirect: "manual", ...(body !== undefined && { body }) } };
}

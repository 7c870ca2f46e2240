// The arguments of the verbs, read once at the call.
import { abortSignal, amount, describe, flag, instant, isWellFormed, number, options, plain, text, whole } from "./check.js";
import { BrokerError, invalid } from "./errors.js";
import type { Headers, RawBeginDialog, RawEnd, RawEnqueue, RawReceive, RawWhen } from "./raw.js";
import { conversationHandle } from "./refs.js";

/** What the error queue writes into headers itself. */
const RESERVED = /^(ExceptionInfo\..*|FailedQ|TimeOfFailure|ProcessingEndpoint|Retries)$/s;

function headers(value: unknown, argument: string): Headers {
  const given = plain(value, argument);
  const entries = Object.keys(given).map((name): [string, string] => {
    const at = `${argument}[${JSON.stringify(name)}]`;
    text(name, at);
    if (RESERVED.test(name)) throw invalid(at, "is a header that the error queue writes itself: choose another name");
    return [name, text(given[name], at)];
  });
  return Object.fromEntries(entries);
}

function wait(ms: unknown, argument: string): number {
  if (!(Number.isFinite(number(ms, argument)) && (ms as number) >= 0)) throw invalid(argument, `must be a finite number of milliseconds from 0 on, not ${String(ms)}`);
  return ms as number;
}

const sending = { signal: abortSignal, delay: wait, deliverAt: instant };

export interface Sending { headers?: Headers | undefined; signal?: AbortSignal | undefined; when?: RawWhen | undefined }
const NOTHING: Sending = {};

/** undefined: now. */
function when({ delay, deliverAt }: RawWhen): RawWhen | undefined {
  if (delay !== undefined && deliverAt !== undefined) throw invalid("deliverAt", "and `delay` exclude each other: give one");
  return delay === undefined && deliverAt === undefined ? undefined : { delay, deliverAt };
}

export function sendOptions(value: unknown): Sending {
  if (value === undefined) return NOTHING;
  const { headers: own, signal, ...time } = options(value, "options", { headers, ...sending });
  return { headers: own, signal, when: when(time) };
}

export function sendManyOptions(value: unknown): Sending {
  if (value === undefined) return NOTHING;
  const { signal, ...time } = options(value, "options", {
    ...sending, headers: (_: unknown, argument: string): undefined => { throw invalid(argument, "is not an option here: give each message its own headers"); },
  });
  return { signal, when: when(time) };
}

export interface Enqueuing { raw: RawEnqueue; headers: Headers | undefined; signal: AbortSignal | undefined }

/** `many`: one id can't be for several messages. */
export function enqueueOptions(value: unknown, many: boolean): Enqueuing {
  const { headers: own, signal, ...raw } = options(value, "options", {
    ...sending, headers, key: text, ordered: flag, priority: (priority: unknown, argument: string) => whole(priority, argument, 1, 10),
    dedupeId: (id: unknown, argument: string): string => {
      if (many) throw invalid(argument, "is for one message: give each its own with enqueue");
      return text(id, argument);
    },
    dedupeWindow: (ms: unknown, argument: string) => amount(ms, argument, 0),
  });
  when(raw);
  if (raw.ordered === false && raw.key !== undefined) throw invalid("key", "and `ordered: false` exclude each other: a key is there to keep an order");
  return { raw: raw as RawEnqueue, headers: own, signal };
}

export interface Outgoing { messageType: string; body: unknown; headers: Headers | undefined }

export function outgoing(value: unknown): Outgoing[] {
  if (!Array.isArray(value)) throw invalid("messages", `must be an array of { messageType, body, headers }, not ${describe(value)}`);
  // Array.from, because map leaves holes out.
  return Array.from(value as unknown[], (message, index) => usual(message) ?? one(message, `messages[${index}]`));
}

function one(message: unknown, name: string): Outgoing {
  if (message === undefined) throw invalid(name, "must be an object, not undefined");
  const { messageType = "DEFAULT", body, headers: own } = options(message, name, { messageType: text, body: (given: unknown) => given, headers });
  return { messageType, body, headers: own };
}

/** A message like most are, read without names for what could be wrong with it; undefined for any other. */
function usual(message: unknown): Outgoing | undefined {
  if (typeof message !== "object" || message === null || Object.getPrototypeOf(message) !== Object.prototype) return undefined;
  const read: Outgoing = { messageType: "DEFAULT", body: undefined, headers: undefined };
  for (const key of Object.keys(message)) {
    const given = (message as Record<string, unknown>)[key];
    if (key === "body") read.body = given;
    else if (key === "messageType" && typeof given === "string" && isWellFormed(given)) read.messageType = given;
    else return undefined;
  }
  return read;
}

export function dialogOptions(value: unknown): RawBeginDialog {
  if (value === undefined) throw invalid("options", "must be an object with `from` and `to`, not undefined");
  const dialog = options(value, "options", {
    from: text, to: text, contract: text, toBroker: text, relatedConversation: conversationHandle, relatedGroup: text, lifetime: number,
    reuse: text,
  });
  if (dialog.from === undefined) throw invalid("from", "is missing: the service that begins the dialog");
  if (dialog.to === undefined) throw invalid("to", "is missing: the service that the dialog is with");
  if (dialog.relatedConversation !== undefined && dialog.relatedGroup !== undefined) throw invalid("relatedGroup", "and `relatedConversation` exclude each other: give one");
  return dialog as RawBeginDialog;
}

const receiving = {
  top: (top: unknown, argument: string) => whole(top, argument, 1, 0xffff_ffff),
  timeout: waiting,
  signal: abortSignal,
};

function waiting(timeout: unknown, argument: string): number {
  if (!(number(timeout, argument) >= 0)) throw invalid(argument, `must be 0 or more milliseconds, or Infinity, not ${String(timeout)}`);
  return timeout as number;
}

export function groupOptions(value: unknown): { timeout?: number; signal?: AbortSignal } {
  return options(value, "options", { timeout: waiting, signal: abortSignal });
}

export interface Receiving { raw: RawReceive; signal: AbortSignal | undefined }

export function receiveOptions(value: unknown): Receiving {
  const { signal, ...raw } = options(value, "options", { ...receiving, conversation: conversationHandle, group: text });
  if (raw.conversation !== undefined && raw.group !== undefined) throw invalid("group", "and `conversation` exclude each other: give one");
  return { raw: raw as RawReceive, signal };
}

/** For a conversation's own `receive`. */
export function receiveOwnOptions(value: unknown, conversation: string): Receiving {
  const { signal, ...raw } = options(value, "options", receiving);
  return { raw: { ...raw, conversation } as RawReceive, signal };
}

/** undefined for null, which cancels. */
export function timerTimeout(value: unknown): number | undefined {
  if (value === null) return undefined;
  if (!Number.isFinite(amount(value, "timeout", 0))) throw invalid("timeout", "must be a finite number of milliseconds, or null to cancel the timer");
  return value as number;
}

export function timerOptions(value: unknown): { name?: string; body?: unknown } {
  return options(value, "options", { name: text, body: (body: unknown) => body });
}

export function endOptions(value: unknown): RawEnd {
  return options(value, "options", { error: endError, cleanup: flag, archive: flag }) as RawEnd;
}

function endError(value: unknown, argument: string): { code: number; description: string } {
  const { code, description } = plain(value, argument);
  options(value, argument, { code: known, description: known });
  if (code == null && description == null) throw endRefused(argument, 8424, "must have a `code` and a `description`");
  if (typeof code !== "number" || !Number.isInteger(code)) throw endRefused(`${argument}.code`, 8419, `must be a whole number above 0, not ${typeof code === "number" ? code : describe(code)}`);
  if (typeof description !== "string") throw endRefused(`${argument}.description`, 8422, `must be a text of 1 to 3 000 characters, not ${describe(description)}`);
  return { code, description: text(description, `${argument}.description`) };
}

const known = (value: unknown): unknown => value;

function endRefused(argument: string, number: number, problem: string): BrokerError {
  return new BrokerError("InvalidEndError", `\`${argument}\` ${problem}.`, { number, details: { argument } });
}

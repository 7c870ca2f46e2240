// What an application gives to `activate`, and what it throws there.
import { describe, isPlain } from "./check.js";
import { invalid, isBrokerError } from "./errors.js";
import { SystemMessage } from "./messages.js";
import type { RawFailure } from "./raw.js";
import type { Handler } from "./types/activation.js";
import type { Transaction } from "./types/broker.js";
import type { Message } from "./types/messages.js";

/** Thrown by a handler: no retry, straight to the error queue. Recognised by its name. */
export class UnrecoverableError extends Error {
  static {
    Object.defineProperty(this.prototype, "name", { value: "UnrecoverableError", configurable: true, writable: true });
  }
}

/**
 * Thrown by a handler: not now (offline, signed out, asked to come back later). Rolls back; the conversation waits and others go on; it is not
 * counted as a failure. With the event `online` in any page of the origin it is tried at once. Recognised by its name.
 */
export class RetryLater extends Error {
  /** Milliseconds, or an instant. Default: one second, doubling up to a minute each time in a row. */
  readonly after: number | Date | undefined;

  constructor(after?: number | Date, message = "The message was put off.", options?: ErrorOptions) {
    super(message, options);
    this.after = after;
  }

  static {
    Object.defineProperty(this.prototype, "name", { value: "RetryLater", configurable: true, writable: true });
  }
}

/** Handles a batch within a transaction. */
export type Work = (messages: Message[], tx: Transaction) => unknown;

/** One function, whatever the application gave. */
export function workOf(handler: unknown): Work {
  if (typeof handler === "function") return handler as Work;
  if (typeof handler !== "object" || handler === null || !isPlain(handler)) {
    throw invalid("handler", `must be a function, or an object with one for each message type, not ${describe(handler)}`);
  }
  const own = new Map(Object.entries(handler));
  for (const [messageType, handle] of own) {
    if (typeof handle !== "function") throw invalid(`handler[${JSON.stringify(messageType)}]`, `must be a function, not ${describe(handle)}`);
  }
  return (messages, tx) => each(own as Map<string, Exclude<Handler, Function>[string]>, messages, tx);
}

async function each(own: ReadonlyMap<string, (message: Message, tx: Transaction) => unknown>, messages: Message[], tx: Transaction): Promise<void> {
  const ended = new Set<string>();
  for (const message of messages) {
    const { messageTypeName: type, conversationHandle: handle } = message;
    const handleOne = own.get(type);
    if (handleOne !== undefined) await handleOne(message, tx);
    else if (type === SystemMessage.EndDialog || type === SystemMessage.Error) {
      ended.add(handle);
      await tx.endConversation(handle);
    } else if (!ended.has(handle)) {
      throw new UnrecoverableError(`There is no handler for the message type ${JSON.stringify(type)}. Give one to activate, or a function for all.`);
    }
  }
}

/** What was thrown, for the rules. */
export function failureOf(reason: unknown, message: Message, queue: string, endpoint: string): RawFailure {
  const { name, message: text, stack, after } = parts(reason);
  const kind = name === "UnrecoverableError" ? "unrecoverable" : name === "RetryLater" ? "later" : "ordinary";
  const wait = kind === "later" ? waitOf(after) : undefined;
  return {
    kind, name, message: text, messageId: message.messageId, queue, stack, endpoint,
    ...(wait !== undefined && { after: wait }),
    ...(isBrokerError(reason) && { code: reason.code }),
  };
}

/** What was thrown, for whoever hears of it: its name, its text, and its code if it is a broker's error. */
export function thrown(reason: unknown): [name: string, message: string, code: string | undefined] {
  const { name, message } = parts(reason);
  return [name, message, isBrokerError(reason) ? reason.code : undefined];
}

/** Longer texts of errors are cut. */
const LONGEST_TEXT = 16_384;

const cut = (text: string): string => text.slice(0, LONGEST_TEXT);

/** Reads an error that may be anything, a hostile one too. */
function parts(reason: unknown): { name: string; message: string; stack: string; after: unknown } {
  try {
    if (typeof reason !== "object" || reason === null) return { name: typeof reason, message: cut(String(reason)), stack: "", after: undefined };
    const { name, message, stack, after } = reason as { name?: unknown; message?: unknown; stack?: unknown; after?: unknown };
    return { name: typeof name === "string" ? name : "Error", message: cut(typeof message === "string" ? message : String(reason)), stack: typeof stack === "string" ? cut(stack) : "", after };
  } catch {
    return { name: "Error", message: "The handler threw something that can't be read.", stack: "", after: undefined };
  }
}

function waitOf(after: unknown): number | undefined {
  const ms = after instanceof Date ? Number(after) - Date.now() : after;
  return typeof ms === "number" && Number.isFinite(ms) ? Math.max(0, ms) : undefined;
}

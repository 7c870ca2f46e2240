// A store of the application's own, as the wasm side calls it: in plain values, and with everything checked that it gives.
import { takeBody } from "./bodies.js";
import { describe } from "./check.js";
import type { Core } from "./core.js";
import { delayedMessage } from "./messages.js";
import type { RawBroker, RawDelayedStore, RawFetched, RawGivenDelayed } from "./raw.js";
import type { DelayedMessage, DelayedMessageStore, TransactionMode } from "./types/delayed.js";

/** For an object that is no store: what it lacks. */
export function lacking(store: Partial<Record<string, unknown>>): string | undefined {
  return ["initialize", "store", "remove", "incrementFailureCount", "next", "fetchNextDueTimeout"].find((method) => typeof store[method] !== "function");
}

/** The first broker that was opened with a store: whether bodies may hold Blobs is asked of it. The store may be asked before it is there. */
class Broker {
  opened: (raw: RawBroker) => void = () => {};
  readonly #raw = new Promise<RawBroker>((resolve) => { this.opened = resolve; });

  async canStoreBlobs(): Promise<boolean> { return (await this.#raw).canStoreBlobs(); }
}

const known = new WeakMap<DelayedMessageStore, { raw: RawDelayedStore; opened: (raw: RawBroker) => void }>();

/** The functions of a store; the same ones for the same store, since brokers that share a connection must agree on it. `opened` is called with the first broker. */
export function rawStore(store: DelayedMessageStore): { raw: RawDelayedStore; opened: (raw: RawBroker) => void } {
  const before = known.get(store);
  if (before !== undefined) return before;
  const broker = new Broker();
  const functions = { raw: functionsOf(store, broker), opened: (raw: RawBroker): void => broker.opened(raw) };
  known.set(store, functions);
  return functions;
}

function functionsOf(store: DelayedMessageStore, broker: Broker): RawDelayedStore {
  const body = (message: DelayedMessage): Promise<Pick<RawGivenDelayed, "body" | "packing" | "size">> => measured(message.body, broker);
  const given = async (message: DelayedMessage): Promise<RawGivenDelayed> => ({ ...checked(message), ...await body(message) });
  const raw: RawDelayedStore = {
    initialize: (endpointName, transactionMode, signal) => asked(async () => { await store.initialize(endpointName, transactionMode, signal); }),
    store: (message, signal) => asked(async () => yesOrNo(await store.store(delayedMessage(message), signal), true)),
    remove: (message, signal) => asked(async () => yesOrNo(await store.remove(delayedMessage(message), signal))),
    incrementFailureCount: (message, nextAttempt, signal) =>
      asked(async () => yesOrNo(await store.incrementFailureCount(delayedMessage(message), new Date(nextAttempt), signal))),
    next: (signal) => asked(async () => {
      const next: unknown = await store.next(signal);
      return next === null || next === undefined ? null : time(next, "it");
    }),
    fetchNextDueTimeout: (at, signal) => asked<RawFetched>(async () => {
      const message: unknown = await store.fetchNextDueTimeout(new Date(at), signal);
      if (message === null || message === undefined) return null;
      try {
        return await given(message as DelayedMessage);
      } catch (problem) {
        return { ...await asItIs(message, broker), problem: text(problem) };
      }
    }),
    // Whether it is there is asked at the call: a store that has none is not waited for.
    release: (message, signal) => asked(async () => { await store.release?.(delayedMessage(message), signal); }),
  };
  const { setupInfrastructure, select, count } = store;
  if (setupInfrastructure !== undefined) {
    raw.setupInfrastructure = (endpointName, transactionMode, instanceId, signal) =>
      asked(async () => { await setupInfrastructure.call(store, { endpointName, transactionMode: transactionMode as TransactionMode, instanceId, signal }); });
  }
  if (select !== undefined) {
    raw.select = (destination, before, limit, signal) => asked(async () => {
      const filter = { ...(destination === undefined ? {} : { destination }), ...(before === undefined ? {} : { before: new Date(before) }), ...(limit === undefined ? {} : { limit }) };
      const messages: unknown = await select.call(store, filter, signal);
      if (!Array.isArray(messages)) throw new TypeError(`it must resolve with an array of messages, not ${describe(messages)}`);
      return Promise.all(messages.map(given));
    });
  }
  if (count !== undefined) {
    raw.count = (signal) => asked(async () => {
      const counted: unknown = await count.call(store, signal);
      if (!Number.isSafeInteger(counted) || (counted as number) < 0) throw new TypeError(`it must resolve with a whole number from 0 on, not ${describe(counted)}`);
      return counted as number;
    });
  }
  return raw;
}

/** Calls the application outside of the wasm side; what it throws is said in a form that the wasm side reads. */
async function asked<T>(call: () => Promise<T>): Promise<T> {
  await undefined;
  try {
    return await call();
  } catch (cause) {
    // What the wasm side reads; nobody else sees it.
    throw { message: text(cause), unrecoverable: nameOf(cause) === "UnrecoverableError", cause };
  }
}

function nameOf(thrown: unknown): unknown {
  try {
    return (thrown as { name?: unknown } | null | undefined)?.name;
  } catch {
    return undefined;
  }
}

/** What was thrown, for people; it may be anything, and even throw when it is looked at. */
function text(thrown: unknown): string {
  try {
    if (thrown instanceof Error) return thrown.message === "" ? thrown.name : `${thrown.message}`;
    return String(thrown);
  } catch {
    return "something that can't be shown";
  }
}

function yesOrNo(answer: unknown, orNothing = false): boolean {
  if (answer === undefined && orNothing) return true;
  if (typeof answer !== "boolean") throw new TypeError(`it must resolve with true or false${orNothing ? ", or nothing" : ""}, not ${describe(answer)}`);
  return answer;
}

function time(value: unknown, what: string): number {
  const ms = typeof value === "number" || Object.prototype.toString.call(value) === "[object Date]" ? Number(value) : NaN;
  if (Number.isNaN(ms)) throw new TypeError(`${what} must be a Date, not ${describe(value)}`);
  return ms;
}

/** The fields of a message but for its body, which is looked at last. */
function checked(message: DelayedMessage): Omit<RawGivenDelayed, "body" | "packing" | "size"> {
  if (typeof message !== "object") throw new TypeError(`it is ${describe(message)}, and no message`);
  const { messageId, destination, numberOfRetries } = message;
  if (typeof messageId !== "string") throw new TypeError(`its \`messageId\` must be a text, not ${describe(messageId)}`);
  if (typeof destination !== "string") throw new TypeError(`its \`destination\` must be a text, not ${describe(destination)}`);
  if (!Number.isSafeInteger(numberOfRetries) || numberOfRetries < 0) throw new TypeError(`its \`numberOfRetries\` must be a whole number from 0 on, not ${describe(numberOfRetries)}`);
  const headers = texts(message.headers, "headers");
  return {
    messageId, destination, time: time(message.time, "its `time`"), retries: numberOfRetries,
    headers: headers.length === 0 ? null : Object.fromEntries(headers), properties: texts(message.properties, "properties").flat(),
  };
}

function texts(record: unknown, name: string): [string, string][] {
  if (typeof record !== "object" || record === null) throw new TypeError(`its \`${name}\` must be an object of texts, not ${describe(record)}`);
  const entries = Object.entries(record);
  const wrong = entries.find(([, value]) => typeof value !== "string");
  if (wrong !== undefined) throw new TypeError(`its \`${name}\` must have texts, and ${JSON.stringify(wrong[0])} is ${describe(wrong[1])}`);
  return entries as [string, string][];
}

async function measured(value: unknown, broker: Broker): Promise<Pick<RawGivenDelayed, "body" | "packing" | "size">> {
  // What was taken in once is taken out, however large.
  const core = { maxMessageBytes: Infinity, storesBlobs: undefined, raw: broker } as unknown as Core;
  const taken = takeBody(core, value, "body");
  await taken.ready;
  return { body: taken.value, packing: taken.packing, size: taken.size };
}

/** What is no message goes to the error queue: as it is, if it can be stored. */
async function asItIs(message: unknown, broker: Broker): Promise<Pick<RawGivenDelayed, "body" | "packing" | "size"> & { messageId?: string }> {
  const id: unknown = (message as { messageId?: unknown }).messageId;
  const known = typeof id === "string" ? { messageId: id } : {};
  try {
    return { ...known, ...await measured(message, broker) };
  } catch {
    return { ...known, body: describe(message), packing: 0, size: 64 };
  }
}

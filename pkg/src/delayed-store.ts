// A store of the application's own, as the wasm side calls it: in plain values, and with everything checked that it gives.
import { takeBody } from "./bodies.js";
import { describe } from "./check.js";
import type { Core } from "./core.js";
import { shown } from "./errors.js";
import { delayedMessage } from "./messages.js";
import type { RawBroker, RawDelayedStore, RawFetched, RawGivenDelayed } from "./raw.js";
import type { DelayedMessage, DelayedMessageStore, TransactionMode } from "./types/delayed.js";

/** For an object that is no store: what it lacks. */
export function lacking(store: Partial<Record<string, unknown>>): string | undefined {
  return ["initialize", "store", "remove", "incrementFailureCount", "next", "fetchNextDueTimeout"].find((method) => typeof store[method] !== "function");
}

/** A method that it need not have, and has as something else. */
export function misshapen(store: Partial<Record<string, unknown>>): string | undefined {
  return ["setupInfrastructure", "release", "select", "count"].find((method) => (store[method] ?? undefined) !== undefined && typeof store[method] !== "function");
}

/** The first broker that was opened with a store: whether bodies may hold Blobs is asked of it. The store may be asked before it is there. */
class Broker {
  opened: (raw: RawBroker) => void = () => {};
  readonly #raw = new Promise<RawBroker>((resolve) => { this.opened = resolve; });

  async canStoreBlobs(): Promise<boolean> { return (await this.#raw).canStoreBlobs(); }
}

interface Functions { readonly name: string; readonly raw: RawDelayedStore; readonly opened: (raw: RawBroker) => void; readonly opening: Opening }
/** Whoever opens a broker may give up. */
interface Opening { signal: AbortSignal | undefined }

const known = new WeakMap<DelayedMessageStore, Functions>();

/** The functions of a store for the broker of a name; the same ones for the same store, since brokers that share a connection must agree on it. undefined: it serves another name. */
export function functionsFor(store: DelayedMessageStore, name: string): Functions | undefined {
  const before = known.get(store);
  if (before !== undefined) return before.name === name ? before : undefined;
  const [broker, opening] = [new Broker(), { signal: undefined }];
  const functions = { name, raw: functionsOf(store, broker, opening), opened: (raw: RawBroker): void => broker.opened(raw), opening };
  known.set(store, functions);
  return functions;
}

/** Aborts with either. */
function either(one: AbortSignal, other: AbortSignal | undefined): AbortSignal {
  if (other === undefined) return one;
  const controller = new AbortController();
  for (const signal of [one, other]) {
    if (signal.aborted) controller.abort(signal.reason);
    else signal.addEventListener("abort", () => { controller.abort(signal.reason); }, { once: true, signal: controller.signal });
  }
  return controller.signal;
}

function functionsOf(store: DelayedMessageStore, broker: Broker, opening: Opening): RawDelayedStore {
  const body = (message: DelayedMessage): Promise<Pick<RawGivenDelayed, "body" | "packing" | "size">> => measured(message.body, broker);
  const given = async (message: DelayedMessage): Promise<RawGivenDelayed> => ({ ...checked(message), ...await body(message) });
  const raw: RawDelayedStore = {
    initialize: (endpointName, transactionMode, signal) => asked(signal, async () => { await unlessGivenUp(opening, async () => store.initialize(endpointName, transactionMode, either(signal, opening.signal))); }),
    store: (message, signal) => asked(signal, async () => yesOrNo(await store.store(delayedMessage(message), signal), true)),
    remove: (message, signal) => asked(signal, async () => yesOrNo(await store.remove(delayedMessage(message), signal))),
    incrementFailureCount: (message, nextAttempt, signal) =>
      asked(signal, async () => yesOrNo(await store.incrementFailureCount(delayedMessage(message), new Date(nextAttempt), signal))),
    next: (signal) => asked(signal, async () => {
      const next: unknown = await store.next(signal);
      return next === null || next === undefined ? null : time(next, "it");
    }),
    fetchNextDueTimeout: (at, signal) => asked<RawFetched>(signal, async () => {
      const message: unknown = await store.fetchNextDueTimeout(new Date(at), signal);
      if (message === null || message === undefined) return null;
      try {
        return await given(message as DelayedMessage);
      } catch (problem) {
        return { ...await asItIs(message, broker), problem: shown(problem).message };
      }
    }),
    // Whether it is there is asked at the call: a store that has none is not waited for.
    release: (message, signal) => asked(signal, async () => { if (typeof store.release === "function") await store.release(delayedMessage(message), signal); }),
  };
  const { setupInfrastructure, select, count } = store;
  if (typeof setupInfrastructure === "function") {
    raw.setupInfrastructure = (endpointName, transactionMode, instanceId, signal) =>
      asked(signal, async () => {
        await unlessGivenUp(opening, async () => setupInfrastructure.call(store, { endpointName, transactionMode: transactionMode as TransactionMode, instanceId, signal: either(signal, opening.signal) }));
      });
  }
  if (typeof select === "function") {
    raw.select = (destination, before, limit, signal) => asked(signal, async () => {
      const filter = { ...(destination === undefined ? {} : { destination }), ...(before === undefined ? {} : { before: new Date(before) }), ...(limit === undefined ? {} : { limit }) };
      const messages: unknown = await select.call(store, filter, signal);
      if (!Array.isArray(messages)) throw new TypeError(`it must resolve with an array of messages, not ${describe(messages)}`);
      return Promise.all(messages.map(given));
    });
  }
  if (typeof count === "function") {
    raw.count = (signal) => asked(signal, async () => {
      const counted: unknown = await count.call(store, signal);
      if (!Number.isSafeInteger(counted) || (counted as number) < 0) throw new TypeError(`it must resolve with a whole number from 0 on, not ${describe(counted)}`);
      return counted as number;
    });
  }
  return raw;
}

/** Calls the application outside of the wasm side; what it throws is said in a form that the wasm side reads. */
async function asked<T>(signal: AbortSignal, call: () => Promise<T>): Promise<T> {
  await undefined;
  try {
    // Nobody waits for it any more.
    signal.throwIfAborted();
    return await call();
  } catch (cause) {
    // What the wasm side reads; nobody else sees it.
    throw { message: shown(cause).message, unrecoverable: nameOf(cause) === "UnrecoverableError", cause };
  }
}

/** Whoever opens the broker may give up: then nobody waits for the store, whatever it does with its signal. */
async function unlessGivenUp(opening: Opening, call: () => Promise<void>): Promise<void> {
  const { signal } = opening;
  if (signal === undefined) return call();
  signal.throwIfAborted();
  let give = (): void => {};
  const givenUp = new Promise<never>((_, reject) => { give = () => { reject(signal.reason as Error); }; });
  signal.addEventListener("abort", give, { once: true });
  try {
    await Promise.race([call(), givenUp]);
  } finally {
    signal.removeEventListener("abort", give);
  }
}

function nameOf(thrown: unknown): unknown {
  try {
    return (thrown as { name?: unknown } | null | undefined)?.name;
  } catch {
    return undefined;
  }
}

function yesOrNo(answer: unknown, orNothing = false): boolean {
  if (answer === undefined && orNothing) return true;
  if (typeof answer !== "boolean") throw new TypeError(`it must resolve with true or false${orNothing ? ", or nothing" : ""}, not ${describe(answer)}`);
  return answer;
}

function time(value: unknown, what: string): number {
  const ms = typeof value === "number" || Object.prototype.toString.call(value) === "[object Date]" ? Number(value) : NaN;
  if (Number.isNaN(ms)) throw new TypeError(`${what} must be a valid Date, not ${value instanceof Date ? "an invalid one" : describe(value)}`);
  return ms;
}

/** The fields of a message but for its body, which is looked at last. */
function checked(message: DelayedMessage): Omit<RawGivenDelayed, "body" | "packing" | "size"> {
  if (typeof message !== "object") throw new TypeError(`it is ${describe(message)}, and no message`);
  const { messageId, destination, numberOfRetries } = message;
  if (typeof messageId !== "string") throw new TypeError(`its \`messageId\` must be a text, not ${describe(messageId)}`);
  if (typeof destination !== "string") throw new TypeError(`its \`destination\` must be a text, not ${describe(destination)}`);
  if (!Number.isSafeInteger(numberOfRetries) || numberOfRetries < 0) throw new TypeError(`its \`numberOfRetries\` must be a whole number from 0 on, not ${typeof numberOfRetries === "number" ? String(numberOfRetries) : describe(numberOfRetries)}`);
  const headers = texts(message.headers, "headers");
  return {
    messageId, destination, time: time(message.time, "its `time`"), retries: numberOfRetries,
    headers: headers.length === 0 ? null : Object.fromEntries(headers), properties: texts(message.properties, "properties").flat(),
  };
}

function texts(record: unknown, name: string): [string, string][] {
  if (Object.prototype.toString.call(record) !== "[object Object]") throw new TypeError(`its \`${name}\` must be an object of texts, not ${describe(record)}`);
  const entries = Object.entries(record as object);
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
  let known: { messageId?: string } = {};
  try {
    const id: unknown = (message as { messageId?: unknown }).messageId;
    known = typeof id === "string" ? { messageId: id } : {};
    return { ...known, ...await measured(message, broker) };
  } catch {
    return { ...known, body: describe(message), packing: 0, size: 64 };
  }
}

import { abortSignal, amount, describe, later, number, oneOf, options, text, whole } from "./check.js";
import { PocketBroker } from "./broker.js";
import { hookOf } from "./clock-hook.js";
import { functionsFor, lacking, misshapen } from "./delayed-store.js";
import { BrokerError, invalid, isBrokerError, reading, rethrow } from "./errors.js";
import { load } from "./load.js";
import { unlessAborted } from "./abort.js";
import type { CloseReason, Notice, RawBroker, RawOpenOptions } from "./raw.js";
import type { Broker, Clock, OpenOptions } from "./types/broker.js";
import type { DelayedDeliverySettings, DelayedMessageStore } from "./types/delayed.js";

const DURABILITIES = ["strict", "relaxed"] as const;
const STORAGES = ["indexeddb", "memory"] as const;
const MAX_NAME = 128;
const LOCK_TIMEOUT = 5_000;
const MAX_MESSAGE_BYTES = 128 * 1024 * 1024;

/**
 * Opens (or creates) the broker that lives in the IndexedDB database `name`, in a window, dedicated, shared or service worker.
 * Loads the wasm once, lazily. Each call gives a Broker of its own over one connection per context; its `close` closes only itself.
 * `durability`, `clock` and `delayedDelivery` must agree with a broker of this name that is open here already.
 *
 * Errors: InvalidArgument, UnsupportedTransactionMode, DelayedStoreFailed, LoadFailed, StorageUnavailable (within 10 s), UpgradeBlocked (after 5 s), VersionTooNew, those of `define`;
 * QueueNotFound when `delayedDelivery.errorQueue` is neither among the definitions nor defined already.
 */
export async function openBroker(name: string, openOptions?: OpenOptions): Promise<Broker> {
  const { definitions, durability = "strict", storage = "indexeddb", clock, lockTimeout = LOCK_TIMEOUT, maxMessageBytes = MAX_MESSAGE_BYTES, wasm, signal, delayedDelivery: given = {} } = reading(() => {
    checkName(name);
    return options(openOptions, "options", {
      definitions: asGiven<OpenOptions["definitions"]>,
      durability: (value, argument) => oneOf(value, argument, DURABILITIES),
      storage: (value, argument) => oneOf(value, argument, STORAGES),
      clock: readClock,
      lockTimeout: (value, argument) => amount(value, argument, 0),
      maxMessageBytes: positive,
      wasm: asGiven<OpenOptions["wasm"]>,
      signal: abortSignal,
      codec: later("encode bodies before they are sent"),
      delayedDelivery,
    });
  });
  signal?.throwIfAborted();
  const { store: custom, ...settings } = given;
  const store = custom === undefined ? undefined : functionsFor(custom, name);
  if (custom !== undefined && store === undefined) {
    throw invalid("delayedDelivery.store", "serves a broker of another name already: make a store for each");
  }
  if (store !== undefined) store.opening.signal = signal;
  const delayed = { ...DEFAULTS, transactionMode: store === undefined ? "transaction-scope" as const : "sends-atomic-with-receive" as const, ...settings };
  const glue = await unlessAborted(load(wasm), signal);

  let broker: PocketBroker | undefined;
  let closed: CloseReason | undefined;
  const opening = glue.RawBroker.open(name, { durability, storage, lockTimeout, delayed, ...(store === undefined ? {} : { store: store.raw }), ...clock?.functions },
    (notice: Notice) => broker?.noticed(notice),
    (reason: CloseReason) => {
      closed = reason;
      broker?.closed(reason);
    }).catch(rethrow);
  const raw = await unlessAborted(opening, signal, closeQuietly);
  broker = new PocketBroker(name, raw, maxMessageBytes);
  store?.opened(raw);
  if (closed !== undefined) broker.closed(closed);
  hookOf(clock?.of ?? {})?.watch(broker.watched());
  try {
    if (definitions !== undefined) await unlessAborted(broker.define(definitions), signal);
    if (delayed.errorQueue !== DEFAULTS.errorQueue) await unlessAborted(checkErrorQueue(broker, delayed.errorQueue), signal);
    return broker;
  } catch (error) {
    closeQuietly(broker);
    throw error;
  }
}

/** Deletes the database, if there. Other contexts' brokers close themselves first (event "close"). Errors: LoadFailed, StorageUnavailable, UpgradeBlocked. */
export async function deleteBroker(name: string): Promise<void> {
  reading(() => checkName(name));
  const glue = await load(undefined);
  await glue.deleteBroker(name).catch(rethrow);
}

function checkName(name: unknown): void {
  const length = [...text(name, "name")].length;
  if (length < 1 || length > MAX_NAME) throw invalid("name", `must have 1 to ${MAX_NAME} characters, not ${length}`);
}

/** A slip in its name is found at once, not when a message has failed. */
async function checkErrorQueue(broker: PocketBroker, queue: string): Promise<void> {
  try {
    await broker.count(queue);
  } catch (error) {
    if (!isBrokerError(error, "QueueNotFound")) throw error;
    const text = `\`delayedDelivery.errorQueue\` names the queue ${JSON.stringify(queue)}, which is not there. Give it in \`definitions.queues\`, or look at the spelling.`;
    throw new BrokerError(error.code, text, { details: error.details, cause: error });
  }
}

/** How long storing, fetching and dispatching may fail before `critical-error` tells it. */
const BREAKER = 30_000;
const DEFAULTS = {
  numberOfRetries: 0, timeToTriggerStoreCircuitBreaker: BREAKER, timeToTriggerFetchCircuitBreaker: BREAKER, timeToTriggerDispatchCircuitBreaker: BREAKER,
  maximumRecoveryFailuresPerSecond: 1, errorQueue: "error",
} as const;
const MODES = ["none", "receive-only", "sends-atomic-with-receive", "transaction-scope"] as const;

function delayedStore(value: unknown, argument: string): DelayedMessageStore {
  if (typeof value !== "object" || value === null) throw invalid(argument, `must be a delayed message store, not ${describe(value)}`);
  const method = lacking(value as Partial<Record<string, unknown>>);
  if (method !== undefined) throw invalid(argument, `has no method ${method}(): a delayed message store needs initialize, store, remove, incrementFailureCount, next and fetchNextDueTimeout`);
  const odd = misshapen(value as Partial<Record<string, unknown>>);
  if (odd !== undefined) throw invalid(`${argument}.${odd}`, "must be a method, if it is there");
  return value as DelayedMessageStore;
}

function delayedDelivery(value: unknown, argument: string): DelayedDeliverySettings {
  const duration = (ms: unknown, name: string): number => {
    if (!(Number.isFinite(number(ms, name)) && (ms as number) > 0)) throw invalid(name, `must be a finite number of milliseconds above 0, not ${String(ms)}`);
    return ms as number;
  };
  const least = (count: number) => (given: unknown, name: string): number => whole(given, name, count);
  return options(value, argument, {
    store: delayedStore,
    transactionMode: (mode, name) => oneOf(mode, name, MODES),
    numberOfRetries: least(0),
    timeToTriggerStoreCircuitBreaker: duration, timeToTriggerFetchCircuitBreaker: duration, timeToTriggerDispatchCircuitBreaker: duration,
    maximumRecoveryFailuresPerSecond: least(1),
    errorQueue: text,
  });
}

function asGiven<T>(value: unknown): T {
  return value as T;
}

function positive(value: unknown, argument: string): number {
  if (!(number(value, argument) > 0)) throw invalid(argument, `must be above 0, not ${String(value)}`);
  return value as number;
}

type ClockFunctions = Pick<RawOpenOptions, "now" | "sleep">;
const clocks = new WeakMap<Clock, ClockFunctions>();

/** The clock as functions; the same ones for the same clock, since brokers that share a connection must agree on it. */
function readClock(value: unknown, argument: string): { of: Clock; functions: ClockFunctions } {
  const clock = value as Partial<Clock> | null;
  if (typeof clock !== "object" || typeof clock?.now !== "function") throw invalid(argument, `must be an object with a method now(), not ${describe(value)}`);
  const sleep = hookOf(clock)?.sleep ?? clock.sleep;
  if (sleep !== undefined && typeof sleep !== "function") throw invalid(`${argument}.sleep`, `must be a function of milliseconds and an AbortSignal, not ${describe(sleep)}`);
  let functions = clocks.get(clock as Clock);
  if (functions === undefined) {
    functions = { now: () => (clock as Clock).now() };
    // In a microtask, outside of the wasm side; what it throws becomes a rejection.
    if (sleep !== undefined) functions.sleep = async (ms, signal) => { await undefined; await sleep.call(clock, ms, signal); };
    clocks.set(clock as Clock, functions);
  }
  return { of: clock as Clock, functions };
}

function closeQuietly(open: Pick<RawBroker, "close"> | Broker): void {
  open.close().catch(() => {});
}

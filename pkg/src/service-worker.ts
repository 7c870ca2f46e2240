/**
 * For service workers: what waits is sent when the network is back, after the last page has been closed, too.
 *
 * @packageDocumentation
 */
import { describe, options as read, plain, text } from "./check.js";
import { invalid } from "./errors.js";
import { checked } from "./http-options.js";
import { BackgroundSync, type SyncManager } from "./service-worker-register.js";
import { SyncAttempts, type SyncEvent } from "./service-worker-sync.js";
import type { Handler } from "./types/activation.js";
import type { Broker } from "./types/broker.js";
import type { BackgroundSyncOptions, HandleSyncOptions } from "./types/service-worker.js";

export type { BackgroundSyncOptions, HandleSyncOptions } from "./types/service-worker.js";

const TAG = "pocket-broker";

/**
 * Call it at the top of a service worker: it listens from there on. At a `sync` event it opens the broker, transmits by the routes that `open` has given it, and drains `queues` with
 * their handlers; what has failed before is tried at once. While anything is left that could go (messages for which there is a route; messages of `queues`, unless the queue or its
 * activation is off) the event fails, and the browser sends another one later. Nothing is given up at the last one (`lastChance`): what is left waits for the next event, or a page.
 *
 * The broker is this function's: it stays open from the first event on, as long as the browser lets the worker live, and `open` is called again after it was closed.
 * What `open` throws, and errors of the store, fail the event; the latter are told by `critical-error`, too.
 *
 * Errors: InvalidArgument.
 * @param open Opens the broker and gives it its routes. Called at the first event, not before.
 * @param options Default: no queues.
 * @returns The way out: listens no more, and closes the broker.
 */
export function handleSync(open: () => Promise<Broker>, options?: HandleSyncOptions): () => void {
  const { tag = TAG, queues = new Map<string, Handler>() } = checked(() => {
    if (typeof open !== "function") throw invalid("open", `must be a function that opens the broker, not ${describe(open)}`);
    return read(options, "options", { tag: text, queues: readHandlers });
  });
  const attempts = new SyncAttempts(open, queues);
  const heard = (event: Event): void => {
    const sync = event as SyncEvent;
    if (sync.tag === tag) sync.waitUntil(attempts.answer(sync));
  };
  globalThis.addEventListener?.("sync", heard);
  return () => {
    globalThis.removeEventListener?.("sync", heard);
    attempts.end();
  };
}

/**
 * Asks the browser for a `sync` event after each commit, of whatever tab, that leaves messages waiting in the transmission queue or in `queues`, and for those that wait already. Not
 * more often than once in a second. Does nothing where there is no Background Sync (`SyncManager`, in Chromium alone) and where it is not allowed: pages that are open do the work there.
 *
 * Errors: InvalidArgument.
 * @param registration The service worker's ServiceWorkerRegistration. It need not be active yet.
 * @param broker Whose commits. When it is closed, nothing is asked for any more; it is not closed by this.
 * @returns The way out. What was asked for comes all the same.
 */
export function registerBackgroundSync(registration: object, broker: Broker, options?: BackgroundSyncOptions): () => void {
  const { tag = TAG, queues = [] } = checked(() => {
    if (typeof registration !== "object" || registration === null) throw invalid("registration", `must be a ServiceWorkerRegistration, not ${describe(registration)}`);
    if (typeof (broker as Partial<Broker> | null | undefined)?.stats !== "function") throw invalid("broker", `must be an open broker, not ${describe(broker)}`);
    return read(options, "options", { tag: text, queues: readNames });
  });
  const manager = (registration as { sync?: SyncManager }).sync;
  if (manager === undefined) return () => {};
  const asking = new BackgroundSync(registration, manager, broker, tag, new Set(queues));
  return () => asking.end();
}

function readHandlers(value: unknown, argument: string): ReadonlyMap<string, Handler> {
  const handlers = Object.entries(plain(value, argument));
  for (const [queue, handler] of handlers) {
    const isHandler = typeof handler === "function" || (typeof handler === "object" && handler !== null);
    if (!isHandler) throw invalid(`${argument}[${JSON.stringify(queue)}]`, `must be a handler: a function, or an object with one for each message type, not ${describe(handler)}`);
  }
  return new Map(handlers as [string, Handler][]);
}

function readNames(value: unknown, argument: string): string[] {
  if (!Array.isArray(value)) throw invalid(argument, `must be an array of names of queues, not ${describe(value)}`);
  return Array.from(value as unknown[], (name, index) => text(name, `${argument}[${index}]`));
}

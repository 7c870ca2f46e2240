// What a service worker does at a `sync` event.
import { describe } from "./check.js";
import { BrokerError, isBrokerError } from "./index.js";
import { syncHookOf } from "./sync-hook.js";
import type { Handler } from "./types/activation.js";
import type { Broker } from "./types/broker.js";

/** The browsers' event, which TypeScript does not know. */
export interface SyncEvent extends Event {
  readonly tag: string;
  /** The browser will not try again by itself. */
  readonly lastChance: boolean;
  waitUntil(work: Promise<unknown>): void;
}

/**
 * The attempts of one `handleSync`: one at a time, however many events there are. The browser may end the worker at any moment: nothing that matters is here, and what has not been
 * committed is done again, with the same ids.
 */
export class SyncAttempts {
  readonly #open: () => Promise<Broker>;
  readonly #queues: ReadonlyMap<string, Handler>;
  #broker: Promise<Broker> | undefined;
  #running: Promise<readonly string[]> | undefined;
  /** An event has come since the last full round began. */
  #isAsked = false;
  #isOver = false;

  constructor(open: () => Promise<Broker>, queues: ReadonlyMap<string, Handler>) {
    this.#open = open;
    this.#queues = queues;
  }

  /** Rejects while anything is left that could go. */
  async answer({ lastChance }: SyncEvent): Promise<void> {
    this.#isAsked = true;
    const left = await (this.#running ??= this.#attempt());
    if (left.length === 0) return;
    const next = lastChance ? "This was the browser's last attempt: it waits until a page is open, or for the next commit that asks for one." : "The browser tries again.";
    throw new Error(`Not everything could go: ${left.join(", ")}. ${next}`);
  }

  /** Nothing more is begun, and the broker is closed. */
  end(): void {
    this.#isOver = true;
    // What fails to open is told by the event that wanted it.
    this.#broker?.then((broker) => broker.close()).catch(() => {});
    this.#broker = undefined;
  }

  /** Gives what is left, in words. */
  async #attempt(): Promise<readonly string[]> {
    // What it comes to is known by `#running` from here on.
    await undefined;
    try {
      const broker = await this.#opened();
      let left: readonly string[] = [];
      while (this.#isAsked) {
        // What is handled may send, and what is sent may be answered.
        while (await this.#round(broker));
        left = await this.#left(broker);
      }
      return left;
    } catch (error) {
      // It can't be used any more. The next event opens another one.
      if (isBrokerError(error, "Closed", "Terminated")) this.#broker = undefined;
      throw error;
    } finally {
      this.#isAsked = false;
      this.#running = undefined;
    }
  }

  #opened(): Promise<Broker> {
    const opening = this.#broker ??= (async () => {
      const broker = await this.#open();
      const has = (method: "transmit" | "drain" | "close"): boolean => typeof (broker as Partial<Broker> | null | undefined)?.[method] === "function";
      if (!has("transmit") || !has("drain") || !has("close")) throw new BrokerError("InvalidArgument", `\`open\` must resolve with an open broker, not with ${describe(broker)}.`, { details: { argument: "open" } });
      broker.addEventListener("close", () => { if (this.#broker === opening) this.#broker = undefined; }, { once: true });
      return broker;
    })();
    opening.catch(() => { if (this.#broker === opening) this.#broker = undefined; });
    return opening;
  }

  /** Transmits and drains, side by side, so that nothing waits for a server that does not answer. Gives whether there may be more to do. */
  async #round(broker: Broker): Promise<boolean> {
    const isFull = this.#isAsked;
    this.#isAsked = false;
    const hook = syncHookOf(broker);
    if (isFull && this.#queues.size > 0) await this.#telling(broker, "transmission", hook?.resume());
    const moved = await Promise.allSettled([
      this.#telling(broker, "transmission", isFull ? broker.transmit().then(({ sent }) => sent) : broker.poll()),
      ...[...this.#queues].map(([queue, handler]) => this.#telling(broker, "recovery", broker.drain(queue, handler).then(({ handled }) => handled))),
    ]);
    for (const outcome of moved) if (outcome.status === "rejected") throw outcome.reason;
    return moved.some((outcome) => outcome.status === "fulfilled" && outcome.value > 0) && !this.#isOver;
  }

  /** What could still go, in words. */
  async #left(broker: Broker): Promise<string[]> {
    const hook = syncHookOf(broker);
    const [isTransmittable, queues] = await this.#telling(broker, "transmission", Promise.all([
      // Any other broker knows no more than that something waits.
      hook === undefined ? broker.stats().then(({ transmissionQueued }) => transmissionQueued > 0) : hook.isTransmittable(),
      this.#queues.size === 0 ? [] : broker.queues(),
    ]));
    const waiting = queues.filter(({ name, isReceiveEnabled, isActivationEnabled, ready }) => this.#queues.has(name) && isReceiveEnabled && isActivationEnabled && ready > 0);
    return [...(isTransmittable ? ["messages for other brokers"] : []), ...waiting.map(({ name, ready }) => `${ready} in the queue ${JSON.stringify(name)}`)];
  }

  /** What fails is told to whoever listens, here and in pages: the browser tells nobody why an event has failed. */
  async #telling<T>(broker: Broker, source: "recovery" | "transmission", work: Promise<T> | undefined): Promise<T> {
    try {
      return await work as T;
    } catch (error) {
      if (!this.#isOver && !isBrokerError(error, "Closed")) syncHookOf(broker)?.warn(source, error);
      throw error;
    }
  }
}

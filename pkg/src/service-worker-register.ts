// Asking the browser for `sync` events.
import { syncHookOf } from "./sync-hook.js";
import type { Broker, BrokerEvents } from "./types/broker.js";

/** The browsers' own, which TypeScript does not know. */
export interface SyncManager { register(tag: string): Promise<void> }

/** Commits within so many milliseconds of the last asking are asked for together. */
const PAUSE = 1_000;

/**
 * One `registerBackgroundSync`. The first commit is asked for at once, and those of the next second together at its end, or when the page is hidden. To ask again for what is asked
 * for already changes nothing, but costs a message to the browser's own process; not to ask, because something was asked for, might be wrong: that event may be over.
 */
export class BackgroundSync {
  readonly #registration: object;
  readonly #manager: SyncManager;
  readonly #broker: Broker;
  readonly #tag: string;
  readonly #queues: ReadonlySet<string>;
  /** Set while nothing is to be asked for yet. */
  #pause: ReturnType<typeof setTimeout> | undefined;
  #isLooking = false;
  /** Something was committed since the last look began. */
  #isWanted = false;
  #isOver = false;
  /** Whether the last asking failed, and was told. */
  #hasFailed = false;

  readonly #heard = ({ detail: { transmission, queues } }: CustomEvent<BrokerEvents["changed"]>): void => {
    if (transmission || queues.some((queue) => this.#queues.has(queue))) this.#want();
  };
  readonly #wake = (): void => this.#want();
  readonly #hidden = (): void => {
    if (document.visibilityState !== "hidden" || this.#pause === undefined || !this.#isWanted) return;
    // The page may be put away before anything could be looked up. An event too many does no harm.
    this.#isWanted = false;
    void this.#ask();
  };
  readonly #closed = (): void => this.end();

  constructor(registration: object, manager: SyncManager, broker: Broker, tag: string, queues: ReadonlySet<string>) {
    this.#registration = registration;
    this.#manager = manager;
    this.#broker = broker;
    this.#tag = tag;
    this.#queues = queues;
    broker.addEventListener("changed", this.#heard);
    broker.addEventListener("close", this.#closed);
    globalThis.document?.addEventListener("visibilitychange", this.#hidden);
    for (const worker of this.#workers()) worker.addEventListener?.("statechange", this.#wake);
    this.#want();
  }

  end(): void {
    this.#isOver = true;
    clearTimeout(this.#pause);
    this.#broker.removeEventListener("changed", this.#heard as (event: Event) => void);
    this.#broker.removeEventListener("close", this.#closed);
    globalThis.document?.removeEventListener("visibilitychange", this.#hidden);
    for (const worker of this.#workers()) worker.removeEventListener?.("statechange", this.#wake);
  }

  /** Nothing can be asked for before a worker is active: these will be. */
  #workers(): Partial<EventTarget>[] {
    const { installing, waiting } = this.#registration as { installing?: Partial<EventTarget> | null; waiting?: Partial<EventTarget> | null };
    return [installing, waiting].filter((worker) => worker !== null && worker !== undefined);
  }

  #want(): void {
    this.#isWanted = true;
    if (!this.#isLooking && this.#pause === undefined) void this.#look();
  }

  async #look(): Promise<void> {
    this.#isLooking = true;
    while (this.#isWanted && this.#pause === undefined && !this.#isOver) {
      this.#isWanted = false;
      if (await this.#isWaiting() && !this.#isOver) await this.#ask();
    }
    this.#isLooking = false;
  }

  async #isWaiting(): Promise<boolean> {
    try {
      if ((await this.#broker.stats()).transmissionQueued > 0) return true;
      if (this.#queues.size === 0) return false;
      return (await this.#broker.queues()).some(({ name, ready }) => this.#queues.has(name) && ready > 0);
    } catch {
      // It can't be seen. An event too many does no harm.
      return true;
    }
  }

  async #ask(): Promise<void> {
    clearTimeout(this.#pause);
    this.#pause = setTimeout(() => {
      this.#pause = undefined;
      if (this.#isWanted) this.#want();
    }, PAUSE);
    try {
      await this.#manager.register(this.#tag);
      this.#hasFailed = false;
    } catch (error) {
      // Not allowed, or no worker is active yet: open pages do the work. The next commit asks again.
      const { name } = error as { name?: unknown };
      if (name === "NotAllowedError" || name === "InvalidStateError" || this.#hasFailed || this.#isOver) return;
      this.#hasFailed = true;
      syncHookOf(this.#broker)?.warn("transmission", error);
    }
  }
}

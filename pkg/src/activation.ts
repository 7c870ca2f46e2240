// Activation: readers start while there is work, one group and one transaction each. What a failure means is decided by the wasm side.
import { activationSettings, type Settings } from "./activation-settings.js";
import { text } from "./check.js";
import { openRaw, reasonOf, rethrowOf, type Core } from "./core.js";
import { BrokerError, isBrokerError, isLoss, reading } from "./errors.js";
import { fire } from "./events.js";
import { failureOf, thrown, workOf, type Work } from "./handlers.js";
import { expand } from "./messages.js";
import type { RawRecovered } from "./raw.js";
import { UnitOfWork } from "./transaction.js";
import type { Activation, ActivationOptions } from "./types/activation.js";
import type { Message } from "./types/messages.js";

/** A queue that is off is looked at this often by itself, and trouble with the storage is waited for at most so long, in milliseconds. */
const SLOW = 15_000;
const FIRST_PAUSE = 1_000;
const LONGEST_PAUSE = 60_000;

/** From so many rollbacks of one message on there is a pause before the next attempt. */
const POISON = 5;
const asyncDispose: typeof Symbol.asyncDispose = Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose");

/** What an activation needs of its broker. */
export interface Owner {
  readonly core: Core;
  /** Transactions that are open: `close` ends them. */
  readonly open: Set<UnitOfWork>;
  /** Where events come from and go to. */
  readonly events: EventTarget;
  /** Activations that run. */
  readonly activations: Set<ReaderPool>;
}

/** How a drained queue was left. */
export interface Drained { handled: number; failed: number; remaining: number }

/** The readers of one `activate` or `drain`. */
export class ReaderPool implements Activation {
  readonly queue: string;
  readonly done: Promise<void>;
  readonly #owner: Owner;
  readonly #work: Work;
  readonly #settings: Settings;
  /** Ends when there is nothing more, instead of waiting for it. */
  readonly #isDrain: boolean;
  readonly #idlers: (() => void)[] = [];
  #running = 0;
  /** How many readers have ended: what a look found held meanwhile may be free. */
  #ended = 0;
  #stopping = false;
  #handled = 0;
  #failed = 0;
  #failures = 0;
  /** Epoch milliseconds: the storage is left alone until then. */
  #troubledUntil = 0;
  /** Ends the present wait: for a message, a reader's end, a queue that is off. */
  #wake: () => void = () => {};

  constructor(owner: Owner, queue: string, work: Work, settings: Settings, isDrain: boolean) {
    this.queue = queue;
    this.#owner = owner;
    this.#work = work;
    this.#settings = settings;
    this.#isDrain = isDrain;
    owner.activations.add(this);
    const stop = (): void => this.#stop();
    settings.signal?.addEventListener("abort", stop, { once: true });
    if (settings.signal?.aborted) this.#stopping = true;
    this.done = this.#run().finally(() => {
      settings.signal?.removeEventListener("abort", stop);
      owner.activations.delete(this);
    });
    this.done.catch(() => {});
  }

  get readers(): number { return this.#running; }

  idle(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#idlers.push(resolve);
      this.done.then(resolve, reject);
      this.#wake();
    });
  }

  async stop(): Promise<void> {
    this.#stop();
    await this.done.catch(() => {});
  }

  [asyncDispose](): Promise<void> { return this.stop(); }

  async drained(): Promise<Drained> {
    await this.done;
    const { core } = this.#owner;
    const remaining = await openRaw(core).count(this.queue, { status: [1] }).catch(rethrowOf(core));
    return { handled: this.#handled, failed: this.#failed, remaining };
  }

  /** The broker is closed: it finds out at once. */
  close(): void { this.#wake(); }

  #stop(): void {
    this.#stopping = true;
    this.#wake();
  }

  /** Whoever has asked is told that there is nothing to do. */
  #rest(asking: (() => void)[]): void {
    for (const resolve of asking.splice(0)) resolve();
  }

  /** Whether a look would tell somebody something. */
  get #isAsked(): boolean {
    return this.#idlers.length > 0 && this.#running === 0;
  }

  /** Resolves at the next wake, after `ms` milliseconds at the latest. */
  #pause(ms: number | undefined): Promise<void> {
    return new Promise((resolve) => {
      const timer = ms === undefined ? undefined : setTimeout(resolve, ms);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  /** One after the other: takes what there is and gives it to a reader. So at most one waits for messages, however many are allowed. */
  async #run(): Promise<void> {
    try {
      while (!this.#stopping) {
        const trouble = this.#troubledUntil - Date.now();
        if (trouble > 0 && this.#isDrain) break;
        if (trouble > 0) await this.#pause(trouble);
        else if (this.#running >= this.#settings.maxReaders) await this.#pause(undefined);
        else if (!await this.#take()) break;
      }
    } finally {
      this.#stopping = true;
      while (this.#running > 0) await this.#pause(undefined);
    }
  }

  /** Starts a reader with what comes next. Gives whether to go on. */
  async #take(): Promise<boolean> {
    const unit = this.#begin();
    let rows: Message[] = [];
    // Who asks from here on wants to know of a later look.
    const asking = this.#idlers.splice(0);
    const ended = this.#ended;
    try {
      rows = await this.#receive(unit, {}, undefined);
      const isOld = this.#ended !== ended;
      if (rows.length > 0 || this.#running > 0 || isOld) this.#idlers.push(...asking.splice(0));
      if (rows.length === 0 && isOld) return true;
      if (rows.length === 0) {
        this.#rest(asking);
        if (this.#isDrain) {
          if (this.#running === 0) return false;
          await this.#pause(undefined);
          return true;
        }
        // Somebody has asked since the look began.
        if (this.#isAsked) return true;
        const sleeping = new AbortController();
        this.#wake = () => sleeping.abort();
        rows = this.#stopping ? [] : await this.#receive(unit, { timeout: Infinity }, sleeping.signal);
      }
    } catch (error) {
      return await this.#recoverFrom(error, asking);
    } finally {
      if (rows.length === 0) this.#discard(unit);
    }
    if (rows.length > 0) this.#start(unit, rows);
    return true;
  }

  /** What stops a reader before it has messages. Gives whether to go on. */
  async #recoverFrom(error: unknown, asking: (() => void)[]): Promise<boolean> {
    if ((error as { code?: unknown } | null)?.code === "Aborted") return true;
    const failure = reasonOf(this.#owner.core, error);
    if (isLoss(failure)) {
      // If the page is away, the next look waits until it is back.
      this.#idlers.push(...asking);
      return true;
    }
    if (isBrokerError(failure, "QueueDisabled")) {
      if (this.#running === 0) this.#rest(asking);
      else this.#idlers.push(...asking);
      if (this.#isDrain) return false;
      if (!this.#isAsked) await this.#untilChanged();
      return true;
    }
    if (this.#isDrain || isBrokerError(failure, "QueueNotFound", "Closed", "Terminated", "VersionTooNew")) throw failure;
    this.#idlers.push(...asking);
    this.#trouble(failure);
    return true;
  }

  /** The queue is off, or its activation: until somebody changes something about it. */
  async #untilChanged(): Promise<void> {
    const { events } = this.#owner;
    const heard = (event: Event): void => {
      if ((event as CustomEvent<{ queues: readonly string[] }>).detail.queues.includes(this.queue)) this.#wake();
    };
    events.addEventListener("changed", heard);
    await this.#pause(SLOW);
    events.removeEventListener("changed", heard);
  }

  /** Nobody's fault but the storage's: nothing is taken for a while, longer each time. */
  #trouble(error: unknown): void {
    const { core, events } = this.#owner;
    if (core.closed !== undefined) return;
    const [name, message, code] = thrown(error);
    try {
      core.raw.warn("recovery", name, message, code);
    } catch {
      // The instance has stopped: only this broker can still be told.
      fire(events, "critical-error", { source: "recovery", error: { name, message, code } });
    }
    this.#backOff();
  }

  #backOff(): void {
    this.#troubledUntil = Date.now() + Math.min(FIRST_PAUSE * 2 ** this.#failures, LONGEST_PAUSE);
    this.#failures = Math.min(this.#failures + 1, 16);
  }

  #begin(): UnitOfWork {
    const unit = new UnitOfWork(this.#owner.core);
    this.#owner.open.add(unit);
    return unit;
  }

  #discard(unit: UnitOfWork): void {
    unit.rollback(undefined);
    this.#owner.open.delete(unit);
  }

  async #receive(unit: UnitOfWork, more: { timeout?: number; conversation?: string; top?: number }, signal: AbortSignal | undefined): Promise<Message[]> {
    return expand(await unit.raw.receive(this.queue, { top: this.#settings.top, activated: true, ...more }, signal));
  }

  #start(unit: UnitOfWork, rows: Message[]): void {
    this.#running += 1;
    this.#owner.core.activations += 1;
    void this.#read(unit, rows).catch((error: unknown) => { this.#trouble(reasonOf(this.#owner.core, error)); }).finally(() => {
      this.#discard(unit);
      this.#running -= 1;
      this.#ended += 1;
      this.#wake();
    });
  }

  /** One batch, and what becomes of it. */
  async #read(unit: UnitOfWork, rows: Message[]): Promise<void> {
    const failed = await this.#attempt(unit, rows);
    const [first] = rows;
    if (failed === undefined || first === undefined || this.#isNobodys(unit, failed.reason)) return;
    if (rows.length > 1 && failureOf(failed.reason, first, this.queue, "").kind !== "later") {
      // Only the one that fails is to suffer.
      unit.rollback(failed.reason);
      const counts = new Map<string, number>();
      for (const { conversationHandle: handle } of rows) counts.set(handle, (counts.get(handle) ?? 0) + 1);
      for (const [handle, count] of counts) await this.#singly(handle, count);
    } else if (await this.#isToBeTriedAgain(unit, first, failed.reason)) {
      await this.#singly(first.conversationHandle, 1);
    }
  }

  /** The next messages of a conversation, one at a time, up to one that has to wait. */
  async #singly(conversation: string, count: number): Promise<void> {
    for (let left = count; left > 0 && !this.#stopping;) {
      const unit = this.#begin();
      try {
        const [message] = await this.#receive(unit, { conversation, top: 1 }, undefined);
        // Somebody else has it, or has failed with it.
        if (message === undefined || message.retryAt !== null) return;
        const failed = await this.#attempt(unit, [message]);
        if (failed === undefined) left -= 1;
        else if (this.#isNobodys(unit, failed.reason) || !await this.#isToBeTriedAgain(unit, message, failed.reason)) return;
      } catch (error) {
        const failure = reasonOf(this.#owner.core, error);
        if (unit.isLost || isBrokerError(failure, "ConversationNotFound", "QueueDisabled", "QueueNotFound")) return;
        throw error;
      } finally {
        this.#discard(unit);
      }
    }
  }

  /** Hands messages over and commits. Gives why it failed. */
  async #attempt(unit: UnitOfWork, rows: Message[]): Promise<{ reason: unknown } | undefined> {
    const { handlerTimeout } = this.#settings;
    let timer: ReturnType<typeof setTimeout> | undefined;
    try {
      const contenders: unknown[] = [unit.stopped, (async () => this.#work(rows, unit.facade))()];
      if (handlerTimeout !== undefined) {
        contenders.push(new Promise((_, reject) => {
          timer = setTimeout(() => reject(new BrokerError("Timeout", `The handler took longer than \`handlerTimeout\`, ${handlerTimeout} ms.`, { retryable: true })), handlerTimeout);
        }));
      }
      await Promise.race(contenders);
      clearTimeout(timer);
      await unit.commit();
      this.#handled += rows.length;
      this.#failures = 0;
      return undefined;
    } catch (reason) {
      return { reason };
    } finally {
      clearTimeout(timer);
    }
  }

  /** Whether a failure is none that could be counted, whatever the reason: the transaction was taken away, or the storage could not commit it. */
  #isNobodys(unit: UnitOfWork, reason: unknown): boolean {
    if (unit.isLost) return true;
    if (unit.isUnstored) this.#trouble(reason);
    return unit.isUnstored;
  }

  /** Counts a failure. Gives whether the message is to be tried again at once. */
  async #isToBeTriedAgain(unit: UnitOfWork, message: Message, reason: unknown): Promise<boolean> {
    const failure = failureOf(reason, message, this.queue, this.#owner.core.name);
    const recovered: RawRecovered | null = await unit.recover(failure, this.#settings.policy, reason);
    // It was lost a moment ago.
    if (recovered === null) return false;
    if (recovered.next === "immediate") return true;
    // Where nothing switches the queue off, nothing else would ever make it pause.
    if (recovered.next === "rollback" && recovered.attempts >= POISON) this.#backOff();
    this.#failed += 1;
    return false;
  }
}

/** Reads the arguments and begins. */
export function activate(owner: Owner, queue: unknown, handler: unknown, given: ActivationOptions | undefined, isDrain: boolean): ReaderPool {
  return reading(() => {
    const [name, work, settings] = [text(queue, "queue"), workOf(handler), activationSettings(given)] as const;
    openRaw(owner.core);
    return new ReaderPool(owner, name, work, settings, isDrain);
  });
}

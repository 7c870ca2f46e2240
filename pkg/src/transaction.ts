import { abortSignal, describe, options } from "./check.js";
import { openRaw, reasonOf, rethrowOf, type Core } from "./core.js";
import { BrokerError, fromRaw, invalid, isBrokerError, reading } from "./errors.js";
import { Line } from "./line.js";
import type { RawFailure, RawRecoverability, RawRecovered, RawTransaction, RawVerbs } from "./raw.js";
import { TransactionFacade } from "./transaction-facade.js";
import type { Transaction } from "./types/broker.js";
import { VerbCalls } from "./verbs.js";
import { ViewCalls } from "./views.js";

/** A unit of work, from its begin to its outcome. */
export class UnitOfWork {
  readonly facade: TransactionFacade;
  /** Rejects when the work is stopped from outside: an abort, `close`, a lost lock. */
  readonly stopped: Promise<never>;
  readonly #core: Core;
  readonly #raw: RawTransaction;
  readonly #line = new Line();
  readonly #controller = new AbortController();
  #state: "open" | "committing" | "committed" | "rolled back" = "open";
  /** What verbs say after the end, when it is more than that it has ended. */
  #closed: BrokerError | undefined;
  #outcome: Promise<void> | undefined;
  #stop!: (reason: unknown) => void;

  constructor(core: Core) {
    this.#core = core;
    try {
      this.#raw = openRaw(core).begin();
    } catch (error) {
      throw reasonOf(core, error);
    }
    this.stopped = new Promise((_, reject) => { this.#stop = reject; });
    this.stopped.catch(() => {});
    this.#raw.onLost((failure) => {
      const reason = fromRaw(failure);
      // Not here: whoever listens to the signal may call anything.
      queueMicrotask(() => this.stop(reason, reason));
    });
    const line = this.#line;
    // Conversations go on with the broker afterwards; the transaction's own verbs do not.
    const afterwards = (): RawVerbs | Promise<RawVerbs> => {
      if (this.#state === "open") return this.#raw;
      const settled = this.#outcome;
      return this.#state === "committing" && settled !== undefined ? settled.then(() => openRaw(core)) : openRaw(core);
    };
    const views: ViewCalls = new ViewCalls(core, () => conversations);
    const conversations: VerbCalls = new VerbCalls({ core, line, target: afterwards, views, speaker: () => conversations });
    const verbs = new VerbCalls({ core, line, target: () => this.#openRaw(), views, speaker: () => conversations });
    // What the transaction shows ends with it; its conversations' own `info` does not.
    const ownViews = new ViewCalls(core, () => conversations, () => {
      this.#openRaw();
      return openRaw(core);
    });
    this.facade = new TransactionFacade(this.#controller.signal, verbs, ownViews, views);
  }

  /** For the package's own readers. */
  get raw(): RawTransaction { return this.#openRaw(); }

  /** Whether it ended by nobody's doing: its locks were taken away, or its broker was closed. */
  get isLost(): boolean { return this.#closed !== undefined || this.#raw.isLost; }

  /** Whether its commit failed by the storage. */
  get isUnstored(): boolean { return this.#raw.isUnstored; }

  #openRaw(): RawTransaction {
    if (this.#state === "open") return this.#raw;
    throw this.#closed ?? new BrokerError("TransactionClosed", `This transaction is over (${this.#state}): its verbs work only until its work settles. Begin another with broker.transaction.`,
      { retryable: true, details: { state: this.#state } });
  }

  /** Rolls back from outside. Does nothing once the commit is on its way. */
  stop(reason: unknown, closed?: BrokerError): void {
    if (this.#state !== "open") return;
    this.#closed = closed;
    this.rollback(reason);
    this.#stop(reason);
  }

  rollback(reason: unknown): void {
    if (this.#state !== "open") return;
    this.#state = "rolled back";
    try {
      this.#raw.rollback();
    } catch {
      // It was over already.
    }
    this.#controller.abort(reason);
  }

  /** Rolls back because the work has failed. What it received counts as failed once. */
  async fail(reason: unknown): Promise<void> {
    if (this.#state !== "open") return;
    this.#state = "rolled back";
    this.#controller.abort(reason);
    try {
      await this.#raw.fail(isBrokerError(reason) ? reason.code : undefined);
    } catch {
      // It was over already.
    }
  }

  /** Rolls back, if that has not happened yet, because the handler of what was received has failed. Gives what comes next; null: it is lost or unstored, and not counted. */
  async recover(failure: RawFailure, policy: RawRecoverability, reason: unknown): Promise<RawRecovered | null> {
    this.#state = "rolled back";
    this.#controller.abort(reason);
    return this.#raw.recover(failure, policy).catch(rethrowOf(this.#core));
  }

  async commit(): Promise<void> {
    await Promise.race([this.stopped, this.#line.idle()]);
    this.#state = "committing";
    try {
      const committing = this.#raw.commit();
      this.#outcome = committing.then(() => {}, () => {});
      await committing;
      this.#state = "committed";
    } catch (error) {
      this.#state = "rolled back";
      const failure = reasonOf(this.#core, error);
      this.#controller.abort(failure);
      throw failure;
    }
  }
}

/** Runs `work` in a transaction of the broker. `open` holds the ones that are open. */
export async function transact<T>(core: Core, open: Set<UnitOfWork>, work: (tx: Transaction) => Promise<T> | T, settings: unknown): Promise<T> {
  const { signal } = reading(() => {
    if (typeof work !== "function") throw invalid("work", `must be a function of the transaction, not ${describe(work)}`);
    return options(settings, "options", { signal: abortSignal });
  });
  if (signal?.aborted) throw signal.reason;
  const unit = new UnitOfWork(core);
  const abort = (): void => unit.stop(signal?.reason);
  open.add(unit);
  signal?.addEventListener("abort", abort, { once: true });
  try {
    const value = await Promise.race([unit.stopped, work(unit.facade)]);
    await unit.commit();
    return value;
  } catch (reason) {
    await unit.fail(reason);
    throw reason;
  } finally {
    signal?.removeEventListener("abort", abort);
    open.delete(unit);
  }
}

import "./disposable.js";
import type { Transaction } from "./broker.js";
import type { Message } from "./messages.js";

/**
 * Handles messages within a transaction, which commits when it has resolved. One function for everything, or one for each message type: then EndDialog
 * and Error without one are answered with END, and other types without one fail at once.
 */
export type Handler<B = any> = ((messages: Message<B>[], tx: Transaction) => unknown) | {
  readonly [messageType: string]: (message: Message<B>, tx: Transaction) => unknown;
};

/** Options of `activate` and `drain`. */
export interface ActivationOptions {
  /** Readers of this activation that may run side by side, one group each. Default 1. */
  maxReaders?: number;
  /** Messages handed over at once, of one group. Default 1. */
  top?: number;
  /** Milliseconds after which `tx.signal` aborts and the attempt counts as failed. Default: none. */
  handlerTimeout?: number;
  /** What a failing handler means. */
  recoverability?: Recoverability;
  /** Stops the activation. */
  signal?: AbortSignal;
}

/** What a failing handler means. Attempts in all: (immediateRetries + 1) × (delayedRetries + 1). */
export interface Recoverability {
  /** Attempts more at once, in each round. Default 5. */
  immediateRetries?: number;
  /** Rounds more, each after a wait, during which the conversation waits and others go on. Default 3. */
  delayedRetries?: number;
  /** The first wait in milliseconds, added once more each round. Default 10 000. */
  timeIncrease?: number;
  /**
   * After the last attempt. "error-queue", the default: the message moves there and its conversation goes on. "retry-forever": more rounds, in order,
   * with waits of up to a minute. "rollback": no rounds at all, each failure counts for the poison rule of the queue.
   */
  finally?: "error-queue" | "retry-forever" | "rollback";
}

/** Readers that start by themselves while there is work. */
export interface Activation extends AsyncDisposable {
  /** The queue. */
  readonly queue: string;
  /** Handlers that run now. */
  readonly readers: number;
  /** Resolves once nothing is ready for it and no reader runs; what waits for a retry is not ready. */
  idle(): Promise<void>;
  /** Takes nothing more. Resolves when the running handlers have settled. */
  stop(): Promise<void>;
  /** Resolves when stopped; rejects when it can't go on (QueueNotFound, Closed). */
  readonly done: Promise<void>;
}

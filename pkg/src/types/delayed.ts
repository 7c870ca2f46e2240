import type { Rows } from "./messages.js";
import type { MessageId } from "./verbs.js";

/** A message that waits for its time. */
export interface DelayedMessage {
  /** As the call that sent it gave it. */
  messageId: MessageId;
  /** A queue, or the handle of the conversation that it is sent on. */
  destination: string;
  /** When it is to be delivered. */
  time: Date;
  /** As they were given. */
  headers: Record<string, string>;
  /** `messageType`; of a message of `enqueue` its `priority`, too, and its `key` if it has one. */
  properties: Record<string, string>;
  /** Structured-clone value. */
  body: any;
  /** How often it had to wait on when its time had come. */
  numberOfRetries: number;
}

/** Which delayed messages: what is absent matches any. */
export interface DelayedFilter {
  /** For this queue, or on the conversation with this handle. */
  destination?: string;
  /** To be delivered before this instant: a Date, or epoch milliseconds. */
  before?: Date | number;
  /** At most so many. */
  limit?: number;
}

/** The delayed store. */
export interface DelayedMessages {
  /** In the order in which they will be delivered. Iterating reads pages. */
  select(filter?: DelayedFilter): Rows<DelayedMessage>;
  /** How many wait: one short read, however many there are. */
  count(): Promise<number>;
  /** When the earliest is due; null when there is none. */
  next(): Promise<Date | null>;
  /**
   * true: it will not be delivered. false: it does not wait any more. Exactly one of cancel and delivery wins. In a transaction it takes effect at the
   * commit, which rejects with Conflict when the message was delivered meanwhile. Errors: InvalidArgument.
   */
  cancel(id: MessageId): Promise<boolean>;
  /** Delivers it at this instant instead. false: it does not wait any more. In a transaction as `cancel`. Errors: InvalidArgument, TimerBeyondLifetime. */
  reschedule(id: MessageId, to: Date | number): Promise<boolean>;
}

/**
 * Settings of delayed delivery. Brokers of one database in a window or worker share them. The built-in store takes a message in with the commit that sends it,
 * and out with the commit that delivers it, whatever the mode: so there is nothing to retry by itself, and one circuit breaker.
 */
export interface DelayedDeliverySettings {
  /** Default "transaction-scope", which the built-in store always gives. */
  transactionMode?: "none" | "receive-only" | "sends-atomic-with-receive" | "transaction-scope";
  /** A whole number from 0 on. The built-in store has no use for it: what can't be delivered goes to the error queue at once. Default 0. */
  numberOfRetries?: number;
  /** Milliseconds. The built-in store has no use for it. Default 30 000. */
  timeToTriggerStoreCircuitBreaker?: number;
  /** For how many milliseconds what is due may fail before `critical-error` tells it; meanwhile it is tried every second, afterwards every ten. Default 30 000. */
  timeToTriggerFetchCircuitBreaker?: number;
  /** Milliseconds. The built-in store has no use for it. Default 30 000. */
  timeToTriggerDispatchCircuitBreaker?: number;
  /** A whole number from 1 on. The built-in store has no use for it. Default 1. */
  maximumRecoveryFailuresPerSecond?: number;
  /** The only one in this release, and the default: "error". */
  errorQueue?: string;
}

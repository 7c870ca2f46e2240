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
  /** Structured-clone value; `encodeBody` makes it JSON-safe. */
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
 * How far a store takes part in the broker's transactions. "none" and "receive-only": a message may be delivered twice when a tab dies between delivering it
 * and removing it. "sends-atomic-with-receive": the destination sees it once. "transaction-scope": fetching, delivering and removing are one storage
 * transaction, which the built-in store alone can give.
 */
export type TransactionMode = "none" | "receive-only" | "sends-atomic-with-receive" | "transaction-scope";

/**
 * Keeps delayed messages somewhere else than the broker does: in another database, or on a server. `checkDelayedMessageStore` in `pocket-broker/testing`
 * checks one against all that is said here.
 *
 * Every window and worker of the origin has an instance of its own, and all instances with the same endpoint name share what they hold. Their calls overlap:
 * `store` and `remove` may run in any of them at any time, each beside itself, too, while one of them fetches.
 *
 * What every method has in common:
 * - Its promise resolves when the change is durable. A rejection says that nothing is known of it; the broker calls again later, so all of them must be
 *   safe to repeat.
 * - `messageId` is the key. Of the message given to `remove`, `incrementFailureCount` and `release` nothing else need be right: after a cancel or a crash the
 *   rest of it is empty.
 * - `signal` aborts when the broker closes, when the page sleeps, and when there has been no answer for 60 s; `remove` and `incrementFailureCount` of a message
 *   that was just delivered are let finish. The method then rejects; a call whose signal is aborted already
 *   does nothing but reject.
 * - It must not call the broker.
 */
export interface DelayedMessageStore {
  /**
   * Creates what is missing: databases, tables, folders. Called before `initialize` at every opening, so it must be idempotent, and several tabs may run it at once.
   * It must not touch what is there. Without it `initialize` finds all that it needs. `context` says for which endpoint (the broker's name), in which mode, and for
   * which broker instance, as `broker.instanceId`.
   */
  setupInfrastructure?(context: {
    /** The broker's name. */
    endpointName: string;
    /** The one of the settings. */
    transactionMode: TransactionMode;
    /** Of the database that the broker lives in. */
    instanceId: string;
    /** As with every method. */
    signal: AbortSignal;
  }): Promise<void>;
  /**
   * Called before every method below, whenever a broker is opened with this object: again for the same endpoint, when a broker was closed and is opened anew. From here on
   * this instance holds, gives and counts the messages of `endpointName` alone, which is the broker's name: those of other endpoints it neither sees nor changes. Must
   * throw if it can't honour the mode: `openBroker` then rejects with UnsupportedTransactionMode. It must not hold or change a message.
   */
  initialize(endpointName: string, transactionMode: TransactionMode, signal: AbortSignal): Promise<void>;
  /**
   * Keeps the message. Called after the commit that sent it. A rejection means "not now", and the message is offered again; one with an UnrecoverableError,
   * recognised by its `name`, means "never", and the message moves to the error queue. true, or nothing: it is kept now. false: the store holds this id already, which is fine; what it
   * holds stays as it is. All fields must come back from `fetchNextDueTimeout` as they were given, whatever the keys of `headers` and `properties`
   * are called. The body is any structured-clone value: a store that keeps JSON needs `encodeBody` and `decodeBody`. `time` may be in the past, and as late
   * as the year 9999.
   */
  store(message: DelayedMessage, signal: AbortSignal): Promise<boolean | void>;
  /**
   * Deletes the message with this id, and ends its hold, whoever has it. Called after it was delivered, when it is cancelled, and when it goes to the error queue. true:
   * it was there. false: it was already gone. Of two calls for one message only one may get true. It must not wait for a hold.
   */
  remove(message: DelayedMessage, signal: AbortSignal): Promise<boolean>;
  /**
   * Adds one to `numberOfRetries`, makes `nextAttempt` the message's `time`, and ends its hold, whoever has it: all three at once. Called when it could not be
   * delivered. false: it was already gone. It must not go by the `numberOfRetries` of the message that it is given, but by what it holds.
   */
  incrementFailureCount(message: DelayedMessage, nextAttempt: Date, signal: AbortSignal): Promise<boolean>;
  /**
   * The earliest `time` of all messages, held or not; null when there are none. Called when there is nothing to fetch, to know how long to sleep. It must not
   * wait for a hold or another lock, and holds nothing itself.
   */
  next(signal: AbortSignal): Promise<Date | null>;
  /**
   * The earliest message with `time` ≤ `at` that is not held, or null. Of equal times the one that was stored first. From then on it is held: for 60 s by the store's
   * clock, or until `remove`, `incrementFailureCount` or `release`. What is held is passed over, not waited for, whether another instance holds it or this
   * one. Two calls at once must never give the same message. It stays in the store: what is not removed comes again.
   */
  fetchNextDueTimeout(at: Date, signal: AbortSignal): Promise<DelayedMessage | null>;
  /**
   * Ends the hold of a message that this instance fetched and will not deliver now, as when the broker closes: so nobody waits for the 60 s. A hold that
   * has passed to another instance meanwhile stays; a message that is gone is no error. Without it the hold runs out by itself.
   */
  release?(message: DelayedMessage, signal: AbortSignal): Promise<void>;
  /**
   * For `broker.delayed.select`, which rejects with NotSupported without it: the messages in the order in which they are due, of equal times those stored first, held or
   * not. What is absent in the filter matches any: `destination` exactly this one, `before` only times before this instant, `limit` at most so many. It must
   * not wait for a hold, and holds nothing.
   */
  select?(filter: {
    /** For exactly this one. */
    destination?: string;
    /** With a `time` before this instant. */
    before?: Date;
    /** At most so many. */
    limit?: number;
  }, signal: AbortSignal): Promise<DelayedMessage[]>;
  /** For `broker.delayed.count`, which rejects with NotSupported without it: how many messages there are, held or not. */
  count?(signal: AbortSignal): Promise<number>;
}

/**
 * Settings of delayed delivery. Brokers of one database in a window or worker share them. The built-in store takes a message in with the commit that sends it,
 * and out with the commit that delivers it, whatever the mode: so there is nothing to retry by itself, and one circuit breaker.
 *
 * With a `store` of your own a message lies in the broker's database until the store has taken it, so it can be sent offline. Of all windows and workers that
 * were opened with the store one, the leader, gives it messages and fetches what is due. Open every one with the store, or none: one without it neither
 * polls the store nor shows what it has. What the store had not taken yet when the last such window was closed is kept: a broker without the store shows it, cancels and
 * reschedules it, and does not deliver it; one with the store does.
 */
export interface DelayedDeliverySettings {
  /** Where delayed messages wait. Default: the built-in store, in the broker's database. The same object for all brokers of one database in a window or worker. */
  store?: DelayedMessageStore;
  /** Default "transaction-scope", which the built-in store always gives; with a store of your own "sends-atomic-with-receive", and the other is refused. */
  transactionMode?: TransactionMode;
  /** A whole number from 0 on: after so many more attempts a message that can't be delivered goes to the error queue. The built-in store has no use for it: what can't be delivered goes there at once. Default 0. */
  numberOfRetries?: number;
  /** For how many milliseconds `store` may fail before `critical-error` tells it; meanwhile it is tried every second, afterwards every ten. The built-in store has no use for it. Default 30 000. */
  timeToTriggerStoreCircuitBreaker?: number;
  /** For how many milliseconds what is due may fail before `critical-error` tells it; meanwhile it is tried every second, afterwards every ten. Default 30 000. */
  timeToTriggerFetchCircuitBreaker?: number;
  /** The same of delivering what was fetched, and of `remove` afterwards; each message waits for itself. The built-in store has no use for it. Default 30 000. */
  timeToTriggerDispatchCircuitBreaker?: number;
  /** A whole number from 1 on: how often a second, on average over 30 s, `incrementFailureCount` may fail before `critical-error` tells it. The built-in store has no use for it. Default 1. */
  maximumRecoveryFailuresPerSecond?: number;
  /**
   * The queue that failed messages go to, in this window or worker: delayed ones, those whose handlers fail, and those that a far service refuses. Default "error". A queue
   * like any other that is in `definitions`, or was defined before: else `openBroker` rejects with QueueNotFound. Should it be dropped elsewhere, they go to "error", and
   * `critical-error` tells it. `failed`, `returnToSource` and `discardFailed` go by all error queues of the database, whatever is named here.
   */
  errorQueue?: string;
}

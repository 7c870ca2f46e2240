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

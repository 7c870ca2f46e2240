import type { ConversationEndpoint, Message } from "./messages.js";

/** UUID of a conversation endpoint; opaque. */
export type Handle = string;
/** UUID of a conversation group. */
export type GroupId = string;
/** UUID of a message. */
export type MessageId = string;

/** A handle, a Conversation, or a received message: `tx.send(message, "Reply", …)` answers it. */
export type ConversationRef = Handle | {
  /** Of a Conversation. */
  readonly handle: Handle;
} | {
  /** Of a received message or a row. */
  readonly conversationHandle: Handle;
};
/** A group's id, or a conversation in it by handle or object. A string is looked up as a handle first. */
export type GroupRef = GroupId | {
  /** Of a Conversation. */
  readonly handle: Handle;
} | {
  /** Of a received message or a row. */
  readonly conversationHandle: Handle;
};

/**
 * The verbs. On a Broker each call is a transaction of its own, and its promise settles after the commit. On a Transaction they
 * commit or roll back together, and a promise settles when the call is accepted.
 *
 * Beside the codes named at each verb any call may reject with InvalidArgument, Closed, Terminated, QuotaExceeded, StorageUnavailable,
 * StorageLost (`details.outcome` "unknown": look before you repeat it) or StorageCorrupt; those on a Transaction with TransactionClosed.
 */
export interface Verbs {
  /**
   * BEGIN DIALOG CONVERSATION. Nothing is sent and the target is not looked for yet.
   * Errors: ServiceNotFound, ContractNotFound, ConversationNotFound, GroupInvalid, InvalidLifetime.
   */
  beginDialog(options: BeginDialog): Promise<Conversation>;

  /**
   * SEND ON CONVERSATION. The body is cloned at the call: later changes are not seen. Sends are stored in the order of the calls, awaited or not;
   * un-awaited ones share storage transactions.
   * Errors: ConversationNotFound, InvalidState, MessageTypeNotFound, NotInContract, WrongDirection, ValidationFailed, NotCloneable,
   * MessageTooLarge, QueueDisabled (own queue off and retention on).
   */
  send(to: ConversationRef, messageType: string, body?: unknown, options?: SendOptions): Promise<MessageId>;
  /** The same to several distinct conversations: all or none; one id per conversation. */
  send(to: readonly ConversationRef[], messageType: string, body?: unknown, options?: SendOptions): Promise<MessageId[]>;

  /** Many messages on one conversation, in order, all or none. Errors: as `send`; `details.index` of what is wrong with a body. */
  sendMany(to: ConversationRef, messages: readonly OutgoingMessage[], options?: Omit<SendOptions, "headers">): Promise<MessageId[]>;

  /**
   * The short way in: no service, contract or dialog to set up. The messages of one `key` are received in their order, by one reader at a time over all tabs;
   * those of different keys side by side. Each key and priority is a lane: a conversation of the queue's own service that only the receiving
   * side has, with retention, group and timers as any other. END of a lane takes what was received of it, and what is unread begins the next one;
   * with `cleanup` it takes that as well. Nothing can be sent on a lane, and an empty one goes by itself.
   * With a `dedupeId` that a message had less than its `dedupeWindow` ago nothing is stored, and the result is that message's id; in a transaction that
   * is found out at the commit only. What the body has to be says the queue's option `body`.
   * Errors: QueueNotFound, ValidationFailed, NotCloneable, MessageTooLarge, Conflict (another tab has altered what the queue takes: enqueue it again).
   */
  enqueue(queue: string, body?: unknown, options?: EnqueueOptions): Promise<MessageId>;

  /** Many messages for one lane, in order; or, with `ordered: false`, for several. All or none. Errors: as `enqueue`. */
  enqueueMany(queue: string, bodies: readonly unknown[], options?: Omit<EnqueueOptions, "dedupeId">): Promise<MessageId[]>;

  /**
   * RECEIVE: ready messages of one conversation group, conversation by conversation in order; [] when there are none.
   * On a Broker they are gone when this resolves (at most once): receive in a `transaction` to handle them safely.
   * Errors: QueueNotFound, QueueDisabled, ConversationNotFound, GroupNotFound.
   */
  receive<B = any>(queue: string, options?: ReceiveOptions): Promise<Message<B>[]>;

  /**
   * BEGIN CONVERSATION TIMER: a DialogTimer message on this side, once, `timeout` milliseconds after the call; the far side hears nothing of it. It is
   * received before everything else. Replaces the pending timer of the same name; null cancels it; END cancels all. It survives a reload: what was
   * due meanwhile comes when a broker is opened.
   * Errors: ConversationNotFound, InvalidState, TimerBeyondLifetime, GroupLocked, NotCloneable, MessageTooLarge.
   */
  beginConversationTimer(conversation: ConversationRef, timeout: number | null, options?: TimerOptions): Promise<void>;

  /**
   * MOVE CONVERSATION into another group of its service: what it has unread is received there from now on, and the group that it was the
   * last one in is gone with what it knew. The far side does not hear of it. A string `to` is looked up as a handle first (that conversation's
   * group is meant), then as a group; when it is neither, a group with that id is made. In a transaction both groups are held to its end.
   * Errors: ConversationNotFound, InvalidState (SO, CO, DI and ER can be moved), GroupInvalid (another service's, or on another queue), GroupLocked.
   */
  moveConversation(conversation: ConversationRef, to: GroupRef): Promise<void>;

  /** END CONVERSATION, plain, with error or with cleanup. Every row of this side goes. Errors: ConversationNotFound, InvalidState, InvalidEndError, GroupLocked. */
  endConversation(conversation: ConversationRef, options?: EndOptions): Promise<EndResult>;

  /**
   * What the application knows about a group, a saga's state say: one structured-clone value, read and written under the group's lock,
   * committed with the messages, gone with the group's last conversation. undefined when never set.
   * Errors: GroupNotFound, ConversationNotFound, GroupLocked.
   */
  getGroupState<T = any>(group: GroupRef): Promise<T | undefined>;
  /** See `getGroupState`. Errors: GroupNotFound, ConversationNotFound, GroupLocked, NotCloneable, MessageTooLarge. */
  setGroupState(group: GroupRef, state: unknown): Promise<void>;
}

/** Options of BEGIN DIALOG. */
export interface BeginDialog {
  /** A service here. */
  from: string;
  /** A service here or a far one. */
  to: string;
  /** Default "DEFAULT". */
  contract?: string;
  /** Broker instance id of the far side, or "current" for this one. Default: as routed. */
  toBroker?: string | "current";
  /** Joins that conversation's group. At most one of the two. Default: a new group. */
  relatedConversation?: ConversationRef;
  /** Joins that group, or makes it. */
  relatedGroup?: GroupId;
  /** Milliseconds. When they are over, both sides get an Error (-8489) and send no more; both still have to END. Default: no limit. */
  lifetime?: number;
  /**
   * 1 to 128 characters. Gives the open conversation (SO, CO) that any tab began with the same `from`, `to`, `contract` and `reuse`, whatever the other
   * options; begins one when there is none. In a transaction that began one while another tab did too, the commit rejects with Conflict.
   */
  reuse?: string;
}

/** Options of `send`, and without `headers` of `sendMany`. */
export interface SendOptions {
  /** Text by name; kept with the message. The names that the error queue uses itself (`ExceptionInfo.…`, `FailedQ`, `TimeOfFailure`, `ProcessingEndpoint`, `Retries`) are refused. */
  headers?: Record<string, string>;
  /**
   * Milliseconds from the commit until it is sent, or comes into the queue; 0 is once the call has resolved. It takes its number then, as if sent then. What
   * can't go where it was to go then is in the error queue.
   */
  delay?: number;
  /** The same as an instant: a Date, or epoch milliseconds; one in the past is as good as now. At most one of the two. */
  deliverAt?: Date | number;
  /** Aborts until the storage transaction is issued: the call then rejects with the signal's reason. */
  signal?: AbortSignal;
}

/** Options of `enqueue`, and without `dedupeId` of `enqueueMany`. */
export interface EnqueueOptions extends SendOptions {
  /** What keeps an order of its own, an order's number say; at most 1 024 characters. Default: the whole queue is one lane, one message at a time over all tabs. */
  key?: string;
  /** Default true. false: any order, side by side in sixteen lanes of the broker's own choosing. Not together with `key`. */
  ordered?: boolean;
  /** At most 1 024 characters. Of one queue, whatever the key. */
  dedupeId?: string;
  /** Milliseconds from the commit, whether the message has been received or not. Default 300 000. */
  dedupeWindow?: number;
  /** 1 to 10, higher first, default 5. Each priority of a key is a lane of its own. */
  priority?: number;
}

/** One of the messages of `sendMany`. */
export interface OutgoingMessage {
  /** Default "DEFAULT". */
  messageType?: string;
  /** Any structured-clone value that the message type's validation accepts. Default: no body. */
  body?: unknown;
  /** As in {@link SendOptions}. */
  headers?: Record<string, string>;
}

/** Options of `receive`. */
export interface ReceiveOptions {
  /** At most this many, 1 or more, whatever their size. Default: all that the one group has ready, up to 10 000 rows and 64 MiB. */
  top?: number;
  /** Only this conversation, in delayed retry or not. At most one of the two. */
  conversation?: ConversationRef;
  /** Only this group. Those of its conversations that are in delayed retry are passed over, as without a filter. */
  group?: GroupId;
  /** Milliseconds to wait for something to come; Infinity: until it comes. Absent or 0: do not wait. When the time is over the result is []. */
  timeout?: number;
  /** Aborts until the storage transaction is issued. */
  signal?: AbortSignal;
}

/** Options of `endConversation`. Without `error` and `cleanup` the far side gets an EndDialog. */
export interface EndOptions {
  /** END WITH ERROR: the far side gets an Error with it. */
  error?: {
    /** A whole number above 0. */
    code: number;
    /** 1 to 3 000 characters. */
    description: string;
  };
  /** END WITH CLEANUP: the far side is not told. */
  cleanup?: boolean;
  /** Copies every row of this side, retained ones included, to the archive before they go, in the same transaction. Default: as the queue's `archive`. */
  archive?: boolean;
}

/** The DialogTimer's body is { name, body } when either is given, else undefined. */
export interface TimerOptions {
  /** At most 128 characters; each name is a timer of its own. Default "". */
  name?: string;
  /** Cloned at the call, as a message's. */
  body?: unknown;
}

/** What END threw away unread, pending timers included, so that nothing is lost silently; and what it copied to the archive. */
export interface EndResult {
  /** Messages that nobody had received. */
  discarded: number;
  /** Rows that were copied. */
  archived: number;
}

/**
 * A conversation endpoint as it was begun; `info` has the present. One that a Transaction gave works in it while it is open, and on the broker
 * after the commit; after a rollback it is ConversationNotFound. It can't be sent or cloned: send its handle.
 */
export interface Conversation {
  /** Names this endpoint. */
  readonly handle: Handle;
  /** Shared by both sides. */
  readonly conversationId: string;
  /** The group on this side. */
  readonly groupId: GroupId;
  /** This side began it. */
  readonly isInitiator: boolean;
  /** The service on this side. */
  readonly service: string;
  /** The service at the other end. */
  readonly farService: string;
  /** The conversation's contract. */
  readonly contract: string;
  /** SEND on this conversation; see {@link Verbs.send}. */
  send(messageType: string, body?: unknown, options?: SendOptions): Promise<MessageId>;
  /** See {@link Verbs.sendMany}. */
  sendMany(messages: readonly OutgoingMessage[], options?: Omit<SendOptions, "headers">): Promise<MessageId[]>;
  /** `receive` from its queue, for this conversation only. */
  receive<B = any>(options?: Omit<ReceiveOptions, "conversation" | "group">): Promise<Message<B>[]>;
  /** See {@link Verbs.beginConversationTimer}. */
  beginTimer(timeout: number | null, options?: TimerOptions): Promise<void>;
  /** MOVE CONVERSATION; see {@link Verbs.moveConversation}. `groupId` still says where it was begun; `info` has the present. */
  moveTo(group: GroupRef): Promise<void>;
  /** END CONVERSATION; see {@link Verbs.endConversation}. */
  end(options?: EndOptions): Promise<EndResult>;
  /** The endpoint's row, or null when it is gone. */
  info(): Promise<ConversationEndpoint | null>;
}

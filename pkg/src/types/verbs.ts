import type { ConversationEndpoint, Message } from "./messages.js";

/** UUID of a conversation endpoint; opaque. */
export type Handle = string;
/** UUID of a conversation group. */
export type GroupId = string;
/** UUID of a message. */
export type MessageId = string;

/** A handle, a Conversation, or a received message: `tx.send(message, "Reply", …)` answers it. */
export type ConversationRef = Handle | { readonly handle: Handle } | { readonly conversationHandle: Handle };
/** A group's id, or a conversation in it by handle or object. A string is looked up as a handle first. */
export type GroupRef = GroupId | { readonly handle: Handle } | { readonly conversationHandle: Handle };

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
   * Errors: ServiceNotFound, ContractNotFound, ConversationNotFound, GroupInvalid, GroupLocked, InvalidLifetime.
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
   * RECEIVE: ready messages of one conversation group, conversation by conversation in order; [] when there are none.
   * On a Broker they are gone when this resolves (at most once): receive in a `transaction` to handle them safely.
   * Errors: QueueNotFound, QueueDisabled, ConversationNotFound, GroupNotFound, NotSupported (a `timeout` above 0).
   */
  receive<B = any>(queue: string, options?: ReceiveOptions): Promise<Message<B>[]>;

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
  /** Milliseconds. Default: no limit. */
  lifetime?: number;
}

export interface SendOptions {
  /** Text by name; kept with the message. The names that the error queue uses itself (`ExceptionInfo.…`, `FailedQ`, `TimeOfFailure`, `ProcessingEndpoint`, `Retries`) are refused. */
  headers?: Record<string, string>;
  /** Aborts until the storage transaction is issued: the call then rejects with the signal's reason. */
  signal?: AbortSignal;
}

export interface OutgoingMessage {
  /** Default "DEFAULT". */
  messageType?: string;
  body?: unknown;
  headers?: Record<string, string>;
}

export interface ReceiveOptions {
  /** At most this many, 1 or more. Default: all that the one group has ready, up to 10 000 rows and 64 MiB. */
  top?: number;
  /** Only this conversation. At most one of the two. */
  conversation?: ConversationRef;
  /** Only this group. */
  group?: GroupId;
  /** Milliseconds to wait. Absent or 0: do not wait; waiting is not in this release (NotSupported). */
  timeout?: number;
  /** Aborts until the storage transaction is issued. */
  signal?: AbortSignal;
}

export interface EndOptions {
  /** END WITH ERROR: code > 0, description of 1 to 3 000 characters. */
  error?: { code: number; description: string };
  /** END WITH CLEANUP: the far side is not told. */
  cleanup?: boolean;
  /** Copies every row of this side, retained ones included, to the archive before they go, in the same transaction. Default: as the queue's `archive`. */
  archive?: boolean;
}

/** What END threw away unread, so that nothing is lost silently, and what it copied to the archive. */
export interface EndResult {
  discarded: number;
  archived: number;
}

/**
 * A conversation endpoint as it was begun; `info` has the present. One that a Transaction gave works in it while it is open, and on the broker
 * after the commit; after a rollback it is ConversationNotFound. It can't be sent or cloned: send its handle.
 */
export interface Conversation {
  readonly handle: Handle;
  /** Shared by both sides. */
  readonly conversationId: string;
  readonly groupId: GroupId;
  readonly isInitiator: boolean;
  readonly service: string;
  readonly farService: string;
  readonly contract: string;
  /** SEND on this conversation; see {@link Verbs.send}. */
  send(messageType: string, body?: unknown, options?: SendOptions): Promise<MessageId>;
  /** See {@link Verbs.sendMany}. */
  sendMany(messages: readonly OutgoingMessage[], options?: Omit<SendOptions, "headers">): Promise<MessageId[]>;
  /** `receive` from its queue, for this conversation only. */
  receive<B = any>(options?: Omit<ReceiveOptions, "conversation" | "group">): Promise<Message<B>[]>;
  /** MOVE CONVERSATION; see {@link Verbs.moveConversation}. `groupId` still says where it was begun; `info` has the present. */
  moveTo(group: GroupRef): Promise<void>;
  /** END CONVERSATION; see {@link Verbs.endConversation}. */
  end(options?: EndOptions): Promise<EndResult>;
  /** The endpoint's row, or null when it is gone. */
  info(): Promise<ConversationEndpoint | null>;
}

import "./disposable.js";
import type { Definitions, QueueOptions, ServiceChange } from "./definitions.js";
import type { DelayedDeliverySettings, DelayedMessages } from "./delayed.js";
import type { Activation, ActivationOptions, Handler } from "./activation.js";
import type { BrokerStats, ConversationEndpoint, ConversationGroup, ConversationState, FailedFilter, FailedMessage, Message, QueueInfo, RowFilter, Rows, TransmissionRow } from "./messages.js";
import type { Delivery, Route } from "./transmission.js";
import type { BeginDialog, Conversation, ConversationRef, GroupId, Handle, MessageId, SendOptions, Verbs } from "./verbs.js";

/** Where the wasm comes from: its address, a response, its bytes, or a module that is compiled already. */
export type WasmSource = URL | string | Response | Promise<Response> | BufferSource | WebAssembly.Module;

/** Options of `openBroker`. */
export interface OpenOptions {
  /** Idempotent, as with `broker.define`. */
  definitions?: Definitions;
  /** IndexedDB transaction durability. Default "strict": the browser is asked to flush before a promise resolves. */
  durability?: "strict" | "relaxed";
  /** Default "indexeddb". "memory": this Broker only, gone with it; for tests, and where there is no IndexedDB. */
  storage?: "indexeddb" | "memory";
  /** Of delayed delivery. */
  delayedDelivery?: DelayedDeliverySettings;
  /** Replaces the wall clock, for tests. Default: the wall clock. */
  clock?: Clock;
  /** Milliseconds that a verb waits for a group held by another before GroupLocked; Infinity: as long as it takes. Default 5 000. */
  lockTimeout?: number;
  /** The largest body, in bytes as estimated at the call. Default 128 MiB. */
  maxMessageBytes?: number;
  /** Where the wasm comes from, when the bundler's `new URL(..., import.meta.url)` won't do. */
  wasm?: WasmSource;
  /** Gives up opening: rejects with the signal's reason. */
  signal?: AbortSignal;
}

/** A clock, for tests. Brokers of one database must be given the same object. */
export interface Clock {
  /** Epoch milliseconds. A clock that throws, or gives anything else, is replaced by the wall clock for that call. */
  now(): number;
  /**
   * Resolves after `ms` milliseconds: waits for a group go through it. `signal` is aborted when nobody waits any more. Without it, and when it
   * throws or rejects, waits run on real time. The time that opening a database may take is always real.
   */
  sleep?(ms: number, signal: AbortSignal): Promise<void>;
}

/** Reading without locks, from what is committed. */
export interface Views {
  /** SELECT: every status, in queuing order. Iterating reads pages of 256 rows or 4 MiB, each a snapshot; no row comes twice. Errors: QueueNotFound. */
  select<B = any>(queue: string, filter?: RowFilter): Rows<Message<B>>;
  /** Every status too: give { status: 1 } to count what waits. Errors: QueueNotFound. */
  count(queue: string, filter?: RowFilter): Promise<number>;
  /** Every queue, "error" included, by name. */
  queues(): Promise<QueueInfo[]>;
  /** Looks nothing up: a handle without a conversation shows when it is used. */
  conversation(conversation: ConversationRef): Pick<Conversation, "handle" | "send" | "sendMany" | "receive" | "beginTimer" | "moveTo" | "end" | "info">;
  /** The endpoints that are here, of both sides. What of `filter` is absent matches any. */
  conversations(filter?: {
    /** The endpoint's own service. */
    service?: string;
    /** The endpoint's state. */
    state?: ConversationState;
    /** In this group. */
    group?: GroupId;
    /** Both sides of this conversation, as far as they are here. */
    conversationId?: string;
    /** Begun before this instant: a Date, or epoch milliseconds. */
    createdBefore?: Date | number;
  }): Rows<ConversationEndpoint>;
  /** Conversation groups and who holds them. Those that conversations were put into come first. */
  groups(filter?: {
    /** Of this service. */
    service?: string;
  }): Rows<ConversationGroup>;
  /**
   * The failed messages, in the order in which they came to the error queue: "error", and those that `delayedDelivery.errorQueue` names or named. What could not be read has 0 `attempts`, and the body `{ store, key, record, bodies }`:
   * the record as it was, and the large bodies that belonged to it, each with its number.
   */
  failed(filter?: FailedFilter): Rows<FailedMessage>;
  /** What waits for its time, to look at, cancel and reschedule. */
  readonly delayed: DelayedMessages;
  /** What was sent and has not arrived, and why. */
  transmissionQueue(filter?: {
    /** Only what this endpoint sent. */
    conversation?: ConversationRef;
  }): Rows<TransmissionRow>;
  /** What this Broker has done, and what the database holds: counters and a few short reads, at any number of messages. */
  stats(): Promise<BrokerStats>;
  /** Rows that END copied with `archive: true`, in the order of the copying. */
  archive(filter?: RowFilter & {
    /** From this queue. */
    queue?: string;
    /** Of this conversation, both sides. */
    conversationId?: string;
  }): Rows<Message & {
    /** When END copied the row. */
    archivedAt: Date;
    /** The queue that it was in. */
    queue: string;
  }>;
}

/** What `work` of `broker.transaction` gets. */
export interface Transaction extends Verbs, Views {
  /**
   * Locks the next group of the queue that has something to receive and that nobody holds yet, this transaction included, until the transaction
   * ends. Nothing is received. null: there is none, or none came within `timeout` (milliseconds; absent: do not wait; Infinity: until one comes).
   * Errors: QueueNotFound, QueueDisabled, TransactionClosed; an abort of `signal` rejects with its reason.
   */
  getConversationGroup(queue: string, options?: {
    /** How long to wait, in milliseconds. */
    timeout?: number;
    /** Ends the waiting. */
    signal?: AbortSignal;
  }): Promise<GroupId | null>;
  /** Aborted when it can no longer commit: its own signal, a failure of `work`, `close`, a lost lock, a page that is put away or frozen. Hand it to fetch. */
  readonly signal: AbortSignal;
}

/** An open broker. Its calls are transactions of their own; `transaction` joins several. */
export interface Broker extends Verbs, Views, EventTarget, AsyncDisposable {
  /** The name that it was opened by, which is that of its IndexedDB database. */
  readonly name: string;
  /** UUID made when the database was created: another one than last time means that the browser threw the data away. */
  readonly instanceId: string;

  /** Adds message types, contracts, queues, services and priorities, all or none. Errors: DefinitionConflict, MessageTypeNotFound, ContractNotFound, QueueNotFound. */
  define(definitions: Definitions): Promise<Broker>;
  /** ALTER QUEUE. Errors: QueueNotFound. */
  alterQueue(name: string, options: QueueOptions): Promise<void>;
  /**
   * DROP QUEUE, and its implicit service with it. Errors: QueueNotFound; InUse while another service is on it, while conversations of its
   * implicit service, or Errors of a dropped service that are yet to be transmitted, are left, or while a priority names it; InvalidArgument for "error".
   */
  dropQueue(name: string): Promise<void>;
  /**
   * ALTER SERVICE. `queue`: the service goes there with every row, conversation and group that it has; what waited because the old queue was off
   * comes in if the new one is on. `addContracts`, `dropContracts`: for new conversations; those that the service takes part in go on. What it has
   * already, or has no more, is no error. `define` wants to be told the new queue and contracts from then on.
   * Errors: ServiceNotFound, QueueNotFound, ContractNotFound, InvalidArgument (a queue's implicit service goes with its queue).
   */
  alterService(name: string, change: ServiceChange): Promise<void>;
  /**
   * DROP SERVICE: its conversations end and their rows go, without a copy in the archive; the far sides get an Error with code −8470. In one
   * transaction, which takes longer the more conversations there are. Errors: ServiceNotFound, GroupLocked; InUse while a priority names the
   * service; InvalidArgument (a queue's implicit service goes with its queue).
   */
  dropService(name: string): Promise<void>;

  /**
   * Commits when `work` resolves, rolls back when it rejects (and rejects with the same reason). `work` may await
   * anything, fetch included: locks are held meanwhile, no IndexedDB transaction is. An abort of `signal` rolls back
   * and rejects with its reason; once the commit is on its way the call settles with its outcome.
   * Errors of the commit: those of its verbs, TransactionClosed when another reader was faster; when the page was put away or frozen
   * meanwhile (`details.reason` "suspended"); when the tab had shown no sign of life for 150 s and another one has taken its group over ("robbed").
   */
  transaction<T>(work: (tx: Transaction) => Promise<T> | T, options?: {
    /** Rolls back. Default: none. */
    signal?: AbortSignal;
  }): Promise<T>;

  /**
   * Service Broker's activation: readers start while there is work, up to `maxReaders`, each with messages of one group and a transaction of its own,
   * which commits when `handler` has resolved. Several tabs that activate one queue share the work; each message is handled once. What a failure means
   * is `recoverability`. Errors, of `done`: QueueNotFound, Closed. A queue that is off, or whose `activation` is, is waited for.
   */
  activate<B = any>(queue: string, handler: Handler<B>, options?: ActivationOptions): Activation;
  /**
   * Handles what is ready now as `activate` would, then resolves, without waiting for delayed retries: for service workers and tests. Resolves with the
   * number of messages that were handled and that failed for now, and of those that are still ready. Errors: QueueNotFound, and
   * those of the store while it looks for messages. A commit that the store fails ends it early: with `critical-error`, and the rest in `remaining`.
   */
  drain<B = any>(queue: string, handler: Handler<B>, options?: ActivationOptions): Promise<{
    /** Messages whose transactions committed. */
    handled: number;
    /** Messages that wait for a retry, or were moved. */
    failed: number;
    /** Messages of status 1 in the queue now. */
    remaining: number;
  }>;
  /**
   * Begins a dialog, sends one message, waits for the first answer and ENDs. Errors: Timeout after `timeout` milliseconds (default 30 000); RemoteError when
   * the answer is an Error, or the far side ends without one; those of `beginDialog` and `send`. An abort of `signal` rejects with its reason.
   */
  request(dialog: BeginDialog & {
    /** How long to wait, in milliseconds. Default 30 000. */
    timeout?: number;
    /** Gives up waiting, and ENDs. */
    signal?: AbortSignal;
  }, messageType: string, body?: unknown, options?: SendOptions): Promise<Message>;

  /**
   * Moves messages from the error queue back to where they failed, ahead of the others there, under their old ids and numbers. Default: all. What was ENDed
   * or dropped meanwhile stays, with an event "message-failed"; so does what could not be read. Resolves with the number of messages moved.
   */
  returnToSource(filter?: FailedFilter): Promise<number>;
  /** Deletes messages from the error queue; {} means all. Resolves with their number. */
  discardFailed(filter: FailedFilter): Promise<number>;
  /** Deletes archive rows older than `before`; resolves with their number. */
  purgeArchive(before: Date | number): Promise<number>;

  /**
   * Where messages for far services go: those for `service`, or with "*" those for every one without a route of its own. Nothing of a route is stored: give
   * it again after a reload, in each window and worker that is to transmit; rows wait until then. One of the contexts that have a route transmits by it.
   * Dispose it, or `remove`, to take it back: calls under way are not waited for, and what they were about is handed over again by another one.
   * Errors: InvalidArgument; AlreadyExists when this Broker has a route for the service.
   */
  route(route: Route): Promise<AsyncDisposable & {
    /** Takes it back. */
    remove(): Promise<void>;
  }>;
  /**
   * Hands what arrived from outside to the broker: an Envelope, or an array of them. One {@link Delivery} per envelope, in order, after the commit. Whatever else it
   * is given is refused by name, never thrown, does nothing, and fires "message-dropped". What comes twice or out of turn is sorted out here; what the store
   * can't keep now is "later". docs/wire.md has the envelope, and what each Delivery means.
   * Errors: Closed; InvalidArgument for a `context` that is none.
   */
  deliver(envelopes: unknown, context?: {
    /** The peer's broker id, where the transport has proved it: envelopes that say they are another's are refused. */
    from?: string;
  }): Promise<Delivery[]>;
  /**
   * One full attempt to transmit what waits now, what has failed before included. Where another context transmits it is waited for; one that does not get on
   * for 5 s is not. Resolves with the number of messages that have left and of those that are still in the transmission queue. Errors: those of the store.
   * An abort of `signal` rejects with its reason; the attempt goes on.
   */
  transmit(options?: {
    /** Gives up waiting. */
    signal?: AbortSignal;
  }): Promise<{
    /** Messages that have left, or were accepted by a transport. */
    sent: number;
    /** Messages in the transmission queue. */
    remaining: number;
  }>;

  /**
   * Does what is due now: delayed messages, timers, lifetimes and transmissions; waits after a failure end, ids of `enqueue` expire, and retained rows that are too old go. Resolves with the number of messages that came of it. The same happens by itself, in every context
   * with an open broker; each row is done once. It does not wait longer than 5 s for a `delayedDelivery.store` to take what is sent. Errors: StorageCorrupt, after everything else that is due.
   */
  poll(): Promise<number>;

  /** Stops the poller, rolls open transactions back, lets running commits finish, leaves no timer, lock or channel behind. Idempotent. */
  close(): Promise<void>;

  /** Listens to one of {@link BrokerEvents}: `event.detail` has its shape. */
  addEventListener<K extends keyof BrokerEvents>(type: K, listener: (event: CustomEvent<BrokerEvents[K]>) => unknown, options?: AddEventListenerOptions | boolean): void;
  /** As every EventTarget has it. */
  addEventListener(type: string, listener: EventListenerOrEventListenerObject | null, options?: AddEventListenerOptions | boolean): void;
}

/**
 * Each fires in every open broker of the origin, except "close", and at most once per commit for what it names: a queue, an endpoint, a message.
 * Other tabs may hear of several commits at once. Hints: rows and `stats()` are the truth.
 */
export interface BrokerEvents {
  /** What a commit touched; everything, when a page is back that was put away or frozen. */
  "changed": {
    /** The queues whose rows or options changed, by name. */
    queues: readonly string[];
    /** Some conversation began, changed or went. */
    conversations: boolean;
    /** The delayed messages changed. */
    delayed: boolean;
    /** The transmission queue changed. */
    transmission: boolean;
    /** The archive changed. */
    archive: boolean;
  };
  /** Something became ready. */
  "message-enqueued": {
    /** Where. */
    queue: string;
  };
  /** A queue was switched off. */
  "queue-disabled": {
    /** Which one. */
    queue: string;
    /** "altered": by alterQueue. "poison": by rollbacks. */
    reason: "poison" | "altered";
  };
  /** A message had nowhere to go any more. */
  "message-dropped": {
    /**
     * Why, in a sentence. Stored messages of one conversation that go together are told together, with their number. "corrupt": they could not be
     * read, and their record, if there was one, is in the error queue as it was.
     */
    reason: string;
    /** If it arrived from another broker: the fields of its envelope that could be read, without headers and body. */
    envelope?: unknown;
    /** What is known of the message, or of the first of several: its conversation, by the sender's handle (the receiver's if it came from another broker), and the service it was for; not its body. */
    message?: Partial<Message>;
  };
  /** Another broker, or a server, has acknowledged a message. */
  "message-transmitted": {
    /** The message. */
    messageId: MessageId;
    /** The endpoint that sent it. */
    conversationHandle: Handle;
  };
  /** Messages of an endpoint can't be transmitted for now, for a reason that is not the one before: no route, a server that is away or wants other credentials. */
  "transmission-failed": {
    /** The endpoint. */
    conversationHandle: Handle;
    /** Why, in a sentence. */
    status: string;
  };
  /** An attempt of a handler failed. */
  "message-failed": {
    /** The message. */
    messageId: MessageId;
    /** Its queue; of a delayed message where it was to go: a queue, or the handle of a conversation. */
    queue: string;
    /** Its endpoint; "" of a delayed message of `enqueue`, which has none yet. */
    conversationHandle: Handle;
    /** What was thrown: { name, message, code }. */
    error: unknown;
    /** Attempts that have failed so far. */
    attempts: number;
    /** What comes next. */
    next: "immediate" | "delayed" | "error-queue" | "rollback";
    /** When, if it is later. */
    retryAt: Date | null;
  };
  /** Something is wrong that is no message's fault. It is tried again after a pause, which grows. */
  "critical-error": {
    /** What was being done. "recovery": messages were received, handled or counted. "fetch": what was due was looked for. "transmission": a route. */
    source: "store" | "fetch" | "dispatch" | "recovery" | "transmission";
    /** What it failed with: { name, message, code }. */
    error: unknown;
  };
  /** An endpoint went into another state. */
  "conversation-changed": {
    /** The endpoint. */
    handle: Handle;
    /** Its new state. CD: it is gone. */
    state: ConversationState;
  };
  /** This broker is closed: every later call rejects with Closed. */
  "close": {
    /** By whom: `close`, `deleteBroker`, a newer version of the package in another tab, the browser. */
    reason: "closed" | "deleted" | "upgraded-elsewhere" | "storage-lost";
  };
}

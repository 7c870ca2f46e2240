import "./disposable.js";
import type { Definitions, QueueOptions } from "./definitions.js";
import type { ConversationEndpoint, ConversationState, Message, QueueInfo, RowFilter, Rows, TransmissionRow } from "./messages.js";
import type { Conversation, ConversationRef, GroupId, Handle, Verbs } from "./verbs.js";

/** Where the wasm comes from: its address, a response, its bytes, or a module that is compiled already. */
export type WasmSource = URL | string | Response | Promise<Response> | BufferSource | WebAssembly.Module;

export interface OpenOptions {
  /** Idempotent, as with `broker.define`. */
  definitions?: Definitions;
  /** IndexedDB transaction durability. Default "strict": the browser is asked to flush before a promise resolves. */
  durability?: "strict" | "relaxed";
  /** Default "indexeddb". "memory": this Broker only, gone with it; for tests, and where there is no IndexedDB. */
  storage?: "indexeddb" | "memory";
  /** Replaces the wall clock, for tests. */
  clock?: Clock;
  /** Milliseconds that a verb waits for a group held by another before GroupLocked. Default 5 000. */
  lockTimeout?: number;
  /** The largest body, in bytes as estimated at the call. Default 128 MiB. */
  maxMessageBytes?: number;
  /** Where the wasm comes from, when the bundler's `new URL(..., import.meta.url)` won't do. */
  wasm?: WasmSource;
  /** Gives up opening: rejects with the signal's reason. */
  signal?: AbortSignal;
}

export interface Clock {
  /** Epoch milliseconds. */
  now(): number;
  sleep?(ms: number, signal: AbortSignal): Promise<void>;
}

/** Reading without locks, from what is committed. */
export interface Views {
  /** SELECT: every status, in queuing order. Iterating reads pages of 256 rows or 4 MiB, each a snapshot; no row comes twice. Errors: QueueNotFound. */
  select<B = any>(queue: string, filter?: RowFilter): Rows<Message<B>>;
  /** Every status too: give { status: 1 } to count what waits. Errors: QueueNotFound. */
  count(queue: string, filter?: RowFilter): Promise<number>;
  queues(): Promise<QueueInfo[]>;
  /** Looks nothing up: a handle without a conversation shows when it is used. */
  conversation(conversation: ConversationRef): Pick<Conversation, "handle" | "send" | "sendMany" | "receive" | "beginTimer" | "end" | "info">;
  conversations(filter?: { service?: string; state?: ConversationState; group?: GroupId; conversationId?: string; createdBefore?: Date | number }): Rows<ConversationEndpoint>;
  transmissionQueue(filter?: { conversation?: ConversationRef }): Rows<TransmissionRow>;
  /** Rows that END copied with `archive: true`. */
  archive(filter?: RowFilter & { queue?: string; conversationId?: string }): Rows<Message & { archivedAt: Date; queue: string }>;
}

/** What `work` of `broker.transaction` gets. */
export interface Transaction extends Verbs, Views {
  /** Aborted when it can no longer commit: its own signal, a failure of `work`, `close`. Hand it to fetch. */
  readonly signal: AbortSignal;
}

/** An open broker. Its calls are transactions of their own; `transaction` joins several. */
export interface Broker extends Verbs, Views, EventTarget, AsyncDisposable {
  readonly name: string;
  /** UUID made when the database was created: another one than last time means that the browser threw the data away. */
  readonly instanceId: string;

  /** Adds message types, contracts, queues, services and priorities, all or none. Errors: DefinitionConflict, MessageTypeNotFound, ContractNotFound, QueueNotFound. */
  define(definitions: Definitions): Promise<Broker>;
  /** ALTER QUEUE. Errors: QueueNotFound. */
  alterQueue(name: string, options: QueueOptions): Promise<void>;

  /**
   * Commits when `work` resolves, rolls back when it rejects (and rejects with the same reason). `work` may await
   * anything, fetch included: locks are held meanwhile, no IndexedDB transaction is. An abort of `signal` rolls back
   * and rejects with its reason; once the commit is on its way the call settles with its outcome.
   */
  transaction<T>(work: (tx: Transaction) => Promise<T> | T, options?: { signal?: AbortSignal }): Promise<T>;

  /** Deletes archive rows older than `before`; resolves with their number. */
  purgeArchive(before: Date | number): Promise<number>;

  /**
   * Does what is due now: timers and lifetimes. Resolves with the number of messages that came of it. The same happens by itself, in every context
   * with an open broker; each row is done once. Errors: StorageCorrupt, after everything else that is due.
   */
  poll(): Promise<number>;

  /** Stops the poller, rolls open transactions back, lets running commits finish, leaves no timer, lock or channel behind. Idempotent. */
  close(): Promise<void>;

  addEventListener<K extends keyof BrokerEvents>(type: K, listener: (event: CustomEvent<BrokerEvents[K]>) => unknown, options?: AddEventListenerOptions | boolean): void;
  addEventListener(type: string, listener: EventListenerOrEventListenerObject | null, options?: AddEventListenerOptions | boolean): void;
}

/** Each fires at most once per commit, in every open broker of the origin, except "close". Hints: rows are the truth. */
export interface BrokerEvents {
  /** What a commit touched. */
  "changed": { queues: readonly string[]; conversations: boolean; delayed: boolean; transmission: boolean; archive: boolean };
  /** Something became ready. */
  "message-enqueued": { queue: string };
  "queue-disabled": { queue: string; reason: "poison" | "altered" };
  /** A message had nowhere to go any more. */
  "message-dropped": { reason: string; envelope?: unknown; message?: Partial<Message> };
  "conversation-changed": { handle: Handle; state: ConversationState };
  /** This broker is closed: every later call rejects with Closed. */
  "close": { reason: "closed" | "deleted" | "upgraded-elsewhere" | "storage-lost" };
}

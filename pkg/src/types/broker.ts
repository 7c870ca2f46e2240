import "./disposable.js";
import type { Definitions, QueueOptions, ServiceChange } from "./definitions.js";
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
  conversation(conversation: ConversationRef): Pick<Conversation, "handle" | "send" | "sendMany" | "receive" | "moveTo" | "end" | "info">;
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
   */
  transaction<T>(work: (tx: Transaction) => Promise<T> | T, options?: { signal?: AbortSignal }): Promise<T>;

  /** Deletes archive rows older than `before`; resolves with their number. */
  purgeArchive(before: Date | number): Promise<number>;

  /** Rolls open transactions back, lets running commits finish, leaves no timer, lock or channel behind. Idempotent. */
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

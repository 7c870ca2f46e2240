// The lower side: the one class that the wasm exports, and what crosses the boundary. Times are epoch milliseconds.
import type { BrokerErrorCode } from "./types/errors.js";
import type { BrokerEvents } from "./types/broker.js";
import type { StandardSchemaV1 } from "./types/definitions.js";
import type { DelayedDeliverySettings, TransactionMode } from "./types/delayed.js";
import type { Acknowledgement, MessageEnvelope } from "./types/transmission.js";
import type { BrokerStats, ConversationEndpoint, ConversationGroup, QueueInfo, TransmissionRow } from "./types/messages.js";

export type RawValidation = "N" | "E" | "J" | "S";
export type Headers = Record<string, string>;
/** null to begin with, then the `next` of the page before. */
export type Token = unknown;
export interface Page<R> { rows: R[]; next: Token }

export interface RawConversation {
  handle: string; conversationId: string; groupId: string; isInitiator: boolean; service: string; farService: string; contract: string;
}
export interface RawQueueOptions {
  status?: "on" | "off"; retention?: boolean; maxRows?: number; maxAge?: number;
  poisonMessageHandling?: boolean; archive?: boolean; activation?: "on" | "off"; body?: RawValidation;
}
export interface RawService { queue?: string; contracts?: string[] }
export interface RawServiceChange { queue?: string; addContracts?: string[]; dropContracts?: string[] }
export interface RawPriority { contract?: string; localService?: string; remoteService?: string; level: number }
/** Every list in the user's own order. */
export interface RawDefinitions {
  messageTypes: [name: string, validation: RawValidation][];
  contracts: [name: string, entries: [messageType: string, sentBy: string][]][];
  queues: [name: string, options: RawQueueOptions][];
  services: [name: string, options: RawService][];
  priorities: [name: string, rule: RawPriority][];
}
export interface RawFilter {
  status?: number[]; conversation?: string; group?: string; messageType?: string; after?: number; limit?: number; reverse?: boolean;
}
export interface RawFailedFilter { messageId?: string; failedQueue?: string; failedBefore?: number; limit?: number }
export interface RawArchiveFilter extends RawFilter { queue?: string; conversationId?: string }
export interface RawEndpointFilter { service?: string; state?: string; group?: string; conversationId?: string; createdBefore?: number }
export interface RawBeginDialog {
  from?: string; to?: string; contract?: string; toBroker?: string; relatedConversation?: string; relatedGroup?: string; lifetime?: number; reuse?: string;
}
/** At most one of the two, in milliseconds; neither: now. */
export interface RawWhen { delay?: number | undefined; deliverAt?: number | undefined }
export interface RawDelayedFilter { destination?: string; before?: number; limit?: number }
export interface RawDelayed {
  messageId: string; destination: string; time: number; headers: Headers | null; body: unknown; packing: number; retries: number;
  /** Names and values, one after the other. */
  properties: string[];
}
/** A message that a store of the application's own gives. */
export interface RawGivenDelayed extends RawDelayed { size: number }
/** null: nothing is due. `problem`: what it gave is no message. */
export type RawFetched = null | RawGivenDelayed | (Pick<RawGivenDelayed, "body" | "packing" | "size"> & { messageId?: string; problem: string });
/** A store of the application's own, for the wasm side. A method that it lacks is not there. Rejections are `{ message, unrecoverable, cause }`. */
export interface RawDelayedStore {
  setupInfrastructure?(endpointName: string, transactionMode: string, instanceId: string, signal: AbortSignal): Promise<void>;
  initialize(endpointName: string, transactionMode: TransactionMode, signal: AbortSignal): Promise<void>;
  store(message: RawDelayed, signal: AbortSignal): Promise<boolean>;
  remove(message: RawDelayed, signal: AbortSignal): Promise<boolean>;
  incrementFailureCount(message: RawDelayed, nextAttempt: number, signal: AbortSignal): Promise<boolean>;
  next(signal: AbortSignal): Promise<number | null>;
  fetchNextDueTimeout(at: number, signal: AbortSignal): Promise<RawFetched>;
  release(message: RawDelayed, signal: AbortSignal): Promise<void>;
  select?(destination: string | undefined, before: number | undefined, limit: number | undefined, signal: AbortSignal): Promise<RawGivenDelayed[]>;
  count?(signal: AbortSignal): Promise<number>;
}
/** `timeout`: milliseconds to wait; absent or 0: not at all. */
export interface RawEnqueue extends RawWhen { key?: string; ordered?: boolean; dedupeId?: string; dedupeWindow?: number; priority?: number }
/** `activated`: refused while the queue's activation is off. */
export interface RawReceive { top?: number; conversation?: string; group?: string; timeout?: number; activated?: boolean }
/** `after`: milliseconds, of what is put off. */
export interface RawFailure {
  kind: "ordinary" | "unrecoverable" | "later"; after?: number; name: string; message: string; code?: BrokerErrorCode; messageId: string; queue: string;
  stack: string; endpoint: string;
}
export interface RawRecoverability { immediateRetries?: number; delayedRetries?: number; timeIncrease?: number; finally?: "error-queue" | "retry-forever" | "rollback" }
export interface RawRecovered { attempts: number; next: BrokerEvents["message-failed"]["next"]; retryAt: number | null }
export interface RawEnd { error?: { code: number; description: string }; cleanup?: boolean; archive?: boolean }

export interface RawEndpoint extends Omit<ConversationEndpoint, "lifetime" | "dialogTimer" | "createdAt"> {
  lifetime: number | null; dialogTimer: number | null; createdAt: number;
}
export interface RawStats extends Omit<BrokerStats, "activations" | "breakers" | "oldestReady" | "oldestTransmission"> {
  oldestReady: number | null; oldestTransmission: number | null;
  /** Storing, fetching, dispatching. */
  breakers: BrokerStats["breakers"]["fetch"][];
}
export interface RawTransmissionRow extends Omit<TransmissionRow, "enqueueTime" | "nextAttempt"> {
  enqueueTime: number; nextAttempt: number | null; packing: number;
}

/** `count` rows of one conversation endpoint. A column is one value for all of them, or an array with one value each. */
export interface Batch {
  count: number; status: 0 | 1 | 2 | 3; priority: number;
  /** Of the first row; both rise by 1. */
  order: number; sequence: number;
  groupId: string; handle: string; conversationId: string; serviceName: string; contract: string; key: string | null;
  types: string | string[]; validations: RawValidation | RawValidation[];
  /** 16 bytes a row. */
  ids: Uint8Array;
  times: number | number[];
  /** null: all empty. */
  headers: null | (Headers | null | undefined)[];
  bodies: unknown[];
  /** null: all 0. */
  packings: null | number[];
  /** Of the first row. */
  attempts: number; retryAt: number | null; lastError: string | null;
  archivedAt?: number; queue?: string;
  /** In the error queue: where and how it failed. */
  failed?: { queue: string; name: string; message: string; stack: string; endpoint: string; at: number; attempts: number };
  /** The rows are to be given last to first. */
  reverse?: boolean;
}

/** An envelope on its way out, with its body as it is stored. */
export interface RawEnvelope extends Omit<MessageEnvelope, "v" | "kind" | "headers" | "body" | "bodyEncoding" | "bodyType"> {
  headers: Headers | null; body: unknown; packing: number;
}
/** `problem`: why it can't be taken. */
export interface RawReply { messageType: string; body: unknown; packing: number; size: number; problem?: string }
export type RawSendResult =
  | { status: "acknowledged"; upTo: number | undefined; fromBroker: string | undefined; reply?: RawReply }
  | { status: "accepted"; retryAfter: number }
  | { status: "retry"; after?: number | undefined; reason: string }
  | { status: "refused"; code: number; description: string; ends: boolean; httpStatus?: string; httpBody?: string };
/** A transport of the application's, for the wasm side. Rejections are `{ message }`. */
export interface RawTransport {
  send(envelopes: RawEnvelope[], signal: AbortSignal): Promise<RawSendResult[]>;
  /** Whether it will probably reach nobody now. */
  isSlow(): boolean;
}

/** An envelope from outside: its fields as they were, without the body, and what has become of that. */
export type RawGivenEnvelope = { fields: Record<string, unknown> } & (
  | { verdict: "fine"; body: unknown; packing: number; size: number }
  | { verdict: "large"; size: number }
  | { verdict: "malformed" | "invalid" | "unchecked"; problem: string }
);
export type RawDelivery =
  | { status: "stored" | "repeated"; acknowledgement: Omit<Acknowledgement, "v" | "kind"> | null }
  | { status: "later"; after?: number; reason: string }
  | { status: "refused"; reason: string; reply?: RawEnvelope };

/** What a commit, of this broker or another one of the origin, touched. */
export interface Notice {
  queues: string[]; conversations: boolean; delayed: boolean; transmission: boolean; archive: boolean;
  enqueued: string[]; states: [handle: string, state: ConversationEndpoint["state"]][];
  dropped: { reason: string; message: object; envelope?: object }[]; disabled: BrokerEvents["queue-disabled"][];
  /** Message ids, or why not, with the handles of their endpoints. */
  transmitted: [messageId: string, handle: string][]; unsent: [handle: string, status: string][];
  failed: RawFailed[]; critical: { source: BrokerEvents["critical-error"]["source"]; error: RawThrown }[];
  /** For the transmitters of other contexts. */
  outgoing: boolean;
  /** For the pollers of other contexts. */
  due: number | null;
  /** Between contexts only, and alone: a group was given back. */
  released: boolean;
}
export interface RawFailed extends RawRecovered { messageId: string; queue: string; conversationHandle: string; error: RawThrown }
export interface RawThrown { name: string; message: string; code: string | null }
export type CloseReason = BrokerEvents["close"]["reason"];

export interface RawError { code: BrokerErrorCode | "Aborted"; message: string; number?: number; retryable: boolean; details: Record<string, unknown>; cause?: unknown }

/** The verbs, of the broker and of a transaction alike. */
export interface RawVerbs {
  beginDialog(options: RawBeginDialog): Promise<RawConversation>;
  /** Gives 16 bytes of id a message, as `sendMany` does. */
  send(handles: string[], messageType: string, body: unknown, packing: number, size: number, headers: Headers | undefined, when: RawWhen | undefined, signal: AbortSignal | undefined): Promise<Uint8Array>;
  /** Columns. `messageTypes`: one for all, or one each; `packings`: undefined when all are 0; `headers`: undefined when none has any. */
  sendMany(
    handle: string, messageTypes: string | string[], bodies: unknown[], packings: Uint32Array | undefined, sizes: Float64Array,
    headers: (Headers | undefined)[] | undefined, when: RawWhen | undefined, signal: AbortSignal | undefined,
  ): Promise<Uint8Array>;
  /** Columns, as of `sendMany`; headers for all. With a `dedupeId` that is there already it gives the id of the message that has it. */
  enqueue(
    queue: string, bodies: unknown[], packings: Uint32Array | undefined, sizes: Float64Array, headers: Headers | undefined, options: RawEnqueue,
    signal: AbortSignal | undefined,
  ): Promise<Uint8Array>;
  /** With `conversation` the queue may be "": then it is the conversation's own. */
  receive(queue: string, options: RawReceive, signal: AbortSignal | undefined): Promise<Batch[]>;
  /** Without `timeout` the timer is cancelled. `body`: that of the DialogTimer. */
  beginConversationTimer(handle: string, timeout: number | undefined, name: string, body: unknown, packing: number, size: number): Promise<void>;
  /** `isConversation`: `to` is the handle of a conversation, not a text that may be anything. */
  moveConversation(handle: string, to: string, isConversation: boolean): Promise<void>;
  endConversation(handle: string, options: RawEnd): Promise<{ discarded: number; archived: number }>;
  getGroupState(group: string): Promise<{ value: unknown; packing: number }>;
  setGroupState(group: string, value: unknown, packing: number, size: number): Promise<void>;
  /** Delayed messages; they give whether it waited. */
  cancel(id: string): Promise<boolean>;
  reschedule(id: string, to: number): Promise<boolean>;
}
export interface RawTransaction extends RawVerbs {
  getConversationGroup(queue: string, timeout: number | undefined, signal: AbortSignal | undefined): Promise<string | null>;
  commit(): Promise<void>;
  /** `code`: of the broker error that the work failed with. */
  fail(code?: string): Promise<void>;
  /** null: it is lost or unstored, nothing was counted. */
  recover(failure: RawFailure, policy: RawRecoverability): Promise<RawRecovered | null>;
  rollback(): void;
  /** Calls `lost` when it was rolled back because it can't commit any more. */
  onLost(lost: (failure: unknown) => void): void;
  /** It ended by nobody's doing: its locks were taken away, or its broker was closed under it. */
  readonly isLost: boolean;
  /** Its commit failed by the storage. */
  readonly isUnstored: boolean;
}
export interface RawBroker extends RawVerbs {
  readonly instanceId: string;
  canStoreBlobs(): Promise<boolean>;
  /** One for all brokers over the connection; the wasm side never looks into it. */
  readonly validators: Map<string, StandardSchemaV1>;
  validationOf(messageType: string): RawValidation | undefined;
  /** What `enqueue` takes. */
  bodyOf(queue: string): RawValidation | undefined;
  define(definitions: RawDefinitions): Promise<void>;
  alterQueue(name: string, options: RawQueueOptions): Promise<void>;
  dropQueue(name: string): Promise<void>;
  alterService(name: string, change: RawServiceChange): Promise<void>;
  dropService(name: string): Promise<void>;
  /** Without a queue: of all queues that hold failed messages. */
  select(queue: string | undefined, filter: RawFilter, token: Token, all: boolean): Promise<Page<Batch>>;
  count(queue: string, filter: RawFilter): Promise<number>;
  queues(): Promise<QueueInfo[]>;
  conversations(filter: RawEndpointFilter, token: Token, all: boolean): Promise<Page<RawEndpoint>>;
  groups(filter: { service?: string }, token: Token, all: boolean): Promise<Page<ConversationGroup>>;
  stats(): Promise<RawStats>;
  info(handle: string): Promise<RawEndpoint | null | undefined>;
  transmissionQueue(filter: { conversation?: string }, token: Token, all: boolean): Promise<Page<RawTransmissionRow>>;
  archive(filter: RawArchiveFilter, token: Token, all: boolean): Promise<Page<Batch>>;
  purgeArchive(before: number): Promise<number>;
  delayed(filter: RawDelayedFilter, token: Token, all: boolean): Promise<Page<RawDelayed>>;
  countDelayed(): Promise<number>;
  nextDelayed(): Promise<number | null>;
  /** When something is due next, of whatever kind. */
  nextDue(): Promise<number | null>;
  poll(): Promise<number>;
  /** Messages of the error queue go back to where they failed; `discard`: they are deleted. */
  unbury(filter: RawFailedFilter, discard: boolean): Promise<number>;
  /** Conversations that handlers have put off, or that could not be transmitted, wait no longer. */
  resume(): Promise<void>;
  /** Gives the number to remove it by. Throws. */
  route(service: string, transport: RawTransport, batch: number): number;
  removeRoute(number: number): void;
  /** What was accepted and not acknowledged is offered again. */
  offerAgain(number: number): Promise<void>;
  /** `via`: the names of the routes of the transport that delivers; undefined: the application does. */
  deliver(envelopes: RawGivenEnvelope[], from: string | undefined, via: readonly string[] | undefined): Promise<RawDelivery[]>;
  /** The services that others can send to. */
  targets(): string[];
  transmit(): Promise<{ sent: number; remaining: number }>;
  /** Whether something waits that a route of this context could hand over, now or after a failure. */
  isTransmittable(): Promise<boolean>;
  /** Something goes wrong that is no message's fault: every open broker of the origin hears of it. */
  warn(source: BrokerEvents["critical-error"]["source"], name: string, message: string, code: string | undefined): void;
  begin(): RawTransaction;
  close(): Promise<void>;
}
export interface RawOpenOptions { durability: "strict" | "relaxed"; storage: "indexeddb" | "memory"; lockTimeout: number; delayed: Required<Omit<DelayedDeliverySettings, "store">>; store?: RawDelayedStore; now?: () => number; sleep?: (ms: number, signal: AbortSignal) => Promise<void> }
/** The generated module. */
export interface Glue {
  default(source: { module_or_path: unknown }): Promise<unknown>;
  deleteBroker(name: string): Promise<void>;
  RawBroker: { open(name: string, options: RawOpenOptions, onNotice: (notice: Notice) => void, onClose: (reason: CloseReason) => void): Promise<RawBroker> };
}

// The public API: names and signatures only. check.ts compares the types of the package with it.
export function openBroker(name: string, options?: OpenOptions): Promise<Broker>;

export function deleteBroker(name: string): Promise<void>;

export function init(wasm?: WasmSource): Promise<void>;

export function defineBroker<D extends Definitions>(definitions: D): D;

export function type<T>(validation?: "none" | "json"): StandardSchemaV1;

export type WasmSource = URL | string | Response | Promise<Response> | BufferSource | WebAssembly.Module;

export interface OpenOptions {
  definitions?: Definitions;
  durability?: "strict" | "relaxed";
  storage?: "indexeddb" | "memory";
  delayedDelivery?: DelayedDeliverySettings;
  clock?: Clock;
  lockTimeout?: number;
  maxMessageBytes?: number;
  codec?: BodyCodec;
  wasm?: WasmSource;
  signal?: AbortSignal;
}
export interface Clock { now(): number; sleep?(ms: number, signal: AbortSignal): Promise<void> }
export interface BodyCodec { readonly id: string; encode(body: unknown): Promise<Uint8Array>; decode(bytes: Uint8Array): Promise<unknown> }

export interface Definitions {
  messageTypes?: Record<string, Validation>;
  contracts?: Record<string, Record<string, SentBy>>;
  queues?: Record<string, QueueOptions>;
  services?: Record<string, { queue: string; contracts?: readonly string[] }>;
  priorities?: Record<string, PriorityRule>;
}
export type SentBy = "initiator" | "target" | "any";

export type Validation = "none" | "empty" | "json" | StandardSchemaV1;
export interface QueueOptions {
  status?: "on" | "off";
  retention?: boolean | { maxRows?: number; maxAge?: number };
  poisonMessageHandling?: boolean;
  archive?: boolean;
  activation?: "on" | "off";
  body?: Validation;
}

export interface PriorityRule { contract?: string; localService?: string; remoteService?: string; level: number }

export type Handle = string;
export type GroupId = string;
export type MessageId = string;

export type ConversationRef = Handle | { readonly handle: Handle } | { readonly conversationHandle: Handle };

export type GroupRef = GroupId | { readonly handle: Handle } | { readonly conversationHandle: Handle };

export interface Verbs {

  beginDialog(options: BeginDialog): Promise<Conversation>;

  send(to: ConversationRef, messageType: string, body?: unknown, options?: SendOptions): Promise<MessageId>;
  send(to: readonly ConversationRef[], messageType: string, body?: unknown, options?: SendOptions): Promise<MessageId[]>;

  sendMany(to: ConversationRef, messages: readonly OutgoingMessage[], options?: Omit<SendOptions, "headers">): Promise<MessageId[]>;

  receive<B = any>(queue: string, options?: ReceiveOptions): Promise<Message<B>[]>;
  moveConversation(conversation: ConversationRef, to: GroupRef): Promise<void>;

  beginConversationTimer(conversation: ConversationRef, timeout: number | null, options?: TimerOptions): Promise<void>;
  endConversation(conversation: ConversationRef, options?: EndOptions): Promise<EndResult>;

  enqueue(queue: string, body?: unknown, options?: EnqueueOptions): Promise<MessageId>;

  enqueueMany(queue: string, bodies: readonly unknown[], options?: Omit<EnqueueOptions, "dedupeId">): Promise<MessageId[]>;

  getGroupState<T = any>(group: GroupRef): Promise<T | undefined>;
  setGroupState(group: GroupRef, state: unknown): Promise<void>;
}

export interface BeginDialog {
  from: string; to: string; contract?: string;
  toBroker?: string | "current";
  relatedConversation?: ConversationRef; relatedGroup?: GroupId;
  lifetime?: number;
  reuse?: string;
}
export interface SendOptions { delay?: number; deliverAt?: Date | number; headers?: Record<string, string>; signal?: AbortSignal }
export interface OutgoingMessage { messageType?: string; body?: unknown; headers?: Record<string, string> }
export interface EnqueueOptions extends SendOptions {
  key?: string;
  ordered?: boolean;
  dedupeId?: string; dedupeWindow?: number;
  priority?: number;
}
export interface ReceiveOptions {
  top?: number;
  conversation?: ConversationRef; group?: GroupId;
  timeout?: number; signal?: AbortSignal;
}
export interface EndOptions {
  error?: { code: number; description: string };
  cleanup?: boolean;
  archive?: boolean;
}

export interface TimerOptions { name?: string; body?: unknown }

export interface EndResult { discarded: number; archived: number }

export interface Conversation {
  readonly handle: Handle; readonly conversationId: string; readonly groupId: GroupId;
  readonly isInitiator: boolean; readonly service: string; readonly farService: string; readonly contract: string;
  send(messageType: string, body?: unknown, options?: SendOptions): Promise<MessageId>;
  sendMany(messages: readonly OutgoingMessage[], options?: Omit<SendOptions, "headers">): Promise<MessageId[]>;

  receive<B = any>(options?: Omit<ReceiveOptions, "conversation" | "group">): Promise<Message<B>[]>;
  beginTimer(timeout: number | null, options?: TimerOptions): Promise<void>;
  moveTo(group: GroupRef): Promise<void>;
  end(options?: EndOptions): Promise<EndResult>;

  info(): Promise<ConversationEndpoint | null>;
}

export const MessageStatus: { readonly RetainedReceived: 0; readonly Ready: 1; readonly NotYetComplete: 2; readonly RetainedSent: 3 };

export interface Message<B = any> {
  status: 0 | 1 | 2 | 3; priority: number; queuingOrder: number;
  conversationGroupId: GroupId; conversationHandle: Handle; conversationId: string; messageSequenceNumber: number;
  serviceName: string; serviceContractName: string; messageTypeName: string;
  validation: "N" | "E" | "J" | "S";
  messageId: MessageId; messageEnqueueTime: Date; headers: Record<string, string>;
  key: string | null;
  body: B;
  attempts: number; retryAt: Date | null; lastError: string | null;
}
export const SystemMessage: {
  readonly EndDialog: "http://schemas.microsoft.com/SQL/ServiceBroker/EndDialog";
  readonly Error: "http://schemas.microsoft.com/SQL/ServiceBroker/Error";
  readonly DialogTimer: "http://schemas.microsoft.com/SQL/ServiceBroker/DialogTimer";
};

export interface Views {

  select<B = any>(queue: string, filter?: RowFilter): Rows<Message<B>>;

  count(queue: string, filter?: RowFilter): Promise<number>;
  queues(): Promise<QueueInfo[]>;

  conversation(conversation: ConversationRef): Pick<Conversation, "handle" | "send" | "sendMany" | "receive" | "beginTimer" | "moveTo" | "end" | "info">;
  conversations(filter?: { service?: string; state?: ConversationState; group?: GroupId; conversationId?: string; createdBefore?: Date | number }): Rows<ConversationEndpoint>;
  groups(filter?: { service?: string }): Rows<ConversationGroup>;
  transmissionQueue(filter?: { conversation?: ConversationRef }): Rows<TransmissionRow>;

  archive(filter?: RowFilter & { queue?: string; conversationId?: string }): Rows<Message & { archivedAt: Date; queue: string }>;

  failed(filter?: FailedFilter): Rows<FailedMessage>;

  readonly delayed: DelayedMessages;
  stats(): Promise<BrokerStats>;
}

export interface Transaction extends Verbs, Views {

  getConversationGroup(queue: string, options?: { timeout?: number; signal?: AbortSignal }): Promise<GroupId | null>;

  readonly signal: AbortSignal;
}

export interface Broker extends Verbs, Views, EventTarget, AsyncDisposable {
  readonly name: string;

  readonly instanceId: string;
  define(definitions: Definitions): Promise<Broker>;
  alterQueue(name: string, options: QueueOptions): Promise<void>;
  dropQueue(name: string): Promise<void>;
  alterService(name: string, change: { queue?: string; addContracts?: readonly string[]; dropContracts?: readonly string[] }): Promise<void>;
  dropService(name: string): Promise<void>;

  transaction<T>(work: (tx: Transaction) => Promise<T> | T, options?: { signal?: AbortSignal }): Promise<T>;

  activate<B = any>(queue: string, handler: Handler<B>, options?: ActivationOptions): Activation;

  drain<B = any>(queue: string, handler: Handler<B>, options?: ActivationOptions): Promise<{ handled: number; failed: number; remaining: number }>;

  request(dialog: BeginDialog & { timeout?: number; signal?: AbortSignal }, messageType: string, body?: unknown, options?: SendOptions): Promise<Message>;

  returnToSource(filter?: FailedFilter): Promise<number>;
  discardFailed(filter: FailedFilter): Promise<number>;
  purgeArchive(before: Date | number): Promise<number>;

  route(route: Route): Promise<AsyncDisposable & { remove(): Promise<void> }>;

  deliver(envelopes: unknown, context?: { from?: string }): Promise<Delivery[]>;

  transmit(options?: { signal?: AbortSignal }): Promise<{ sent: number; remaining: number }>;

  poll(): Promise<number>;

  close(): Promise<void>;

  addEventListener<K extends keyof BrokerEvents>(type: K, listener: (event: CustomEvent<BrokerEvents[K]>) => unknown, options?: AddEventListenerOptions | boolean): void;
  addEventListener(type: string, listener: EventListenerOrEventListenerObject | null, options?: AddEventListenerOptions | boolean): void;
}

export interface RowFilter {
  status?: Message["status"] | readonly Message["status"][]; conversation?: ConversationRef; group?: GroupId; messageType?: string;
  after?: number; limit?: number; reverse?: boolean;
}
export interface FailedFilter { messageId?: MessageId; failedQueue?: string; failedBefore?: Date | number; limit?: number }
export interface Rows<R> extends AsyncIterable<R> { toArray(): Promise<R[]>; first(): Promise<R | undefined> }
export type FailedMessage = Message & { failedQueue: string; exceptionType: string; exceptionMessage: string; stackTrace: string; timeOfFailure: Date; retries: number };

export type Handler<B = any> = ((messages: Message<B>[], tx: Transaction) => unknown) | { readonly [messageType: string]: (message: Message<B>, tx: Transaction) => unknown };
export interface ActivationOptions {
  maxReaders?: number;
  top?: number;
  handlerTimeout?: number;
  recoverability?: Recoverability; signal?: AbortSignal;
}

export interface Recoverability {
  immediateRetries?: number; delayedRetries?: number; timeIncrease?: number;
  finally?: "error-queue" | "retry-forever" | "rollback";
}

export class UnrecoverableError extends Error {}

export class RetryLater extends Error { constructor(after?: number | Date, message?: string, options?: ErrorOptions) }
export interface Activation extends AsyncDisposable {
  readonly queue: string; readonly readers: number;
  idle(): Promise<void>;
  stop(): Promise<void>;
  readonly done: Promise<void>;
}

export type ConversationState = "SO" | "SI" | "CO" | "DI" | "DO" | "ER" | "CD";
export interface ConversationEndpoint {
  conversationHandle: Handle; conversationId: string; isInitiator: boolean; conversationGroupId: GroupId;
  service: string; farService: string; farBrokerInstance: string | null; contract: string; key: string | null;
  state: ConversationState; lifetime: Date | null; dialogTimer: Date | null; priority: number;
  sendSequence: number; receiveSequence: number; createdAt: Date;
}

export interface ConversationGroup { conversationGroupId: GroupId; service: string; queue: string; conversations: number; ready: number; heldBy: "this" | "other" | null }
export interface QueueInfo {
  name: string; isReceiveEnabled: boolean; isEnqueueEnabled: boolean; isRetentionEnabled: boolean; isPoisonMessageHandlingEnabled: boolean; isActivationEnabled: boolean;
  ready: number; retained: number; consecutiveRollbacks: number; readers: number;
}
export interface TransmissionRow {
  conversationHandle: Handle; toService: string; toBroker: string | null; fromService: string; contract: string;
  enqueueTime: Date; messageSequenceNumber: number; messageType: string; isConversationError: boolean; isEndOfDialog: boolean;
  priority: number; attempts: number; nextAttempt: Date | null; transmissionStatus: string; body: any;
}

export interface BrokerStats {
  sends: number; receives: number; enqueued: number; delayedDispatched: number; transmitted: number; rollbacks: number; dropped: number; activations: number; timers: number;
  openConversations: Record<ConversationState, number>; delayed: number; transmissionQueued: number; failed: number;
  oldestReady: Date | null; oldestTransmission: Date | null; breakers: Record<"store" | "fetch" | "dispatch", "disarmed" | "armed" | "triggered">;
}

export function watch<T>(broker: Broker, read: (views: Views) => Promise<T>): Live<T>;
export interface Live<T> extends AsyncIterable<T> { getSnapshot(): T | undefined; subscribe(listener: () => void): () => void; readonly error: unknown }

export type TransactionMode = "none" | "receive-only" | "sends-atomic-with-receive" | "transaction-scope";
export interface DelayedDeliverySettings {
  store?: DelayedMessageStore;
  transactionMode?: TransactionMode;
  numberOfRetries?: number;
  timeToTriggerStoreCircuitBreaker?: number; timeToTriggerFetchCircuitBreaker?: number; timeToTriggerDispatchCircuitBreaker?: number;
  maximumRecoveryFailuresPerSecond?: number;
  errorQueue?: string;
}
export interface DelayedMessage {
  messageId: MessageId; destination: string; time: Date; headers: Record<string, string>;
  properties: Record<string, string>;
  body: any; numberOfRetries: number;
}
export interface DelayedMessageStore {

  setupInfrastructure?(context: { endpointName: string; transactionMode: TransactionMode; instanceId: string; signal: AbortSignal }): Promise<void>;

  initialize(endpointName: string, transactionMode: TransactionMode, signal: AbortSignal): Promise<void>;
  store(message: DelayedMessage, signal: AbortSignal): Promise<boolean | void>;
  remove(message: DelayedMessage, signal: AbortSignal): Promise<boolean>;

  incrementFailureCount(message: DelayedMessage, nextAttempt: Date, signal: AbortSignal): Promise<boolean>;
  next(signal: AbortSignal): Promise<Date | null>;

  fetchNextDueTimeout(at: Date, signal: AbortSignal): Promise<DelayedMessage | null>;
  release?(message: DelayedMessage, signal: AbortSignal): Promise<void>;

  select?(filter: { destination?: string; before?: Date; limit?: number }, signal: AbortSignal): Promise<DelayedMessage[]>; count?(signal: AbortSignal): Promise<number>;
}
export interface DelayedMessages {
  select(filter?: { destination?: string; before?: Date | number; limit?: number }): Rows<DelayedMessage>;
  count(): Promise<number>;
  next(): Promise<Date | null>;
  cancel(id: MessageId): Promise<boolean>;
  reschedule(id: MessageId, to: Date | number): Promise<boolean>;
}

export function encodeBody(body: unknown): Promise<EncodedBody>;
export function decodeBody(encoded: EncodedBody): unknown;
export interface EncodedBody { bodyEncoding: "none" | "json" | "devalue" | "base64"; bodyType?: string; body?: unknown }

export interface Route { service: string; transport: Transport; batch?: number }
export interface Transport {

  send(envelopes: MessageEnvelope[], context: { signal: AbortSignal }): Promise<SendResult[]>;

  listen?(deliver: (envelopes: unknown, context?: { from?: string }) => Promise<Delivery[]>, context: { services: string[]; instanceId: string; signal: AbortSignal }): void | Promise<void>;
}
export type SendResult =
  | { status: "acknowledged"; upTo?: number; fromBroker?: string; reply?: { messageType?: string; body?: unknown } }
  | { status: "accepted"; retryAfter?: number }
  | { status: "retry"; after?: number; reason?: string }
  | { status: "refused"; code: number; description: string };
export type Delivery =
  | { status: "stored" | "repeated"; acknowledgement: Acknowledgement | null }
  | { status: "later"; after?: number; reason: string }
  | { status: "refused"; reason: string; reply?: MessageEnvelope };

export interface MessageEnvelope extends EncodedBody {
  v: 1; kind: "message"; messageId: MessageId; conversationId: string; fromInitiator: boolean; sequence: number; fromService: string; fromBroker: string;
  toService: string; toBroker: string | null; contract: string; messageType: string; lifetime: number | null; headers: Record<string, string>;
}

export interface Acknowledgement { v: 1; kind: "acknowledgement"; conversationId: string; fromInitiator: boolean; sequence: number; fromBroker: string; toBroker: string }
export type Envelope = MessageEnvelope | Acknowledgement;

export function httpTransport(options: HttpOptions & {
  url: string | URL; protocol?: "plain" | "envelope";

  request?: (envelope: MessageEnvelope) => RequestInit | Request | null | Promise<RequestInit | Request | null>;
  reply?: (response: Response, envelope: MessageEnvelope) => Promise<{ messageType?: string; body?: unknown } | void>;
  onRefused?: "error-queue" | "end";
}): Transport;
export interface HttpOptions { headers?: HeadersInit | (() => HeadersInit | Promise<HeadersInit>); timeout?: number; fetch?: typeof fetch }

export function toStoredRequest(request: Request): Promise<StoredRequest>;
export function replay(options?: HttpOptions): Handler<StoredRequest>;
export interface StoredRequest { url: string; method: string; headers: Record<string, string>; body?: Blob | ArrayBuffer | string }

export function natsTransport(options: { connection: unknown; stream: string; subjectPrefix?: string }): Transport;

export function handleSync(open: () => Promise<Broker>, options?: { tag?: string; queues?: Record<string, Handler> }): () => void;

export function registerBackgroundSync(registration: object, broker: Broker, options?: { tag?: string; queues?: readonly string[] }): () => void;

export function testClock(start?: Date | number): Required<Clock> & { advance(ms: number): Promise<void> };

export function checkDelayedMessageStore(make: () => DelayedMessageStore | Promise<DelayedMessageStore>): Promise<void>;

export function useBroker(open: () => Promise<Broker>): Broker | undefined;
export function useWatch<T>(broker: Broker | undefined, read: (views: Views) => Promise<T>, deps?: readonly unknown[]): T | undefined;
export function useQueue(broker: Broker | undefined, queue: string, filter?: RowFilter): Message[] | undefined;
export function useBrokerStats(broker: Broker | undefined): BrokerStats | undefined;
export function useActivation(broker: Broker | undefined, queue: string, handler: Handler, options?: ActivationOptions): Activation | undefined;

export class BrokerError extends Error {
  readonly name: "BrokerError"; readonly code: BrokerErrorCode; readonly details: Record<string, any>;
  readonly retryable: boolean; readonly number?: number; readonly cause?: unknown;
}

export function isBrokerError(error: unknown, ...codes: BrokerErrorCode[]): error is BrokerError;
export type BrokerErrorCode =
  | "InvalidArgument" | "AlreadyExists" | "DefinitionConflict" | "InUse"
  | "QueueNotFound" | "ServiceNotFound" | "ContractNotFound" | "MessageTypeNotFound" | "ConversationNotFound" | "GroupNotFound" | "GroupInvalid" | "GroupLocked"
  | "InvalidState" | "NotInContract" | "WrongDirection" | "ValidationFailed" | "NotCloneable" | "MessageTooLarge"
  | "QueueDisabled" | "InvalidLifetime" | "TimerBeyondLifetime" | "InvalidEndError" | "Timeout" | "RemoteError" | "Conflict"
  | "TransactionClosed" | "UnsupportedTransactionMode" | "DelayedStoreFailed" | "NotSupported"
  | "QuotaExceeded" | "StorageUnavailable" | "StorageLost" | "StorageCorrupt" | "UpgradeBlocked" | "VersionTooNew" | "LoadFailed" | "Closed" | "Terminated";

export interface BrokerEvents {
  "changed": { queues: readonly string[]; conversations: boolean; delayed: boolean; transmission: boolean; archive: boolean };
  "message-enqueued": { queue: string };
  "queue-disabled": { queue: string; reason: "poison" | "altered" };
  "message-dropped": { reason: string; envelope?: unknown; message?: Partial<Message> };

  "message-failed": { messageId: MessageId; queue: string; conversationHandle: Handle; error: unknown; attempts: number; next: "immediate" | "delayed" | "error-queue" | "rollback"; retryAt: Date | null };
  "message-transmitted": { messageId: MessageId; conversationHandle: Handle };
  "critical-error": { source: "store" | "fetch" | "dispatch" | "recovery" | "transmission"; error: unknown };
  "conversation-changed": { handle: Handle; state: ConversationState };
  "transmission-failed": { conversationHandle: Handle; status: string };
  "close": { reason: "closed" | "deleted" | "upgraded-elsewhere" | "storage-lost" };
}

export interface StandardSchemaV1 { readonly "~standard": { readonly version: 1; readonly vendor: string; readonly validate: (value: unknown) => any } }

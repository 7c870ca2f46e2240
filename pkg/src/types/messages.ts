import type { ConversationRef, GroupId, Handle, MessageId } from "./verbs.js";

/** A queue row: Service Broker's columns in camelCase, and what retrying has to say. A received message is a {@link ConversationRef}: sending to it answers it. */
export interface Message<B = any> {
  /** See {@link MessageStatus}. Rows that `receive` gives show 0. */
  status: 0 | 1 | 2 | 3;
  /** 1 to 10, of the conversation endpoint. */
  priority: number;
  /** Rises per queue. */
  queuingOrder: number;
  /** The group on this side. */
  conversationGroupId: GroupId;
  /** The endpoint on this side. */
  conversationHandle: Handle;
  /** Shared by both sides. */
  conversationId: string;
  /** From 0, per conversation and direction, given by the sender. */
  messageSequenceNumber: number;
  /** The service that the message is addressed to: the local one on received rows, the far one on status 3 rows. */
  serviceName: string;
  /** The conversation's contract. */
  serviceContractName: string;
  /** As it was sent, or one of {@link SystemMessage}. */
  messageTypeName: string;
  /** N none, E empty, J json, S schema. */
  validation: "N" | "E" | "J" | "S";
  /** The same at every attempt: an idempotency key. */
  messageId: MessageId;
  /** When it was sent, by the sender's clock. */
  messageEnqueueTime: Date;
  /** As sent; {} when none were. */
  headers: Record<string, string>;
  /** Of a lane's message. */
  key: string | null;
  /** Structured-clone value, as sent; class instances come as plain objects. `undefined` when sent without one. */
  body: B;
  /** Failed attempts of handlers so far. */
  attempts: number;
  /** Set while it waits for a retry. */
  retryAt: Date | null;
  /** The last failure's text. */
  lastError: string | null;
}

/** Which rows a view gives. All of it is optional; together they narrow. */
export interface RowFilter {
  /** One of these. Default: any. */
  status?: Message["status"] | readonly Message["status"][];
  /** Of this endpoint. */
  conversation?: ConversationRef;
  /** Of this group. */
  group?: GroupId;
  /** Of this type. */
  messageType?: string;
  /** Rows with a greater queuingOrder. */
  after?: number;
  /** At most this many rows. Default: all. */
  limit?: number;
  /** Newest first: the walk of a compensation. Default false. */
  reverse?: boolean;
}

/** Which messages of the error queue. All of it is optional; together they narrow. */
export interface FailedFilter {
  /** This one. */
  messageId?: MessageId;
  /** Those that failed in this queue; of delayed messages those that were to go there. */
  failedQueue?: string;
  /** Those that failed before this instant: a Date, or epoch milliseconds. */
  failedBefore?: Date | number;
  /** At most this many. Default: all. */
  limit?: number;
}

/** A message of the error queue, with what failed, where and why. Its `headers` say the same, for other tools. */
export type FailedMessage = Message & {
  /**
   * Where it failed, and where `returnToSource` puts it. Of a delayed message where it was to go: a queue, or the handle of the conversation that it was to be
   * sent on.
   */
  failedQueue: string;
  /** The name of what the handler threw. */
  exceptionType: string;
  /** Its text. */
  exceptionMessage: string;
  /** Where in the program it was thrown; "" if it does not say. */
  stackTrace: string;
  /** When the last attempt failed. */
  timeOfFailure: Date;
  /** Attempts after the first one. */
  retries: number;
};

/** Rows to walk through or to take at once. Nothing is read before one of the three is used. */
export interface Rows<R> extends AsyncIterable<R> {
  /** All of them, one snapshot. */
  toArray(): Promise<R[]>;
  /** The first of them; undefined when there is none. */
  first(): Promise<R | undefined>;
}

/** SO started outbound, SI started inbound, CO conversing, DI disconnected inbound, DO disconnected outbound, ER error, CD closed. */
export type ConversationState = "SO" | "SI" | "CO" | "DI" | "DO" | "ER" | "CD";

/** A row of sys.conversation_endpoints. */
export interface ConversationEndpoint {
  /** Names the endpoint. */
  conversationHandle: Handle;
  /** Shared by both sides. */
  conversationId: string;
  /** It began the dialog. */
  isInitiator: boolean;
  /** The group on this side. */
  conversationGroupId: GroupId;
  /** The endpoint's own service. */
  service: string;
  /** The service at the other end. */
  farService: string;
  /** The instance id of the broker at the other end; null while it is not known. */
  farBrokerInstance: string | null;
  /** The conversation's contract. */
  contract: string;
  /** Of a lane. */
  key: string | null;
  /** See {@link ConversationState}. */
  state: ConversationState;
  /** When it expires; null: never. */
  lifetime: Date | null;
  /** When the earliest of its timers fires. */
  dialogTimer: Date | null;
  /** 1 to 10. */
  priority: number;
  /** The next number to send. */
  sendSequence: number;
  /** The next number to receive. */
  receiveSequence: number;
  /** When the conversation was begun. */
  createdAt: Date;
}

/** A conversation group: what one reader at a time has. */
export interface ConversationGroup {
  /** Its id. */
  conversationGroupId: GroupId;
  /** The service of its conversations. */
  service: string;
  /** That service's queue. */
  queue: string;
  /** How many conversations are in it. */
  conversations: number;
  /** Messages that wait in it. */
  ready: number;
  /** "this": a transaction of this window or worker. "other": another one of the origin. null: nobody. */
  heldBy: "this" | "other" | null;
}

/** What a Broker has done since it was opened, and, from `openConversations` on, what the database holds now. */
export interface BrokerStats {
  /** Messages of `send` and `sendMany`. */
  sends: number;
  /** Messages received. */
  receives: number;
  /** Messages that came into a queue here by what this Broker did: by `send` and `enqueue`, and EndDialogs, Errors and DialogTimers. */
  enqueued: number;
  /** Delayed messages whose time came. */
  delayedDispatched: number;
  /** Messages that other brokers have acknowledged. 0 in this release. */
  transmitted: number;
  /** Transactions that were rolled back after they had received, sent or changed something. */
  rollbacks: number;
  /** Messages that went nowhere: see the event `message-dropped`. */
  dropped: number;
  /** Readers that `activate` and `drain` started. */
  activations: number;
  /** Timers that fired. What is due is done by the window or worker, and counts for every Broker that is open in it. */
  timers: number;
  /** Endpoints by state. */
  openConversations: Record<ConversationState, number>;
  /** Messages that wait for their time. */
  delayed: number;
  /** Messages that wait for their transmission, or for a queue that is off. */
  transmissionQueued: number;
  /** Messages in the queue "error". */
  failed: number;
  /** When the ready message that has waited longest was sent; null: none waits. */
  oldestReady: Date | null;
  /** The same of those that `transmissionQueued` counts. */
  oldestTransmission: Date | null;
  /** Of delayed delivery. "fetch": what is due is done, timers and retries included. The others are never armed by the built-in store. */
  breakers: Record<"store" | "fetch" | "dispatch", "disarmed" | "armed" | "triggered">;
}

/** A row of sys.service_queues. */
export interface QueueInfo {
  /** As it was defined. */
  name: string;
  /** `receive` works; else QueueDisabled. */
  isReceiveEnabled: boolean;
  /** Messages come in; else they wait in the transmission queue. */
  isEnqueueEnabled: boolean;
  /** `retention` is on. */
  isRetentionEnabled: boolean;
  /** `poisonMessageHandling` is on. */
  isPoisonMessageHandlingEnabled: boolean;
  /** `activation` is on. */
  isActivationEnabled: boolean;
  /** Messages that wait. Kept by the commits: never a scan of rows. */
  ready: number;
  /** Retained rows, received and sent. */
  retained: number;
  /** Rollbacks in a row of transactions that had received from one conversation: the highest of the queue. */
  consecutiveRollbacks: number;
  /** Running handlers of this Broker. */
  readers: number;
}

/** A row of sys.transmission_queue: what could not be delivered yet. */
export interface TransmissionRow {
  /** The endpoint that sent it. */
  conversationHandle: Handle;
  /** To which service. */
  toService: string;
  /** Of which broker, by its instance id; null where that is not known. */
  toBroker: string | null;
  /** From which service. */
  fromService: string;
  /** The conversation's contract. */
  contract: string;
  /** When it was sent. */
  enqueueTime: Date;
  /** From 0, per conversation and direction. */
  messageSequenceNumber: number;
  /** Its type, or one of {@link SystemMessage}. */
  messageType: string;
  /** It is an Error. */
  isConversationError: boolean;
  /** It is an EndDialog. */
  isEndOfDialog: boolean;
  /** 1 to 10, of the sending endpoint. */
  priority: number;
  /** How often it was tried. */
  attempts: number;
  /** When it is tried next; null: at no set time. */
  nextAttempt: Date | null;
  /** Why it is still here; "" when not tried. */
  transmissionStatus: string;
  /** As sent. */
  body: any;
}

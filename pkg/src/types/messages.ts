import type { ConversationRef, GroupId, Handle, MessageId } from "./verbs.js";

/** A queue row: Service Broker's columns in camelCase, and what retrying has to say. A received message is a {@link ConversationRef}: sending to it answers it. */
export interface Message<B = any> {
  /** See {@link MessageStatus}. Rows that `receive` gives show 0. */
  status: 0 | 1 | 2 | 3;
  /** 1 to 10, of the conversation endpoint. */
  priority: number;
  /** Rises per queue. */
  queuingOrder: number;
  conversationGroupId: GroupId;
  /** The endpoint on this side. */
  conversationHandle: Handle;
  /** Shared by both sides. */
  conversationId: string;
  /** From 0, per conversation and direction, given by the sender. */
  messageSequenceNumber: number;
  /** The service that the message is addressed to: the local one on received rows, the far one on status 3 rows. */
  serviceName: string;
  serviceContractName: string;
  messageTypeName: string;
  /** N none, E empty, J json, S schema. */
  validation: "N" | "E" | "J" | "S";
  /** The same at every attempt: an idempotency key. */
  messageId: MessageId;
  messageEnqueueTime: Date;
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
  status?: Message["status"] | readonly Message["status"][];
  conversation?: ConversationRef;
  group?: GroupId;
  messageType?: string;
  /** Rows with a greater queuingOrder. */
  after?: number;
  /** At most this many rows. */
  limit?: number;
  /** Newest first: the walk of a compensation. */
  reverse?: boolean;
}

/** Rows to walk through or to take at once. Nothing is read before one of the three is used. */
export interface Rows<R> extends AsyncIterable<R> {
  /** All of them, one snapshot. */
  toArray(): Promise<R[]>;
  first(): Promise<R | undefined>;
}

/** SO started outbound, SI started inbound, CO conversing, DI disconnected inbound, DO disconnected outbound, ER error, CD closed. */
export type ConversationState = "SO" | "SI" | "CO" | "DI" | "DO" | "ER" | "CD";

/** A row of sys.conversation_endpoints. */
export interface ConversationEndpoint {
  conversationHandle: Handle;
  /** Shared by both sides. */
  conversationId: string;
  isInitiator: boolean;
  conversationGroupId: GroupId;
  service: string;
  farService: string;
  farBrokerInstance: string | null;
  contract: string;
  /** Of a lane. */
  key: string | null;
  state: ConversationState;
  /** When it expires; null: never. */
  lifetime: Date | null;
  /** When the earliest of its timers fires. */
  dialogTimer: Date | null;
  priority: number;
  /** The next number to send. */
  sendSequence: number;
  /** The next number to receive. */
  receiveSequence: number;
  createdAt: Date;
}

/** A row of sys.service_queues. */
export interface QueueInfo {
  name: string;
  isReceiveEnabled: boolean;
  isEnqueueEnabled: boolean;
  isRetentionEnabled: boolean;
  isPoisonMessageHandlingEnabled: boolean;
  isActivationEnabled: boolean;
  /** Messages that wait. Kept by the commits: never a scan of rows. */
  ready: number;
  /** Retained rows, received and sent. */
  retained: number;
  consecutiveRollbacks: number;
  /** Of this Broker. */
  readers: number;
}

/** A row of sys.transmission_queue: what could not be delivered yet. */
export interface TransmissionRow {
  conversationHandle: Handle;
  toService: string;
  toBroker: string | null;
  fromService: string;
  contract: string;
  enqueueTime: Date;
  messageSequenceNumber: number;
  messageType: string;
  isConversationError: boolean;
  isEndOfDialog: boolean;
  priority: number;
  attempts: number;
  nextAttempt: Date | null;
  /** Why it is still here; "" when not tried. */
  transmissionStatus: string;
  body: any;
}

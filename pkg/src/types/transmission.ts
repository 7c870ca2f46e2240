import type { EncodedBody } from "../encode.js";
import type { MessageId } from "./verbs.js";

/** Where messages for a service that is not here go. */
export interface Route {
  /** The name of the far service, or "*" for every one that has no route of its own. */
  service: string;
  /** What carries them. One object may serve several routes. */
  transport: Transport;
  /** At most so many messages per call of `transport.send`. Default 50. */
  batch?: number;
}

/** Carries envelopes to another broker, or to a server. It may lose, repeat, delay and reorder them. */
export interface Transport {
  /**
   * Hands envelopes of one conversation over, in their order: one result per envelope, in order. A rejection means "retry all of them". A call that has not
   * answered after 120 s counts as retry.
   * @param context `signal` aborts when nobody waits for the answer any more: the broker is closed, the route removed, the page put away.
   */
  send(envelopes: MessageEnvelope[], context: { signal: AbortSignal }): Promise<SendResult[]>;
  /**
   * Starts listening for envelopes from outside, until `signal` aborts. Called once per transport object, and again, with a new signal, when the services
   * here change.
   * @param deliver Hands envelopes to the broker: see `broker.deliver`. `from` is the peer's broker id where the transport has proved it.
   * @param context `services`: the names of the services that can be targets here. `instanceId`: of this broker. `offerAgain`: has rows that were "accepted"
   *   and not acknowledged offered again at once, after a reconnect for example.
   */
  listen?(
    deliver: (envelopes: unknown, context?: { from?: string }) => Promise<Delivery[]>,
    context: { services: string[]; instanceId: string; signal: AbortSignal; offerAgain(): void },
  ): void | Promise<void>;
}

/** What became of an envelope that was handed over. */
export type SendResult =
  /** It has arrived for good. `upTo`: everything up to this number has; default: this envelope's. `fromBroker`: the far broker. `reply`: a message on the conversation, of type "DEFAULT" unless it says another. */
  | { status: "acknowledged"; upTo?: number; fromBroker?: string; reply?: { messageType?: string; body?: unknown } }
  /** An acknowledgement will come through `listen` or `broker.deliver`. It is offered again after `retryAfter` ms. Default 60 000. */
  | { status: "accepted"; retryAfter?: number }
  /** Not now. `after` in ms, at most an hour; default: 1 s, doubling to 60 s. `reason` is shown in `transmissionQueue()`. */
  | { status: "retry"; after?: number; reason?: string }
  /** Never. Default: the message moves to the error queue and the conversation goes on. `then: "end"`: an Error message with this code on the conversation. */
  | { status: "refused"; code: number; description: string; then?: "error-queue" | "end"; httpStatus?: number; httpBody?: string };

/** What became of an envelope that was delivered, after the commit. */
export type Delivery =
  /** `acknowledgement` is to be sent back; null while number 0 is missing. */
  | { status: "stored" | "repeated"; acknowledgement: Acknowledgement | null }
  /** Hand it in again, not before `after` ms. */
  | { status: "later"; after?: number; reason: string }
  /** Never again. `reply`: the Error message that goes back. */
  | { status: "refused"; reason: string; reply?: MessageEnvelope };

/** A message on its way. JSON keeps it as it is. */
export interface MessageEnvelope extends EncodedBody {
  v: 1;
  kind: "message";
  messageId: MessageId;
  /** Shared by both ends. */
  conversationId: string;
  /** The initiator sent it. */
  fromInitiator: boolean;
  /** From 0, per conversation and direction. */
  sequence: number;
  fromService: string;
  /** The sender's instance id. */
  fromBroker: string;
  toService: string;
  /** null until the far broker is known. */
  toBroker: string | null;
  contract: string;
  messageType: string;
  /** Milliseconds that are left to the conversation; null: no limit. */
  lifetime: number | null;
  headers: Record<string, string>;
}

/** Cumulative: nothing is missing up to `sequence`. */
export interface Acknowledgement {
  v: 1;
  kind: "acknowledgement";
  conversationId: string;
  /** Whose messages are acknowledged. */
  fromInitiator: boolean;
  sequence: number;
  fromBroker: string;
  toBroker: string;
}

/** What travels. */
export type Envelope = MessageEnvelope | Acknowledgement;

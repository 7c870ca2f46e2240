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
   */
  send(envelopes: MessageEnvelope[], context: {
    /** Aborts when nobody waits for the answer any more: the broker is closed, the route removed, the page put away. */
    signal: AbortSignal;
  }): Promise<SendResult[]>;
  /**
   * Starts listening for envelopes from outside, until `signal` aborts. Called once per transport object, and again, with a new signal, when the services
   * here change. What it throws is told by `critical-error`.
   * @param deliver Hands envelopes to the broker, as `broker.deliver`. What it gives may have to be sent back.
   */
  listen?(
    deliver: (envelopes: unknown, context?: {
      /** The peer's broker id, where the transport has proved it. */
      from?: string;
    }) => Promise<Delivery[]>,
    context: {
      /** The names of the services that can be targets here. */
      services: string[];
      /** Of this broker. */
      instanceId: string;
      /** Aborts when nobody listens any more. */
      signal: AbortSignal;
      /** Has rows that were "accepted" and not acknowledged offered again at once: after a reconnect, for example. */
      offerAgain(): void;
    },
  ): void | Promise<void>;
}

/** What became of an envelope that was handed over. */
export type SendResult =
  | {
    /** It has arrived for good. */
    status: "acknowledged";
    /** Everything up to this number has. Default: up to this envelope's. */
    upTo?: number;
    /** The far broker's instance id; the conversation is with that one from then on. */
    fromBroker?: string;
    /** A message on the conversation that came with the answer. It is stored with the removal of the row, or dropped with an event if the contract does not allow it. */
    reply?: {
      /** Default "DEFAULT". */
      messageType?: string;
      /** A structured-clone value. */
      body?: unknown;
    };
  }
  | {
    /** It is in the transport's hands: an acknowledgement will come through `listen` or `broker.deliver`. */
    status: "accepted";
    /** It is offered again after so many milliseconds without one. Default 60 000. */
    retryAfter?: number;
  }
  | {
    /** Not now. What follows in its conversation waits with it. */
    status: "retry";
    /** In milliseconds, at most an hour. Default: 1 s, doubling to 60 s. */
    after?: number;
    /** Shown in `transmissionQueue()`. */
    reason?: string;
  }
  | {
    /** Never. */
    status: "refused";
    /** A number of the transport's own: the status of an HTTP answer, say. */
    code: number;
    /** For people. */
    description: string;
    /**
     * "error-queue": the message moves there, and the conversation goes on. "end": an Error message with this code on the conversation, at both ends.
     * Default: "end" for a transport that listens, since a broker at its other end would wait for the number that is missing; "error-queue" for others.
     */
    then?: "error-queue" | "end";
    /** Becomes the header `HttpStatus` of the message in the error queue. */
    httpStatus?: number;
    /** Becomes the header `HttpBody` of the message in the error queue. */
    httpBody?: string;
  };

/** What became of an envelope that was delivered, after the commit. */
export type Delivery =
  | {
    /** It is here now, or was before. */
    status: "stored" | "repeated";
    /** To be sent back; null while number 0 is missing, and for an acknowledgement. */
    acknowledgement: Acknowledgement | null;
  }
  | {
    /** It can't be taken in now: hand it in again. */
    status: "later";
    /** Not before so many milliseconds. */
    after?: number;
    /** Why, in a sentence. */
    reason: string;
  }
  | {
    /** Never: to hand it in again changes nothing. */
    status: "refused";
    /** Why, in a sentence. */
    reason: string;
    /** The Error message that goes back. */
    reply?: MessageEnvelope;
  };

/** A message on its way. JSON keeps it as it is. */
export interface MessageEnvelope extends EncodedBody {
  /** The version. */
  v: 1;
  /** What it is. */
  kind: "message";
  /** The same at every attempt: an idempotency key. */
  messageId: MessageId;
  /** Shared by both ends. */
  conversationId: string;
  /** The initiator sent it. */
  fromInitiator: boolean;
  /** From 0, per conversation and direction. */
  sequence: number;
  /** The service that sent it. */
  fromService: string;
  /** The sender's instance id. */
  fromBroker: string;
  /** The service that it is for. */
  toService: string;
  /** null until the far broker is known. */
  toBroker: string | null;
  /** The contract of the conversation. */
  contract: string;
  /** The type of the message; of EndDialog and Error that of `SystemMessage`. */
  messageType: string;
  /** Milliseconds that are left to the conversation; null: no limit. */
  lifetime: number | null;
  /** As they were given. */
  headers: Record<string, string>;
}

/** Cumulative: nothing is missing up to `sequence`. */
export interface Acknowledgement {
  /** The version. */
  v: 1;
  /** What it is. */
  kind: "acknowledgement";
  /** Shared by both ends. */
  conversationId: string;
  /** Whose messages are acknowledged. */
  fromInitiator: boolean;
  /** The highest number below which nothing is missing. */
  sequence: number;
  /** Who acknowledges. */
  fromBroker: string;
  /** To whom. */
  toBroker: string;
}

/** What travels. */
export type Envelope = MessageEnvelope | Acknowledgement;

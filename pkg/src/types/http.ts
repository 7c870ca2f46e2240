import type { MessageEnvelope } from "./transmission.js";

/** What `httpTransport` and `replay` have in common. */
export interface HttpOptions {
  /** Headers of every request, a token say; or a function that gives them, asked before each request. What it throws means: not now. */
  headers?: HeadersInit | (() => HeadersInit | Promise<HeadersInit>);
  /** Milliseconds for one request and its answer. Default 30 000; Infinity: no limit but the broker's own of 120 s for a call. */
  timeout?: number;
  /** In place of the global `fetch`. */
  fetch?: typeof fetch;
}

/** Options of `httpTransport`. */
export interface HttpTransportOptions extends HttpOptions {
  /** Where the messages are POSTed: http or https. What is relative is so to the page. */
  url: string | URL;
  /**
   * "plain", the default: one POST for each message, to an endpoint that need not know of any of this. "envelope": one POST of a JSON array of envelopes, to an
   * endpoint that speaks the wire protocol.
   */
  protocol?: "plain" | "envelope";
  /**
   * Plain only. Another request for this message: what of a RequestInit is given replaces what would be sent; a Request is sent as it is, with an Idempotency-Key
   * unless it has one; null sends nothing, and counts as acknowledged. Asked at each attempt, for EndDialog and Error too, of which nothing is sent without it.
   * What it throws means: not now.
   */
  request?: (envelope: MessageEnvelope) => RequestInit | Request | null | Promise<RequestInit | Request | null>;
  /**
   * Plain only. Reads a message for the conversation from the answer to one that was accepted. Default: the answer itself, if it is JSON with a `messageType`, up to 4 MiB. What it
   * throws means: the message is sent again, with the same Idempotency-Key.
   */
  reply?: (response: Response, envelope: MessageEnvelope) => Promise<{
    /** Default: "DEFAULT". */
    messageType?: string;
    /** Any structured-clone value. */
    body?: unknown;
  } | void>;
  /**
   * What another 4xx means. "error-queue", the default of "plain": the message moves there, and the conversation goes on. "end", and always so with "envelope": an Error message on
   * the conversation, whose code is the status.
   */
  onRefused?: "error-queue" | "end";
}

/** A request as a message's body: what an outbox keeps. Made by `toStoredRequest`, sent by `replay`. */
export interface StoredRequest {
  /** Absolute: http or https. */
  url: string;
  /** "POST", say. */
  method: string;
  /** By lower-case names. */
  headers: Record<string, string>;
  /** Text as a string; other bytes as an ArrayBuffer, or as a Blob from 1 MiB on. Absent when there is none. */
  body?: Blob | ArrayBuffer | string;
}

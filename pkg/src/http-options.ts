// The options of the HTTP entry, read once.
import { describe, number, oneOf, options } from "./check.js";
import { invalid, shown } from "./errors.js";
import { BrokerError, isBrokerError } from "./index.js";
import type { HttpOptions, HttpTransportOptions } from "./types/http.js";

const TIMEOUT = 30_000;
const PROTOCOLS = ["plain", "envelope"] as const;
const ON_REFUSED = ["error-queue", "end"] as const;

/** What every request needs. */
export interface RequestSettings {
  headers(): Promise<Headers>;
  readonly timeout: number;
  readonly fetch: typeof fetch;
}

export interface TransportSettings extends RequestSettings {
  readonly url: string;
  readonly protocol: "plain" | "envelope";
  readonly request: HttpTransportOptions["request"];
  readonly reply: HttpTransportOptions["reply"];
  readonly onRefused: "error-queue" | "end";
}

const READERS = { headers: readHeaders, timeout: readTimeout, fetch: readFunction<typeof fetch> };

export function transportOptions(given: HttpTransportOptions): TransportSettings {
  return checked(() => {
    const read = options(given, "options", {
      url: readUrl, protocol: (value, argument) => oneOf(value, argument, PROTOCOLS), request: readFunction<NonNullable<HttpTransportOptions["request"]>>,
      reply: readFunction<NonNullable<HttpTransportOptions["reply"]>>, onRefused: (value, argument) => oneOf(value, argument, ON_REFUSED), ...READERS,
    });
    const { url, protocol = "plain", request, reply, onRefused = protocol === "plain" ? "error-queue" : "end" } = read;
    if (url === undefined) throw invalid("url", "must be given: where messages are POSTed");
    if (protocol === "envelope") {
      if (request !== undefined) throw invalid("request", "is of the plain protocol: an endpoint that speaks the wire protocol gets envelopes as they are; leave it out");
      if (reply !== undefined) throw invalid("reply", "is of the plain protocol: an endpoint that speaks the wire protocol answers with envelopes; leave it out");
      if (onRefused !== "end") throw invalid("onRefused", "is \"end\" with the envelope protocol: leave it out");
    }
    return { url, protocol, request, reply, onRefused, ...requestSettings(read) };
  });
}

export function replayOptions(given: HttpOptions | undefined): RequestSettings {
  return checked(() => requestSettings(options(given, "options", READERS)));
}

function requestSettings({ headers, timeout = TIMEOUT, fetch: own }: HttpOptions): RequestSettings {
  return {
    headers: async () => new Headers(typeof headers === "function" ? await headers() : headers),
    timeout,
    // The global one is looked up at each call, as any script of the page would do it.
    fetch: own ?? ((...call) => fetch(...call)),
  };
}

/** What check.ts throws is of the class that is in this entry's bundle; what leaves it is of the main entry's. */
export function checked<T>(read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (isBrokerError(error)) throw new BrokerError(error.code, error.message, { details: error.details, cause: error.cause });
    throw new BrokerError("InvalidArgument", `The arguments can't be read: reading them threw ${String(error)}.`, { cause: error });
  }
}

function readUrl(value: unknown, argument: string): string {
  const isUrl = typeof value === "string" || value instanceof URL;
  if (!isUrl) throw invalid(argument, `must be a string or a URL, not ${describe(value)}`);
  const base = globalThis.document?.baseURI ?? globalThis.location?.href;
  let url: URL;
  try {
    url = new URL(value, base);
  } catch {
    throw invalid(argument, `must be a URL, absolute or relative to ${base ?? "a page, which there is none of here"}, not ${JSON.stringify(String(value))}`);
  }
  if (!/^https?:$/.test(url.protocol)) throw invalid(argument, `must be of http or https, not of ${url.protocol.slice(0, -1)}`);
  if (url.username !== "" || url.password !== "") throw invalid(argument, "must have no name and no password in it, which fetch refuses: give them as the header Authorization");
  return url.href;
}

function readHeaders(value: unknown, argument: string): NonNullable<HttpOptions["headers"]> {
  if (typeof value === "function") return value as () => HeadersInit;
  try {
    // A copy: what is changed afterwards is not heard of.
    return new Headers(value as HeadersInit);
  } catch (error) {
    throw invalid(argument, `must be what Headers takes, or a function that gives it (${shown(error).message})`);
  }
}

function readTimeout(value: unknown, argument: string): number {
  if (!(number(value, argument) > 0)) throw invalid(argument, `must be above 0, not ${String(value)}`);
  return value as number;
}

function readFunction<F>(value: unknown, argument: string): F {
  if (typeof value !== "function") throw invalid(argument, `must be a function, not ${describe(value)}`);
  return value as F;
}

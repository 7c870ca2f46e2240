/**
 * Messages and requests over HTTP.
 *
 * @packageDocumentation
 */
import { envelopeTransport } from "./http-envelope.js";
import { transportOptions } from "./http-options.js";
import { plainTransport } from "./http-plain.js";
import type { HttpTransportOptions } from "./types/http.js";
import type { Transport } from "./types/transmission.js";

export { replay, toStoredRequest } from "./http-replay.js";
export type { HttpOptions, HttpTransportOptions, StoredRequest } from "./types/http.js";

/**
 * A transport that POSTs messages to an HTTP endpoint, for `broker.route`. What has no answer, or one that says "later" (408, 425, 429, 5xx, a redirect), is sent again, and
 * so is what is refused for want of credentials (401, 403). `Retry-After` is heeded. Messages of a conversation go one after the other; at most four requests are under way at
 * once to one origin, over all transports and `replay` of this page or worker. Each request has an `Idempotency-Key`, the same at each attempt: by it the server does nothing twice.
 *
 * Errors: InvalidArgument.
 */
export function httpTransport(options: HttpTransportOptions): Transport {
  const settings = transportOptions(options);
  return settings.protocol === "plain" ? plainTransport(settings) : envelopeTransport(settings);
}

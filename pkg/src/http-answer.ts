// What the answer of a server means, whoever has asked.

/** The longest that a server may ask to be left alone. */
const LONGEST_WAIT = 3_600_000;
/** A server that asks for less gets the broker's own back-off: it would be asked again and again without a pause. */
const LEAST_WAIT = 1_000;
/** How much of a refusal is kept. */
const KEPT = 4_096;
/** How much of it is in the description, in characters. */
const QUOTED = 1_000;

export type Answer =
  | { readonly kind: "done" }
  | { readonly kind: "retry"; readonly after: number | undefined; readonly reason: string }
  | { readonly kind: "refused"; readonly status: number; readonly description: string; readonly body: string };

/** A response, and the way to cut its connection: some browsers keep one on which a body was only cancelled. */
export interface Arrived {
  readonly response: Response;
  cut(): void;
}

/** `isRepeatable`: 409 and 412 say that the request has arrived before. Reads the body of a refusal, and no other. */
export async function judge(arrived: Arrived, isRepeatable: boolean): Promise<Answer> {
  const { response } = arrived;
  const { status, ok, headers, type } = response;
  const after = retryAfter(headers);
  if (ok) return { kind: "done" };
  // A 409 that asks for another attempt speaks of one that is still being worked on.
  if (isRepeatable && (status === 412 || (status === 409 && !headers.has("retry-after")))) {
    drain(arrived);
    return { kind: "done" };
  }
  const isRefused = status >= 400 && status < 500 && ![401, 403, 408, 425, 429].includes(status) && !(status === 409 && isRepeatable);
  if (!isRefused) {
    drain(arrived);
    return { kind: "retry", after, reason: waiting(status, type, named(response)) };
  }
  const body = text(await readUpTo(arrived, KEPT, true));
  const isPage = /html/i.test(headers.get("content-type") ?? "");
  const quoted = isPage ? "" : clip(body.trim(), QUOTED);
  return { kind: "refused", status, description: `The server answered ${named(response)}${quoted === "" ? "." : `: ${quoted}`}`, body };
}

function named({ status, statusText }: Response): string {
  return statusText === "" ? String(status) : `${status} (${clip(statusText, 100)})`;
}

function waiting(status: number, type: ResponseType, name: string): string {
  if (type === "opaque") return "The answer can't be read, since the request has the mode \"no-cors\". Let the server allow this page (CORS).";
  if (type === "opaqueredirect" || (status >= 300 && status < 400)) return "The server redirected the request, and redirects are not followed. Give the address that it leads to.";
  if (status === 401 || status === 403) return `The server answered ${name}: it is sent again, with the headers that are given then.`;
  return `The server answered ${name}.`;
}

/** Milliseconds; undefined when the server asks for nothing, or for nothing that can be read. */
export function retryAfter(headers: Headers, now = Date.now()): number | undefined {
  const given = headers.get("retry-after")?.trim() ?? "";
  let wait = NaN;
  if (/^\d+(\.\d+)?$/.test(given)) wait = Number(given) * 1_000;
  // An instant is by the server's clock, which its Date shows, where a page may see that.
  else if (/^(Mon|Tue|Wed|Thu|Fri|Sat|Sun).*GMT$/i.test(given)) wait = Date.parse(given) - (Date.parse(headers.get("date") ?? "") || now);
  return wait >= LEAST_WAIT ? Math.min(wait, LONGEST_WAIT) : undefined;
}

/** What was read of a body. `isWhole`: there is no more of it. */
export interface Content {
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly isWhole: boolean;
}

/** The body's first bytes. Of one that breaks off, what there is if `isLenient`; else that rejects. */
export async function readUpTo({ response, cut }: Arrived, most: number, isLenient = false): Promise<Content> {
  const parts: Uint8Array[] = [];
  let left = most;
  let isWhole = false;
  if (response.body !== null) {
    const reader = response.body.getReader();
    try {
      while (!isWhole && left >= 0) {
        const { done, value } = await reader.read();
        isWhole = done;
        if (value !== undefined) {
          parts.push(value.subarray(0, left));
          left -= value.length;
        }
      }
    } catch (cause) {
      if (!isLenient) throw new Error(`The answer broke off (${cause instanceof Error ? cause.message : String(cause)}).`, { cause });
    }
    // The rest is nobody's.
    if (!isWhole) cut();
  } else {
    isWhole = true;
  }
  const bytes = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return { bytes, isWhole };
}

/** UTF-8; half a character at the end is left out. */
export function text({ bytes, isWhole }: Content): string {
  return new TextDecoder().decode(bytes, { stream: !isWhole });
}

const SHORT = 65_536;
const SOON = 5_000;

/** Reads what nobody needs, so that the connection can be used again, unless it is long or slow: then the connection goes. */
export function drain({ response, cut }: Arrived): void {
  const reader = response.bodyUsed ? undefined : response.body?.getReader();
  if (reader === undefined) return;
  const timer = setTimeout(cut, SOON);
  const read = async (): Promise<void> => {
    for (let size = 0; size <= SHORT;) {
      const { done, value } = await reader.read();
      if (done) return;
      size += value.length;
    }
    cut();
  };
  // That nothing more comes is nobody's trouble: what the answer means is known.
  read().catch(() => {}).finally(() => clearTimeout(timer));
}

/** The first characters, no half one. */
function clip(given: string, most: number): string {
  return given.slice(0, most).replace(/[\ud800-\udbff]$/, "");
}

// Envelopes as they are, to an endpoint that speaks the wire protocol: it answers with acknowledgements, and with envelopes for this broker.
import { judge, readUpTo, text, type Answer } from "./http-answer.js";
import { exchange, limited, textOf } from "./http-call.js";
import type { TransportSettings } from "./http-options.js";
import type { Acknowledgement, Delivery, Envelope, MessageEnvelope, SendResult, Transport } from "./types/transmission.js";

/** A server with more to say says it in parts: what is longer is not read. */
const LONGEST_ANSWER = 16 * 1024 * 1024;
/** Envelopes that are kept to be handed in again, or to be sent back. A server gives again what was not acknowledged. */
const MOST = 1_000;
const FIRST_PAUSE = 1_000;
const LONGEST_PAUSE = 60_000;

type Deliver = (envelopes: unknown) => Promise<Delivery[]>;
type Posted = Exclude<Answer, { kind: "done" }> | { readonly kind: "done"; readonly envelopes: unknown[] };
interface Listener { readonly deliver: Deliver; readonly signal: AbortSignal }

export function envelopeTransport(settings: TransportSettings): Transport {
  const link = new Link(settings);
  return {
    send: (envelopes, { signal }) => link.send(envelopes, signal),
    listen: (deliver, { signal }) => link.listen({ deliver, signal }),
  };
}

class Link {
  readonly #settings: TransportSettings;
  /** Who is told of envelopes for this broker. */
  #listener: Listener | undefined;
  /** What goes back with the next request: by conversation and side, of which the last acknowledgement says it all. */
  readonly #owed = new Map<string, Envelope>();
  /** Envelopes are handed in one answer after the other. */
  #handing: Promise<unknown> = Promise.resolve();
  #isFlushing = false;

  constructor(settings: TransportSettings) {
    this.#settings = settings;
  }

  listen(listener: Listener): void {
    if (!listener.signal.aborted) this.#listener = listener;
  }

  async send(envelopes: readonly MessageEnvelope[], signal: AbortSignal): Promise<SendResult[]> {
    const owed = this.#take();
    let posted: Posted;
    try {
      posted = await this.#post([...owed, ...envelopes], signal);
      // It may be what goes back that is refused.
      if (posted.kind === "refused" && owed.length > 0) return await this.send(envelopes, signal);
    } catch (error) {
      this.#owe(owed);
      return envelopes.map(() => ({ status: "retry", reason: textOf(error) }));
    }
    if (posted.kind === "retry") {
      const { after, reason } = posted;
      this.#owe(owed);
      return envelopes.map(() => ({ status: "retry", ...(after !== undefined && { after }), reason }));
    }
    if (posted.kind === "refused") {
      const { status, description, body } = posted;
      if (status === 413 && envelopes.length > 1) return this.#sendHalves(envelopes, signal);
      return envelopes.map(() => ({ status: "refused", code: status, description, then: "end", httpStatus: status, httpBody: body }));
    }
    this.#receive(posted.envelopes, envelopes);
    return envelopes.map((envelope) => resultFor(envelope, posted.envelopes));
  }

  /** A request may be too large where each of its messages is not. */
  async #sendHalves(envelopes: readonly MessageEnvelope[], signal: AbortSignal): Promise<SendResult[]> {
    const middle = envelopes.length >> 1;
    const first = await this.send(envelopes.slice(0, middle), signal);
    const last = first.find(({ status }) => status === "retry" || status === "refused");
    const rest = envelopes.slice(middle);
    if (last === undefined) return [...first, ...await this.send(rest, signal)];
    return [...first, ...rest.map((): SendResult => ({ ...(last.status === "retry" ? last : {}), status: "retry", reason: "Waits for the message before it." }))];
  }

  async #post(envelopes: readonly Envelope[], signal: AbortSignal): Promise<Posted> {
    const settings = this.#settings;
    const headers = await limited(settings.timeout, signal, "Asking for the headers", () => settings.headers());
    headers.set("content-type", "application/json");
    const call = { input: settings.url, init: { method: "POST", redirect: "manual", headers, body: JSON.stringify(envelopes) } as const };
    const posted = await exchange<Posted>(call, settings, signal, async (arrived) => {
      const answer = await judge(arrived, false);
      if (answer.kind !== "done") return answer;
      const content = await readUpTo(arrived, LONGEST_ANSWER);
      if (!content.isWhole) return { kind: "retry", after: undefined, reason: `The answer has more than ${LONGEST_ANSWER} bytes: let the server say it in parts.` };
      let value: unknown;
      try {
        value = JSON.parse(text(content));
      } catch {
        value = undefined;
      }
      if (!Array.isArray(value)) return { kind: "retry", after: undefined, reason: `The server answered ${arrived.response.status}, but with no JSON array of envelopes: does it speak the wire protocol?` };
      return { kind: "done", envelopes: value as unknown[] };
    });
    // Nothing is too late here.
    return posted as Posted;
  }

  // ── envelopes for this broker ──

  /** Hands in what came, unless it says no more than the results of `sent` do. */
  #receive(envelopes: readonly unknown[], sent: readonly MessageEnvelope[] = []): void {
    const isNews = envelopes.some((envelope) => !sent.some((each) => isAcknowledgementOf(envelope, each)));
    if (!isNews) return;
    // Acknowledgements first: they say which broker the messages of a conversation may come from.
    const isMessage = (envelope: unknown): boolean => (envelope as { kind?: unknown } | null)?.kind === "message";
    this.#handInSoon([...envelopes.filter((envelope) => !isMessage(envelope)), ...envelopes.filter(isMessage)], FIRST_PAUSE);
  }

  #handInSoon(envelopes: readonly unknown[], pause: number): void {
    // The broker is closed, or its storage fails: the server gives again what nobody has acknowledged.
    this.#handing = this.#handing.then(() => this.#handIn(envelopes, pause)).catch(() => {});
  }

  async #handIn(envelopes: readonly unknown[], pause: number): Promise<void> {
    const listener = this.#listener;
    if (listener === undefined || listener.signal.aborted) return;
    const later: unknown[] = [];
    let wait = pause;
    let hasNews = false;
    for (const [index, delivery] of (await listener.deliver(envelopes)).entries()) {
      if (delivery.status === "later") {
        later.push(envelopes[index]);
        wait = Math.max(wait, delivery.after ?? 0);
      } else if (delivery.status === "refused") {
        if (delivery.reply !== undefined) this.#owe([delivery.reply]);
      } else {
        hasNews ||= delivery.status === "stored";
        if (delivery.acknowledgement !== null) this.#owe([delivery.acknowledgement]);
      }
    }
    if (later.length > 0) this.#again(listener, later.slice(0, MOST), wait, Math.min(pause * 2, LONGEST_PAUSE));
    // What is only repeated waits for the next request: a server that does not heed acknowledgements would repeat it in its next answer, without an end.
    if (hasNews) void this.#flush(listener.signal);
  }

  #again({ signal }: Listener, envelopes: readonly unknown[], wait: number, pause: number): void {
    const stop = (): void => clearTimeout(timer);
    const timer = setTimeout(() => {
      signal.removeEventListener("abort", stop);
      this.#handInSoon(envelopes, pause);
    }, wait);
    signal.addEventListener("abort", stop, { once: true });
  }

  // ── what goes back ──

  #owe(envelopes: readonly Envelope[]): void {
    for (const envelope of envelopes) {
      const { kind, conversationId, fromInitiator, sequence } = envelope;
      const key = `${kind}/${conversationId}/${fromInitiator}`;
      const known = this.#owed.get(key);
      if (known !== undefined && known.sequence > sequence) continue;
      if (known !== undefined || this.#owed.size < MOST) this.#owed.set(key, envelope);
    }
  }

  #take(): Envelope[] {
    const owed = [...this.#owed.values()];
    this.#owed.clear();
    return owed;
  }

  /** Sends back what is owed, until the server has nothing new to say. What does not arrive goes with the next request. */
  async #flush(signal: AbortSignal): Promise<void> {
    if (this.#isFlushing) return;
    this.#isFlushing = true;
    let owed: Envelope[] = [];
    try {
      while (this.#owed.size > 0) {
        owed = this.#take();
        const posted = await this.#post(owed, signal);
        if (posted.kind === "retry") {
          this.#owe(owed);
          return;
        }
        if (posted.kind === "done") this.#receive(posted.envelopes);
      }
    } catch {
      this.#owe(owed);
    } finally {
      this.#isFlushing = false;
    }
  }
}

function isAcknowledgementOf(given: unknown, envelope: MessageEnvelope): given is Acknowledgement {
  if (typeof given !== "object" || given === null) return false;
  const { kind, v, conversationId, fromInitiator, sequence, fromBroker, toBroker } = given as Partial<Acknowledgement>;
  return v === 1 && kind === "acknowledgement" && conversationId === envelope.conversationId && fromInitiator === envelope.fromInitiator && toBroker === envelope.fromBroker
    && typeof fromBroker === "string" && (envelope.toBroker === null || envelope.toBroker === fromBroker) && Number.isSafeInteger(sequence) && (sequence as number) >= envelope.sequence;
}

/** A server that says nothing of a message has taken it, and acknowledges it later: it waits for one that comes before. */
function resultFor(envelope: MessageEnvelope, answer: readonly unknown[]): SendResult {
  const found = answer.filter((given) => isAcknowledgementOf(given, envelope)).sort((one, other) => other.sequence - one.sequence)[0];
  return found === undefined ? { status: "accepted" } : { status: "acknowledged", upTo: found.sequence, fromBroker: found.fromBroker };
}

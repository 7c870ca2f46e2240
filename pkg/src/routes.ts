// Routes: where messages for far services go, as the wasm side calls it, in plain values; and what comes from there.
import { takeBody } from "./bodies.js";
import { unpack } from "./blobs.js";
import { describe, options, text, whole } from "./check.js";
import { openRaw, reasonOf, type Core } from "./core.js";
import { encodeBody } from "./encode.js";
import { invalid, reading, shown } from "./errors.js";
import type { RawEnvelope, RawReply, RawSendResult, RawTransport } from "./raw.js";
import type {} from "./types/disposable.js";
import type { Delivery, MessageEnvelope, Route, SendResult, Transport } from "./types/transmission.js";
import { validate } from "./validation.js";

const asyncDispose: typeof Symbol.asyncDispose = Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose");

/** Messages per call, unless the route says another number. */
const BATCH = 50;

/** Hands envelopes to the broker; `via`: the names of the routes that they came by. */
export type Deliver = (envelopes: unknown, context: { from?: string } | undefined, via: readonly string[]) => Promise<Delivery[]>;

/** A route as it was given; removing it a second time does nothing. */
export interface GivenRoute extends AsyncDisposable { remove(): Promise<void> }

/** What is known of a transport that listens. */
interface Listening { routes: { name: string; number: number }[]; controller: AbortController; services: string }

/** The routes of one broker. */
export class Routes {
  readonly #core: Core;
  readonly #deliver: Deliver;
  readonly #listening = new Map<Transport, Listening>();

  constructor(core: Core, deliver: Deliver) {
    this.#core = core;
    this.#deliver = deliver;
  }

  async add(given: Route): Promise<GivenRoute> {
    const { service, transport, batch } = reading(() => readRoute(given));
    const raw = openRaw(this.#core);
    let number: number;
    try {
      number = raw.route(service, rawTransport(transport, this.#core), batch);
    } catch (error) {
      throw reasonOf(this.#core, error);
    }
    this.#listen(transport, { name: service, number });
    let removed: Promise<void> | undefined;
    const remove = (): Promise<void> => removed ??= this.#remove(transport, number);
    return { remove, [asyncDispose]: remove };
  }

  /** The services that others can send to may have changed. */
  servicesChanged(): void {
    if (this.#listening.size === 0) return;
    const services = this.#core.raw.targets().join("\n");
    for (const [transport, listening] of this.#listening) {
      if (listening.services === services) continue;
      listening.controller.abort();
      this.#begin(transport, listening);
    }
  }

  close(): void {
    for (const { controller } of this.#listening.values()) controller.abort();
    this.#listening.clear();
  }

  async #remove(transport: Transport, number: number): Promise<void> {
    const listening = this.#listening.get(transport);
    if (listening !== undefined) {
      listening.routes = listening.routes.filter((route) => route.number !== number);
      if (listening.routes.length === 0) {
        this.#listening.delete(transport);
        listening.controller.abort();
      }
    }
    if (this.#core.closed === undefined) this.#core.raw.removeRoute(number);
  }

  #listen(transport: Transport, route: { name: string; number: number }): void {
    if (typeof transport.listen !== "function") return;
    const known = this.#listening.get(transport);
    if (known !== undefined) {
      known.routes.push(route);
      return;
    }
    const listening = { routes: [route], controller: new AbortController(), services: "" };
    this.#listening.set(transport, listening);
    this.#begin(transport, listening);
  }

  /** In a task of its own: what the application throws is told, and nobody waits for it. */
  #begin(transport: Transport, listening: Listening): void {
    const core = this.#core;
    const services = core.raw.targets();
    const controller = new AbortController();
    Object.assign(listening, { controller, services: services.join("\n") });
    const deliver = (envelopes: unknown, context?: { from?: string }): Promise<Delivery[]> =>
      this.#deliver(envelopes, context, listening.routes.map(({ name }) => name));
    const offerAgain = (): void => {
      for (const { number } of listening.routes) {
        // What fails is tried again by its time.
        if (core.closed === undefined && !controller.signal.aborted) core.raw.offerAgain(number).catch(() => {});
      }
    };
    void (async () => {
      await undefined;
      try {
        if (!controller.signal.aborted) await transport.listen?.(deliver, { services, instanceId: core.raw.instanceId, signal: controller.signal, offerAgain });
      } catch (error) {
        if (controller.signal.aborted || core.closed !== undefined) return;
        const { name = "Error", message, code } = shown(error);
        core.raw.warn("transmission", name, `A transport can't listen: ${message}`, code);
      }
    })();
  }
}

function readRoute(given: Route): Required<Route> {
  const { service, transport, batch = BATCH } = options(given, "route", {
    service: text,
    transport: (value: unknown, argument: string): Transport => {
      if (typeof value !== "object" || value === null) throw invalid(argument, `must be a transport, not ${describe(value)}`);
      const { send, listen } = value as Partial<Record<string, unknown>>;
      if (typeof send !== "function") throw invalid(argument, "has no method send(): a transport hands envelopes over with it");
      if (listen !== undefined && typeof listen !== "function") throw invalid(`${argument}.listen`, "must be a method, if it is there");
      return value as Transport;
    },
    batch: (value: unknown, argument: string) => whole(value, argument, 1, 10_000),
  });
  if (service === undefined) throw invalid("route.service", "is missing: the name of the far service, or \"*\"");
  if (transport === undefined) throw invalid("route.transport", "is missing: what carries the messages there");
  return { service, transport, batch };
}

/** A transport of the application's, for the wasm side. Rejections are `{ message }`. */
function rawTransport(transport: Transport, core: Core): RawTransport {
  return {
    send: async (raws, signal) => {
      // Outside of the wasm side.
      await undefined;
      try {
        signal.throwIfAborted();
        return await send(transport, core, raws, signal);
      } catch (error) {
        throw { message: shown(error).message };
      }
    },
    isSlow: () => (globalThis.navigator as { onLine?: boolean } | undefined)?.onLine === false,
  };
}

async function send(transport: Transport, core: Core, raws: readonly RawEnvelope[], signal: AbortSignal): Promise<RawSendResult[]> {
  const envelopes: MessageEnvelope[] = [];
  let unfit: RawSendResult | undefined;
  for (const raw of raws) {
    try {
      envelopes.push(await envelope(raw));
    } catch (error) {
      // It can't travel, ever. What comes behind it goes with the next call.
      unfit = { status: "refused", code: 0, description: `The body can't be sent to another broker: ${shown(error).message}`, ends: counts(transport) };
      break;
    }
  }
  const results = envelopes.length === 0 ? [] : await transport.send(envelopes, { signal });
  if (!Array.isArray(results)) throw new TypeError(`The transport must resolve with an array of results, not ${describe(results)}`);
  const read: RawSendResult[] = [];
  // Array.from, because map leaves holes out.
  for (const result of Array.from(results as unknown[]).slice(0, envelopes.length)) read.push(await readResult(core, result, counts(transport)));
  if (unfit !== undefined && read.length === envelopes.length) {
    read.push(unfit);
    if (read.length < raws.length) read.push({ status: "retry", after: 0, reason: "It goes with the next call." });
  }
  return read;
}

/** Whether brokers are at its other end, which expect each number: a message that is left out would be waited for. */
const counts = (transport: Transport): boolean => typeof transport.listen === "function";

async function envelope({ body, packing, headers, ...raw }: RawEnvelope): Promise<MessageEnvelope> {
  return { v: 1, kind: "message", ...raw, headers: { ...headers }, ...await encodeBody(unpack(body, packing)) };
}

/** A result as it was given; one that makes no sense is no answer. */
async function readResult(core: Core, given: unknown, ends: boolean): Promise<RawSendResult> {
  try {
    if (typeof given !== "object" || given === null) throw new TypeError(`must be an object with a \`status\`, not ${describe(given)}`);
    const result = given as SendResult;
    switch (result.status) {
      case "acknowledged": {
        const { upTo, fromBroker, reply } = result;
        if (upTo !== undefined && !(Number.isSafeInteger(upTo) && upTo >= 0)) throw new TypeError(`has an \`upTo\` that is no number of a message: ${describe(upTo)}`);
        if (fromBroker !== undefined && typeof fromBroker !== "string") throw new TypeError(`has a \`fromBroker\` that is no text but ${describe(fromBroker)}`);
        return { status: "acknowledged", upTo, fromBroker, ...(reply === undefined || reply === null ? {} : { reply: await readReply(core, reply) }) };
      }
      case "accepted": return { status: "accepted", retryAfter: amountOf(result.retryAfter, "retryAfter") ?? 60_000 };
      case "retry": return { status: "retry", after: amountOf(result.after, "after"), reason: result.reason === undefined ? "" : String(result.reason) };
      case "refused": {
        const { code, description, then, httpStatus, httpBody } = result;
        return {
          status: "refused", code: Number.isFinite(code) ? code : 0, description: String(description ?? "It gave no reason."), ends: then === undefined ? ends : then === "end",
          ...(httpStatus === undefined ? {} : { httpStatus: String(httpStatus) }), ...(httpBody === undefined ? {} : { httpBody: String(httpBody) }),
        };
      }
      default: throw new TypeError(`has a \`status\` that is none: ${describe((given as { status?: unknown }).status)}`);
    }
  } catch (error) {
    return { status: "retry", reason: `The transport gave a result that can't be read: it ${shown(error).message}` };
  }
}

function amountOf(value: unknown, name: string): number | undefined {
  if (value === undefined) return undefined;
  if (typeof value !== "number" || Number.isNaN(value)) throw new TypeError(`has a \`${name}\` that is no number of milliseconds but ${describe(value)}`);
  return value;
}

/** A message that came with an answer: cloned, measured and validated as one that arrives. */
async function readReply(core: Core, given: unknown): Promise<RawReply> {
  const { messageType = "DEFAULT", body } = given as { messageType?: unknown; body?: unknown };
  const name = typeof messageType === "string" ? messageType : String(messageType);
  try {
    const taken = takeBody(core, body, "body");
    const late = validate(core, "messageType", [name], [body], [taken], () => "body");
    await taken.ready;
    if (late !== undefined) {
      await late.ready;
      late.check();
    }
    return { messageType: name, body: taken.value, packing: taken.packing, size: taken.size };
  } catch (error) {
    return { messageType: name, body: undefined, packing: 0, size: 0, problem: shown(error).message };
  }
}

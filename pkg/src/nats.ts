/**
 * Transmission over NATS JetStream: for many brokers, none of which needs to be there when the other one is.
 *
 * @packageDocumentation
 */
import type { NatsConnection } from "@nats-io/nats-core";
import { BrokerError } from "./index.js";
import { asError, Desk, idOf } from "./nats-listen.js";
import { isId, Names, type Queue } from "./nats-names.js";
import { readOn } from "./nats-reader.js";
import { CLOSED, Server, wordsFor } from "./nats-server.js";
import type { MessageEnvelope, SendResult, Transport } from "./types/transmission.js";

/** What {@link natsTransport} works with. */
export interface NatsOptions {
  /**
   * A connection of the application's own, of @nats-io/nats-core: in a browser `wsconnect({ servers: "wss://…", maxReconnectAttempts: -1 })`. It may be a promise, so
   * that the route can be given while there is no network. It is never closed here.
   */
  connection: NatsConnection | PromiseLike<NatsConnection>;
  /** The name of the JetStream stream that holds what is under way. The claims of conversations are in a second one, of this name and "-claims". What is missing is made. */
  stream: string;
  /** What all subjects begin with. Default "pocket-broker". */
  subjectPrefix?: string;
  /** Is told what keeps it from listening or answering: a missing permission, for example. It goes on trying by itself. Default: nobody is told. */
  onError?: (error: Error) => void;
}

/** A message that the server has is offered again then, if it was not acknowledged: the server forgets ids after a while, and does not keep messages for ever. */
const OFFER_AGAIN = 6 * 3_600_000;
/**
 * One that the server says it had before is offered again soon, when it has forgotten the id (after two minutes by default): a server that was killed may know a message
 * that was taken, and have lost its acknowledgement.
 */
const OFFER_SOON = 150_000;
/** Of the header with the id, and to spare. */
const HEADER = 256;

/**
 * A transport over NATS JetStream. Messages wait at the server until the far broker has committed them. Several brokers may serve one service: a conversation lives on
 * exactly one of them. Needs the npm packages @nats-io/nats-core and @nats-io/jetstream, 3.4 or newer, and nats-server 2.9 or newer.
 *
 * What it proves about the sender is the last token of the subject: it is as good as the server's permissions. docs/nats.md says how to set them.
 *
 * Errors: InvalidArgument.
 */
export function natsTransport(options: NatsOptions): Transport {
  const { connection, stream, prefix, onError } = checked(options);
  const server = new Server(connection, new Names(stream, prefix));
  const report = (error: Error): void => {
    try {
      onError?.(error);
    } catch (thrown) {
      // As an event listener's: the page hears of it, and what is under way goes on.
      queueMicrotask(() => { throw thrown; });
    }
  };
  return {
    send: (envelopes, { signal }) => until(signal, Promise.all(envelopes.map((envelope) => sendOne(server, envelope)))),
    /** Rejects when the connection is closed: nobody listens any more then. */
    async listen(deliver, { services, instanceId, signal, offerAgain }) {
      const desk = new Desk(server, deliver, instanceId, report);
      const queues = [server.names.brokerQueue(instanceId), ...services.map((service) => server.names.serviceQueue(service))];
      // What was handed over before the connection broke may not have arrived. Without a connection there is nothing to watch: those who read say so.
      void server.watch(signal, offerAgain).catch(() => {});
      await Promise.all(queues.map((queue) => read(server, queue, desk, signal, report)));
    },
  };
}

async function sendOne(server: Server, envelope: MessageEnvelope): Promise<SendResult> {
  const { names } = server;
  const { fromBroker, toBroker, toService } = envelope;
  if (!isId(fromBroker) || !(toBroker === null || isId(toBroker))) return { status: "refused", code: 400, description: "The broker that the message is from or for has no id that can be part of a NATS subject.", then: "end" };
  const subject = toBroker === null ? names.any(toService, fromBroker) : names.to(toBroker, fromBroker);
  const payload = JSON.stringify(envelope);
  try {
    const connection = await server.connection();
    if (await server.isConnecting()) return { status: "retry", reason: "there is no connection to the NATS server" };
    const most = connection.info?.max_payload ?? Infinity;
    const size = new TextEncoder().encode(payload).length;
    // The far side waits for this number and gets no further: a message of its own must tell it.
    if (size + HEADER > most) return { status: "refused", code: 413, description: `The message takes ${size} bytes, and the NATS server takes ${most - HEADER}: raise its max_payload, or send less.`, then: "end" };
    const wasThere = await server.publish(subject, payload, idOf(envelope));
    return { status: "accepted", retryAfter: wasThere ? OFFER_SOON : OFFER_AGAIN };
  } catch (error) {
    return { status: "retry", reason: wordsFor(error) };
  }
}

function read(server: Server, queue: Queue, desk: Desk, signal: AbortSignal, report: (error: Error) => void): Promise<void> {
  return readOn({
    open: () => server.read(queue),
    handle: (messages) => desk.handle(messages, queue.kind),
    report: (error) => report(asError(error, `The queue ${queue.durable} can't be read, which is tried again`)),
    check: async () => {
      const connection = await server.connection();
      if (connection.isClosed()) throw new Error(CLOSED);
    },
  }, signal);
}

/** The same, but not longer than somebody waits for it. */
function until<T>(signal: AbortSignal, work: Promise<T>): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    const abort = (): void => { reject(signal.reason as Error); };
    if (signal.aborted) return void abort();
    signal.addEventListener("abort", abort, { once: true });
    work.finally(() => { signal.removeEventListener("abort", abort); }).then(resolve, reject);
  });
}

function checked(options: NatsOptions): { connection: NatsOptions["connection"]; stream: string; prefix: string; onError: NatsOptions["onError"] } {
  if (typeof options !== "object" || options === null) throw wrong("options", "must be an object", options);
  const { connection, stream, subjectPrefix = "pocket-broker", onError, ...rest } = options;
  const unknown = Object.keys(rest)[0];
  if (unknown !== undefined) throw wrong(unknown, "is no option of natsTransport: it has connection, stream, subjectPrefix and onError", undefined);
  const given = connection as Partial<NatsConnection> & Partial<PromiseLike<unknown>> | null | undefined;
  if (typeof given?.then !== "function" && (typeof given?.request !== "function" || typeof given.status !== "function")) throw wrong("connection", "must be a connection of @nats-io/nats-core, or a promise of one", connection);
  if (typeof stream !== "string" || !/^[A-Za-z0-9_-]{1,200}$/.test(stream)) throw wrong("stream", "must be 1 to 200 letters, digits, - and _", stream);
  if (typeof subjectPrefix !== "string" || !/^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$/.test(subjectPrefix)) throw wrong("subjectPrefix", "must be words of letters, digits, - and _ with dots between", subjectPrefix);
  if (onError !== undefined && typeof onError !== "function") throw wrong("onError", "must be a function", onError);
  return { connection, stream, prefix: subjectPrefix, onError };
}

function wrong(argument: string, problem: string, given: unknown): BrokerError {
  const shown = given === undefined ? "" : `, not ${typeof given === "string" ? JSON.stringify(given) : String(given)}`;
  return new BrokerError("InvalidArgument", `\`${argument}\` ${problem}${shown}.`, { details: { argument } });
}

// The server's side: streams and consumers that are made when they are absent, publishing, claims.
import { jetstream, jetstreamManager, type ConsumerConfig, type ConsumerMessages, type JetStreamClient, type JetStreamManager, type StreamConfig } from "@nats-io/jetstream";
import type { NatsConnection } from "@nats-io/nats-core";
import type { Names, Queue } from "./nats-names.js";

/** How long an answer of the server may take. */
const TIMEOUT = 10_000;
/** The name of the error that those get who waited for an answer when the connection broke. */
const BROKEN = "ConnectionBroken";
const NANOS = 1_000_000;
/** As long as brokers remember what they have ended. What is older is offered again by its sender, who keeps it until it is acknowledged. */
const KEPT = 30 * 86_400_000 * NANOS;
/** Whoever has fetched a message and says nothing for so long is taken for dead. */
const ACK_WAIT = 30_000 * NANOS;
/** The stream may be missing, and then the claim of somebody else may just expire. */
const CLAIMS = 3;
/** Messages per reader that the server may have under way. */
const FETCHED = 100;

/** Numbers of the JetStream API. */
const CONSUMER_NOT_FOUND = 10014;
const CONSUMER_EXISTS = [10013, 10105, 10148];
const NO_MESSAGE = 10037;
const STREAM_NOT_FOUND = 10059;
const STREAM_EXISTS = 10058;
const WRONG_LAST_SEQUENCE = 10071;

interface Client { readonly connection: NatsConnection; readonly js: JetStreamClient; readonly manager: JetStreamManager }

function numberOf(error: unknown): number | undefined {
  const code = (error as { code?: unknown } | null | undefined)?.code;
  return typeof code === "number" ? code : undefined;
}

/** No stream takes the subject, or JetStream is off: by name, since there may be two copies of the client. */
function nobodyAnswered(error: unknown): boolean {
  return (error as Error | undefined)?.name === "JetStreamNotEnabled";
}

export const CLOSED = "the NATS connection is closed: give the route a transport with a new one, and connect with `maxReconnectAttempts: -1`";

/** What failed, in words for the application. */
export function wordsFor(error: unknown): string {
  const { name, message } = error instanceof Error ? error : { name: "", message: String(error) };
  if (nobodyAnswered(error)) return "no stream takes the message: JetStream is off at the NATS server, or the stream is missing and may not be made with these permissions";
  if (name === "TimeoutError") return `the NATS server did not answer within ${TIMEOUT / 1_000} s`;
  if (name === BROKEN) return "the connection to the NATS server broke before it answered";
  if (name === "ClosedConnectionError" || name === "DrainingConnectionError") return CLOSED;
  return numberOf(error) !== undefined || /permissions violation/i.test(message) ? `the NATS server says: ${message}` : message;
}

export class Server {
  readonly names: Names;
  readonly #connection: NatsConnection | PromiseLike<NatsConnection>;
  readonly #waiting = new Set<(reason: Error) => void>();
  #client: Promise<Client> | undefined;
  #isBroken = false;

  constructor(connection: NatsConnection | PromiseLike<NatsConnection>, names: Names) {
    this.#connection = connection;
    this.names = names;
  }

  async connection(): Promise<NatsConnection> { return (await this.#clients()).connection; }

  /** What is published while the client connects again waits in it, and goes when nobody waits for it any more, or never. */
  async isConnecting(): Promise<boolean> {
    const connection = await this.connection();
    return !connection.isClosed() && (this.#isBroken || connection.info === undefined);
  }

  /** Until the signal aborts it is known when the connection breaks; who waits for an answer then waits no longer. */
  async watch(signal: AbortSignal, reconnected: () => void): Promise<void> {
    const connection = await this.connection();
    if (signal.aborted) return;
    const events = connection.status() as ReturnType<NatsConnection["status"]> & { stop?(): void };
    // A `return` of the iterator would wait for the next event; this is how the client ends them itself.
    const stop = (): void => events.stop?.();
    signal.addEventListener("abort", stop);
    try {
      for await (const { type } of events) {
        if (signal.aborted) return;
        if (type === "disconnect") {
          this.#isBroken = true;
          for (const fail of [...this.#waiting]) fail(Object.assign(new Error("the connection broke"), { name: BROKEN }));
        } else if (type === "reconnect") {
          this.#isBroken = false;
          reconnected();
        }
      }
    } finally {
      this.#isBroken = false;
      signal.removeEventListener("abort", stop);
    }
  }

  #answer<T>(request: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#waiting.add(reject);
      request.finally(() => this.#waiting.delete(reject)).then(resolve, reject);
    });
  }

  /** Stores a message, once per id within the stream's window. Resolves when the server has it for good, with whether it had it before. */
  async publish(subject: string, payload: string, msgID?: string): Promise<boolean> {
    const { js } = await this.#clients();
    const options = msgID === undefined ? {} : { msgID };
    try {
      return (await this.#answer(js.publish(subject, payload, options))).duplicate;
    } catch (error) {
      if (!nobodyAnswered(error)) throw error;
      await this.#makeStreams();
      return (await this.#answer(js.publish(subject, payload, options))).duplicate;
    }
  }

  /** Claims a conversation for a broker, and gives the one who has it: the first who claimed it. */
  async claim(conversationId: string, broker: string): Promise<string> {
    const { js } = await this.#clients();
    for (let attempt = 1; ; attempt += 1) {
      try {
        await this.#answer(js.publish(this.names.claim(conversationId), broker, { expect: { lastSubjectSequence: 0 } }));
        return broker;
      } catch (error) {
        if (attempt === CLAIMS || !(nobodyAnswered(error) || numberOf(error) === WRONG_LAST_SEQUENCE)) throw error;
        if (nobodyAnswered(error)) await this.#makeStreams();
      }
      // Also where the answer to an earlier try was lost: then the claim is ours. One that expired meanwhile is claimed again.
      const winner = await this.claimed(conversationId);
      if (winner !== undefined) return winner;
    }
  }

  /** The broker that has claimed a conversation. */
  async claimed(conversationId: string): Promise<string | undefined> {
    const { manager } = await this.#clients();
    try {
      return (await this.#answer(manager.streams.getMessage(this.names.claims, { last_by_subj: this.names.claim(conversationId) })))?.string();
    } catch (error) {
      if (numberOf(error) === NO_MESSAGE || numberOf(error) === STREAM_NOT_FOUND) return undefined;
      throw error;
    }
  }

  /** Begins to fetch what is in a queue. It ends with an error when the queue is deleted. */
  async read(queue: Queue): Promise<ConsumerMessages> {
    const { js, manager } = await this.#clients();
    const { stream } = this.names;
    const look = () => manager.consumers.info(stream, queue.durable);
    const info = await look().catch(async (error: unknown) => {
      if (numberOf(error) === STREAM_NOT_FOUND) await this.#makeStreams();
      else if (numberOf(error) !== CONSUMER_NOT_FOUND) throw error;
      return manager.consumers.add(stream, consumerConfig(queue)).catch((second: unknown) => {
        if (CONSUMER_EXISTS.includes(numberOf(second) ?? 0)) return look(); // Somebody else was faster.
        throw second;
      });
    });
    return js.consumers.getConsumerFromInfo(info).consume({ max_messages: FETCHED, abort_on_missing_resource: true });
  }

  async #makeStreams(): Promise<void> {
    const { names } = this;
    // What is there stays as it is: whoever made it knows how many copies and how much room it is to have.
    const common = { storage: "file", max_age: KEPT, discard: "new" } as const;
    await this.#makeStream({ ...common, name: names.stream, subjects: names.subjects, retention: "workqueue" });
    await this.#makeStream({ ...common, name: names.claims, subjects: names.claimSubjects, retention: "limits", max_msgs_per_subject: 1, deny_delete: true });
  }

  async #makeStream(config: Partial<StreamConfig> & { name: string }): Promise<void> {
    const { manager } = await this.#clients();
    try {
      await manager.streams.info(config.name);
    } catch (error) {
      if (numberOf(error) !== STREAM_NOT_FOUND) throw error;
      await manager.streams.add(config).catch((second: unknown) => {
        if (numberOf(second) !== STREAM_EXISTS) throw second; // Somebody else was faster.
      });
    }
  }

  #clients(): Promise<Client> {
    this.#client ??= (async () => {
      const connection = await this.#connection;
      // checkAPI asks for the account, which a browser has no business to see.
      return { connection, js: jetstream(connection, { timeout: TIMEOUT }), manager: await jetstreamManager(connection, { timeout: TIMEOUT, checkAPI: false }) };
    })();
    return this.#client;
  }
}

function consumerConfig({ durable, filter, kind }: Queue): Partial<ConsumerConfig> {
  return {
    durable_name: durable,
    filter_subject: filter,
    deliver_policy: "all",
    ack_policy: "explicit",
    ack_wait: ACK_WAIT,
    // A message that is put off again and again must neither be given up nor hold up others.
    max_deliver: -1,
    max_ack_pending: -1,
    // The queue of a broker that never comes back goes; what is still in the stream waits for its end without it.
    ...(kind === "to" ? { inactive_threshold: KEPT } : {}),
  };
}

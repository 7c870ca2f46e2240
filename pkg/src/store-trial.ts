// What the checks of a delayed message store work with: two instances at one endpoint, messages that are cleaned up, and sentences about what went wrong.
import { describe, tagOf } from "./check.js";
import type { DelayedMessage, DelayedMessageStore, TransactionMode } from "./types/delayed.js";

/** What a store does that the contract does not allow. */
export class Breach extends Error {}

export function expect(holds: boolean, wanted: string, did: string, cause?: unknown): asserts holds {
  if (!holds) throw new Breach(`expected ${wanted}; but ${did}`, cause === undefined ? {} : { cause });
}

/** How long a broker waits for an answer, in milliseconds. */
const LIMIT = 60_000;
/** Those that a store of an application's own can honour, the default first. */
const MODES: readonly TransactionMode[] = ["sends-atomic-with-receive", "receive-only", "none"];

/** A value in a sentence. */
export const say = (value: unknown): string => {
  if (typeof value === "object" && value !== null && tagOf(value) === "Date") return Number.isNaN(Number(value)) ? "an invalid Date" : `the Date ${(value as Date).toISOString()}`;
  if (typeof value === "string") return value.length > 60 ? `a string of ${value.length} characters` : JSON.stringify(value);
  return typeof value === "object" || typeof value === "function" || value === undefined ? describe(value) : String(value);
};

/** One instance of the store. Each call has its limit, and each answer is of the kind that the contract names. */
export class Instance {
  readonly store: DelayedMessageStore;
  readonly name: string;

  constructor(store: DelayedMessageStore, name: string) {
    this.store = store;
    this.name = name;
  }

  /** The answer of a method; a Breach when it rejects, or does not answer. */
  async call<T>(method: keyof DelayedMessageStore, invoke: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const outcome = await this.outcome(method, invoke);
    if ("error" in outcome) throw new Breach(`expected ${method} to resolve; but on ${this.name} it rejected with ${String(outcome.error)}`, { cause: outcome.error });
    return outcome.value;
  }

  async outcome<T>(method: keyof DelayedMessageStore, invoke: (signal: AbortSignal) => Promise<T>): Promise<{ value: T } | { error: unknown }> {
    const controller = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => {
        reject(new Breach(`expected ${method} to answer; but on ${this.name} it has not within ${LIMIT / 1_000} s. What is held is passed over, and nothing waits for it`));
        controller.abort(new DOMException("No answer for 60 s", "TimeoutError"));
      }, LIMIT);
    });
    try {
      return { value: await Promise.race([(async () => invoke(controller.signal))(), late]) };
    } catch (error) {
      if (error instanceof Breach) throw error;
      return { error };
    } finally {
      clearTimeout(timer);
    }
  }

  /** Whether it was new. */
  async stores(message: DelayedMessage): Promise<boolean> {
    const answer: unknown = await this.call("store", (signal) => this.store.store(message, signal));
    expect(answer === undefined || typeof answer === "boolean", "store to answer true, false or nothing", `it answered ${say(answer)}`);
    return answer !== false;
  }

  /** Stores a message that is new. */
  async keeps(...messages: DelayedMessage[]): Promise<void> {
    for (const message of messages) expect(await this.stores(message), "store to answer true, or nothing, for a message that is new", "it answered false, which says that it holds this id already");
  }

  removes(message: DelayedMessage): Promise<boolean> {
    return this.#answers("remove", (signal) => this.store.remove(message, signal));
  }

  increments(message: DelayedMessage, nextAttempt: number): Promise<boolean> {
    return this.#answers("incrementFailureCount", (signal) => this.store.incrementFailureCount(message, new Date(nextAttempt), signal));
  }

  async #answers(method: keyof DelayedMessageStore, invoke: (signal: AbortSignal) => Promise<boolean>): Promise<boolean> {
    const answer: unknown = await this.call(method, invoke);
    expect(typeof answer === "boolean", `${method} to answer true or false`, `it answered ${say(answer)}`);
    return answer;
  }

  /** When the earliest message is due, as epoch milliseconds. */
  async next(): Promise<number | null> {
    const answer: unknown = await this.call("next", (signal) => this.store.next(signal));
    const isTime = typeof answer === "object" && answer !== null && tagOf(answer) === "Date" && !Number.isNaN(Number(answer));
    expect(answer === null || isTime, "next to answer a Date or null", `it answered ${say(answer)}`);
    return answer === null ? null : Number(answer);
  }

  async fetch(at: number): Promise<DelayedMessage | null> {
    const answer: unknown = await this.call("fetchNextDueTimeout", (signal) => this.store.fetchNextDueTimeout(new Date(at), signal));
    const isMessage = typeof answer === "object" && answer !== null && typeof (answer as Partial<DelayedMessage>).messageId === "string";
    expect(answer === null || isMessage, "fetchNextDueTimeout to answer a message or null", `it answered ${say(answer)}${isMessage || typeof answer !== "object" ? "" : " without a messageId"}`);
    return answer as DelayedMessage | null;
  }

  /** Fetches until there is nothing, or more than there can be. */
  async fetchAll(at: number, most: number): Promise<DelayedMessage[]> {
    const found: DelayedMessage[] = [];
    for (let message = await this.fetch(at); message !== null && found.length <= most; message = await this.fetch(at)) found.push(message);
    return found;
  }
}

/** Two instances of a store at an endpoint that nobody else has, and what they are given. */
export class Trial {
  readonly endpointName = `check-${crypto.randomUUID()}`;
  readonly one: Instance;
  readonly other: Instance;
  /** An instant that is not now, so that a store which goes by its own clock is found out. */
  readonly base: number = Date.now() + 86_400_000;
  readonly mode: TransactionMode;
  readonly #instanceId = crypto.randomUUID();
  readonly #ids = new Set<string>();
  readonly #make: () => Promise<DelayedMessageStore>;

  private constructor(make: () => Promise<DelayedMessageStore>, stores: readonly DelayedMessageStore[], mode: TransactionMode) {
    [this.one, this.other] = stores.map((store, index) => new Instance(store, index === 0 ? "one instance" : "the other instance")) as [Instance, Instance];
    this.mode = mode;
    this.#make = make;
  }

  /** Instances that are not ready yet: `setUp` and `initialize` are checks, too. */
  static async begin(make: () => Promise<DelayedMessageStore>, mode: TransactionMode = MODES[0] as TransactionMode): Promise<Trial> {
    return new Trial(make, [await make(), await make()], mode);
  }

  /** As tabs do that are opened together, and later once more. */
  async setUp(): Promise<void> {
    await Promise.all([this.#setUp(this.one), this.#setUp(this.other)]);
    await this.#setUp(this.one);
  }

  async #setUp(instance: Instance, endpointName = this.endpointName): Promise<void> {
    if (instance.store.setupInfrastructure === undefined) return;
    await instance.call("setupInfrastructure", async (signal) => instance.store.setupInfrastructure?.({ endpointName, transactionMode: this.mode, instanceId: this.#instanceId, signal }));
  }

  /** A trial whose instances have been initialized, in the first mode that they take. Each attempt is made with new instances. */
  async initialized(): Promise<Trial> {
    const refusals: string[] = [];
    let first: unknown;
    for (const mode of MODES) {
      const trial = mode === this.mode ? this : await Trial.begin(this.#make, mode);
      if (trial !== this) await trial.setUp();
      const { one, other, endpointName } = trial;
      const outcome = await one.outcome("initialize", (signal) => one.store.initialize(endpointName, mode, signal));
      if (!("error" in outcome)) {
        await other.call("initialize", (signal) => other.store.initialize(endpointName, mode, signal));
        return trial;
      }
      first ??= outcome.error;
      refusals.push(`"${mode}": ${String(outcome.error)}`);
    }
    throw new Breach(`expected initialize to take one of the modes that a store of one's own can honour; but it refused all (${refusals.join("; ")})`, { cause: first });
  }

  /** An instance at another endpoint. */
  async elsewhere(): Promise<Instance> {
    const instance = new Instance(await this.#make(), "an instance at another endpoint");
    const endpointName = `check-${crypto.randomUUID()}`;
    await this.#setUp(instance, endpointName);
    await instance.call("initialize", (signal) => instance.store.initialize(endpointName, this.mode, signal));
    return instance;
  }

  /** A message with an id of its own, due at `base` if not said otherwise. It is removed after the check. */
  message(fields: Partial<Omit<DelayedMessage, "time">> & { time?: number } = {}): DelayedMessage {
    const { time = this.base, ...more } = fields;
    const message: DelayedMessage = {
      messageId: crypto.randomUUID(), destination: "letters", time: new Date(time), headers: {}, properties: { messageType: "DEFAULT", priority: "5" }, body: "a message of checkDelayedMessageStore", numberOfRetries: 0, ...more,
    };
    this.#ids.add(message.messageId);
    return message;
  }

  /** Removes what the check has stored. Whether the endpoint is empty again. */
  async cleanUp(): Promise<boolean> {
    try {
      for (const messageId of this.#ids) {
        await this.one.removes(bare(messageId));
        this.#ids.delete(messageId);
      }
      return (await this.one.next()) === null;
    } catch {
      return false; // Whatever is wrong with it has a check of its own.
    }
  }
}

/** A message of which nothing but the id means anything, as after a cancel or a crash. */
export function bare(messageId: string): DelayedMessage {
  return { messageId, destination: "", time: new Date(0), headers: {}, properties: {}, body: undefined, numberOfRetries: 0 };
}

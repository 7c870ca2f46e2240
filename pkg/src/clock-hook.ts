// How the package and a test clock find each other: by a symbol, since they are bundled apart.

/** What a test clock wants of a broker. */
export interface Watched {
  /** When something is due next: a delayed message, a timer, a retry; null: nothing. */
  next(): Promise<number | null>;
  /** Does what is due. Gives how many messages came of it. */
  poll(): Promise<number>;
  /** Resolves when the activations have nothing to do. */
  idle(): Promise<unknown>;
  readonly isClosed: boolean;
}

/** What a test clock has for the package. */
export interface ClockHook {
  /** For the broker's own waits: nobody has to go through each of them. */
  sleep(ms: number, signal: AbortSignal): Promise<void>;
  watch(broker: Watched): void;
}

const HOOK = Symbol.for("pocket-broker.clock");

export function hookOf(clock: object): ClockHook | undefined {
  return (clock as { [HOOK]?: ClockHook })[HOOK];
}

export function withHook<C extends object>(clock: C, hook: ClockHook): C {
  return Object.defineProperty(clock, HOOK, { value: hook });
}

/**
 * For the tests of applications.
 *
 * @packageDocumentation
 */
import { withHook, type Watched } from "./clock-hook.js";
import { BrokerError } from "./index.js";
import type { Clock } from "./types/broker.js";

export { checkDelayedMessageStore } from "./store-kit.js";

/** A clock that stands still until it is told to go on. Give it to `openBroker` as `clock`. */
export interface TestClock extends Required<Clock> {
  /**
   * Lets so many milliseconds pass: goes from due instant to due instant, and resolves when all that is due by then has been done: delayed messages and
   * timers, lifetimes and retries, and the handlers of `activate` that messages came to. A handler that waits by the clock's own `sleep` is woken on the
   * way. What can't be done, because the storage fails, waits, and time goes on. Calls go one after the other. Errors: InvalidArgument.
   */
  advance(ms: number): Promise<void>;
}

/** The last instant that a Date has. */
const LATEST = 8.64e15;

interface Sleeper { readonly at: number; wake(): void }

/**
 * Makes a clock that stands still.
 * @param start What it shows first: a Date, or epoch milliseconds. Default: the present.
 */
export function testClock(start: Date | number = Date.now()): TestClock {
  let now = typeof start === "number" || Object.prototype.toString.call(start) === "[object Date]" ? Number(start) : NaN;
  if (!(Math.abs(now) <= LATEST)) throw refused("start", "a Date or epoch milliseconds", start);
  const brokers = new Set<Watched>();
  const own = new Set<Sleeper>();
  const others = new Set<Sleeper>();
  let stir = (): void => {};
  let last: Promise<unknown> = Promise.resolve();

  const sleepIn = (sleepers: Set<Sleeper>) => (ms: number, signal?: AbortSignal): Promise<void> => new Promise((resolve, reject) => {
    if (signal?.aborted) {
      reject(signal.reason as Error);
      return;
    }
    if (!(ms > 0)) {
      resolve();
      return;
    }
    const end = (): void => {
      sleepers.delete(sleeper);
      signal?.removeEventListener("abort", abort);
    };
    const abort = (): void => {
      end();
      reject(signal?.reason as Error);
    };
    const sleeper: Sleeper = { at: now + ms, wake: () => { end(); resolve(); } };
    sleepers.add(sleeper);
    signal?.addEventListener("abort", abort, { once: true });
    if (sleepers === others) stir();
  });

  /** Who has slept long enough wakes, in the order of the times. */
  const wake = (): void => {
    for (const sleeper of [...own, ...others].filter(({ at }) => at <= now).sort((one, other) => one.at - other.at)) sleeper.wake();
  };

  const open = (): Watched[] => {
    for (const broker of brokers) if (broker.isClosed) brokers.delete(broker);
    return [...brokers];
  };

  /** Until the handlers have nothing to do, or one of them sleeps by this clock. */
  const rest = async (): Promise<void> => {
    await turn();
    const idle = Promise.all(open().map((broker) => broker.idle()));
    const stirred = new Promise<void>((resolve) => { stir = resolve; });
    if (others.size === 0) await Promise.race([idle, stirred]);
    else await Promise.race([idle, stirred, turn()]);
    idle.catch(() => {});
  };

  /** All that is due by now is done, and what comes of it. */
  const settle = async (): Promise<void> => {
    let moved: number;
    do {
      wake();
      await rest();
      moved = 0;
      // Where the storage fails, or the broker is closed meanwhile, nothing moves, and time goes on: the broker itself tries again, and tells.
      for (const broker of open()) moved += await broker.poll().catch(() => 0);
    } while (moved > 0);
    await rest();
  };

  const next = async (): Promise<number> => {
    const due = await Promise.all(open().map((broker) => broker.next().catch(() => null)));
    const times = [...due.filter((at): at is number => at !== null), ...[...others].map(({ at }) => at)];
    // What is still due now can't be done: whoever waits for it gets no further by waiting here.
    return Math.min(...times.filter((at) => at > now));
  };

  const go = async (until: number): Promise<void> => {
    await settle();
    for (let at = await next(); at <= until; at = await next()) {
      now = at;
      await settle();
    }
    now = until;
    await settle();
  };

  const clock: TestClock = {
    now: () => now,
    sleep: sleepIn(others),
    advance(ms: number): Promise<void> {
      if (!(Number.isFinite(ms) && ms >= 0 && now + ms <= LATEST)) return Promise.reject(refused("ms", "a finite number of milliseconds from 0 on", ms));
      const gone = last.then(() => go(now + ms));
      last = gone.catch(() => {});
      return gone;
    },
  };
  return withHook(clock, { sleep: sleepIn(own), watch: (broker) => void brokers.add(broker) });
}

/** What has been asked for by now gets its turn. */
function turn(): Promise<void> {
  return new Promise((resolve) => { setTimeout(resolve, 0); });
}

function refused(argument: string, wanted: string, given: unknown): BrokerError {
  return new BrokerError("InvalidArgument", `\`${argument}\` must be ${wanted}, not ${String(given)}.`, { details: { argument } });
}

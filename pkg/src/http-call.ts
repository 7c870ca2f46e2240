// One request: its turn, its time, its answer.
import type { Arrived } from "./http-answer.js";
import type { RequestSettings } from "./http-options.js";

/** Requests under way at once to one origin: browsers have six connections to it, and the page needs some. */
const MOST = 4;
/** A longer timer fires at once. */
const LONGEST_TIMER = 2 ** 31 - 1;

interface Gate { running: number; readonly waiting: (() => void)[] }
/** By origin, of all transports of this context. */
const gates = new Map<string, Gate>();

/** Waits for one's turn. Gives what to call when the request is over. Rejects with the signal's reason. */
async function enter(origin: string, signal: AbortSignal): Promise<() => void> {
  signal.throwIfAborted();
  let gate = gates.get(origin);
  if (gate === undefined) gates.set(origin, gate = { running: 0, waiting: [] });
  const { waiting } = gate;
  const leave = (): void => {
    const next = waiting.shift();
    // Whoever comes next takes the place over.
    if (next !== undefined) next();
    else if (--gate.running === 0) gates.delete(origin);
  };
  if (gate.running < MOST) {
    gate.running += 1;
    return leave;
  }
  await new Promise<void>((resolve, reject) => {
    const go = (): void => {
      signal.removeEventListener("abort", abort);
      resolve();
    };
    const abort = (): void => {
      waiting.splice(waiting.indexOf(go), 1);
      reject(signal.reason as Error);
    };
    waiting.push(go);
    signal.addEventListener("abort", abort, { once: true });
  });
  return leave;
}

/** Does something that is given up after `ms`, or with the signal, and is told so by a signal of its own: whatever it does then, nobody waits for it. */
export async function limited<T>(ms: number, signal: AbortSignal, what: string, work: (own: AbortController) => Promise<T>): Promise<T> {
  const own = new AbortController();
  let timer: ReturnType<typeof setTimeout> | undefined;
  let abort = (): void => {};
  try {
    return await new Promise<T>((resolve, reject) => {
      const stop = (reason: unknown): void => {
        reject(reason as Error);
        own.abort(reason);
      };
      abort = () => stop(signal.reason);
      signal.throwIfAborted();
      signal.addEventListener("abort", abort, { once: true });
      if (ms <= LONGEST_TIMER) timer = setTimeout(() => stop(new Error(`${what} took longer than \`timeout\`, ${ms} ms.`)), ms);
      work(own).then(resolve, reject);
    });
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", abort);
  }
}

/** What `fetch` takes; the signal is not in it. */
export interface Call {
  readonly input: string | Request;
  readonly init: RequestInit;
}

/**
 * Sends a request when it is its turn, and reads its answer. Rejects when there is none in time, or with the signal's reason.
 * @param isLate asked when it is its turn: whether it is too late to begin. Then this gives undefined.
 */
export async function exchange<T>({ input, init }: Call, settings: RequestSettings, signal: AbortSignal, read: (arrived: Arrived) => Promise<T>, isLate = (): boolean => false): Promise<T | undefined> {
  const leave = await enter(new URL(typeof input === "string" ? input : input.url).origin, signal);
  try {
    if (isLate()) return undefined;
    return await limited(settings.timeout, signal, "The answer", async (own) => {
      let response: Response;
      try {
        response = await settings.fetch(input, { ...init, signal: own.signal });
      } catch (cause) {
        throw new Error(`${textOf(cause)}: the server can't be reached, or does not allow this page to send this or to read its answer (CORS). The browser's console says which.`, { cause });
      }
      return read({ response, cut: () => own.abort() });
    });
  } finally {
    leave();
  }
}

/** The text of what was thrown, whatever it is. */
export function textOf(reason: unknown): string {
  try {
    const { name, message } = reason as Partial<Error>;
    if (typeof message !== "string" || message === "") return typeof name === "string" ? name : String(reason);
    return typeof name === "string" && name !== "Error" ? `${name}: ${message}` : message;
  } catch {
    return "something that can't be read";
  }
}

// Reads one queue of the server for as long as it is listened to.
import type { ConsumerMessages, JsMsg } from "@nats-io/jetstream";

/** As many as the server has under way to one reader. */
const BATCH = 100;
const RETRY = 1_000;
const SLOWEST_RETRY = 30_000;
/** What is on its way has come by then. */
const DRAINED = 2_000;

export interface Reading {
  /** Begins to fetch. */
  open(): Promise<ConsumerMessages>;
  /** Deals with messages: one call at a time, with all that have come by then. Must not reject. */
  handle(messages: JsMsg[]): Promise<void>;
  /** Told what went wrong; it goes on by itself. */
  report(error: unknown): void;
  /** Rejects when there is no point in going on. */
  check(): Promise<void>;
}

/** Resolves when the signal has aborted and what is in hand has been dealt with. Rejects when there is no point in going on. */
export async function readOn(reading: Reading, signal: AbortSignal): Promise<void> {
  for (let failures = 0; !signal.aborted;) {
    try {
      const messages = await reading.open();
      failures = 0;
      await inBatches(messages, reading, signal);
      if (signal.aborted) return;
      await reading.check();
    } catch (error) {
      if (signal.aborted) return;
      await reading.check();
      reading.report(error);
    }
    await pause(Math.min(SLOWEST_RETRY, RETRY * 2 ** failures), signal);
    failures += 1;
  }
}

async function inBatches(messages: ConsumerMessages, { handle }: Reading, signal: AbortSignal): Promise<void> {
  const waiting: JsMsg[] = [];
  let [wake, makeRoom] = [(): void => {}, (): void => {}];
  const stop = (): void => { void drained(messages); };
  let ended = false;
  const fetching = (async () => {
    for await (const message of messages) {
      waiting.push(message);
      wake();
      // Not reading on keeps the client from asking for more.
      if (waiting.length >= BATCH && !signal.aborted) await new Promise<void>((resolve) => { makeRoom = resolve; });
    }
  })().finally(() => { ended = true; wake(); });
  fetching.catch(() => {}); // Awaited below, when what has come is dealt with.
  signal.addEventListener("abort", stop);
  if (signal.aborted) stop();
  try {
    while (!ended || waiting.length > 0) {
      if (waiting.length === 0) await new Promise<void>((resolve) => { wake = resolve; });
      const batch = waiting.splice(0);
      makeRoom();
      if (signal.aborted) batch.forEach(handBack);
      else if (batch.length > 0) await handle(batch);
    }
    await fetching;
  } finally {
    signal.removeEventListener("abort", stop);
  }
}

/** Fetches no more. What the server has sent meanwhile still comes, and is handed back: otherwise it would wait until we are taken for dead. */
async function drained(messages: ConsumerMessages): Promise<void> {
  // The client has no method for it, but ends the iterator when its subscription was drained.
  const { sub } = messages as ConsumerMessages & { sub?: { drain?(): Promise<void> } };
  const late = new AbortController();
  try {
    await Promise.race([sub?.drain?.(), pause(DRAINED, late.signal)]);
  } catch {
    // Without a connection nothing comes any more.
  }
  late.abort();
  await messages.close();
}

/** So that another context gets it at once. */
function handBack(message: JsMsg): void {
  try {
    message.nak();
  } catch {
    // The connection is gone: the server hands the message out again by itself.
  }
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const end = (): void => {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal.addEventListener("abort", end);
  });
}

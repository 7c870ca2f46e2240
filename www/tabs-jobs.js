// @ts-check
// What the tabs do with each other's jobs. Everything here talks to the broker only; nothing here touches the page.
import { deleteBroker, openBroker, SystemMessage } from "./broker.js";

/** @typedef {import("./broker.js").Broker} Broker */
/** @typedef {import("./broker.js").Message} Message */
/** @typedef {import("./broker.js").Transaction} Transaction */

/** The IndexedDB database of the page, the same in every tab. */
export const DATABASE = "pocket-broker-tabs";
/** Where jobs wait. */
export const JOBS = "jobs";
/** What was done, and by which tab. Written in the transaction that took the job: what stands here has been committed. */
export const DONE = "done";
/** For the poison counter, apart from the jobs: each of their commits would set it back. */
export const FRAGILE = "fragile";
/** The service whose conversation has the timers. It is on the queue of the jobs. */
export const CLOCK = "Clock";
export const LANES = ["Amber", "Birch", "Cedar"];

/** @typedef {{ lane: string, number: number, isBad: boolean }} Job */

/** Twice at once, twice more after three seconds, then the error queue. */
const RECOVERABILITY = { immediateRetries: 1, delayedRetries: 1, timeIncrease: 3_000 };

export async function openJobs() {
  return openBroker(DATABASE, {
    definitions: { queues: { [JOBS]: {}, [DONE]: {}, [FRAGILE]: {} }, services: { [CLOCK]: { queue: JOBS, contracts: ["DEFAULT"] } } },
  });
}

// ── bringing work ──

/**
 * One job or several for one lane, all or none.
 * @param {Broker} broker
 * @param {string} lane
 * @param {number} count
 * @param {boolean} isBad
 */
export async function addJobs(broker, lane, count, isBad) {
  /** @type {Job[]} */
  const jobs = Array.from({ length: count }, () => ({ lane, number: nextNumber(), isBad }));
  await broker.enqueueMany(JOBS, jobs, { key: lane });
}

/** Numbers that rise over all tabs, and are forgotten with the database. */
function nextNumber() {
  const number = Number(localStorage.getItem(DATABASE) ?? 0) + 1;
  localStorage.setItem(DATABASE, String(number));
  return number;
}

/** @param {Broker} broker */
export async function forgetEverything(broker) {
  await broker.close();
  await deleteBroker(DATABASE);
  localStorage.removeItem(DATABASE);
}

/**
 * A timer of its own, beside those that are pending, on the one conversation that all tabs share for it.
 * @param {Broker} broker
 * @param {number} seconds
 */
export async function setTimer(broker, seconds) {
  const conversation = await broker.beginDialog({ from: CLOCK, to: CLOCK, reuse: "timers" });
  await conversation.beginTimer(seconds * 1_000, { name: crypto.randomUUID(), body: { seconds } });
}

// ── working ──

/**
 * Starts readers in this tab. Other tabs do the same; the broker sees to it that each group has one reader and each message is handled once.
 * @param {Broker} broker
 * @param {object} how
 * @param {string} how.tab who signs for what was done
 * @param {number} how.maxReaders
 * @param {() => number} how.pause milliseconds that a job takes
 * @param {() => boolean} how.fails a bad job fails here
 * @param {(what: string, isBegun: boolean) => void} how.told of each job when it is begun and when the handler has ended
 */
export function work(broker, { tab, maxReaders, pause, fails, told }) {
  /** @param {Message} message @param {Transaction} tx */
  async function handle(message, tx) {
    const what = nameOf(message);
    told(what, true);
    try {
      if (message.body?.isBad && fails()) throw new Error(`${what} can’t be done by this tab`);
      await wait(pause(), tx.signal);
      await tx.enqueue(DONE, { what, by: tab });
    } finally {
      told(what, false);
    }
  }
  return broker.activate(JOBS, { DEFAULT: handle, [SystemMessage.DialogTimer]: handle }, { maxReaders, recoverability: RECOVERABILITY });
}

/** @param {number} ms @param {AbortSignal} signal */
function wait(ms, signal) {
  return new Promise((done, failed) => {
    const timer = setTimeout(done, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      failed(signal.reason);
    }, { once: true });
  });
}

/** What a message of the jobs' queue is called. @param {Message} message */
export function nameOf({ messageTypeName, body }) {
  if (messageTypeName === SystemMessage.DialogTimer) return `Timer of ${body?.body?.seconds} s`;
  return `${body?.lane} ${body?.number}${body?.isBad ? " (bad)" : ""}`;
}

/** Takes away what is written in the list of what was done. @param {Broker} broker */
export async function forgetDone(broker) {
  while ((await broker.receive(DONE)).length > 0);
}

// ── the poison counter ──

/** Thrown inside a transaction, so that it rolls back. */
class OnPurpose extends Error {}

/**
 * Receives and fails: what was received is ready again, and one rollback more is counted.
 * @param {Broker} broker
 */
export async function failOnce(broker) {
  if (await broker.count(FRAGILE, { status: 1 }) === 0) await broker.enqueue(FRAGILE, "a letter that nobody can read");
  try {
    await broker.transaction(async (tx) => {
      // Waits for another rollback to end, here or in another tab: one that has received nothing isn't counted.
      await tx.receive(FRAGILE, { top: 1, timeout: 5_000 });
      throw new OnPurpose();
    });
  } catch (error) {
    if (!(error instanceof OnPurpose)) throw error;
  }
}

/** Receives and commits, which sets the counter back. @param {Broker} broker */
export async function succeedOnce(broker) {
  return (await broker.receive(FRAGILE, { top: 1 })).length;
}

// @ts-check
// What the page schedules, and where to. Everything here talks to the broker only; nothing here touches the page.
import { deleteBroker, openBroker } from "./broker.js";
import { chooseStore, forgetElsewhere, ownStore } from "./later-store.js";

/** @typedef {import("./broker.js").Broker} Broker */
/** @typedef {import("./broker.js").TestClock} TestClock */

/** The IndexedDB database of the page, the same in every tab and by either clock. */
export const DATABASE = "pocket-broker-later";
/** A queue to put messages into; it can be dropped. */
export const REMINDERS = "reminders";
/** The two ends of the conversation. */
export const DESK = { service: "Desk", queue: "desk" };
export const OFFICE = { service: "Office", queue: "office" };

/** The one destination of the page that is not the name of a queue. */
export const CONVERSATION = "conversation";

const QUEUE = { queues: { [REMINDERS]: {} } };
/** The desk keeps what it sent. While its queue is off it can't, so it can't send: what is due waits on. */
const CONVERSING = {
  queues: { [DESK.queue]: { retention: true }, [OFFICE.queue]: {} },
  services: { [DESK.service]: { queue: DESK.queue }, [OFFICE.service]: { queue: OFFICE.queue, contracts: ["DEFAULT"] } },
};

/** Ten seconds, not thirty, until a failure is told: whoever tries it here waits for it. */
const BREAKER = 10_000;
const SETTINGS = { timeToTriggerStoreCircuitBreaker: BREAKER, timeToTriggerFetchCircuitBreaker: BREAKER, timeToTriggerDispatchCircuitBreaker: BREAKER };
/** With a store of its own what can't be delivered is tried so often again: the built-in one keeps it where it is until it can be. */
const RETRIES = 4;

/**
 * Opens the database. A queue that was dropped on an earlier visit stays dropped.
 * @param {TestClock | undefined} clock the wall clock if absent
 * @param {boolean} isElsewhere whether delayed messages are kept in another database
 */
export async function openLater(clock, isElsewhere) {
  const elsewhere = isElsewhere ? { store: ownStore(() => clock ? clock.now() : Date.now()), numberOfRetries: RETRIES } : {};
  const broker = await openBroker(DATABASE, { ...(clock && { clock }), delayedDelivery: { ...SETTINGS, ...elsewhere } });
  const queues = await broker.queues();
  if (!queues.some(({ name }) => name === DESK.queue)) await broker.define({ ...CONVERSING, queues: { ...CONVERSING.queues, ...QUEUE.queues } });
  return broker;
}

/** @param {Broker} broker */
export async function forgetEverything(broker) {
  await broker.close();
  chooseStore(false);
  await deleteBroker(DATABASE);
  await forgetElsewhere();
}

/**
 * Stores a message that is to be delivered later.
 * @param {Broker} broker
 * @param {string} destination REMINDERS or CONVERSATION
 * @param {string} text
 * @param {{ delay: number } | { deliverAt: Date }} time
 */
export async function schedule(broker, destination, text, time) {
  if (destination === REMINDERS) return broker.enqueue(REMINDERS, text, time);
  const conversation = await broker.beginDialog({ from: DESK.service, to: OFFICE.service, reuse: "notes" });
  return conversation.send("DEFAULT", text, time);
}

/** Takes what has arrived, all of it. @param {Broker} broker @param {readonly string[]} queues */
export async function takeArrived(broker, queues) {
  let taken = 0;
  for (const queue of queues) {
    for (let some = await broker.receive(queue); some.length > 0; some = await broker.receive(queue)) taken += some.length;
  }
  return taken;
}

/** Drops the queue with what lies in it unread, and gives how much that was. What waits for its time is not in it yet. @param {Broker} broker */
export async function dropReminders(broker) {
  let unread = 0;
  for (const { conversationHandle } of await broker.conversations({ service: REMINDERS }).toArray()) {
    unread += (await broker.endConversation(conversationHandle, { cleanup: true })).discarded;
  }
  await broker.dropQueue(REMINDERS);
  return unread;
}

/** @param {Broker} broker */
export const defineReminders = (broker) => broker.define(QUEUE);
/** @param {Broker} broker @param {boolean} isOn */
export const switchDesk = (broker, isOn) => broker.alterQueue(DESK.queue, { status: isOn ? "on" : "off" });

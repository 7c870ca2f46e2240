// @ts-check
// What the two sides do. Everything here talks to the broker only; nothing here touches the page.
import { openBroker, SystemMessage } from "./broker.js";
import { COUNTER, KITCHEN, CONTRACT, ORDER, CONFIRMATION, READY, REJECTED, TAKEN_BACK, DATABASE, definitions } from "./names.js";
import { undoing } from "./words.js";

/** @typedef {import("./broker.js").Broker} Broker */
/** @typedef {import("./broker.js").Message} Message */
/** @typedef {import("./names.js").OrderBody} OrderBody */
/** @typedef {"confirm" | "reject" | "end" | "drop"} Choice */

/** Opens the database and sees to it that queues, contract and services are there. */
export async function openShop() {
  const broker = await openBroker(DATABASE);
  const known = await broker.queues();
  await broker.define(definitions(!known.some((queue) => queue.name === KITCHEN.queue)));
  return broker;
}

// ── the counter ──

/**
 * Begins a conversation, or goes on with one, and sends the order on it: both or neither.
 * @param {Broker} broker
 * @param {OrderBody} order
 * @param {string} [handle] a conversation of the counter's
 */
export function placeOrder(broker, order, handle) {
  return broker.transaction(async (tx) => {
    const conversation = handle || (await tx.beginDialog({ from: COUNTER.service, to: KITCHEN.service, contract: CONTRACT })).handle;
    await tx.send(conversation, ORDER, order);
    return conversation;
  });
}

/**
 * Takes the next answer off the counter's queue.
 * @param {Broker} broker
 * @returns {Promise<Message | undefined>}
 */
export function receiveAnswer(broker) {
  return broker.transaction(async (tx) => (await tx.receive(COUNTER.queue, { top: 1 }))[0]);
}

/**
 * Compensation: walks what the counter's side has kept of the conversation, newest first, undoes each step, and ends with an
 * error, in one transaction. Here a step only says what it undoes; a real shop would give money back.
 * @param {Broker} broker
 * @param {string} handle
 * @param {boolean} archive
 */
export function undoOrders(broker, handle, archive) {
  return broker.transaction(async (tx) => {
    const steps = [];
    for (const row of await tx.select(COUNTER.queue, { conversation: handle, reverse: true }).toArray()) steps.push(undoing(row));
    const ended = await tx.endConversation(handle, { error: TAKEN_BACK, archive });
    return { steps, ...ended };
  });
}

// ── the kitchen ──

/** Thrown inside a transaction, so that it rolls back. */
class TrayDropped extends Error {}

/**
 * Receives one message and keeps the transaction open until the cook has chosen. Confirming, rejecting and ending commit;
 * dropping the tray throws, and the message is ready again.
 * @param {Broker} broker
 * @param {(message: Message) => Promise<Choice>} choose
 * @returns {Promise<{ choice: Choice | "nothing", message?: Message }>}
 */
export async function takeOrder(broker, choose) {
  /** @type {Message | undefined} */
  let message;
  try {
    return await broker.transaction(async (tx) => {
      [message] = await tx.receive(KITCHEN.queue, { top: 1 });
      if (!message) return { choice: /** @type {const} */ ("nothing") };
      const choice = await Promise.race([choose(message), aborted(tx.signal)]);
      if (choice === "drop") throw new TrayDropped();
      if (choice === "confirm") await tx.send(message, CONFIRMATION, { ...message.body, minutes: 10 });
      if (choice === "reject") await tx.endConversation(message, { error: REJECTED });
      if (choice === "end") await tx.endConversation(message);
      return { choice, message };
    });
  } catch (error) {
    if (error instanceof TrayDropped) return { choice: "drop", message };
    throw error;
  }
}

/**
 * Rejects when the transaction can no longer commit.
 * @param {AbortSignal} signal
 * @returns {Promise<never>}
 */
function aborted(signal) {
  return new Promise((_, reject) => {
    if (signal.aborted) reject(signal.reason);
    else signal.addEventListener("abort", () => reject(signal.reason), { once: true });
  });
}

/**
 * @param {Broker} broker
 * @param {string} handle a conversation of the kitchen's
 */
export function sayReady(broker, handle) {
  return broker.send(handle, READY);
}

// ── both ──

/**
 * @param {Broker} broker
 * @param {string} handle
 * @param {{ archive?: boolean, rejected?: boolean }} [how]
 */
export function end(broker, handle, { archive = false, rejected = false } = {}) {
  return broker.endConversation(handle, rejected ? { error: REJECTED, archive } : { archive });
}

/** @param {Message} message */
export function isSystem(message) {
  return message.messageTypeName === SystemMessage.EndDialog || message.messageTypeName === SystemMessage.Error || message.messageTypeName === SystemMessage.DialogTimer;
}

/**
 * The first visit: one order goes to the kitchen and its confirmation comes back. The conversation stays open, so that there
 * are rows to look at.
 * @param {Broker} broker
 */
export async function playFirstOrder(broker) {
  const handle = await placeOrder(broker, { dish: "Soup", count: 2 });
  const taken = await takeOrder(broker, async () => "confirm");
  if (taken.choice !== "confirm") throw new Error("the kitchen received no order");
  const answer = await receiveAnswer(broker);
  if (answer?.conversationHandle !== handle || answer.messageTypeName !== CONFIRMATION) throw new Error("the counter received no confirmation");
}

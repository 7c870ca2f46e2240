// @ts-check
// Names and definitions of the shop: what T-SQL would say with CREATE MESSAGE TYPE, CONTRACT, QUEUE and SERVICE.

/** The IndexedDB database of the page. */
export const DATABASE = "pocket-broker-demo";

/** @typedef {{ service: string, queue: string }} Side */
export const COUNTER = { service: "Counter", queue: "CounterQueue" };
export const KITCHEN = { service: "Kitchen", queue: "KitchenQueue" };

export const CONTRACT = "Ordering";
/** Message types. */
export const ORDER = "Order";
export const CONFIRMATION = "Confirmation";
export const READY = "Ready";

/** @typedef {{ dish: string, count: number }} OrderBody */

/** Errors that a side gives when it ends a conversation WITH ERROR. */
export const REJECTED = { code: 86, description: "The kitchen can’t make it." };
export const TAKEN_BACK = { code: 1, description: "The counter took the orders back." };

/**
 * Safe to apply at every visit, since definitions are idempotent. Retention is named only for a new database: afterwards the
 * switches on the page decide.
 * @param {boolean} isNew
 */
export function definitions(isNew) {
  const queue = isNew ? { retention: true } : {};
  return {
    messageTypes: { [ORDER]: /** @type {const} */ ("json"), [CONFIRMATION]: /** @type {const} */ ("json"), [READY]: /** @type {const} */ ("empty") },
    contracts: { [CONTRACT]: { [ORDER]: /** @type {const} */ ("initiator"), [CONFIRMATION]: /** @type {const} */ ("target"), [READY]: /** @type {const} */ ("target") } },
    queues: { [COUNTER.queue]: queue, [KITCHEN.queue]: queue },
    services: {
      [COUNTER.service]: { queue: COUNTER.queue },
      [KITCHEN.service]: { queue: KITCHEN.queue, contracts: [CONTRACT] },
    },
  };
}

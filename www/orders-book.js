// @ts-check
// The order book: what the page sends, where to, and by which way. Everything here talks to the broker only; nothing here touches the page.
import { deleteBroker, httpTransport, openBroker } from "./broker.js";

/** @typedef {import("./broker.js").Broker} Broker */
/** @typedef {{ table: string, dish: string, count: number }} OrderBody */

/** The IndexedDB database of the page, the same in every tab. */
const DATABASE = "pocket-broker-orders";
/** The queue that receipts come to. */
export const BOOK = "book";
/** The service that is not in this browser. */
const FAR = "Orders";

const DEFINITIONS = {
  messageTypes: { Order: /** @type {const} */ ("json"), Receipt: /** @type {const} */ ("json") },
  contracts: { Sale: { Order: /** @type {const} */ ("initiator"), Receipt: /** @type {const} */ ("target") } },
  queues: { [BOOK]: {} },
  services: { Book: { queue: BOOK } },
};

export const openBook = () => openBroker(DATABASE, { definitions: DEFINITIONS });

/**
 * Gives the way to the server. It is not stored: each tab gives it at each visit, and one of them transmits.
 * @param {Broker} broker
 * @param {string} tab its name, which goes along with each request
 * @param {() => void} told hears of each attempt that this tab makes
 */
export function routeOrders(broker, tab, told) {
  const http = httpTransport({ url: "./orders/in", headers: { "X-Tab": tab } });
  /** @type {typeof http} */
  const transport = {
    send(envelopes, context) {
      told();
      return http.send(envelopes, context);
    },
  };
  return broker.route({ service: FAR, transport });
}

/** Stores an order. A table has one conversation, whichever tab began it. @param {Broker} broker @param {OrderBody} order */
export async function placeOrder(broker, order) {
  const conversation = await broker.beginDialog({ from: "Book", to: FAR, contract: "Sale", reuse: order.table });
  await conversation.send("Order", order);
}

/** Takes the receipts that have come. @param {Broker} broker */
export async function takeReceipts(broker) {
  let taken = 0;
  for (let some = await broker.receive(BOOK); some.length > 0; some = await broker.receive(BOOK)) taken += some.length;
  return taken;
}

/** @param {Broker} broker */
export async function forgetBook(broker) {
  await broker.close();
  await deleteBroker(DATABASE);
}

/** An order in words, whatever it is. @param {Partial<OrderBody> | undefined} order */
export const orderName = (order) => order?.dish === undefined ? "something else" : `${order.count} × ${String(order.dish).slice(0, 120)}`;

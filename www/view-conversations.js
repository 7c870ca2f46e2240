// @ts-check
// The open conversations of one side, with their state and what can be done about each.
import { byId, conversationMark, el, keyed, setText } from "./dom.js";
import { ORDER } from "./names.js";
import { portions, shortId, stateName } from "./words.js";

/** @typedef {import("./broker.js").Message} Message */
/** @typedef {import("./broker.js").ConversationEndpoint} Endpoint */
/** @typedef {{ name: string, label: string, says?: string }} Action `says` begins with the label. */

/**
 * @param {string} id of the table
 * @param {readonly Endpoint[]} endpoints
 * @param {readonly Message[]} rows of the side's queue, newest first
 * @param {readonly Action[]} actions
 */
export function showConversations(id, endpoints, rows, actions) {
  const table = byId(id);
  keyed(/** @type {HTMLElement} */ (table.querySelector("tbody")), endpoints, {
    key: (endpoint) => endpoint.conversationHandle,
    create: (endpoint) => createRow(endpoint, actions),
    update: (element, endpoint) => updateRow(element, endpoint, rows),
    rest: byId(`${id}-title`),
  });
  table.hidden = endpoints.length === 0;
  const empty = /** @type {HTMLElement} */ (table.parentElement?.querySelector(".empty"));
  empty.hidden = endpoints.length > 0;
}

/** @param {Endpoint} endpoint @param {readonly Action[]} actions */
function createRow(endpoint, actions) {
  const short = shortId(endpoint.conversationId);
  const buttons = actions.map(({ name, label, says = label }) =>
    el("button", { type: "button", class: "small", "data-action": name, "aria-label": `${says}, conversation ${short}`, title: says }, label));
  return el("tr", { role: "row", "data-handle": endpoint.conversationHandle, "data-conversation": endpoint.conversationId },
    el("th", { scope: "row", role: "rowheader", class: "c-talk" }, conversationMark(endpoint.conversationId, short)),
    el("td", { role: "cell", class: "c-state" }, el("span", { class: "chip state-chip" }), " ", el("span", { class: "state-name" })),
    el("td", { role: "cell", class: "c-orders" }),
    el("td", { role: "cell", class: "c-do" }, ...buttons));
}

/** @param {HTMLElement} element @param {Endpoint} endpoint @param {readonly Message[]} rows */
function updateRow(element, { conversationHandle, state, sendSequence, receiveSequence }, rows) {
  element.dataset.state = state;
  setText(element.querySelector(".state-chip"), state);
  setText(element.querySelector(".state-name"), stateName(state));
  element.title = `Next to send: ${sendSequence}. Next to receive: ${receiveSequence}.`;
  const orders = rows.filter((row) => row.conversationHandle === conversationHandle && row.messageTypeName === ORDER).map((row) => portions(row.body));
  setText(element.querySelector(".c-orders"), orders.length > 0 ? orders.reverse().join(", ") : "no rows kept");
}

/**
 * The conversations that an order can be placed in: open ones, and those where it will be refused, so that one can see that.
 * @param {readonly Endpoint[]} endpoints
 */
export function showChoices(endpoints) {
  const select = /** @type {HTMLSelectElement} */ (byId("conversation"));
  const items = [{ handle: "", text: "a new one" }, ...endpoints.map(({ conversationHandle, conversationId, state }) =>
    ({ handle: conversationHandle, text: `${shortId(conversationId)} (${state}, ${stateName(state)})` }))];
  const chosen = select.value;
  keyed(select, items, {
    key: ({ handle }) => handle,
    create: ({ handle }) => el("option", { value: handle }),
    update: (option, { text }) => setText(option, text),
  });
  if (items.some(({ handle }) => handle === chosen)) select.value = chosen;
}

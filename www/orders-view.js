// @ts-check
// Reads what waits, what has come back and what was refused, and shows it beside what the server has. Whatever a message says is put in as text.
import { byId, cell, conversationMark, el, fillTable, setText } from "./dom.js";
import { keepLooking } from "./live.js";
import { BOOK, orderName } from "./orders-book.js";
import { counted, moment, remaining } from "./words.js";

/** @typedef {import("./broker.js").Broker} Broker */
/** @typedef {import("./broker.js").TransmissionRow} TransmissionRow */
/** @typedef {import("./broker.js").Message} Message */
/** @typedef {import("./broker.js").FailedMessage} FailedMessage */
/** @typedef {import("./orders-server.js").Board} Board */
/** @typedef {import("./orders-server.js").OfferedOrder} OfferedOrder */

const ROWS = 100;
const TICK = 250;

/** The tables by their endpoints, as far as their orders were seen. @type {Map<string, string>} */
const tables = new Map();
/** @param {string} handle */
export const tableOf = (handle) => tables.get(handle) ?? "A table";

/** @param {Broker} broker */
async function firstWaiting(broker) {
  /** @type {TransmissionRow[]} */
  const rows = [];
  for await (const row of broker.transmissionQueue()) {
    if (rows.push(row) === ROWS) break;
  }
  return rows;
}

/** @param {Broker} broker */
async function read(broker) {
  const [waiting, receipts, failed, stats] = await Promise.all([
    firstWaiting(broker),
    broker.select(BOOK, { status: 1, reverse: true, limit: ROWS }).toArray(),
    broker.failed({ limit: ROWS }).toArray(),
    broker.stats(),
  ]);
  return { waiting, receipts, failed, stats };
}

/** @param {Awaited<ReturnType<typeof read>>} found */
function showBook({ waiting, receipts, failed, stats }) {
  for (const { conversationHandle, body } of waiting) tables.set(conversationHandle, String(body?.table));
  fillTable("waiting", waiting, { key: (row) => `${row.conversationHandle} ${row.messageSequenceNumber}`, create: createWaiting, update: updateWaiting, rest: byId("waiting-title") });
  fillTable("receipts", receipts, { key: ({ messageId }) => messageId, create: createReceipt, update: () => {}, rest: byId("receipts-title") });
  fillTable("failed", failed, { key: ({ messageId }) => messageId, create: createFailed, update: () => {}, rest: byId("failed-title") });
  const more = stats.transmissionQueued - waiting.length;
  setText(byId("waiting-more"), more > 0 ? `And ${counted(more, "more", "more")}.` : "");
  const take = byId("take");
  take.hidden = receipts.length === 0 && document.activeElement !== take;
  const attempt = byId("attempt");
  attempt.hidden = waiting.length === 0 && document.activeElement !== attempt;
}

/** An order, and the conversation that it is on. @param {string} conversation @param {Partial<import("./orders-book.js").OrderBody> | undefined} order */
function named(conversation, order) {
  const table = String(order?.table);
  return cell("t-name", orderName(order), " ", el("span", { class: "t-to" }, conversationMark(table, table), conversation));
}

/** A cell whose heading is beside it where there is no heading above. @param {string} label */
const labelled = (label) => cell("t-count", el("span", { class: "stacked-label" }, `${label} `), el("span", { class: "value" }));

/** @param {number} number @param {string} never */
const times = (number, never) => number === 0 ? never : number === 1 ? "once" : counted(number, "time");

/** @param {TransmissionRow} row */
function createWaiting({ messageSequenceNumber, body }) {
  return el("tr", { role: "row", class: "fresh", "data-what": orderName(body), "data-table": String(body?.table), "data-number": String(messageSequenceNumber) },
    named(`, no. ${messageSequenceNumber}`, body), labelled("tried"), cell("t-next", el("strong", { class: "countdown" })), cell("t-why"));
}

/** @param {HTMLElement} row @param {TransmissionRow} found */
function updateWaiting(row, { attempts, nextAttempt, transmissionStatus }) {
  row.dataset.time = String(nextAttempt?.getTime() ?? 0);
  row.dataset.attempts = String(attempts);
  setText(row.querySelector(".value"), times(attempts, "not yet"));
  setText(row.querySelector(".t-why"), transmissionStatus);
  countdown(row);
}

/** @param {HTMLElement} row */
function countdown(row) {
  const left = Number(row.dataset.time) - Date.now();
  setText(row.querySelector(".countdown"), left > 0 ? remaining(left) : "now");
}

/** @param {Message} row */
function createReceipt({ body, messageEnqueueTime }) {
  return el("tr", { role: "row", class: "fresh", "data-what": orderName(body), "data-table": String(body?.table) },
    named(`, receipt ${body?.receipt}`, body),
    cell("t-time", el("time", { datetime: messageEnqueueTime.toISOString() }, moment(messageEnqueueTime, Date.now()))));
}

/** @param {FailedMessage} row */
function createFailed({ messageId, body, exceptionMessage }) {
  const what = orderName(body);
  const button = (/** @type {string} */ action, /** @type {string} */ label) => el("button", { type: "button", class: "small", "data-action": action, "aria-label": `${label}: ${what}` }, label);
  return el("tr", { role: "row", "data-what": what, "data-message": messageId },
    named("", body), cell("t-why", exceptionMessage), cell("t-do", button("return", "Return to source"), button("discard", "Discard")));
}

// ── the server's side ──

/** @type {Record<string, string>} */
const ANSWERS = { "at work": "at work", lost: "answer lost", 200: "200: receipt", 409: "409: at work", 422: "422: refused", 429: "429: busy" };

/** @param {OfferedOrder} order */
function createOffered(order) {
  return el("tr", { role: "row", class: "fresh", "data-what": orderName(order), "data-table": String(order.table) },
    named(`, no. ${order.key.slice(order.key.lastIndexOf("/") + 1)}`, order), labelled("offered"), labelled("accepted"),
    cell("t-answer", el("span", { class: "chip" }), " ", el("span", { class: "t-to" })));
}

/** @param {HTMLElement} row @param {OfferedOrder} order */
function updateOffered(row, { offered, accepted, answer, tab }) {
  Object.assign(row.dataset, { offered: String(offered), accepted: String(accepted), answer, tab });
  const [asked, taken] = row.querySelectorAll(".value");
  setText(asked ?? null, times(offered, "no"));
  setText(taken ?? null, times(accepted, "no"));
  setText(row.querySelector(".chip"), ANSWERS[answer] ?? answer);
  setText(row.querySelector(".t-answer .t-to"), tab === "" ? "" : `to tab ${tab}`);
}

/** @param {Board} board */
export function showBoard({ network, behaviour, cut, count, offered, accepted, orders }) {
  /** @type {HTMLInputElement} */ (byId("network")).checked = network;
  const chosen = /** @type {HTMLSelectElement} */ (byId("behaviour"));
  if (chosen.value !== behaviour) chosen.value = behaviour;
  setText(byId("network-is"), network ? "" : "is cut");
  document.documentElement.dataset.network = network ? "on" : "off";
  fillTable("offered", orders, { key: ({ key }) => key, create: createOffered, update: updateOffered, rest: byId("offered-title") });
  setText(byId("sum"), count === 0 ? "" : `${counted(count, "order")}, offered ${times(offered, "never")}, accepted ${times(accepted, "never")}.`);
  setText(byId("cut"), cut === 0 ? "" : `${counted(cut, "request was", "requests were")} cut off before the server heard of them.`);
}

/**
 * Shows what the broker holds from now on, after each commit, and how long each order waits.
 * @param {Broker} broker
 * @param {(error: unknown) => void} failed
 */
export function liveBook(broker, failed) {
  setInterval(() => {
    if (document.hidden) return;
    for (const row of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("#waiting tbody tr"))) countdown(row);
  }, TICK);
  return keepLooking(broker, async () => showBook(await read(broker)), failed);
}

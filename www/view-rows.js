// @ts-check
// A queue's rows, or the archive's, as a table.
import { byId, conversationMark, el, keyed, setText } from "./dom.js";
import { clock, shortId, statusMeans, statusName, summary, typeName } from "./words.js";

/** @typedef {import("./broker.js").Message} Message */

/**
 * @param {string} id of the table
 * @param {readonly Message[]} rows newest first
 * @param {{ key?: (row: any) => string, time?: (row: any) => Date, rest?: HTMLElement }} [how]
 */
export function showRows(id, rows, { key = (row) => String(row.queuingOrder), time = (row) => row.messageEnqueueTime, rest } = {}) {
  const table = byId(id);
  const body = /** @type {HTMLElement} */ (table.querySelector("tbody"));
  const first = !table.dataset.shown;
  keyed(body, rows, {
    key,
    rest,
    create: (row) => createRow(row, time(row), !first),
    update: updateRow,
  });
  table.dataset.shown = "true";
  table.hidden = rows.length === 0;
  const empty = /** @type {HTMLElement} */ (table.parentElement?.querySelector(".empty"));
  empty.hidden = rows.length > 0;
}

/** @param {Message} row @param {Date} time @param {boolean} fresh */
function createRow(row, time, fresh) {
  const type = typeName(row.messageTypeName);
  return el("tr", {
    role: "row",
    class: fresh ? "fresh" : "",
    "data-handle": row.conversationHandle,
    "data-conversation": row.conversationId,
    "data-sequence": String(row.messageSequenceNumber),
    "data-type": type,
  },
    el("td", { role: "cell", class: "c-status" }, el("span", { class: "chip" })),
    el("td", { role: "cell", class: "c-talk" }, conversationMark(row.conversationId, shortId(row.conversationId))),
    el("td", { role: "cell", class: "c-seq" }, el("span", { class: "stacked-label", "aria-hidden": "true" }, "no. "), String(row.messageSequenceNumber)),
    el("td", { role: "cell", class: "c-type", title: row.messageTypeName }, type),
    el("td", { role: "cell", class: "c-body" }, summary(row)),
    el("td", { role: "cell", class: "c-time" }, el("time", { datetime: time.toISOString() }, clock(time))));
}

/** The one thing about a row that changes is its status. @param {HTMLElement} element @param {Message} row */
function updateRow(element, row) {
  const status = String(row.status);
  if (element.dataset.status === status) return;
  const chip = /** @type {HTMLElement} */ (element.querySelector(".chip"));
  chip.dataset.status = status;
  chip.title = statusMeans(row.status);
  setText(chip, statusName(row.status));
  if (element.dataset.status !== undefined) {
    element.classList.remove("fresh");
    void element.offsetWidth; // lets the highlight start again
    element.classList.add("fresh");
  }
  element.dataset.status = status;
}

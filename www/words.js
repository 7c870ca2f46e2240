// @ts-check
// Messages, states and errors in words. Whatever a message says is only ever returned as text.
import { isBrokerError, SystemMessage } from "./broker.js";
import { CONFIRMATION, ORDER, READY, COUNTER } from "./names.js";

/** @typedef {import("./broker.js").Message} Message */

const STATUS = ["0 received", "1 ready", "2 incomplete", "3 sent"];
const STATUS_MEANS = [
  "Retained: has been received, kept until this side ends",
  "Ready: waits to be received",
  "Not yet complete: waits for an earlier message",
  "Retained: copy of what this side sent, kept until this side ends",
];
/** @type {Record<string, string>} */
const STATE = {
  SO: "begun",
  SI: "beginning",
  CO: "conversing",
  DI: "other side ended",
  DO: "ended here",
  ER: "ended with an error",
  CD: "closed",
};

/** @param {number} status */
export const statusName = (status) => STATUS[status] ?? String(status);
/** @param {number} status */
export const statusMeans = (status) => STATUS_MEANS[status] ?? "";
/** @param {string} state */
export const stateName = (state) => STATE[state] ?? "";

/** The end of an id is enough to tell a few conversations apart. @param {string} id */
export const shortId = (id) => id.slice(-4);

/** System message types are addresses: their last part is their name. @param {string} type */
export const typeName = (type) => Object.values(SystemMessage).some((name) => name === type) ? type.slice(type.lastIndexOf("/") + 1) : type;

/** @param {Message} message */
export function summary({ messageTypeName, body }) {
  if (messageTypeName === ORDER) return portions(body);
  if (messageTypeName === CONFIRMATION) return `${portions(body)}, in ${body?.minutes} minutes`;
  if (messageTypeName === SystemMessage.Error) return `${body?.code}: ${body?.description}`;
  return body === undefined ? "no body" : shortened(JSON.stringify(body) ?? String(body));
}

/** @param {any} body */
export const portions = (body) => `${body?.count} × ${shortened(String(body?.dish))}`;

/** @param {string} text */
const shortened = (text) => text.length > 120 ? `${text.slice(0, 119)}…` : text;

/** What undoing this row means. @param {Message} row */
export function undoing(row) {
  const name = `${typeName(row.messageTypeName)} ${row.messageSequenceNumber}`;
  if (row.status === 1) return `${name}: never received, nothing to undo`;
  if (row.messageTypeName === ORDER) return `${name}: ${portions(row.body)} off the bill`;
  if (row.messageTypeName === CONFIRMATION) return `${name}: ${portions(row.body)} no longer expected`;
  if (row.messageTypeName === READY) return `${name}: the dish goes back`;
  return `${name}: nothing to undo`;
}

/** What was received, for the log. @param {Message} message @param {string} by */
export function received(message, by) {
  const id = shortId(message.conversationId);
  if (message.messageTypeName === SystemMessage.EndDialog) return `${by} received EndDialog on ${id}: the other side has ended. End this side too.`;
  if (message.messageTypeName === SystemMessage.Error) return `${by} received Error on ${id} (${summary(message)}). End this side too.`;
  return `${by} received ${typeName(message.messageTypeName)} ${message.messageSequenceNumber} on ${id}: ${summary(message)}.`;
}

/** @param {number} number @param {string} one @param {string} [many] */
export const counted = (number, one, many = `${one}s`) => `${number} ${number === 1 ? one : many}`;

/** @param {unknown} error */
export function reason(error) {
  if (isBrokerError(error)) return `${error.code}${error.number === undefined ? "" : ` (${error.number})`}: ${error.message}`;
  return error instanceof Error ? `${error.name}: ${error.message}` : String(error);
}

/** @param {Date} date */
export const clock = (date) => date.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });

/** The time of day, and the date if it is not today. @param {Date} date @param {number} now */
export function moment(date, now) {
  const today = new Date(now);
  if (date.toDateString() === today.toDateString()) return clock(date);
  const year = date.getFullYear() === today.getFullYear() ? {} : { year: /** @type {const} */ ("numeric") };
  return `${date.toLocaleDateString(undefined, { day: "numeric", month: "short", ...year })}, ${clock(date)}`;
}

/** How long it is until then, in the two units that matter. @param {number} ms */
export function remaining(ms) {
  const seconds = Math.ceil(ms / 1_000);
  if (seconds <= 0) return "due";
  if (seconds < 60) return `in ${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `in ${minutes} min ${seconds % 60} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return `in ${hours} h ${minutes % 60} min`;
  return `in ${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** @param {string} queue */
export const sideOf = (queue) => queue === COUNTER.queue ? "Counter" : "Kitchen";

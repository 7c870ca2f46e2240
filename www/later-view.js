// @ts-check
// Reads what waits, what has arrived and what failed, and shows it. Whatever a message says is put in as text.
import { isBrokerError } from "./broker.js";
import { byId, cell, el, fillTable, setText } from "./dom.js";
import { CONVERSATION, DESK, OFFICE, REMINDERS } from "./later-messages.js";
import { keepLooking } from "./live.js";
import { clock, counted, moment, remaining } from "./words.js";

/** @typedef {import("./broker.js").Broker} Broker */
/** @typedef {import("./broker.js").DelayedMessage} DelayedMessage */
/** @typedef {import("./broker.js").Message} Message */
/** @typedef {import("./broker.js").FailedMessage} FailedMessage */

const ROWS = 100;
const TICK = 250;
/** A breaker that is not at rest. */
const ALARMED = '.breakers .chip:not([data-state="disarmed"])';

/** @param {Broker} broker @param {string} queue */
async function rowsOf(broker, queue) {
  try {
    const rows = await broker.select(queue, { status: 1, reverse: true, limit: ROWS }).toArray();
    return rows.map((row) => ({ ...row, queue }));
  } catch (error) {
    // It has been dropped.
    if (isBrokerError(error) && error.code === "QueueNotFound") return [];
    throw error;
  }
}

/** @param {Broker} broker */
async function read(broker) {
  const [queues, waiting, count, reminders, office, failed, stats] = await Promise.all([
    broker.queues(),
    broker.delayed.select({ limit: ROWS }).toArray(),
    broker.delayed.count(),
    rowsOf(broker, REMINDERS),
    rowsOf(broker, OFFICE.queue),
    broker.failed({ limit: ROWS }).toArray(),
    broker.stats(),
  ]);
  const arrived = [...reminders, ...office].sort((one, other) => other.messageEnqueueTime.getTime() - one.messageEnqueueTime.getTime() || other.queuingOrder - one.queuingOrder);
  return { queues, waiting, count, arrived, failed, stats };
}
/** @typedef {Awaited<ReturnType<typeof read>>} Found */

/** A destination in words: everything that is no queue of the page is the conversation. @param {string} destination */
const placeOf = (destination) => destination === REMINDERS ? REMINDERS : CONVERSATION;

/** @param {Found} found @param {number} now */
function show({ queues, waiting, count, arrived, failed, stats }, now) {
  fillTable("waiting", waiting, { key: ({ messageId }) => messageId, create: createWaiting, update: (row, message) => updateWaiting(row, message, now), rest: byId("waiting-title") });
  fillTable("arrived", arrived, { key: (row) => row.messageId, create: (row) => createArrived(row, now), update: () => {}, rest: byId("arrived-title") });
  fillTable("failed", failed, { key: ({ messageId }) => messageId, create: createFailed, update: () => {}, rest: byId("failed-title") });
  const more = count - waiting.length;
  setText(byId("waiting-more"), more > 0 ? `And ${counted(more, "more", "more")}.` : "");
  const take = byId("take");
  take.hidden = arrived.length === 0 && document.activeElement !== take;
  setText(byId("stats"), `${count} waiting. Since this clock was started: ${stats.delayedDispatched} delivered by this tab.`);
  showPart("reminders", queues.some(({ name }) => name === REMINDERS), ["there", "dropped"], ["Drop the queue", "Define it again"]);
  showPart("desk", queues.some(({ name, isReceiveEnabled }) => name === DESK.queue && isReceiveEnabled), ["on", "off"], ["Switch it off", "Switch it on"]);
  for (const [name, state] of Object.entries(stats.breakers)) {
    const chip = byId(`breaker-${name}`);
    setText(chip, state);
    chip.dataset.state = state;
  }
}

/**
 * Something that can be broken and mended: how it is, and what its button does.
 * @param {string} name
 * @param {boolean} isWhole
 * @param {readonly [string, string]} states
 * @param {readonly [string, string]} actions
 */
export function showPart(name, isWhole, states, actions) {
  const chip = byId(`${name}-state`);
  setText(chip, states[isWhole ? 0 : 1]);
  chip.dataset.state = isWhole ? "on" : "off";
  const button = byId(`${name}-switch`);
  setText(button, actions[isWhole ? 0 : 1]);
  button.dataset.action = isWhole ? "break" : "mend";
}

/** What can be broken depends on where messages wait. @param {boolean} isElsewhere */
export function showParts(isElsewhere) {
  /** @type {HTMLInputElement} */ (byId("own-store")).checked = isElsewhere;
  for (const part of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-store]"))) part.hidden = (part.dataset.store === "own") !== isElsewhere;
}

/** A message, and where it goes. @param {string} what @param {string} destination */
const named = (what, destination) => cell("t-name", what, " ", el("span", { class: "t-to" }, `to ${placeOf(destination)}`));

/** @param {string} what @param {readonly (readonly [action: string, label: string, spoken?: string])[]} actions */
const buttons = (what, actions) => actions.map(([action, label, spoken = label]) => el("button", { type: "button", class: "small", "data-action": action, "aria-label": `${spoken}: ${what}` }, label));

/** @param {DelayedMessage} message */
function createWaiting({ messageId, destination, body }) {
  const what = String(body);
  return el("tr", { role: "row", class: "fresh", "data-what": what, "data-message": messageId },
    named(what, destination),
    cell("t-next", el("strong", { class: "countdown" }), " ", el("time"), " ", el("span", { class: "t-tried" })),
    cell("t-do", ...buttons(what, [["now", "Now", "Deliver now"], ["minute", "+1 min", "A minute later"], ["hour", "+1 h", "An hour later"], ["cancel", "Cancel"]])));
}

/** @param {HTMLElement} row @param {DelayedMessage} message @param {number} now */
function updateWaiting(row, { time, numberOfRetries }, now) {
  row.dataset.time = String(time.getTime());
  countdown(row, now);
  const instant = /** @type {HTMLTimeElement} */ (row.querySelector("time"));
  instant.dateTime = time.toISOString();
  setText(instant, moment(time, now));
  setText(row.querySelector(".t-tried"), numberOfRetries === 0 ? "" : `tried ${counted(numberOfRetries, "time")}`);
}

/** @param {HTMLElement} row @param {number} now */
function countdown(row, now) {
  setText(row.querySelector(".countdown"), remaining(Number(row.dataset.time) - now));
}

/** @param {Message & { queue: string }} row @param {number} now */
function createArrived({ body, queue, messageEnqueueTime }, now) {
  return el("tr", { role: "row", class: "fresh", "data-what": String(body) },
    cell("t-name", String(body)),
    cell("t-to", queue),
    cell("t-time", el("time", { datetime: messageEnqueueTime.toISOString() }, moment(messageEnqueueTime, now))));
}

/** @param {FailedMessage} row */
function createFailed({ messageId, body, failedQueue, exceptionMessage, attempts }) {
  const what = String(body);
  return el("tr", { role: "row", "data-what": what, "data-message": messageId },
    named(what, failedQueue),
    cell("t-why", exceptionMessage, ...(attempts > 1 ? [" ", el("span", { class: "t-to" }, `tried ${counted(attempts, "time")}`)] : [])),
    cell("t-do", ...buttons(what, [["return", "Return to source"], ["discard", "Discard"]])));
}

/**
 * Shows what the broker holds from now on, after each commit, and what time it is.
 * @param {Broker} broker
 * @param {() => number} now by the clock of the page
 * @param {(error: unknown) => void} failed
 */
export function liveLater(broker, now, failed) {
  let isStopped = false;
  const view = keepLooking(broker, async () => show(await read(broker), now()), (error) => { if (!isStopped) failed(error); });
  /** Shows the time, and how long each message has to wait by it. */
  function tick() {
    const time = now();
    const date = new Date(time);
    const face = /** @type {HTMLTimeElement} */ (byId("clock"));
    face.dateTime = date.toISOString();
    setText(face, clock(date));
    setText(byId("date"), date.toLocaleDateString(undefined, { weekday: "long", day: "numeric", month: "long", year: "numeric" }));
    const rows = /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("#waiting tbody tr"));
    for (const row of rows) countdown(row, time);
    // No commit tells of a breaker.
    if (Number(rows[0]?.dataset.time) <= time || document.querySelector(ALARMED)) view.refresh();
  }
  const ticking = setInterval(() => { if (!document.hidden) tick(); }, TICK);
  tick();
  function stop() {
    isStopped = true;
    clearInterval(ticking);
  }
  return { ...view, tick, stop };
}

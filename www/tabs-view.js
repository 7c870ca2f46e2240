// @ts-check
// Reads what the tabs share and shows it. Whatever a message says is put in as text.
import { byId, cell, el, fillTable, setText } from "./dom.js";
import { keepLooking } from "./live.js";
import { CLOCK, DONE, FRAGILE, JOBS, LANES, nameOf } from "./tabs-jobs.js";
import { clock } from "./words.js";

/** @typedef {import("./broker.js").Broker} Broker */
/** @typedef {import("./broker.js").Message} Message */
/** @typedef {import("./broker.js").FailedMessage} FailedMessage */
/** @typedef {import("./broker.js").QueueInfo} QueueInfo */

const ROWS = 100;
const TICK = 500;
const ROLLBACKS = 5;
const TIMERS = "Timers";

/** @param {Broker} broker */
async function read(broker) {
  const [queues, groups, talks, rows, done, failed, stats] = await Promise.all([
    broker.queues(),
    broker.groups().toArray(),
    broker.conversations().toArray(),
    broker.select(JOBS, { limit: ROWS }).toArray(),
    broker.select(DONE, { reverse: true, limit: ROWS }).toArray(),
    broker.failed({ failedQueue: JOBS, limit: ROWS }).toArray(),
    broker.stats(),
  ]);
  const lanes = [...LANES, TIMERS].map((name) => {
    const talk = talks.find(({ key, service }) => name === TIMERS ? service === CLOCK : service === JOBS && key === name);
    const group = groups.find(({ conversationGroupId }) => conversationGroupId === talk?.conversationGroupId);
    return { name, group: group?.conversationGroupId, ready: group?.ready ?? 0, heldBy: group?.heldBy ?? null, timer: talk?.dialogTimer ?? null };
  });
  return { queues, lanes, rows, done, failed, stats };
}
/** @typedef {Awaited<ReturnType<typeof read>>} Found */

/** @param {Found} found */
function show({ queues, lanes, rows, done, failed, stats }) {
  fillTable("groups", lanes, { key: ({ name }) => name, create: createLane, update: updateLane });
  fillTable("rows", rows, { key: (row) => String(row.queuingOrder), create: createRow, update: updateRow, rest: byId("rows-title") });
  fillTable("done", done, { key: (row) => String(row.queuingOrder), create: createDone, update: () => {}, rest: byId("done-title") });
  fillTable("failed", failed, { key: (row) => `${row.messageId} ${row.queuingOrder}`, create: createFailed, update: () => {}, rest: byId("failed-title") });
  const forget = byId("forget");
  forget.hidden = done.length === 0 && document.activeElement !== forget;
  const jobs = queues.find(({ name }) => name === JOBS);
  /** @type {HTMLInputElement} */ (byId("paused")).checked = jobs?.isActivationEnabled === false;
  setText(byId("stats"), `Readers at work here: ${jobs?.readers ?? 0}. Since this tab was opened: ${stats.receives} received, ${stats.timers} timers fired, ${stats.rollbacks} rolled back.`);
  showPoison(queues.find(({ name }) => name === FRAGILE));
}

/** @param {QueueInfo | undefined} queue */
function showPoison(queue) {
  const count = queue?.consecutiveRollbacks ?? 0;
  const isOff = queue?.isReceiveEnabled === false;
  /** @type {HTMLMeterElement} */ (byId("rollbacks")).value = count;
  setText(byId("rollbacks-count"), `${count} of ${ROLLBACKS}`);
  setText(byId("fragile-state"), isOff ? "off" : "on");
  byId("fragile-state").dataset.state = isOff ? "off" : "on";
  const off = byId("fragile-off");
  if (!isOff && off.contains(document.activeElement)) byId("poison-title").focus({ preventScroll: true });
  off.hidden = !isOff;
}

/** @param {Found["lanes"][number]} lane */
const createLane = ({ name }) => el("tr", { role: "row" }, el("th", { role: "rowheader", scope: "row", class: "t-name" }, name), cell("t-count"), cell("t-held", el("span", { class: "chip" })), cell("t-group"));

const HELD = { this: "this tab", other: "another tab", nobody: "nobody" };

/** @param {HTMLElement} row @param {Found["lanes"][number]} lane */
function updateLane(row, { group, ready, heldBy, timer }) {
  row.dataset.held = heldBy ?? "nobody";
  setText(row.querySelector(".t-count"), String(ready));
  const chip = /** @type {HTMLElement} */ (row.querySelector(".chip"));
  chip.dataset.held = heldBy ?? "nobody";
  setText(chip, HELD[heldBy ?? "nobody"]);
  const cell = /** @type {HTMLElement} */ (row.querySelector(".t-group"));
  cell.title = group ? `Conversation group ${group}` : "";
  if (timer) countdown(cell, timer, "next in", "due");
  else {
    delete cell.dataset.until;
    setText(cell, group ? `group ${group.slice(-4)}` : "no group now");
  }
}

/** @param {Message} row */
const createRow = (row) => el("tr", { role: "row", "data-what": nameOf(row) }, cell("t-name", nameOf(row)), cell("t-count"), cell("t-next"), cell("t-why"));

/** @param {HTMLElement} element @param {Message} row */
function updateRow(element, { attempts, retryAt, lastError }) {
  setText(element.querySelector(".t-count"), attempts === 0 ? "not tried" : `${attempts} failed`);
  const next = /** @type {HTMLElement} */ (element.querySelector(".t-next"));
  if (retryAt) countdown(next, retryAt, "again in", "again now");
  else {
    delete next.dataset.until;
    setText(next, "ready");
  }
  setText(element.querySelector(".t-why"), lastError ?? "");
}

/** @param {Message} row */
function createDone({ body, messageEnqueueTime }) {
  return el("tr", { role: "row", class: "fresh", "data-what": String(body?.what), "data-by": String(body?.by) },
    cell("t-name", String(body?.what)),
    cell("t-by", el("code", {}, String(body?.by))),
    cell("t-time", el("time", { datetime: messageEnqueueTime.toISOString() }, clock(messageEnqueueTime))));
}

/** @param {FailedMessage} row */
function createFailed(row) {
  const what = nameOf(row);
  /** @param {string} action @param {string} label */
  const button = (action, label) => el("button", { type: "button", class: "small", "data-action": action, "aria-label": `${label}: ${what}` }, label);
  return el("tr", { role: "row", "data-what": what, "data-message": row.messageId },
    cell("t-name", what),
    cell("t-count", `${row.retries + 1} attempts`),
    cell("t-why", `${row.exceptionType}: ${row.exceptionMessage}`),
    cell("t-do", button("return", "Return to source"), button("discard", "Discard")));
}

/** @param {HTMLElement} element @param {Date} until @param {string} before @param {string} over */
function countdown(element, until, before, over) {
  element.dataset.until = String(until.getTime());
  const seconds = Math.ceil((until.getTime() - Date.now()) / 1_000);
  setText(element, seconds > 0 ? `${before} ${seconds} s` : over);
}

/**
 * Shows what the broker holds from now on. Who holds a group is no commit, and tells nobody: while there is work the page looks twice
 * a second, which moves the countdowns on as well.
 * @param {Broker} broker
 * @param {(error: unknown) => void} failed
 */
export function liveTabs(broker, failed) {
  let isBusy = false;
  const view = keepLooking(broker, async () => {
    const found = await read(broker);
    isBusy = found.rows.length > 0 || found.lanes.some(({ heldBy, timer }) => heldBy !== null || timer !== null);
    show(found);
  }, failed);
  const ticking = setInterval(() => { if (isBusy && !document.hidden) view.refresh(); }, TICK);
  broker.addEventListener("close", () => clearInterval(ticking));
  return view;
}

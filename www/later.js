// @ts-check
// Opens the queues by one clock or the other, and wires the controls.
import { testClock } from "./broker.js";
import { byId, setText } from "./dom.js";
import { failDelivering, failFetching } from "./later-fault.js";
import * as later from "./later-messages.js";
import { CHOICE, chooseStore, failStore, usesStore } from "./later-store.js";
import { liveLater, showPart, showParts } from "./later-view.js";
import { log, logRefusal } from "./view-log.js";
import { counted, moment, reason } from "./words.js";

/** @typedef {import("./broker.js").Broker} Broker */
/** @typedef {import("./broker.js").TestClock} TestClock */
/** @typedef {{ broker: Broker, clock: TestClock | undefined, view: ReturnType<typeof liveLater> }} Open */

/** For whoever waits for the page: "done" once it can be used. */
const outcome = document.documentElement.dataset;
const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
/** @type {Record<string, { ms: number, name: string }>} */
const JUMPS = { minute: { ms: MINUTE, name: "a minute" }, hour: { ms: HOUR, name: "an hour" }, day: { ms: 24 * HOUR, name: "a day" } };

/** What is open now: while the clock is switched, the next one. @type {Promise<Open>} */
let current;

/** Runs one action and says what came of it. What is due by a clock that stands still is done at once. @param {string} what @param {(open: Open) => Promise<void>} action */
async function act(what, action) {
  try {
    const open = await current;
    await action(open);
    await open.clock?.advance(0);
  } catch (error) {
    logRefusal(what, error);
  }
}

/** @param {string} id @param {string} what @param {(open: Open) => Promise<void>} action */
const onPress = (id, what, action) => byId(id).addEventListener("click", () => void act(what, action));
/** @param {string} id */
const valueOf = (id) => /** @type {HTMLInputElement | HTMLSelectElement} */ (byId(id)).value;
/** @param {Open} open */
const nowOf = ({ clock }) => clock ? clock.now() : Date.now();

// ── what is scheduled ──

/** What `datetime-local` takes. @param {number} instant */
const localText = (instant) => new Date(instant - new Date(instant).getTimezoneOffset() * MINUTE).toISOString().slice(0, 19);

function wireSchedule() {
  const when = byId("when");
  const instant = /** @type {HTMLInputElement} */ (byId("instant"));
  when.addEventListener("change", () => void act("When", async (open) => {
    const isInstant = valueOf("when") === "at";
    byId("instant-field").hidden = !isInstant;
    instant.disabled = !isInstant;
    if (isInstant && !instant.value) instant.value = localText(nowOf(open) + HOUR);
  }));
  byId("schedule-form").addEventListener("submit", (event) => {
    event.preventDefault();
    void act("Schedule", async (open) => {
      const text = valueOf("text");
      const delay = Number(valueOf("when"));
      const at = valueOf("when") === "at" ? new Date(instant.value) : new Date(nowOf(open) + delay);
      await later.schedule(open.broker, valueOf("destination"), text, valueOf("when") === "at" ? { deliverAt: at } : { delay });
      log(`“${text}” is stored, and will be delivered at ${moment(at, nowOf(open))}.`);
    });
  });
  byId("waiting").addEventListener("click", (event) => {
    const { row, action } = pressed(event);
    const messageId = row?.dataset.message;
    if (!row || !messageId || !action) return;
    const what = `“${row.dataset.what}”`;
    void act(action === "cancel" ? `Cancel ${what}` : `Reschedule ${what}`, async (open) => {
      const { delayed } = open.broker;
      if (action === "cancel") {
        log(await delayed.cancel(messageId) ? `${what} is cancelled: it will not be delivered.` : `${what} has been delivered already: there is nothing to cancel.`);
        return;
      }
      const at = action === "now" ? nowOf(open) : Number(row.dataset.time) + (JUMPS[action]?.ms ?? 0);
      log(await delayed.reschedule(messageId, at) ? `${what} is rescheduled to ${moment(new Date(at), nowOf(open))}.` : `${what} has been delivered already.`);
    });
  });
  onPress("take", "Receive all", async ({ broker }) => {
    const queues = (await broker.queues()).map(({ name }) => name).filter((name) => name === later.REMINDERS || name === later.OFFICE.queue);
    log(`${counted(await later.takeArrived(broker, queues), "message")} received.`);
  });
}

/** The button that was pressed in a table, and its row. @param {Event} event */
function pressed(event) {
  const button = /** @type {HTMLElement} */ (event.target).closest("button");
  return { action: button?.dataset.action, row: button?.closest("tr") };
}

// ── the clock ──

function wireClock() {
  const isMine = /** @type {HTMLInputElement} */ (byId("own-clock"));
  isMine.addEventListener("change", () => {
    const clock = isMine.checked ? testClock() : undefined;
    byId("jumps").hidden = !clock;
    reopen(() => clock);
    void act("Switch the clock", async () => log(clock
      ? "The clock stands still in this tab, until you let it jump. Other tabs keep their own."
      : "The wall clock again. What came while the clock was ahead stays where it is."));
  });
  byId("jumps").addEventListener("click", (event) => {
    const jump = JUMPS[pressed(event).action ?? ""];
    if (jump) void act(`Jump ${jump.name}`, async ({ broker, clock, view }) => {
      if (!clock) return;
      const before = (await broker.stats()).delayedDispatched;
      await clock.advance(jump.ms);
      const count = (await broker.stats()).delayedDispatched - before;
      log(`The clock jumped ${jump.name}. ${count === 0 ? "Nothing was delivered on the way." : `On the way ${counted(count, "message was", "messages were")} delivered, each when it was due.`}`);
      view.tick();
    });
  });
}

/** Closes what is open, and opens it anew. @param {(clock: TestClock | undefined) => TestClock | undefined} next */
function reopen(next) {
  current = current.then(async ({ broker, clock, view }) => {
    view.stop();
    await broker.close();
    return open(next(clock));
  });
}

// ── where messages wait ──

function wireStore() {
  const isOwn = /** @type {HTMLInputElement} */ (byId("own-store"));
  const change = () => {
    showParts(usesStore());
    mendParts();
    reopen((clock) => clock);
    void act("Switch the store", async () => log(usesStore()
      ? "What is scheduled from now on waits in another database."
      : "What is scheduled from now on waits in the broker’s own database. What the other one has stays there until it is used again."));
  };
  isOwn.addEventListener("change", () => {
    chooseStore(isOwn.checked);
    change();
  });
  // In another tab. `null`: all of it was cleared.
  addEventListener("storage", ({ key }) => {
    if ((key === CHOICE || key === null) && isOwn.checked !== usesStore()) change();
  });
}

// ── what can be broken ──

/** What this tab pretends. @type {Record<"fetch" | "store" | "deliver", { fail: (fails: boolean) => void, states: readonly [string, string], broken: string, mended: string }>} */
const FAULTS = {
  fetch: {
    fail: failFetching,
    states: ["works", "fails"],
    broken: "This tab can’t read what is due any more. See the breaker once something is; a second tab delivers it.",
    mended: "This tab can read what is due again, and does so within 10 s.",
  },
  store: {
    fail: failStore,
    states: ["works", "fails"],
    broken: "This tab can’t write to the other database any more. What is scheduled waits in the broker’s own until that can.",
    mended: "The other database works again, and is tried within 10 s.",
  },
  deliver: {
    fail: failDelivering,
    states: ["works", "fails"],
    broken: "This tab has no room for what is delivered any more. It is tried again and again, and then it is in the error queue.",
    mended: "There is room again. What is in the error queue can be returned.",
  },
};

/** @param {keyof typeof FAULTS} name @param {boolean} isWhole */
function setFault(name, isWhole) {
  FAULTS[name].fail(!isWhole);
  showPart(name, isWhole, FAULTS[name].states, ["Let it fail", "Let it work"]);
}

const mendParts = () => FAULT_NAMES.forEach((name) => setFault(name, true));
const FAULT_NAMES = /** @type {(keyof typeof FAULTS)[]} */ (Object.keys(FAULTS));

function wireBreaking() {
  const isMending = (/** @type {string} */ id) => byId(id).dataset.action === "mend";
  onPress("reminders-switch", "The queue reminders", async ({ broker }) => {
    if (isMending("reminders-switch")) {
      await later.defineReminders(broker);
      log("reminders is there again. What failed can return to it.");
    } else {
      const unread = await later.dropReminders(broker);
      const along = unread === 0 ? "" : ` with ${counted(unread, "message")} that nobody had received`;
      log(`reminders was dropped${along}. What is due for it has nowhere to go, and comes into the error queue.`, { kind: "refused" });
    }
  });
  onPress("desk-switch", "The queue desk", async ({ broker }) => {
    const isOn = isMending("desk-switch");
    await later.switchDesk(broker, isOn);
    log(isOn ? "desk is on. What waits to be sent is tried again." : "desk is off: nothing can be sent from it. What is due on the conversation is tried again and again.", { kind: isOn ? "done" : "refused" });
  });
  for (const name of FAULT_NAMES) {
    const part = `${name}-switch`;
    onPress(part, "What this tab pretends", async () => {
      const isWhole = isMending(part);
      setFault(name, isWhole);
      log(isWhole ? FAULTS[name].mended : FAULTS[name].broken, { kind: isWhole ? "done" : "refused" });
    });
  }
  byId("failed").addEventListener("click", (event) => {
    const { row, action } = pressed(event);
    const messageId = row?.dataset.message;
    if (!row || !messageId) return;
    const what = `“${row.dataset.what}”`;
    void act(`${action} ${what}`, async ({ broker }) => {
      if (action === "return") {
        log(await broker.returnToSource({ messageId }) === 1 ? `${what} went where it was to go.` : `${what} has still nowhere to go: it stays in the error queue.`);
      } else {
        await broker.discardFailed({ messageId });
        log(`${what} was discarded.`);
      }
    });
  });
}

// ── the page ──

/** @param {TestClock} [clock] @returns {Promise<Open>} */
async function open(clock) {
  const broker = await later.openLater(clock, usesStore());
  const view = liveLater(broker, () => clock ? clock.now() : Date.now(), (error) => logRefusal("Reading the queues", error));
  broker.addEventListener("message-failed", ({ detail }) => {
    const error = /** @type {{ message?: string }} */ (detail.error);
    log(`A message could not be delivered. ${error?.message}`, { kind: "refused" });
  });
  broker.addEventListener("critical-error", ({ detail }) => {
    const error = /** @type {{ message?: string }} */ (detail.error);
    log(`The breaker “${detail.source}” has triggered: what is due fails all the time. ${error?.message}`, { kind: "refused" });
    view.refresh();
  });
  broker.addEventListener("message-dropped", ({ detail }) => log(`${detail.reason}`, { kind: "refused" }));
  broker.addEventListener("close", ({ detail }) => {
    if (detail.reason === "closed") return;
    view.stop();
    byId("panels").inert = true;
    setText(byId("state"), `The broker was closed (${detail.reason}). Reload the page to go on.`);
  });
  await view.showNow();
  return { broker, clock, view };
}

async function start() {
  try {
    current = open();
    const { broker } = await current;
    showParts(usesStore());
    mendParts();
    wireSchedule();
    wireClock();
    wireStore();
    wireBreaking();
    onPress("start-over", "Start over", async (open) => {
      await later.forgetEverything(open.broker);
      location.reload();
    });
    const count = await broker.delayed.count();
    if (count > 0) log(`${counted(count, "message was", "messages were")} still waiting from an earlier visit.`, { kind: "note" });
    setText(byId("state"), "Open.");
    const panels = byId("panels");
    panels.inert = false;
    panels.removeAttribute("aria-busy");
    outcome.opened = "done";
  } catch (error) {
    setText(byId("state"), `The page could not start. ${reason(error)}`);
    outcome.opened = `failed: ${reason(error)}`;
  }
}

void start();

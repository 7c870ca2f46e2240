// @ts-check
// Opens the queues that the tabs share, and wires the controls.
import { byId, setText } from "./dom.js";
import * as jobs from "./tabs-jobs.js";
import { liveTabs } from "./tabs-view.js";
import { log, logRefusal } from "./view-log.js";
import { counted, reason } from "./words.js";

/** @typedef {import("./broker.js").Broker} Broker */

/** For whoever waits for the page: "done" once it can be used. */
const outcome = document.documentElement.dataset;
const tab = crypto.randomUUID().slice(0, 4);

/** @param {string} id */
const input = (id) => /** @type {HTMLInputElement} */ (byId(id));
/** @param {string} id */
const numberIn = (id) => Number(/** @type {HTMLInputElement | HTMLSelectElement} */ (byId(id)).value);

/** Runs one action and says what came of it. @param {string} what @param {() => Promise<void>} action */
async function act(what, action) {
  try {
    await action();
  } catch (error) {
    logRefusal(what, error);
  }
}

/** @param {string} id @param {string} what @param {() => Promise<void>} action */
const onPress = (id, what, action) => byId(id).addEventListener("click", () => void act(what, action));

/** @param {Broker} broker */
function wireJobs(broker) {
  const form = /** @type {HTMLFormElement} */ (byId("jobs-form"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    void act("Add jobs", async () => {
      const count = numberIn("count");
      const lane = /** @type {HTMLSelectElement} */ (byId("lane")).value;
      const lanes = lane ? [lane] : jobs.LANES;
      for (const each of lanes) await jobs.addJobs(broker, each, count, false);
      log(`${counted(count * lanes.length, "job")} added: ${count} for ${lanes.join(", ")}.`);
    });
  });
  onPress("add-bad", "Add a bad job", async () => {
    const lane = /** @type {HTMLSelectElement} */ (byId("lane")).value || jobs.LANES[0] || "";
    await jobs.addJobs(broker, lane, 1, true);
    log(`A bad job was added for ${lane}.`);
  });
  onPress("set-timer", "Set a timer", async () => {
    const seconds = numberIn("seconds");
    await jobs.setTimer(broker, seconds);
    log(`A timer was set: ${seconds} s. Whichever tab works then handles its message.`);
  });
  onPress("forget", "Empty the list", () => jobs.forgetDone(broker));
}

/** @param {Broker} broker @param {() => void} refresh */
function wireWork(broker, refresh) {
  /** @type {string[]} */
  const inHand = [];
  const readers = /** @type {HTMLSelectElement} */ (byId("readers"));
  const isOn = input("working");
  /** @type {import("./broker.js").Activation | undefined} */
  let activation;

  /** @param {string} what @param {boolean} isBegun */
  function told(what, isBegun) {
    if (isBegun) inHand.push(what);
    else inHand.splice(inHand.indexOf(what), 1);
    setText(byId("in-hand"), inHand.length > 0 ? inHand.join(", ") : "nothing");
    refresh();
  }

  function start() {
    activation = jobs.work(broker, {
      tab,
      maxReaders: Number(readers.value),
      pause: () => numberIn("pace"),
      fails: () => input("fails").checked,
      told,
    });
    activation.done.catch((error) => {
      isOn.checked = false;
      readers.disabled = false;
      logRefusal("Working here", error);
    });
    readers.disabled = true;
    log(`This tab works, with at most ${counted(Number(readers.value), "reader")}.`);
  }

  async function stop() {
    await activation?.stop();
    activation = undefined;
    readers.disabled = false;
    log("This tab has stopped working. What it had in hand it has finished.");
  }

  // One after the other: a switch that is flicked twice ends as it stands.
  let last = Promise.resolve();
  isOn.addEventListener("change", () => {
    last = last.then(() => act("Work here", async () => {
      if (isOn.checked && !activation) start();
      else if (!isOn.checked && activation) await stop();
    })).finally(refresh);
  });
  input("paused").addEventListener("change", () => void act("Pause every tab", async () => {
    const isPaused = input("paused").checked;
    await broker.alterQueue(jobs.JOBS, { activation: isPaused ? "off" : "on" });
    log(isPaused ? "Paused in every tab, until it is switched back." : "No longer paused.");
  }).finally(refresh));
  broker.addEventListener("message-failed", ({ detail }) => {
    const error = /** @type {{ message?: string }} */ (detail.error);
    const next = { immediate: "Again at once.", delayed: "Its lane waits; the others go on.", "error-queue": "It goes to the error queue.", rollback: "" }[detail.next];
    if (detail.queue === jobs.JOBS) log(`Attempt ${detail.attempts} failed: ${error?.message}. ${next}`, { kind: "refused" });
  });
}

/** @param {Broker} broker */
function wireFailed(broker) {
  byId("failed").addEventListener("click", (event) => {
    const button = /** @type {HTMLElement} */ (event.target).closest("button");
    const row = button?.closest("tr");
    const messageId = row?.dataset.message;
    if (!button || !messageId) return;
    void act(button.getAttribute("aria-label") ?? "", async () => {
      if (button.dataset.action === "return") {
        const moved = await broker.returnToSource({ messageId });
        log(moved === 1 ? `${row?.dataset.what} went back to the front of its lane.` : `${row?.dataset.what} is not there any more.`);
      } else {
        await broker.discardFailed({ messageId });
        log(`${row?.dataset.what} was discarded.`);
      }
    });
  });
}

/** @param {Broker} broker */
function wirePoison(broker) {
  onPress("fail-once", "Roll back once", () => jobs.failOnce(broker));
  onPress("fail-five", "Roll back five times", async () => {
    for (let n = 0; n < 5; n += 1) await jobs.failOnce(broker);
  });
  onPress("succeed", "Receive and commit", async () => {
    const count = await jobs.succeedOnce(broker);
    log(count === 0 ? `Nothing is ready in ${jobs.FRAGILE}: roll back once, and there is.` : "Received and committed: the counter is back at 0.");
  });
  onPress("fragile-on", "Switch the queue on", async () => {
    await broker.alterQueue(jobs.FRAGILE, { status: "on" });
    log(`${jobs.FRAGILE} is on again, and its counter is back at 0.`);
  });
  broker.addEventListener("queue-disabled", ({ detail }) => log(`${detail.queue} was switched off (${detail.reason}).`, { kind: "refused" }));
}

/** @param {Broker} broker */
function wirePage(broker) {
  onPress("start-over", "Start over", async () => {
    await jobs.forgetEverything(broker);
    location.reload();
  });
  broker.addEventListener("close", ({ detail }) => {
    byId("panels").inert = true;
    setText(byId("state"), `The broker was closed (${detail.reason}). Reload the page to go on.`);
  });
}

async function start() {
  try {
    setText(byId("tab"), tab);
    document.title = `Tab ${tab} · ${document.title}`;
    const broker = await jobs.openJobs();
    const view = liveTabs(broker, (error) => logRefusal("Reading the queues", error));
    wireJobs(broker);
    wireWork(broker, view.refresh);
    wireFailed(broker);
    wirePoison(broker);
    wirePage(broker);
    await view.showNow();
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

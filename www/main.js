// @ts-check
// Opens the shop, plays the first order when there is nothing yet, and wires the controls.
import { deleteBroker } from "./broker.js";
import { byId, setText } from "./dom.js";
import { COUNTER, DATABASE, KITCHEN } from "./names.js";
import * as shop from "./shop.js";
import { liveView } from "./view.js";
import { log, logRefusal } from "./view-log.js";
import { chooseOnTray, clearTray, wireTray } from "./view-tray.js";
import { counted, reason, received, shortId, sideOf } from "./words.js";

/** @typedef {import("./broker.js").Broker} Broker */
/** @typedef {import("./broker.js").EndResult} EndResult */

/** For whoever waits for the page: "done" once a conversation has run over IndexedDB, or rows of an earlier visit were read. */
const outcome = document.documentElement.dataset;

/** @param {Broker} broker */
async function firstOrder(broker) {
  const known = await Promise.all([
    broker.conversations().first(),
    broker.select(COUNTER.queue, { limit: 1 }).first(),
    broker.select(KITCHEN.queue, { limit: 1 }).first(),
    broker.archive({ limit: 1 }).first(),
  ]);
  if (known.some((found) => found !== undefined)) {
    log("Found the conversations of your last visit, read from IndexedDB.", { kind: "note" });
    return;
  }
  await shop.playFirstOrder(broker);
  log("The database was empty, so one order was played: placed, received, confirmed, and the confirmation received. The conversation is still open.", { kind: "note" });
}

/** Runs one action and says what came of it. @param {string} what @param {() => Promise<void>} action */
async function act(what, action) {
  try {
    await action();
  } catch (error) {
    logRefusal(what, error);
  }
}

/** @param {EndResult} result */
function ended({ discarded, archived }) {
  const parts = [];
  if (archived > 0) parts.push(`${counted(archived, "row")} archived`);
  if (discarded > 0) parts.push(`${counted(discarded, "message")} discarded unread`);
  return parts.length > 0 ? ` (${parts.join(", ")})` : "";
}

const archiveCopy = () => /** @type {HTMLInputElement} */ (byId("archive-copy")).checked;

/** @param {Broker} broker */
function wireCounter(broker) {
  const form = /** @type {HTMLFormElement} */ (byId("order-form"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const fields = new FormData(form);
    const order = { dish: String(fields.get("dish")), count: Number(fields.get("count")) };
    void act("Place the order", async () => {
      const handle = await shop.placeOrder(broker, order, String(fields.get("conversation")));
      const info = await broker.conversation(handle).info();
      log(`The counter sent an order on ${shortId(info?.conversationId ?? handle)}: ${order.count} × ${order.dish}.`);
    });
  });

  byId("counter-receive").addEventListener("click", () => void act("Receive the next answer", async () => {
    const answer = await shop.receiveAnswer(broker);
    if (answer) log(received(answer, "The counter"));
    else log("Nothing is ready for the counter.", { kind: "note" });
  }));

  wireConversations("counter-talks", {
    end: async (handle, id) => log(`The counter ended ${id}${ended(await shop.end(broker, handle, { archive: archiveCopy() }))}. Its rows are gone; the kitchen’s are untouched.`),
    undo: async (handle, id) => {
      const { steps, ...result } = await shop.undoOrders(broker, handle, archiveCopy());
      log(`The counter undid ${id}, newest row first, and ended it with an error${ended(result)}.`, { steps: steps.length > 0 ? steps : ["no rows were kept: retention was off"] });
    },
  });
}

/** @param {Broker} broker */
function wireKitchen(broker) {
  wireTray();
  const receive = byId("kitchen-receive");
  receive.addEventListener("click", () => {
    if (receive.getAttribute("aria-disabled") === "true") return;
    void act("The kitchen’s transaction, rolled back", async () => {
      try {
        const { choice, message } = await shop.takeOrder(broker, chooseOnTray);
        if (!message) log("Nothing is ready for the kitchen.", { kind: "note" });
        else if (choice === "drop") log("The tray was dropped: rolled back. The row is ready again.", { kind: "back" });
        else log(`${received(message, "The kitchen")} ${{ confirm: "Confirmed", reject: "Rejected: ended with an error", end: "Ended", nothing: "" }[choice]}, committed.`);
      } finally {
        clearTray();
      }
    });
  });

  wireConversations("kitchen-talks", {
    ready: async (handle, id) => { await shop.sayReady(broker, handle); log(`The kitchen sent Ready on ${id}.`); },
    end: async (handle, id) => log(`The kitchen ended ${id}${ended(await shop.end(broker, handle))}. Its rows are gone; the counter’s are untouched.`),
    reject: async (handle, id) => log(`The kitchen ended ${id} with an error${ended(await shop.end(broker, handle, { rejected: true }))}.`),
  });
}

/**
 * @param {string} table
 * @param {Record<string, (handle: string, shortId: string) => Promise<void>>} actions
 */
function wireConversations(table, actions) {
  byId(table).addEventListener("click", (event) => {
    const button = /** @type {HTMLElement} */ (event.target).closest("button");
    const row = button?.closest("tr");
    const action = actions[button?.dataset.action ?? ""];
    if (!button || !row || !action) return;
    void act(button.getAttribute("aria-label") ?? "", () => action(row.dataset.handle ?? "", shortId(row.dataset.conversation ?? "")));
  });
}

/** Retention and the queue's own switch. @param {Broker} broker @param {"counter" | "kitchen"} id @param {string} queue @param {() => void} refresh */
function wireQueue(broker, id, queue, refresh) {
  const retention = /** @type {HTMLInputElement} */ (byId(`${id}-retention`));
  retention.addEventListener("change", () => void act(`Retention of ${queue}`, async () => {
    const on = retention.checked;
    await broker.alterQueue(queue, { retention: on });
    log(on ? `${queue} keeps messages from now on.` : `${queue} keeps no further messages; rows already kept stay until this side ends.`);
  }).finally(refresh));
  byId(`${id}-off`).querySelector("button")?.addEventListener("click", () => void act(`Switch ${queue} on`, async () => {
    await broker.alterQueue(queue, { status: "on" });
    log(`${queue} is on again.`);
  }).finally(refresh));
}

/** @param {Broker} broker */
function wirePage(broker) {
  byId("purge").addEventListener("click", () => void act("Empty the archive", async () => {
    const gone = await broker.purgeArchive(Date.now() + 1);
    log(`${counted(gone, "row")} deleted from the archive.`);
  }));
  byId("start-over").addEventListener("click", () => void act("Start over", async () => {
    await broker.close();
    await deleteBroker(DATABASE);
    location.reload();
  }));
  broker.addEventListener("message-dropped", ({ detail }) => log(`A message was dropped: ${detail.reason}.`, { kind: "note" }));
  broker.addEventListener("queue-disabled", ({ detail }) => log(`${detail.queue} was switched off (${detail.reason}). ${sideOf(detail.queue)}: switch it on again above its rows.`, { kind: "note" }));
  broker.addEventListener("close", ({ detail }) => {
    byId("panels").inert = true;
    setText(byId("state"), `The broker was closed (${detail.reason}). Reload the page to go on.`);
  });
}

async function start() {
  try {
    const broker = await shop.openShop();
    const view = liveView(broker, (error) => logRefusal("Reading the queues", error));
    wireCounter(broker);
    wireKitchen(broker);
    wireQueue(broker, "counter", COUNTER.queue, view.refresh);
    wireQueue(broker, "kitchen", KITCHEN.queue, view.refresh);
    wirePage(broker);
    await firstOrder(broker);
    await view.showNow();
    setText(byId("facts"), `Everything on this page is kept in the IndexedDB database “${broker.name}” (broker instance ${broker.instanceId}).`);
    setText(byId("state"), "Open. Both queues are read live.");
    const panels = byId("panels");
    panels.inert = false;
    panels.removeAttribute("aria-busy");
    outcome.conversation = "done";
  } catch (error) {
    setText(byId("state"), `The demo could not start. ${reason(error)}`);
    outcome.conversation = `failed: ${reason(error)}`;
  }
}

void start();

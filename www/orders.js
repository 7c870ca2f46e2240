// @ts-check
// Opens the order book, gives it its way to the server, and wires the controls.
import { byId, setText } from "./dom.js";
import * as book from "./orders-book.js";
import { watchBoard } from "./orders-server.js";
import { liveBook, showBoard, tableOf } from "./orders-view.js";
import { log, logRefusal } from "./view-log.js";
import { counted, reason } from "./words.js";

/** @typedef {import("./broker.js").Broker} Broker */

/** For whoever waits for the page: "done" once it can be used. */
const outcome = document.documentElement.dataset;
const tab = crypto.randomUUID().slice(0, 4);
/** Where the tabs tell each other who transmits; the key in localStorage. */
const TRANSMITTER = "pocket-broker-orders:transmitter";
/** Orders that leave together are told together. */
const TOGETHER = 200;

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
/** @param {string} id */
const valueOf = (id) => /** @type {HTMLInputElement | HTMLSelectElement} */ (byId(id)).value;

// ── who transmits ──

function showTransmitter() {
  const name = localStorage.getItem(TRANSMITTER);
  setText(byId("transmitter"), name === null ? "" : `Of all tabs one transmits. The last attempt was made by tab ${name}${name === tab ? ", this one" : ""}.`);
}

function toldOfAttempt() {
  localStorage.setItem(TRANSMITTER, tab);
  showTransmitter();
}

// ── the browser's side ──

/** @param {Broker} broker */
async function attempt(broker) {
  const { sent, remaining } = await broker.transmit();
  log(`Tried: ${counted(sent, "order")} left, ${counted(remaining, "order waits", "orders wait")}.`);
}

/** @param {Broker} broker */
function wireBook(broker) {
  byId("order-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const order = { table: valueOf("table"), dish: valueOf("dish"), count: Number(valueOf("portions")) };
    void act("Place the order", async () => {
      await book.placeOrder(broker, order);
      log(`${book.orderName(order)} for ${order.table} is stored. It leaves when the server can be reached.`);
    });
  });
  onPress("attempt", "Try now", () => attempt(broker));
  onPress("take", "Receive all", async () => log(`${counted(await book.takeReceipts(broker), "receipt")} received.`));
  byId("failed").addEventListener("click", (event) => {
    const button = /** @type {HTMLElement} */ (event.target).closest("button");
    const row = button?.closest("tr");
    const messageId = row?.dataset.message;
    if (!button || !messageId) return;
    void act(button.getAttribute("aria-label") ?? "", async () => {
      if (button.dataset.action === "return") {
        const moved = await broker.returnToSource({ messageId });
        log(moved === 1 ? `${row?.dataset.what} is sent once more.` : `${row?.dataset.what} stays: its conversation is not there any more.`);
      } else {
        await broker.discardFailed({ messageId });
        log(`${row?.dataset.what} was discarded.`);
      }
    });
  });
}

/** @param {Broker} broker */
function wireEvents(broker) {
  let left = 0;
  broker.addEventListener("message-transmitted", () => {
    left += 1;
    if (left === 1) setTimeout(() => {
      log(`${counted(left, "order has", "orders have")} left: the server has acknowledged ${left === 1 ? "it" : "them"}.`);
      left = 0;
    }, TOGETHER);
  });
  broker.addEventListener("transmission-failed", ({ detail }) => log(`${tableOf(detail.conversationHandle)} waits: ${detail.status}`, { kind: "refused" }));
  broker.addEventListener("message-failed", ({ detail }) => {
    const error = /** @type {{ message?: string }} */ (detail.error);
    log(`An order was refused, and is in the error queue. ${error?.message}`, { kind: "refused" });
  });
  broker.addEventListener("message-dropped", ({ detail }) => log(detail.reason, { kind: "refused" }));
  broker.addEventListener("close", ({ detail }) => {
    byId("panels").inert = true;
    setText(byId("state"), `The broker was closed (${detail.reason}). Reload the page to go on.`);
  });
}

// ── the server's side ──

/** @param {Broker} broker @param {ReturnType<typeof watchBoard>} board */
function wireServer(broker, board) {
  const network = /** @type {HTMLInputElement} */ (byId("network"));
  network.addEventListener("change", () => void act("The network", async () => {
    const isOn = network.checked;
    await board.change({ network: isOn });
    log(isOn ? "The network is back." : "The network is cut.");
    // As the broker does by itself when the browser says “online”.
    if (isOn) await attempt(broker);
  }).finally(board.refresh));
  byId("behaviour").addEventListener("change", () => void act("The server", async () => {
    const { value, selectedOptions } = /** @type {HTMLSelectElement} */ (byId("behaviour"));
    const what = selectedOptions[0]?.textContent;
    await board.change({ behaviour: value });
    log(`When an order comes, the server ${what}.`);
  }).finally(board.refresh));
}

/** @param {unknown} error */
function showNoServer(error) {
  const notice = byId("no-server");
  notice.hidden = false;
  setText(notice, `The server’s side of this page can’t be reached (${error instanceof Error ? error.message : String(error)}). It is part of “make demo”: start that again. Orders wait meanwhile.`);
}

async function start() {
  try {
    setText(byId("tab"), tab);
    document.title = `Tab ${tab} · ${document.title}`;
    const broker = await book.openBook();
    const view = liveBook(broker, (error) => logRefusal("Reading the order book", error));
    const board = watchBoard((found) => {
      byId("no-server").hidden = true;
      showBoard(found);
    }, showNoServer);
    wireBook(broker);
    wireEvents(broker);
    wireServer(broker, board);
    broker.addEventListener("changed", ({ detail }) => { if (detail.transmission) void board.refresh(); });
    addEventListener("storage", showTransmitter);
    showTransmitter();
    onPress("start-over", "Start over", async () => {
      await board.forget();
      await book.forgetBook(broker);
      localStorage.removeItem(TRANSMITTER);
      location.reload();
    });
    const { transmissionQueued } = await broker.stats();
    if (transmissionQueued > 0) log(`${counted(transmissionQueued, "order was", "orders were")} still waiting from an earlier visit.`, { kind: "note" });
    await Promise.all([view.showNow(), board.refresh()]);
    await book.routeOrders(broker, tab, toldOfAttempt);
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

/** The demo page, driven as a person would: mouse, keyboard, reload, a second tab, a phone's width. */
import assert from "node:assert/strict";
import { resize } from "./support/browsers.mjs";
import { isHidden, isVisible, logged, pageTests, press, shows, sticksOut, until } from "./support/on-page.mjs";

const { onPage, opened } = pageTests({ path: "", outcome: "conversation" });

// ── what the page shows ──

/** A table's rows, newest first: "status type sequence body". */
const rows = (page, table) => page.$$eval(`#${table} tbody tr`, (all) => all.map((row) =>
  `${row.dataset.status} ${row.dataset.type} ${row.dataset.sequence} ${row.querySelector(".c-body").textContent}`));

const states = (page, side) => page.$$eval(`#${side}-talks tbody tr`, (all) => all.map((row) => row.dataset.state));

const showsRows = (page, table, expected) => shows(() => rows(page, table), expected, `rows of ${table}`);
const showsStates = (page, side, expected) => shows(() => states(page, side), expected, `conversations of the ${side}`);

const focused = (page) => page.evaluate(() => document.activeElement?.id || document.activeElement?.dataset?.choice || "");

// ── what a person does ──

async function order(page, dish, count, { conversation } = {}) {
  await page.$eval("#order-form", (form, dish, count) => {
    form.elements.dish.value = dish;
    form.elements.count.value = String(count);
  }, dish, count);
  const value = conversation === undefined ? "" : await page.$$eval("#conversation option", (all, n) => all[n + 1].value, conversation);
  await page.select("#conversation", value);
  await press(page, "#order-form button");
  await logged(page, "The counter sent an order");
}

async function onTray(page) {
  await press(page, "#kitchen-receive");
  await until(page, isVisible, "#tray");
  return page.$eval("#tray-what", (what) => what.textContent);
}

async function choose(page, choice) {
  await press(page, `#tray [data-choice="${choice}"]`);
  await until(page, isHidden, "#tray");
}

const FIRST_COUNTER = ["0 Confirmation 0 2 × Soup, in 10 minutes", "3 Order 0 2 × Soup"];
const FIRST_KITCHEN = ["3 Confirmation 0 2 × Soup, in 10 minutes", "0 Order 0 2 × Soup"];

// ── tests ──

onPage("the first visit plays one order and keeps its rows on both sides", async (page) => {
  await showsRows(page, "counter-rows", FIRST_COUNTER);
  await showsRows(page, "kitchen-rows", FIRST_KITCHEN);
  await showsStates(page, "counter", ["CO"]);
  await showsStates(page, "kitchen", ["CO"]);
});

onPage("a dropped tray rolls back, a confirmed one commits, and the answer comes back", async (page) => {
  await order(page, "Dumplings", 3);
  await showsRows(page, "kitchen-rows", ["1 Order 0 3 × Dumplings", ...FIRST_KITCHEN]);
  assert.match(await onTray(page), /^Order: 3 × Dumplings/);
  assert.deepEqual((await rows(page, "kitchen-rows"))[0], "1 Order 0 3 × Dumplings", "not committed yet");
  await choose(page, "drop");
  await logged(page, "rolled back");
  await showsRows(page, "kitchen-rows", ["1 Order 0 3 × Dumplings", ...FIRST_KITCHEN]);

  assert.match(await onTray(page), /^Order: 3 × Dumplings/, "ready again");
  await choose(page, "confirm");
  await logged(page, "Confirmed, committed");
  await showsRows(page, "kitchen-rows", ["3 Confirmation 0 3 × Dumplings, in 10 minutes", "0 Order 0 3 × Dumplings", ...FIRST_KITCHEN]);
  await showsRows(page, "counter-rows", ["1 Confirmation 0 3 × Dumplings, in 10 minutes", "3 Order 0 3 × Dumplings", ...FIRST_COUNTER]);

  await press(page, "#counter-receive");
  await logged(page, "The counter received Confirmation 0");
  await showsRows(page, "counter-rows", ["0 Confirmation 0 3 × Dumplings, in 10 minutes", "3 Order 0 3 × Dumplings", ...FIRST_COUNTER]);
  await press(page, "#counter-receive");
  await logged(page, "Nothing is ready for the counter");
});

onPage("a reload with an order on the tray: rows, states and the order are still there", async (page) => {
  await order(page, "Coffee", 1);
  await onTray(page);
  await page.reload();
  await opened(page);
  await logged(page, "Found the conversations of your last visit");
  await showsRows(page, "kitchen-rows", ["1 Order 0 1 × Coffee", ...FIRST_KITCHEN]);
  await showsRows(page, "counter-rows", ["3 Order 0 1 × Coffee", ...FIRST_COUNTER]);
  await showsStates(page, "counter", ["CO", "CO"]);
  assert.match(await onTray(page), /^Order: 1 × Coffee/, "the lock went with the page");
  await choose(page, "confirm");
  await showsRows(page, "kitchen-rows", ["3 Confirmation 0 1 × Coffee, in 10 minutes", "0 Order 0 1 × Coffee", ...FIRST_KITCHEN]);
});

onPage("archive and end: this side's rows go, the other side's stay, the copy survives a reload", async (page) => {
  await press(page, "#archive-copy");
  await press(page, '#counter-talks [data-action="end"]');
  await logged(page, "2 rows archived");
  await showsRows(page, "counter-rows", []);
  await showsStates(page, "counter", []);
  assert.equal(await focused(page), "counter-talks-title", "the focus went to the heading, not away");
  await showsStates(page, "kitchen", ["DI"]);
  const ended = ["1 EndDialog 1 no body", ...FIRST_KITCHEN];
  await showsRows(page, "kitchen-rows", ended);
  await shows(async () => (await rows(page, "archive-rows")).sort(), [...FIRST_COUNTER].sort(), "archive");

  await page.reload();
  await opened(page);
  await showsRows(page, "kitchen-rows", ended);
  await shows(async () => (await rows(page, "archive-rows")).length, 2, "archive");
  assert.match(await onTray(page), /^EndDialog/);
  await choose(page, "end");
  await showsRows(page, "kitchen-rows", []);
  await showsStates(page, "kitchen", []);
  await press(page, "#purge");
  await logged(page, "2 rows deleted from the archive");
  await showsRows(page, "archive-rows", []);
});

onPage("an order in a conversation that the kitchen has ended is refused, and the log says why", async (page) => {
  await press(page, '#kitchen-talks [data-action="end"]');
  await showsStates(page, "counter", ["DI"]);
  await showsRows(page, "kitchen-rows", []);
  const handle = await page.$$eval("#conversation option", (all) => all[1].value);
  await page.select("#conversation", handle);
  await press(page, "#order-form button");
  await logged(page, "InvalidState");
  assert.equal(await page.$eval("#log > li", (entry) => entry.dataset.kind), "refused");
  await showsRows(page, "counter-rows", ["1 EndDialog 1 no body", ...FIRST_COUNTER]);
});

onPage("undo walks the kept rows newest first and ends with an error", async (page) => {
  await order(page, "Apple tart", 4, { conversation: 0 });
  await showsRows(page, "counter-rows", ["3 Order 1 4 × Apple tart", ...FIRST_COUNTER]);
  await press(page, '#counter-talks [data-action="undo"]');
  await logged(page, "newest row first");
  assert.deepEqual(await page.$$eval("#log > li:first-child .steps li", (all) => all.map((step) => step.textContent)), [
    "Order 1: 4 × Apple tart off the bill",
    "Confirmation 0: 2 × Soup no longer expected",
    "Order 0: 2 × Soup off the bill",
  ]);
  await showsRows(page, "counter-rows", []);
  await showsStates(page, "kitchen", ["ER"]);
  await shows(async () => (await rows(page, "kitchen-rows")).filter((row) => row.startsWith("1 Error")).length, 1, "the Error row");
  assert.match(await onTray(page), /^Error: 1: The counter took the orders back/, "the Error comes before the order");
  await choose(page, "end");
  await showsRows(page, "kitchen-rows", []);
});

onPage("a rejected order reaches the counter as an Error", async (page) => {
  await order(page, "Soup", 9);
  await onTray(page);
  await choose(page, "reject");
  await logged(page, "Rejected");
  await showsRows(page, "kitchen-rows", FIRST_KITCHEN);
  await showsStates(page, "counter", ["ER", "CO"]);
  await press(page, "#counter-receive");
  await logged(page, "86: The kitchen can’t make it.");
});

onPage("with retention off a received message is gone; the switch survives a reload", async (page) => {
  await press(page, "#kitchen-retention");
  await logged(page, "KitchenQueue keeps no further messages");
  await page.reload();
  await opened(page);
  assert.equal(await page.$eval("#kitchen-retention", (input) => input.checked), false);
  assert.equal(await page.$eval("#counter-retention", (input) => input.checked), true);
  await order(page, "Coffee", 2);
  await onTray(page);
  await choose(page, "confirm");
  await showsRows(page, "kitchen-rows", FIRST_KITCHEN);
  await showsRows(page, "counter-rows", ["1 Confirmation 0 2 × Coffee, in 10 minutes", "3 Order 0 2 × Coffee", ...FIRST_COUNTER]);
});

onPage("what a message says is text, never HTML", async (page) => {
  const dish = `<img src="/nothing" onerror="document.title='run'"><b>x</b>`;
  await order(page, dish, 1);
  await showsRows(page, "kitchen-rows", [`1 Order 0 1 × ${dish}`, ...FIRST_KITCHEN]);
  assert.equal(await onTray(page).then((what) => what.startsWith(`Order: 1 × ${dish}`)), true);
  await choose(page, "confirm");
  await press(page, "#counter-receive");
  await logged(page, dish);
  assert.equal(await page.$$eval("main img, main b, main script", (all) => all.length), 0);
  assert.match(await page.title(), /counter and a kitchen/);
});

onPage("one order with the keyboard alone", async (page) => {
  const tabTo = async (id, backwards = false) => {
    for (let n = 0; n < 80; n += 1) {
      if (await focused(page) === id) return;
      if (backwards) await page.keyboard.down("Shift");
      await page.keyboard.press("Tab");
      if (backwards) await page.keyboard.up("Shift");
    }
    assert.fail(`Tab never came to ${id}`);
  };
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.className), "skip", "the first stop skips to the counter");
  await page.keyboard.press("Enter");
  await tabTo("dish");
  await page.keyboard.type("Dumplings");
  await tabTo("portions");
  await page.keyboard.type("5");
  await page.keyboard.press("Enter");
  await showsRows(page, "kitchen-rows", ["1 Order 0 5 × Dumplings", ...FIRST_KITCHEN]);
  assert.equal(await focused(page), "portions", "the focus stayed");
  await tabTo("kitchen-receive");
  await page.keyboard.press("Enter");
  await until(page, () => document.activeElement.id === "tray");
  await tabTo("confirm");
  await page.keyboard.press(" ");
  await until(page, () => document.activeElement.id === "kitchen-receive");
  await tabTo("counter-receive", true);
  await page.keyboard.press("Enter");
  await showsRows(page, "counter-rows", ["0 Confirmation 0 5 × Dumplings, in 10 minutes", "3 Order 0 5 × Dumplings", ...FIRST_COUNTER]);
});

onPage("a second tab shows what the first one does, and keeps its own focus and text", async (page, open) => {
  const other = await open();
  await other.focus("#dish");
  await other.keyboard.type(" of the day");
  const text = await other.$eval("#dish", (input) => input.value);
  await order(page, "Coffee", 7);
  await showsRows(other, "kitchen-rows", ["1 Order 0 7 × Coffee", ...FIRST_KITCHEN]);
  assert.equal(await focused(other), "dish");
  await onTray(page);
  // A group has one reader over all tabs: the other tab gets nothing of it.
  await press(other, "#kitchen-receive");
  await logged(other, "Nothing is ready for the kitchen");
  await choose(page, "confirm");
  const answered = ["1 Confirmation 0 7 × Coffee, in 10 minutes", "3 Order 0 7 × Coffee", ...FIRST_COUNTER];
  await showsRows(other, "counter-rows", answered);
  assert.equal(await other.$eval("#dish", (input) => input.value), text);
});

onPage("320 pixels wide: nothing sticks out, and everything can be reached", async (page) => {
  await resize(page, 320, 640);
  const fits = async (when) => assert.deepEqual(await sticksOut(page), [], when);
  await fits("at first");
  await order(page, "x".repeat(120), 99);
  await onTray(page);
  await fits("with an order on the tray");
  await choose(page, "reject");
  await press(page, "#archive-copy");
  await press(page, '#counter-talks [data-action="undo"]');
  await logged(page, "newest row first");
  await fits("with a list of steps in the log and rows in the archive");
});

onPage("start over makes a new database", async (page) => {
  const facts = () => page.$eval("#facts", (element) => element.textContent);
  const old = await facts();
  await order(page, "Coffee", 1);
  const loaded = page.waitForNavigation({ waitUntil: "load" });
  await press(page, "#start-over");
  await loaded;
  await opened(page);
  await logged(page, "The database was empty");
  await showsRows(page, "kitchen-rows", FIRST_KITCHEN);
  assert.notEqual(await facts(), old, "another broker instance");
});

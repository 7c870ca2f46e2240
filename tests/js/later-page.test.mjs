/** The page of delayed delivery, driven as a person would: by the wall clock and by one that jumps; what is broken, and comes back. */
import assert from "node:assert/strict";
import { resize } from "./support/browsers.mjs";
import { isHidden, isVisible, logged, pageTests, press, shows, sticksOut, until } from "./support/on-page.mjs";

const { onPage, opened } = pageTests({ path: "later.html", outcome: "opened" });

// ── what the page shows ──

const names = (page, table) => page.$$eval(`#${table} tbody tr`, (all) => all.map((row) => row.dataset.what));
const showsNames = (page, table, expected) => shows(() => names(page, table), expected, `rows of ${table}`);
const textOf = (page, selector) => page.$eval(selector, (element) => element.textContent);
const showsText = (page, selector, expected) => shows(() => textOf(page, selector), expected, selector);
const countdownOf = (page, what) => textOf(page, `#waiting tr[data-what="${what}"] .countdown`);

// ── what a person does ──

async function schedule(page, text, when, destination = "reminders") {
  await page.evaluate((values) => { for (const [id, value] of Object.entries(values)) document.getElementById(id).value = value; }, { text, when, destination });
  await press(page, "#schedule-form button");
  await logged(page, `“${text}” is stored`);
  await until(page, (text) => document.querySelector(`#waiting tr[data-what="${text}"]`) !== null, text); // what is below no longer moves
}

const ofMessage = (what, action) => `tr[data-what="${what}"] [data-action="${action}"]`;

async function ownClock(page) {
  await press(page, "#own-clock");
  await logged(page, "The clock stands still");
}

async function jump(page, by) {
  await press(page, `#jumps [data-action="${by}"]`);
  await logged(page, "The clock jumped");
}

async function ownStore(page) {
  await press(page, "#own-store");
  await logged(page, "waits in another database");
}

/** What the other database has. */
const elsewhere = (page) => page.evaluate(() => new Promise((resolve, reject) => {
  const request = indexedDB.open("pocket-broker-later-elsewhere");
  request.onerror = () => reject(request.error);
  request.onsuccess = () => {
    const database = request.result;
    database.transaction("messages").objectStore("messages").getAll().onsuccess = ({ target }) => {
      database.close();
      resolve(target.result.map(({ body }) => body));
    };
  };
}));

const hasTriggered = (page, breaker) => until(page, (breaker) => document.querySelector("#log").textContent.includes(`The breaker “${breaker}” has triggered`), breaker);

const triesOf = (page, what) => textOf(page, `#waiting tr[data-what="${what}"] .t-tried`);

const IN_SECONDS = "5000";
const IN_A_MINUTE = "60000";
const IN_AN_HOUR = "3600000";
const IN_A_DAY = "86400000";
const IN_30_DAYS = "2592000000";

// ── tests ──

onPage("a message waits with a countdown, survives a reload, and comes; another tab sees the same", async (page, open) => {
  await schedule(page, "soon", IN_SECONDS, "conversation");
  await schedule(page, "far", IN_30_DAYS);
  await showsNames(page, "waiting", ["soon", "far"]);
  assert.match(await countdownOf(page, "soon"), /^in [1-5] s$/);
  assert.match(await countdownOf(page, "far"), /^in (30 d 0 h|29 d 23 h)$/);
  await page.reload();
  await opened(page);
  const other = await open();
  await showsNames(page, "arrived", ["soon"]);
  await showsNames(page, "waiting", ["far"]);
  await showsNames(other, "arrived", ["soon"]);
  await showsNames(other, "waiting", ["far"]);
  assert.equal(await textOf(other, "#arrived .t-to"), "office");
  await press(page, "#take");
  await logged(page, "1 message received");
  await showsNames(other, "arrived", []);
});

onPage("cancelled is not delivered; rescheduled is delivered then, and earlier wakes", async (page, open) => {
  const other = await open();
  await schedule(page, "a", IN_AN_HOUR);
  await schedule(page, "b", IN_A_DAY);
  await schedule(page, "c", IN_30_DAYS, "conversation");
  await showsNames(other, "waiting", ["a", "b", "c"]);
  await press(other, ofMessage("b", "cancel"));
  await logged(other, "“b” is cancelled");
  await until(other, () => document.activeElement.id === "waiting-title"); // the button has gone: the focus is on the heading, not away
  await showsNames(page, "waiting", ["a", "c"]);
  await schedule(page, "d", IN_AN_HOUR);
  await press(page, ofMessage("a", "hour"));
  await showsNames(page, "waiting", ["d", "a", "c"]);
  assert.equal(await page.evaluate(() => document.activeElement.ariaLabel), "An hour later: a", "the focus has moved with it");
  await press(page, ofMessage("c", "now"));
  await showsNames(other, "arrived", ["c"]);
  await showsNames(other, "waiting", ["d", "a"]);
});

onPage("a clock of one's own stands still and jumps, and every message comes when it is due; the wall clock goes on", async (page) => {
  await schedule(page, "day", IN_A_DAY);
  await ownClock(page);
  const face = await textOf(page, "#clock");
  await schedule(page, "minute", IN_A_MINUTE, "conversation");
  await schedule(page, "hour", IN_AN_HOUR);
  await jump(page, "minute");
  await until(page, (face) => document.querySelector("#clock").textContent !== face, face);
  await showsNames(page, "arrived", ["minute"]);
  await jump(page, "hour");
  await showsNames(page, "arrived", ["hour", "minute"]);
  assert.match(await countdownOf(page, "day"), /^in 22 h/);
  await jump(page, "day");
  await showsNames(page, "arrived", ["day", "hour", "minute"]);
  await schedule(page, "late", IN_SECONDS);
  await press(page, ofMessage("late", "now"));
  await showsNames(page, "arrived", ["late", "day", "hour", "minute"]);
  await press(page, "#own-clock");
  await logged(page, "The wall clock again");
  await until(page, isHidden, "#jumps");
  await press(page, "#take");
  await logged(page, "4 messages received");
});

onPage("without its queue a message is in the error queue with the reason, and returns when the queue is there", async (page, open) => {
  const other = await open();
  await ownClock(page);
  await schedule(page, "unread", IN_A_MINUTE);
  await schedule(page, "lost", IN_AN_HOUR);
  await jump(page, "minute");
  await showsNames(page, "arrived", ["unread"]);
  await press(page, "#reminders-switch");
  await logged(page, "dropped with 1 message that nobody had received");
  await showsText(other, "#reminders-state", "dropped");
  await jump(page, "hour");
  for (const each of [page, other]) await showsNames(each, "failed", ["lost"]);
  assert.match(await textOf(page, "#failed .t-why"), /There is no queue "reminders"/);
  await press(other, ofMessage("lost", "return"));
  await until(other, () => document.querySelector("#log").textContent.includes("still nowhere to go"));
  await page.reload();
  await opened(page);
  await showsText(page, "#reminders-state", "dropped");
  await press(page, "#reminders-switch");
  await showsText(other, "#reminders-state", "there");
  await press(other, ofMessage("lost", "return"));
  await logged(other, "went where it was to go");
  await until(other, () => document.activeElement.id === "failed-title");
  await showsNames(page, "arrived", ["lost"]);
  await showsNames(page, "failed", []);
});

onPage("while the sender's queue is off a message is tried again and again, and then it comes", async (page) => {
  await ownClock(page);
  await schedule(page, "patient", IN_A_MINUTE, "conversation");
  await press(page, "#desk-switch");
  await showsText(page, "#desk-state", "off");
  await jump(page, "minute");
  await until(page, () => document.querySelector("#waiting .t-tried").textContent.includes("tried 1 time"));
  await jump(page, "minute");
  await until(page, () => /tried [5-9] times/.test(document.querySelector("#waiting .t-tried").textContent));
  await press(page, "#desk-switch");
  await showsText(page, "#desk-state", "on");
  await jump(page, "hour");
  await showsNames(page, "arrived", ["patient"]);
});

onPage("a breaker is armed while what is due can't be read, triggers, and is disarmed when it can; a second tab delivers meanwhile", async (page, open) => {
  await showsText(page, "#breaker-fetch", "disarmed");
  await ownClock(page);
  await press(page, "#fetch-switch");
  await showsText(page, "#fetch-state", "fails");
  await schedule(page, "stuck", IN_A_MINUTE);
  await jump(page, "minute");
  await showsText(page, "#breaker-fetch", "armed");
  await jump(page, "minute");
  await showsText(page, "#breaker-fetch", "triggered");
  await until(page, () => document.querySelector("#log").textContent.includes("has triggered"));
  await showsNames(page, "waiting", ["stuck"]);
  const other = await open(); // by the wall clock
  await press(other, ofMessage("stuck", "now"));
  await showsNames(other, "arrived", ["stuck"]);
  await showsNames(page, "arrived", ["stuck"]);
  await press(page, "#fetch-switch");
  await showsText(page, "#fetch-state", "works");
  await jump(page, "minute");
  await showsText(page, "#breaker-fetch", "disarmed");
});

onPage("in a store of one's own messages wait in another database, for all tabs, over reloads", async (page, open) => {
  const other = await open();
  await schedule(page, "here", IN_AN_HOUR);
  await ownStore(page);
  await logged(other, "waits in another database"); // it has heard of it
  await schedule(page, "there", IN_A_DAY, "conversation");
  await schedule(other, "there, too", IN_30_DAYS);
  await shows(() => elsewhere(page), ["there", "there, too"], "what the other database has");
  await page.reload();
  await opened(page);
  assert.equal(await page.$eval("#own-store", (element) => element.checked), true);
  for (const each of [page, other]) await showsNames(each, "waiting", ["here", "there", "there, too"]);
  await press(page, ofMessage("there", "now"));
  for (const each of [page, other]) await showsNames(each, "arrived", ["there"]);
  await press(other, ofMessage("there, too", "cancel"));
  await logged(other, "is cancelled");
  await shows(() => elsewhere(page), [], "what the other database has");
  await press(other, "#own-store");
  await logged(page, "waits in the broker’s own database");
  await schedule(page, "here, too", IN_A_DAY);
  assert.deepEqual(await elsewhere(page), []);
  await showsNames(other, "waiting", ["here", "here, too"]);
});

onPage("what the other database does not take waits here, and what it does not give waits there; the breakers say so", async (page) => {
  await ownStore(page);
  await ownClock(page);
  await schedule(page, "there", IN_A_MINUTE);
  await shows(() => elsewhere(page), ["there"], "what the other database has");
  await press(page, "#store-switch");
  await showsText(page, "#store-state", "fails");
  await schedule(page, "here", IN_A_MINUTE);
  await showsText(page, "#breaker-store", "armed");
  await jump(page, "minute");
  await showsText(page, "#breaker-store", "triggered");
  await jump(page, "minute");
  await showsText(page, "#breaker-fetch", "triggered");
  for (const breaker of ["store", "fetch"]) await hasTriggered(page, breaker);
  await showsNames(page, "waiting", ["there", "here"]);
  await press(page, "#store-switch");
  await showsText(page, "#store-state", "works");
  await jump(page, "minute");
  for (const breaker of ["store", "fetch"]) await showsText(page, `#breaker-${breaker}`, "disarmed");
  await shows(async () => (await names(page, "arrived")).sort(), ["here", "there"], "what arrived");
  assert.deepEqual(await elsewhere(page), []);
});

onPage("what can't be delivered is tried again, then it is in the error queue, and returns when there is room", async (page) => {
  await ownStore(page);
  await ownClock(page);
  await schedule(page, "heavy", IN_A_MINUTE);
  await press(page, "#deliver-switch");
  await showsText(page, "#deliver-state", "fails");
  await jump(page, "minute");
  await shows(() => triesOf(page, "heavy"), "tried 1 time", "how often it was tried");
  await showsText(page, "#breaker-dispatch", "armed");
  await jump(page, "minute");
  await showsNames(page, "failed", ["heavy"]);
  await showsNames(page, "waiting", []);
  await hasTriggered(page, "dispatch");
  assert.match(await textOf(page, "#failed .t-why"), /no more space.*tried 5 times/);
  await press(page, ofMessage("heavy", "return"));
  await logged(page, "QuotaExceeded"); // there is still no room
  await showsNames(page, "failed", ["heavy"]);
  await press(page, "#deliver-switch");
  await showsText(page, "#deliver-state", "works");
  await press(page, ofMessage("heavy", "return"));
  await logged(page, "went where it was to go");
  await showsNames(page, "arrived", ["heavy"]);
  await showsNames(page, "failed", []);
  assert.deepEqual(await elsewhere(page), []);
});

onPage("320 pixels wide nothing sticks out, and Tab comes to everything", async (page) => {
  await resize(page, 320, 640);
  await ownStore(page);
  await ownClock(page);
  await schedule(page, "Water the plants on the balcony, and those in the kitchen", IN_30_DAYS, "conversation");
  await schedule(page, "arrived", IN_A_MINUTE, "conversation");
  await schedule(page, "failed", IN_A_MINUTE);
  await press(page, "#reminders-switch");
  await showsText(page, "#reminders-state", "dropped");
  await jump(page, "minute");
  await showsNames(page, "failed", ["failed"]);
  await showsNames(page, "arrived", ["arrived"]);
  await page.select("#when", "at");
  await until(page, isVisible, "#instant");
  assert.deepEqual(await sticksOut(page), []);
  await page.evaluate(() => { document.activeElement.blur(); document.querySelector(".skip").focus(); });
  const reached = new Set();
  for (let n = 0; n < 60; n += 1) {
    await page.keyboard.press("Tab");
    reached.add(await page.evaluate(() => document.activeElement.id || document.activeElement.dataset.action || ""));
  }
  for (const id of ["text", "destination", "when", "instant", "now", "minute", "hour", "cancel", "own-clock", "day", "take", "reminders-switch", "desk-switch", "own-store", "store-switch", "deliver-switch", "return", "discard", "start-over"]) {
    assert.ok(reached.has(id), `Tab never came to ${id}`);
  }
});

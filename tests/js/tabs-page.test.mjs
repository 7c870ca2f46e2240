/** The page of the tabs, driven as a person would in two of them: shared work, the error queue, a timer, the poison counter. */
import assert from "node:assert/strict";
import { resize } from "./support/browsers.mjs";
import { isHidden, isVisible, logged, pageTests, press, shows, sticksOut, until } from "./support/on-page.mjs";

const { onPage } = pageTests({ path: "tabs.html", outcome: "opened" });

// ── what the page shows ──

const names = (page, table) => page.$$eval(`#${table} tbody tr`, (all) => all.map((row) => row.dataset.what));
const showsNames = (page, table, expected) => shows(() => names(page, table), expected, `rows of ${table}`);
/** The names of the jobs in the queue, once there are so many. */
async function queued(page, count) {
  await shows(async () => (await names(page, "rows")).length, count, "rows of the queue");
  return names(page, "rows");
}
const done = (page) => page.$$eval("#done tbody tr", (all) => all.map((row) => ({ what: row.dataset.what, by: row.dataset.by })));
const nameOf = (page) => page.$eval("#tab", (tab) => tab.textContent);
const rollbacks = (page) => page.$eval("#rollbacks-count", (count) => count.textContent);
const holds = (page, who) => until(page, (who) => document.querySelector(`#groups tr[data-held="${who}"]`) !== null, who);

// ── what a person does ──

async function fill(page, values) {
  await page.evaluate((values) => { for (const [id, value] of Object.entries(values)) document.getElementById(id).value = value; }, values);
}

async function addJobs(page, count, lane = "") {
  await fill(page, { count, lane });
  await press(page, "#jobs-form button");
  await logged(page, "added");
}

/** Starts to work, a job every so many milliseconds. */
async function work(page, { pace = "200", readers = "1" } = {}) {
  await fill(page, { pace, readers });
  await press(page, "#working");
  await until(page, () => document.querySelector("#readers").disabled);
}

async function stop(page) {
  await press(page, "#working");
  await until(page, () => !document.querySelector("#readers").disabled);
}

// ── tests ──

onPage("two tabs share the work: each job is done once, in its lane's order, and each tab sees who holds what", async (page, open) => {
  const other = await open();
  await press(page, "#paused");
  await until(other, () => document.querySelector("#paused").checked);
  await addJobs(page, 2);
  const all = await queued(other, 6);
  await work(page, { pace: "3000" });
  await work(other, { pace: "3000" });
  await press(other, "#paused");
  await holds(other, "other");
  await holds(other, "this");
  for (const each of [page, other]) await fill(each, { pace: "200" });
  for (const each of [page, other]) await until(each, () => document.querySelectorAll("#done tbody tr").length === 6);
  const [left, right] = [await done(page), await done(other)];
  assert.deepEqual(left, right, "both read the same");
  assert.deepEqual(left.map(({ what }) => what).sort(), [...all].sort(), "each once");
  assert.deepEqual([...new Set(left.map(({ by }) => by))].sort(), [await nameOf(page), await nameOf(other)].sort(), "both worked");
  for (const lane of ["Amber", "Birch", "Cedar"]) {
    const ofLane = (list) => list.filter((what) => what.startsWith(lane));
    assert.deepEqual(ofLane(left.map(({ what }) => what)).reverse(), ofLane(all), lane);
  }
  await showsNames(page, "rows", []);
  await stop(other);
  await addJobs(page, 1, "Birch");
  await until(page, () => document.querySelectorAll("#done tbody tr").length === 7);
  assert.equal((await done(page))[0].by, await nameOf(page), "the one that still works");
});

onPage("a tab that is closed in the middle of a job: another does it", async (page, open) => {
  const other = await open();
  await addJobs(page, 1, "Cedar");
  const [job] = await queued(page, 1);
  await work(other, { pace: "3000" });
  await until(other, (job) => document.querySelector("#in-hand").textContent === job, job);
  await work(page);
  await holds(page, "other");
  await other.close();
  await shows(() => done(page), [{ what: job, by: await nameOf(page) }], "done by the one that is left");
});

onPage("a bad job waits while other lanes go on, comes into the error queue, goes back, and is done; another is discarded", async (page, open) => {
  const other = await open();
  await fill(page, { lane: "Amber" });
  await press(page, "#add-bad");
  await logged(page, "bad job");
  const [bad] = await queued(page, 1);
  await addJobs(page, 1, "Amber");
  await addJobs(page, 1, "Birch");
  const [, next, free] = await queued(page, 3);
  await work(page);
  await until(page, () => /^again in/.test(document.querySelector("#rows .t-next").textContent));
  await until(other, (bad) => document.querySelector(`#rows tr[data-what="${bad}"]`)?.innerText.includes("2 failed"), bad);
  assert.match(await page.$eval("#rows .t-why", (why) => why.textContent), /can’t be done by this tab/);
  await until(page, (free) => document.querySelector(`#done tr[data-what="${free}"]`) !== null, free);
  await showsNames(other, "failed", [bad]);
  assert.match(await other.$eval("#failed tbody", (body) => body.innerText), /4 attempts/);
  await until(page, (next) => document.querySelector("#done tbody tr").dataset.what === next, next);

  await press(page, "#fails");
  await queued(other, 0);
  await press(other, '#failed [data-action="return"]');
  await logged(other, "went back");
  await until(other, () => document.activeElement.id === "failed-title"); // the button has gone: the focus is on the heading, not away
  await until(page, (bad) => document.querySelector("#done tbody tr").dataset.what === bad, bad);
  await showsNames(page, "failed", []);

  await press(page, "#fails");
  await press(page, "#add-bad");
  await until(page, () => document.querySelectorAll("#failed tbody tr").length === 1);
  await queued(page, 0);
  await press(page, '#failed [data-action="discard"]');
  await logged(page, "discarded");
  await showsNames(other, "failed", []);
});

onPage("the poison counter climbs over both tabs, switches the queue off, and on it goes again", async (page, open) => {
  const other = await open();
  await press(page, "#fail-once");
  await shows(() => rollbacks(other), "1 of 5", "in the other tab");
  await press(other, "#succeed");
  await shows(() => rollbacks(page), "0 of 5", "a commit sets it back");
  await press(page, "#fail-once");
  await press(page, "#fail-once");
  await shows(() => rollbacks(other), "2 of 5", "twice here");
  for (const count of [3, 4, 5]) {
    await press(other, "#fail-once");
    await shows(() => rollbacks(page), `${count} of 5`, "and there");
  }
  await until(page, isVisible, "#fragile-off");
  await logged(page, "fragile was switched off (poison)");
  await press(page, "#succeed");
  await logged(page, "QueueDisabled");
  await press(other, "#fragile-on");
  await until(page, isHidden, "#fragile-off");
  await shows(() => rollbacks(page), "0 of 5", "on again");
  await press(page, "#succeed");
  await logged(page, "Received and committed");
  await press(page, "#fail-five");
  await until(other, isVisible, "#fragile-off");
});

onPage("a timer's message is handled by the tab that works, whoever set it; a pause holds every tab", async (page, open) => {
  const other = await open();
  await fill(page, { seconds: "1" });
  await press(page, "#set-timer");
  await logged(page, "A timer was set");
  await work(other);
  await shows(() => done(page), [{ what: "Timer of 1 s", by: await nameOf(other) }], "done");
  await press(page, "#paused");
  await logged(page, "Paused in every tab");
  await until(other, () => document.querySelector("#paused").checked);
  await addJobs(page, 1, "Amber");
  await queued(other, 1);
  await press(other, "#paused");
  await until(page, () => document.querySelectorAll("#done tbody tr").length === 2);
  await press(page, "#forget");
  await shows(() => done(other), [], "the list");
});

onPage("320 pixels wide nothing sticks out, and Tab comes to everything", async (page) => {
  await resize(page, 320, 640);
  await addJobs(page, 3);
  await press(page, "#add-bad");
  await queued(page, 10); // shown: what is below no longer moves
  await work(page, { readers: "3" });
  await until(page, () => document.querySelectorAll("#failed tbody tr").length === 1);
  await queued(page, 0);
  await press(page, "#fail-five");
  await until(page, isVisible, "#fragile-off");
  assert.deepEqual(await sticksOut(page), []);
  await page.evaluate(() => { document.activeElement.blur(); document.querySelector(".skip").focus(); });
  const reached = new Set();
  for (let n = 0; n < 60; n += 1) {
    await page.keyboard.press("Tab");
    reached.add(await page.evaluate(() => document.activeElement.id || document.activeElement.dataset.action || ""));
  }
  for (const id of ["lane", "count", "add-bad", "set-timer", "seconds", "working", "paused", "fails", "pace", "forget", "return", "discard", "fragile-on", "fail-once", "succeed", "start-over"]) {
    assert.ok(reached.has(id), `Tab never came to ${id}`);
  }
});

/** The page of the order book, driven as a person would: offline and back, answers that get lost, refusals, a reload in the middle, two tabs. */
import assert from "node:assert/strict";
import { afterEach, beforeEach } from "node:test";
import { resize } from "./support/browsers.mjs";
import { isHidden, isVisible, pageTests, press, shows, sticksOut, until } from "./support/on-page.mjs";
import { orderServer } from "./support/orders.mjs";

/** The server's side: each test has its own. */
let server;
let isGone = false;
beforeEach(() => {
  server = orderServer({ slow: 2_000 });
  isGone = false;
});
afterEach(() => server.close());

function handle(request, response) {
  if (!isGone || !request.url.startsWith("/orders/")) return server.handle(request, response);
  request.socket.destroy();
  return true;
}

// The browser's console tells of every answer that is an error, and of every connection that is cut.
const { onPage, opened } = pageTests({ path: "orders.html", outcome: "opened", handle, allow: ["/orders/"] });

// ── what the page shows ──

const textOf = (page, selector) => page.$eval(selector, (element) => element.textContent);
const nameOf = (page) => textOf(page, "#tab");
/** Orders leave and fail meanwhile, and the log tells of that, too. */
const told = (page, text) => until(page, (text) => document.querySelector("#log").textContent.includes(text), text);
/** "Table 1: 2 × Soup" for each row. */
const names = (page, table) => page.$$eval(`#${table} tbody tr`, (all) => all.map((row) => `${row.dataset.table}: ${row.dataset.what}`));
const showsNames = (page, table, expected) => shows(() => names(page, table), expected, `rows of ${table}`);
const failedNames = (page) => page.$$eval("#failed tbody tr", (all) => all.map((row) => row.dataset.what));
const showsFailed = (page, expected) => shows(() => failedNames(page), expected, "rows of failed");
/** What the server has, the oldest first: how often each was accepted, and its last answer. */
const taken = (page) => page.$$eval("#offered tbody tr", (all) => all.map(({ dataset }) => `${dataset.table}: ${dataset.what}: ${dataset.accepted}, ${dataset.answer}`).reverse());
const showsTaken = (page, expected) => shows(() => taken(page), expected, "what the server has");
const offered = (page) => page.$$eval("#offered tbody tr", (all) => all.map((row) => Number(row.dataset.offered)));
const triedAtLeast = (page, count) => until(page, (count) => Number(document.querySelector("#waiting tbody tr")?.dataset.attempts) >= count, count);

// ── what a person does ──

async function place(page, dish, table = "Table 1", portions = 1) {
  await page.evaluate((values) => { for (const [id, value] of Object.entries(values)) document.getElementById(id).value = value; }, { dish, table, portions: String(portions) });
  await press(page, "#order-form button");
  await told(page, `${portions} × ${dish} for ${table} is stored`);
}

async function network(page, isOn) {
  await press(page, "#network");
  await until(page, (state) => document.documentElement.dataset.network === state, isOn ? "on" : "off");
  await told(page, isOn ? "The network is back" : "The network is cut");
}

async function behave(page, behaviour) {
  await page.bringToFront();
  await page.select("#behaviour", behaviour);
  await told(page, `the server ${await page.$eval("#behaviour", (chosen) => chosen.selectedOptions[0].textContent)}.`);
}

// ── tests ──

onPage("offline orders wait with their reason, over a reload; when the network is back they leave, in each table's order, and each arrives once", async (page) => {
  await network(page, false);
  await place(page, "Soup", "Table 1", 2);
  await place(page, "Coffee", "Table 2");
  await place(page, "Apple tart", "Table 1");
  await shows(async () => (await names(page, "waiting")).sort(), ["Table 1: 1 × Apple tart", "Table 1: 2 × Soup", "Table 2: 1 × Coffee"], "what waits");
  await triedAtLeast(page, 2);
  for (const reason of await page.$$eval("#waiting .t-why", (all) => all.map((why) => why.textContent))) assert.match(reason, /the server can't be reached|before it/);
  await until(page, () => /^in [1-9] s$/.test(document.querySelector("#waiting .countdown").textContent));
  await showsTaken(page, []);
  await until(page, () => /requests were cut off before the server heard of them/.test(document.querySelector("#cut").textContent));
  await page.reload();
  await opened(page);
  await told(page, "3 orders were still waiting");
  assert.equal(await page.$eval("#network", (network) => network.checked), false, "the page knows how the network is");
  assert.equal((await names(page, "waiting")).length, 3);
  await network(page, true);
  await showsNames(page, "waiting", []);
  await until(page, () => document.querySelector("#waiting + .empty").checkVisibility());
  await shows(async () => (await taken(page)).sort(), ["Table 1: 1 × Apple tart: 1, 200", "Table 1: 2 × Soup: 1, 200", "Table 2: 1 × Coffee: 1, 200"], "what the server has");
  const ofTable = (await taken(page)).filter((row) => row.startsWith("Table 1"));
  assert.match(ofTable[0], /Soup/, "each table's in its order");
  assert.match(await textOf(page, "#sum"), /^3 orders, offered \d times, accepted 3 times\.$/);
  await shows(async () => (await names(page, "receipts")).length, 3, "an answer is a message");
  await press(page, "#take");
  await told(page, "3 receipts received");
  await showsNames(page, "receipts", []);
});

onPage("an answer that gets lost: the order is offered again, and is accepted once, with one receipt", async (page) => {
  await behave(page, "loses");
  await place(page, "Dumplings", "Table 3", 4);
  await triedAtLeast(page, 2);
  await showsTaken(page, ["Table 3: 4 × Dumplings: 1, lost"]);
  await until(page, () => Number(document.querySelector("#offered tbody tr").dataset.offered) >= 2);
  await showsNames(page, "waiting", ["Table 3: 4 × Dumplings"]);
  await showsNames(page, "receipts", []);
  await behave(page, "takes");
  await press(page, "#attempt");
  await showsTaken(page, ["Table 3: 4 × Dumplings: 1, 200"]);
  await showsNames(page, "waiting", []);
  await showsNames(page, "receipts", ["Table 3: 4 × Dumplings"]);
  assert.ok((await offered(page))[0] >= 3);
  assert.equal(await textOf(page, "#offered .t-count:nth-of-type(3) .value"), "once");
});

onPage("a busy server says when to come back: the countdown is its, Try now does not wait for it, and then the order leaves by itself", async (page) => {
  await behave(page, "busy");
  await place(page, "Soup");
  await triedAtLeast(page, 1);
  assert.match(await textOf(page, "#waiting .t-why"), /429/);
  assert.match(await textOf(page, "#waiting .countdown"), /^in [345] s$/);
  await press(page, "#attempt");
  await triedAtLeast(page, 2);
  await showsTaken(page, ["Table 1: 1 × Soup: 0, 429"]);
  await behave(page, "takes");
  await showsNames(page, "waiting", []);
  await showsTaken(page, ["Table 1: 1 × Soup: 1, 200"]);
});

onPage("a refused order is in the error queue with the server's text, its conversation goes on, and returned it is sent anew; another is discarded", async (page, open) => {
  const other = await open();
  await behave(page, "refuses");
  await place(page, "Soup");
  await showsFailed(page, ["1 × Soup"]);
  await place(page, "Coffee");
  await showsFailed(other, ["1 × Soup", "1 × Coffee"]);
  assert.match(await textOf(page, "#failed .t-why"), /422.*The kitchen is closed: no Soup today/);
  await behave(page, "takes");
  await place(page, "Dumplings");
  await showsTaken(page, ["Table 1: 1 × Soup: 0, 422", "Table 1: 1 × Coffee: 0, 422", "Table 1: 1 × Dumplings: 1, 200"]);
  await press(other, '#failed tr[data-what="1 × Coffee"] [data-action="discard"]');
  await told(other, "was discarded");
  await showsFailed(page, ["1 × Soup"]);
  await press(other, '#failed [data-action="return"]');
  await showsFailed(page, []);
  await until(other, () => document.activeElement.id === "failed-title"); // the button has gone: the focus is on the heading, not away
  await showsTaken(page, ["Table 1: 1 × Soup: 0, 422", "Table 1: 1 × Coffee: 0, 422", "Table 1: 1 × Dumplings: 1, 200", "Table 1: 1 × Soup: 1, 200"]);
  await showsNames(other, "receipts", ["Table 1: 1 × Soup", "Table 1: 1 × Dumplings"]);
});

onPage("a page that is reloaded while the server is at work asks again, and the order is accepted once", async (page) => {
  await behave(page, "slow");
  await place(page, "Soup", "Table 4", 3);
  await showsTaken(page, ["Table 4: 3 × Soup: 0, at work"]);
  await page.reload();
  await opened(page);
  await showsNames(page, "receipts", ["Table 4: 3 × Soup"]);
  await showsTaken(page, ["Table 4: 3 × Soup: 1, 200"]);
  await showsNames(page, "waiting", []);
  assert.ok((await offered(page))[0] >= 2);
});

onPage("of two tabs one transmits, and both say which; when it is closed the other takes over", async (page, open) => {
  const other = await open();
  const [one, two] = [await nameOf(page), await nameOf(other)];
  await place(page, "Soup");
  await place(other, "Coffee", "Table 2");
  for (const each of [page, other]) {
    await each.bringToFront();
    await showsNames(each, "waiting", []);
    await shows(async () => (await taken(each)).sort(), ["Table 1: 1 × Soup: 1, 200", "Table 2: 1 × Coffee: 1, 200"], "what the server has");
    await shows(async () => (await names(each, "receipts")).sort(), ["Table 1: 1 × Soup", "Table 2: 1 × Coffee"], "receipts");
  }
  const byTab = await other.$$eval("#offered tbody tr", (all) => all.map((row) => row.dataset.tab));
  assert.ok(byTab.every((tab) => tab === one || tab === two), `${byTab}`);
  const says = (each) => each.$eval("#transmitter", (line) => line.textContent.replace(/^.* by /, ""));
  const last = (await says(page)).slice(4, 8);
  assert.ok(last === one || last === two, last);
  const mine = { [one]: page, [two]: other };
  for (const each of [page, other]) await shows(() => says(each), `tab ${last}${mine[last] === each ? ", this one" : ""}.`, "both say the same, and whether it is this one");

  await network(other, false);
  await place(page, "Apple tart", "Table 3");
  await triedAtLeast(page, 1);
  await page.close();
  await network(other, true);
  await showsNames(other, "waiting", []);
  await until(other, (two) => document.querySelector('#offered tr[data-table="Table 3"]')?.dataset.tab === two, two);
  await until(other, (two) => document.querySelector("#transmitter").textContent.endsWith(`by tab ${two}, this one.`), two);
});

onPage("when the server is gone altogether the page says so, and orders wait; starting over empties both sides", async (page) => {
  await place(page, "Soup");
  await showsTaken(page, ["Table 1: 1 × Soup: 1, 200"]);
  isGone = true;
  await until(page, isVisible, "#no-server");
  assert.match(await textOf(page, "#no-server"), /make demo/);
  await place(page, "Coffee");
  await triedAtLeast(page, 1);
  isGone = false;
  await until(page, isHidden, "#no-server");
  await showsNames(page, "waiting", []);
  await showsTaken(page, ["Table 1: 1 × Soup: 1, 200", "Table 1: 1 × Coffee: 1, 200"]);
  await press(page, "#start-over");
  await until(page, () => document.querySelector("#log > li") === null && document.documentElement.dataset.opened === "done")
    .catch((error) => { if (!/context was destroyed|navigat/i.test(error.message)) throw error; });
  await opened(page);
  await showsTaken(page, []);
  await showsNames(page, "receipts", []);
});

onPage("320 pixels wide nothing sticks out, and Tab comes to everything", async (page) => {
  await resize(page, 320, 640);
  await behave(page, "refuses");
  await place(page, "Soup of the day with bread and butter", "Table 4", 99);
  await until(page, () => document.querySelectorAll("#failed tbody tr").length === 1);
  await behave(page, "takes");
  await place(page, "Coffee");
  await until(page, () => document.querySelectorAll("#receipts tbody tr").length === 1);
  await page.focus("#network");
  await page.keyboard.press(" ");
  await told(page, "The network is cut");
  await place(page, "Dumplings filled with everything that there is", "Table 2", 12);
  await triedAtLeast(page, 1);
  assert.deepEqual(await sticksOut(page), []);
  await page.evaluate(() => { document.activeElement.blur(); document.querySelector(".skip").focus(); });
  const reached = new Set();
  for (let n = 0; n < 45; n += 1) {
    await page.keyboard.press("Tab");
    reached.add(await page.evaluate(() => document.activeElement.id || document.activeElement.dataset.action || ""));
  }
  for (const id of ["dish", "portions", "table", "attempt", "take", "network", "behaviour", "return", "discard", "log", "start-over"]) assert.ok(reached.has(id), `Tab never came to ${id}`);
});

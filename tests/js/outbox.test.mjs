/** The outbox of docs/from-workbox.md, as it is shown there: a service worker that stores what can't be sent, and a page that sends it and shows how far it is. */
import assert from "node:assert/strict";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { serveFaulty } from "./fixtures/faulty-server.mjs";
import { address, allowErrors, browserName, newPage, packageDirectory, scripts } from "./fixtures/harness.mjs";
import { proxyTo } from "./fixtures/tcp-proxy.mjs";
import { ROOT } from "./support/paths.mjs";

const TIMEOUT = 90_000;

const folder = await mkdtemp(join(tmpdir(), "pocket-broker-outbox-"));
const server = await serveFaulty({ file: join(folder, "answers.jsonl"), handle: ({ body }) => ({ messageType: "Confirmed", body }) });
const network = await proxyTo(server.url);
after(async () => {
  await network.close();
  await server.close();
  await rm(folder, { recursive: true });
});
allowErrors(network.url);

/** As an application's bundler does it: the package is found by its name. */
async function offer() {
  if (scripts.size > 0) return;
  const { build } = createRequire(join(ROOT, "pkg/"))("esbuild");
  for (const name of ["outbox-worker.js", "outbox-page.js"]) {
    const isWorker = name.includes("worker");
    const { outputFiles } = await build({
      entryPoints: [join(ROOT, "tests/js/fixtures", name)], bundle: true, write: false, logLevel: "error", logOverride: { "empty-import-meta": "silent" },
      // A classic worker, for browsers that know no other. The page's import map has the package.
      ...(isWorker ? { format: "iife", alias: { "pocket-broker": join(packageDirectory, "dist/index.js"), "pocket-broker/http": join(packageDirectory, "dist/http.js"), "pocket-broker/service-worker": join(packageDirectory, "dist/service-worker.js") } } : { format: "esm", external: ["pocket-broker", "pocket-broker/http"] }),
    });
    scripts.set(`/${name}`, outputFiles[0].text);
  }
  scripts.set("/pocket_broker_bg.wasm", { type: "application/wasm", body: await readFile(join(packageDirectory, "wasm/pocket_broker_bg.wasm")) });
}

/** A page that the worker answers for. */
async function openApplication() {
  await offer();
  server.accepted.length = 0;
  const page = await newPage();
  await page.step(async (h) => {
    await navigator.serviceWorker.register("/outbox-worker.js");
    await navigator.serviceWorker.ready;
  });
  await page.reload();
  await page.step(async (h) => {
    await h.until(() => navigator.serviceWorker.controller, "a worker that answers for the page");
    document.body.innerHTML = "<p id=outbox></p>";
    h.state.post = async (url, body) => (await fetch(`${url}/orders`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) })).status;
  });
  return page;
}

const order = (page, body) => page.step((h, _, { url, body }) => h.state.post(url, body), { url: network.url, body });
const shows = (page, text) => page.step((h, _, text) => h.until(() => document.querySelector("#outbox").textContent.includes(text), text, 30_000), text);
const done = () => server.accepted.map(({ body }) => body.n);
/** Nothing is left of it for the next test. */
const forget = async (page) => {
  await page.step(async (h, pb) => {
    for (const registration of await navigator.serviceWorker.getRegistrations()) await registration.unregister();
    await pb.deleteBroker("outbox");
  });
};

test("offline, orders are stored, in order, and the page shows it; online, they are sent, and each is done once", { timeout: TIMEOUT, skip: browserName === "webkit" && "needs puppeteer" }, async () => {
  const page = await openApplication();
  await page.step(() => import("/outbox-page.js"));
  await shows(page, "All sent.");
  assert.equal(await order(page, { n: 0 }), 200, "online, the page gets the server's own answer");
  // This one arrives, and its answer does not: it is sent again under the same key, and not done again.
  server.fault(() => "cut after");
  assert.equal(await order(page, { n: 1 }), 202);
  network.cut();
  for (const n of [2, 3, 4]) assert.equal(await order(page, { n }), 202);
  await shows(page, "4 to be sent.");
  await shows(page, "can't be reached");
  assert.deepEqual(done(), [0, 1]);
  server.fault(() => undefined);
  await network.restore();
  await page.step(() => { dispatchEvent(new Event("online")); });
  await shows(page, "All sent.");
  assert.deepEqual(done(), [0, 1, 2, 3, 4]);
  assert.equal(await order(page, { n: 5 }), 200);
  assert.equal(new Set(server.accepted.map(({ key }) => key)).size, 6);
  await forget(page);
  await page.close();
});

test("the page is closed before the network is back: the browser's sync wakes the worker, which sends what is left", { timeout: TIMEOUT, skip: browserName !== "chromium" && "needs Background Sync" }, async () => {
  const page = await openApplication();
  network.cut();
  for (const n of [0, 1, 2]) assert.equal(await order(page, { n }), 202);
  const session = await page.page.browserContext().newPage().then(async (other) => {
    await other.goto(address("/fixtures/empty.html"));
    return Object.assign(await other.createCDPSession(), { other });
  });
  const origin = new URL(address()).origin;
  const registered = new Promise((resolve) => {
    session.on("ServiceWorker.workerRegistrationUpdated", ({ registrations }) => { for (const { scopeURL, registrationId, isDeleted } of registrations) if (!isDeleted && scopeURL === `${origin}/`) resolve(registrationId); });
  });
  await session.send("ServiceWorker.enable");
  const registrationId = await registered;
  await page.close();
  assert.deepEqual(done(), [], "nothing has been sent");
  await network.restore();
  await session.send("ServiceWorker.dispatchSyncEvent", { origin, registrationId, tag: "outbox", lastChance: false });
  await session.other.close();
  const last = await newPage();
  await last.step(async (h, pb) => {
    const broker = await h.open({}, "outbox");
    await h.until(async () => (await broker.count("requests")) === 0, "the worker to be done", 30_000);
  });
  assert.deepEqual(done(), [0, 1, 2]);
  await last.cleanUp();
  await forget(last);
  await last.close();
});

test("in ten lines, without a worker", { timeout: TIMEOUT }, async () => {
  const code = await readFile(join(ROOT, "tests/js/fixtures/outbox-short.js"), "utf8");
  assert.ok(code.trim().split("\n").length <= 10);
  server.accepted.length = 0;
  server.fault(() => undefined);
  network.cut();
  const page = await newPage();
  await page.step(async (h, pb, { code, url }) => {
    h.afterwards(() => pb.deleteBroker("outbox"));
    const { fetchLater } = await import(URL.createObjectURL(new Blob([code], { type: "text/javascript" })));
    for (const n of [1, 2]) h.match(await fetchLater(`${url}/orders`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ n }) }), /^[0-9a-f-]{36}$/);
    const broker = await h.open({}, "outbox");
    await h.until(async () => (await broker.select("requests").first()).lastError !== null, "an attempt");
  }, { code, url: network.url });
  assert.deepEqual(done(), []);
  await network.restore();
  await page.step(async (h) => {
    dispatchEvent(new Event("online"));
    const broker = await h.open({}, "outbox");
    await h.until(async () => (await broker.count("requests")) === 0, "an empty outbox", 30_000);
  });
  assert.deepEqual(done(), [1, 2]);
  await page.cleanUp();
  await page.close();
});

test("the page about Workbox shows what is tested here", async () => {
  const page = await readFile(join(ROOT, "docs/from-workbox.md"), "utf8");
  const shown = [...page.matchAll(/^```js\n(.*?)^```$/gms)].map(([, code]) => code);
  for (const name of ["outbox-short.js", "outbox-worker.js", "outbox-page.js"]) assert.ok(shown.includes(await readFile(join(ROOT, "tests/js/fixtures", name), "utf8")), `docs/from-workbox.md does not show ${name} as it is`);
});

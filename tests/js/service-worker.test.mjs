/**
 * Service workers that send what pages have left, as docs/service-worker.md shows them: a module and a classic one. Chromium's get their `sync` events from the devtools protocol, and are
 * ended by it; Firefox has no Background Sync, and its workers are woken by a page. The network is a proxy: what a browser calls offline misses workers.
 */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";
import { serveFaulty } from "./fixtures/faulty-server.mjs";
import { allowErrors, browserName, newPage, packageDirectory, scripts } from "./fixtures/harness.mjs";
import { proxyTo } from "./fixtures/tcp-proxy.mjs";
import { controlWorker } from "./fixtures/worker-control.mjs";
import { ROOT } from "./support/paths.mjs";

const TIMEOUT = 120_000;
const FIXTURES = join(ROOT, "tests/js/fixtures");
const WASM = "/pocket_broker_bg.wasm?0.1.0";

const folder = await mkdtemp(join(tmpdir(), "pocket-broker-worker-"));
/** Sees each message before it is accepted. */
let arriving = async () => {};
const server = await serveFaulty({ file: join(folder, "answers.jsonl"), handle: async (message) => { await arriving(message); return { messageType: "Confirmed", body: message.body }; } });
const network = await proxyTo(server.url);
after(async () => {
  await network.close();
  await server.close();
  await rm(folder, { recursive: true });
});
allowErrors(network.url);

const fixture = (name) => readFile(join(FIXTURES, name), "utf8");

/** Makes the application's scripts, for a database of this name. `more`: what the worker has beside what is on the page of the documentation. */
async function offer(database, type, more = "") {
  const { build } = createRequire(join(ROOT, "pkg/"))("esbuild");
  const packages = { "pocket-broker": "index.js", "pocket-broker/http": "http.js", "pocket-broker/service-worker": "service-worker.js" };
  const ours = (text) => text.replaceAll('"shop"', `"${database}"`).replaceAll("https://bank.example", network.url);
  const bundle = async (contents, options) => {
    const { outputFiles } = await build({
      stdin: { contents: contents.replace("./shop.js", "./sync-shop.js"), resolveDir: FIXTURES }, bundle: true, write: false, format: "esm", target: "es2022", logLevel: "error", ...options,
    });
    return ours(outputFiles[0].text);
  };
  const alias = Object.fromEntries(Object.entries(packages).map(([name, file]) => [name, join(packageDirectory, "dist", file)]));
  scripts.set("/sw.js", type === "module" ? await bundle(`${await fixture("sync-module.js")}${more}`, { alias }) : ours(`${await fixture("sync-classic.js")}${more}`));
  scripts.set("/page.js", await bundle(await fixture("sync-page.js"), { external: Object.keys(packages) }));
  scripts.set("/pocket-broker/classic.js", await readFile(join(packageDirectory, "dist/classic.js"), "utf8"));
  scripts.set(WASM, { type: "application/wasm", body: await readFile(join(packageDirectory, "wasm/pocket_broker_bg.wasm")) });
}

/** Registers the worker, and waits until it is there. */
const register = (page, type) => page.step(async (h, _, type) => {
  await navigator.serviceWorker.register("/sw.js", { type });
  h.state.registration = await navigator.serviceWorker.ready;
}, type);

/** The broker as a page has it that transmits nothing: it has no route. */
const openIdle = (page, database) => page.step(async (h, pb, database) => {
  h.state.broker = await h.open({ definitions: {
    messageTypes: { Order: "json", Confirmed: "json" }, contracts: { Ordering: { Order: "initiator", Confirmed: "target" } },
    queues: { counter: {}, requests: {} }, services: { Counter: { queue: "counter" } } } }, database);
}, database);

/** Orders in conversations of their own, and requests. Gives the bodies that the server is to get, and by conversation. */
const fill = (page, { conversations = 3, orders = 5, requests = 0 } = {}) => page.step(async (h, _, { conversations, orders, requests, url }) => {
  const { toStoredRequest } = await import("pocket-broker/http");
  const all = {};
  for (let at = 0; at < conversations; at += 1) {
    const conversation = await h.state.broker.beginDialog({ from: "Counter", to: "Bank", contract: "Ordering" });
    all[conversation.conversationId] = Array.from({ length: orders }, (_, n) => ({ at, n }));
    await conversation.sendMany(all[conversation.conversationId].map((body) => ({ messageType: "Order", body })));
  }
  for (let n = 0; n < requests; n += 1) {
    const request = new Request(`${url}/requests`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ request: n }) });
    await h.state.broker.enqueue("requests", await toStoredRequest(request));
  }
  return all;
}, { conversations, orders, requests, url: network.url });

/** Until nothing waits any more. */
const empty = (page) => page.step(async (h) => {
  const { broker } = h.state;
  await h.until(async () => (await broker.stats()).transmissionQueued === 0 && (await broker.count("requests")) === 0, "an empty outbox", 60_000);
});

/** Each once, and in the order of its conversation. */
function delivered(all, requests = 0) {
  const accepted = server.accepted.splice(0);
  assert.equal(new Set(accepted.map(({ key }) => key)).size, accepted.length, "nothing is done twice");
  for (const [id, bodies] of Object.entries(all)) assert.deepEqual(accepted.filter(({ conversationId }) => conversationId === id).map(({ body }) => body), bodies);
  assert.deepEqual(accepted.filter(({ body }) => body.request !== undefined).map(({ body }) => body.request), Array.from({ length: requests }, (_, n) => n));
  assert.equal(accepted.length, Object.values(all).flat().length + requests);
}

/** A test with a database and a worker of its own. */
function withWorker(title, types, body, { only = undefined } = {}) {
  for (const type of types) {
    const skip = browserName === "webkit" ? "needs puppeteer" : only !== undefined && only !== browserName && "needs Background Sync";
    test(`${title} (${type} worker)`, { timeout: TIMEOUT, skip }, async (context) => {
      const database = `shop-${crypto.randomUUID()}`;
      server.accepted.length = 0;
      server.arrivals.length = 0;
      arriving = async () => {};
      await network.restore();
      const pages = [];
      const open = async () => { const page = await newPage(); pages.push(page); return page; };
      try {
        await body({ database, type, open, context });
      } finally {
        const last = await newPage();
        await last.step(async (h, pb, database) => {
          for (const registration of await navigator.serviceWorker.getRegistrations()) await registration.unregister();
          for (const name of await caches.keys()) await caches.delete(name);
          h.forget(database);
        }, database);
        for (const page of pages) if (!page.page.isClosed()) await page.cleanUp();
        for (const page of pages) await page.close();
        await last.cleanUp();
        await last.close();
      }
    });
  }
}

withWorker("a page queues messages offline and is closed; when the network is back, the worker's sync delivers them", ["module", "classic"], async ({ database, type, open }) => {
  await offer(database, type);
  const page = await open();
  await register(page, type);
  // The worker has it in its cache.
  scripts.delete(WASM);
  network.cut();
  await openIdle(page, database);
  await page.step(async (h) => {
    const { registerBackgroundSync } = await import("pocket-broker/service-worker");
    registerBackgroundSync(h.state.registration, h.state.broker, { queues: ["requests"] });
  });
  const all = await fill(page, { conversations: 4, orders: 5, requests: 3 });
  await page.step((h) => h.until(async () => (await h.state.registration.sync.getTags()).includes("pocket-broker"), "a registration"));
  const worker = await controlWorker(page.page.browser());
  await page.close();
  assert.deepEqual(server.accepted, [], "nothing has been sent");
  await network.restore();
  await worker.sync();
  const last = await open();
  await openIdle(last, database);
  await empty(last);
  delivered(all, 3);
  const replies = await last.step(async (h) => (await h.state.broker.select("counter").toArray()).length);
  assert.equal(replies, 20, "the answers are there for the next page");
  await worker.close();
}, { only: "chromium" });

withWorker("a worker that is ended in the middle loses nothing and doubles nothing", ["module", "classic"], async ({ database, type, open }) => {
  await offer(database, type);
  const page = await open();
  await register(page, type);
  await openIdle(page, database);
  const all = await fill(page, { conversations: 2, orders: 15, requests: 10 });
  const worker = await controlWorker(page.page.browser());
  await page.close();
  const ended = [];
  for (let life = 0; life < 3; life += 1) {
    let arrived = 0;
    // What comes from here on is accepted, and its answers reach nobody.
    const gone = new Promise((resolve, reject) => {
      arriving = ({ key }) => {
        arrived += 1;
        if (arrived < 4) return undefined;
        ended.push(key);
        if (arrived === 4) worker.stop().then(resolve, reject);
        return gone;
      };
    });
    await worker.sync();
    await gone;
  }
  arriving = async () => {};
  await worker.sync();
  const last = await open();
  await openIdle(last, database);
  await empty(last);
  const repeats = ended.filter((key) => server.arrivals.filter((arrival) => arrival.key === key).length > 1);
  delivered(all, 10);
  assert.ok(ended.length >= 3);
  assert.deepEqual(repeats, ended, "what had no answer came again, by the same key");
  await worker.close();
}, { only: "chromium" });

const holds = "navigator.locks.query().then(({ held }) => held.some(({ name }) => name.endsWith('role:route:Bank')))";
const waits = "navigator.locks.query().then(({ pending }) => pending.some(({ name }) => name.endsWith('role:route:Bank')))";

/** The first message is not answered until the given function is called. */
function hold() {
  let release;
  const held = new Promise((resolve) => { release = resolve; });
  const arrived = new Promise((resolve) => { arriving = () => { resolve(); return held; }; });
  return { arrived, release };
}

withWorker("page and worker share a broker: while the page transmits the worker waits, and it goes on when the page is closed", ["module"], async ({ database, type, open }) => {
  await offer(database, type);
  const page = await open();
  await register(page, type);
  const { arrived, release } = hold();
  await page.step(async (h) => { h.state.broker = (await import("/page.js")).broker; });
  const worker = await controlWorker(page.page.browser());
  // A page that is hidden would hand over to the worker.
  await page.page.bringToFront();
  const all = await fill(page, { conversations: 1, orders: 4 });
  await arrived;
  await worker.sync();
  await page.page.waitForFunction(waits);
  assert.equal(server.arrivals.length, 1, "the worker has not sent what the page is sending");
  await page.close();
  release();
  const last = await open();
  await openIdle(last, database);
  await empty(last);
  delivered(all);
  await worker.close();
}, { only: "chromium" });

withWorker("while the worker transmits a page waits, and it goes on when the worker is ended", ["module"], async ({ database, type, open }) => {
  await offer(database, type);
  const page = await open();
  await register(page, type);
  await openIdle(page, database);
  const all = await fill(page, { conversations: 1, orders: 4 });
  const worker = await controlWorker(page.page.browser());
  const { arrived, release } = hold();
  await worker.sync();
  await arrived;
  const other = await open();
  assert.ok(await other.page.evaluate(holds), "the worker has the lock");
  await other.step(() => import("/page.js"));
  await other.page.waitForFunction(waits);
  assert.equal(server.arrivals.length, 1, "the page has not sent what the worker is sending");
  await worker.stop();
  release();
  await empty(page);
  delivered(all);
  await worker.close();
}, { only: "chromium" });

withWorker("whatever else wakes a worker, it transmits and drains by hand: in browsers without Background Sync, too", ["module", "classic"], async ({ database, type, open, context }) => {
  const push = await fixture("sync-push.js");
  await offer(database, type, push.replace('"push"', '"message"'));
  const page = await open();
  const [, version] = /(\d+)/.exec(await page.page.browser().version());
  if (type === "module" && browserName === "firefox" && version < 147) return context.skip(`Firefox ${version} has no module service workers`);
  await register(page, type);
  scripts.delete(WASM);
  await openIdle(page, database);
  await page.step(async (h) => {
    const { registerBackgroundSync } = await import("pocket-broker/service-worker");
    registerBackgroundSync(h.state.registration, h.state.broker, { queues: ["requests"] })();
  });
  const all = await fill(page, { conversations: 2, orders: 3, requests: 2 });
  await page.step((h) => { h.state.registration.active.postMessage("go"); });
  await empty(page);
  return delivered(all, 2);
});

test("a classic worker finds the wasm beside its own script, unless it is told where it is", { timeout: TIMEOUT, skip: browserName === "webkit" && "needs puppeteer" }, async () => {
  await offer("shop", "classic");
  scripts.set("/below/sw.js", `
    importScripts("/pocket-broker/classic.js");
    addEventListener("message", ({ data, ports: [port] }) => {
      PocketBroker.openBroker(data.name, data.options).then(async (broker) => { await broker.close(); port.postMessage(broker.instanceId); }, (error) => port.postMessage(error.message));
    });`);
  const page = await newPage();
  await page.step(async (h) => {
    const registration = await navigator.serviceWorker.register("/below/sw.js");
    h.afterwards(() => registration.unregister());
    await h.until(() => registration.active?.state === "activated");
    h.state.open = (options) => new Promise((resolve) => {
      const { port1, port2 } = new MessageChannel();
      const name = h.name();
      h.forget(name);
      port1.onmessage = ({ data }) => resolve(data);
      registration.active.postMessage({ name, options }, [port2]);
    });
  });
  assert.match(await page.step((h) => h.state.open()), /could not be loaded from http:.*\/below\/pocket_broker_bg\.wasm: got 404/);
  scripts.set("/below/pocket_broker_bg.wasm", scripts.get(WASM));
  assert.match(await page.step((h) => h.state.open()), /^[0-9a-f-]{36}$/);
  await page.cleanUp();
  await page.close();
});

test("both entries are loaded without touching a global, so that a server may do it", async () => {
  const globals = ["indexedDB", "IDBKeyRange", "window", "self", "document", "navigator", "location", "fetch", "BroadcastChannel", "caches", "clients", "registration", "crypto", "addEventListener", "importScripts"];
  const run = async (load) => {
    const script = `
      import { readFileSync } from "node:fs";
      import { runInThisContext } from "node:vm";
      const text = readFileSync(${JSON.stringify(join(packageDirectory, "dist/classic.js"))}, "utf8");
      const touched = [];
      for (const name of ${JSON.stringify(globals)}) Object.defineProperty(globalThis, name, { configurable: true, get() { touched.push(name); return undefined; } });
      const entry = ${load};
      console.log(JSON.stringify({ touched: touched.splice(0), names: Object.keys(entry).sort(), end: typeof entry.handleSync(() => {}) }));`;
    return JSON.parse((await promisify(execFile)(process.execPath, ["--input-type=module", "-e", script])).stdout);
  };
  const url = (name) => JSON.stringify(pathToFileURL(join(packageDirectory, "dist", name)).href);
  assert.deepEqual(await run(`await import(${url("service-worker.js")})`), { touched: [], names: ["handleSync", "registerBackgroundSync"], end: "function" });
  const classic = await run("(runInThisContext(text), PocketBroker)");
  const { names } = await run(`({ ...await import(${url("index.js")}), ...await import(${url("http.js")}), ...await import(${url("service-worker.js")}) })`);
  assert.deepEqual(classic, { touched: [], names, end: "function" });
});

test("the page about service workers shows what is tested here", async () => {
  const page = await readFile(join(ROOT, "docs/service-worker.md"), "utf8");
  const shown = [...page.matchAll(/^```js\n(.*?)^```$/gms)].map(([, code]) => code);
  for (const name of ["sync-shop.js", "sync-module.js", "sync-classic.js", "sync-page.js", "sync-push.js"]) assert.ok(shown.includes(await fixture(name)), `docs/service-worker.md does not show ${name} as it is`);
});

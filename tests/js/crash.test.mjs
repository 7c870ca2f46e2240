/**
 * Tabs that die over their messages. In Chromium the devtools protocol crashes a page. Firefox has nothing of the kind: there the process
 * of the page is killed, by the id that it was seen to have when the page was opened.
 */
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { crash, discard, isAlive, openTab } from "./fixtures/crashing.mjs";
import { browserName, newPage, packageDirectory, scripts } from "./fixtures/harness.mjs";
import { ROOT } from "./support/paths.mjs";

const openShop = async (h, _, { name }) => { h.state.broker = await h.open({ definitions: h.shop() }, name); };

test("a page that crashes lets go of its groups: the lock wakes the reader that waits, not its poll (D21)", { timeout: 60_000 }, async () => {
  const name = `crash-${crypto.randomUUID()}`;
  const home = await newPage();
  await home.step(async (h, _, name) => {
    h.state.log = [];
    h.patch(LockManager.prototype, "request", (original) => function (lock, options, work) {
      return original.call(this, lock, options, (held) => {
        h.state.log.push(`${options.ifAvailable ? "tried" : "waited for"} ${lock.split(":").at(-1)}: ${held ? "granted" : "held elsewhere"}`);
        return work(held);
      });
    });
    const sleep = (ms, signal) => new Promise((resolve) => {
      const timer = setTimeout(() => { h.state.log.push(`slept ${ms} ms`); resolve(); }, 3_600_000);
      signal.addEventListener("abort", () => clearTimeout(timer));
    });
    h.state.broker = await h.open({ definitions: h.shop(), clock: { now: () => Date.now(), sleep } }, name);
    await h.order(h.state.broker, 1);
  }, name);
  const doomed = await openTab();
  const group = await doomed.step(async (h, pb, name) => {
    const broker = await pb.openBroker(name);
    return new Promise((resolve, reject) => {
      broker.transaction(async (tx) => {
        const [message] = await tx.receive("kitchen");
        await tx.send(message, "Confirm", "never");
        resolve(message.conversationGroupId);
        await new Promise(() => {});
      }).catch(reject);
    });
  }, name);
  const waiting = home.step(async (h) => {
    const [message] = await h.state.broker.receive("kitchen", { timeout: Infinity });
    return { at: Date.now(), log: h.state.log, group: message.conversationGroupId, answers: await h.state.broker.count("counter") };
  });
  await doomed.page.waitForFunction(`navigator.locks.query().then(({ pending }) => pending.some(({ name }) => name.endsWith("${group}")))`);
  const begun = Date.now();
  await crash(doomed);
  const seen = await waiting;
  console.log(`# the waiting reader had the messages ${seen.at - begun} ms after the crash was asked for`);
  assert.equal(seen.group, group);
  assert.ok(seen.log.includes(`waited for ${group}: granted`), seen.log.join(", "));
  assert.ok(!seen.log.some((entry) => entry.startsWith("slept")), seen.log.join(", "));
  assert.equal(seen.answers, 0, "what the page did never happened");
  assert.ok(seen.at - begun < 10_000);
  await home.cleanUp();
  await discard(doomed);
  await home.close();
});

const CONVERSATIONS = 50;
const MESSAGES = 40;
const TABS = 4;
const READERS = 4;
const CRASHES = 10;

/** Handles messages as long as the page lives: the answer commits with the message. `holds`: never comes to the commit. */
const serve = async (h, pb, { name, by, holds, readers }) => {
  h.state.held = 0;
  const broker = await pb.openBroker(name);
  broker.activate("kitchen", async ([message], tx) => {
    await tx.send(message, "Confirm", { for: message.body.n, by });
    if (holds) {
      h.state.held += 1;
      await new Promise(() => {});
    }
    await new Promise((resolve) => { setTimeout(resolve); });
  }, { maxReaders: readers });
};

/** The package is ESM: where there are no module service workers (Firefox before 147) a classic one is bundled. */
async function offerWorker() {
  const { build } = createRequire(join(ROOT, "pkg/"))("esbuild");
  const source = await readFile(new URL("fixtures/service-worker.mjs", import.meta.url), "utf8");
  const { outputFiles } = await build({
    stdin: { contents: source.replace("/pkg/", "./"), resolveDir: packageDirectory },
    bundle: true, format: "iife", write: false, logLevel: "error", logOverride: { "empty-import-meta": "silent" },
  });
  scripts.set("/fixtures/service-worker.classic.js", outputFiles[0].text);
}

/** Starts the service worker, and wakes it again and again. */
const startWorker = async (h, _, { name }) => {
  const register = (script, type) => navigator.serviceWorker.register(script, { type });
  const registration = await register("/fixtures/service-worker.mjs", "module").catch(() => register("/fixtures/service-worker.classic.js", "classic"));
  await h.until(() => registration.active, "an active service worker");
  const wake = () => registration.active.postMessage(name);
  const timer = setInterval(wake, 500);
  wake();
  h.afterwards(async () => {
    clearInterval(timer);
    registration.active.postMessage("");
    await registration.unregister();
  });
  return registration.active.scriptURL;
};

/** `Map.groupBy`, which Node.js 20 lacks. */
function groupBy(list, field) {
  const groups = new Map();
  for (const each of list) groups.set(each[field], [...groups.get(each[field]) ?? [], each]);
  return groups;
}

test("with a page crashing every second, pages and a service worker lose nothing, do nothing twice, and keep the order (D21)", { timeout: 280_000 }, async () => {
  const name = `crash-${crypto.randomUUID()}`;
  await offerWorker();
  const home = await newPage();
  await home.step(openShop, { name });
  await home.step(async (h, _, [conversations, messages]) => {
    for (let each = 0; each < conversations; each += 1) await h.order(h.state.broker, messages);
  }, [CONVERSATIONS, MESSAGES]);
  const ready = () => home.step((h) => h.state.broker.count("kitchen", { status: 1 }));

  let opened = 0;
  const tabs = [];
  const openReader = async (holds) => {
    opened += 1;
    const tab = await openTab();
    await tab.step(serve, { name, by: `page ${opened}`, holds, readers: READERS });
    tabs.push(tab);
    return tab;
  };
  // The first page is sure to die over messages: it has them and never comes to the end of them.
  const first = await openReader(true);
  await first.step((h, _, readers) => h.until(() => h.state.held === readers), READERS);
  const script = await home.step(startWorker, { name });
  // Nobody else can have answered yet.
  await home.step((h) => h.until(async () => (await h.state.broker.count("counter")) > 0, "an answer of the service worker", 60_000));
  while (tabs.length < TABS) await openReader(false);

  let crashes = 0;
  for (; crashes < CRASHES && await ready() > 0; crashes += 1) {
    await pause(1_000); // That is the pace of the crashes; nothing is waited for.
    await crash(tabs[0]);
    for (const tab of tabs.splice(0)) {
      if (await isAlive(tab)) tabs.push(tab);
      else await discard(tab);
    }
    assert.ok(tabs.length < TABS);
    while (tabs.length < TABS) await openReader(false);
  }
  const left = await ready();
  assert.ok(crashes > 0);
  await home.step((h) => h.until(async () => (await h.state.broker.count("kitchen", { status: 1 })) === 0, "an empty queue", 200_000));

  const answers = await home.step(async (h) => (await h.state.broker.select("counter").toArray()).map(({ conversationHandle, messageSequenceNumber, body }) => ({ conversationHandle, messageSequenceNumber, ...body })));
  const orders = groupBy(answers, "conversationHandle");
  const readers = groupBy(answers, "by");
  const isWorker = (by) => by.startsWith("worker");
  console.log(`# ${crashes} crashes, ${left} messages left after the last; ${new URL(script).pathname} lived ${[...readers.keys()].filter(isWorker).length} times; ${[...readers].map(([by, own]) => `${isWorker(by) ? "worker" : by}: ${own.length}`).join(", ")}`);
  assert.equal(orders.size, CONVERSATIONS);
  for (const own of orders.values()) {
    own.sort((one, other) => one.messageSequenceNumber - other.messageSequenceNumber);
    assert.deepEqual(own.map((answer) => answer.for), Array.from({ length: MESSAGES }, (_, n) => n), "each once, in order");
  }
  assert.ok(!readers.has("page 1"), "what was not committed never happened");
  assert.ok([...readers.keys()].some(isWorker));
  const off = await home.step(async (h) => (await h.state.broker.queues()).filter(({ isReceiveEnabled }) => !isReceiveEnabled).map((queue) => queue.name));
  assert.deepEqual(off, [], "no queue is off");
  assert.equal(await home.step((h) => h.state.broker.count("error")), 0, "no message has failed");
  await home.cleanUp();
  for (const tab of tabs) await tab.close();
  await home.close();
});

/** Delayed messages in stores of an application's own, those of docs/custom-delayed-message-store.md: pages that die, and pages that are closed before a message is due. */
import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { crash, discard, openTab } from "./fixtures/crashing.mjs";
import { serveDelayedMessages } from "./fixtures/delayed-store-server.mjs";
import { newPage } from "./fixtures/harness.mjs";

const MESSAGES = 300;

const folder = await mkdtemp(join(tmpdir(), "pocket-broker-delayed-"));
const server = await serveDelayedMessages({ file: join(folder, "messages.jsonl"), origin: "*" });
after(async () => {
  await server.close();
  await rm(folder, { recursive: true });
});

/** Opens a broker whose delayed messages lie in a database of their own. `ahead`: of the store's clock, as if so long had passed for who holds something. */
const openStored = async (h, pb, { name, ahead = 0 }) => {
  const { indexedDbStore } = await import("/fixtures/indexed-db-store.mjs");
  const database = `${name}-delayed`;
  if (ahead > 0) h.forget(database);
  h.state.store = indexedDbStore(database, { now: () => Date.now() + ahead });
  h.state.broker = await h.open({ definitions: h.shop(), delayedDelivery: { store: h.state.store } }, name);
};

test("two tabs share a store: one is killed while it delivers, and the other delivers the rest, each message once", { timeout: 120_000 }, async () => {
  const name = `delayed-elsewhere-${crypto.randomUUID()}`;
  const doomed = await openTab();
  await doomed.step(openStored, { name });
  const home = await newPage();
  await home.step(openStored, { name, ahead: 60_001 });
  const ids = await doomed.step(async (h, _, total) => {
    const { broker } = h.state;
    const timed = await broker.enqueueMany("kitchen", Array.from({ length: total }, (_, n) => ({ n, at: new Date(n), tags: new Set([n]) })), { delay: 1 });
    const conversation = await h.dialog(broker);
    return [...timed, await conversation.send("Order", "on a conversation", { delay: 1 })];
  }, MESSAGES);
  const sent = () => home.step((h) => h.state.broker.count("kitchen", { status: 1 }));
  while ((await sent()) === 0);
  await crash(doomed);
  const before = await sent();
  await discard(doomed);
  console.log(`# delivered when the page was dead: ${before} of ${MESSAGES + 1}`);
  const bodies = await home.step(async (h, _, ids) => {
    const { broker, store } = h.state;
    await h.until(async () => (await broker.count("kitchen", { status: 1 })) === ids.length, "all of them", 60_000);
    await h.until(async () => (await store.count(new AbortController().signal)) === 0, "the store is empty");
    const seen = [];
    for (let rows = await broker.receive("kitchen", { top: 1_000 }); rows.length > 0; rows = await broker.receive("kitchen", { top: 1_000 })) seen.push(...rows);
    h.equal(seen.map(({ messageId }) => messageId).sort(), [...ids].sort(), "each once, with the ids that they were given");
    h.equal([await broker.delayed.count(), await broker.delayed.next()], [0, null]);
    const orders = seen.filter(({ body }) => typeof body === "object").map(({ body }) => body).sort((one, other) => one.n - other.n);
    h.equal(orders, orders.map((_, n) => ({ n, at: new Date(n), tags: new Set([n]) })));
    return orders.length;
  }, ids);
  assert.equal(bodies, MESSAGES);
  await home.cleanUp();
  await home.close();
});

/** Opens a broker whose delayed messages lie on the server, at an instant that stands still. */
const openServed = async (h, pb, { name, url, now }) => {
  const { httpStore } = await import("/fixtures/http-store.mjs");
  h.state.now = now;
  h.state.store = httpStore(url);
  h.state.broker = await h.open({ definitions: h.shop(), clock: { now: () => h.state.now }, delayedDelivery: { store: h.state.store } }, name);
};

test("a server has the message when the page is closed before it is due, and a page that is opened later gets it", { timeout: 60_000 }, async () => {
  const name = `delayed-served-${crypto.randomUUID()}`;
  const now = Date.UTC(2027, 0, 1);
  const first = await newPage();
  await first.step(openServed, { name, url: server.url, now });
  const id = await first.step(async (h) => {
    const { broker, store } = h.state;
    const id = await broker.enqueue("kitchen", new Map([["photo", new Uint8Array([1, 2, 3])]]), { delay: 3_600_000, key: "guest 7", priority: 8, headers: { trace: "t1" } });
    await h.until(async () => (await store.count(new AbortController().signal)) === 1, "the server has it");
    return id;
  });
  await first.close();
  const second = await newPage();
  await second.step(openServed, { name, url: server.url, now: now + 3_599_999 });
  await second.step(async (h, _, { id, name }) => {
    const { broker, store } = h.state;
    h.forget(name);
    h.equal([await broker.poll(), await broker.count("kitchen"), await broker.delayed.count(), await broker.delayed.next()], [0, 0, 1, new Date(Date.UTC(2027, 0, 1, 1))], "not before its time");
    h.equal((await broker.delayed.select().toArray()).map(({ messageId }) => messageId), [id]);
    h.state.now += 1;
    await broker.poll();
    const [message, ...more] = await broker.receive("kitchen");
    h.equal([message.messageId, message.body, message.key, message.priority, message.headers, more.length], [id, new Map([["photo", new Uint8Array([1, 2, 3])]]), "guest 7", 8, { trace: "t1" }, 0]);
    await h.until(async () => (await store.count(new AbortController().signal)) === 0, "the server has forgotten it");
  }, { id, name });
  await second.cleanUp();
  await second.close();
});

test("what is sent while the server can't be reached waits in the broker's database, and goes to the server when it can", { timeout: 60_000 }, async () => {
  const name = `delayed-offline-${crypto.randomUUID()}`;
  const page = await newPage();
  await page.step(async (h, _, url) => {
    h.state.isOffline = true;
    const { fetch } = globalThis;
    globalThis.fetch = (...given) => (h.state.isOffline && String(given[0]).startsWith(url) ? Promise.reject(new TypeError("Failed to fetch")) : fetch(...given));
    h.state.restore = () => { globalThis.fetch = fetch; };
  }, server.url);
  await page.step(openServed, { name, url: server.url, now: Date.UTC(2027, 0, 1) });
  await page.step(async (h, _, name) => {
    const { broker, store, restore } = h.state;
    h.forget(name);
    h.afterwards(restore);
    const ids = [await broker.enqueue("kitchen", "kept", { delay: 1_000 }), await broker.enqueue("kitchen", "cancelled", { delay: 1_000 })];
    h.equal([await broker.poll().catch(({ code }) => code), await broker.delayed.cancel(ids[1])], ["DelayedStoreFailed", true]);
    h.state.isOffline = false;
    await broker.poll();
    h.equal((await store.select({}, new AbortController().signal)).map(({ messageId }) => messageId), [ids[0]]);
    h.state.now += 1_000;
    await broker.poll();
    h.equal(h.bodies(await broker.receive("kitchen")), ["kept"]);
    h.equal(await store.count(new AbortController().signal), 0);
  }, name);
  await page.cleanUp();
  await page.close();
});

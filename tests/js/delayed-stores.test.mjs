/** Delayed message stores of an application's own: the kit that checks them, and the two worked ones of docs/custom-delayed-message-store.md. */
import assert from "node:assert/strict";
import { appendFile, mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { pathToFileURL } from "node:url";
import { BROKEN, makeWorld, MemoryStore } from "./fixtures/broken-stores.mjs";
import { serveDelayedMessages } from "./fixtures/delayed-store-server.mjs";
import { inPage, packageDirectory } from "./fixtures/harness.mjs";
import { ROOT } from "./support/paths.mjs";

const folder = await mkdtemp(join(tmpdir(), "pocket-broker-delayed-"));
const server = await serveDelayedMessages({ file: join(folder, "messages.jsonl"), origin: "*" });

after(async () => {
  await server.close();
  await rm(folder, { recursive: true });
});

inPage("a store that keeps the contract passes, with and without what is optional, and is left empty", async (h) => {
  const { checkDelayedMessageStore } = await import("pocket-broker/testing");
  const { bareStore, makeWorld, MemoryStore } = await import("/fixtures/broken-stores.mjs");
  class Modest extends MemoryStore {
    async initialize(endpointName, mode) {
      if (mode !== "none") throw new Error(`no ${mode} here`);
      await super.initialize(endpointName, mode);
    }
  }
  for (const make of [(world) => new MemoryStore(world), (world) => Promise.resolve(bareStore(world)), (world) => new Modest(world)]) {
    const world = makeWorld();
    h.equal(await checkDelayedMessageStore(() => make(world)), undefined);
    h.ok(world.endpoints.size > 1 && world.instances > 2, "several endpoints and instances");
    h.equal([...world.endpoints.values()].reduce((sum, rows) => sum + rows.size, 0), 0, "nothing is left behind");
    h.ok([...world.endpoints.keys()].every((name) => /^check-[0-9a-f-]{36}$/.test(name)), "names that nobody else has");
  }
  await h.rejects(checkDelayedMessageStore(), { code: "InvalidArgument", details: { argument: "make" } });
  await h.rejects(checkDelayedMessageStore({}), { code: "InvalidArgument", details: { argument: "make" } });
});

for (const [index, [what, check]] of BROKEN.entries()) {
  inPage(`the kit finds a store that ${what}`, async (h, pb, { index, check }) => {
    const { checkDelayedMessageStore } = await import("pocket-broker/testing");
    const { BROKEN, makeWorld } = await import("/fixtures/broken-stores.mjs");
    const Store = BROKEN[index][2];
    // A minute without an answer passes at once: what does answer in memory does so before.
    h.patch(globalThis, "setTimeout", (original) => (work, ms) => original(work, ms === 60_000 ? 50 : ms));
    const world = makeWorld();
    const error = await checkDelayedMessageStore(() => new Store(world)).then(() => undefined, (reason) => reason);
    h.ok(error instanceof AggregateError, `an AggregateError, not ${error}`);
    const told = error.errors.map(({ message }) => message);
    h.ok(told.some((message) => message.startsWith(`${check}: expected `)), `${check} says so: ${told.join("\n")}`);
    for (const message of told) h.match(message, /^[\w: ,]+: expected [^;]+.*; but .{5,}/s);
    h.ok(error.message.includes(check), error.message);
    h.equal(new Set(told.map((message) => message.slice(0, message.indexOf(": expected")))).size, told.length, "each check once");
  }, { argument: { index, check } });
}

inPage("a store that keeps JSON is told of encodeBody, one whose trouble is another is not", async (h) => {
  const { checkDelayedMessageStore } = await import("pocket-broker/testing");
  const { BROKEN, makeWorld } = await import("/fixtures/broken-stores.mjs");
  for (const [what, isTold] of [["keeps JSON", true], ["throws for what is not JSON", true], ["has room for little", false]]) {
    const [, , Store] = BROKEN.find(([name]) => name === what);
    const world = makeWorld();
    const { errors: [error] } = await checkDelayedMessageStore(() => new Store(world)).then(() => ({ errors: [] }), (reason) => reason);
    h.equal([what, error?.message.includes("encodeBody")], [what, isTold], error?.message);
  }
});

inPage("the store in a database of its own keeps the contract, and so does the one that speaks to a server", async (h, pb, url) => {
  const { checkDelayedMessageStore } = await import("pocket-broker/testing");
  const { indexedDbStore } = await import("/fixtures/indexed-db-store.mjs");
  const { httpStore } = await import("/fixtures/http-store.mjs");
  const database = h.name("delayed-store");
  h.forget(database);
  h.equal(await checkDelayedMessageStore(() => indexedDbStore(database)), undefined);
  h.equal(await checkDelayedMessageStore(() => httpStore(url)), undefined);
}, { argument: server.url });

inPage("in a database: a hold runs out after a minute, and what it has outlives the page's connection", async (h) => {
  const { indexedDbStore } = await import("/fixtures/indexed-db-store.mjs");
  const database = h.name("delayed-store");
  h.forget(database);
  const { signal } = new AbortController();
  let now = 1_000_000_000;
  const open = async () => {
    const store = indexedDbStore(database, { now: () => now });
    await store.setupInfrastructure({ endpointName: "shop", transactionMode: "none", instanceId: "i", signal });
    await store.initialize("shop", "none", signal);
    return store;
  };
  const [one, other] = [await open(), await open()];
  const body = new Map([["at", new Date(5)], ["bytes", new Uint8Array([1, 2])]]);
  const message = { messageId: "m", destination: "letters", time: new Date(5), headers: {}, properties: {}, body, numberOfRetries: 0 };
  await one.store(message, signal);
  const fetched = async (store) => (await store.fetchNextDueTimeout(new Date(5), signal))?.messageId ?? null;
  h.equal([await fetched(one), await fetched(other)], ["m", null]);
  now += 59_999;
  h.equal([await fetched(other), await fetched(one)], [null, null]);
  now += 1;
  h.equal([await fetched(other), await fetched(one)], ["m", null], "after a minute");
  await one.release(message, signal);
  h.equal(await fetched(one), null, "the hold has passed to another, and is not this one's to end");
  now -= 3_600_000;
  h.equal(await fetched(one), "m", "a clock that was set back makes no hold longer");
  const later = await open();
  h.equal([await later.count(signal), (await later.next(signal)).getTime()], [1, 5]);
  h.equal((await later.select({}, signal))[0].body, body);
  await new Promise((resolve, reject) => Object.assign(indexedDB.deleteDatabase(database), { onsuccess: resolve, onblocked: () => reject(new Error("somebody holds it")), onerror: reject }));
  h.equal(await one.count(signal), 0, "nobody stands in the way of who deletes it, and the next call makes it anew");
  h.equal(await other.initialize("shop", "transaction-scope", signal).then(() => "took it", () => "refused"), "refused");
});

inPage("in a database: what is aborted on the way is undone, and the reason is the signal's", async (h) => {
  const { indexedDbStore } = await import("/fixtures/indexed-db-store.mjs");
  const database = h.name("delayed-store");
  h.forget(database);
  const { signal } = new AbortController();
  const store = indexedDbStore(database);
  await store.initialize("shop", "none", signal);
  const message = { messageId: "m", destination: "letters", time: new Date(5), headers: {}, properties: {}, body: 1, numberOfRetries: 0 };
  const controller = new AbortController();
  h.patch(IDBObjectStore.prototype, "add", (original) => function (...given) {
    const request = original.apply(this, given);
    request.addEventListener("success", () => controller.abort("closed"));
    return request;
  });
  h.equal(await store.store(message, controller.signal).catch((reason) => reason), "closed");
  h.equal(await store.count(signal), 0);
});

test("the kit runs in Node, too, where an application's tests may", async () => {
  const { checkDelayedMessageStore } = await import(pathToFileURL(join(packageDirectory, "dist/testing.js")));
  const world = makeWorld();
  await checkDelayedMessageStore(() => new MemoryStore(world));
  const [, , Deaf] = BROKEN.find(([what]) => what === "is deaf to its signal");
  await assert.rejects(checkDelayedMessageStore(() => new Deaf(world)), ({ errors }) => errors.length === 1 && /^an aborted signal: expected .*these resolved: store$/.test(errors[0].message));
});

test("on a server: what it has, and who holds it, outlives a restart, and a line that was not finished is nothing", async (context) => {
  const clock = { now: Date.now() };
  const settings = { file: join(folder, "restarted.jsonl"), origin: "*", now: () => clock.now };
  let restarted = await serveDelayedMessages(settings);
  context.after(() => restarted.close());
  const restart = async () => {
    await restarted.close();
    restarted = await serveDelayedMessages(settings);
  };
  const call = async (method, fields, key = crypto.randomUUID()) => {
    const response = await fetch(`${restarted.url}/${method}`, { method: "POST", headers: { "Idempotency-Key": key }, body: JSON.stringify({ endpoint: "shop", instance: "one", ...fields }) });
    return response.ok ? (await response.json()).answer : response.status;
  };
  const row = (messageId, time) => ({ messageId, destination: "d", time, headers: JSON.parse('{"__proto__":"x"}'), properties: {}, body: { bodyEncoding: "none" }, numberOfRetries: 0 });
  for (const [id, time] of [["a", 2], ["b", 1], ["c", 1], ["d", 1]]) assert.equal(await call("store", { row: row(id, time) }), true);
  assert.equal((await call("fetch", { at: 5 })).messageId, "b");
  assert.equal(await call("remove", { messageId: "c" }), true);
  await appendFile(settings.file, '{"endpoint":"shop","messageId":"half');
  await restart();
  assert.deepEqual((await call("select", {})).map(({ messageId, headers }) => [messageId, Object.keys(headers)]), [["b", ["__proto__"]], ["d", ["__proto__"]], ["a", ["__proto__"]]]);
  assert.equal((await call("fetch", { at: 5, instance: "two" })).messageId, "d", "b is held still");
  clock.now += 60_000;
  await restart();
  assert.equal(await call("increment", { messageId: "d", nextAttempt: 9 }), true);
  assert.deepEqual([(await call("fetch", { at: 5, instance: "two" })).messageId, (await call("fetch", { at: 5 })).messageId, await call("fetch", { at: 5 })], ["b", "a", null], "after a minute it is not");
  assert.equal(await call("store", { row: row("e", 3) }), true, "and the order of storing goes on");
  assert.equal((await readFile(settings.file, "utf8")).includes("half"), false);
  const key = crypto.randomUUID();
  assert.deepEqual([await call("increment", { messageId: "d", nextAttempt: 9 }, key), await call("increment", { messageId: "d", nextAttempt: 9 }, key)], [true, true]);
  assert.equal((await call("select", {})).find(({ messageId }) => messageId === "d").numberOfRetries, 2, "a request that is sent again on the way is one request");
  assert.deepEqual([await call("constructor", {}), await call("store", { endpoint: 5 })], [404, 400]);
});

inPage("from a server: errors say what it answered, the signal reaches the request, and each call has a key of its own", async (h) => {
  const { httpStore } = await import("/fixtures/http-store.mjs");
  const requests = [];
  let respond = () => new Response('{"answer":0}');
  h.watchFetch((_, url, init) => { requests.push([url, init]); return respond(init); });
  const { signal } = new AbortController();
  const store = httpStore("https://example.com/delayed", { headers: async () => ({ Authorization: "Bearer token" }) });
  await store.initialize("shop", "none", signal);
  h.equal(requests.length, 0, "a broker opens offline, too");
  await store.count(signal);
  await store.count(signal);
  const [[address, first], [, second]] = requests;
  h.equal([address, first.method, first.headers.Authorization, first.signal === signal, JSON.parse(first.body).endpoint], ["https://example.com/delayed/count", "POST", "Bearer token", true, "shop"]);
  h.ok(first.headers["Idempotency-Key"] !== second.headers["Idempotency-Key"], "one key for one call");
  respond = () => Promise.resolve(new Response("the disk is full", { status: 507, statusText: "Insufficient Storage" }));
  const failure = await store.remove({ messageId: "m" }, signal).catch((error) => error);
  h.match(failure.message, /remove with 507 Insufficient Storage: the disk is full/);
  respond = ({ signal }) => new Promise((_, reject) => { signal.addEventListener("abort", () => reject(signal.reason)); controller.abort("closed"); });
  const controller = new AbortController();
  h.equal(await store.next(controller.signal).catch((reason) => reason), "closed");
  h.equal([await store.next(controller.signal).catch((reason) => reason), requests.length], ["closed", 4], "what is aborted already asks nobody");
  h.ok(await store.initialize("shop", "transaction-scope", signal).then(() => false, () => true));
});

test("the page of custom stores shows what is tested here", async () => {
  const page = await readFile(join(ROOT, "docs/custom-delayed-message-store.md"), "utf8");
  const shown = [...page.matchAll(/^```js\n(.*?)^```$/gms)].map(([, code]) => code);
  for (const name of ["indexed-db-store.mjs", "http-store.mjs", "delayed-store-server.mjs"]) {
    const code = await readFile(join(ROOT, "tests/js/fixtures", name), "utf8");
    assert.ok(shown.includes(code), `docs/custom-delayed-message-store.md does not show ${name} as it is`);
  }
  const [tested, served] = await Promise.all(["tests/js/fixtures/indexed-db-store.mjs", "www/indexed-db-store.js"].map((path) => readFile(join(ROOT, path), "utf8")));
  assert.equal(served, tested, "the page of delayed delivery uses another one");
});

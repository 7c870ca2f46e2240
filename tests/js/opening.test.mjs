/** Loading, opening, sharing, losing and closing a broker (D40), in bad weather too. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";
import { inFreshPage, inPage, packageDirectory } from "./fixtures/harness.mjs";

test("the import touches no global, so that a server may import it", async () => {
  const globals = ["indexedDB", "IDBKeyRange", "window", "self", "document", "navigator", "location", "fetch", "BroadcastChannel", "localStorage", "caches", "crypto"];
  const script = `
    const touched = [];
    for (const name of ${JSON.stringify(globals)}) Object.defineProperty(globalThis, name, { configurable: true, get() { touched.push(name); return undefined; } });
    const pb = await import(${JSON.stringify(pathToFileURL(`${packageDirectory}/dist/index.js`).href)});
    const definitions = { queues: { q: {} } };
    console.log(JSON.stringify({ touched, names: Object.keys(pb), same: pb.defineBroker(definitions) === definitions }));`;
  const { stdout } = await promisify(execFile)(process.execPath, ["--input-type=module", "-e", script]);
  const { touched, names, same } = JSON.parse(stdout);
  assert.deepEqual(touched, []);
  assert.equal(same, true, "defineBroker returns its argument");
  for (const name of ["openBroker", "deleteBroker", "init", "defineBroker", "type", "BrokerError", "isBrokerError", "MessageStatus", "SystemMessage"]) assert.ok(names.includes(name), `${name} is exported`);
});

inFreshPage("init loads the wasm once, however many callers race", async (h, pb) => {
  const urls = h.watchFetch();
  await Promise.all(Array.from({ length: 8 }, () => pb.init()));
  h.equal(urls.length, 1, "fetches");
  await pb.init();
  const [one, two] = await Promise.all([h.open(), h.open()]);
  h.equal(urls.length, 1, "fetches after opening");
  h.ok(one !== two && one.instanceId !== two.instanceId, "two databases, two instances");
});

inFreshPage("importing alone fetches nothing, and a first fetch that fails can be tried again", async (h, pb) => {
  let offline = true;
  const urls = h.watchFetch((real, ...args) => (offline ? Promise.reject(new TypeError("the network is down")) : real(...args)));
  h.equal(urls.length, 0);
  const error = await h.rejects(pb.init(), { code: "LoadFailed" });
  h.ok(error.retryable, "LoadFailed is retryable");
  h.match(`${error.message} ${error.cause}`, /network is down/);
  await h.rejects(pb.openBroker(h.name()), { code: "LoadFailed" });
  offline = false;
  const broker = await h.open();
  h.equal(await broker.queues().then((all) => all.every((queue) => typeof queue.name === "string")), true);
});

inFreshPage("an HTML page in place of the wasm is named as such", async (h, pb) => {
  const page = (status) => new Response("<!doctype html><title>Sorry</title>", { status, headers: { "content-type": "text/html" } });
  let status = 200;
  let broken = true;
  h.watchFetch((real, ...args) => (broken ? Promise.resolve(page(status)) : real(...args)));
  h.match((await h.rejects(pb.init(), { code: "LoadFailed" })).message, /html/i);
  status = 404;
  h.match((await h.rejects(pb.init(), { code: "LoadFailed" })).message, /404/);
  h.match((await h.rejects(pb.init(page(200)), { code: "LoadFailed" })).message, /html/i);
  await h.rejects(pb.init(new Uint8Array([1, 2, 3, 4])), { code: "LoadFailed" });
  broken = false;
  await pb.init();
  h.ok((await h.open()).instanceId);
});

for (const source of ["url", "text", "response", "promise", "bytes", "view", "module"]) {
  inFreshPage(`the wasm may be given as ${source}`, async (h, pb, kind) => {
    const asked = h.watchFetch((real, ...args) => (asked.length === 1 ? Promise.reject(new TypeError("only looking")) : real(...args)));
    await h.rejects(pb.init(), { code: "LoadFailed" });
    const address = new URL(asked[0], location.href);
    const bytes = kind === "url" || kind === "text" ? null : await (await fetch(address)).arrayBuffer();
    const before = asked.length;
    const forms = {
      url: () => address, text: () => address.href, bytes: () => bytes, view: () => new Uint8Array(bytes),
      response: () => new Response(bytes, { headers: { "content-type": "application/wasm" } }),
      promise: () => Promise.resolve(new Response(bytes, { headers: { "content-type": "application/wasm" } })),
      module: () => new WebAssembly.Module(bytes),
    };
    const broker = await h.open({ wasm: forms[kind](), definitions: h.shop() });
    h.equal(asked.length - before, bytes === null ? 1 : 0, "fetches by the library");
    h.equal((await broker.queues()).map((queue) => queue.name).includes("kitchen"), true);
  }, { argument: source });
}

// d40.
inPage("ten openBroker calls in one tick share one connection, and the last to close closes it", async (h, pb) => {
  const seen = h.spy();
  const name = h.name();
  h.forget(name);
  const brokers = await Promise.all(Array.from({ length: 10 }, () => pb.openBroker(name, { definitions: h.shop() })));
  brokers.forEach((broker) => h.afterwards(() => broker.close()));
  h.equal(seen.opens.filter((each) => each === name).length, 1, "connections");
  h.equal(new Set(brokers).size, 10, "brokers");
  h.equal(new Set(brokers.map((broker) => broker.instanceId)).size, 1);
  h.ok(brokers.every((broker) => broker.name === name));
  for (const broker of brokers.slice(1)) await broker.close();
  const conversation = await h.order(brokers[0]);
  h.equal(await h.rows(brokers[0], "kitchen"), ["1 Order 0"]);
  await h.rejects(brokers[1].conversation(conversation.handle).send("Order"), { code: "Closed" });
  await brokers[0].close();
  await h.within(5_000, h.done(indexedDB.deleteDatabase(name)), "deleting after the last close");
});

inPage("an upgrade elsewhere closes the broker with event close, and later calls say Closed", async (h) => {
  const broker = await h.openShop();
  const closed = h.next(broker, "close");
  const version = await h.versionOf(broker.name);
  const other = await h.within(8_000, h.raw(broker.name, version + 100), "the upgrade");
  h.equal(await closed, { reason: "upgraded-elsewhere" });
  await h.rejects(h.order(broker), { code: "Closed" });
  other.close();
});

inPage("a newer schema is VersionTooNew, and is left alone", async (h, pb) => {
  const broker = await h.openShop();
  await broker.close();
  const version = (await h.versionOf(broker.name)) + 1;
  (await h.raw(broker.name, version, (db) => db.createObjectStore("of-the-future"))).close();
  const error = await h.rejects(pb.openBroker(broker.name), { code: "VersionTooNew", details: { name: broker.name } });
  h.ok(error.message.includes(broker.name), error.message);
  const after = await h.raw(broker.name);
  h.equal(after.version, version);
  h.ok([...after.objectStoreNames].includes("of-the-future"));
});

// d40.
inPage("a delete that waits elsewhere: UpgradeBlocked after five seconds, and the late connection is closed", async (h, pb) => {
  const name = h.name();
  h.forget(name);
  const holder = await h.raw(name);
  const deletion = h.done(indexedDB.deleteDatabase(name));
  const begun = performance.now();
  const error = await h.rejects(h.within(9_000, pb.openBroker(name), "openBroker"), { code: "UpgradeBlocked", details: { name } });
  h.ok(error.message.includes(name), error.message);
  h.ok(performance.now() - begun > 3_500, `rejected after ${performance.now() - begun} ms`);
  h.ok(error.retryable);
  holder.close();
  await h.within(5_000, deletion, "the waiting delete");
  await h.within(5_000, h.done(indexedDB.deleteDatabase(name)), "a delete after the late success");
  const broker = await h.open({ definitions: h.shop() }, name);
  await h.order(broker);
  h.equal(await broker.count("kitchen"), 1);
});

// d40.
inPage("an upgrade blocked by an old page: UpgradeBlocked after five seconds", async (h, pb) => {
  const broker = await h.openShop();
  await broker.close();
  const holder = await h.raw(broker.name);
  const restore = h.patch(IDBFactory.prototype, "open", (original) => function (name, version) {
    return original.call(this, name, name === broker.name ? holder.version + 1 : version);
  });
  await h.rejects(h.within(9_000, pb.openBroker(broker.name), "openBroker"), { code: "UpgradeBlocked" });
  restore();
  holder.close();
});

inFreshPage("without IndexedDB: StorageUnavailable, while storage: \"memory\" works", async (h, pb) => {
  await pb.init();
  const descriptor = Object.getOwnPropertyDescriptor(globalThis, "indexedDB");
  h.afterwards(() => descriptor ? Object.defineProperty(globalThis, "indexedDB", descriptor) : delete globalThis.indexedDB);
  Object.defineProperty(globalThis, "indexedDB", { configurable: true, value: undefined });
  await h.rejects(h.within(10_000, pb.openBroker(h.name())), { code: "StorageUnavailable" }, "missing");
  const broker = await h.open({ storage: "memory", definitions: h.shop() });
  await h.order(broker, 3);
  h.equal((await broker.receive("kitchen")).map((message) => message.body), [{ n: 0 }, { n: 1 }, { n: 2 }]);
  Object.defineProperty(globalThis, "indexedDB", { configurable: true, get() { throw new DOMException("no storage for you", "SecurityError"); } });
  const error = await h.rejects(h.within(10_000, pb.openBroker(h.name())), { code: "StorageUnavailable" }, "throwing getter");
  h.match(`${error.message} ${error.cause} ${JSON.stringify(error.details)}`, /no storage for you|SecurityError/);
});

inFreshPage("an open that throws, fails or never answers: StorageUnavailable within ten seconds", async (h, pb) => {
  await pb.init();
  let restore = h.patch(IDBFactory.prototype, "open", () => () => { throw new DOMException("denied here", "SecurityError"); });
  const name = h.name();
  const thrown = await h.rejects(h.within(10_000, pb.openBroker(name)), { code: "StorageUnavailable", details: { name } }, "throws");
  h.match(thrown.message, /SecurityError.*denied here.*Allow this site/);
  h.ok(thrown.message.includes(name), thrown.message);
  restore();
  restore = h.patch(IDBFactory.prototype, "open", (original) => function (name) {
    const request = original.call(this, name, 1);
    request.addEventListener("upgradeneeded", () => request.transaction.abort());
    return request;
  });
  await h.rejects(h.within(10_000, pb.openBroker(h.name())), { code: "StorageUnavailable" }, "fails");
  restore();
  restore = h.patch(IDBFactory.prototype, "open", (original) => function (...args) {
    const request = original.apply(this, args);
    for (const type of ["success", "error", "blocked", "upgradeneeded"]) request.addEventListener(type, (event) => event.stopImmediatePropagation());
    request.addEventListener("success", () => request.result.close());
    return request;
  });
  await h.rejects(h.within(10_000, pb.openBroker(h.name())), { codes: ["StorageUnavailable", "UpgradeBlocked"] }, "never answers");
  restore();
  h.ok((await h.open()).instanceId, "and afterwards it opens");
});

inPage("deleteBroker closes open brokers first, deletes everything, and is quiet about a database that is not there", async (h, pb) => {
  const broker = await h.openShop();
  const second = await h.open({}, broker.name);
  await h.order(broker);
  const reasons = [h.next(broker, "close"), h.next(second, "close")];
  await h.within(8_000, pb.deleteBroker(broker.name), "deleteBroker");
  h.equal(await Promise.all(reasons), [{ reason: "deleted" }, { reason: "deleted" }]);
  await h.rejects(broker.receive("kitchen"), { code: "Closed" });
  h.equal((await indexedDB.databases()).some((each) => each.name === broker.name), false);
  const again = await h.open({ definitions: h.shop() }, broker.name);
  h.equal(await again.count("kitchen"), 0);
  h.ok(again.instanceId !== broker.instanceId, "a new instance");
  await pb.deleteBroker(h.name());
});

inPage("a database deleted by somebody else closes the broker", async (h) => {
  const broker = await h.openShop();
  await h.order(broker);
  const closed = h.next(broker, "close");
  await h.within(8_000, h.done(indexedDB.deleteDatabase(broker.name)), "the raw delete");
  h.equal(await closed, { reason: "deleted" });
  await h.rejects(broker.queues(), { code: "Closed" });
});

inPage("a connection closed behind the library's back is opened again", async (h) => {
  const seen = h.spy();
  const broker = await h.openShop();
  const conversation = await h.order(broker);
  seen.databases.at(-1).close();
  await conversation.send("Order", { n: 1 });
  h.equal(await h.rows(broker, "kitchen"), ["1 Order 0", "1 Order 1"], "each once");
  seen.databases.at(-1).close();
  h.equal(h.bodies(await broker.receive("kitchen")), [{ n: 0 }, { n: 1 }]);
  await broker.transaction(async (tx) => {
    await tx.send(conversation, "Order", { n: 2 });
    seen.databases.at(-1).close();
  });
  seen.databases.at(-1).close();
  h.equal(await h.rows(broker, "kitchen"), ["1 Order 2"], "a view reopens too");
});

inPage("a database that was thrown away behind the library's back: StorageLost, not a new one in its place", async (h) => {
  const first = { send: (broker, counter) => counter.send("Order"), receive: (broker) => broker.receive("kitchen"), view: (broker) => broker.select("kitchen").toArray(), transaction: (broker, counter) => broker.transaction((tx) => tx.send(counter, "Order")) };
  for (const [verb, call] of Object.entries(first)) {
    const seen = h.spy();
    const broker = await h.openShop();
    const counter = await h.order(broker);
    const closed = h.next(broker, "close");
    seen.databases.at(-1).close();
    await h.done(indexedDB.deleteDatabase(broker.name));
    // A closing broker rolls its open transactions back: they say why it closes (D25).
    await h.rejects(h.within(10_000, call(broker, counter), verb), verb === "transaction" ? { code: "Closed", details: { reason: "storage-lost" } } : { code: "StorageLost" }, verb);
    h.equal(await closed, { reason: "storage-lost" }, verb);
    await h.rejects(counter.send("Order"), { code: "Closed", details: { reason: "storage-lost" } }, verb);
    const again = await h.open({ definitions: h.shop() }, broker.name);
    h.equal([again.instanceId === broker.instanceId, await again.count("kitchen")], [false, 0], verb);
    await h.cleanUp();
  }
});

inPage("close is idempotent, fires once, leaves nothing behind, and every call after it says Closed", async (h) => {
  const broker = await h.openShop();
  const conversation = await h.order(broker);
  const seen = h.collect(broker, "close");
  await Promise.all([broker.close(), broker.close()]);
  await broker.close();
  h.equal(seen, [{ reason: "closed" }]);
  const calls = {
    define: () => broker.define({}), beginDialog: () => h.dialog(broker), send: () => broker.send(conversation, "Order"), conversation: () => conversation.send("Order"),
    sendMany: () => broker.sendMany(conversation, [{ messageType: "Order" }]), receive: () => broker.receive("kitchen"), end: () => conversation.end(),
    transaction: () => broker.transaction(() => 1), select: () => broker.select("kitchen").toArray(), count: () => broker.count("kitchen"), queues: () => broker.queues(),
    conversations: () => broker.conversations().toArray(), archive: () => broker.archive().toArray(), purgeArchive: () => broker.purgeArchive(Date.now()),
    getGroupState: () => broker.getGroupState(conversation), setGroupState: () => broker.setGroupState(conversation, 1), info: () => conversation.info(),
  };
  for (const [verb, call] of Object.entries(calls)) await h.rejects(h.within(5_000, call(), verb), { code: "Closed" }, verb);
  if (Symbol.asyncDispose) {
    const other = await h.open();
    await other[Symbol.asyncDispose]();
    await h.rejects(other.queues(), { code: "Closed" });
  }
});

inPage("sends under way when close is called are either stored or Closed, never unknown", async (h) => {
  const broker = await h.openShop();
  const conversation = await h.order(broker, 0);
  const sends = Array.from({ length: 50 }, (_, n) => conversation.send("Order", { n }));
  await broker.close();
  const settled = await h.within(8_000, Promise.allSettled(sends), "the sends");
  h.ok(settled.every((each) => each.status === "fulfilled" || each.reason.code === "Closed"), "only Closed");
  const again = await h.reopen(broker);
  h.equal(await again.count("kitchen").catch(() => 0), settled.filter((each) => each.status === "fulfilled").length);
});

inPage("storage: \"memory\" opens no database, is nobody else's, and is gone with the broker", async (h) => {
  const seen = h.spy();
  const name = h.name();
  const one = await h.open({ storage: "memory", definitions: h.shop({ kitchen: { retention: true } }) }, name);
  const two = await h.open({ storage: "memory", definitions: h.shop() }, name);
  await h.order(one, 2);
  h.equal([await one.count("kitchen"), await two.count("kitchen")], [2, 0]);
  await one.receive("kitchen", { top: 1 });
  h.equal(await h.rows(one, "kitchen"), ["0 Order 0", "1 Order 1"]);
  h.equal(seen.opens, []);
  await one.close();
  const three = await h.open({ storage: "memory", definitions: h.shop() }, name);
  h.equal(await three.count("kitchen"), 0);
});

inPage("d40: the clock must agree between brokers of one database in one context", async (h, pb) => {
  const now = () => 1_000_000;
  const sleep = () => new Promise(() => {});
  const clock = { now, sleep };
  const broker = await h.open({ clock });
  const others = [undefined, { now }, { sleep }, { now: () => 1_000_000, sleep }, { now, sleep: () => new Promise(() => {}) }];
  for (const other of others) {
    const error = await h.rejects(pb.openBroker(broker.name, other && { clock: other }), { code: "InvalidArgument", details: { argument: "clock" } });
    h.match(error.message, /clock/);
  }
  const same = await h.open({ clock }, broker.name);
  await same.close();
  const plain = await h.open();
  await h.rejects(pb.openBroker(plain.name, { clock: { now } }), { code: "InvalidArgument", details: { argument: "clock" } });
  await broker.close();
  await (await h.open({}, broker.name)).queues();
});

// d40.
inPage("durability reaches every write transaction, is strict by default, and must agree between brokers of one database", async (h, pb) => {
  for (const durability of [undefined, "strict", "relaxed"]) {
    const seen = h.spy();
    const broker = await h.openShop({}, durability ? { durability } : {});
    await h.order(broker, 3);
    await broker.receive("kitchen");
    const writes = seen.transactions.filter((each) => each.mode === "readwrite");
    h.ok(writes.length >= 3, `${writes.length} writes`);
    h.equal([...new Set(writes.map((each) => each.durability))], [durability ?? "strict"]);
    await h.rejects(pb.openBroker(broker.name, { durability: durability === "relaxed" ? "strict" : "relaxed" }), { code: "InvalidArgument" });
    await h.cleanUp();
  }
  await h.rejects(pb.openBroker(h.name(), { durability: "eventual" }), { code: "InvalidArgument" });
  await h.rejects(pb.openBroker(h.name(), { storage: "disk" }), { code: "InvalidArgument" });
  await h.rejects(pb.openBroker(""), { code: "InvalidArgument" });
});

/** An outbox of requests: `toStoredRequest` and `replay`, with `enqueue`, `drain` and `activate`. */
import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { crash, discard, openTab } from "./fixtures/crashing.mjs";
import { serveFaulty } from "./fixtures/faulty-server.mjs";
import { allowErrors, browserName, inPage as inPageOf, newPage } from "./fixtures/harness.mjs";
import { serveScripted } from "./fixtures/scripted-endpoint.mjs";
import { proxyTo } from "./fixtures/tcp-proxy.mjs";

const folder = await mkdtemp(join(tmpdir(), "pocket-broker-outbox-"));
const endpoint = await serveScripted();
const server = await serveFaulty({ file: join(folder, "answers.jsonl"), handle: ({ body }) => ({ messageType: "Confirmed", body }) });
const network = await proxyTo(server.url);
after(async () => {
  await network.close();
  await server.close();
  await endpoint.close();
  await rm(folder, { recursive: true });
});
allowErrors(endpoint.url, network.url);

const given = (body) => `async (h, pb) => {
  const t = { ...await import("/pkg/dist/http.js"), ...await import("/fixtures/envelopes.mjs") };
  t.at = (path, parameters) => t.scripted("${endpoint.url}", path, parameters);
  t.seen = async (mark) => (await t.seenBy("${endpoint.url}", mark)).requests;
  t.open = (options) => h.open({ definitions: { queues: { requests: {} } }, ...options });
  t.post = (url, body, headers = {}) => t.toStoredRequest(new Request(url, { method: "POST", body, headers }));
  await (${body})(h, pb, t);
}`;
const inPage = (title, body) => inPageOf(title, given(body));

inPage("toStoredRequest keeps address, method, headers and body: text as text, bytes as bytes, much as a Blob; the request may be used afterwards", async (h, pb, t) => {
  const url = "http://127.0.0.1/orders?q=1#part";
  h.equal(await t.toStoredRequest(new Request(url)), { url, method: "GET", headers: {} });
  h.equal(await t.toStoredRequest(new Request("/orders", { method: "DELETE", headers: { "X-One": "1", Accept: "a/b" } })), { url: `${location.origin}/orders`, method: "DELETE", headers: { accept: "a/b", "x-one": "1" } });
  const kept = async (body, type) => (await t.post(url, body, type === undefined ? {} : { "Content-Type": type })).body;
  const text = '{"dish":"żółć 🎉"}';
  for (const type of ["application/json", "text/plain", "application/vnd.api+json; charset=utf-8", "application/x-www-form-urlencoded", "application/soap+xml"]) h.equal(await kept(text, type), text, type);
  h.equal(await kept("\ufefftext", "text/plain"), "\ufefftext", "a byte order mark is a part of it");
  const bytes = Uint8Array.from({ length: 256 }, (_, n) => n);
  h.equal(await kept(bytes, "text/plain"), bytes.buffer, "no text, whatever it is called");
  h.equal([await kept(bytes), await kept(text, "image/png"), await kept("")], [bytes.buffer, new TextEncoder().encode(text).buffer, undefined]);
  const large = await kept(new Uint8Array(1024 * 1024 + 3).fill(7), "application/octet-stream");
  h.equal([large instanceof Blob, large.size, new Uint8Array(await large.slice(-1).arrayBuffer())[0]], [true, 1024 * 1024 + 3, 7]);
  const form = new FormData();
  form.set("photo", new Blob([bytes]), "a photo.png");
  // WebKit does not read a form with a file in it.
  const isReadable = await new Request(url, { method: "POST", body: form }).arrayBuffer().then(() => true, () => false);
  if (!isReadable) form.set("photo", "x".repeat(256));
  const request = new Request(url, { method: "POST", body: form });
  const stored = await t.toStoredRequest(request);
  h.equal([stored.headers["content-type"], stored.body instanceof ArrayBuffer], [request.headers.get("content-type"), true]);
  const photo = (await request.formData()).get("photo");
  h.equal([photo.name, photo.size ?? photo.length], [isReadable ? "a photo.png" : undefined, 256], "what the caller does with it afterwards is his own");
  h.equal((await t.toStoredRequest(new Request(url, { headers: { "Upgrade-Insecure-Requests": "1", "X-Mine": "1" } }))).headers, { "x-mine": "1" }, "what the browser sends by itself");
});

inPage("what is no request that could be sent later is refused, by name", async (h, pb, t) => {
  for (const request of [undefined, null, "http://127.0.0.1/", { url: "http://127.0.0.1/", method: "GET", headers: new Headers() }]) await h.rejects(t.toStoredRequest(request), { code: "InvalidArgument", details: { argument: "request" } });
  const used = new Request("/x", { method: "POST", body: "once" });
  await used.text();
  h.match((await h.rejects(t.toStoredRequest(used), { code: "InvalidArgument" })).message, /clone/);
  await h.rejects(t.toStoredRequest(new Request("data:text/plain,x")), { code: "InvalidArgument" });
  for (const options of [{ timeout: 0 }, { fetch: 5 }, { headers: 5 }, { retries: 1 }]) await h.rejects((async () => t.replay(options))(), { code: "InvalidArgument", details: { argument: Object.keys(options)[0] } });
});

inPage("a stored request arrives as it was, with the message's id as its key, in the order of the queue", async (h, pb, t) => {
  const broker = await t.open();
  const { url, mark } = t.at("/answer", { status: 201 });
  const bytes = Uint8Array.from({ length: 256 }, (_, n) => n);
  const form = new FormData();
  form.set("dish", "soup");
  const requests = [await t.post(url, '{"n":1}', { "Content-Type": "application/json", "X-Trace": "t1" }), await t.post(url, bytes), await t.post(url, form), await t.post(url, new Uint8Array(1_500_000).fill(5)),
    await t.toStoredRequest(new Request(url, { method: "DELETE" })), await t.toStoredRequest(new Request(url)), await t.post(url, "x", { "Idempotency-Key": "own", Authorization: "stale" })];
  const ids = await broker.enqueueMany("requests", requests);
  h.equal(await broker.drain("requests", t.replay({ headers: () => ({ Authorization: "fresh" }) })), { handled: 7, failed: 0, remaining: 0 });
  const seen = await t.seen(mark);
  h.equal(seen.map(({ method }) => method), ["POST", "POST", "POST", "POST", "DELETE", "GET", "POST"]);
  h.equal(seen.map(({ headers }) => headers["idempotency-key"]), [...ids.slice(0, 6), "own"]);
  h.equal(seen.map(({ headers }) => headers.authorization), Array.from({ length: 7 }, () => "fresh"));
  h.equal([atob(seen[0].body), seen[0].headers["content-type"], seen[0].headers["x-trace"]], ['{"n":1}', "application/json", "t1"]);
  h.equal([atob(seen[1].body), seen[1].headers["content-type"]], [String.fromCharCode(...bytes), undefined]);
  h.ok(atob(seen[2].body).includes("soup") && seen[2].headers["content-type"] === requests[2].headers["content-type"], "the boundary of a form");
  h.equal([atob(seen[3].body).length, seen[4].body, seen[5].body], [1_500_000, "", ""]);
});

inPage("answers mean what they mean for messages: done, later, or the error queue", async (h, pb, t) => {
  const broker = await t.open();
  const one = async (parameters, path = "/answer") => {
    await broker.enqueue("requests", await t.post(t.at(path, parameters).url, "x"), { key: crypto.randomUUID() });
    return broker.drain("requests", t.replay());
  };
  for (const status of [200, 201, 204, 409, 412]) h.equal(await one({ status }), { handled: 1, failed: 0, remaining: 0 }, `${status}`);
  const refusals = [400, 404, 405, 410, 422];
  for (const status of refusals) h.equal(await one({ status, text: "No", body: "no such dish" }), { handled: 0, failed: 1, remaining: 0 }, `${status}`);
  const failed = await broker.failed().toArray();
  h.equal(failed.map(({ exceptionType, exceptionMessage, attempts }) => [exceptionType, exceptionMessage, attempts]), refusals.map((status) => ["UnrecoverableError", `The server answered ${status} (No): no such dish`, 1]));
  h.equal((await broker.failed().first()).body.method, "POST", "it can be put back: returnToSource");
  const waiting = [];
  for (const status of [307, 401, 403, 408, 425, 429, 500, 503]) {
    waiting.push(status);
    h.equal(await one(status === 307 ? {} : { status }, status === 307 ? "/loop" : "/answer"), { handled: 0, failed: 1, remaining: waiting.length }, `${status}`);
  }
  for (const path of ["/drop", "/nocors"]) {
    waiting.push(path);
    h.equal((await one({}, path)).remaining, waiting.length, path);
  }
  await one({ status: 503, headers: { "Retry-After": "600" } });
  const rows = await broker.select("requests").toArray();
  h.ok(rows.every(({ attempts, retryAt }) => attempts === 0 && retryAt !== null), "none of it counts as a failure");
  const long = rows.filter(({ retryAt }) => retryAt - Date.now() > 500_000 && retryAt - Date.now() <= 600_000);
  h.equal([long.length, rows.length], [1, waiting.length + 1], "Retry-After");
  h.match(rows.find(({ body }) => body.url.includes("nocors")).lastError, /CORS/);
});

inPage("what is no stored request goes to the error queue, and says why; an answer that does not come in time is another attempt", async (h, pb, t) => {
  const broker = await t.open();
  const url = "http://127.0.0.1/";
  const bodies = [undefined, null, "text", 5, {}, { url }, { url, method: 5, headers: {} }, { url: "/relative", method: "GET", headers: {} }, { url: "ftp://x/", method: "GET", headers: {} }, { url, method: "CONNECT", headers: {} },
    { url, method: "GET", headers: { "a b": "c" } }, { url, method: "GET", headers: {}, body: "x" }, { url, method: "POST", headers: {}, body: { n: 1 } }];
  await broker.enqueueMany("requests", bodies);
  h.equal(await broker.drain("requests", t.replay()), { handled: 0, failed: bodies.length, remaining: 0 });
  const failed = await broker.failed().toArray();
  h.ok(failed.every(({ exceptionType, exceptionMessage }) => exceptionType === "UnrecoverableError" && /no stored request: .{5,}/.test(exceptionMessage)), JSON.stringify(failed.map(({ exceptionMessage }) => exceptionMessage)));
  await broker.enqueue("requests", await t.post(t.at("/hold", { id: "never" }).url, "x"));
  h.equal(await broker.drain("requests", t.replay({ timeout: 100 })), { handled: 0, failed: 1, remaining: 1 });
  h.match((await broker.select("requests").first()).lastError, /100 ms/);
});

inPage("a request that has to wait holds up its own lane alone, and stays the first of it", async (h, pb, t) => {
  h.state.now = 1_000_000_000_000;
  const broker = await t.open({ clock: { now: () => h.state.now } });
  const log = [];
  let isDown = true;
  const fetch = async (url, { headers }) => {
    log.push(new URL(url).pathname);
    return new Response(null, { status: isDown && url.includes("/a/") ? 503 : 200, headers: { "Retry-After": "30" } });
  };
  for (const path of ["/a/1", "/a/2", "/b/1", "/b/2"]) await broker.enqueue("requests", await t.post(path, "x"), { key: path[1] });
  h.equal(await broker.drain("requests", t.replay({ fetch })), { handled: 2, failed: 1, remaining: 2 });
  h.equal(log.filter((path) => path.startsWith("/b")), ["/b/1", "/b/2"]);
  h.equal(log.filter((path) => path.startsWith("/a")), ["/a/1"]);
  isDown = false;
  h.state.now += 29_999;
  await broker.poll();
  h.equal((await broker.drain("requests", t.replay({ fetch }))).handled, 0, "not before the server wants it");
  h.state.now += 1;
  await broker.poll();
  h.equal(await broker.drain("requests", t.replay({ fetch })), { handled: 2, failed: 0, remaining: 0 });
  h.equal(log.slice(-2), ["/a/1", "/a/2"]);
});

inPage("a handler of the application's own may go around it", async (h, pb, t) => {
  const broker = await t.open();
  const { url, mark } = t.at("/answer");
  await broker.enqueueMany("requests", [await t.post(url, "old"), await t.post(url, "new")]);
  const send = t.replay();
  const outcome = await broker.drain("requests", async (messages, tx) => {
    if (messages[0].body.body === "old") throw new pb.UnrecoverableError("Older than a day.");
    await send(messages, tx);
  });
  h.equal([outcome, (await t.seen(mark)).map(({ body }) => atob(body))], [{ handled: 1, failed: 1, remaining: 0 }, ["new"]]);
});

inPage("several messages at once go in their order; a conversation that its far side has ended is ended here", async (h, pb, t) => {
  const broker = await h.openShop();
  const { url, mark } = t.at("/answer");
  const conversation = await h.dialog(broker);
  await conversation.sendMany([await t.post(url, "1"), await t.post(url, "2")].map((body) => ({ messageType: "Order", body })));
  await conversation.end();
  h.equal((await broker.drain("kitchen", t.replay(), { top: 10 })).failed, 0);
  h.equal((await t.seen(mark)).map(({ body }) => atob(body)), ["1", "2"]);
  h.equal(await broker.conversations({ conversationId: conversation.conversationId }).toArray(), []);
});

inPage("a handler that is stopped sends nothing more: closing the broker cuts the request, and the message is there again", async (h, pb, t) => {
  const broker = await t.open();
  const { url, mark } = t.at("/hold", { id: crypto.randomUUID() });
  await broker.enqueue("requests", await t.post(url, "x"));
  broker.activate("requests", t.replay());
  await h.until(async () => (await t.seen(mark)).length === 1, "the request");
  await broker.close();
  await h.until(async () => (await t.seen(mark))[0].isCut, "the request to be cut");
  const again = await h.open({}, broker.name);
  h.equal([await again.count("requests", { status: 1 }), (await again.select("requests").first()).attempts], [1, 0]);
});

// ── a server on a bad day, and a network that is cut ──

const openOutbox = async (h, pb, { name, activate }) => {
  h.state.http = await import("pocket-broker/http");
  h.state.broker = await h.open({ definitions: { queues: { requests: {} } } }, name);
  if (activate) h.state.activation = h.state.broker.activate("requests", h.state.http.replay({ timeout: 5_000 }), { maxReaders: activate });
};
const enqueue = async (h, _, { url, lanes, count }) => {
  for (let lane = 0; lane < lanes; lane += 1) {
    const requests = await Promise.all(Array.from({ length: count }, (_, n) => h.state.http.toStoredRequest(new Request(url, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ lane, n }) }))));
    await h.state.broker.enqueueMany("requests", requests, { key: `lane ${lane}` });
  }
};
const empty = async (h) => { await h.until(async () => (await h.state.broker.count("requests")) === 0, "the outbox to be empty", 60_000); };

/** Each once, in the order of its lane. */
function assertOnce(accepted, lanes, count) {
  assert.equal(new Set(accepted.map(({ key }) => key)).size, accepted.length, "no key twice");
  for (let lane = 0; lane < lanes; lane += 1) assert.deepEqual(accepted.filter(({ body }) => body.lane === lane).map(({ body }) => body.n), Array.from({ length: count }, (_, n) => n), `lane ${lane}`);
  assert.equal(accepted.length, lanes * count);
}

test("a page that crashes while a request is under way: another one sends it again with the same key, and the rest in order", { timeout: 120_000, skip: browserName === "webkit" && "needs pages that crash" }, async () => {
  const name = `outbox-crash-${crypto.randomUUID()}`;
  server.accepted.length = 0;
  server.arrivals.length = 0;
  const doomed = await openTab();
  await doomed.step(openOutbox, { name });
  await doomed.step(enqueue, { url: network.url, lanes: 2, count: 10 });
  let arrived = 0;
  const sixth = new Promise((resolve) => {
    server.fault(() => {
      arrived += 1;
      if (arrived === 6) resolve();
      // Its answer does not come back before the page is dead.
      return arrived === 6 ? "late" : undefined;
    });
  });
  await doomed.step((h) => { h.state.broker.activate("requests", h.state.http.replay()); });
  await sixth;
  network.stall();
  await crash(doomed);
  network.reset();
  await network.restore();
  await discard(doomed);
  const home = await newPage();
  await home.step(openOutbox, { name, activate: 1 });
  await home.step(empty);
  assertOnce(server.accepted, 2, 10);
  assert.ok(server.arrivals.length > 20, "something came twice");
  await home.step((h, _, name) => h.forget(name), name);
  await home.cleanUp();
  await home.close();
});

test("a server on a bad day and a network that is cut: every request is done once, in the order of its lane", { timeout: 180_000, skip: browserName === "webkit" && "needs puppeteer" }, async () => {
  const name = `outbox-faults-${crypto.randomUUID()}`;
  server.accepted.length = 0;
  server.arrivals.length = 0;
  const faults = ["late", "cut before", undefined, "cut after", undefined, "twice", "500", undefined, undefined, "429", undefined, undefined, "401", undefined, "503", "twice", undefined, "409", undefined];
  let n = 0;
  let wake = () => {};
  server.fault(() => { n += 1; wake(); return faults[n % faults.length]; });
  const until = async (count) => { while (n < count) await new Promise((resolve) => { wake = resolve; }); };
  const home = await newPage();
  await home.step(openOutbox, { name });
  // Waits are of a second and more: a retry is due as soon as the page is told that it is online.
  await home.step((h) => { h.state.hurry = setInterval(() => dispatchEvent(new Event("online")), 50); h.afterwards(() => clearInterval(h.state.hurry)); });
  await home.step(enqueue, { url: network.url, lanes: 5, count: 20 });
  await home.step((h) => { h.state.broker.activate("requests", h.state.http.replay({ timeout: 2_000 }), { maxReaders: 4 }); });
  await until(20);
  network.cut();
  await new Promise((resolve) => { setTimeout(resolve); });
  await network.restore();
  await until(45);
  await network.refuse();
  await network.restore();
  await until(70);
  network.stall();
  network.reset();
  await network.restore();
  await until(90);
  await server.goAway();
  await server.comeBack();
  await home.step(empty);
  assertOnce(server.accepted, 5, 20);
  const kinds = new Set(server.arrivals.map(({ fault }) => fault));
  assert.deepEqual([...new Set(faults)].filter((fault) => !kinds.has(fault)), [], "every fault has happened");
  console.log(`# ${server.arrivals.length} requests for 100 messages`);
  await home.step((h, _, name) => h.forget(name), name);
  await home.cleanUp();
  await home.close();
});

/** `httpTransport` with the plain protocol, on its own: what it sends, and what it makes of every answer. */
import { after } from "node:test";
import { allowErrors, inPage as inPageOf, inPageAndWorkers as inPageAndWorkersOf } from "./fixtures/harness.mjs";
import { serveScripted } from "./fixtures/scripted-endpoint.mjs";

const endpoint = await serveScripted();
after(() => endpoint.close());
const gone = await serveScripted();
await gone.close();
// It answers with errors, and is asked for what it does not allow; the other is not there.
allowErrors(endpoint.url, gone.url);

/** A body of a test gets `t`: the entry, the helpers of envelopes, and `at`, which makes addresses of the endpoint. */
const given = (body) => `async (h, pb) => {
  const t = { ...await import("/pkg/dist/http.js"), ...await import("/fixtures/envelopes.mjs") };
  t.at = (path, parameters) => t.scripted("${endpoint.url}", path, parameters);
  t.gone = "${gone.url}";
  t.seen = async (mark) => (await t.seenBy("${endpoint.url}", mark)).requests;
  t.release = async (id) => h.until(async () => (await (await fetch("${endpoint.url}/release?id=" + id)).text()) === "true", "a request to be held");
  t.send = async (options, ...messages) => t.httpTransport(options).send(await Promise.all(messages), t.context());
  t.text = (base64) => new TextDecoder().decode(Uint8Array.from(atob(base64), (one) => one.charCodeAt(0)));
  await (${body})(h, pb, t);
}`;
const inPage = (title, body) => inPageOf(title, given(body));
const inPageAndWorkers = (title, body) => inPageAndWorkersOf(title, given(body));

inPage("options are checked by name, and the errors are those of the main entry", async (h, pb, t) => {
  const { httpTransport } = await import("pocket-broker/http");
  h.ok(httpTransport === t.httpTransport, "the entry is found by its name");
  const refused = (options, argument, text = /.{20}/) => h.rejects((async () => httpTransport(options))(), { code: "InvalidArgument", details: { argument } }).then((error) => h.match(error.message, text));
  await refused(undefined, "url");
  await refused({}, "url", /`url` must be given/);
  await refused(5, "options");
  await refused({ url: "/x", retries: 5 }, "retries", /Options: url, protocol/);
  for (const url of [5, null, "http://", "ftp://example.org/", "data:text/plain,x", "http://user:secret@127.0.0.1/"]) await refused({ url }, "url");
  await refused({ url: "/x", protocol: "grpc" }, "protocol", /"plain" or "envelope"/);
  await refused({ url: "/x", onRefused: "drop" }, "onRefused");
  for (const timeout of [0, -1, NaN, "5"]) await refused({ url: "/x", timeout }, "timeout");
  for (const option of ["request", "reply", "fetch"]) await refused({ url: "/x", [option]: {} }, option, /must be a function/);
  for (const headers of [5, { "no name": "x" }, { name: "żółć" }, [["one"]]]) await refused({ url: "/x", headers }, "headers");
  for (const option of [{ request: () => null }, { reply: async () => {} }, { onRefused: "error-queue" }]) await refused({ url: "/x", protocol: "envelope", ...option }, Object.keys(option)[0], /leave it out/);
  await refused({ get url() { throw new Error("hostile"); } }, undefined, /hostile/);
  for (const url of ["/x", new URL("http://127.0.0.1/"), "https://example.org/?q=1"]) h.equal(typeof httpTransport({ url, timeout: Infinity, headers: [["a", "b"]] }).send, "function");
  h.equal([httpTransport({ url: "/x" }).listen, typeof httpTransport({ url: "/x", protocol: "envelope", onRefused: "end" }).listen], [undefined, "function"], "a plain endpoint says nothing by itself");
});

inPageAndWorkers("a message is one POST: JSON, its Idempotency-Key, its type, its conversation and its own headers", async (h, pb, t) => {
  const { url, mark } = t.at("/answer");
  const talk = t.conversation();
  const back = t.conversation({ fromInitiator: false });
  const body = { id: 7, tags: ["a", null], text: "żółć 🎉 \u2028" };
  const messages = [talk.message(body, { headers: { trace: "t1", "X-Percent": "100%", empty: "" } }), talk.message(undefined, { messageType: "Cancel" }), talk.message("text"), back.message(null, { messageType: "Bestätigt/1" })];
  h.equal(await t.send({ url, headers: { Authorization: "Bearer x" } }, ...messages), messages.map(() => ({ status: "acknowledged" })));
  const seen = await t.seen(mark);
  const sent = (key) => seen.find(({ headers }) => headers["idempotency-key"] === key);
  const first = sent(`${talk.conversationId}/i/0`);
  h.equal([first.method, first.headers["content-type"], JSON.parse(t.text(first.body))], ["POST", "application/json", body]);
  h.equal([first.headers["x-message-type"], first.headers["x-conversation-id"], first.headers.trace, first.headers["x-percent"], first.headers.empty, first.headers.authorization], ["Order", talk.conversationId, "t1", "100%", "", "Bearer x"]);
  const empty = sent(`${talk.conversationId}/i/1`);
  h.equal([empty.method, empty.body, empty.headers["content-type"], empty.headers["content-length"], empty.headers["x-message-type"]], ["POST", "", undefined, "0", "Cancel"]);
  h.equal(t.text(sent(`${talk.conversationId}/i/2`).body), '"text"');
  const other = sent(`${back.conversationId}/t/0`);
  h.equal([t.text(other.body), decodeURIComponent(other.headers["x-message-type"])], ["null", "Bestätigt/1"]);
  h.equal(seen.length, 4);
});

inPageAndWorkers("bytes and Blobs go as they are", async (h, pb, t) => {
  const bytes = Uint8Array.from({ length: 300 }, (_, n) => n % 256);
  const png = new Blob([bytes], { type: "image/png" });
  const bodies = [bytes, bytes.buffer, new Uint16Array([1, 2, 3]).subarray(1), new DataView(bytes.buffer, 2, 5), png, new Blob([bytes]), new File([bytes], "a photo.png", { type: "image/png" }), new Uint8Array(0)];
  const raw = (view) => String.fromCharCode(...new Uint8Array(view.buffer ?? view, view.byteOffset ?? 0, view.byteLength));
  const all = raw(bytes);
  const { url, mark } = t.at("/answer");
  const talk = t.conversation();
  h.equal((await t.send({ url }, ...bodies.map((body) => talk.message(body)))).map(({ status }) => status), bodies.map(() => "acknowledged"));
  const seen = await t.seen(mark);
  h.equal(seen.map(({ body }) => atob(body)), [all, all, raw(new Uint16Array([2, 3])), all.slice(2, 7), all, all, all, ""]);
  const octets = "application/octet-stream";
  h.equal(seen.map(({ headers }) => headers["content-type"]), [octets, octets, octets, octets, "image/png", octets, "image/png", octets]);
  h.equal((await t.send({ url }, talk.message(bytes, { headers: { "Content-Type": "application/protobuf" } })))[0].status, "acknowledged");
  h.equal((await t.seen(mark)).at(-1).headers["content-type"], "application/protobuf", "the message's own header says better what it is");
});

inPage("what JSON does not carry unchanged, and what is no header, is refused and not sent; the conversation goes on", async (h, pb, t) => {
  const { url, mark } = t.at("/answer");
  const talk = t.conversation();
  const cyclic = {};
  cyclic.self = cyclic;
  const bodies = { "body": new Map([["a", 1]]), "body.n": { n: 5n }, "body.at[0]": { at: [new Date(5)] }, "body.self": cyclic, "body.rate": { rate: NaN }, "body.note": { note: undefined }, "body.photo": { photo: new Blob(["x"]) } };
  for (const [path, body] of Object.entries(bodies)) {
    const [refused, next] = await t.send({ url }, talk.message(body), talk.message(1));
    h.equal([refused.status, refused.then ?? "error-queue", refused.httpStatus, next.status], ["refused", "error-queue", undefined, "acknowledged"], path);
    h.ok(Number.isInteger(refused.code) && refused.description.startsWith(`\`${path}\` `) && /JSON/.test(refused.description), `${path}: ${refused.description}`);
  }
  const twice = { n: 1 };
  h.equal((await t.send({ url }, talk.message([twice, twice])))[0].status, "acknowledged", "what stands in two places is the same in JSON");
  for (const name of ["", "two words", "naïve", "a:b", "a\nb"]) {
    const [refused] = await t.send({ url, onRefused: "end" }, talk.message(1, { headers: { fine: "1", [name]: "x" } }));
    h.equal([refused.status, refused.then ?? "error-queue"], ["refused", "error-queue"], name);
    h.ok(refused.description.includes(JSON.stringify(name)), refused.description);
  }
  h.equal((await t.send({ url }, talk.message(1, { body: "{}", bodyEncoding: "devalue" })))[0].status, "refused", "a body that nobody can read");
  h.equal((await t.seen(mark)).length, Object.keys(bodies).length + 1, "nothing of it was sent");
});

inPage("values of headers outside of printable ASCII are percent-encoded, so that decodeURIComponent gives them back", async (h, pb, t) => {
  const { url, mark } = t.at("/answer");
  const values = { a: "żółć 🎉 100% \"quoted\"", b: "two\r\nlines: x", c: " edges  ", d: "\u0000\u007f", e: "plain ~ !", f: "a%20b", g: "   " };
  h.equal((await t.send({ url }, t.conversation().message(1, { headers: values })))[0].status, "acknowledged");
  const [{ headers }] = await t.seen(mark);
  for (const key of ["a", "b", "c", "d", "g"]) h.equal(decodeURIComponent(headers[key]), values[key], key);
  h.equal([headers.e, headers.f, headers.lines], [values.e, values.f, undefined], "printable ASCII goes as it is");
});

inPage("nobody's headers take the place of ours", async (h, pb, t) => {
  const { url, mark } = t.at("/answer");
  const talk = t.conversation();
  const own = { "Idempotency-Key": "mine", "X-Message-Type": "Mine", "X-CONVERSATION-ID": "mine", Authorization: "mine" };
  await t.send({ url, headers: { "Idempotency-Key": "all the same", authorization: "fresh" } }, talk.message(1, { headers: own }));
  const [{ headers }] = await t.seen(mark);
  h.equal([headers["idempotency-key"], headers["x-message-type"], headers["x-conversation-id"], headers.authorization], [`${talk.conversationId}/i/0`, "Order", talk.conversationId, "fresh"]);
});

inPage("the answer table: what each status means", async (h, pb, t) => {
  const results = async (status, more = {}, options = {}) => {
    const { url, mark } = t.at("/answer", { status, ...more });
    const talk = t.conversation();
    const given = await t.send({ url, ...options }, talk.message(1), talk.message(2));
    return [...given, (await t.seen(mark)).length];
  };
  for (const status of [200, 201, 202, 204, 205, 206, 299, 409, 412]) h.equal(await results(status), [{ status: "acknowledged" }, { status: "acknowledged" }, 2], `${status}`);
  for (const status of [401, 403, 408, 425, 429, 500, 501, 502, 503, 504, 599]) {
    const [first, second, requests] = await results(status, { text: "As It Is" });
    h.equal([first.status, first.after, second.status], ["retry", undefined, "retry"], `${status}`);
    // After 408 some browsers send the request once more by themselves.
    h.ok(requests === 1 || status === 408, `${status}: ${requests} requests`);
    h.ok(first.reason.includes(`${status} (As It Is)`) && second.reason.length > 10, `${status}: ${first.reason} ${second.reason}`);
  }
  for (const status of [400, 402, 404, 405, 410, 411, 413, 415, 418, 422, 426, 428, 431, 451, 499]) {
    const refusal = { status: "refused", code: status, description: `The server answered ${status} (No): no such dish`, httpStatus: status, httpBody: "no such dish" };
    h.equal(await results(status, { text: "No", body: "no such dish" }), [{ ...refusal, then: "error-queue" }, { ...refusal, then: "error-queue" }, 2], `${status}`);
    const [first, second, requests] = await results(status, { text: "No", body: "no such dish" }, { onRefused: "end" });
    h.equal([first, second.status, requests], [{ ...refusal, then: "end" }, "retry", 1], `${status}, end`);
  }
  const [busy, , requests] = await results(409, { headers: { "Retry-After": "2" } });
  h.equal([busy.status, busy.after, requests], ["retry", 2_000, 1], "409 with Retry-After: the first attempt is still being worked on");
});

inPage("Retry-After: seconds or an instant, up to an hour, for every answer that means later", async (h, pb, t) => {
  const after = async (value, status = 503, more = {}) => {
    const { url } = t.at("/answer", { status, headers: { "Retry-After": value, ...more } });
    const [result] = await t.send({ url }, t.conversation().message(1));
    h.equal(result.status, "retry");
    return result.after;
  };
  h.equal([await after("120"), await after("1.5"), await after("86400"), await after(" 7 ", 429), await after("9", 401)], [120_000, 1_500, 3_600_000, 7_000, 9_000]);
  for (const none of ["0", "", "soon", "-5", "5 minutes", "1e9", "Infinity", "NaN", new Date(Date.now() - 60_000).toUTCString()]) h.equal(await after(none), undefined, none);
  const date = new Date(Math.floor(Date.now() / 1_000) * 1_000);
  const in90 = await after(new Date(Number(date) + 90_000).toUTCString());
  h.ok(in90 > 80_000 && in90 <= 92_000, `${in90}`);
  h.equal(await after("Wed, 01 Jan 2020 00:01:30 GMT", 503, { Date: "Wed, 01 Jan 2020 00:00:00 GMT" }), 90_000, "by the server's clock, whatever ours shows");
  h.equal(await after(new Date(Date.now() + 1e9).toUTCString()), 3_600_000);
  const { url } = t.at("/answer", { status: 503, headers: { "Retry-After": "30" } });
  const talk = t.conversation();
  h.equal((await t.send({ url }, talk.message(1), talk.message(2))).map(({ after }) => after), [30_000, 30_000]);
});

inPage("no answer means another attempt: a connection that is cut, a server that is not there, an answer that the page may not read", async (h, pb, t) => {
  const one = async (path, parameters) => (await t.send({ url: path.startsWith("http") ? path : t.at(path, parameters).url }, t.conversation().message(1)))[0];
  for (const [path, parameters] of [["/drop"], ["/drop", { after: 1 }], [t.gone], ["/nocors"]]) {
    const result = await one(path, parameters);
    h.equal([result.status, result.after], ["retry", undefined], path);
    h.ok(/CORS/.test(result.reason) && result.reason.length > 60, result.reason);
  }
  const cut = await one("/drop", { middle: 1 });
  h.equal(cut.status, "retry", "200, and an answer that breaks off: there may be a message in it");
  h.match(cut.reason, /broke off/);
  const refused = await one("/drop", { middle: 1, status: 422 });
  h.equal([refused.status, refused.httpStatus], ["refused", 422], "a refusal is one without its whole text, too");
  h.ok('{"messageType":'.startsWith(refused.httpBody), refused.httpBody);
});

inPage("redirects are not followed: the page that one leads to would say 200", async (h, pb, t) => {
  for (const status of [301, 302, 303, 307, 308]) {
    const { url, mark } = t.at("/loop", { status });
    const [result] = await t.send({ url }, t.conversation().message(1));
    h.equal([result.status, (await t.seen(mark)).length], ["retry", 1], `${status}`);
    h.match(result.reason, /redirect/);
  }
  const { url } = t.at("/loop", {});
  const [result] = await t.send({ url, request: () => ({ redirect: "follow" }) }, t.conversation().message(1));
  h.equal(result.status, "retry", "a loop, for who wants to follow them");
});

inPage("an answer in JSON with a messageType is a message on the conversation; no other is", async (h, pb, t) => {
  const json = { "Content-Type": "application/json; charset=utf-8" };
  const replyTo = async (body, headers = json, more = {}) => {
    const [result] = await t.send({ url: t.at("/answer", { headers, body: typeof body === "string" ? body : JSON.stringify(body), ...more }).url }, t.conversation().message(1));
    h.equal(result.status, "acknowledged", JSON.stringify(result));
    return result.reply;
  };
  h.equal(await replyTo({ messageType: "Confirmed", body: { minutes: 5, text: "żółć 🎉" }, more: 1 }), { messageType: "Confirmed", body: { minutes: 5, text: "żółć 🎉" } });
  h.equal(await replyTo({ messageType: "Confirmed" }, { "Content-Type": "application/vnd.shop+json" }), { messageType: "Confirmed" });
  h.equal(await replyTo({ messageType: "Confirmed", body: null }), { messageType: "Confirmed", body: null });
  for (const none of ["", "{", "<!doctype html><title>Welcome</title>", "[]", "null", "5", "{}", { messageType: 5 }, { messageType: null }, { body: 1 }, [{ messageType: "Confirmed" }], '{"__proto__":{"messageType":"Confirmed"}}']) h.equal(await replyTo(none), undefined, JSON.stringify(none));
  for (const type of ["text/html", "text/plain", "application/jsonx", ""]) h.equal(await replyTo({ messageType: "Confirmed" }, type === "" ? {} : { "Content-Type": type }), undefined, type);
  h.equal(await replyTo({ messageType: "Confirmed" }, json, { status: 409 }), undefined, "409 says that it was there, not what was answered");
  h.equal(await replyTo(`{"messageType":"Big","body":"${"x".repeat(1_000)}"}`, json, { size: 5 * 1024 * 1024 }), undefined, "more than 4 MiB");
});

inPage("hostile answers: long ones are not read to their end, pages are not quoted, half a character is none", async (h, pb, t) => {
  const one = async (parameters) => (await t.send({ url: t.at("/answer", parameters).url, timeout: 20_000 }, t.conversation().message(1)))[0];
  const long = await one({ status: 422, size: 64 * 1024 * 1024 });
  h.equal([long.status, long.httpBody, long.description.length < 1_100], ["refused", "x".repeat(4_096), true]);
  const page = "<!doctype html><h1>Not found</h1>";
  const html = await one({ status: 404, text: "Not Found", headers: { "Content-Type": "text/html" }, body: page });
  h.equal([html.description, html.httpBody], ["The server answered 404 (Not Found).", page]);
  const half = await one({ status: 400, body: `${"x".repeat(4_095)}ż` });
  h.equal(half.httpBody, "x".repeat(4_095));
  const emoji = await one({ status: 400, body: `${"x".repeat(999)}🎉` });
  h.equal([emoji.description.isWellFormed?.() ?? true, emoji.description.endsWith("x")], [true, true]);
  const bytes = await one({ status: 400, base64: btoa("\xff\xfe\x00ok") });
  h.equal([bytes.httpBody.endsWith("ok"), bytes.httpBody.isWellFormed?.() ?? true], [true, true]);
  const begun = performance.now();
  // Firefox waits for the first of it to see what it is.
  const endless = { headers: { "Content-Type": "application/octet-stream" }, size: 10_000, endless: 1 };
  h.equal((await one({ status: 200, ...endless })).status, "acknowledged", "an answer that never ends, and that nobody needs");
  h.equal((await one({ status: 503, ...endless })).status, "retry");
  h.ok(performance.now() - begun < 5_000, "nobody waited for its end");
});

inPage("EndDialog and Error are acknowledged on the spot, unless `request` asks for them", async (h, pb, t) => {
  const { url, mark } = t.at("/answer");
  const talk = t.conversation();
  const end = { messageType: pb.SystemMessage.EndDialog };
  const error = { messageType: pb.SystemMessage.Error };
  h.equal(await t.send({ url }, talk.message(1), talk.message(undefined, end), talk.message({ code: 1, description: "d" }, error)), [1, 2, 3].map(() => ({ status: "acknowledged" })));
  h.equal((await t.seen(mark)).map(({ headers }) => headers["idempotency-key"]), [`${talk.conversationId}/i/0`]);
  const asked = [];
  const request = async (envelope) => { asked.push(envelope.messageType); return envelope.messageType === "Order" ? null : {}; };
  h.equal(await t.send({ url, request }, talk.message(1), talk.message(undefined, end), talk.message({ code: 1, description: "d" }, error)), [1, 2, 3].map(() => ({ status: "acknowledged" })));
  const seen = (await t.seen(mark)).slice(1);
  h.equal([asked, seen.map(({ headers }) => headers["x-message-type"]), t.text(seen[1].body)], [["Order", end.messageType, error.messageType], [end, error].map(({ messageType }) => encodeURI(messageType)), '{"code":1,"description":"d"}']);
});

inPage("`request`: what of a RequestInit is given replaces what would be sent; a Request goes as it is, with an Idempotency-Key", async (h, pb, t) => {
  const { url, mark } = t.at("/answer");
  const talk = t.conversation();
  const key = (n) => `${talk.conversationId}/i/${n}`;
  const one = async (request, ...more) => { const [result] = await t.send({ url, request }, talk.message(...more)); return [result, (await t.seen(mark)).at(-1)]; };
  let [result, seen] = await one(() => ({ method: "PUT", headers: { "X-Own": "1", "X-Message-Type": "Other" } }), { n: 1 });
  h.equal([result.status, seen.method, seen.headers["x-own"], seen.headers["x-message-type"], seen.headers["idempotency-key"], seen.headers["content-type"], t.text(seen.body)], ["acknowledged", "PUT", "1", "Other", key(0), "application/json", '{"n":1}']);
  [result, seen] = await one(({ body }) => ({ headers: { "Content-Type": "text/x-devalue" }, body }), new Map([["a", 1]]));
  h.equal([result.status, seen.headers["content-type"], t.text(seen.body).includes("Map")], ["acknowledged", "text/x-devalue", true], "a body of its own is not asked whether JSON carries it");
  [result, seen] = await one(async () => ({ method: "GET" }), { n: 2 });
  h.equal([result.status, seen.method, seen.body, seen.headers["idempotency-key"]], ["acknowledged", "GET", "", key(2)]);
  const form = new FormData();
  form.set("dish", "soup");
  [result, seen] = await one(() => ({ body: form }), 1);
  h.ok(result.status === "acknowledged" && /^multipart\/form-data; boundary=/.test(seen.headers["content-type"]) && t.text(seen.body).includes("soup"), JSON.stringify(seen.headers));
  const elsewhere = t.at("/answer", { status: 201 });
  [result] = await one(({ sequence }) => new Request(elsewhere.url, { method: "PATCH", body: `n=${sequence}`, headers: { "Content-Type": "text/plain" } }), 1);
  const [patched] = await t.seen(elsewhere.mark);
  h.equal([result.status, patched.method, t.text(patched.body), patched.headers["idempotency-key"], patched.headers["x-message-type"]], ["acknowledged", "PATCH", "n=4", key(4), undefined]);
  await one(() => new Request(elsewhere.url, { method: "POST", headers: { "Idempotency-Key": "own" } }), 1);
  h.equal((await t.seen(elsewhere.mark))[1].headers["idempotency-key"], "own");
});

inPage("what the application's functions throw means another attempt, with their text", async (h, pb, t) => {
  const { url, mark } = t.at("/answer", { headers: { "Content-Type": "text/plain" }, body: "fine" });
  const one = async (options) => (await t.send({ url, ...options }, t.conversation().message(1)))[0];
  const broken = () => { throw new RangeError("no token yet"); };
  const cases = [[{ request: broken }, /RangeError: no token yet/], [{ request: async () => broken() }, /no token yet/], [{ headers: broken }, /no token yet/], [{ headers: async () => ({ a: "żółć" }) }, /./], [{ request: () => undefined }, /undefined/],
    [{ request: () => "POST" }, /string/], [{ request: () => ({ method: "CONNECT" }) }, /request/], [{ request: () => ({ headers: { "a b": "c" } }) }, /./]];
  for (const [options, text] of cases) {
    const result = await one(options);
    h.equal(result.status, "retry");
    h.match(result.reason, text);
  }
  h.equal((await t.seen(mark)).length, 0);
  for (const reply of [broken, async () => 5, async () => ({ messageType: 5 })]) {
    const result = await one({ reply });
    h.equal(result.status, "retry", "it was accepted; the same key makes the repeat harmless");
  }
  const texts = [];
  const kept = await one({ reply: async (response, envelope) => { texts.push(await response.text(), envelope.messageType); return { body: new Map([["a", 1]]) }; } });
  h.equal([kept, texts], [{ status: "acknowledged", reply: { body: new Map([["a", 1]]) } }, ["fine", "Order"]]);
  h.equal(await one({ reply: async () => {} }), { status: "acknowledged" });
  h.equal(await one({ reply: async () => ({ messageType: "Confirmed", body: 1 }) }), { status: "acknowledged", reply: { messageType: "Confirmed", body: 1 } });
});

inPage("headers are asked for before each request, and `fetch` may be another one", async (h, pb, t) => {
  const { url, mark } = t.at("/answer");
  const talk = t.conversation();
  let token = 0;
  const calls = [];
  const own = async (input, init) => { calls.push([input, init.method, init.signal instanceof AbortSignal]); return fetch(input, init); };
  await t.send({ url, headers: async () => new Headers({ Authorization: `Bearer ${token += 1}` }), fetch: own }, talk.message(1), talk.message(2));
  h.equal((await t.seen(mark)).map(({ headers }) => headers.authorization), ["Bearer 1", "Bearer 2"]);
  h.equal(calls, [[url, "POST", true], [url, "POST", true]]);
  const [late] = await t.send({ url, headers: () => new Promise(() => {}), timeout: 50 }, talk.message(1));
  h.equal(late.status, "retry");
  h.match(late.reason, /50 ms/);
});

inPage("messages of a conversation go one after the other, and what is behind one that failed is not sent", async (h, pb, t) => {
  const log = [];
  const statuses = [200, 422, 200, 503, 200];
  const fetch = async (_, { headers }) => {
    const n = Number(headers.get("idempotency-key").split("/")[2]);
    log.push(`begin ${n}`);
    await new Promise((resolve) => { setTimeout(resolve); });
    log.push(`end ${n}`);
    return new Response(null, { status: statuses[n] });
  };
  const talk = t.conversation();
  const results = await t.send({ url: "/x", fetch }, ...statuses.map((n) => talk.message(n)));
  h.equal(results.map(({ status }) => status), ["acknowledged", "refused", "acknowledged", "retry", "retry"]);
  h.equal(log, [0, 1, 2, 3].flatMap((n) => [`begin ${n}`, `end ${n}`]));
  h.equal(await t.send({ url: "/x", fetch }), [], "nothing to send");
  const one = t.conversation();
  const two = t.conversation();
  const mixed = await t.send({ url: "/x", fetch: async (_, { headers }) => new Response(null, { status: headers.get("x-conversation-id") === one.conversationId ? 503 : 200 }) }, one.message(1), two.message(1), one.message(2), two.message(2));
  h.equal(mixed.map(({ status }) => status), ["retry", "acknowledged", "retry", "acknowledged"], "each conversation for itself");
});

inPage("at most four requests are under way at once to one origin, over all transports; other origins have their own four", async (h, pb, t) => {
  const ids = Array.from({ length: 10 }, () => crypto.randomUUID());
  const mark = crypto.randomUUID();
  const under = async () => (await t.seen(mark)).length;
  const base = new URL(t.at("/hold").url).origin;
  const sending = ids.map(async (id) => t.send({ url: `${base}/hold?id=${id}&${mark}` }, t.conversation().message(id)));
  await h.until(async () => (await under()) === 4, "four requests");
  const elsewhere = t.at("/answer");
  const other = new URL(elsewhere.url);
  other.hostname = "localhost";
  h.equal((await t.send({ url: other.href }, t.conversation().message(1)))[0].status, "acknowledged", "another origin is not held up");
  h.equal(await under(), 4);
  for (const [n, id] of ids.entries()) {
    await t.release(id);
    await sending[n];
    h.ok((await under()) <= n + 5, "one more for each that is over");
  }
  h.equal([(await Promise.all(sending)).flat().map(({ status }) => status), await under()], [ids.map(() => "acknowledged"), 10]);
});

inPage("an aborted call sends nothing more, gives its places up, and says what had arrived", async (h, pb, t) => {
  const base = new URL(t.at("/hold").url).origin;
  const mark = crypto.randomUUID();
  const controllers = Array.from({ length: 6 }, () => new AbortController());
  const transport = t.httpTransport({ url: `${base}/hold?id=never&${mark}` });
  const sending = controllers.map(async ({ signal }) => { const talk = t.conversation(); return transport.send([await talk.message(1), await talk.message(2)], { signal }); });
  await h.until(async () => (await t.seen(mark)).length === 4, "four requests");
  for (const controller of controllers) controller.abort(new Error("closed"));
  const results = (await Promise.all(sending)).flat();
  h.ok(results.length === 12 && results.every(({ status }) => status === "retry"), JSON.stringify(results));
  h.match(results[0].reason, /closed/);
  await h.until(async () => (await t.seen(mark)).every(({ isCut }) => isCut), "the requests to be cut");
  h.equal((await t.seen(mark)).length, 4);
  const { url } = t.at("/answer");
  h.equal((await Promise.all(Array.from({ length: 8 }, async () => t.send({ url }, t.conversation().message(1))))).flat().map(({ status }) => status), Array.from({ length: 8 }, () => "acknowledged"), "the places are free");
  const talk = t.conversation();
  const controller = new AbortController();
  const fetch = async (_, { headers, signal }) => {
    if (headers.get("idempotency-key").endsWith("/0")) return new Response(null, { status: 204 });
    controller.abort(new Error("closed"));
    return new Promise((_, reject) => { signal.addEventListener("abort", () => reject(signal.reason)); });
  };
  const mixed = await t.httpTransport({ url: "/x", fetch }).send([await talk.message(1), await talk.message(2), await talk.message(3)], { signal: controller.signal });
  h.equal(mixed.map(({ status }) => status), ["acknowledged", "retry", "retry"]);
  h.equal((await t.httpTransport({ url }).send([await talk.message(1)], { signal: AbortSignal.abort(new Error("closed")) }))[0].status, "retry");
});

inPage("a request that takes longer than `timeout` is cut, and tried again later, also by a fetch that heeds no signal", async (h, pb, t) => {
  const { url, mark } = t.at("/hold", { id: "never" });
  const [first, second] = await t.send({ url, timeout: 300 }, ...((talk) => [talk.message(1), talk.message(2)])(t.conversation()));
  h.equal([first.status, second.status], ["retry", "retry"]);
  h.match(first.reason, /300 ms/);
  await h.until(async () => (await t.seen(mark))[0].isCut, "the request to be cut");
  h.equal((await t.seen(mark)).length, 1);
  const [deaf] = await t.send({ url: "/x", timeout: 20, fetch: () => new Promise(() => {}) }, t.conversation().message(1));
  h.equal(deaf.status, "retry");
  const [slow] = await t.send({ url: "/x", timeout: 20, reply: () => new Promise(() => {}), fetch: async () => new Response("x") }, t.conversation().message(1));
  h.equal(slow.status, "retry", "an answer that is not read in time");
});

inPage("a long batch is given back in time: what was not begun is told apart, and goes at once with the next call", async (h, pb, t) => {
  let now = 0;
  h.patch(performance, "now", () => () => now);
  const fetch = async () => { now += 29_000; return new Response(null, { status: 200 }); };
  const talk = t.conversation();
  const results = await t.send({ url: "/x", fetch }, ...Array.from({ length: 6 }, (_, n) => talk.message(n)));
  h.equal(results.map(({ status, after }) => `${status} ${after}`), ["acknowledged undefined", "acknowledged undefined", "acknowledged undefined", "retry 0", "retry 0", "retry 0"]);
  h.match(results[3].reason, /Not sent yet/);
  now = 0;
  h.equal((await t.send({ url: "/x", fetch, timeout: 3_600_000 }, talk.message(1), talk.message(2))).map(({ status }) => status), ["acknowledged", "retry"], "the first is sent whatever its time");
});

/** `httpTransport` with the envelope protocol, on its own: acknowledgements, envelopes that come with answers, and what goes back. */
import { after } from "node:test";
import { allowErrors, inPage as inPageOf, inPageAndWorkers as inPageAndWorkersOf } from "./fixtures/harness.mjs";
import { serveScripted } from "./fixtures/scripted-endpoint.mjs";

const endpoint = await serveScripted();
after(() => endpoint.close());
allowErrors(endpoint.url);

/**
 * A body of a test gets `t`: `link(answers)` is a transport whose server gives these answers one after the other, each a status, a Response, or an array of envelopes
 * (or a function of what was posted that gives one), and remembers in `posts` what came.
 */
const given = (body) => `async (h, pb) => {
  const t = { ...await import("/pkg/dist/http.js"), ...await import("/fixtures/envelopes.mjs") };
  t.link = (...answers) => {
    const posts = [];
    const fetch = async (url, init) => {
      const posted = JSON.parse(init.body);
      posts.push(posted);
      let answer = answers.length > 1 ? answers.shift() : answers[0];
      if (typeof answer === "function") answer = await answer(posted);
      if (typeof answer === "number") return new Response("as it is", { status: answer });
      return answer instanceof Response ? answer : new Response(JSON.stringify(answer), { headers: { "Content-Type": "application/json" } });
    };
    const transport = t.httpTransport({ url: "/wire", protocol: "envelope", fetch });
    return { posts, transport, send: async (...messages) => transport.send(await Promise.all(messages), t.context()) };
  };
  t.listen = (transport, deliver) => {
    const listener = new AbortController();
    const delivered = [];
    transport.listen((envelopes) => { delivered.push(envelopes); return deliver(envelopes); }, { services: [], instanceId: t.US, signal: listener.signal, offerAgain() {} });
    return { delivered, stop: () => listener.abort(new Error("closed")) };
  };
  t.at = (path, parameters) => t.scripted("${endpoint.url}", path, parameters);
  t.seen = async (mark) => (await t.seenBy("${endpoint.url}", mark)).requests;
  await (${body})(h, pb, t);
}`;
const inPage = (title, body) => inPageOf(title, given(body));
const inPageAndWorkers = (title, body) => inPageAndWorkersOf(title, given(body));

inPageAndWorkers("envelopes are POSTed as a JSON array, and the acknowledgements in the answer are the results", async (h, pb, t) => {
  const talk = t.conversation();
  const messages = await Promise.all([talk.message({ n: 1 }), talk.message(new Map([["a", 1n]])), talk.message(new Uint8Array([1, 2]), { headers: { "no token": "żółć" } }), talk.message(undefined, { messageType: pb.SystemMessage.EndDialog })]);
  const body = [talk.acknowledgement(3)];
  const { url, mark } = t.at("/answer", { headers: { "Content-Type": "application/json" }, body });
  const transport = t.httpTransport({ url, protocol: "envelope", headers: async () => ({ Authorization: "Bearer x" }) });
  h.equal(await transport.send(messages, t.context()), messages.map(() => ({ status: "acknowledged", upTo: 3, fromBroker: t.THEM })));
  const [{ method, headers, body: sent }] = await t.seen(mark);
  h.equal([method, headers["content-type"], headers.authorization, JSON.parse(new TextDecoder().decode(Uint8Array.from(atob(sent), (one) => one.charCodeAt(0))))], ["POST", "application/json", "Bearer x", messages]);
});

inPage("what the answer does not acknowledge was accepted; an acknowledgement of something else is none", async (h, pb, t) => {
  const talk = t.conversation();
  const results = async (...acknowledgements) => (await t.link(acknowledgements).send(talk.message(1, { sequence: 5 }), talk.message(2, { sequence: 6, toBroker: t.THEM }))).map(({ status, upTo }) => `${status} ${upTo ?? ""}`.trim());
  h.equal(await results(), ["accepted", "accepted"]);
  h.equal(await results(talk.acknowledgement(5)), ["acknowledged 5", "accepted"]);
  h.equal(await results(talk.acknowledgement(5), talk.acknowledgement(6)), ["acknowledged 6", "acknowledged 6"]);
  h.equal(await results(talk.acknowledgement(9)), ["acknowledged 9", "acknowledged 9"], "the broker knows what it has handed over");
  const others = [{ fromInitiator: false }, { conversationId: crypto.randomUUID() }, { toBroker: t.THEM }, { v: 2 }, { kind: "message" }, { sequence: "6" }, { sequence: 6.5 }, { sequence: -1 }, { sequence: null }, { fromBroker: 5 }];
  for (const other of others) h.equal(await results(talk.acknowledgement(6, other)), ["accepted", "accepted"], JSON.stringify(other));
  h.equal(await results(talk.acknowledgement(6, { fromBroker: t.US })), ["acknowledged 6", "accepted"], "only the broker that a message is for acknowledges it");
  h.equal(await results(null, 5, "text", [], [talk.acknowledgement(6)]), ["accepted", "accepted"]);
});

inPage("what is no array of envelopes is no acknowledgement; refusals end the conversation", async (h, pb, t) => {
  const results = async (answer) => { const talk = t.conversation(); const { send, posts } = t.link(answer); return [...await send(talk.message(1), talk.message(2)), posts.length]; };
  const html = () => new Response("<!doctype html><title>Welcome</title>", { headers: { "Content-Type": "text/html" } });
  for (const answer of [html, () => new Response("{\"acknowledged\":true}"), () => new Response("[1,"), () => new Response(""), () => new Response(null, { status: 204 }), () => new Response("null"), () => new Response("\"[]\"")]) {
    const [first, second, posts] = await results(answer);
    h.equal([first.status, second.status, posts], ["retry", "retry", 1]);
    h.match(first.reason, /no JSON array/);
  }
  const [long] = await results(() => new Response(`[${"\n".repeat(17 * 1024 * 1024)}]`));
  h.equal(long.status, "retry");
  h.match(long.reason, /bytes/);
  for (const status of [401, 403, 408, 425, 429, 500, 503]) h.equal((await results(() => new Response("as it is", { status, headers: { "Retry-After": "7" } }))).map(({ status, after }) => `${status} ${after}`).slice(0, 2), ["retry 7000", "retry 7000"], `${status}`);
  for (const status of [400, 404, 409, 412, 422]) {
    const refusal = { status: "refused", code: status, description: `The server answered ${status}: as it is`, then: "end", httpStatus: status, httpBody: "as it is" };
    h.equal(await results(status), [refusal, refusal, 1]);
  }
  const [cut] = await results(() => { throw new TypeError("Failed to fetch"); });
  h.equal(cut.status, "retry");
  h.match(cut.reason, /CORS/);
  h.equal((await t.httpTransport({ url: t.at("/loop").url, protocol: "envelope" }).send([await t.conversation().message(1)], t.context()))[0].status, "retry");
});

inPage("a request that is too large is sent in halves, in order, and only what is too large by itself is refused", async (h, pb, t) => {
  const talk = t.conversation();
  const small = (posted) => (posted.length > 2 || posted.some(({ body }) => body === "huge") ? 413 : [talk.acknowledgement(Math.max(...posted.map(({ sequence }) => sequence)))]);
  const { send, posts } = t.link(small);
  h.equal((await send(...[1, 2, 3, 4, 5].map((n) => talk.message(n)))).map(({ status }) => status), Array.from({ length: 5 }, () => "acknowledged"));
  h.equal(posts.filter((posted) => posted.length <= 2).flat().map(({ sequence }) => sequence), [0, 1, 2, 3, 4]);
  const next = ["a", "b", "huge", "c"];
  h.equal((await send(...next.map((body) => talk.message(body)))).map(({ status }) => status), ["acknowledged", "acknowledged", "refused", "retry"]);
});

inPage("envelopes in an answer are handed to the broker, one answer after the other, acknowledgements first; what is new is acknowledged at once", async (h, pb, t) => {
  const talk = t.conversation();
  const far = t.conversation({ conversationId: talk.conversationId, fromInitiator: false, fromBroker: t.THEM, toBroker: t.US });
  const reply = await far.message({ minutes: 5 });
  const second = await far.message({ minutes: 4 });
  const { send, posts, transport } = t.link([reply, talk.acknowledgement(0)], [second, { odd: true }], []);
  h.equal(await send(talk.message(1)), [{ status: "acknowledged", upTo: 0, fromBroker: t.THEM }], "nobody listens yet: the server gives it again");
  const fresh = t.link([reply, talk.acknowledgement(1)], [second, { odd: true }], []);
  const { delivered, stop } = t.listen(fresh.transport, async (envelopes) => envelopes.map((envelope) => (envelope.kind === "message" ? { status: "stored", acknowledgement: far.acknowledgement(envelope.sequence, { fromBroker: t.US, toBroker: t.THEM }) } : { status: "refused", reason: "odd" })));
  await fresh.send(talk.message(2));
  await h.until(() => fresh.posts.length === 3, "both acknowledgements");
  h.equal(delivered, [[talk.acknowledgement(1), reply], [{ odd: true }, second]]);
  h.equal(fresh.posts.slice(1), [0, 1].map((sequence) => [far.acknowledgement(sequence, { fromBroker: t.US, toBroker: t.THEM })]));
  stop();
  h.equal([posts.length, transport === fresh.transport], [1, false]);
});

inPage("what is only repeated, or refused, is answered with the next request: a server that heeds nothing makes no endless loop", async (h, pb, t) => {
  const far = t.conversation({ fromInitiator: false, fromBroker: t.THEM, toBroker: t.US });
  const message = await far.message(1);
  const strange = await t.conversation({ fromBroker: t.THEM, toBroker: t.US }).message(2);
  const error = await t.conversation({ conversationId: strange.conversationId, fromInitiator: false, toBroker: t.THEM }).message({ code: -8490, description: "no such service" }, { messageType: pb.SystemMessage.Error });
  const { send, posts, transport } = t.link((posted) => [message, strange, ...posted.filter(({ kind }) => kind === "message").map((each) => t.conversation(each).acknowledgement(each.sequence))]);
  const acknowledgement = far.acknowledgement(0, { fromBroker: t.US, toBroker: t.THEM });
  let handed;
  const { delivered, stop } = t.listen(transport, async (envelopes) => {
    handed?.();
    return envelopes.map((each) => (each.messageId === message.messageId ? { status: "repeated", acknowledgement } : each.messageId === strange.messageId ? { status: "refused", reason: "no such service", reply: error } : { status: "refused", reason: "unknown" }));
  });
  const own = t.conversation();
  for (let n = 1; n <= 3; n += 1) {
    const heard = new Promise((resolve) => { handed = resolve; });
    await send(own.message(n));
    await heard;
    await new Promise((resolve) => { setTimeout(resolve); });
    h.equal([posts.length, delivered.length], [n, n], "one request for each call");
  }
  h.equal(posts[0].length, 1);
  h.equal(posts[2].slice(0, 2), [acknowledgement, error], "each once, however often it came");
  stop();
});

inPage("what goes back waits for the next request when it does not arrive, and is given up when the server refuses it", async (h, pb, t) => {
  const far = t.conversation({ fromInitiator: false, fromBroker: t.THEM, toBroker: t.US });
  const messages = await Promise.all([far.message(1), far.message(2)]);
  const own = t.conversation();
  const acknowledge = (sequence) => far.acknowledgement(sequence, { fromBroker: t.US, toBroker: t.THEM });
  const refuses = (posted) => (posted.some(({ kind }) => kind === "acknowledgement") ? 400 : [own.acknowledgement(3)]);
  const { send, posts, transport } = t.link([own.acknowledgement(0), messages[0]], 503, 503, [own.acknowledgement(1), messages[1]], 503, refuses);
  const { stop } = t.listen(transport, async (envelopes) => envelopes.map((each) => (each.kind === "message" ? { status: "stored", acknowledgement: acknowledge(each.sequence) } : { status: "refused", reason: "done already" })));
  await send(own.message(0));
  await h.until(() => posts.length === 2, "the acknowledgement, which gets 503");
  h.equal((await send(own.message(1, { sequence: 1 })))[0].status, "retry");
  h.equal((await send(own.message(1, { sequence: 1 })))[0].status, "acknowledged");
  await h.until(() => posts.length === 5, "the next one");
  h.equal(posts.slice(1).map((posted) => posted.map(({ kind, sequence }) => `${kind} ${sequence}`)), [["acknowledgement 0"], ["acknowledgement 0", "message 1"], ["acknowledgement 0", "message 1"], ["acknowledgement 1"]]);
  h.equal((await send(own.message(2, { sequence: 2 })))[0].status, "acknowledged", "it is not the message that was refused");
  h.equal(posts.slice(5).map((posted) => posted.map(({ kind }) => kind)), [["acknowledgement", "message"], ["message"]]);
  stop();
});

inPage("what the broker wants later is handed in again then, in its order, as long as it listens", async (h, pb, t) => {
  const far = t.conversation({ fromInitiator: false, fromBroker: t.THEM, toBroker: t.US });
  const messages = await Promise.all([far.message(1), far.message(2), far.message(3)]);
  const waits = [];
  const timers = [];
  h.patch(globalThis, "setTimeout", (original) => (work, ms, ...more) => (ms >= 500 && ms < 20_000 ? timers.push(work) && waits.push(ms) : original(work, ms, ...more)));
  const { send, transport } = t.link([...messages, t.conversation().acknowledgement(0)]);
  let isReady = false;
  const deliver = async (envelopes) => envelopes.map((each) => (each.kind !== "message" || each.sequence === 1 ? { status: "stored", acknowledgement: null } : isReady ? { status: "stored", acknowledgement: null } : { status: "later", after: each.sequence === 2 ? 1_500 : undefined, reason: "busy" }));
  const { delivered, stop } = t.listen(transport, deliver);
  await send(t.conversation().message(1));
  await h.until(() => timers.length === 1, "a timer");
  h.equal(waits, [1_500]);
  timers.shift()();
  await h.until(() => timers.length === 1, "another one");
  h.equal([delivered.length, delivered[1], waits], [2, [messages[0], messages[2]], [1_500, 2_000]]);
  isReady = true;
  timers.shift()();
  await h.until(() => delivered.length === 3);
  h.equal(delivered[2], [messages[0], messages[2]]);
  isReady = false;
  await send(t.conversation().message(1));
  await h.until(() => timers.length === 1);
  stop();
  timers.shift()();
  await send(t.conversation().message(1));
  await new Promise((resolve) => { setTimeout(resolve); });
  h.equal([delivered.length, timers.length], [4, 0], "nobody listens any more");
});

inPage("a broker that can't take an envelope now does not stop the transport; a listener that comes later takes the place of the first", async (h, pb, t) => {
  const far = t.conversation({ fromInitiator: false, fromBroker: t.THEM, toBroker: t.US });
  const message = await far.message(1);
  const own = t.conversation();
  const { send, transport } = t.link((posted) => [message, ...posted.filter(({ kind }) => kind === "message").map(({ sequence }) => own.acknowledgement(sequence))]);
  const first = t.listen(transport, async () => { throw new Error("closed"); });
  h.equal((await send(own.message(1)))[0].status, "acknowledged");
  await h.until(() => first.delivered.length === 1);
  const second = t.listen(transport, async (envelopes) => envelopes.map(() => ({ status: "repeated", acknowledgement: null })));
  first.stop();
  h.equal((await send(own.message(2)))[0].status, "acknowledged");
  await h.until(() => second.delivered.length === 1);
  h.equal([first.delivered.length, second.delivered[0].length], [1, 2]);
  second.stop();
});

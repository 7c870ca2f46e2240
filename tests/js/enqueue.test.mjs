/** `enqueue` and its lanes, as a page sees them. */
import { inPage } from "./fixtures/harness.mjs";

// d24.
inPage("enqueue: the short way in, with headers, key and priority", async (h) => {
  const broker = await h.open({ definitions: { queues: { jobs: {} } } });
  const body = { at: new Date(5), list: [1n] };
  const id = await broker.enqueue("jobs", body, { key: "order 7", priority: 8, headers: { tenant: "a" } });
  body.list.length = 0;
  await broker.enqueue("jobs");
  const [first, second] = await broker.select("jobs", { status: 1 }).toArray();
  h.equal([first.messageId, first.body, first.key, first.priority, first.headers], [id, { at: new Date(5), list: [1n] }, "order 7", 8, { tenant: "a" }]);
  h.equal([first.messageTypeName, first.serviceName, first.serviceContractName, first.validation, first.messageSequenceNumber], ["DEFAULT", "jobs", "DEFAULT", "N", 0]);
  h.equal([second.body, second.key, second.priority, second.headers], [undefined, null, 5, {}]);
  const lane = await broker.conversation(first).info();
  h.equal([lane.key, lane.isInitiator, lane.service, lane.state, lane.priority], ["order 7", false, "jobs", "CO", 8]);
  h.equal(await broker.transaction(async (tx) => h.bodies(await tx.receive("jobs"))), [{ at: new Date(5), list: [1n] }]);
  h.equal(await broker.conversation(first).info(), null, "an empty lane is gone");
  await h.rejects(broker.send(second, "DEFAULT", "an answer"), { code: "InvalidState" });
  h.equal((await broker.receive("jobs")).length, 1);
  h.equal(await broker.conversations().toArray(), []);
});

inPage("enqueueMany: one id each, in order; ordered: false goes side by side", async (h) => {
  const broker = await h.open({ definitions: { queues: { jobs: {} } } });
  const ids = await broker.enqueueMany("jobs", ["a", undefined, { n: 1 }], { key: "k", headers: { h: "1" } });
  const rows = await broker.receive("jobs");
  h.equal([rows.map((row) => row.messageId), h.bodies(rows), rows.map((row) => row.headers.h)], [ids, ["a", undefined, { n: 1 }], ["1", "1", "1"]]);
  h.equal(await broker.enqueueMany("jobs", []), []);
  await broker.enqueueMany("jobs", Array.from({ length: 64 }, (_, n) => n), { ordered: false });
  h.equal((await broker.conversations().toArray()).length, 16);
  const found = [];
  for (let batch; (batch = await broker.receive("jobs")).length > 0;) found.push(...h.bodies(batch));
  h.equal(found.sort((a, b) => a - b), Array.from({ length: 64 }, (_, n) => n));
});

// d30.
inPage("what enqueue refuses, and nothing is stored", async (h) => {
  const broker = await h.open({ definitions: { queues: { jobs: {} } } });
  const lost = await h.rejects(broker.enqueue("jbos", 1), { code: "QueueNotFound" });
  h.match(lost.message, /jbos/);
  const wrong = {
    key: ["\ud800", 5, null], priority: [0, 11, 1.5, "5"], ordered: [0], dedupeId: ["\udc00", 7], dedupeWindow: [-1, NaN, Infinity], headers: [{ Retries: "1" }, { a: 1 }], misspelt: [1],
  };
  for (const [option, values] of Object.entries(wrong)) {
    for (const value of values) await h.rejects(broker.enqueue("jobs", 1, { [option]: value, ...(option === "dedupeWindow" && { dedupeId: "a" }) }), { code: "InvalidArgument" }, `${option}: ${value}`);
  }
  await h.rejects(broker.enqueue("jobs", 1, { key: "a", ordered: false }), { code: "InvalidArgument", details: { argument: "key" } });
  await h.rejects(broker.enqueueMany("jobs", [1], { dedupeId: "a" }), { code: "InvalidArgument", details: { argument: "dedupeId" } });
  await h.rejects(broker.enqueueMany("jobs", "abc"), { code: "InvalidArgument" });
  await h.rejects(broker.enqueue(5, 1), { code: "InvalidArgument" });
  const uncloneable = await h.rejects(broker.enqueue("jobs", { call: () => {} }), { code: "NotCloneable" });
  h.match(uncloneable.message, /body\.call/);
  const many = await h.rejects(broker.enqueueMany("jobs", [1, { call: () => {} }]), { code: "NotCloneable" });
  h.match(many.message, /bodies\[1\]\.call/);
  const reason = new Error("never mind");
  const refused = await broker.enqueue("jobs", 1, { signal: AbortSignal.abort(reason) }).catch((error) => error);
  h.ok(refused === reason);
  h.equal([await broker.count("jobs"), await broker.conversations().toArray()], [0, []]);
});

inPage("a queue's body: empty, json, and a validator; here and in another broker", async (h, pb) => {
  const even = { "~standard": { version: 1, vendor: "test", validate: (value) => (value % 2 === 0 ? { value } : { issues: [{ message: "odd" }] }) } };
  const definitions = { queues: { bell: { body: "empty" }, data: { body: "json" }, even: { body: even }, any: { body: pb.type() } } };
  const broker = await h.open({ definitions });
  await broker.enqueue("bell");
  await h.rejects(broker.enqueue("bell", 1), { code: "ValidationFailed", number: 8430, details: { queue: "bell" } });
  await broker.enqueue("data", { a: [1] });
  const json = await h.rejects(broker.enqueueMany("data", [{}, { a: new Map() }]), { code: "ValidationFailed" });
  h.match(json.message, /data[^]*bodies\[1\]\.a/);
  await broker.enqueue("even", 2);
  const odd = await h.rejects(broker.enqueue("even", 3), { code: "ValidationFailed", details: { issues: (issues) => issues[0].message === "odd" } });
  h.match(odd.message, /even/);
  await broker.enqueue("any", new Map());
  const letters = async (queue) => (await broker.select(queue).toArray()).map((row) => row.validation);
  h.equal([await letters("bell"), await letters("data"), await letters("even"), await letters("any")], [["E"], ["J"], ["S"], ["N"]]);

  const elsewhere = await h.reopen(broker);
  await h.rejects(elsewhere.enqueue("even", 4), { code: "ValidationFailed", details: { missing: true, queue: "even" } });
  await elsewhere.define({ queues: { even: { body: even } } });
  await elsewhere.enqueue("even", 4);
  await elsewhere.alterQueue("any", { body: even });
  await h.rejects(elsewhere.enqueue("any", 5), { code: "ValidationFailed" });
  await elsewhere.alterQueue("any", { body: "none" });
  await elsewhere.enqueue("any", 5);
  // A queue that is made without waiting for it is known to what comes after it.
  const calls = [elsewhere.define({ queues: { fresh: { body: "json" } } }), elsewhere.enqueue("fresh", new Map()), elsewhere.enqueue("fresh", { n: 1 })];
  h.equal((await Promise.allSettled(calls)).map(({ status, reason }) => reason?.code ?? status), ["fulfilled", "ValidationFailed", "fulfilled"]);
  h.equal(await elsewhere.count("fresh"), 1);
});

inPage("d38: a second message with the same dedupeId is dropped, over reloads", async (h) => {
  h.state.now = 1_000_000;
  const clock = { now: () => h.state.now };
  const broker = await h.open({ definitions: { queues: { jobs: {}, others: {} } }, clock });
  const first = await broker.enqueue("jobs", 1, { dedupeId: "a" });
  h.equal(await broker.enqueue("jobs", 2, { dedupeId: "a", key: "k" }), first);
  await broker.receive("jobs");
  const elsewhere = await h.reopen(broker, { clock });
  h.equal(await elsewhere.enqueue("jobs", 3, { dedupeId: "a" }), first);
  h.ok(await elsewhere.enqueue("others", 3, { dedupeId: "a" }) !== first);
  const together = await Promise.all([4, 5].map((body) => elsewhere.enqueue("jobs", body, { dedupeId: "b", dedupeWindow: 1_000 })));
  h.ok(together[0] === together[1]);
  h.state.now += 300_000;
  h.ok(await elsewhere.enqueue("jobs", 6, { dedupeId: "a" }) !== first);
  await elsewhere.transaction(async (tx) => { await tx.enqueue("jobs", 7, { dedupeId: "a" }); await tx.enqueue("jobs", 8, { dedupeId: "c" }); });
  h.equal(h.bodies(await elsewhere.select("jobs").toArray()), [4, 6, 8]);
});

inPage("d24: END of a lane takes what was received, and the rest begins the next one", async (h) => {
  const broker = await h.open({ definitions: { queues: { jobs: { retention: true } } } });
  await broker.enqueueMany("jobs", [1, 2, 3], { key: "k" });
  const ended = await broker.transaction(async (tx) => {
    const [job] = await tx.receive("jobs", { top: 1 });
    await tx.enqueue("jobs", 4, { key: "k" });
    return [job.conversationHandle, await tx.endConversation(job, { archive: true })];
  });
  h.equal(ended[1], { discarded: 0, archived: 1 });
  h.equal((await broker.archive().toArray()).map((row) => [row.body, row.key]), [[1, "k"]]);
  const rows = await broker.select("jobs").toArray();
  h.equal(rows.map((row) => [row.status, row.body, row.key, row.messageSequenceNumber]), [[1, 2, "k", 0], [1, 3, "k", 1], [1, 4, "k", 2]]);
  h.ok(rows[0].conversationHandle !== ended[0]);
  h.equal(await broker.endConversation(rows[0], { cleanup: true }), { discarded: 3, archived: 0 });
  h.equal(await broker.conversations().toArray(), []);
});

inPage("a thousand calls without await share storage transactions, and keep their order", async (h) => {
  const broker = await h.open({ definitions: { queues: { jobs: {} } } });
  await broker.enqueue("jobs", -1, { key: "k" });
  const seen = h.spy();
  await Promise.all(Array.from({ length: 1_000 }, (_, n) => broker.enqueue("jobs", n, { key: "k" })));
  h.ok(seen.transactions.length < 20, `${seen.transactions.length} storage transactions`);
  h.equal(h.bodies(await broker.receive("jobs")), Array.from({ length: 1_001 }, (_, n) => n - 1));
});

inPage("a Blob in a lane comes back, where the store takes Blobs and where it does not", async (h) => {
  for (const refuse of [() => {}, h.refuseBlobs]) {
    refuse();
    const broker = await h.open({ definitions: { queues: { jobs: {} } } });
    await Promise.all([broker.enqueue("jobs", { file: new Blob(["one"]) }), broker.enqueue("jobs", "two")]);
    const [one, two] = await broker.receive("jobs");
    h.equal([await one.body.file.text(), two.body], ["one", "two"]);
  }
});

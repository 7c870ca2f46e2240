/**
 * Blobs where the store refuses them: their bytes are kept, and made Blobs again. WebKitGTK under automation is such a store; in the
 * other browsers `put` is made to refuse them.
 */
import { browserName, inPage } from "./fixtures/harness.mjs";

const inStore = (title, body) =>
  inPage(title, `(h, pb, browser) => { if (browser !== "webkit") h.refuseBlobs(); return (${body})(h, pb); }`, { argument: browserName });

inStore("the store refuses Blobs, or the tests below would prove nothing", async (h) => {
  const database = h.name("raw");
  h.forget(database);
  const db = await h.raw(database, 1, (upgrade) => upgrade.createObjectStore("s"));
  const put = async (value) => {
    const transaction = db.transaction("s", "readwrite");
    const end = h.completed(transaction);
    try { await h.done(transaction.objectStore("s").put(value, 1)); } finally { await end.catch(() => {}); }
  };
  for (const value of [new Blob(["b"]), { deep: [new File(["f"], "f")] }]) {
    const outcome = await put(value).then(() => "stored", (error) => error.name);
    h.ok(["UnknownError", "DataCloneError"].includes(outcome) && h.holdsBlob(value), outcome);
  }
  await put({ bytes: new ArrayBuffer(3) });
});

inStore("every verb and every view gives Blobs back whole, also after a restart; in the store there is none", async (h) => {
  const broker = await h.openShop({ counter: { retention: true }, kitchen: { retention: true, archive: true } });
  const counter = await h.order(broker, 0);
  const tell = async (each) => [each instanceof File ? ["File", each.name, each.lastModified] : each instanceof Blob ? "Blob" : typeof each, each.type, each.size, [...new Uint8Array(await each.arrayBuffer())]];
  const make = (n) => {
    const blob = new Blob([`body ${n}`, new Uint8Array([0, 255, 10, n])], { type: "text/x-soup" });
    const file = new File([blob, "grüße"], `søup ${n}.bin`, { type: "application/octet-stream", lastModified: 12_345 + n });
    return { n, blob, same: [blob, blob], file, map: new Map([[blob, file], ["in", new Map([["deep", new Set([file, "text"])]])]]), empty: new Blob([]), nameless: new File([], "", { lastModified: 5 }), stand: { bytes: new ArrayBuffer(2), type: "text/plain", name: "not a file" },
      proto: JSON.parse('{ "__proto__": { "a": 1 } }'), when: new Date(n), cycle: null };
  };
  // WebKit's structured clone makes two Blobs of one that is there twice.
  const same = new Set(structuredClone([make(0).same]).flat()).size === 1;
  const check = async (got, n, where) => {
    const sent = make(n);
    h.equal([got.n, got.when, got.stand, got.proto], [n, new Date(n), sent.stand, sent.proto], where);
    for (const key of ["blob", "file", "empty", "nameless"]) h.equal(await tell(got[key]), await tell(sent[key]), `${where}: ${key}`);
    h.equal([got.same[0] === got.blob, got.same[1] === got.blob, got.map.get(got.blob) === got.file, got.map.get("in").get("deep").has(got.file), got.cycle === got, got.file instanceof File, got.blob instanceof File],
      [same, same, same, same, true, true, false], `${where}: who is who`);
  };
  const body = (n) => { const made = make(n); made.cycle = made; return made; };
  const all = async (rows, where, numbers = [0, 1, 2, 3]) => {
    h.equal(rows.length, numbers.length, where);
    for (const [index, row] of rows.entries()) await check(row.body, numbers[index], `${where} ${index}`);
  };
  await counter.send("Order", body(0));
  await counter.sendMany([{ messageType: "Order", body: body(1) }, { messageType: "Order", body: body(2) }]);
  await broker.transaction((tx) => tx.send(counter, "Order", body(3)));
  await broker.setGroupState(counter, body(4));
  const db = await h.raw(broker.name);
  const stored = db.transaction([...db.objectStoreNames]);
  const rows = (await Promise.all([...db.objectStoreNames].map((name) => h.done(stored.objectStore(name).getAll())))).flat();
  h.ok(rows.length > 8 && !h.holdsBlob(rows), `${rows.length} rows in the store, and no Blob`);
  db.close();
  await broker.transaction(async (tx) => {
    await all(await tx.receive("kitchen"), "received and rolled back");
    throw new Error("again");
  }).catch((error) => { if (error.message !== "again") throw error; });
  const again = await h.reopen(broker);
  await all(await again.select("kitchen").toArray(), "selected");
  await all(await again.select("counter").toArray(), "the sender's copies");
  await all(await again.receive("kitchen"), "received");
  await all(await again.select("kitchen").toArray(), "retained");
  await check(await again.getGroupState(counter), 4, "group state");
  await (await h.farSide(again, counter)).end();
  await all((await again.archive({ queue: "kitchen" }).toArray()).filter((row) => row.messageTypeName === "Order"), "archived");
});

inStore("what waits for its queue, too", async (h) => {
  const broker = await h.openShop({ kitchen: { status: "off" } });
  const counter = await h.order(broker, 0);
  await counter.send("Order", { list: [new File(["soup"], "a", { lastModified: 1 })] });
  const [waiting] = await broker.transmissionQueue().toArray();
  const again = await h.reopen(broker);
  await again.alterQueue("kitchen", { status: "on" });
  const [message] = await again.receive("kitchen");
  for (const { body: { list: [file] } } of [waiting, message]) h.equal([file instanceof File, file.name, file.lastModified, await file.text()], [true, "a", 1, "soup"]);
});

inStore("calls made in one tick happen in the order they were made, Blobs or not", async (h) => {
  const broker = await h.openShop();
  const counter = await h.order(broker, 0);
  const slow = new Blob([new Uint8Array(2_000_000)]);
  const results = await h.within(20_000, Promise.all([counter.send("Order", slow), counter.send("Order", 1), counter.sendMany([{ messageType: "Order", body: 2 }, { messageType: "Order", body: new Blob(["3"]) }]), counter.send("Order", 4),
    broker.receive("kitchen"), counter.send("Order", new Blob(["5"])), counter.end(), broker.receive("kitchen")]), "the calls");
  const tell = (message) => (message.body instanceof Blob ? message.body.size : message.body);
  h.equal([results[4].map(tell), results.at(-1).map(tell)], [[2_000_000, 1, 2, 1, 4], [1, undefined]]);
});

inStore("a Blob counts for maxMessageBytes, is cloned at the call, and a bad neighbour fails alone", async (h) => {
  const broker = await h.openShop({}, { maxMessageBytes: 10_000 });
  const counter = await h.order(broker, 0);
  const body = { blob: new Blob(["first"]), n: 1 };
  const settled = Promise.allSettled([counter.send("Order", body), counter.send("Order", new Blob([new Uint8Array(20_000)])), counter.send("Order", { blob: body.blob, bad: () => 1 }), counter.send("Confirm", body.blob), counter.send("Order", new Blob(["last"]))]);
  body.blob = new Blob(["second"]);
  body.n = 2;
  h.equal((await settled).map((each) => each.reason?.code ?? "ok"), ["ok", "MessageTooLarge", "NotCloneable", "WrongDirection", "ok"]);
  const [first, last, ...more] = h.bodies(await broker.receive("kitchen"));
  h.equal([await first.blob.text(), first.n, await last.text(), more], ["first", 1, "last", []]);
});

/** Bodies: what structured clone keeps comes back equal, what it refuses is named, and nobody shares an object (D28). */
import { inPage } from "./fixtures/harness.mjs";

for (const storage of ["indexeddb", "memory"]) {
  inPage(`every structured-clone value comes back equal (${storage})`, async (h, _, storage) => {
    const broker = await h.openShop({ kitchen: { retention: true } }, { storage });
    const counter = await h.order(broker, 0);
    const sparse = [1, , 3];
    sparse.length = 6;
    const cycle = { name: "cycle", list: [] };
    cycle.list.push(cycle, { back: cycle.list });
    cycle.map = new Map([[cycle, new Set([cycle])]]);
    const shared = { twice: null };
    shared.twice = [{ a: 1 }];
    shared.again = shared.twice[0];
    const buffer = new ArrayBuffer(16);
    class Point { constructor() { this.x = 1; this.nested = { y: 2 }; } get length() { return 3; } }
    const views = [Int8Array, Uint8Array, Uint8ClampedArray, Int16Array, Uint16Array, Int32Array, Uint32Array, Float32Array, Float64Array, BigInt64Array, BigUint64Array];
    const values = {
      undefined: undefined, null: null, true: true, zero: 0, minusZero: -0, nan: NaN, infinity: -Infinity, tiny: Number.MIN_VALUE, unsafe: 2 ** 53 + 2, bigint: 2n ** 80n, minusBigint: -1n,
      empty: "", text: "grüße 🍲", surrogate: "\ud800 alone", nul: "a\u0000b", long: "x".repeat(200_000), boxed: [new Boolean(false), new Number(-0), new String("s"), Object(5n)],
      date: new Date(1_700_000_000_123), invalidDate: new Date(NaN), old: new Date(-1), regexp: /a(?<b>.)\/c/giu, map: new Map([[{ k: 1 }, new Map([["in", NaN]])], [NaN, -0]]), set: new Set([1, "1", new Date(1)]),
      array: [undefined, null, [[]], {}], sparse, emptyArray: [], object: { "": 1, a: undefined, "ключ": [true], constructor: 5, then: "not a promise" }, proto: JSON.parse('{ "__proto__": { "a": 1 } }'),
      cycle, shared, buffer, emptyBuffer: new ArrayBuffer(0), dataView: new DataView(buffer, 3, 5), views: views.map((View) => new View(new ArrayBuffer(32), 8, 2)), twoViews: [new Uint8Array(buffer, 1), new Uint16Array(buffer)],
      point: { x: 1, nested: { y: 2 } }, error: Object.assign(new RangeError("out of range")), errors: [new Error("e"), new TypeError("t")], deep: Array.from({ length: 500 }).reduce((inner) => ({ inner }), 1),
      wide: Object.fromEntries(Array.from({ length: 2_000 }, (_, n) => [`k${n}`, n])), sameKeysAsOurs: { handle: "h", conversationHandle: "c", status: 1, body: 2, messageType: "x" },
    };
    const sent = { ...values, point: new Point() };
    for (const body of Object.values(sent)) await counter.send("Order", body);
    await counter.sendMany(Object.values(sent).map((body) => ({ messageType: "Order", body })));
    const again = storage === "memory" ? broker : await h.reopen(broker);
    const expected = Object.entries(values);
    const got = await again.receive("kitchen");
    h.equal(got.length, 2 * expected.length);
    got.forEach((message, index) => h.equal(message.body, expected[index % expected.length][1], expected[index % expected.length][0]));
    const kept = await again.select("kitchen").toArray();
    kept.forEach((row, index) => h.equal(row.body, expected[index % expected.length][1], `retained ${expected[index % expected.length][0]}`));
    const body = (name) => got[Object.keys(values).indexOf(name)].body;
    h.equal([1 in body("sparse"), Object.getPrototypeOf(body("point")) === Object.prototype, body("cycle").list[0] === body("cycle"), body("shared").again === body("shared").twice[0], body("twoViews")[0].buffer === body("twoViews")[1].buffer],
      [false, true, true, true, true]);
    h.ok(body("error") instanceof RangeError && Object.is(body("boxed")[1].valueOf(), -0));
  }, { argument: storage });

  inPage(`Blob, File and other platform objects come back equal (${storage})`, async (h, _, storage) => {
    const broker = await h.openShop({}, { storage });
    const counter = await h.order(broker, 0);
    const blob = new Blob(["some ", new Uint8Array([0, 255, 10])], { type: "text/x-soup" });
    const file = new File([blob, "!"], "søup & more.bin", { type: "application/octet-stream", lastModified: 12_345 });
    const big = new Blob([new Uint8Array(300_000).fill(7)]);
    await counter.send("Order", blob);
    await counter.send("Order", { list: [file, { big }], same: [blob, blob], empty: new Blob([]) });
    await counter.send("Order", { image: new ImageData(new Uint8ClampedArray(16).fill(9), 2, 2), point: new DOMPoint(1, 2, 3, 4), key: await crypto.subtle.generateKey({ name: "HMAC", hash: "SHA-256" }, false, ["sign"]) });
    const again = storage === "memory" ? broker : await h.reopen(broker);
    const [first, second, third] = h.bodies(await again.receive("kitchen"));
    const bytes = async (each) => [each.constructor.name, each.type, [...new Uint8Array(await each.arrayBuffer())]];
    h.equal(await bytes(first), await bytes(blob));
    h.equal(await bytes(second.list[0]), await bytes(file));
    h.equal([second.list[0].name, second.list[0].lastModified, second.list[0] instanceof File], ["søup & more.bin", 12_345, true]);
    h.equal(await bytes(second.list[1].big), await bytes(big));
    h.equal([await bytes(second.same[1]), second.empty.size], [await bytes(blob), 0]);
    h.equal([[...third.image.data], third.image.width, third.point.z, third.key instanceof CryptoKey, third.key.extractable], [Array(16).fill(9), 2, 3, true, false]);
  }, { argument: storage });

  // d28.
  inPage(`a body is cloned at the call, and never handed out twice (${storage})`, async (h, _, storage) => {
    const broker = await h.openShop({ counter: { retention: true }, kitchen: { retention: true } }, { storage });
    const counter = await h.order(broker, 0);
    const body = { n: 1, list: [1], bytes: new Uint8Array([1, 2, 3]) };
    const original = structuredClone(body);
    const spoil = (each) => { each.n = 99; each.list.push(99); each.bytes[0] = 99; };
    const sends = [counter.send("Order", body), counter.sendMany([{ messageType: "Order", body }])];
    spoil(body);
    sends.push(broker.transaction((tx) => {
      const later = structuredClone(original);
      const sent = tx.send(counter, "Order", later);
      spoil(later);
      return sent;
    }));
    await Promise.all(sends);
    const seen = [];
    for (let round = 0; round < 2; round += 1) {
      await broker.transaction(async (tx) => {
        const messages = await tx.receive("kitchen");
        messages.forEach((message) => { h.equal(message.body, original, `round ${round}`); seen.push(message.body); spoil(message.body); message.headers.spoilt = "yes"; });
        throw new Error("again");
      }).catch((error) => { if (error.message !== "again") throw error; });
    }
    const [kept, copies] = [await broker.select("kitchen").toArray(), await broker.select("counter").toArray()];
    h.equal([seen.length, kept.length, copies.length], [6, 3, 3]);
    for (const row of [...kept, ...copies, ...(await broker.select("kitchen").toArray()), ...(await broker.receive("kitchen")), ...(await broker.select("kitchen").toArray())]) {
      h.equal([row.body, row.headers], [original, {}]);
      h.equal(seen.includes(row.body), false, "an object of its own");
      seen.push(row.body);
      spoil(row.body);
    }
  }, { argument: storage });

  // d28.
  inPage(`what can't be cloned is NotCloneable with its path; nothing is stored, and the next call works (${storage})`, async (h, _, storage) => {
    const broker = await h.openShop({}, { storage });
    const counter = await h.order(broker, 0);
    const wasm = new WebAssembly.Module(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0]));
    const detached = new ArrayBuffer(8);
    structuredClone(detached, { transfer: [detached] });
    const bad = {
      function: () => 1, method: { run() {} }.run, symbol: Symbol("s"), proxy: new Proxy({}, {}), promise: Promise.resolve(1), weakMap: new WeakMap(), weakSet: new WeakSet(), generator: (function* () {})(), window,
      element: document.createElement("p"), event: new Event("x"), memory: new WebAssembly.Memory({ initial: 1 }), module: wasm, conversation: counter, view: broker.conversation(counter), broker, detached, class: class {},
    };
    if (storage === "memory") delete bad.module; // Structured clone takes it; only IndexedDB refuses it.
    for (const [name, value] of Object.entries(bad)) {
      await h.rejects(counter.send("Order", value), { code: "NotCloneable" }, name);
      const nested = { order: { lines: [1, { theCulprit: value }] }, fine: [1] };
      const error = await h.rejects(counter.send("Order", nested), { code: "NotCloneable" }, `nested ${name}`);
      h.match(error.message, /order.*lines.*1.*theCulprit/, name);
      await h.rejects(counter.sendMany([{ messageType: "Order", body: 1 }, { messageType: "Order", body: nested }]), { code: "NotCloneable" }, `sendMany ${name}`);
      h.match((await h.rejects(counter.send("Order", new Map([["m", new Set([value])]])), { code: "NotCloneable" }, `in a Map ${name}`)).message, /\S/);
    }
    await h.rejects(broker.transaction((tx) => tx.send(counter, "Order", bad.function)), { code: "NotCloneable" });
    h.equal([await broker.count("kitchen"), await h.stateOf(broker, counter)], [0, "SO"], "nothing was stored");
    await counter.send("Order", "works");
    h.equal((await broker.receive("kitchen")).map((message) => [message.body, message.messageSequenceNumber]), [["works", 0]]);
  }, { argument: storage });
}

inPage("what can't even be looked at is named by its exact path", async (h) => {
  const broker = await h.openShop();
  const counter = await h.order(broker, 0);
  const revoked = () => { const { proxy, revoke } = Proxy.revocable({}, {}); revoke(); return proxy; };
  const hostile = () => new Proxy({}, { ownKeys() { throw new RangeError("a trap"); }, get() { throw new RangeError("a trap"); } });
  for (const [kind, make] of Object.entries({ revoked, hostile })) {
    const bodies = {
      "body": make(), "body.a": { a: make() }, "body.fine[1].b": { fine: [1, { b: make() }] }, "body.get(\"m\")": new Map([["m", make()]]), "[...[...body.keys()][0]][1]": new Map([[new Set([1, make()]), 2]]),
      "body.last": { first: {}, get getter() { return 1; }, last: make(), later: make() },
    };
    for (const [path, body] of Object.entries(bodies)) {
      const error = await h.rejects(counter.send("Order", body), { code: "NotCloneable", details: { path } }, `${kind} ${path}`);
      h.ok(error.message.includes(path), error.message);
    }
    await h.rejects(counter.sendMany([{ messageType: "Order" }, { messageType: "Order", body: { a: make() } }]), { code: "NotCloneable", details: { path: "messages[1].body.a" } }, kind);
    await h.rejects(broker.setGroupState(counter, { a: make() }), { code: "NotCloneable", details: { path: "state.a" } }, kind);
    let deep = { culprit: make() };
    for (let level = 0; level < 20_000; level += 1) deep = [deep];
    const error = await h.rejects(counter.send("Order", deep), { codes: ["NotCloneable"] }, `${kind} deep`);
    h.match(error.details.path, /culprit$/, "deep");
  }
  h.equal(await broker.count("kitchen"), 0);
});

inPage("a getter that throws, or that sends, does no harm", async (h) => {
  const broker = await h.openShop();
  const counter = await h.order(broker, 0);
  const outcome = await h.within(5_000, counter.send("Order", { get trap() { throw new RangeError("a trap"); } }).then(() => "sent", (error) => error), "the trap");
  h.ok(outcome instanceof Error && (["NotCloneable", "InvalidArgument"].includes(outcome.code) || outcome.message === "a trap"), String(outcome));
  let inner;
  const outer = counter.send("Order", { get nested() { inner = counter.send("Order", "inner"); return "outer"; } });
  await h.within(5_000, outer, "the outer send");
  await h.within(5_000, inner, "the inner send");
  h.ok((await broker.count("kitchen")) >= 2);
});

// d28.
inPage("maxMessageBytes: MessageTooLarge (8459) before anything is stored; just below it works", async (h, pb) => {
  const broker = await h.openShop({}, { maxMessageBytes: 10_000 });
  const counter = await h.order(broker, 0);
  for (const body of [new Uint8Array(20_000), "x".repeat(20_000), { deep: [{ bytes: new ArrayBuffer(20_000) }] }, new Blob([new Uint8Array(20_000)]), Array.from({ length: 5_000 }, (_, n) => `text ${n}`), new Map([["k", new Float64Array(5_000)]])]) {
    const error = await h.rejects(counter.send("Order", body), { code: "MessageTooLarge", number: 8459 });
    h.match(`${error.message} ${JSON.stringify(error.details)}`, /10\D?000/);
  }
  await h.rejects(counter.sendMany([{ messageType: "Order", body: 1 }, { messageType: "Order", body: new Uint8Array(20_000) }]), { code: "MessageTooLarge" });
  h.equal([await broker.count("kitchen"), await h.stateOf(broker, counter)], [0, "SO"]);
  await counter.send("Order", new Uint8Array(8_000));
  h.equal((await broker.receive("kitchen"))[0].body.length, 8_000);
  for (const maxMessageBytes of [0, -1, NaN, "1"]) await h.rejects(pb.openBroker(h.name(), { maxMessageBytes }), { code: "InvalidArgument" }, String(maxMessageBytes));
});

inPage("200 MB is over the default limit; 3 MB bodies travel whole", async (h) => {
  const broker = await h.openShop();
  const counter = await h.order(broker, 0);
  const huge = new Uint8Array(200 * 1024 * 1024);
  await h.rejects(h.within(60_000, counter.send("Order", huge), "200 MB"), { code: "MessageTooLarge", number: 8459 });
  await h.rejects(h.within(60_000, counter.send("Order", { nested: huge }), "200 MB, nested"), { code: "MessageTooLarge", number: 8459 });
  const large = new Uint8Array(3 * 1024 * 1024).map((_, index) => (index * 31) % 251);
  await counter.sendMany([{ messageType: "Order", body: large }, { messageType: "Order", body: "small" }, { messageType: "Order", body: { large } }]);
  h.equal((await broker.select("kitchen").first()).body, large);
  h.equal(h.bodies(await broker.receive("kitchen")), [large, "small", { large }]);
  h.equal(await broker.count("kitchen"), 0);
});

inPage("a hundred thousand levels deep: stored or refused by name, and the broker lives on", async (h) => {
  const broker = await h.openShop();
  const counter = await h.order(broker, 0);
  const nest = (wrap) => { let value = "bottom"; for (let level = 0; level < 100_000; level += 1) value = wrap(value); return value; };
  for (const wrap of [(inner) => [inner], (inner) => ({ inner }), (inner) => new Map([[1, inner]])]) {
    const sent = await h.within(30_000, counter.send("Order", nest(wrap)).then(() => true, (error) => error), "the send");
    h.ok(sent === true || ["NotCloneable", "MessageTooLarge", "InvalidArgument"].includes(sent.code), String(sent?.code ?? sent));
    await counter.send("Order", "after");
    const got = await h.within(30_000, broker.receive("kitchen"), "the receive");
    h.equal([got.length, got.at(-1).body], [sent === true ? 2 : 1, "after"]);
  }
});

inPage("bodies that have an object in common share nothing once they are sent, and a hole among messages is named", async (h) => {
  const broker = await h.openShop();
  const counter = await h.order(broker, 0);
  const address = { street: "Rue 1" };
  const both = { address };
  const buffer = new ArrayBuffer(4);
  const bodies = [both, both, { address }, address, new Uint8Array(buffer), new Uint16Array(buffer), [address, address]];
  await counter.sendMany(bodies.map((body) => ({ messageType: "Order", body })));
  const got = (await broker.receive("kitchen")).map(({ body }) => body);
  got.forEach((body, index) => h.equal(body, bodies[index], `body ${index}`));
  const inside = [got[0], got[0].address, got[1], got[1].address, got[2], got[2].address, got[3], got[4].buffer, got[5].buffer, got[6][0]];
  h.equal(new Set(inside).size, inside.length, "objects");
  h.ok(got[6][0] === got[6][1], "within one body it stays one object");
  await h.rejects(counter.sendMany([{ messageType: "Order" }, , { messageType: "Order" }]), { code: "InvalidArgument", details: { argument: "messages[1]" } });
});

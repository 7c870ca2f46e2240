/** `encodeBody` and `decodeBody`: bodies as JSON-safe fields and back, for stores and servers of an application's own. */
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { inPageAndWorkers, inPage, packageDirectory } from "./fixtures/harness.mjs";
import { ROOT } from "./support/paths.mjs";

inPageAndWorkers("what JSON keeps is encoded as it is", async (h, pb) => {
  h.equal(await pb.encodeBody(undefined), { bodyEncoding: "none" });
  h.equal(pb.decodeBody({ bodyEncoding: "none" }), undefined);
  h.equal(pb.decodeBody(JSON.parse('{"bodyEncoding":"none","messageId":"m"}')), undefined, "fields of others are theirs");
  const odd = JSON.parse('{"__proto__":{"polluted":1},"constructor":{"prototype":{"polluted":1}},"":0,"a.b":[]}');
  for (const body of [null, true, false, 0, -1.5, 1e308, Number.MAX_SAFE_INTEGER, "", "text", "żółć 🎉 \u2028 <script>", [], {}, [[[]]], { a: { b: [1, "x", null] } }, odd, "x".repeat(1 << 20)]) {
    const encoded = await pb.encodeBody(body);
    h.equal([encoded.bodyEncoding, Object.keys(encoded)], ["json", ["bodyEncoding", "body"]]);
    h.equal(encoded.body, body);
    h.equal(pb.decodeBody(JSON.parse(JSON.stringify(encoded))), body);
  }
  h.equal([{}.polluted, Object.hasOwn(pb.decodeBody(await pb.encodeBody(odd)), "__proto__")], [undefined, true], "a key like any other");
});

inPageAndWorkers("what JSON loses is encoded by devalue, and comes back as it was", async (h, pb) => {
  const cyclic = { name: "cycle", list: [] };
  cyclic.self = cyclic;
  cyclic.list.push(cyclic, new Map([[cyclic, cyclic]]), new Set([cyclic]));
  const twice = { n: 1 };
  const sparse = [1, , 3];
  sparse.length = 5;
  const far = [];
  far[1_000_000] = "far";
  const bodies = {
    undefinedInside: { a: undefined, b: [undefined] }, NaN, Infinity, minusInfinity: -Infinity, minusZero: -0, bigint: 12345678901234567890n, date: new Date(1_234_567), noDate: new Date(NaN),
    epoch: new Date(0), late: new Date(8.64e15), regExp: /a\/b"<[\n]/giu, map: new Map([["k", 1], [{ deep: true }, new Map()], [undefined, undefined], [NaN, -0]]),
    set: new Set([1, "1", [1], undefined]), boxed: [Object(1), Object("s"), Object(false), Object(5n), Object(-0)], sparse, far, cyclic, twice: [twice, twice],
    nested: { at: new Date(5), who: ["żółć 🎉", { half: "\ud800", tags: new Set(["<b>"]) }] }, views: { bytes: new Uint8Array([1, 2, 255]), part: new Uint16Array([1, 2, 3, 4]).subarray(1, 3),
      floats: new Float64Array([NaN, -0, 1e-300]), big: new BigInt64Array([-1n]), clamped: new Uint8ClampedArray([300]), view: new DataView(new ArrayBuffer(8), 2, 4), none: new ArrayBuffer(0) },
    lookalike: [["Date", "2020"], ["Map", 1], ["Blob", 0], ["Error", { name: "x" }], new Date(1)],
    odd: { "": 1n, "a.b": 2n, constructor: 3n, hasOwnProperty: 4n, toJSON: 5n, then: 6n },
  };
  for (const [name, body] of Object.entries(bodies)) {
    const encoded = await pb.encodeBody(body);
    h.equal([name, encoded.bodyEncoding, typeof encoded.body, Object.keys(encoded)], [name, "devalue", "string", ["bodyEncoding", "body"]]);
    h.equal(pb.decodeBody(JSON.parse(JSON.stringify(encoded))), body, name);
  }
  const [left, right] = pb.decodeBody(await pb.encodeBody(bodies.twice));
  h.ok(left === right, "one object stays one object");
  const again = pb.decodeBody(await pb.encodeBody(cyclic));
  h.ok(again.self === again && again.list[0] === again && again.list[1].get(again) === again && again.list[2].has(again));
  h.equal(Object.keys(pb.decodeBody(await pb.encodeBody(sparse))), ["0", "2"], "holes stay holes");
  const { part } = pb.decodeBody(await pb.encodeBody(bodies.views));
  h.equal([...part], [2, 3]);
});

inPageAndWorkers("a lone buffer, view or Blob is encoded as base64", async (h, pb) => {
  const bytes = Uint8Array.from({ length: 1_000 }, (_, n) => (n * 7) % 256);
  const whole = { Uint8Array: bytes, Int8Array: new Int8Array([-1, 1]), Uint8ClampedArray: new Uint8ClampedArray([9]), Int16Array: new Int16Array([-300]), Uint16Array: new Uint16Array([65_535]),
    Int32Array: new Int32Array([-70_000]), Uint32Array: new Uint32Array([4_000_000_000]), Float32Array: new Float32Array([1.5]), Float64Array: new Float64Array([Math.PI]),
    BigInt64Array: new BigInt64Array([-5n]), BigUint64Array: new BigUint64Array([5n]), DataView: new DataView(new ArrayBuffer(3)), ArrayBuffer: bytes.buffer };
  for (const [bodyType, body] of Object.entries(whole)) {
    const encoded = await pb.encodeBody(body);
    h.equal([encoded.bodyEncoding, encoded.bodyType, Object.keys(encoded)], ["base64", bodyType, ["bodyEncoding", "bodyType", "body"]]);
    h.equal(pb.decodeBody(JSON.parse(JSON.stringify(encoded))), body, bodyType);
  }
  h.equal(await pb.encodeBody(new TextEncoder().encode("any carnal pleas")), { bodyEncoding: "base64", bodyType: "Uint8Array", body: "YW55IGNhcm5hbCBwbGVhcw==" });
  for (const length of [0, 1, 2, 3, 1 << 20]) h.equal(pb.decodeBody(await pb.encodeBody(new Uint8Array(length).fill(length))), new Uint8Array(length).fill(length));
  h.equal(pb.decodeBody(await pb.encodeBody(new Uint16Array([1, 2, 3]).subarray(1))), new Uint16Array([2, 3]), "its own bytes, not those beside it");
  const { toBase64 } = Uint8Array.prototype;
  const { fromBase64 } = Uint8Array;
  delete Uint8Array.prototype.toBase64;
  delete Uint8Array.fromBase64;
  try {
    const encoded = await pb.encodeBody(bytes);
    h.equal(pb.decodeBody(encoded), bytes, "in a browser without Uint8Array.fromBase64");
    h.equal(encoded.body, btoa(String.fromCharCode(...bytes)));
  } finally {
    if (toBase64) Object.defineProperty(Uint8Array.prototype, "toBase64", { value: toBase64, configurable: true, writable: true });
    if (fromBase64) Object.defineProperty(Uint8Array, "fromBase64", { value: fromBase64, configurable: true, writable: true });
  }
  for (const type of ["", "text/plain;charset=utf-8"]) {
    const encoded = JSON.parse(JSON.stringify(await pb.encodeBody(new Blob(["żółć"], { type }))));
    h.equal([encoded.bodyEncoding, encoded.bodyType], ["base64", type === "" ? "Blob" : `Blob:${type}`]);
    const blob = pb.decodeBody(encoded);
    h.equal([blob instanceof Blob, blob.type, await blob.text()], [true, type, "żółć"]);
  }
});

inPageAndWorkers("Blobs, Files and Errors within a body come back, too", async (h, pb) => {
  const photo = new File([new Uint8Array([1, 2, 3])], "a photo.png", { type: "image/png", lastModified: 86_400_000 });
  const wrong = new RangeError("too far", { cause: new TypeError("no number") });
  const encoded = JSON.parse(JSON.stringify(await pb.encodeBody({ photo, again: photo, notes: [new Blob(["one"]), new Blob([])], wrong, mine: Object.assign(new Error("plain"), { name: "Mine" }) })));
  h.equal(encoded.bodyEncoding, "devalue");
  const body = pb.decodeBody(encoded);
  h.equal([body.photo instanceof File, body.photo.name, body.photo.type, body.photo.lastModified], [true, "a photo.png", "image/png", 86_400_000]);
  const [one, same] = structuredClone([photo, photo]);
  h.equal(body.photo === body.again, one === same, "one File stays one, where the browser's own clone keeps it so");
  h.equal(new Uint8Array(await body.photo.arrayBuffer()), new Uint8Array([1, 2, 3]));
  h.equal(await Promise.all(body.notes.map((blob) => blob.text())), ["one", ""]);
  h.equal([body.wrong instanceof RangeError, body.wrong.name, body.wrong.message, body.mine.name, body.mine.message], [true, "RangeError", "too far", "Error", "plain"]);
  const kept = structuredClone(wrong).cause;
  h.equal([body.wrong.cause?.message, body.wrong.cause instanceof TypeError], [kept?.message, kept instanceof TypeError], "the cause, where the browser's own clone keeps it");
  const lone = pb.decodeBody(JSON.parse(JSON.stringify(await pb.encodeBody(photo))));
  h.equal([lone.name, lone.type, lone.size], ["a photo.png", "image/png", 3]);
});

inPageAndWorkers("a body is taken at the call: what is changed afterwards is not in it, and two decodings share nothing", async (h, pb) => {
  const json = { list: [1] };
  const bytes = new Uint8Array([1]);
  const encoding = [pb.encodeBody(json), pb.encodeBody(bytes), pb.encodeBody({ at: new Map([["json", json]]) })];
  json.list.push(2);
  bytes[0] = 9;
  const [first, second, third] = await Promise.all(encoding);
  h.equal([first.body, pb.decodeBody(second), pb.decodeBody(third).at.get("json")], [{ list: [1] }, new Uint8Array([1]), { list: [1] }]);
  pb.decodeBody(first).list.push(3);
  h.equal(pb.decodeBody(first), { list: [1] });
});

inPage("what can't be cloned or encoded is refused, and the path is named", async (h, pb) => {
  const refused = async (body, path, kind) => h.rejects(pb.encodeBody(body), { code: "NotCloneable", details: { path, kind } });
  await refused(() => {}, "body", "function");
  await refused({ items: [1, { callback() {} }] }, "body.items[1].callback", "function");
  await refused(new Map([["k", Symbol("s")]]), 'body.get("k")', "symbol");
  await refused({ link: new URL("https://example.com") }, "body.link", "URL");
  await refused({ deep: new Proxy({}, {}) }, "body.deep", "proxy");
  await refused({ get broken() { throw new Error("no"); } }, "body.broken", "getter");
  await refused({ picture: new ImageData(1, 1) }, "body.picture", "ImageData");
  await refused({ list: Object.assign([1n], { more: 1 }) }, "body.list.more", "named");
  await refused([JSON.parse('{"__proto__":1}'), 1n], 'body[0].__proto__', "key");
  const shared = {};
  await refused([shared, Object.defineProperty({}, "__proto__", { value: shared, enumerable: true }), 1n], "body[1].__proto__", "key");
  await refused([shared, Object.assign([], { more: shared })], "body[1].more", "named");
  for (const key of ["-1", "1.5", "01", "4294967295"]) await refused(Object.assign([1, 2], { [key]: 3 }), `body["${key}"]`, "named");
  const cause = new Error("its own cause");
  if (structuredClone(new Error("", { cause: 1 })).cause === 1) {
    cause.cause = cause;
    await refused({ cause }, "body.cause", "cycle");
    await refused(new Error("", { cause: { picture: [new ImageData(1, 1)] } }), "body.cause.picture[0]", "ImageData");
  }
  const nest = (levels, inner) => { let body = inner; for (let level = 0; level < levels; level += 1) body = [body]; return body; };
  for (const inner of [1, 1n]) {
    const body = nest(1_000, inner);
    h.equal(pb.decodeBody(JSON.parse(JSON.stringify(await pb.encodeBody(body)))), body);
    await refused(nest(1_001, inner), "body", "depth");
    await refused(nest(200_000, inner), "body", "depth");
  }
});

inPage("what nobody has encoded is refused: wrong fields, wrong base64, unknown kinds, prototypes, absurd depth", async (h, pb) => {
  const described = (encoded) => { try { return `${encoded.bodyType} ${String(encoded.body).slice(0, 100)}`; } catch { return "unreadable"; } };
  const refused = (encoded, argument) => h.rejects((async () => pb.decodeBody(encoded))(), { code: "InvalidArgument", details: { argument } }, described(encoded));
  for (const encoded of [undefined, null, "none", 5, [], new Date(), new (class Envelope { bodyEncoding = "none"; })()]) await refused(encoded, "encoded");
  for (const bodyEncoding of [undefined, null, 1, "", "None", "gzip", "constructor", ["none"], new String("none")]) await refused({ bodyEncoding, body: 1 }, "encoded.bodyEncoding");
  await refused(Object.create({ bodyEncoding: "json", body: 1 }), "encoded");
  await refused(Object.assign(Object.create(null), { bodyEncoding: "none", body: 1 }), "encoded.body");
  await refused({ bodyEncoding: "none", body: null }, "encoded.body");
  const cyclic = {};
  cyclic.self = cyclic;
  for (const body of [undefined, NaN, -0, 1n, new Date(), new Map(), () => {}, [undefined], { a: new Set() }, cyclic, [, 1]]) await refused({ bodyEncoding: "json", body }, "encoded.body");
  await refused({ bodyEncoding: "json", get body() { throw new Error("no"); } }, undefined);
  let deep = 1;
  for (let level = 0; level < 200_000; level += 1) deep = [deep];
  await refused({ bodyEncoding: "json", body: deep }, "encoded.body");

  const chain = `[${Array.from({ length: 200_000 }, (_, n) => `[${n + 1}]`).join()},1]`;
  const broken = [undefined, null, 5, [1], {}, "", "x", "{}", "[]", "5", "-2", "-99", "null", "[[1]]", "[[1e9]]", '[["Nothing",1]]', '[["Date"]]x', '[["Map",1,[1]]]', '[{"a":"b"}]', chain,
    '[{"__proto__":1},{"polluted":2},1]', '[["null","__proto__",1],{"polluted":2},1]', '[["URL","https://example.com"]]', '[["URLSearchParams","a=1"]]', '[["Temporal.Instant","2020-01-01T00:00Z"]]',
    '[["RegExp","(","g"]]', '[["RegExp","a","zz"]]', '[["BigInt","x"]]', '[["BigInt",1.5]]', '[["ArrayBuffer","a"]]', '[["ArrayBuffer",5]]', '[["ArrayBuffer","*A=="]]', '[["Uint8Array",1],5]',
    '[["Uint8Array",1,0,99],["ArrayBuffer","AAAA"]]', '[["Uint16Array",1],["ArrayBuffer","AAAA"]]', '[["Object",1],{}]', "[[-7,-1]]", "[[-7,1,5,1],1]",
    '[["Blob",1],5]', '[["Blob",1],{"type":2,"bytes":2},"x"]', '[["Blob",1],{"type":2,"bytes":3},"x",{"length":4},1]', '[["File",1],{"type":2,"bytes":3},"x",["ArrayBuffer",""]]',
    '[["Error",1],"text"]', '[["Error",1],{"name":2,"message":3},"x",5]', '[["Error",0]]'];
  for (const body of broken) await refused({ bodyEncoding: "devalue", body }, "encoded.body");
  h.equal({}.polluted, undefined);

  const base64 = { bodyEncoding: "base64", bodyType: "Uint8Array" };
  for (const body of [undefined, null, 5, [1], "a", "ab", "abc", "ab=", "a===", "ab==cd==", "ab cd=", "ab\ncd", "ab-_", "abcd=", "=", "====", "żółć"]) await refused({ ...base64, body }, "encoded.body");
  for (const bodyType of [undefined, null, 5, "", "Object", "Function", "uint8array", "Int64Array", "SharedArrayBuffer", "constructor", "__proto__", "Blobs", "File", "Array"]) await refused({ ...base64, bodyType, body: "AAAA" }, "encoded.bodyType");
  for (const bodyType of ["Uint16Array", "Float64Array", "BigInt64Array"]) await refused({ ...base64, bodyType, body: "AAAA" }, "encoded.body");
  const large = { bodyEncoding: "devalue", body: "[[-7,4294967295]]" };
  h.equal(pb.decodeBody(large).length, 4_294_967_295, "an array that is only said to be long takes no room");
});

inPage("two thousand bodies by chance come back as structuredClone gives them, or are refused for a key that devalue does not write", async (h, pb) => {
  const { randomBody, randomOf } = await import("/fixtures/random-body.mjs");
  const counts = {};
  for (let seed = 1; seed <= 2_000; seed += 1) {
    const body = randomBody(randomOf(seed));
    const encoded = await pb.encodeBody(body).catch((error) => (error.code === "NotCloneable" && error.details.kind === "key" ? { bodyEncoding: "refused" } : Promise.reject(error)));
    counts[encoded.bodyEncoding] = (counts[encoded.bodyEncoding] ?? 0) + 1;
    // Of a view base64 has the bytes that it shows.
    const kept = encoded.bodyEncoding === "base64" && ArrayBuffer.isView(body) ? new body.constructor(body.buffer.slice(body.byteOffset, body.byteOffset + body.byteLength)) : structuredClone(body);
    if (encoded.bodyEncoding !== "refused") h.equal(pb.decodeBody(JSON.parse(JSON.stringify(encoded))), kept, `seed ${seed}`);
  }
  h.ok(["none", "json", "devalue", "base64", "refused"].every((kind) => counts[kind] > 0), JSON.stringify(counts));
});

test("in Node, too: a server reads what a page has encoded, by the package or by devalue itself", async () => {
  const { decodeBody, encodeBody } = await import(pathToFileURL(join(packageDirectory, "dist/index.js")));
  const devalue = await import(pathToFileURL(join(ROOT, "pkg/node_modules/devalue/src/index.js")));
  const body = { at: new Date(5), amounts: new Map([["a", 1n]]), tags: new Set(["x"]), bytes: new Uint8Array([1, 2]), nothing: undefined, like: /x/g };
  body.self = body;
  const encoded = JSON.parse(JSON.stringify(await encodeBody(body)));
  assert.equal(encoded.bodyEncoding, "devalue");
  assert.deepEqual(decodeBody(encoded), body);
  assert.deepEqual(devalue.parse(encoded.body), body);
  assert.deepEqual(decodeBody({ bodyEncoding: "devalue", body: devalue.stringify(body) }), body);
});

// Bodies as JSON-safe fields: what stores and transports of an application's own keep and send.
import { parse, stringify } from "devalue";
import { decodeBytes, encodeBytes } from "./base64.js";
import { describe, member, oneOf, plain, tagOf } from "./check.js";
import { BrokerError, invalid, reading } from "./errors.js";
import { jsonProblem } from "./json.js";
import { cloneFailure, notCloneable } from "./uncloneable.js";
import { inside, pathOf, root, type Place } from "./walk.js";

/** A body as fields that JSON keeps, whatever the body is. Made by {@link encodeBody}, read by {@link decodeBody}. */
export interface EncodedBody {
  /**
   * "none": there is no body. "json": `body` is the body itself. "devalue": `body` is the text that the npm package devalue makes of it. "base64": `body` is the text of a
   * lone buffer's bytes, and `bodyType` what they were.
   */
  bodyEncoding: "none" | "json" | "devalue" | "base64";
  /** Beside "base64": "ArrayBuffer", "DataView", the name of a typed array, or "Blob", with its MIME type after a colon if it has one. */
  bodyType?: string;
  /** As `bodyEncoding` says; absent for "none". */
  body?: unknown;
}

const ENCODINGS = ["none", "json", "devalue", "base64"] as const;

/** More levels than this are refused on both sides, so that what was encoded in one browser can be decoded in another: devalue recurses. */
const DEEPEST = 1_000;

const KEPT = /^(Object|Array|Map|Set|Error|Date|RegExp|Boolean|Number|String|BigInt|ArrayBuffer|Blob|File)$/;
const VIEW = /^(DataView|Uint8ClampedArray|(Big)?(Int|Uint)(8|16|32|64)Array|Float(16|32|64)Array)$/;
const ERRORS = [EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError];

/**
 * A body as JSON-safe fields. It is taken at the call, as `structuredClone` does it; what is changed afterwards is not in it. What JSON keeps stays as it is
 * ("json"); a lone buffer, typed array or Blob becomes base64; everything else is encoded by devalue: Map, Set, Date, BigInt, RegExp, undefined, NaN, typed
 * arrays, cycles, and Blobs, Files and Errors within. An Error keeps name, message and cause, and leaves its stack here. For the three last, a reader that
 * uses devalue itself needs revivers: `Blob` of `{ type, bytes }`, `File` of `{ type, bytes, name, lastModified }`, `Error` of `{ name, message, cause }`.
 *
 * Errors: NotCloneable, with the path of the part that can't be cloned or encoded: a function, an ImageData, named properties of an array, more than 1 000 levels.
 */
export async function encodeBody(body: unknown): Promise<EncodedBody> {
  if (body === undefined) return { bodyEncoding: "none" };
  let clone: unknown;
  try {
    clone = structuredClone(body);
  } catch (thrown) {
    throw cloneFailure(body, "body", thrown);
  }
  const bodyType = typeof clone === "object" && clone !== null ? tagOf(clone) : "";
  if (bodyType === "ArrayBuffer" || VIEW.test(bodyType)) {
    if (bodyType === "ArrayBuffer" || tagOf((clone as ArrayBufferView).buffer) === "ArrayBuffer") return { bodyEncoding: "base64", bodyType, body: encodeBytes(clone as ArrayBuffer | ArrayBufferView) };
  }
  const blobs = checkParts(clone);
  if (bodyType === "Blob") {
    const { type, bytes } = await readBlob(root(clone, "body"));
    return { bodyEncoding: "base64", bodyType: type === "" ? "Blob" : `Blob:${type}`, body: encodeBytes(bytes) };
  }
  if (jsonProblem(clone, "body", true) === undefined) return { bodyEncoding: "json", body: clone };
  const stands = new Map(await Promise.all(blobs.map(async (place) => [place.value, await readBlob(place)] as const)));
  // Each reducer sees every value, and gives what stands for it, or nothing.
  const stand = (kind: string) => (value: unknown): unknown => typeof value === "object" && value !== null && tagOf(value) === kind && stands.get(value);
  return { bodyEncoding: "devalue", body: stringify(clone, { Blob: stand("Blob"), File: stand("File"), Error: errorStand }) };
}

/**
 * The body of which {@link encodeBody} made the fields; fields beside them are left alone. What it gives shares nothing with them. Fields may come from anybody: what can't
 * be a body is refused, and nothing but a body is made of them.
 *
 * Errors: InvalidArgument.
 */
export function decodeBody(encoded: EncodedBody): unknown {
  return reading(() => {
    const fields = plain(encoded, "encoded");
    const field = (key: string): unknown => (Object.hasOwn(fields, key) ? fields[key] : undefined);
    const encoding = oneOf(field("bodyEncoding"), "encoded.bodyEncoding", ENCODINGS);
    const body = field("body");
    if (encoding === "none") {
      if (body !== undefined) throw wrong(`must be absent beside "none", not ${describe(body)}`);
      return undefined;
    }
    if (encoding === "json") {
      const problem = tooDeep(body) ?? jsonProblem(body, "encoded.body");
      if (problem !== undefined) throw wrong(`must be what JSON keeps, but \`${problem.path}\` ${problem.problem}`, { path: problem.path });
      return structuredClone(body);
    }
    if (typeof body !== "string") throw wrong(`must be a string beside "${encoding}", not ${describe(body)}`);
    if (encoding === "base64") return decodeBinary(field("bodyType"), body);
    let value: unknown;
    try {
      value = decodeText(body);
    } catch (cause) {
      throw wrong(`is no text that devalue reads: ${String(cause)}`, {}, cause);
    }
    const problem = tooDeep(value);
    if (problem !== undefined) throw wrong(problem.problem);
    return value;
  });
}

function wrong(problem: string, details: Record<string, unknown> = {}, cause?: unknown): BrokerError {
  const { message, details: given, code } = invalid("encoded.body", problem, details);
  return new BrokerError(code, message, { details: given, cause });
}

function tooDeep(value: unknown): { path: string; problem: string } | undefined {
  for (const { depth } of parts(root(value, "encoded.body"))) {
    if (depth >= DEEPEST) return { path: "encoded.body", problem: `is nested more than ${DEEPEST} levels deep` };
  }
  return undefined;
}

// ── encoding ──

/** Throws for a part that neither JSON nor devalue keeps. Gives the Blobs and Files, each once. */
function checkParts(clone: unknown): Place[] {
  const blobs: Place[] = [];
  let key: Place | undefined;
  for (const place of parts(root(clone, "body"))) {
    const value = place.value as object;
    if (place.depth >= DEEPEST) throw notCloneable("body", `is nested more than ${DEEPEST} levels deep, which is more than encodeBody takes; send it flatter, as a list with references say`, { kind: "depth" });
    const tag = tagOf(value);
    const kept = ArrayBuffer.isView(value) ? VIEW.test(tag) && tagOf(value.buffer) === "ArrayBuffer" : KEPT.test(tag);
    if (!kept) throw notCloneable(pathOf(place), `is ${describe(value)}, which can't be encoded; send plain data in its place`, { kind: tag });
    if (tag === "Array") {
      // What is no index comes after all that are.
      const last = Object.keys(value).at(-1);
      const isIndex = last === undefined || (String(Number(last) >>> 0) === last && Number(last) < (value as unknown[]).length);
      if (!isIndex) throw notCloneable(member(pathOf(place), last), "is a named property of an array, which can't be encoded; send an object in its place", { kind: "named" });
    }
    if (Object.hasOwn(value, "__proto__")) key ??= place;
    if (tag === "Blob" || tag === "File") blobs.push(place);
    const cause = tag === "Error" && causeOf(place);
    // What stands for an Error is read before there is the Error.
    if (cause && [...parts(cause)].some((part) => part.value === value)) throw notCloneable(pathOf(place), "is an Error that is part of its own cause, which can't be encoded; leave the cause out", { kind: "cycle" });
  }
  if (key !== undefined && jsonProblem(clone, "body", true) !== undefined) {
    throw notCloneable(member(pathOf(key), "__proto__"), "has a key that devalue does not write, and the body is more than JSON keeps; call it something else", { kind: "key" });
  }
  return blobs;
}

/** Every object in a body, each once, and what the Errors in it have for a cause. A body is mostly what is no object. */
function* parts(first: Place): Generator<Place, void> {
  const seen = new Set<object>();
  const stack = isObject(first.value) ? [first] : [];
  for (let place = stack.pop(); place !== undefined; place = stack.pop()) {
    const value = place.value as object;
    if (seen.has(value)) continue;
    seen.add(value);
    yield place;
    if (ArrayBuffer.isView(value)) continue;
    const tag = tagOf(value);
    const cause = tag === "Error" ? causeOf(place) : undefined;
    if (cause !== undefined && isObject(cause.value)) stack.push(cause);
    const children = tag === "Map" || tag === "Set" ? inside(place).filter((child) => isObject(child.value)) : ownObjects(place);
    for (let index = children.length - 1; index >= 0; index--) stack.push(children[index] as Place);
  }
}

function ownObjects(place: Place): Place[] {
  const value = place.value as Record<string, unknown>;
  const isList = Array.isArray(value);
  const objects: Place[] = [];
  for (const key of Object.keys(value)) {
    const child = value[key];
    if (isObject(child)) objects.push({ value: child, parent: place, step: isList ? Number(key) : key, depth: place.depth + 1 });
  }
  return objects;
}

const isObject = (value: unknown): boolean => typeof value === "object" && value !== null;

function causeOf(place: Place): Place | undefined {
  const error = place.value as Error;
  return Object.hasOwn(error, "cause") ? { value: error.cause, parent: place, step: "cause", depth: place.depth + 1 } : undefined;
}

interface BlobStand { type: string; bytes: ArrayBuffer; name?: string; lastModified?: number }

async function readBlob(place: Place): Promise<BlobStand> {
  const blob = place.value as Blob & Partial<File>;
  try {
    const stand: BlobStand = { type: blob.type, bytes: await blob.arrayBuffer() };
    return tagOf(blob) === "File" ? { ...stand, name: blob.name as string, lastModified: blob.lastModified as number } : stand;
  } catch (cause) {
    throw notCloneable(pathOf(place), "can't be read any more: the file behind it has changed or gone", { kind: "Blob" }, cause);
  }
}

function errorStand(value: unknown): unknown {
  if (typeof value !== "object" || value === null || tagOf(value) !== "Error") return undefined;
  const { name, message, cause } = value as Error;
  return Object.hasOwn(value, "cause") ? { name, message, cause } : { name, message };
}

// ── decoding ──

function decodeText(text: string): unknown {
  return parse(text, { Blob: (stand) => blobFrom(stand, "Blob"), File: (stand) => blobFrom(stand, "File"), Error: errorFrom }, {
    // URL, URLSearchParams and Temporal: no body holds one.
    operations: { fromStringValue(tag) { throw new TypeError(`a ${tag} is no part of a body`); } },
  });
}

/** The field of what stands for an object, if it is what it has to be. */
function part<T>(stand: unknown, key: string, isRight: (value: unknown) => boolean): T {
  const value = typeof stand === "object" && stand !== null && Object.hasOwn(stand, key) ? (stand as Record<string, unknown>)[key] : undefined;
  if (!isRight(value)) throw new TypeError(`${key} is ${describe(value)}`);
  return value as T;
}
const isText = (value: unknown): boolean => typeof value === "string";

function blobFrom(stand: unknown, kind: "Blob" | "File"): Blob {
  const type = part<string>(stand, "type", isText);
  const bytes = part<ArrayBuffer>(stand, "bytes", (value) => value instanceof ArrayBuffer);
  if (kind === "Blob") return new Blob([bytes], { type });
  return new File([bytes], part<string>(stand, "name", isText), { type, lastModified: part<number>(stand, "lastModified", Number.isSafeInteger) });
}

function errorFrom(stand: unknown): Error {
  const name = part<string>(stand, "name", isText);
  const message = part<string>(stand, "message", isText);
  const Kind = ERRORS.find((kind) => kind.name === name) ?? Error;
  return new Kind(message, Object.hasOwn(stand as object, "cause") ? { cause: (stand as Error).cause } : {});
}

function decodeBinary(bodyType: unknown, text: string): unknown {
  const name = typeof bodyType === "string" ? bodyType : "";
  const make = VIEW.test(name) ? (globalThis as unknown as Record<string, (new (buffer: ArrayBuffer) => unknown) | undefined>)[name] : undefined;
  const isBlob = name === "Blob" || name.startsWith("Blob:");
  if (make === undefined && !isBlob && name !== "ArrayBuffer") {
    throw invalid("encoded.bodyType", `must be ArrayBuffer, DataView, Blob or a typed array that this browser has, not ${typeof bodyType === "string" ? JSON.stringify(bodyType) : describe(bodyType)}`);
  }
  const bytes = decodeBytes(text);
  if (bytes === undefined) throw wrong("is not base64");
  if (isBlob) return new Blob([bytes], { type: name.slice("Blob:".length) });
  try {
    return make === undefined ? bytes : new make(bytes);
  } catch (cause) {
    throw wrong(`has ${bytes.byteLength} bytes, which is no ${name}`, {}, cause);
  }
}

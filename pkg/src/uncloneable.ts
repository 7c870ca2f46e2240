// Why a body can't be stored: which part of it, and what to send instead.
import { describe, isPlain, tagOf } from "./check.js";
import { BrokerError } from "./errors.js";
import { REFUSED } from "./survey.js";
import { inside, pathOf, places, root, type Place } from "./walk.js";

/** Deeper than this the browser's own clone may run out of stack. */
const DEEP = 1_000;
/** How many parts of a body are cloned one by one to find the guilty one. */
const TRIALS = 1_000;

const ADVICE: Readonly<Record<string, string>> = {
  Promise: "await it first", URL: "send its href", URLSearchParams: "send its text", Headers: "send Object.fromEntries(headers)", FormData: "send [...formData]",
  Request: "send its url, method, headers and body", Response: "send its status, headers and body", Conversation: "send its handle", Broker: "leave it out", Transaction: "leave it out",
  SharedArrayBuffer: "send a copy of its bytes", VideoFrame: "send its pixels or an encoded Blob",
};

/** The tags of what can be looked into with own keys or entries. */
const OPEN = new Set(["Object", "Array", "Map", "Set", "Error", "Arguments"]);

interface Fault { readonly place: Place; readonly problem: string; readonly advice?: string; readonly kind: string; readonly cause?: unknown }

/** What `structuredClone(body)` threw, as the error that names the part. */
export function cloneFailure(body: unknown, name: string, thrown: unknown): BrokerError {
  const thrownName = (thrown as { name?: unknown } | null)?.name;
  if (thrownName === "RangeError" || thrownName === "InternalError" || (thrownName === "DataCloneError" && /out of memory/i.test(String(thrown)))) {
    const { depth, fault } = measure(body, name);
    if (fault !== undefined) return refusal(fault, thrown);
    if (depth > DEEP) {
      const problem = `is nested ${depth} levels deep, which is more than structuredClone can follow; send it flatter, as a list with references say`;
      return notCloneable(name, problem, { depth, kind: "depth" }, thrown);
    }
    return new BrokerError("MessageTooLarge", `\`${name}\` is too large to be cloned: ${String(thrown)}. Send it in parts, or as a Blob.`, { number: 8459, cause: thrown, details: { path: name } });
  }
  const fault = findFault(body, name) ?? { place: root(body, name), problem: "holds a value that structuredClone refuses", kind: "unknown" };
  return refusal(fault, thrown);
}

function refusal(fault: Fault, thrown: unknown): BrokerError {
  const advice = fault.advice ?? "leave it out, or send plain data in its place";
  return notCloneable(pathOf(fault.place), `${fault.problem}, which structuredClone can't copy; ${advice}`, { kind: fault.kind }, fault.cause ?? thrown);
}

/** A cloned body with something in it that IndexedDB refuses: known beforehand, or found out by the store (`thrown`). */
export function storeFailure(clone: unknown, name: string, thrown?: BrokerError): BrokerError | undefined {
  let foreign: Place | undefined;
  for (const place of places(root(clone, name))) {
    if (typeof place.value !== "object" || place.value === null) continue;
    const tag = tagOf(ArrayBuffer.isView(place.value) ? place.value.buffer : place.value);
    if (REFUSED.has(tag)) return refused(place, tag);
    if (!isPlain(place.value) && !STORED.test(tag)) foreign ??= place;
  }
  return foreign !== undefined && thrown !== undefined ? refused(foreign, tagOf(foreign.value as object), thrown) : undefined;
}

/** What every store takes. */
const STORED = /^(Object|Array|Map|Set|Error|Date|RegExp|Boolean|Number|String|BigInt|ArrayBuffer|DataView|.*Array|Blob|File|FileList|ImageData)$/;

function refused(place: Place, tag: string, cause?: unknown): BrokerError {
  return notCloneable(pathOf(place), `is ${describe(place.value)}${ArrayBuffer.isView(place.value) ? ` over a ${tag}` : ""}, which IndexedDB does not store; ${ADVICE[tag] ?? "leave it out, or send plain data in its place"}`, { kind: tag }, cause);
}

export function notCloneable(path: string, problem: string, details: Record<string, unknown>, cause?: unknown): BrokerError {
  return new BrokerError("NotCloneable", `\`${path}\` ${problem}.`, { details: { path, ...details }, cause });
}

function findFault(body: unknown, name: string): Fault | undefined {
  let doubtful: Fault | undefined;
  const pending: Place[] = [];
  let reading: Place = root(body, name);
  try {
    for (const place of places(reading, (at) => pending.at(-1) === at || OPEN.has(tagOf(at.value as object)))) {
      reading = place;
      const fault = faultOf(place);
      if (fault === undefined) continue;
      // What has keys of its own may be an object whose class has a tag: the fault may lie inside.
      if (typeof place.value !== "object" || place.value === null || fault.kind !== tagOf(place.value) || Object.keys(place.value).length === 0 || "nodeType" in place.value) return fault;
      if (ADVICE[fault.kind] !== undefined) return fault;
      doubtful ??= fault;
      pending.push(place);
    }
  } catch (cause) {
    return unreadable(reading, cause);
  }
  return doubtful ?? proxyIn(root(body, name));
}

/** What is wrong with the value itself, whatever it holds. */
function faultOf(place: Place): Fault | undefined {
  const { value } = place;
  if (typeof value === "function" || typeof value === "symbol") return { place, problem: `is a ${typeof value}`, kind: typeof value };
  if (typeof value !== "object" || value === null) return undefined;
  if (ArrayBuffer.isView(value) || tagOf(value) === "ArrayBuffer") {
    return isDetached(value) ? { place, problem: "is a detached ArrayBuffer: it was transferred elsewhere", kind: "detached", advice: "send it before it is transferred, or a copy" } : undefined;
  }
  const tag = tagOf(value);
  if (OPEN.has(tag)) return undefined;
  try {
    structuredClone(value);
    return undefined;
  } catch {
    return { place, problem: `is ${describe(value)}`, kind: tag, ...(ADVICE[tag] !== undefined && { advice: ADVICE[tag] }) };
  }
}

function isDetached(value: object): boolean {
  try {
    void new Uint8Array(ArrayBuffer.isView(value) ? value.buffer : (value as ArrayBuffer));
    return false;
  } catch {
    return true;
  }
}

/** The property of an object whose getter throws. */
function throwing(place: Place): Place {
  const value = place.value as Record<string, unknown>;
  try {
    for (const key of Object.keys(value)) {
      try {
        void value[key];
      } catch {
        return { value: undefined, parent: place, step: Array.isArray(value) ? Number(key) : key, depth: place.depth + 1 };
      }
    }
  } catch {
    // The keys themselves can't be read.
  }
  return place;
}

/** Everything looks well and yet the clone fails: that is what a Proxy does. The innermost part that fails by itself. */
function proxyIn(first: Place): Fault {
  let trials = TRIALS;
  const visited = new Set<unknown>();
  let place = first;
  for (let next: Place | undefined = first; next !== undefined;) {
    place = next;
    visited.add(place.value);
    next = inside(place).find(({ value }) => {
      if (typeof value !== "object" || value === null || visited.has(value) || trials-- <= 0) return false;
      try {
        structuredClone(value);
        return false;
      } catch {
        return true;
      }
    });
  }
  return { place, problem: "looks like a Proxy (a reactive object of Vue, MobX or the like)", kind: "proxy", advice: "send the plain object behind it, as Vue's toRaw() gives it" };
}

/** How deep it is nested; or what in it can't be read. */
function measure(body: unknown, name: string): { depth: number; fault?: Fault } {
  let depth = 0;
  let reading = root(body, name);
  try {
    for (const place of places(reading, (at) => {
      reading = at;
      return true;
    })) depth = Math.max(depth, place.depth);
  } catch (cause) {
    return { depth, fault: unreadable(reading, cause) };
  }
  return { depth };
}

function unreadable(place: Place, cause: unknown): Fault {
  return { place: throwing(place), problem: `can't be read: reading it threw ${String(cause)}`, kind: "getter", advice: "copy its values first", cause };
}

// Comparing what came back with what was given, by what structuredClone keeps.
import { member, tagOf } from "./check.js";

/** The path of the first difference; undefined when there is none. */
export function difference(actual: unknown, wanted: unknown, path: string, seen = new Map<object, object>()): string | undefined {
  if (Object.is(actual, wanted)) return undefined;
  if (typeof actual !== "object" || typeof wanted !== "object" || actual === null || wanted === null) return path;
  if (seen.has(wanted)) return seen.get(wanted) === actual ? undefined : path;
  seen.set(wanted, actual);
  const tag = tagOf(wanted);
  if (tagOf(actual) !== tag) return path;
  if (tag === "Date") return Object.is(Number(actual), Number(wanted)) ? undefined : path;
  if (tag === "Map" || tag === "Set") return difference([...actual as Iterable<unknown>], [...wanted as Iterable<unknown>], path, seen);
  if (ArrayBuffer.isView(wanted)) return difference(bytesOf(actual as ArrayBufferView), bytesOf(wanted), path, seen);
  const [left, right] = [Object.keys(actual).sort(), Object.keys(wanted).sort()];
  if (left.join("\n") !== right.join("\n") || (Array.isArray(wanted) && wanted.length !== (actual as unknown[]).length)) return path;
  for (const key of right) {
    const found = difference((actual as Record<string, unknown>)[key], (wanted as Record<string, unknown>)[key], Array.isArray(wanted) ? `${path}[${key}]` : member(path, key), seen);
    if (found !== undefined) return found;
  }
  return undefined;
}

const bytesOf = (view: ArrayBufferView): number[] => [...new Uint8Array(view.buffer, view.byteOffset, view.byteLength)];

import { tagOf } from "./check.js";

/** What a look through a cloned body tells. */
export interface Survey {
  /** Bytes, roughly: what the text, the numbers, the buffers and the blobs of it take. */
  size: number;
  /** The Blobs and Files in it, each once. */
  blobs: Blob[] | undefined;
  /** Holds something that structuredClone passes and IndexedDB refuses. */
  refused: boolean;
}

/** What structuredClone passes, in one browser or another, and IndexedDB refuses. */
export const REFUSED: ReadonlySet<string> = new Set([
  "WebAssembly.Module", "SharedArrayBuffer", "FormData", "VideoFrame", "AudioData", "EncodedVideoChunk", "EncodedAudioChunk", "RTCEncodedVideoFrame", "RTCEncodedAudioFrame",
]);

/** How many holes of an array are looked at one by one. */
const HOLES = 1024;

/** Looks through a cloned body, each object once. */
export function survey(body: unknown): Survey {
  const found: Survey = { size: 0, blobs: undefined, refused: false };
  if (typeof body !== "object" || body === null) {
    found.size = sizeOf(body);
    return found;
  }
  const seen = new Set<object>([body]);
  const stack: object[] = [body];
  const see = (value: unknown): void => {
    if (typeof value !== "object" || value === null) {
      found.size += sizeOf(value);
    } else if (!seen.has(value)) {
      seen.add(value);
      stack.push(value);
    }
  };
  for (let value = stack.pop(); value !== undefined; value = stack.pop()) {
    found.size += 8;
    const prototype: unknown = Object.getPrototypeOf(value);
    if (prototype === Object.prototype) eachKey(value, found, see);
    else if (prototype === Array.prototype) eachItem(value as unknown[], see);
    else if (prototype !== Date.prototype) special(value, found, see);
  }
  return found;
}

function sizeOf(value: unknown): number {
  switch (typeof value) {
    case "string": return 2 * value.length;
    case "bigint": return 16;
    case "number": return 8;
    default: return 4;
  }
}

function eachKey(value: object, found: Survey, see: (value: unknown) => void): void {
  for (const key of Object.keys(value)) {
    found.size += 2 * key.length;
    see((value as Record<string, unknown>)[key]);
  }
}

/** An array's items: by index, unless it is mostly holes. */
function eachItem(list: unknown[], see: (value: unknown) => void): void {
  let holes = 0;
  for (let index = 0; index < list.length; index++) {
    const value = list[index];
    if (value === undefined && !(index in list) && ++holes > HOLES) {
      for (const key of Object.keys(list)) if (!(Number(key) < index)) see((list as unknown as Record<string, unknown>)[key]);
      return;
    }
    see(value);
  }
}

function special(value: object, found: Survey, see: (value: unknown) => void): void {
  if (ArrayBuffer.isView(value)) return see(value.buffer);
  const tag = tagOf(value);
  switch (tag) {
    case "Array": return eachItem(value as unknown[], see);
    case "Date": case "Boolean": case "Number": return;
    case "ArrayBuffer": found.size += (value as ArrayBuffer).byteLength; return;
    case "Map":
      for (const [key, item] of value as Map<unknown, unknown>) {
        see(key);
        see(item);
      }
      return;
    case "Set": return (value as Set<unknown>).forEach(see);
    case "Blob": case "File":
      found.size += (value as Blob).size;
      (found.blobs ??= []).push(value as Blob);
      return;
    case "ImageData": return see((value as ImageData).data);
    case "RegExp": case "String": found.size += 2 * String(value).length; return;
    case "Error": found.size += 2 * `${(value as Error).message}${(value as Error).stack ?? ""}`.length; see((value as Error).cause); return;
    default:
      if (REFUSED.has(tag)) found.refused = true;
      else eachKey(value, found, see);
  }
}

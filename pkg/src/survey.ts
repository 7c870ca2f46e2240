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

/** Looks through cloned bodies, each object once. */
export class Surveyor {
  /** Which body each object was met in. */
  readonly #owners = new Map<object, number>();
  readonly #left: object[] = [];
  #body = 0;
  #found: Survey = { size: 0, blobs: undefined, refused: false };
  /** Whether two of the bodies have an object in common. */
  shares = false;

  /** Looks through the next body. */
  look(body: unknown): Survey {
    this.#body += 1;
    const found: Survey = this.#found = { size: 0, blobs: undefined, refused: false };
    this.#see(body);
    for (let value = this.#left.pop(); value !== undefined; value = this.#left.pop()) {
      found.size += 8;
      const prototype: unknown = Object.getPrototypeOf(value);
      if (prototype === Object.prototype) this.#keys(value);
      else if (prototype === Array.prototype) this.#items(value as unknown[]);
      else if (prototype !== Date.prototype) this.#special(value);
    }
    return found;
  }

  #see(value: unknown): void {
    if (typeof value !== "object" || value === null) {
      this.#found.size += sizeOf(value);
      return;
    }
    const owner = this.#owners.get(value);
    if (owner === undefined) {
      this.#owners.set(value, this.#body);
      this.#left.push(value);
    } else if (owner !== this.#body) {
      this.shares = true;
    }
  }

  #keys(value: object): void {
    for (const key of Object.keys(value)) {
      this.#found.size += 2 * key.length;
      this.#see((value as Record<string, unknown>)[key]);
    }
  }

  /** An array's items: by index, unless it is mostly holes. */
  #items(list: unknown[]): void {
    let holes = 0;
    for (let index = 0; index < list.length; index++) {
      const value = list[index];
      if (value === undefined && !(index in list) && ++holes > HOLES) {
        for (const key of Object.keys(list)) if (!(Number(key) < index)) this.#see((list as unknown as Record<string, unknown>)[key]);
        return;
      }
      this.#see(value);
    }
  }

  #special(value: object): void {
    if (ArrayBuffer.isView(value)) return this.#see(value.buffer);
    const found = this.#found;
    const tag = tagOf(value);
    switch (tag) {
      case "Array": return this.#items(value as unknown[]);
      case "Date": case "Boolean": case "Number": return;
      case "ArrayBuffer": found.size += (value as ArrayBuffer).byteLength; return;
      case "Map":
        for (const [key, item] of value as Map<unknown, unknown>) {
          this.#see(key);
          this.#see(item);
        }
        return;
      case "Set": return (value as Set<unknown>).forEach((item) => this.#see(item));
      case "Blob": case "File":
        found.size += (value as Blob).size;
        (found.blobs ??= []).push(value as Blob);
        return;
      case "ImageData": return this.#see((value as ImageData).data);
      case "RegExp": case "String": found.size += 2 * String(value).length; return;
      case "Error": found.size += 2 * `${(value as Error).message}${(value as Error).stack ?? ""}`.length; this.#see((value as Error).cause); return;
      default:
        if (REFUSED.has(tag)) found.refused = true;
        else this.#keys(value);
    }
  }
}

function sizeOf(value: unknown): number {
  switch (typeof value) {
    case "string": return 2 * value.length;
    case "bigint": return 16;
    case "number": return 8;
    default: return 4;
  }
}

// Where the store refuses Blobs, their bytes are stored, and they are made anew when the body is read.
import { BrokerError } from "./errors.js";
import { notCloneable } from "./uncloneable.js";
import { pathOf, places, root } from "./walk.js";

/** How a body was packed. */
export const AS_IS = 0;
export const WITH_BYTES = 1;

/** Stands for a Blob or File inside of a packed body. */
interface Stand { bytes: ArrayBuffer; type: string; name?: string; lastModified?: number }
/** `blobs` holds the very objects that stand in `value`, so that nothing of the user's can be taken for one. */
interface Packed { value: unknown; blobs: Stand[] }

/** Reads the bytes of the blobs in a cloned body, and puts them in the blobs' places. */
export async function packBlobs(clone: unknown, blobs: readonly Blob[], name: string): Promise<Packed> {
  const stands = await Promise.all(blobs.map((blob) => standFor(blob, clone, name)));
  return { value: replaceAll(clone, new Map(blobs.map((blob, index) => [blob, stands[index] as object]))), blobs: stands };
}

async function standFor(blob: Blob, clone: unknown, name: string): Promise<Stand> {
  try {
    const { type } = blob;
    const bytes = await blob.arrayBuffer();
    return isFile(blob) ? { bytes, type, name: blob.name, lastModified: blob.lastModified } : { bytes, type };
  } catch (cause) {
    let path = name;
    for (const place of places(root(clone, name))) if (place.value === blob) path = pathOf(place);
    throw notCloneable(path, "can't be read any more: the file behind it has changed or gone", { kind: "Blob" }, cause);
  }
}

function isFile(blob: Blob): blob is File {
  return typeof (blob as Partial<File>).name === "string";
}

/** A body as it was sent. */
export function unpack(value: unknown, packing: number | undefined): unknown {
  if (packing === AS_IS || packing === undefined) return value;
  if (packing !== WITH_BYTES) {
    throw new BrokerError("VersionTooNew", `A body was stored in a form (${packing}) that this version of pocket-broker does not know. Update the package.`, { details: { packing } });
  }
  const { value: body, blobs } = value as Packed;
  return replaceAll(body, new Map(blobs.map((stand) => [stand, blobFrom(stand)])));
}

function blobFrom({ bytes, type, name, lastModified }: Stand): Blob {
  return name === undefined ? new Blob([bytes], { type }) : new File([bytes], name, { type, lastModified: lastModified ?? 0 });
}

/** Puts other objects in the places of some, everywhere in a value that is ours alone. */
function replaceAll(value: unknown, others: ReadonlyMap<object, object>): unknown {
  const other = (one: unknown): unknown => others.get(one as object) ?? one;
  for (const place of places(root(value, ""), (at) => !others.has(at.value as object))) {
    const holder = place.value;
    if (typeof holder !== "object" || holder === null || others.has(holder) || ArrayBuffer.isView(holder)) continue;
    if (holder instanceof Map) {
      const entries = [...holder];
      if (!entries.some((entry) => entry.some((one) => others.has(one)))) continue;
      holder.clear();
      for (const [key, item] of entries) holder.set(other(key), other(item));
    } else if (holder instanceof Set) {
      const items = [...holder];
      if (!items.some((item) => others.has(item))) continue;
      holder.clear();
      for (const item of items) holder.add(other(item));
    } else {
      // An own `__proto__` key is set as any other: it is there already.
      for (const [key, item] of Object.entries(holder)) if (others.has(item)) (holder as Record<string, unknown>)[key] = other(item);
    }
  }
  return other(value);
}

// A body on its way in: cloned at the call, measured, and checked for what the store would refuse.
import { AS_IS, packBlobs, WITH_BYTES } from "./blobs.js";
import type { Core } from "./core.js";
import { BrokerError } from "./errors.js";
import { Surveyor, type Survey } from "./survey.js";
import { cloneFailure, storeFailure } from "./uncloneable.js";

export interface Body {
  value: unknown;
  packing: number;
  size: number;
  /** Present when the body is not ready yet: blobs are looked into. Rejects when they can't be read. */
  ready?: Promise<void>;
}

/** Clones and measures a body. `name` is what errors call it. */
export function takeBody(core: Core, body: unknown, name: string): Body {
  if (body === undefined) return { value: undefined, packing: AS_IS, size: 0 };
  let value = body;
  if ((typeof body === "object" && body !== null) || typeof body === "function" || typeof body === "symbol") {
    try {
      value = structuredClone(body);
    } catch (thrown) {
      throw cloneFailure(body, name, thrown);
    }
  }
  return surveyed(core, value, new Surveyor().look(value), () => name);
}

/** Clones and measures bodies: together, which costs a fraction of one by one. */
export function takeBodies(core: Core, bodies: readonly unknown[], name: (index: number) => string): Body[] {
  const oneByOne = (): Body[] => bodies.map((body, index) => takeBody(core, body, name(index)));
  let values: unknown[];
  try {
    values = structuredClone(bodies) as unknown[];
  } catch {
    return oneByOne(); // which says whose fault it is
  }
  const surveyor = new Surveyor();
  const surveys = values.map((value) => surveyor.look(value));
  // What two of them have in common would be one object to whoever receives both.
  if (surveyor.shares) return oneByOne();
  return values.map((value, index) => surveyed(core, value, surveys[index] as Survey, () => name(index)));
}

function surveyed(core: Core, value: unknown, { size, blobs, refused }: Survey, name: () => string): Body {
  if (value === undefined) return { value, packing: AS_IS, size: 0 };
  if (refused) {
    const failure = storeFailure(value, name());
    if (failure !== undefined) throw failure;
  }
  if (size > core.maxMessageBytes) {
    throw new BrokerError("MessageTooLarge", `\`${name()}\` takes about ${size} bytes, more than maxMessageBytes (${core.maxMessageBytes}). Send it in parts, or raise maxMessageBytes in openBroker.`,
      { number: 8459, details: { size, max: core.maxMessageBytes } });
  }
  const taken: Body = { value, packing: AS_IS, size };
  if (blobs !== undefined && core.storesBlobs !== true) taken.ready = settleBlobs(core, taken, blobs, name());
  return taken;
}

async function settleBlobs(core: Core, taken: Body, blobs: readonly Blob[], name: string): Promise<void> {
  core.storesBlobs ??= await core.raw.canStoreBlobs();
  if (core.storesBlobs) return;
  taken.value = await packBlobs(taken.value, blobs, name);
  taken.packing = WITH_BYTES;
}

/** The store's own refusal of a body says which part of it, where that can be told. */
export function namePart(error: unknown, bodies: readonly Body[], name: (index: number) => string): unknown {
  if (!(error instanceof BrokerError) || error.code !== "NotCloneable" || error.details["path"] !== undefined) return error;
  for (const [index, body] of bodies.entries()) {
    const better = storeFailure(body.value, name(index), error);
    if (better !== undefined) return better;
  }
  return error;
}

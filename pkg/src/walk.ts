// Walking through bodies: always with a stack of our own, since a body may be nested as deeply as its sender likes.
import { member, tagOf } from "./check.js";

/** A place in a body: its value, and how it was reached. */
export interface Place {
  readonly value: unknown;
  readonly parent: Place | undefined;
  /** What continues the parent's path; a function of it. */
  readonly step: string | number | ((path: string) => string);
  readonly depth: number;
}

export function root(value: unknown, name: string): Place {
  return { value, parent: undefined, step: name, depth: 0 };
}

/** `body.items[3].callback`. Of a very deep place only the end. */
export function pathOf(place: Place): string {
  const steps: Place["step"][] = [];
  let at: Place | undefined = place;
  while (at !== undefined && steps.length < 50) {
    steps.push(at.step);
    at = at.parent;
  }
  return steps.reduceRight<string>((path, step) => {
    if (typeof step === "function") return step(path);
    return typeof step === "number" ? `${path}[${step}]` : path === "" ? step : member(path, step);
  }, at === undefined ? "" : "…");
}

/** The places one step inside of an object, as structuredClone goes: own enumerable keys, entries of a Map, members of a Set. Getters run. */
export function inside(place: Place): Place[] {
  const value = place.value as object;
  const depth = place.depth + 1;
  const places: Place[] = [];
  const add = (child: unknown, step: Place["step"]): void => {
    places.push({ value: child, parent: place, step, depth });
  };
  const tag = tagOf(value);
  if (tag === "Map") {
    let index = 0;
    for (const [key, child] of value as Map<unknown, unknown>) {
      const at = index++;
      add(key, (path) => `[...${path}.keys()][${at}]`);
      add(child, typeof key === "string" || typeof key === "number" ? (path) => `${path}.get(${JSON.stringify(key)})` : (path) => `[...${path}.values()][${at}]`);
    }
  } else if (tag === "Set") {
    let index = 0;
    for (const child of value as Set<unknown>) {
      const at = index++;
      add(child, (path) => `[...${path}][${at}]`);
    }
  } else {
    const list = Array.isArray(value);
    for (const key of Object.keys(value)) add((value as Record<string, unknown>)[key], list && /^\d+$/.test(key) ? Number(key) : key);
  }
  return places;
}

/** Every place of a body, itself first, each object once. `enter` says which objects to look into. */
export function* places(first: Place, enter: (place: Place) => boolean = () => true): Generator<Place, void> {
  const seen = new Set<object>();
  const stack = [first];
  for (let place = stack.pop(); place !== undefined; place = stack.pop()) {
    const { value } = place;
    if (typeof value === "object" && value !== null) {
      if (seen.has(value)) continue;
      seen.add(value);
      yield place;
      if (ArrayBuffer.isView(value) || !enter(place)) continue;
      const children = inside(place);
      for (let index = children.length - 1; index >= 0; index--) stack.push(children[index] as Place);
    } else {
      yield place;
    }
  }
}

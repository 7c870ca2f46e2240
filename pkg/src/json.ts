// What "json" means: JSON.parse(JSON.stringify(body)) is the same.
import { describe, isPlain } from "./check.js";
import { inside, pathOf, root, type Place } from "./walk.js";

/**
 * What JSON would lose or change, as "`body.when` is a Date"; undefined when nothing. An object that stands in two places becomes two by JSON: a problem if
 * `isStrict`.
 */
export function jsonProblem(body: unknown, name: string, isStrict = false): { path: string; problem: string } | undefined {
  // Open objects are those that the walk is inside of: meeting one again is a cycle; meeting a finished one again is not.
  const open = new Set<object>();
  const finished = new Set<object>();
  const stack: (Place | { close: object })[] = [root(body, name)];
  for (let at = stack.pop(); at !== undefined; at = stack.pop()) {
    if ("close" in at) {
      open.delete(at.close);
      finished.add(at.close);
      continue;
    }
    const { value } = at;
    const problem = leafProblem(value) ?? (open.has(value as object) ? "refers to itself" : undefined);
    if (problem !== undefined) return { path: pathOf(at), problem };
    if (typeof value !== "object" || value === null) continue;
    if (finished.has(value)) {
      if (isStrict) return { path: pathOf(at), problem: "stands in two places" };
      continue;
    }
    open.add(value);
    stack.push({ close: value });
    const children = inside(at);
    for (let index = children.length - 1; index >= 0; index--) stack.push(children[index] as Place);
  }
  return undefined;
}

function leafProblem(value: unknown): string | undefined {
  switch (typeof value) {
    case "string": case "boolean": return undefined;
    case "number":
      if (!Number.isFinite(value)) return `is ${value}`;
      return Object.is(value, -0) ? "is -0" : undefined;
    case "object":
      if (value === null) return undefined;
      if (Array.isArray(value)) return isDense(value) ? undefined : "is an array with holes or named properties";
      return isPlain(value) ? undefined : `is ${describe(value)}`;
    default: return `is ${describe(value)}`;
  }
}

function isDense(list: unknown[]): boolean {
  const keys = Object.keys(list); // the indices first, in order
  return keys.length === list.length && (list.length === 0 || keys.at(-1) === String(list.length - 1));
}

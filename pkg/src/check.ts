// What every argument goes through: strings that survive the wasm boundary, plain objects, options without misspelt keys.
import { BrokerError, invalid, notSupported } from "./errors.js";

const surrogate = /\p{Surrogate}/u;

/** Whether the string has no lone surrogate: those would become U+FFFD at the wasm boundary. */
export function isWellFormed(value: string): boolean {
  const native = (value as { isWellFormed?: () => boolean }).isWellFormed;
  return native === undefined ? !surrogate.test(value) : native.call(value);
}

/** What a value is, with its article: "a number", "null", "an instance of Map". */
export function describe(value: unknown): string {
  if (value === null || value === undefined) return String(value);
  if (Array.isArray(value)) return "an array";
  if (typeof value !== "object") return /^[aeiou]/.test(typeof value) ? `an ${typeof value}` : `a ${typeof value}`;
  if (isPlain(value)) return "an object";
  const tag = tagOf(value);
  return tag === "Object" ? `an instance of ${className(value)}` : /^([AEIO]|HTML|SVG)/.test(tag) ? `an ${tag}` : `a ${tag}`;
}

function className(value: object): string {
  const { constructor } = value as { constructor?: unknown };
  return typeof constructor === "function" && constructor.name !== "" ? constructor.name : "another class";
}

/** `Map` for a Map, of any realm. */
export function tagOf(value: object): string {
  return Object.prototype.toString.call(value).slice(8, -1);
}

/** Whether the prototype is Object.prototype, of any realm, or null. */
export function isPlain(value: object): boolean {
  const prototype: object | null = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null || (Object.getPrototypeOf(prototype) === null && Object.hasOwn(prototype, "isPrototypeOf"));
}

/** `owner.key`, or `owner["any key"]`. */
export function member(owner: string, key: string): string {
  if (/^[A-Za-z_$][\w$]*$/.test(key)) return owner === "" ? key : `${owner}.${key}`;
  return `${owner}[${JSON.stringify(key)}]`;
}

/** A name, key, handle or other text. */
export function text(value: unknown, argument: string): string {
  if (typeof value !== "string") throw invalid(argument, `must be a string, not ${describe(value)}`);
  if (!isWellFormed(value)) throw invalid(argument, "holds a lone surrogate, half of a character: it can't be stored as text");
  return value;
}

export function flag(value: unknown, argument: string): boolean {
  if (typeof value !== "boolean") throw invalid(argument, `must be true or false, not ${describe(value)}`);
  return value;
}

export function number(value: unknown, argument: string): number {
  if (typeof value !== "number") throw invalid(argument, `must be a number, not ${describe(value)}`);
  return value;
}

/** A number from `least` on; Infinity is one. */
export function amount(value: unknown, argument: string, least: number): number {
  if (!(number(value, argument) >= least)) throw invalid(argument, `must be ${least} or more, not ${String(value)}`);
  return value as number;
}

/** A whole number from `least` to `most`. */
export function whole(value: unknown, argument: string, least: number, most = Number.MAX_SAFE_INTEGER): number {
  if (!Number.isInteger(number(value, argument)) || (value as number) < least || (value as number) > most) {
    throw invalid(argument, `must be a whole number ${most === Number.MAX_SAFE_INTEGER ? `from ${least} on` : `from ${least} to ${most}`}, not ${String(value)}`);
  }
  return value as number;
}

export function oneOf<T extends string>(value: unknown, argument: string, words: readonly T[]): T {
  if (!words.includes(value as T)) {
    const given = typeof value === "string" ? JSON.stringify(value) : describe(value);
    throw invalid(argument, `must be ${words.map((word) => `"${word}"`).join(" or ")}, not ${given}`);
  }
  return value as T;
}

/** An instant as epoch milliseconds. */
export function instant(value: unknown, argument: string): number {
  const time = value instanceof Date || (typeof value === "object" && value !== null && tagOf(value) === "Date") ? Number(value) : value;
  if (typeof time !== "number" || Number.isNaN(time)) {
    throw invalid(argument, `must be a Date or epoch milliseconds, not ${typeof time === "number" ? "an invalid one" : describe(value)}`);
  }
  return time;
}

export function abortSignal(value: unknown, argument = "signal"): AbortSignal {
  const signal = value as Partial<AbortSignal> | null;
  if (typeof signal !== "object" || typeof signal?.aborted !== "boolean" || typeof signal.addEventListener !== "function") {
    throw invalid(argument, `must be an AbortSignal, not ${describe(value)}`);
  }
  return signal as AbortSignal;
}

/** An object of the caller's that is read by its own keys. */
export function plain(value: unknown, argument: string): Record<string, unknown> {
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw invalid(argument, `must be an object, not ${describe(value)}`);
  if (!isPlain(value)) {
    throw invalid(argument, `must be a plain object: this one has a prototype of its own (${describe(value)}), and only own keys are read. `
      + "A literal `__proto__:` sets the prototype instead of making a key; JSON.parse or [\"__proto__\"] makes a key");
  }
  return value as Record<string, unknown>;
}

/** What each option is read with. */
type Readers = Readonly<Record<string, (value: unknown, argument: string) => unknown>>;
/** What was read: the options that were given. */
export type Read<R extends Readers> = { -readonly [K in keyof R]?: Exclude<ReturnType<R[K]>, undefined> };

/** An option of the API that this release refuses, whatever its value. */
export const later = (advice: string) => (_: unknown, argument: string): never => {
  throw notSupported(argument, advice);
};

/** Reads options once. An option that is undefined counts as absent; one that nobody knows is an error, so that a slip is never silent. */
export function options<R extends Readers>(value: unknown, argument: string, readers: R): Read<R> {
  const read: Record<string, unknown> = {};
  if (value === undefined) return read as Read<R>;
  const given = plain(value, argument);
  for (const key of Object.keys(given)) {
    const name = argument === "options" ? member("", key) : member(argument, key);
    if (!Object.hasOwn(readers, key)) {
      throw new BrokerError("InvalidArgument", `\`${name}\` is not an option here. Options: ${Object.keys(readers).join(", ")}.`, { details: { argument: name, option: key } });
    }
    const one = given[key];
    if (one !== undefined) {
      const result = (readers as Readers)[key]?.(one, name);
      if (result !== undefined) read[key] = result;
    }
  }
  return read as Read<R>;
}

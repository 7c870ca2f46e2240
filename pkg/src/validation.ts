// Message types' validations, checked at the call, before anything of the body reaches the wasm side.
import type { Body } from "./bodies.js";
import { describe } from "./check.js";
import type { Core } from "./core.js";
import { BrokerError, rethrow } from "./errors.js";
import { jsonProblem } from "./json.js";
import type { RawDefinitions, RawValidation } from "./raw.js";
import type { StandardSchemaV1 } from "./types/definitions.js";

const VENDOR = "pocket-broker";

/**
 * A body type without a validator, for TypeScript: `messageTypes: { Order: type<Order>() }`.
 * At run time just `validation`, default "none".
 */
export function type<T>(validation: "none" | "json" = "none"): StandardSchemaV1<T> {
  const validate = (value: unknown): object => {
    const found = validation === "json" ? jsonProblem(value, "value") : undefined;
    return found === undefined ? { value } : { issues: [{ message: `${found.path} ${found.problem}` }] };
  };
  return { "~standard": { version: 1, vendor: VENDOR, validate, validation } as StandardSchemaV1["~standard"] };
}

/** The validation that an object of `type()` stands for, of any copy of the package; undefined for a real validator. */
export function markedValidation(schema: StandardSchemaV1): unknown {
  const standard = schema["~standard"] as { vendor: string; validation?: unknown };
  return standard.vendor === VENDOR ? standard.validation : undefined;
}

/** What is left to do for bodies of a message type that is not known here: when `ready` has resolved, `check` what was cloned. */
export interface LateCheck { readonly ready: Promise<void>; readonly check: () => void }

const NOTHING: RawDefinitions = { messageTypes: [], contracts: [], queues: [], services: [], priorities: [] };

/** Who says what a body has to be. */
export type Rule = "messageType" | "queue";

/** Where the validator of a queue's \`body\` is kept among those of the message types: no name begins with half a character. */
export const bodyKey = (queue: string): string => `\uD800${queue}`;

/**
 * Throws ValidationFailed unless each body is what its message type, or the queue that it is enqueued to, wants: `names`. Of one that another tab has just
 * defined this shows later.
 */
export function validate(core: Core, rule: Rule, names: readonly string[], bodies: readonly unknown[], taken: readonly Body[], name: (index: number) => string): LateCheck | undefined {
  if (checkAll(core, rule, names, bodies, name)) return undefined;
  // Copies: the clones are stored, and blobs in them are packed meanwhile.
  const copies = structuredClone(taken.map(({ value }) => value)) as unknown[];
  // To define nothing loads the definitions, those included that this context is about to make. A type that is unknown even then is refused where it is sent.
  const ready = core.raw.define(NOTHING).catch(rethrow);
  return { ready, check: () => { checkAll(core, rule, names, copies, name); } };
}

/** Checks the bodies of message types, or of a queue, that are known here. Whether all of them are. */
function checkAll(core: Core, rule: Rule, names: readonly string[], bodies: readonly unknown[], name: (index: number) => string): boolean {
  const checks = new Map<string, Check | undefined>();
  let known = true;
  for (const [index, whose] of names.entries()) {
    if (!checks.has(whose)) {
      const validation = rule === "queue" ? core.raw.bodyOf(whose) : core.raw.validationOf(whose);
      known &&= validation !== undefined;
      checks.set(whose, checkOf(core, { [rule]: whose }, validation));
    }
    checks.get(whose)?.(bodies[index], name(index));
  }
  return known;
}

/** Whose rule a body breaks: goes into the details. */
interface Whose { messageType?: string; queue?: string }

/** Throws ValidationFailed unless `body` is what its message type or queue wants. */
type Check = (body: unknown, name: string) => void;

/** What a body has to pass; undefined when that is nothing. */
function checkOf(core: Core, whose: Whose, validation: RawValidation | undefined): Check | undefined {
  if (validation === "N" || validation === undefined) return undefined;
  if (validation === "E") {
    return (body, name) => {
      if (body !== undefined) throw failed(whose, `is "empty", so \`${name}\` must be undefined, not ${describe(body)}`);
    };
  }
  if (validation === "J") {
    return (body, name) => {
      const found = jsonProblem(body, name);
      if (found !== undefined) throw failed(whose, `is "json", but \`${found.path}\` ${found.problem}, which JSON does not keep`, { path: found.path });
    };
  }
  const schema = core.validators.get(whose.messageType ?? bodyKey(whose.queue ?? ""));
  return (body, name) => {
    if (schema === undefined) {
      throw failed(whose, "has a validator that was not given here: pass the definitions with it to openBroker or define, in each window or worker that sends", { missing: true });
    }
    check(schema, whose, body, name);
  };
}

function check(schema: StandardSchemaV1, whose: Whose, body: unknown, name: string): void {
  let result: { then?: unknown; issues?: unknown } | null | undefined;
  try {
    result = schema["~standard"].validate(body);
  } catch (cause) {
    throw failed(whose, `could not check \`${name}\`: its validator threw ${String(cause)}`, {}, cause);
  }
  if (typeof result?.then === "function") {
    (result as Promise<unknown>).then(undefined, () => {}); // its outcome is nobody's any more
    throw failed(whose, "has a validator that answers with a promise; a body is checked at the call, so give it a synchronous one", { async: true });
  }
  if (typeof result !== "object" || result === null) {
    throw failed(whose, `could not check \`${name}\`: its validator answered with ${describe(result)} instead of a value or issues`);
  }
  const issues = result.issues;
  if (issues) {
    const [first] = Array.isArray(issues) ? issues as { message?: unknown }[] : [];
    throw failed(whose, `refuses \`${name}\`: ${String(first?.message ?? "its validator found issues")}`, { issues });
  }
}

function failed(whose: Whose, problem: string, details: Record<string, unknown> = {}, cause?: unknown): BrokerError {
  const subject = whose.messageType === undefined ? `The \`body\` of the queue ${JSON.stringify(whose.queue)}` : `The message type ${JSON.stringify(whose.messageType)}`;
  return new BrokerError("ValidationFailed", `${subject} ${problem}.`, { number: 8430, details: { ...whose, ...details }, cause });
}

// Message types' validations, checked at the call, before anything of the body reaches the wasm side.
import type { Body } from "./bodies.js";
import { describe } from "./check.js";
import type { Core } from "./core.js";
import { BrokerError, rethrow } from "./errors.js";
import { jsonProblem } from "./json.js";
import type { Outgoing } from "./outgoing.js";
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

/** Throws ValidationFailed unless each body is what its message type wants. Of a type that another tab has just defined this shows later. */
export function validate(core: Core, messages: readonly Outgoing[], taken: readonly Body[], name: (index: number) => string): LateCheck | undefined {
  if (checkAll(core, messages, messages.map(({ body }) => body), name)) return undefined;
  // Copies: the clones are stored, and blobs in them are packed meanwhile.
  const copies = structuredClone(taken.map(({ value }) => value)) as unknown[];
  // To define nothing loads the definitions, those included that this context is about to make. A type that is unknown even then is refused where it is sent.
  const ready = core.raw.define(NOTHING).catch(rethrow);
  return { ready, check: () => { checkAll(core, messages, copies, name); } };
}

/** Checks the bodies of message types that are known here. Whether all of them are. */
function checkAll(core: Core, messages: readonly Outgoing[], bodies: readonly unknown[], name: (index: number) => string): boolean {
  const checks = new Map<string, Check | undefined>();
  let known = true;
  for (const [index, { messageType }] of messages.entries()) {
    if (!checks.has(messageType)) {
      const validation = core.raw.validationOf(messageType);
      known &&= validation !== undefined;
      checks.set(messageType, checkOf(core, messageType, validation));
    }
    checks.get(messageType)?.(bodies[index], name(index));
  }
  return known;
}

/** Throws ValidationFailed unless `body` is what its message type wants. */
type Check = (body: unknown, name: string) => void;

/** What a body of this message type has to pass; undefined when that is nothing. */
function checkOf(core: Core, messageType: string, validation: RawValidation | undefined): Check | undefined {
  if (validation === "N" || validation === undefined) return undefined;
  if (validation === "E") {
    return (body, name) => {
      if (body !== undefined) throw failed(messageType, `is "empty", so \`${name}\` must be undefined, not ${describe(body)}`);
    };
  }
  if (validation === "J") {
    return (body, name) => {
      const found = jsonProblem(body, name);
      if (found !== undefined) throw failed(messageType, `is "json", but \`${found.path}\` ${found.problem}, which JSON does not keep`, { path: found.path });
    };
  }
  const schema = core.validators.get(messageType);
  return (body, name) => {
    if (schema === undefined) {
      throw failed(messageType, "has a validator that was not given here: pass the definitions with it to openBroker or define, in each window or worker that sends", { missing: true });
    }
    check(schema, messageType, body, name);
  };
}

function check(schema: StandardSchemaV1, messageType: string, body: unknown, name: string): void {
  let result: { then?: unknown; issues?: unknown } | null | undefined;
  try {
    result = schema["~standard"].validate(body);
  } catch (cause) {
    throw failed(messageType, `could not check \`${name}\`: its validator threw ${String(cause)}`, {}, cause);
  }
  if (typeof result?.then === "function") {
    (result as Promise<unknown>).then(undefined, () => {}); // its outcome is nobody's any more
    throw failed(messageType, "has a validator that answers with a promise; a body is checked at the call, so give it a synchronous one", { async: true });
  }
  if (typeof result !== "object" || result === null) {
    throw failed(messageType, `could not check \`${name}\`: its validator answered with ${describe(result)} instead of a value or issues`);
  }
  const issues = result.issues;
  if (issues) {
    const [first] = Array.isArray(issues) ? issues as { message?: unknown }[] : [];
    throw failed(messageType, `refuses \`${name}\`: ${String(first?.message ?? "its validator found issues")}`, { issues });
  }
}

function failed(messageType: string, problem: string, details: Record<string, unknown> = {}, cause?: unknown): BrokerError {
  return new BrokerError("ValidationFailed", `The message type ${JSON.stringify(messageType)} ${problem}.`, { number: 8430, details: { messageType, ...details }, cause });
}

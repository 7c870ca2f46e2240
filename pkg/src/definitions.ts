// The user's definitions, as the lists that the wasm side takes.
import { amount, describe, flag, member, oneOf, options, plain, text, whole } from "./check.js";
import { invalid } from "./errors.js";
import type { RawDefinitions, RawPriority, RawQueueOptions, RawService, RawServiceChange, RawValidation } from "./raw.js";
import type { Definitions, StandardSchemaV1 } from "./types/definitions.js";
import { bodyKey, markedValidation } from "./validation.js";

/** Returns its argument: checks definitions that stand in a file of their own and keeps their literal types. */
export function defineBroker<D extends Definitions>(definitions: D): D {
  return definitions;
}

export interface Normalised {
  readonly raw: RawDefinitions;
  /** Message type, or the key of a queue → its validator. */
  readonly validators: ReadonlyMap<string, StandardSchemaV1>;
}

const WORDS = { none: "N", empty: "E", json: "J" } as const;
const ON_OFF = ["on", "off"] as const;

export function normalise(value: unknown): Normalised {
  const validators = new Map<string, StandardSchemaV1>();
  if (value === undefined) throw invalid("definitions", "must be an object, not undefined");
  const sections = options(value, "definitions", {
    messageTypes: named((validation, path, name): RawValidation => {
      return validationLetter(validation, path, (schema) => validators.set(name, schema));
    }),
    contracts: named(named((sentBy, path): string => oneOf(sentBy, path, ["initiator", "target", "any"]))),
    queues: named((queue, path, name) => queueOptions(queue, path, (schema) => validators.set(bodyKey(name), schema))),
    services: named(serviceOptions),
    priorities: named(priorityRule),
  });
  const { messageTypes = [], contracts = [], queues = [], services = [], priorities = [] } = sections;
  return { raw: { messageTypes, contracts, queues, services, priorities }, validators };
}

/** Reads an object by its own keys, which are names, in their order. */
function named<T>(read: (value: unknown, path: string, name: string) => T): (value: unknown, path: string) => [string, T][] {
  return (value, path) => {
    const given = plain(value, path);
    return Object.keys(given).map((name) => {
      const at = member(path, name);
      return [text(name, at), read(given[name], at, name)];
    });
  };
}

function validationLetter(value: unknown, path: string, found: (schema: StandardSchemaV1) => void): RawValidation {
  if (typeof value === "string" && Object.hasOwn(WORDS, value)) return WORDS[value as keyof typeof WORDS];
  // A validator may be a function with properties, as arktype's are.
  const standard = value !== null && (typeof value === "object" || typeof value === "function") ? (value as Partial<StandardSchemaV1>)["~standard"] : undefined;
  if (typeof standard?.validate !== "function") {
    const given = typeof value === "string" ? JSON.stringify(value) : describe(value);
    throw invalid(path, `must be "none", "empty", "json" or a Standard Schema validator, not ${given}`);
  }
  const marked = markedValidation(value as StandardSchemaV1);
  if (marked === "none" || marked === "json") return WORDS[marked];
  found(value as StandardSchemaV1);
  return "S";
}

/** The options of `definitions.queues` and of `alterQueue`. `found` gets the validator of `body`, if it is one. */
export function queueOptions(value: unknown, path: string, found: (schema: StandardSchemaV1) => void): RawQueueOptions {
  if (value === undefined) throw invalid(path, "must be an object of options, not undefined");
  const { retention, ...rest } = options(value, path, {
    status: (status, at) => oneOf(status, at, ON_OFF),
    retention: retentionOptions,
    poisonMessageHandling: flag,
    archive: flag,
    activation: (activation, at) => oneOf(activation, at, ON_OFF),
    body: (body, at) => validationLetter(body, at, found),
  });
  return { ...rest, ...retention };
}

function retentionOptions(value: unknown, path: string): { retention: boolean; maxRows?: number; maxAge?: number } {
  if (typeof value === "boolean") return { retention: value };
  if (typeof value !== "object" || value === null) throw invalid(path, `must be true, false or { maxRows, maxAge }, not ${typeof value === "string" ? JSON.stringify(value) : describe(value)}`);
  const bounds = options(value, path, { maxRows: (rows, at) => whole(rows, at, 0), maxAge: (age, at) => amount(age, at, 0) });
  return { retention: true, ...bounds };
}

function contractNames(list: unknown, path: string): string[] {
  if (!Array.isArray(list)) throw invalid(path, `must be an array of contract names, not ${describe(list)}`);
  return list.map((contract, index) => text(contract, `${path}[${index}]`));
}

/** What `alterService` takes. */
export function serviceChange(value: unknown, path: string): RawServiceChange {
  if (value === undefined) throw invalid(path, "must be an object, not undefined");
  return options(value, path, { queue: text, addContracts: contractNames, dropContracts: contractNames });
}

function serviceOptions(value: unknown, path: string): RawService {
  const { queue, contracts } = options(value, path, { queue: text, contracts: contractNames });
  if (queue === undefined) throw invalid(member(path, "queue"), "is missing: a service needs a queue");
  return { queue, ...(contracts !== undefined && { contracts }) };
}

function priorityRule(value: unknown, path: string): RawPriority {
  const { level, ...names } = options(value, path, {
    contract: text, localService: text, remoteService: text, level: (given, at) => whole(given, at, 1, 10),
  });
  if (level === undefined) throw invalid(member(path, "level"), "is missing: 1 to 10");
  return { ...names, level };
}

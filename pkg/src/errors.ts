import type { BrokerErrorCode } from "./types/errors.js";

/** What a {@link BrokerError} carries beside its code and text. */
export interface BrokerErrorInit {
  /** Default {}. */
  readonly details?: Record<string, any>;
  /** Default false. */
  readonly retryable?: boolean;
  /** Default: none. */
  readonly number?: number;
  /** Default: none. */
  readonly cause?: unknown;
}

/** Every rejection of the package, except an abort (`signal.reason`) and what `work` of a transaction rejects with. */
export class BrokerError extends Error {
  /** What {@link isBrokerError} goes by, so that it works over realms and copies of the package. */
  declare readonly name: "BrokerError";
  /** What went wrong, for programs. */
  readonly code: BrokerErrorCode;
  /** The particulars: names, limits, states, paths. */
  readonly details: Record<string, any>;
  /** The same call may work later. */
  readonly retryable: boolean;
  /** SQL Server's number for the same condition, where there is one. */
  declare readonly number?: number;
  /** What the browser, a validator or a getter of the caller's threw, where that was the cause. */
  declare readonly cause?: unknown;

  constructor(code: BrokerErrorCode, message: string, init: BrokerErrorInit = {}) {
    super(message, init.cause === undefined ? undefined : { cause: init.cause });
    this.code = code;
    this.details = init.details ?? {};
    this.retryable = init.retryable ?? false;
    if (init.number !== undefined) this.number = init.number;
  }

  static {
    // On the prototype, so that the first line of `stack` says it too.
    Object.defineProperty(this.prototype, "name", { value: "BrokerError", configurable: true, writable: true });
  }
}

/**
 * Whether `error` is a {@link BrokerError}, and has one of `codes` if any are given. Goes by name, not by class:
 * right over realms and over two copies of the package.
 */
export function isBrokerError(error: unknown, ...codes: BrokerErrorCode[]): error is BrokerError {
  if (typeof error !== "object" || error === null) return false;
  const { name, code } = error as Partial<BrokerError>;
  return name === "BrokerError" && typeof code === "string" && (codes.length === 0 || codes.includes(code));
}

/** Whether a transaction was rolled back because its page was put away or frozen, or its lock lost: nobody's failure, and it may be begun again. */
export function isLoss(error: unknown): boolean {
  return isBrokerError(error, "TransactionClosed") && ["suspended", "robbed"].includes(error.details["reason"]);
}

/** An argument that the call can't take. `problem` continues the sentence that the argument's name begins. */
export function invalid(argument: string, problem: string, details: Record<string, unknown> = {}): BrokerError {
  return new BrokerError("InvalidArgument", `\`${argument}\` ${problem}.`, { details: { argument, ...details } });
}

/** An option of the API that this release does not have. */
export function notSupported(option: string, advice: string): BrokerError {
  return new BrokerError("NotSupported", `\`${option}\` is not supported in this release; ${advice}.`, { details: { option } });
}

/** What was thrown, for people. It may be anything, and even throw when it is looked at. No `name`: it is no Error. */
export function shown(thrown: unknown): { message: string; name?: string; code?: string } {
  try {
    if (!(thrown instanceof Error)) return { message: String(thrown) };
    const { name, message } = thrown;
    return { name: `${name}`, message: message === "" ? `${name}` : `${message}`, ...(isBrokerError(thrown) && { code: thrown.code }) };
  } catch {
    return { message: "something that can't be shown" };
  }
}

function withName(thrown: unknown): string {
  const { name, message } = shown(thrown);
  return name === undefined ? message : `${name}: ${message}`;
}

/** What a failed call of the wasm side rejects with, as a {@link BrokerError}. */
export function fromRaw(error: unknown): BrokerError {
  if (error instanceof BrokerError) return error;
  if (typeof error === "object" && error !== null) {
    const { code, message, details, retryable, number, cause } = error as Partial<BrokerError>;
    if (typeof code === "string" && typeof message === "string" && !(error instanceof Error)) {
      return new BrokerError(code, message, { details: details ?? {}, retryable: retryable === true, cause, ...(number != null && { number }) });
    }
  }
  const text = withName(error);
  if (error instanceof Error && error.name === "RuntimeError") {
    return new BrokerError("Terminated", `The WebAssembly instance has stopped (${text}). What was committed is safe; open the broker again.`, { cause: error });
  }
  return new BrokerError("StorageUnavailable", `The call failed in the browser (${text}). Try again, or open the broker again.`, { retryable: true, cause: error });
}

/** The rejection handler of a call that no broker makes. */
export function rethrow(error: unknown): never {
  throw fromRaw(error);
}

/** A rejected promise for what was wrong at the call itself. */
export function refuse(error: unknown): Promise<never> {
  return Promise.reject(unreadable(error));
}

/** What `read` gives. What a getter or a proxy among the arguments throws becomes InvalidArgument. */
export function reading<T>(read: () => T): T {
  try {
    return read();
  } catch (error) {
    throw unreadable(error);
  }
}

function unreadable(error: unknown): BrokerError {
  if (error instanceof BrokerError) return error;
  return new BrokerError("InvalidArgument", `The arguments can't be read: reading them threw ${withName(error)}.`, { cause: error });
}

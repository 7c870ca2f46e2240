// What `activate` and `drain` are given beside the handler.
import { abortSignal, amount, oneOf, options, whole } from "./check.js";
import { invalid } from "./errors.js";
import type { RawRecoverability } from "./raw.js";

const FINALLY = ["error-queue", "retry-forever", "rollback"] as const;

/** What an activation is to do, read and checked. */
export interface Settings { maxReaders: number; top: number; handlerTimeout: number | undefined; policy: RawRecoverability; signal: AbortSignal | undefined }

const policy = (value: unknown, argument: string): RawRecoverability => {
  const count = (retries: unknown, name: string): number => whole(retries, name, 0, 1_000_000);
  return options(value, argument, {
    immediateRetries: count,
    delayedRetries: count,
    timeIncrease: (ms: unknown, name: string): number => {
      if (amount(ms, name, 0) > 86_400_000) throw invalid(name, "must be at most 86 400 000, a day");
      return ms as number;
    },
    finally: (word: unknown, name: string) => oneOf(word, name, FINALLY),
  });
};

export function activationSettings(given: unknown): Settings {
  const { maxReaders = 1, top = 1, handlerTimeout, recoverability = {}, signal } = options(given, "options", {
    maxReaders: (value: unknown, name: string) => whole(value, name, 1, 32_767),
    top: (value: unknown, name: string) => whole(value, name, 1),
    handlerTimeout: (value: unknown, name: string) => whole(value, name, 1, 2 ** 31 - 1),
    recoverability: policy,
    signal: abortSignal,
  });
  return { maxReaders, top, handlerTimeout, policy: recoverability, signal };
}

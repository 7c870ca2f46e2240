import { describe } from "./check.js";
import { BrokerError } from "./index.js";
import { CHECKS } from "./store-checks.js";
import { Breach, expect, Trial } from "./store-trial.js";
import type { DelayedMessageStore } from "./types/delayed.js";

const REQUIRED = ["initialize", "store", "remove", "incrementFailureCount", "next", "fetchNextDueTimeout"] as const;
const OPTIONAL = ["setupInfrastructure", "release", "select", "count"] as const;

/** An endpoint with something in it is somebody's: nothing more is checked there. */
class NotOurs extends Breach {}

/**
 * Checks a delayed message store against the contract of `DelayedMessageStore`: what each method answers, what comes back of a message, order, holds between two
 * instances, calls made at once, ids alone, aborted signals, endpoints.
 *
 * `make` gives a new instance at each call. Instances with the same endpoint name have to share what they hold, as those of two tabs do. The endpoint names
 * are random, so that nothing of yours is touched, and what was stored is removed in the end.
 *
 * Rejects with an AggregateError when the store breaks the contract. Each of its `errors` begins with the name of the check, and says what was expected and what the store
 * did. Three things are not checked, since they take time, or more than one run: that a hold ends after 60 s (give your store a clock, and test it with
 * that), that what was stored survives a restart, and Blobs in bodies. Errors: InvalidArgument, if `make` is no function.
 */
export async function checkDelayedMessageStore(make: () => DelayedMessageStore | Promise<DelayedMessageStore>): Promise<void> {
  if (typeof make !== "function") throw new BrokerError("InvalidArgument", `\`make\` must be a function that gives a store, not ${describe(make)}.`, { details: { argument: "make" } });
  const breaches: Error[] = [];
  const attempt = async <T>(name: string, check: () => Promise<T>): Promise<T | undefined> => {
    try {
      return await check();
    } catch (error) {
      // What is no Breach was thrown by `make`, or by what a method gave.
      const text = error instanceof Breach ? error.message : `expected this check to run; but it failed with ${String(error)}`;
      breaches.push(new Error(`${name}: ${text}`, { cause: error instanceof Breach ? error.cause : error }));
      if (error instanceof NotOurs) throw error;
      return undefined;
    }
  };
  const store = async (): Promise<DelayedMessageStore> => withMethods(await make());
  let ran = 0;
  try {
    let trial = await begin(store, attempt);
    for (const { name, needs, run } of CHECKS) {
      if (trial === undefined) break;
      const current: Trial = trial;
      if (needs !== undefined && current.one.store[needs] === undefined) continue;
      ran += 1;
      await attempt(name, () => run(current));
      // What a breach leaves behind would be found by the next check.
      if (!await current.cleanUp()) trial = await begin(store, async (_, check) => check().catch(() => undefined));
    }
  } catch (error) {
    if (!(error instanceof NotOurs)) throw error;
  }
  if (breaches.length > 0) {
    const names = breaches.map(({ message }) => message.slice(0, message.indexOf(": expected")));
    throw new AggregateError(breaches, `The store breaks the contract in ${breaches.length} of ${ran + FIRST} checks: ${names.join("; ")}. Each of \`errors\` says more.`);
  }
}

/** The checks of `begin`. */
const FIRST = 4;

/** Instances at an endpoint that is new; undefined when there can't be any. */
async function begin(make: () => Promise<DelayedMessageStore>, attempt: <T>(name: string, check: () => Promise<T>) => Promise<T | undefined>): Promise<Trial | undefined> {
  const made = await attempt("make", () => Trial.begin(make));
  if (made === undefined) return undefined;
  await attempt("setupInfrastructure: twice at once, and again", () => made.setUp());
  const trial = await attempt("initialize", () => made.initialized());
  if (trial === undefined) return undefined;
  await attempt("a new endpoint", async () => {
    const message = await trial.one.fetch(trial.base);
    if (message !== null) await trial.one.store.release?.(message, new AbortController().signal);
    const isEmpty = message === null && await trial.one.next() === null;
    if (!isEmpty) throw new NotOurs("expected an endpoint name that nobody has used to have no messages; but it has some: a store keeps endpoints apart. Nothing else was checked, so that nothing of yours is touched");
  });
  return trial;
}

function withMethods(store: DelayedMessageStore): DelayedMessageStore {
  expect(typeof store === "object" && store !== null, "`make` to give a store", `it gave ${describe(store)}`);
  const is = (method: string): string => typeof (store as unknown as Record<string, unknown>)[method];
  const missing = [...REQUIRED.filter((method) => is(method) !== "function"), ...OPTIONAL.filter((method) => is(method) !== "function" && is(method) !== "undefined")];
  expect(missing.length === 0, "a store to have its methods", `these are no functions: ${missing.join(", ")}`);
  return store;
}

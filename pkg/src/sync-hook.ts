// How the package and its entry for service workers find each other: by a symbol, since they are bundled apart.

/** What the entry for service workers wants of a broker. */
export interface SyncHook {
  /** What handlers have put off, or what could not be transmitted, waits no longer. */
  resume(): Promise<void>;
  /** Whether something waits that a route of this context could hand over, now or after a failure. */
  isTransmittable(): Promise<boolean>;
  /** Every open broker of the origin hears of it, by `critical-error`. */
  warn(source: "recovery" | "transmission", error: unknown): void;
}

export const SYNC = Symbol.for("pocket-broker.sync");

/** undefined: it is of another version of the package, or none of ours. */
export function syncHookOf(broker: object): SyncHook | undefined {
  return (broker as { [SYNC]?: SyncHook })[SYNC];
}

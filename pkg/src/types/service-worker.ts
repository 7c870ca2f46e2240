import type { Handler } from "./activation.js";

/** Options of `handleSync`. */
export interface HandleSyncOptions {
  /** The tag of the `sync` events to answer: that of `registerBackgroundSync`. Default "pocket-broker". */
  tag?: string;
  /** Queues to drain, by name, each with its handler, as for `drain`. Default: none. */
  queues?: Record<string, Handler>;
}

/** Options of `registerBackgroundSync`. */
export interface BackgroundSyncOptions {
  /** The tag to ask for: that of `handleSync`. Default "pocket-broker". */
  tag?: string;
  /** Queues whose waiting messages are to be handled by the worker, by name. Default: none. */
  queues?: readonly string[];
}

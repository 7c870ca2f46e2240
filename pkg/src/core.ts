import { BrokerError, fromRaw } from "./errors.js";
import type { CloseReason, RawBroker } from "./raw.js";
import type { StandardSchemaV1 } from "./types/definitions.js";

/** What a Broker, its transactions and its conversations share. */
export interface Core {
  readonly name: string;
  readonly raw: RawBroker;
  readonly maxMessageBytes: number;
  /** The validators that this context was given while the database is open in it, by message type, and of queues (`bodyKey`). */
  readonly validators: Map<string, StandardSchemaV1>;
  /** Whether the store takes Blobs; undefined until a body has one. */
  storesBlobs: boolean | undefined;
  /** Readers that its activations have started. */
  activations: number;
  /** Why it is closed; undefined while it is open. */
  closed: CloseReason | undefined;
  /** How many readers of a queue its activations run now. */
  readonly readers: (queue: string) => number;
}

const WHY: Readonly<Record<CloseReason, string>> = {
  "closed": "close() was called. Open it again with openBroker",
  "deleted": "its database was deleted. openBroker makes a new, empty one",
  "upgraded-elsewhere": "another tab opened it with a newer version of pocket-broker. Reload the page",
  "storage-lost": "the browser took its storage away. Open it again with openBroker",
};

export function closedError(core: Core): BrokerError {
  const reason = core.closed ?? "closed";
  return new BrokerError("Closed", `The broker ${JSON.stringify(core.name)} is closed: ${WHY[reason]}.`, { details: { reason } });
}

/** What a call of the broker rejects with: closed meanwhile, it says so as to later calls; an abort rejects with its reason, untouched. */
export function reasonOf(core: Core, error: unknown, signal?: AbortSignal): unknown {
  if (signal !== undefined && (error as { code?: unknown } | null)?.code === "Aborted") return signal.reason;
  const failure = fromRaw(error);
  return failure.code === "Closed" ? closedError(core) : failure;
}

/** The rejection handler of a call without a signal. */
export function rethrowOf(core: Core): (error: unknown) => never {
  return (error) => { throw reasonOf(core, error); };
}

/** The raw class, while the broker is open. */
export function openRaw(core: Core): RawBroker {
  if (core.closed !== undefined) throw closedError(core);
  return core.raw;
}

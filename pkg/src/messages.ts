// Rows on their way out: what the wasm side gives in columns, as the objects that the application sees.
import { unpack } from "./blobs.js";
import type { Batch, RawDelayed, RawEndpoint, RawStats, RawTransmissionRow } from "./raw.js";
import type { DelayedMessage } from "./types/delayed.js";
import type { BrokerStats, ConversationEndpoint, FailedMessage, Message, TransmissionRow } from "./types/messages.js";

/** A row's status. */
export const MessageStatus = {
  /** Received, and kept until its side ENDs. */
  RetainedReceived: 0,
  /** Waits to be received. */
  Ready: 1,
  /** Something before it has not arrived yet. */
  NotYetComplete: 2,
  /** A copy of what was sent, kept until its side ENDs. */
  RetainedSent: 3,
} as const;

/** The message types of the broker itself. They can't be sent or defined. */
export const SystemMessage = {
  /** The far side has ended the conversation: end yours, too. No body. */
  EndDialog: "http://schemas.microsoft.com/SQL/ServiceBroker/EndDialog",
  /** The far side has ended with an error, or the broker had to. The body is { code, description }; the broker's own codes are negative. */
  Error: "http://schemas.microsoft.com/SQL/ServiceBroker/Error",
  /** A conversation timer was due. */
  DialogTimer: "http://schemas.microsoft.com/SQL/ServiceBroker/DialogTimer",
} as const;

const HEX = /* @__PURE__ */ Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));

/** Every UUID as text. */
export function idTexts(ids: Uint8Array): string[] {
  return Array.from({ length: ids.length / 16 }, (_, row) => idText(ids, row));
}

/** The row's UUID as text. */
export function idText(ids: Uint8Array, row: number): string {
  let text = "";
  for (let at = 0; at < 16; at++) {
    if (at === 4 || at === 6 || at === 8 || at === 10) text += "-";
    text += HEX[ids[16 * row + at] as number] as string;
  }
  return text;
}

export const dateOrNull = (time: number | null | undefined): Date | null => (time == null ? null : new Date(time));

/** What the error queue says of a message in headers. */
function failureHeaders({ queue, name, message, stack, endpoint, at, attempts }: NonNullable<Batch["failed"]>): Record<string, string> {
  return {
    "ExceptionInfo.ExceptionType": name,
    "ExceptionInfo.Message": message,
    "ExceptionInfo.StackTrace": stack,
    FailedQ: queue,
    TimeOfFailure: new Date(at).toISOString(),
    ProcessingEndpoint: endpoint,
    Retries: String(Math.max(0, attempts - 1)),
  };
}

/** Appends a batch's rows to `rows`. */
function expandInto(rows: Message[], batch: Batch): void {
  const failure = batch.failed && failureHeaders(batch.failed);
  const { count, types, validations, times, headers, bodies, packings } = batch;
  for (let index = 0; index < count; index++) {
    const row = batch.reverse === true ? count - 1 - index : index;
    const own = { ...headers?.[row], ...failure };
    rows.push({
      status: batch.status,
      priority: batch.priority,
      queuingOrder: batch.order + row,
      conversationGroupId: batch.groupId,
      conversationHandle: batch.handle,
      conversationId: batch.conversationId,
      messageSequenceNumber: batch.sequence + row,
      serviceName: batch.serviceName,
      serviceContractName: batch.contract,
      messageTypeName: typeof types === "string" ? types : types[row] as string,
      validation: typeof validations === "string" ? validations : validations[row] as Message["validation"],
      messageId: idText(batch.ids, row),
      messageEnqueueTime: new Date(typeof times === "number" ? times : times[row] as number),
      headers: own,
      key: batch.key,
      body: packings === null ? bodies[row] : unpack(bodies[row], packings[row]),
      attempts: row === 0 ? batch.attempts : 0,
      retryAt: row === 0 ? dateOrNull(batch.retryAt) : null,
      lastError: row === 0 ? batch.lastError : null,
    });
  }
}

export function expand(batches: readonly Batch[]): Message[] {
  const rows: Message[] = [];
  for (const batch of batches) expandInto(rows, batch);
  return rows;
}

/** The messages of the error queue among these. */
export function expandFailed(batches: readonly Batch[]): FailedMessage[] {
  return batches.flatMap((batch) => {
    const { failed } = batch;
    if (failed === undefined) return [];
    const more = {
      failedQueue: failed.queue, exceptionType: failed.name, exceptionMessage: failed.message, stackTrace: failed.stack,
      timeOfFailure: new Date(failed.at), retries: Math.max(0, failed.attempts - 1), attempts: failed.attempts,
    };
    return expand([batch]).map((row) => Object.assign(row, more));
  });
}

export type ArchiveRow = Message & { archivedAt: Date; queue: string };

export function expandArchive(batches: readonly Batch[]): ArchiveRow[] {
  const rows: ArchiveRow[] = [];
  for (const batch of batches) {
    for (const row of expand([batch])) rows.push(Object.assign(row, { archivedAt: new Date(batch.archivedAt ?? 0), queue: batch.queue ?? "" }));
  }
  return rows;
}

export function endpoint(raw: RawEndpoint): ConversationEndpoint {
  return { ...raw, lifetime: dateOrNull(raw.lifetime), dialogTimer: dateOrNull(raw.dialogTimer), createdAt: new Date(raw.createdAt) };
}

export function transmissionRow({ packing, ...raw }: RawTransmissionRow): TransmissionRow {
  return { ...raw, enqueueTime: new Date(raw.enqueueTime), nextAttempt: dateOrNull(raw.nextAttempt), body: unpack(raw.body, packing) };
}

export function brokerStats({ breakers: [store = "disarmed", fetch = "disarmed", dispatch = "disarmed"], ...raw }: RawStats, activations: number): BrokerStats {
  const breakers = { store, fetch, dispatch };
  return { ...raw, activations, oldestReady: dateOrNull(raw.oldestReady), oldestTransmission: dateOrNull(raw.oldestTransmission), breakers };
}

export function delayedMessage({ properties, headers, packing, retries, time, body, messageId, destination }: RawDelayed): DelayedMessage {
  const pairs = properties.flatMap((name, index) => (index % 2 === 0 ? [[name, properties[index + 1] as string] as const] : []));
  return { messageId, destination, time: new Date(time), headers: { ...headers }, properties: Object.fromEntries(pairs), body: unpack(body, packing), numberOfRetries: retries };
}

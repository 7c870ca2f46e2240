import { amount, flag, instant, oneOf, options, text, whole } from "./check.js";
import { invalid } from "./errors.js";
import type { RawArchiveFilter, RawDelayedFilter, RawEndpointFilter, RawFailedFilter, RawFilter } from "./raw.js";
import { conversationHandle } from "./refs.js";

const STATES = ["SO", "SI", "CO", "DI", "DO", "ER", "CD"] as const;

function statuses(value: unknown, argument: string): number[] {
  const list: unknown[] = Array.isArray(value) ? value : [value];
  return list.map((status) => {
    if (status !== 0 && status !== 1 && status !== 2 && status !== 3) throw invalid(argument, `must be 0, 1, 2 or 3, or an array of them, not ${String(status)}`);
    return status;
  });
}

/** Orders are whole numbers from 0 on: any number has a place among them. */
function from(value: unknown, argument: string): number | undefined {
  const after = amount(value, argument, -Infinity);
  return after < 0 ? undefined : after;
}

const ROW = {
  status: statuses, conversation: conversationHandle, group: text, messageType: text, after: from,
  limit: (limit: unknown, argument: string) => (limit === Infinity ? undefined : whole(limit, argument, 0)), reverse: flag,
};

export function rowFilter(value: unknown): RawFilter {
  return options(value, "filter", ROW);
}

export function archiveFilter(value: unknown): RawArchiveFilter {
  return options(value, "filter", { ...ROW, queue: text, conversationId: text });
}

export function endpointFilter(value: unknown): RawEndpointFilter {
  return options(value, "filter", {
    service: text, state: (state, argument) => oneOf(state, argument, STATES), group: text, conversationId: text, createdBefore: instant,
  });
}

export function groupFilter(value: unknown): { service?: string } {
  return options(value, "filter", { service: text });
}

export function failedFilter(value: unknown): RawFailedFilter {
  return options(value, "filter", { messageId: text, failedQueue: text, failedBefore: instant, limit: ROW.limit });
}

export function delayedFilter(value: unknown): RawDelayedFilter {
  return options(value, "filter", { destination: text, before: instant, limit: ROW.limit });
}

export function transmissionFilter(value: unknown): { conversation?: string } {
  return options(value, "filter", { conversation: conversationHandle });
}

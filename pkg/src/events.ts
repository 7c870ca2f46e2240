import type { Notice, RawThrown } from "./raw.js";
import type { BrokerEvents } from "./types/broker.js";
import type { Message } from "./types/messages.js";

/** Sends a commit's events. Listeners never run inside of a call of the wasm side. */
export function announce(target: EventTarget, notice: Notice): void {
  queueMicrotask(() => {
    const { queues, conversations, delayed, transmission, archive } = notice;
    if (queues.length > 0 || conversations || delayed || transmission || archive) fire(target, "changed", { queues, conversations, delayed, transmission, archive });
    for (const queue of notice.enqueued) fire(target, "message-enqueued", { queue });
    for (const [handle, state] of notice.states) fire(target, "conversation-changed", { handle, state });
    for (const { reason, message, envelope } of notice.dropped) {
      fire(target, "message-dropped", envelope === undefined ? { reason, message: partialMessage(message) } : { reason, envelope, message: partialMessage(message) });
    }
    for (const { error, retryAt, ...rest } of notice.failed) {
      fire(target, "message-failed", { ...rest, error: thrown(error), retryAt: retryAt === null ? null : new Date(retryAt) });
    }
    for (const [messageId, conversationHandle] of notice.transmitted) fire(target, "message-transmitted", { messageId, conversationHandle });
    for (const [conversationHandle, status] of notice.unsent) fire(target, "transmission-failed", { conversationHandle, status });
    for (const { source, error } of notice.critical) fire(target, "critical-error", { source, error: thrown(error) });
    for (const { queue, reason } of notice.disabled) fire(target, "queue-disabled", { queue, reason });
  });
}

export function fire<K extends keyof BrokerEvents>(target: EventTarget, type: K, detail: BrokerEvents[K]): void {
  target.dispatchEvent(new CustomEvent(type, { detail }));
}

/** Without a code if it had none. */
function thrown({ name, message, code }: RawThrown): object {
  return code === null ? { name, message } : { name, message, code };
}

/** A message as far as it is known, with its time as a Date. */
function partialMessage(message: object): Partial<Message> {
  const { messageEnqueueTime: time } = message as { messageEnqueueTime?: unknown };
  return typeof time === "number" ? { ...message, messageEnqueueTime: new Date(time) } : message;
}

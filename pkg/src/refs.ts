import { describe, text } from "./check.js";
import { invalid } from "./errors.js";

/** The handle that a ConversationRef names. */
export function conversationHandle(ref: unknown, argument = "conversation"): string {
  if (typeof ref === "string") return text(ref, argument);
  if (typeof ref === "object" && ref !== null) {
    const { handle, conversationHandle } = ref as { handle?: unknown; conversationHandle?: unknown };
    if (handle !== undefined) return text(handle, `${argument}.handle`);
    if (conversationHandle !== undefined) return text(conversationHandle, `${argument}.conversationHandle`);
  }
  throw invalid(argument, `must be a conversation: a handle, a Conversation or a received message, not ${describe(ref)}`);
}

/** The group's id, or the handle of a conversation in it: the broker looks a string up as both. */
export function groupOrHandle(ref: unknown, argument = "group"): string {
  return conversationHandle(ref, argument);
}

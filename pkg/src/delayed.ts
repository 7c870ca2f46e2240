import { instant, text } from "./check.js";
import { refuse } from "./errors.js";
import type { Rows } from "./types/messages.js";
import type { DelayedFilter, DelayedMessage, DelayedMessages } from "./types/delayed.js";
import type { MessageId } from "./types/verbs.js";
import type { VerbCalls } from "./verbs.js";
import type { ViewCalls } from "./views.js";

/** `broker.delayed`, and that of a transaction. */
export class DelayedCalls implements DelayedMessages {
  readonly #views: ViewCalls;
  readonly #verbs: VerbCalls;

  constructor(views: ViewCalls, verbs: VerbCalls) {
    this.#views = views;
    this.#verbs = verbs;
  }

  select(filter?: DelayedFilter): Rows<DelayedMessage> { return this.#views.delayed(filter); }
  count(): Promise<number> { return this.#views.countDelayed(); }
  next(): Promise<Date | null> { return this.#views.nextDelayed(); }

  cancel(id: MessageId): Promise<boolean> {
    try {
      const message = text(id, "id");
      return this.#verbs.change((raw) => raw.cancel(message));
    } catch (error) {
      return refuse(error);
    }
  }

  reschedule(id: MessageId, to: Date | number): Promise<boolean> {
    try {
      const message = text(id, "id");
      const time = instant(to, "to");
      return this.#verbs.change((raw) => raw.reschedule(message, time));
    } catch (error) {
      return refuse(error);
    }
  }
}

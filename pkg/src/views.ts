import { text } from "./check.js";
import { SpokenConversation } from "./conversation.js";
import { openRaw, reasonOf, rethrowOf, type Core } from "./core.js";
import { refuse } from "./errors.js";
import { archiveFilter, delayedFilter, endpointFilter, failedFilter, groupFilter, rowFilter, transmissionFilter } from "./filters.js";
import { brokerStats, dateOrNull, delayedMessage, endpoint, expand, expandArchive, expandFailed, transmissionRow } from "./messages.js";
import type { Page, RawBroker, RawFailedFilter } from "./raw.js";
import { conversationHandle } from "./refs.js";
import { RowPages } from "./rows.js";
import type { Views } from "./types/broker.js";
import type { DelayedMessage } from "./types/delayed.js";
import type { BrokerStats, ConversationEndpoint, ConversationGroup, FailedMessage, Message, QueueInfo, Rows } from "./types/messages.js";
import type { ConversationRef } from "./types/verbs.js";
import type { VerbCalls } from "./verbs.js";

function isMeant(row: FailedMessage, { messageId, failedQueue, failedBefore }: RawFailedFilter): boolean {
  return (messageId === undefined || row.messageId === messageId) && (failedQueue === undefined || row.failedQueue === failedQueue)
    && (failedBefore === undefined || Number(row.timeOfFailure) < failedBefore);
}

/** The views of a Broker and of its transactions alike: they read what is committed. */
export class ViewCalls implements Omit<Views, "delayed"> {
  /** What conversations that are looked up here speak through. */
  readonly #speaker: () => VerbCalls;
  readonly #open: () => RawBroker;
  readonly #core: Core;

  /** `open` gives what is asked, or throws when nothing may be asked any more. */
  constructor(core: Core, speaker: () => VerbCalls, open = () => openRaw(core)) {
    this.#core = core;
    this.#speaker = speaker;
    this.#open = open;
  }

  select<B = any>(queue: string, filter?: unknown): Rows<Message<B>> {
    return this.#rows(() => [text(queue, "queue"), rowFilter(filter)] as const,
      (raw, [name, given], token, all, one) => raw.select(name, one ? { ...given, limit: Math.min(1, given.limit ?? 1) } : given, token, all), expand);
  }

  archive(filter?: unknown): ReturnType<Views["archive"]> {
    return this.#rows(() => archiveFilter(filter),
      (raw, given, token, all, one) => raw.archive(one ? { ...given, limit: Math.min(1, given.limit ?? 1) } : given, token, all), expandArchive);
  }

  failed(filter?: unknown): ReturnType<Views["failed"]> {
    return this.#rows(() => failedFilter(filter), async (raw, given, token, all) => {
      const [inner, left] = (token ?? [null, given.limit ?? Infinity]) as [unknown, number];
      const page = await raw.select(undefined, {}, inner, all);
      const rows = expandFailed(page.rows).filter((row) => isMeant(row, given)).slice(0, left);
      return { rows, next: page.next == null || rows.length === left ? null : [page.next, left - rows.length] };
    }, (rows) => rows);
  }

  conversations(filter?: unknown): Rows<ConversationEndpoint> {
    return this.#rows(() => endpointFilter(filter), (raw, given, token, all) => raw.conversations(given, token, all), (rows) => rows.map(endpoint));
  }

  groups(filter?: unknown): Rows<ConversationGroup> {
    return this.#rows(() => groupFilter(filter), (raw, given, token, all) => raw.groups(given, token, all), (rows) => rows);
  }

  transmissionQueue(filter?: unknown): ReturnType<Views["transmissionQueue"]> {
    return this.#rows(() => transmissionFilter(filter), (raw, given, token, all) => raw.transmissionQueue(given, token, all), (rows) => rows.map(transmissionRow));
  }

  delayed(filter?: unknown): Rows<DelayedMessage> {
    return this.#rows(() => delayedFilter(filter), (raw, given, token, all, one) => raw.delayed(one ? { ...given, limit: Math.min(1, given.limit ?? 1) } : given, token, all), (rows) => rows.map(delayedMessage));
  }

  countDelayed(): Promise<number> {
    return this.#ask((raw) => raw.countDelayed());
  }

  nextDelayed(): Promise<Date | null> {
    return this.#ask((raw) => raw.nextDelayed().then(dateOrNull));
  }

  count(queue: string, filter?: unknown): Promise<number> {
    return this.#ask((raw) => raw.count(text(queue, "queue"), rowFilter(filter)));
  }

  queues(): Promise<QueueInfo[]> {
    return this.#ask(async (raw) => (await raw.queues()).map((queue) => ({ ...queue, readers: this.#core.readers(queue.name) })));
  }

  stats(): Promise<BrokerStats> {
    return this.#ask((raw) => raw.stats().then((stats) => brokerStats(stats, this.#core.activations)));
  }

  info(handle: string): Promise<ConversationEndpoint | null> {
    return this.#ask((raw) => raw.info(handle).then((row) => (row == null ? null : endpoint(row))));
  }

  conversation(conversation: ConversationRef): SpokenConversation {
    return new SpokenConversation(conversationHandle(conversation), this.#speaker(), this);
  }

  #ask<T>(question: (raw: RawBroker) => Promise<T>): Promise<T> {
    try {
      return question(this.#open()).then(undefined, rethrowOf(this.#core));
    } catch (error) {
      return refuse(error);
    }
  }

  /** `check` reads the arguments, now; what is wrong with them shows when the rows are asked for. */
  #rows<A, C, R>(check: () => A, read: (raw: RawBroker, argument: A, token: unknown, all: boolean, one: boolean) => Promise<Page<C>>, expandPage: (rows: C[]) => R[]): Rows<R> {
    let argument: A;
    try {
      argument = check();
    } catch (error) {
      return new RowPages<R>(() => refuse(error));
    }
    return new RowPages<R>(async (token, all, one) => {
      const raw = this.#open();
      try {
        const page = await read(raw, argument, token, all, one);
        return { rows: expandPage(page.rows), next: page.next };
      } catch (error) {
        throw reasonOf(this.#core, error);
      }
    });
  }
}

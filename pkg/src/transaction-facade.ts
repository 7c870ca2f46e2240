import { refuseClone } from "./conversation.js";
import { DelayedCalls } from "./delayed.js";
import type { Transaction, Views } from "./types/broker.js";
import type { DelayedMessages } from "./types/delayed.js";
import type { BrokerStats, ConversationEndpoint, ConversationGroup, Message, QueueInfo, RowFilter, Rows } from "./types/messages.js";
import type { BeginDialog, Conversation, ConversationRef, EndOptions, EndResult, EnqueueOptions, GroupId, GroupRef, MessageId, OutgoingMessage, ReceiveOptions, SendOptions, TimerOptions } from "./types/verbs.js";
import type { VerbCalls } from "./verbs.js";
import type { ViewCalls } from "./views.js";

/** What `work` gets: the verbs, within the transaction, and the views. */
export class TransactionFacade implements Transaction {
  readonly signal: AbortSignal;
  readonly #verbs: VerbCalls;
  readonly #views: ViewCalls;
  readonly #conversations: ViewCalls;

  /** `conversations`: the views of the conversations that are looked up here, which outlive the transaction. */
  constructor(signal: AbortSignal, verbs: VerbCalls, views: ViewCalls, conversations: ViewCalls) {
    this.signal = signal;
    this.#verbs = verbs;
    this.#views = views;
    this.#conversations = conversations;
    refuseClone(this);
  }

  beginDialog(options: BeginDialog): Promise<Conversation> { return this.#verbs.beginDialog(options); }
  send(to: ConversationRef, messageType: string, body?: unknown, options?: SendOptions): Promise<MessageId>;
  send(to: readonly ConversationRef[], messageType: string, body?: unknown, options?: SendOptions): Promise<MessageId[]>;
  send(to: any, messageType: string, body?: unknown, options?: SendOptions): Promise<any> { return this.#verbs.send(to, messageType, body, options); }
  sendMany(to: ConversationRef, messages: readonly OutgoingMessage[], options?: Omit<SendOptions, "headers">): Promise<MessageId[]> { return this.#verbs.sendMany(to, messages, options); }
  enqueue(queue: string, body?: unknown, options?: EnqueueOptions): Promise<MessageId> { return this.#verbs.enqueue(queue, body, options); }
  enqueueMany(queue: string, bodies: readonly unknown[], options?: Omit<EnqueueOptions, "dedupeId">): Promise<MessageId[]> { return this.#verbs.enqueueMany(queue, bodies, options); }
  receive<B = any>(queue: string, options?: ReceiveOptions): Promise<Message<B>[]> { return this.#verbs.receive<B>(queue, options); }
  getConversationGroup(queue: string, options?: Parameters<Transaction["getConversationGroup"]>[1]): Promise<GroupId | null> { return this.#verbs.getConversationGroup(queue, options); }
  beginConversationTimer(conversation: ConversationRef, timeout: number | null, options?: TimerOptions): Promise<void> { return this.#verbs.beginConversationTimer(conversation, timeout, options); }
  moveConversation(conversation: ConversationRef, to: GroupRef): Promise<void> { return this.#verbs.moveConversation(conversation, to); }
  endConversation(conversation: ConversationRef, options?: EndOptions): Promise<EndResult> { return this.#verbs.endConversation(conversation, options); }
  getGroupState<T = any>(group: GroupRef): Promise<T | undefined> { return this.#verbs.getGroupState<T>(group); }
  setGroupState(group: GroupRef, state: unknown): Promise<void> { return this.#verbs.setGroupState(group, state); }

  select<B = any>(queue: string, filter?: RowFilter): Rows<Message<B>> { return this.#views.select<B>(queue, filter); }
  count(queue: string, filter?: RowFilter): Promise<number> { return this.#views.count(queue, filter); }
  queues(): Promise<QueueInfo[]> { return this.#views.queues(); }
  conversation(conversation: ConversationRef): ReturnType<Views["conversation"]> { return this.#conversations.conversation(conversation); }
  conversations(filter?: Parameters<Views["conversations"]>[0]): Rows<ConversationEndpoint> { return this.#views.conversations(filter); }
  groups(filter?: Parameters<Views["groups"]>[0]): Rows<ConversationGroup> { return this.#views.groups(filter); }
  stats(): Promise<BrokerStats> { return this.#views.stats(); }
  transmissionQueue(filter?: Parameters<Views["transmissionQueue"]>[0]): ReturnType<Views["transmissionQueue"]> { return this.#views.transmissionQueue(filter); }
  failed(filter?: Parameters<Views["failed"]>[0]): ReturnType<Views["failed"]> { return this.#views.failed(filter); }
  get delayed(): DelayedMessages { return new DelayedCalls(this.#views, this.#verbs); }
  archive(filter?: Parameters<Views["archive"]>[0]): ReturnType<Views["archive"]> { return this.#views.archive(filter); }

  get [Symbol.toStringTag](): string { return "Transaction"; }
}

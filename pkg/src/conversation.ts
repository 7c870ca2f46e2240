import type { RawConversation } from "./raw.js";
import type { ConversationEndpoint, Message } from "./types/messages.js";
import type { Conversation, EndOptions, EndResult, GroupRef, MessageId, OutgoingMessage, ReceiveOptions, SendOptions, TimerOptions } from "./types/verbs.js";
import type { VerbCalls } from "./verbs.js";
import type { ViewCalls } from "./views.js";

/** A conversation by its handle. */
export class SpokenConversation implements Omit<Conversation, "conversationId" | "groupId" | "isInitiator" | "service" | "farService" | "contract"> {
  readonly handle: string;
  readonly #verbs: VerbCalls;
  readonly #views: ViewCalls;

  constructor(handle: string, verbs: VerbCalls, views: ViewCalls) {
    this.handle = handle;
    this.#verbs = verbs;
    this.#views = views;
    refuseClone(this);
  }

  send(messageType: string, body?: unknown, options?: SendOptions): Promise<MessageId> {
    return this.#verbs.send(this.handle, messageType, body, options);
  }

  sendMany(messages: readonly OutgoingMessage[], options?: Omit<SendOptions, "headers">): Promise<MessageId[]> {
    return this.#verbs.sendMany(this.handle, messages, options);
  }

  receive<B = any>(options?: Omit<ReceiveOptions, "conversation" | "group">): Promise<Message<B>[]> {
    return this.#verbs.receiveOwn<B>(this.handle, options);
  }

  beginTimer(timeout: number | null, options?: TimerOptions): Promise<void> {
    return this.#verbs.beginConversationTimer(this.handle, timeout, options);
  }

  moveTo(group: GroupRef): Promise<void> {
    return this.#verbs.moveConversation(this.handle, group);
  }

  end(options?: EndOptions): Promise<EndResult> {
    return this.#verbs.endConversation(this.handle, options);
  }

  info(): Promise<ConversationEndpoint | null> {
    return this.#views.info(this.handle);
  }

  get [Symbol.toStringTag](): string {
    return "Conversation";
  }
}

/** A conversation that was begun here. */
export class BegunConversation extends SpokenConversation implements Conversation {
  readonly conversationId: string;
  readonly groupId: string;
  readonly isInitiator: boolean;
  readonly service: string;
  readonly farService: string;
  readonly contract: string;

  constructor(raw: RawConversation, verbs: VerbCalls, views: ViewCalls) {
    super(raw.handle, verbs, views);
    this.conversationId = raw.conversationId;
    this.groupId = raw.groupId;
    this.isInitiator = raw.isInitiator;
    this.service = raw.service;
    this.farService = raw.farService;
    this.contract = raw.contract;
  }
}

/** A clone would be a dead copy. structuredClone refuses what has a function as an own property, so the object gets one. */
export function refuseClone(live: { send: unknown }): void {
  live.send = live.send; // from the prototype to the object itself
}

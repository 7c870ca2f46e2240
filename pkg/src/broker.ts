import { unlessAborted } from "./abort.js";
import { activate, type Drained, type Owner } from "./activation.js";
import { abortSignal, instant, options, plain, text } from "./check.js";
import type { Watched } from "./clock-hook.js";
import { refuseClone } from "./conversation.js";
import { closedError, openRaw, rethrowOf, type Core } from "./core.js";
import { DelayedCalls } from "./delayed.js";
import { deliver } from "./deliver.js";
import { normalise, queueOptions, serviceChange } from "./definitions.js";
import { fromRaw, reading } from "./errors.js";
import { announce, fire } from "./events.js";
import { failedFilter } from "./filters.js";
import { thrown } from "./handlers.js";
import { Line } from "./line.js";
import { Routes, type GivenRoute } from "./routes.js";
import type { CloseReason, Notice, RawBroker } from "./raw.js";
import { request } from "./request.js";
import { SYNC, type SyncHook } from "./sync-hook.js";
import { transact, type UnitOfWork } from "./transaction.js";
import type { Activation, ActivationOptions, Handler } from "./types/activation.js";
import type { Broker, Transaction, Views } from "./types/broker.js";
import type { Definitions, QueueOptions, ServiceChange, StandardSchemaV1 } from "./types/definitions.js";
import type { DelayedMessages } from "./types/delayed.js";
import type { Delivery, Route } from "./types/transmission.js";
import type { BrokerStats, ConversationEndpoint, ConversationGroup, FailedFilter, Message, QueueInfo, RowFilter, Rows } from "./types/messages.js";
import type { BeginDialog, Conversation, ConversationRef, EndOptions, EndResult, EnqueueOptions, GroupRef, MessageId, OutgoingMessage, ReceiveOptions, SendOptions, TimerOptions } from "./types/verbs.js";
import { bodyKey } from "./validation.js";
import { VerbCalls } from "./verbs.js";
import { ViewCalls } from "./views.js";

// The import must work where there is neither (on a server); opening a broker needs both.
const Target = (globalThis.EventTarget ?? Object) as new () => Pick<Broker, keyof EventTarget>;
const asyncDispose: typeof Symbol.asyncDispose = Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose");

/** A broker of its own over the context's one connection. */
export class PocketBroker extends Target implements Broker {
  readonly name: string;
  readonly instanceId: string;
  readonly #core: Core;
  readonly #line = new Line();
  readonly #verbs: VerbCalls;
  readonly #views: ViewCalls;
  readonly #open = new Set<UnitOfWork>();
  readonly #owner: Owner;
  readonly #routes: Routes;
  /** What handlers have put off, here or anywhere, is tried at once. */
  readonly #resume = async (): Promise<void> => {
    try {
      await this.#core.raw.resume();
    } catch {
      // Its time comes anyway.
    }
  };
  #closing: Promise<void> | undefined;
  #announced = false;

  constructor(name: string, raw: RawBroker, maxMessageBytes: number) {
    super();
    this.name = name;
    this.instanceId = raw.instanceId;
    const core: Core = { name, raw, maxMessageBytes, validators: raw.validators, storesBlobs: undefined, activations: 0, closed: undefined, readers: (queue) => this.#readers(queue) };
    this.#core = core;
    this.#owner = { core, open: this.#open, events: this as unknown as EventTarget, activations: new Set() };
    this.#views = new ViewCalls(core, () => this.#verbs);
    this.#verbs = new VerbCalls({ core, line: this.#line, target: () => openRaw(core), views: this.#views, speaker: () => this.#verbs });
    this.#routes = new Routes(core, (envelopes, context, via) => deliver(core, envelopes, context, via));
    globalThis.addEventListener?.("online", this.#resume);
    refuseClone(this);
  }

  async define(definitions: Definitions): Promise<Broker> {
    const { raw, validators } = reading(() => normalise(definitions));
    await openRaw(this.#core).define(raw).catch(rethrowOf(this.#core));
    this.#routes.servicesChanged();
    for (const [messageType, validator] of validators) this.#core.validators.set(messageType, validator);
    return this;
  }

  async alterQueue(name: string, options: QueueOptions): Promise<void> {
    let body: StandardSchemaV1 | undefined;
    const [queue, changes] = reading(() => [text(name, "name"), queueOptions(options, "options", (schema) => { body = schema; })] as const);
    await openRaw(this.#core).alterQueue(queue, changes).catch(rethrowOf(this.#core));
    if (body !== undefined) this.#core.validators.set(bodyKey(queue), body);
  }

  async dropQueue(name: string): Promise<void> {
    const queue = reading(() => text(name, "name"));
    await openRaw(this.#core).dropQueue(queue).catch(rethrowOf(this.#core));
  }

  async alterService(name: string, change: ServiceChange): Promise<void> {
    const [service, changes] = reading(() => [text(name, "name"), serviceChange(change, "change")] as const);
    await openRaw(this.#core).alterService(service, changes).catch(rethrowOf(this.#core));
    this.#routes.servicesChanged();
  }

  async dropService(name: string): Promise<void> {
    const service = reading(() => text(name, "name"));
    await openRaw(this.#core).dropService(service).catch(rethrowOf(this.#core));
    this.#routes.servicesChanged();
  }

  transaction<T>(work: (tx: Transaction) => Promise<T> | T, options?: { signal?: AbortSignal }): Promise<T> {
    return transact(this.#core, this.#open, work, options);
  }

  activate<B = any>(queue: string, handler: Handler<B>, options?: ActivationOptions): Activation {
    return activate(this.#owner, queue, handler, options, false);
  }

  async drain<B = any>(queue: string, handler: Handler<B>, options?: ActivationOptions): Promise<Drained> {
    return activate(this.#owner, queue, handler, options, true).drained();
  }

  request(dialog: BeginDialog & { timeout?: number; signal?: AbortSignal }, messageType: string, body?: unknown, options?: SendOptions): Promise<Message> {
    return request(this.#core, this.#open, dialog, messageType, body, options);
  }

  async returnToSource(filter?: FailedFilter): Promise<number> {
    const which = reading(() => failedFilter(filter));
    return openRaw(this.#core).unbury(which, false).catch(rethrowOf(this.#core));
  }

  async discardFailed(filter: FailedFilter): Promise<number> {
    const which = reading(() => failedFilter(plain(filter, "filter")));
    return openRaw(this.#core).unbury(which, true).catch(rethrowOf(this.#core));
  }

  async purgeArchive(before: Date | number): Promise<number> {
    const time = reading(() => instant(before, "before"));
    return openRaw(this.#core).purgeArchive(time).catch(rethrowOf(this.#core));
  }

  route(route: Route): Promise<GivenRoute> { return this.#routes.add(route); }

  deliver(envelopes: unknown, context?: { from?: string }): Promise<Delivery[]> { return deliver(this.#core, envelopes, context); }

  async transmit(given?: { signal?: AbortSignal }): Promise<{ sent: number; remaining: number }> {
    const { signal } = reading(() => options(given, "options", { signal: abortSignal }));
    signal?.throwIfAborted();
    return unlessAborted(openRaw(this.#core).transmit().catch(rethrowOf(this.#core)), signal);
  }

  async poll(): Promise<number> {
    return openRaw(this.#core).poll().catch(rethrowOf(this.#core));
  }

  close(): Promise<void> {
    return this.#closing ??= this.#close();
  }

  async #close(): Promise<void> {
    const waiting = this.#line.idle().catch(() => {});
    this.#shut("closed");
    await waiting;
    try {
      await this.#core.raw.close();
    } catch (error) {
      throw fromRaw(error);
    } finally {
      this.#announce();
    }
  }

  /** What the wasm side has to tell. */
  noticed(notice: Notice): void {
    if (this.#core.closed !== undefined) return;
    announce(this, notice);
    this.#routes.servicesChanged();
  }

  /** The wasm side has closed. */
  closed(reason: CloseReason): void {
    this.#shut(reason);
    queueMicrotask(() => this.#announce());
  }

  /** For a test clock. */
  watched(): Watched {
    const core = this.#core;
    const { activations } = this.#owner;
    return {
      next: () => core.raw.nextDue(),
      poll: () => core.raw.poll(),
      idle: () => Promise.all([...activations].map((activation) => activation.idle().catch(() => {}))),
      get isClosed() { return core.closed !== undefined; },
    };
  }

  /** For the entry for service workers. */
  get [SYNC](): SyncHook {
    const core = this.#core;
    return {
      resume: () => openRaw(core).resume().catch(rethrowOf(core)),
      isTransmittable: () => openRaw(core).isTransmittable().catch(rethrowOf(core)),
      warn: (source, error) => { if (core.closed === undefined) core.raw.warn(source, ...thrown(error)); },
    };
  }

  #shut(reason: CloseReason): void {
    if (this.#core.closed !== undefined) return;
    this.#core.closed = reason;
    globalThis.removeEventListener?.("online", this.#resume);
    this.#routes.close();
    for (const unit of this.#open) {
      const error = closedError(this.#core);
      unit.stop(error, error);
    }
    for (const activation of this.#owner.activations) activation.close();
  }

  #readers(queue: string): number {
    return [...this.#owner.activations].reduce((sum, activation) => sum + (activation.queue === queue ? activation.readers : 0), 0);
  }

  #announce(): void {
    if (this.#announced) return;
    this.#announced = true;
    fire(this, "close", { reason: this.#core.closed ?? "closed" });
  }

  beginDialog(options: BeginDialog): Promise<Conversation> { return this.#verbs.beginDialog(options); }
  send(to: ConversationRef, messageType: string, body?: unknown, options?: SendOptions): Promise<MessageId>;
  send(to: readonly ConversationRef[], messageType: string, body?: unknown, options?: SendOptions): Promise<MessageId[]>;
  send(to: any, messageType: string, body?: unknown, options?: SendOptions): Promise<any> { return this.#verbs.send(to, messageType, body, options); }
  sendMany(to: ConversationRef, messages: readonly OutgoingMessage[], options?: Omit<SendOptions, "headers">): Promise<MessageId[]> { return this.#verbs.sendMany(to, messages, options); }
  enqueue(queue: string, body?: unknown, options?: EnqueueOptions): Promise<MessageId> { return this.#verbs.enqueue(queue, body, options); }
  enqueueMany(queue: string, bodies: readonly unknown[], options?: Omit<EnqueueOptions, "dedupeId">): Promise<MessageId[]> { return this.#verbs.enqueueMany(queue, bodies, options); }
  receive<B = any>(queue: string, options?: ReceiveOptions): Promise<Message<B>[]> { return this.#verbs.receive<B>(queue, options); }
  beginConversationTimer(conversation: ConversationRef, timeout: number | null, options?: TimerOptions): Promise<void> { return this.#verbs.beginConversationTimer(conversation, timeout, options); }
  moveConversation(conversation: ConversationRef, to: GroupRef): Promise<void> { return this.#verbs.moveConversation(conversation, to); }
  endConversation(conversation: ConversationRef, options?: EndOptions): Promise<EndResult> { return this.#verbs.endConversation(conversation, options); }
  getGroupState<T = any>(group: GroupRef): Promise<T | undefined> { return this.#verbs.getGroupState<T>(group); }
  setGroupState(group: GroupRef, state: unknown): Promise<void> { return this.#verbs.setGroupState(group, state); }

  select<B = any>(queue: string, filter?: RowFilter): Rows<Message<B>> { return this.#views.select<B>(queue, filter); }
  count(queue: string, filter?: RowFilter): Promise<number> { return this.#views.count(queue, filter); }
  queues(): Promise<QueueInfo[]> { return this.#views.queues(); }
  conversation(conversation: ConversationRef): ReturnType<Views["conversation"]> { return this.#views.conversation(conversation); }
  conversations(filter?: Parameters<Views["conversations"]>[0]): Rows<ConversationEndpoint> { return this.#views.conversations(filter); }
  groups(filter?: Parameters<Views["groups"]>[0]): Rows<ConversationGroup> { return this.#views.groups(filter); }
  stats(): Promise<BrokerStats> { return this.#views.stats(); }
  transmissionQueue(filter?: Parameters<Views["transmissionQueue"]>[0]): ReturnType<Views["transmissionQueue"]> { return this.#views.transmissionQueue(filter); }
  failed(filter?: Parameters<Views["failed"]>[0]): ReturnType<Views["failed"]> { return this.#views.failed(filter); }
  get delayed(): DelayedMessages { return new DelayedCalls(this.#views, this.#verbs); }
  archive(filter?: Parameters<Views["archive"]>[0]): ReturnType<Views["archive"]> { return this.#views.archive(filter); }

  [asyncDispose](): Promise<void> { return this.close(); }
  get [Symbol.toStringTag](): string { return "Broker"; }
}

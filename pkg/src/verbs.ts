import { describe, text } from "./check.js";
import { namePart, takeBodies, takeBody, type Body } from "./bodies.js";
import { unpack } from "./blobs.js";
import { BegunConversation } from "./conversation.js";
import { reasonOf, rethrowOf, type Core } from "./core.js";
import { invalid, refuse } from "./errors.js";
import { together, type Line } from "./line.js";
import { expand, idText, idTexts } from "./messages.js";
import { dialogOptions, endOptions, enqueueOptions, groupOptions, outgoing, receiveOptions, receiveOwnOptions, sendManyOptions, sendOptions, timerOptions, timerTimeout, type Enqueuing, type Receiving } from "./outgoing.js";
import type { RawTransaction, RawVerbs } from "./raw.js";
import { conversationHandle, groupOrHandle } from "./refs.js";
import type { Message } from "./types/messages.js";
import type { BeginDialog, Conversation, ConversationRef, EndOptions, EndResult, EnqueueOptions, GroupRef, MessageId, OutgoingMessage, ReceiveOptions, SendOptions, TimerOptions, Verbs } from "./types/verbs.js";
import { validate } from "./validation.js";
import type { ViewCalls } from "./views.js";

/** Whom the verbs go to: the broker, or a transaction that is open; a promise while that is being settled. Throws when there is nobody any more. */
export type Target = () => RawVerbs | Promise<RawVerbs>;

/** What a Broker's or a Transaction's verbs need. */
export interface Route {
  readonly core: Core;
  readonly line: Line;
  readonly target: Target;
  readonly views: ViewCalls;
  /** What a conversation that is begun here speaks through. */
  readonly speaker: () => VerbCalls;
}

const first = (ids: Uint8Array): string => idText(ids, 0);

/** The verbs. Arguments are read and bodies are cloned at the call; each call is one promise hop away from the wasm side. */
export class VerbCalls implements Verbs {
  readonly #route: Route;

  constructor(route: Route) {
    this.#route = route;
  }

  beginDialog(options: BeginDialog): Promise<Conversation> {
    return this.#call(() => {
      const dialog = dialogOptions(options);
      return this.#issue((raw) => raw.beginDialog(dialog)).then((begun) => new BegunConversation(begun, this.#route.speaker(), this.#route.views), rethrowOf(this.#route.core));
    });
  }

  send(to: ConversationRef, messageType: string, body?: unknown, options?: SendOptions): Promise<MessageId>;
  send(to: readonly ConversationRef[], messageType: string, body?: unknown, options?: SendOptions): Promise<MessageId[]>;
  send(to: ConversationRef | readonly ConversationRef[], messageType: string, body?: unknown, options?: SendOptions): Promise<MessageId | MessageId[]> {
    try {
      const several = Array.isArray(to);
      const handles = several ? to.map((ref, index) => conversationHandle(ref, `to[${index}]`)) : [conversationHandle(to, "to")];
      text(messageType, "messageType");
      const { headers, signal, when } = sendOptions(options);
      if (signal?.aborted) return Promise.reject(signal.reason);
      const target = this.#route.target();
      const taken = takeBody(this.#route.core, body, "body");
      const late = validate(this.#route.core, "messageType", [messageType], [body], [taken], () => "body");
      const task = (raw: RawVerbs): Promise<Uint8Array> => {
        late?.check();
        return raw.send(handles, messageType, taken.value, taken.packing, taken.size, headers, when, signal);
      };
      return this.#route.line.run(target, task, together([late?.ready, taken.ready]))
        .then<MessageId | MessageId[], never>(several ? idTexts : first, (error) => { throw namePart(reasonOf(this.#route.core, error, signal), [taken], () => "body"); });
    } catch (error) {
      return refuse(error);
    }
  }

  sendMany(to: ConversationRef, messages: readonly OutgoingMessage[], options?: Omit<SendOptions, "headers">): Promise<MessageId[]> {
    return this.#call(() => {
      const handle = conversationHandle(to, "to");
      const { signal, when } = sendManyOptions(options);
      if (signal?.aborted) return Promise.reject(signal.reason);
      const list = outgoing(messages);
      const target = this.#route.target();
      const name = (index: number): string => `messages[${index}].body`;
      const given = list.map(({ body }) => body);
      const bodies = takeBodies(this.#route.core, given, name);
      const types = list.map(({ messageType }) => messageType);
      const late = validate(this.#route.core, "messageType", types, given, bodies, name);
      const columns = types.every((type) => type === types[0]) ? types[0] ?? "" : types;
      const headers = list.some((message) => message.headers !== undefined) ? list.map((message) => message.headers) : undefined;
      const task = (raw: RawVerbs): Promise<Uint8Array> => {
        late?.check();
        return raw.sendMany(handle, columns, ...columnsOf(bodies), headers, when, signal);
      };
      return this.#route.line.run(target, task, together([late?.ready, ...bodies.map(({ ready }) => ready)]))
        .then(idTexts, (error) => { throw namePart(reasonOf(this.#route.core, error, signal), bodies, name); });
    });
  }

  enqueue(queue: string, body?: unknown, options?: EnqueueOptions): Promise<MessageId> {
    return this.#call(() => this.#enqueue(queue, [body], () => "body", enqueueOptions(options, false)).then(first));
  }

  enqueueMany(queue: string, bodies: readonly unknown[], options?: Omit<EnqueueOptions, "dedupeId">): Promise<MessageId[]> {
    return this.#call(() => {
      if (!Array.isArray(bodies)) throw invalid("bodies", `must be an array of bodies, not ${describe(bodies)}`);
      // Array.from, because a hole is no body, too.
      return this.#enqueue(queue, Array.from(bodies as unknown[]), (index) => `bodies[${index}]`, enqueueOptions(options, true)).then(idTexts);
    });
  }

  #enqueue(queue: string, given: readonly unknown[], name: (index: number) => string, { raw: options, headers, signal }: Enqueuing): Promise<Uint8Array> {
    text(queue, "queue");
    if (signal?.aborted) return Promise.reject(signal.reason);
    const target = this.#route.target();
    const bodies = given.length === 1 ? [takeBody(this.#route.core, given[0], name(0))] : takeBodies(this.#route.core, given, name);
    const late = validate(this.#route.core, "queue", given.map(() => queue), given, bodies, name);
    const task = (raw: RawVerbs): Promise<Uint8Array> => {
      late?.check();
      return raw.enqueue(queue, ...columnsOf(bodies), headers, options, signal);
    };
    return this.#route.line.run(target, task, together([late?.ready, ...bodies.map(({ ready }) => ready)]))
      .then((ids) => ids, (error) => { throw namePart(reasonOf(this.#route.core, error, signal), bodies, name); });
  }

  receive<B = any>(queue: string, options?: ReceiveOptions): Promise<Message<B>[]> {
    return this.#call(() => this.#receive(text(queue, "queue"), receiveOptions(options)));
  }

  /** In a transaction only. */
  getConversationGroup(queue: string, options: unknown): Promise<string | null> {
    return this.#call(() => {
      const name = text(queue, "queue");
      const { timeout, signal } = groupOptions(options);
      if (signal?.aborted) return Promise.reject(signal.reason);
      return this.#issue((raw) => (raw as RawTransaction).getConversationGroup(name, timeout, signal)).then((group) => group, (error) => { throw reasonOf(this.#route.core, error, signal); });
    });
  }

  /** From the conversation's own queue. */
  receiveOwn<B = any>(conversation: string, options: unknown): Promise<Message<B>[]> {
    return this.#call(() => this.#receive("", receiveOwnOptions(options, conversation)));
  }

  beginConversationTimer(conversation: ConversationRef, timeout: number | null, options?: TimerOptions): Promise<void> {
    return this.#call(() => {
      const handle = conversationHandle(conversation);
      const ms = timerTimeout(timeout);
      const { name = "", body } = timerOptions(options);
      const target = this.#route.target();
      // What is cancelled needs no body. The whole of the DialogTimer's is packed, so that it is unpacked as any other.
      const given = ms === undefined || (name === "" && body === undefined) ? undefined : { name, body };
      const taken: Body = takeBody(this.#route.core, given, "options");
      return this.#route.line.run(target, (raw) => raw.beginConversationTimer(handle, ms, name, taken.value, taken.packing, taken.size), taken.ready)
        .then(nothing, (error) => { throw namePart(reasonOf(this.#route.core, error), [taken], () => "options"); });
    });
  }

  moveConversation(conversation: ConversationRef, to: GroupRef): Promise<void> {
    return this.#call(() => {
      const handle = conversationHandle(conversation);
      const group = groupOrHandle(to, "to");
      return this.#issue((raw) => raw.moveConversation(handle, group, typeof to !== "string")).then(nothing, rethrowOf(this.#route.core));
    });
  }

  endConversation(conversation: ConversationRef, options?: EndOptions): Promise<EndResult> {
    return this.#call(() => {
      const handle = conversationHandle(conversation);
      const end = endOptions(options);
      return this.#issue((raw) => raw.endConversation(handle, end)).then(({ discarded, archived }) => ({ discarded, archived }), rethrowOf(this.#route.core));
    });
  }

  /** Of a delayed message; gives whether it waited. */
  change(task: (raw: RawVerbs) => Promise<boolean>): Promise<boolean> {
    return this.#call(() => this.#issue(task).then((was) => was, rethrowOf(this.#route.core)));
  }

  getGroupState<T = any>(group: GroupRef): Promise<T | undefined> {
    return this.#call(() => {
      const id = groupOrHandle(group);
      return this.#issue((raw) => raw.getGroupState(id)).then(({ value, packing }) => unpack(value, packing) as T | undefined, rethrowOf(this.#route.core));
    });
  }

  setGroupState(group: GroupRef, state: unknown): Promise<void> {
    return this.#call(() => {
      const id = groupOrHandle(group);
      const target = this.#route.target();
      const taken: Body = takeBody(this.#route.core, state, "state");
      return this.#route.line.run(target, (raw) => raw.setGroupState(id, taken.value, taken.packing, taken.size), taken.ready)
        .then(nothing, (error) => { throw namePart(reasonOf(this.#route.core, error), [taken], () => "state"); });
    });
  }

  #receive(queue: string, { raw: options, signal }: Receiving): Promise<Message[]> {
    if (signal?.aborted) return Promise.reject(signal.reason);
    return this.#issue((raw) => raw.receive(queue, options, signal)).then(expand, (error) => { throw reasonOf(this.#route.core, error, signal); });
  }

  #issue<T>(task: (raw: RawVerbs) => Promise<T>): Promise<T> {
    return this.#route.line.run(this.#route.target(), task);
  }

  /** What is wrong at the call itself rejects as well. */
  #call<T>(call: () => Promise<T>): Promise<T> {
    try {
      return call();
    } catch (error) {
      return refuse(error);
    }
  }
}

/** Bodies as columns: values, packings (undefined when all are 0) and sizes. */
function columnsOf(bodies: readonly Body[]): [unknown[], Uint32Array | undefined, Float64Array] {
  const packings = bodies.some(({ packing }) => packing !== 0) ? Uint32Array.from(bodies, ({ packing }) => packing) : undefined;
  return [bodies.map(({ value }) => value), packings, Float64Array.from(bodies, ({ size }) => size)];
}

function nothing(): void {}

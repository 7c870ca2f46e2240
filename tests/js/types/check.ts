/**
 * Compares the package's types with contract.d.ts, for every name that this release covers: each must be assignable to the
 * other, and every parameter list and result too, since methods alone are compared leniently. What a later release adds is left
 * out of the contract's side by `Pick`; the Covered types say what is in.
 */
import type * as C from "./contract";
import type * as P from "pocket-broker";
import type * as H from "pocket-broker/http";
import type * as W from "pocket-broker/service-worker";
import type * as X from "pocket-broker/classic";
import type * as T from "pocket-broker/testing";

type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
/** Both ways, and `any` only where the other side is `any`. */
type Mutual<A, B> = [A] extends [B] ? ([B] extends [A] ? Equal<IsAny<A>, IsAny<B>> : false) : false;
type IsAny<T> = 0 extends 1 & T ? true : false;
type MutualMember<A, B, K> = K extends keyof A & keyof B
  ? IsAny<A[K]> extends true ? IsAny<B[K]>
  : A[K] extends (...args: infer X) => infer R
    ? B[K] extends (...args: infer Y) => infer S ? ([Mutual<A[K], B[K]>, Mutual<X, Y>, Mutual<Awaited<R>, Awaited<S>>] extends [true, true, true] ? true : false) : false
    : Mutual<A[K], B[K]>
  : false;
/** `true`, or the names of the members that differ. */
type Members<A, B, Keys extends PropertyKey> = { [K in Keys]: MutualMember<A, B, K> extends true ? never : K }[Keys];
type Same<A, B, Keys extends PropertyKey = keyof A | keyof B> = [Members<A, B, Keys>] extends [never] ? true : Members<A, B, Keys>;
const is = <_ extends true>(): void => {};

// ── the contract, cut down to this release ──

type ConversationNames = "handle" | "conversationId" | "groupId" | "isInitiator" | "service" | "farService" | "contract" | "send" | "sendMany" | "receive" | "beginTimer" | "moveTo" | "end" | "info";
interface Conversation extends Pick<C.Conversation, ConversationNames> {}
interface Verbs extends Pick<C.Verbs, "send" | "sendMany" | "enqueue" | "enqueueMany" | "receive" | "beginConversationTimer" | "moveConversation" | "endConversation" | "getGroupState" | "setGroupState"> {
  beginDialog(options: C.BeginDialog): Promise<Conversation>;
}
interface Views extends Pick<C.Views, "select" | "count" | "queues" | "conversations" | "groups" | "stats" | "transmissionQueue" | "archive" | "failed" | "delayed"> {
  conversation(conversation: C.ConversationRef): Pick<Conversation, "handle" | "send" | "sendMany" | "receive" | "beginTimer" | "moveTo" | "end" | "info">;
}
interface Transaction extends Verbs, Views, Pick<C.Transaction, "signal" | "getConversationGroup"> {}
type Events = Pick<C.BrokerEvents, "changed" | "message-enqueued" | "queue-disabled" | "message-dropped" | "message-failed" | "critical-error" | "conversation-changed" | "close">;
interface Broker extends Verbs, Views, EventTarget, AsyncDisposable, Pick<C.Broker, "name" | "instanceId" | "alterQueue" | "dropQueue" | "alterService" | "dropService" | "activate" | "drain" | "request" | "returnToSource" | "discardFailed" | "purgeArchive" | "poll" | "close" | "route" | "transmit" | "deliver"> {
  define(definitions: C.Definitions): Promise<Broker>;
  transaction<T>(work: (tx: Transaction) => Promise<T> | T, options?: { signal?: AbortSignal }): Promise<T>;
  addEventListener<K extends keyof Events>(type: K, listener: (event: CustomEvent<Events[K]>) => unknown, options?: AddEventListenerOptions | boolean): void;
  addEventListener(type: string, listener: EventListenerOrEventListenerObject | null, options?: AddEventListenerOptions | boolean): void;
}
// The cut is nothing but a cut: what the contract promises can stand wherever the cut is asked for.
is<[C.Conversation] extends [Conversation] ? true : false>();
is<[C.Verbs] extends [Verbs] ? true : false>();
is<[C.Views] extends [Views] ? true : false>();
is<[C.Transaction] extends [Transaction] ? true : false>();
is<[C.Broker] extends [Broker] ? true : false>();

// ── objects with methods ──

declare const broker: P.Broker;
declare const contract: C.Broker;

is<Same<P.Conversation, Conversation>>();
is<Same<P.Verbs, Verbs>>();
is<Same<P.Views, Views>>();
is<Same<P.Transaction, Transaction>>();
is<Same<P.Broker, Broker, Exclude<keyof Broker | keyof P.Broker, "addEventListener" | "transaction" | "activate" | "drain">>>();
// Those have a parameter of their own: what they take and give for one type of body.
is<Mutual<Parameters<typeof broker.activate<Date>>, Parameters<typeof contract.activate<Date>>>>();
is<Mutual<ReturnType<typeof broker.activate<Date>>, ReturnType<typeof contract.activate<Date>>>>();
is<Mutual<Parameters<typeof broker.drain<Date>>, Parameters<typeof contract.drain<Date>>>>();
is<Mutual<Awaited<ReturnType<typeof broker.drain<Date>>>, Awaited<ReturnType<typeof contract.drain<Date>>>>>();
is<[Broker] extends [P.Broker] ? true : false>();
is<[P.Broker] extends [Broker] ? true : false>();
is<Same<P.Rows<string>, C.Rows<string>>>();

// ── plain shapes: the same keys, and each key the same ──

is<Equal<P.ConversationRef, C.ConversationRef>>();
is<Equal<P.GroupRef, C.GroupRef>>();
is<Equal<[P.Handle, P.GroupId, P.MessageId], [string, string, string]>>();
is<Mutual<P.Message, C.Message>>();
is<Equal<keyof P.Message, keyof C.Message>>();
is<Same<P.Message<Date>, C.Message<Date>>>();
is<Equal<P.Message["status"], 0 | 1 | 2 | 3>>();
is<Equal<P.Message["validation"], "N" | "E" | "J" | "S">>();
is<Equal<P.Message["messageEnqueueTime"], Date>>();
is<Equal<P.Message<{ a: 1 }>["body"], { a: 1 }>>();
is<Same<P.ConversationEndpoint, C.ConversationEndpoint>>();
is<Equal<P.ConversationState, C.ConversationState>>();
is<Same<P.QueueInfo, C.QueueInfo>>();
is<Same<P.ConversationGroup, C.ConversationGroup>>();
is<Same<P.BrokerStats, C.BrokerStats>>();
is<Same<P.TransmissionRow, C.TransmissionRow>>();
is<Same<P.EndResult, C.EndResult>>();
is<Same<P.EndOptions, C.EndOptions>>();
is<Same<P.TimerOptions, C.TimerOptions>>();
is<Same<P.RowFilter, C.RowFilter>>();
is<Same<P.OutgoingMessage, C.OutgoingMessage>>();
is<Same<P.BeginDialog, C.BeginDialog>>();
is<Same<P.SendOptions, C.SendOptions>>();
is<Same<P.DelayedMessages, C.DelayedMessages>>();
is<Same<T.TestClock, ReturnType<typeof C.testClock>>>();
is<Mutual<Parameters<typeof T.testClock>, Parameters<typeof C.testClock>>>();
is<Mutual<typeof T.checkDelayedMessageStore, typeof C.checkDelayedMessageStore>>();
is<Same<P.DelayedDeliverySettings, C.DelayedDeliverySettings>>();
is<Same<P.DelayedMessage, C.DelayedMessage>>();
is<Same<P.DelayedMessageStore, C.DelayedMessageStore>>();
is<Equal<P.TransactionMode, C.TransactionMode>>();
is<Same<P.EnqueueOptions, C.EnqueueOptions>>();
is<Same<P.ReceiveOptions, C.ReceiveOptions>>();
is<Same<P.Activation, C.Activation>>();
is<Same<P.ActivationOptions, C.ActivationOptions>>();
is<Same<P.Recoverability, C.Recoverability>>();
is<Mutual<P.Handler<Date>, C.Handler<Date>>>();
is<Mutual<P.FailedMessage, C.FailedMessage>>();
is<Equal<keyof P.FailedMessage, keyof C.FailedMessage>>();
is<Same<P.FailedFilter, C.FailedFilter>>();
is<Same<P.OpenOptions, C.OpenOptions, "durability" | "storage" | "clock" | "lockTimeout" | "maxMessageBytes" | "wasm" | "signal">>();
is<Mutual<P.WasmSource, C.WasmSource>>();
is<Same<P.QueueOptions, C.QueueOptions, Exclude<keyof C.QueueOptions, "body">>>();
is<Same<P.PriorityRule, C.PriorityRule>>();
is<Equal<P.SentBy, C.SentBy>>();
is<Mutual<P.Validation, C.Validation>>();
is<Mutual<P.StandardSchemaV1, C.StandardSchemaV1>>();
is<Mutual<P.Definitions, C.Definitions>>();
is<Equal<keyof P.Definitions, keyof C.Definitions>>();
is<Mutual<Pick<P.BrokerEvents, keyof Events>, Events>>();

// ── errors ──

is<Equal<P.BrokerErrorCode, C.BrokerErrorCode>>();
is<Same<P.BrokerError, C.BrokerError>>();
is<Equal<P.BrokerError["name"], "BrokerError">>();
is<Mutual<typeof P.isBrokerError, typeof C.isBrokerError>>();
is<Mutual<typeof P.encodeBody, typeof C.encodeBody>>();
is<Mutual<typeof P.decodeBody, typeof C.decodeBody>>();
is<Same<P.EncodedBody, C.EncodedBody>>();
// With `after`, which the contract leaves open.
is<[P.RetryLater] extends [C.RetryLater] ? true : false>();
is<Equal<P.RetryLater["after"], number | Date | undefined>>();
is<Mutual<ConstructorParameters<typeof P.RetryLater>, ConstructorParameters<typeof C.RetryLater>>>();
is<Mutual<typeof P.UnrecoverableError, typeof C.UnrecoverableError>>();
is<Mutual<ConstructorParameters<typeof P.UnrecoverableError>, ConstructorParameters<typeof C.UnrecoverableError>>>();

// ── over HTTP ──

is<Same<H.StoredRequest, C.StoredRequest>>();
is<Mutual<H.HttpOptions, C.HttpOptions>>();
is<Same<H.HttpTransportOptions, Parameters<typeof C.httpTransport>[0]>>();
is<Mutual<typeof H.toStoredRequest, typeof C.toStoredRequest>>();
is<Mutual<Parameters<typeof H.replay>, Parameters<typeof C.replay>>>();
is<Equal<ReturnType<typeof H.replay>, P.Handler<H.StoredRequest>>>();
is<[ReturnType<typeof H.httpTransport>] extends [C.Transport] ? true : false>();

// ── in service workers ──

is<[Parameters<typeof W.handleSync>[1]] extends [Parameters<typeof C.handleSync>[1]] ? true : false>();
is<Mutual<ReturnType<typeof W.handleSync>, ReturnType<typeof C.handleSync>>>();
is<Mutual<Parameters<typeof W.registerBackgroundSync>[2], Parameters<typeof C.registerBackgroundSync>[2]>>();
is<Mutual<ReturnType<typeof W.registerBackgroundSync>, ReturnType<typeof C.registerBackgroundSync>>>();
is<Equal<keyof typeof X, keyof typeof P | keyof typeof H | keyof typeof W>>();

// ── functions and constants ──

is<Mutual<Parameters<typeof P.openBroker>[0], string>>();
is<Mutual<Awaited<ReturnType<typeof P.openBroker>>, Broker>>();
is<Mutual<Parameters<typeof P.openBroker>["length"], Parameters<typeof C.openBroker>["length"]>>();
is<Mutual<typeof P.deleteBroker, typeof C.deleteBroker>>();
is<Mutual<Parameters<typeof P.deleteBroker>, Parameters<typeof C.deleteBroker>>>();
is<Mutual<typeof P.init, typeof C.init>>();
is<Mutual<Parameters<typeof P.init>, Parameters<typeof C.init>>>();
is<Mutual<typeof P.type, typeof C.type>>();
is<[typeof P.defineBroker] extends [<D extends C.Definitions>(definitions: D) => D] ? true : false>();
is<Equal<typeof P.MessageStatus.RetainedReceived, 0>>();
is<Mutual<typeof P.MessageStatus, typeof C.MessageStatus>>();
is<Mutual<typeof P.SystemMessage, typeof C.SystemMessage>>();
is<Equal<keyof typeof P.SystemMessage, "EndDialog" | "Error" | "DialogTimer">>();

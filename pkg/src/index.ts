/**
 * SQL Server Service Broker's queues, services, contracts, conversations and message retention in the browser, on IndexedDB.
 *
 * Durations are in milliseconds; instants are taken as Date or epoch milliseconds and given as Date. Every rejection is a
 * {@link BrokerError}, except an abort (`signal.reason`, untouched) and what `work` of a transaction rejects with. A Broker's promise settles after the
 * commit; a Transaction's when the call is accepted.
 *
 * @packageDocumentation
 */
export { deleteBroker, openBroker } from "./open.js";
export { init } from "./load.js";
export { defineBroker } from "./definitions.js";
export { type } from "./validation.js";
export { decodeBody, encodeBody } from "./encode.js";
export { BrokerError, isBrokerError } from "./errors.js";
export { RetryLater, UnrecoverableError } from "./handlers.js";
export { MessageStatus, SystemMessage } from "./messages.js";

export type { EncodedBody } from "./encode.js";
export type { BrokerErrorInit } from "./errors.js";
export type { BrokerErrorCode } from "./types/errors.js";
export type { Activation, ActivationOptions, Handler, Recoverability } from "./types/activation.js";
export type { Broker, BrokerEvents, Clock, OpenOptions, Transaction, Views, WasmSource } from "./types/broker.js";
export type { DelayedDeliverySettings, DelayedFilter, DelayedMessage, DelayedMessages, DelayedMessageStore, TransactionMode } from "./types/delayed.js";
export type { Definitions, PriorityRule, QueueOptions, SentBy, ServiceChange, StandardSchemaV1, Validation } from "./types/definitions.js";
export type { BrokerStats, ConversationEndpoint, ConversationGroup, ConversationState, FailedFilter, FailedMessage, Message, QueueInfo, RowFilter, Rows, TransmissionRow } from "./types/messages.js";
export type { Acknowledgement, Delivery, Envelope, MessageEnvelope, Route, SendResult, Transport } from "./types/transmission.js";
export type {
  BeginDialog, Conversation, ConversationRef, EndOptions, EndResult, EnqueueOptions, GroupId, GroupRef, Handle, MessageId, OutgoingMessage, ReceiveOptions, SendOptions, TimerOptions,
  Verbs,
} from "./types/verbs.js";

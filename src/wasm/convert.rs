//! Between Rust's names and JavaScript's: the one place where snake_case becomes camelCase.

use std::rc::Rc;

use js_sys::Array;
use num_traits::ToPrimitive;
use serde::de::DeserializeOwned;
use uuid::Uuid;
use wasm_bindgen::prelude::*;

use crate::body::{Body, Value};
use crate::columns::Column;
use crate::core::Host;
use crate::definitions::ServiceChange;
use crate::error::{Error, ErrorCode, Result};
use crate::error_queue::{FailedAt, FailedFilter};
use crate::record::{optional, value};
use crate::recoverability::{Failure, FailureKind, Finally, Recoverability, Recovered, Thrown};
use crate::rows::Rows;
use crate::verbs::{
    Answer, BeginTimer, ConversationInfo, Destination, End, EndError, EndOptions, Move, ReceiveOptions, TimerOptions,
    Verb,
};
use crate::views::{DelayedFilter, Endpoint, EndpointFilter, QueueInfo, RowFilter, Seen, TransmissionRow, View};

/// Options, as the package has checked them.
pub(super) fn options<T: DeserializeOwned>(options: JsValue) -> Result<T> {
    serde_wasm_bindgen::from_value(options)
        .map_err(|problem| Error::new(ErrorCode::InvalidArgument, format!("The options can't be read: {problem}.")))
}

/// A list of names.
pub(super) fn names(names: &Array) -> Vec<Rc<str>> {
    names.iter().filter_map(|name| name.as_string()).map(Rc::from).collect()
}

/// A body, as the package has packed and measured it.
pub(super) fn body(value: JsValue, packing: u32, size: f64) -> Body {
    Body { value: Value(value).into(), packing, size }
}

/// A field that is a text, if it is there.
pub(super) fn text(options: &JsValue, name: &str) -> Option<Rc<str>> {
    field(options, name).text().map(Rc::from)
}

/// A field of options.
pub(super) fn field(options: &JsValue, name: &str) -> Value {
    Value(options.clone()).field(name)
}

/// A field of options.
pub(super) fn number(options: &JsValue, name: &str) -> Option<f64> {
    field(options, name).number()
}

/// A field that is a whole number, if it is there.
pub(super) fn whole(options: &JsValue, name: &str) -> Option<u64> {
    number(options, name).and_then(|number| number.to_u64())
}

/// A field of options.
pub(super) fn flag(options: &JsValue, name: &str) -> Option<bool> {
    field(options, name).boolean()
}

/// What RECEIVE takes.
pub(super) fn receive(options: &JsValue) -> ReceiveOptions {
    ReceiveOptions {
        top: number(options, "top"),
        conversation: text(options, "conversation"),
        group: text(options, "group"),
        timeout: number(options, "timeout"),
        activated: flag(options, "activated").unwrap_or(false),
    }
}

/// How a handler failed.
pub(super) fn failure(failure: &JsValue) -> Failure {
    let part = |name: &str| text(failure, name).unwrap_or_default();
    Failure {
        kind: match &*part("kind") {
            "unrecoverable" => FailureKind::Unrecoverable,
            "later" => FailureKind::Later(number(failure, "after")),
            _ => FailureKind::Ordinary,
        },
        error: Thrown { name: part("name"), message: part("message"), code: text(failure, "code") },
        message_id: part("messageId"),
        queue: part("queue"),
        stack: part("stack"),
        endpoint: part("endpoint"),
    }
}

/// What a failure is to mean.
pub(super) fn recoverability(policy: &JsValue) -> Recoverability {
    let default = Recoverability::default();
    let whole = |name: &str, default: u64| whole(policy, name).unwrap_or(default);
    Recoverability {
        immediate_retries: whole("immediateRetries", default.immediate_retries),
        delayed_retries: whole("delayedRetries", default.delayed_retries),
        time_increase: number(policy, "timeIncrease").unwrap_or(default.time_increase),
        finally: match text(policy, "finally").as_deref() {
            Some("rollback") => Finally::Rollback,
            Some("retry-forever") => Finally::RetryForever,
            _ => Finally::ErrorQueue,
        },
    }
}

/// Which delayed messages.
pub(super) fn delayed_filter(filter: &JsValue) -> DelayedFilter {
    DelayedFilter {
        destination: text(filter, "destination"),
        before: number(filter, "before"),
        limit: number(filter, "limit"),
    }
}

/// Which messages of the error queue.
pub(super) fn failed_filter(filter: &JsValue) -> FailedFilter {
    FailedFilter {
        message_id: text(filter, "messageId"),
        failed_queue: text(filter, "failedQueue"),
        failed_before: number(filter, "failedBefore"),
        limit: number(filter, "limit"),
    }
}

/// What comes next.
pub(super) fn recovered(recovered: &Recovered) -> Value {
    Value::object(vec![
        ("attempts", value(recovered.attempts)),
        ("next", Value::from(recovered.next.name())),
        ("retryAt", recovered.retry_at.map_or_else(Value::null, Value::from)),
    ])
}

/// What ALTER SERVICE changes.
pub(super) fn service_change(change: &JsValue) -> ServiceChange {
    let names = |name: &str| field(change, name).items().iter().filter_map(Value::text).map(Rc::from).collect();
    ServiceChange {
        queue: text(change, "queue"),
        add_contracts: names("addContracts"),
        drop_contracts: names("dropContracts"),
    }
}

/// MOVE. `is_conversation`: `to` is the handle of a conversation, not a text that may be anything.
pub(super) fn move_to(handle: String, to: String, is_conversation: bool) -> Verb {
    let to = if is_conversation { Destination::Conversation(to.into()) } else { Destination::Named(to.into()) };
    Verb::Move(Move { handle: handle.into(), to })
}

/// BEGIN CONVERSATION TIMER. `timeout`: null cancels.
pub(super) fn timer(host: &Host, handle: &str, timeout: Option<f64>, name: &str, body: Body) -> Verb {
    Verb::BeginTimer(BeginTimer::new(host, handle, timeout, TimerOptions { name: name.into(), body }))
}

/// END and what it takes.
pub(super) fn end(handle: String, options: &JsValue) -> Verb {
    let error = field(options, "error");
    let error = (!error.is_undefined()).then(|| EndError {
        code: error.field("code").number().unwrap_or(f64::NAN),
        description: error.field("description").text().unwrap_or_default(),
    });
    let options =
        EndOptions { error, cleanup: flag(options, "cleanup").unwrap_or(false), archive: flag(options, "archive") };
    Verb::End(End { handle: handle.into(), options })
}

/// Which rows.
pub(super) fn row_filter(filter: &JsValue) -> RowFilter {
    let status = field(filter, "status");
    RowFilter {
        status: status.is_list().then(|| status.items().iter().filter_map(Value::number).collect()),
        conversation: text(filter, "conversation"),
        group: text(filter, "group"),
        message_type: text(filter, "messageType"),
        after: number(filter, "after"),
        limit: number(filter, "limit"),
        reverse: flag(filter, "reverse").unwrap_or(false),
        queue: text(filter, "queue"),
        conversation_id: text(filter, "conversationId"),
    }
}

/// Which endpoints.
pub(super) fn endpoint_filter(filter: &JsValue) -> EndpointFilter {
    EndpointFilter {
        service: text(filter, "service"),
        state: text(filter, "state"),
        group: text(filter, "group"),
        conversation_id: text(filter, "conversationId"),
        created_before: number(filter, "createdBefore"),
    }
}

/// What a verb answers; `done` when it has nothing of its own to say.
pub(super) fn answer(answer: Answer, done: JsValue) -> JsValue {
    match answer {
        Answer::Done | Answer::Moved(_) | Answer::Mended(_) => done,
        Answer::Custom(_) | Answer::Transmission(_) | Answer::Delivered(_) => done,
        Answer::Seen(first) => Value::from_bytes(first.as_bytes()).0,
        Answer::Delayed(delayed) => ids(delayed.into_iter()),
        Answer::Was(was) => was.into(),
        Answer::Conversation(info) | Answer::Reused(info) => conversation(&info),
        Answer::Received(batches, _) => list(&batches, rows),
        Answer::Ended(result) => {
            Value::object(vec![("discarded", value(result.discarded)), ("archived", value(result.archived))]).0
        }
        Answer::GroupState(state) => {
            let state = state.unwrap_or_else(Body::none);
            Value::object(vec![("value", state.value.value()), ("packing", Value::from(state.packing))]).0
        }
        Answer::Group(group) => optional(group.as_deref()).0,
        Answer::Count(count) => value(count).0,
        Answer::Polled(polled) => value(polled.moved).0,
        Answer::Recovered(recovered) => self::recovered(&recovered).0,
        Answer::Unburied(unburied) => value(unburied.count).0,
    }
}

/// The ids of messages, as bytes: the package makes texts of them more cheaply than strings cross the boundary.
pub(super) fn ids(ids: impl ExactSizeIterator<Item = Uuid>) -> JsValue {
    let mut bytes = Vec::with_capacity(ids.len() * 16);
    ids.for_each(|id| bytes.extend_from_slice(id.as_bytes()));
    Value::from_bytes(&bytes).0
}

/// What a view shows.
pub(super) fn seen(view: &View, seen: &Seen) -> JsValue {
    match seen {
        Seen::Rows(batches) => page(&batches.rows, batches.next.as_deref(), rows),
        Seen::Count(count) => value(*count).0,
        Seen::Groups(groups) => page(&groups.rows, groups.next.as_deref(), super::shown::group),
        Seen::Queues(queues) => list(queues, queue),
        Seen::Stats(stats) => super::shown::stats(stats).0,
        Seen::Endpoints(endpoints) if matches!(view, View::Info(_)) => {
            endpoints.rows.first().map_or(JsValue::NULL, |found| endpoint(found).0)
        }
        Seen::Endpoints(endpoints) => page(&endpoints.rows, endpoints.next.as_deref(), endpoint),
        Seen::TransmissionQueue(rows) => page(rows, None, transmission_row),
        Seen::Transmittable(is_transmittable) => JsValue::from(*is_transmittable),
        Seen::Delayed(messages) => page(&messages.rows, messages.next.as_deref(), super::shown::delayed),
        Seen::Next(next) => next.map_or(JsValue::NULL, JsValue::from),
    }
}

/// A list of what `convert` makes.
fn list<T>(items: &[T], convert: fn(&T) -> Value) -> JsValue {
    Value::list(items.iter().map(convert).collect()).0
}

/// `{ rows, next }`.
fn page<T>(rows: &[T], next: Option<&[f64]>, convert: fn(&T) -> Value) -> JsValue {
    let next =
        next.map_or_else(Value::null, |next| Value::list(next.iter().map(|number| Value::from(*number)).collect()));
    Value::object(vec![("rows", Value(list(rows, convert))), ("next", next)]).0
}

/// The `next` of the page before.
pub(super) fn position(token: &JsValue) -> Option<Vec<f64>> {
    token.dyn_ref::<Array>().map(|token| token.iter().filter_map(|number| number.as_f64()).collect())
}

fn conversation(info: &ConversationInfo) -> JsValue {
    let conversation = Value::object(vec![
        ("handle", Value::from(&*info.handle)),
        ("conversationId", Value::from(&*info.conversation_id)),
        ("groupId", Value::from(&*info.group_id)),
        ("isInitiator", Value::from(info.is_initiator)),
        ("service", Value::from(&*info.service)),
        ("farService", Value::from(&*info.far_service)),
        ("contract", Value::from(&*info.contract)),
    ]);
    conversation.0
}

/// Rows as columns: the package expands them to messages.
fn rows(rows: &Rows) -> Value {
    let mut batch = vec![
        ("count", value(crate::message::count(rows.count))),
        ("status", Value::from(rows.status.number())),
        ("priority", Value::from(rows.priority)),
        ("order", value(rows.order)),
        ("sequence", value(rows.sequence)),
        ("groupId", Value::from(&*rows.group_id)),
        ("handle", Value::from(&*rows.handle)),
        ("conversationId", Value::from(&*rows.conversation_id)),
        ("serviceName", Value::from(&*rows.service_name)),
        ("contract", Value::from(&*rows.contract)),
        ("key", optional(rows.key.as_deref())),
        ("types", column(&rows.types, |name| Value::from(&**name))),
        ("validations", column(&rows.validations, |letter| Value::from(*letter))),
        ("ids", rows.ids.clone()),
        ("times", column(&rows.times, |time| Value::from(*time))),
        ("headers", rows.headers.clone()),
        ("bodies", rows.bodies.clone()),
        ("packings", rows.packings.clone()),
        ("attempts", value(rows.attempts())),
        ("retryAt", rows.retry_at().map_or_else(Value::null, Value::from)),
        ("lastError", optional(rows.last_error())),
    ];
    if let Some((at, queue)) = &rows.archived {
        batch.extend([("archivedAt", Value::from(*at)), ("queue", Value::from(&**queue))]);
    }
    if let Some(failed) = &rows.failed {
        batch.push(("failed", failed_at(failed)));
    }
    if rows.is_reversed {
        batch.push(("reverse", Value::from(true)));
    }
    Value::object(batch)
}

fn failed_at(failed: &FailedAt) -> Value {
    Value::object(vec![
        ("queue", Value::from(&*failed.queue)),
        ("name", Value::from(&*failed.error.name)),
        ("message", Value::from(&*failed.error.message)),
        ("stack", Value::from(&*failed.stack)),
        ("endpoint", Value::from(&*failed.endpoint)),
        ("at", Value::from(failed.at)),
        ("attempts", value(failed.attempts)),
    ])
}

fn column<T>(column: &Column<T>, convert: impl Fn(&T) -> Value) -> Value {
    match column {
        Column::Same(same) => convert(same),
        Column::Each(each) => Value::list(each.iter().map(convert).collect()),
    }
}

fn queue(info: &QueueInfo) -> Value {
    Value::object(vec![
        ("name", Value::from(&*info.name)),
        ("isReceiveEnabled", Value::from(info.is_receive_enabled)),
        ("isEnqueueEnabled", Value::from(info.is_enqueue_enabled)),
        ("isRetentionEnabled", Value::from(info.is_retention_enabled)),
        ("isPoisonMessageHandlingEnabled", Value::from(info.is_poison_message_handling_enabled)),
        ("isActivationEnabled", Value::from(info.is_activation_enabled)),
        ("ready", value(info.ready)),
        ("retained", value(info.retained)),
        ("consecutiveRollbacks", value(info.consecutive_rollbacks)),
        ("readers", Value::from(0u32)),
    ])
}

fn endpoint(endpoint: &Endpoint) -> Value {
    Value::object(vec![
        ("conversationHandle", Value::from(&*endpoint.conversation_handle)),
        ("conversationId", Value::from(&*endpoint.conversation_id)),
        ("isInitiator", Value::from(endpoint.is_initiator)),
        ("conversationGroupId", Value::from(&*endpoint.conversation_group_id)),
        ("service", Value::from(&*endpoint.service)),
        ("farService", Value::from(&*endpoint.far_service)),
        ("farBrokerInstance", optional(endpoint.far_broker_instance.as_deref())),
        ("contract", Value::from(&*endpoint.contract)),
        ("key", optional(endpoint.key.as_deref())),
        ("state", Value::from(endpoint.state.letters())),
        ("lifetime", endpoint.lifetime.map_or_else(Value::null, Value::from)),
        ("dialogTimer", endpoint.dialog_timer.map_or_else(Value::null, Value::from)),
        ("priority", Value::from(endpoint.priority)),
        ("sendSequence", value(endpoint.send_sequence)),
        ("receiveSequence", value(endpoint.receive_sequence)),
        ("createdAt", Value::from(endpoint.created_at)),
    ])
}

fn transmission_row(row: &TransmissionRow) -> Value {
    Value::object(vec![
        ("conversationHandle", Value::from(&*row.conversation_handle)),
        ("toService", Value::from(&*row.to_service)),
        ("toBroker", optional(row.to_broker.as_deref())),
        ("fromService", Value::from(&*row.from_service)),
        ("contract", Value::from(&*row.contract)),
        ("enqueueTime", Value::from(row.enqueue_time)),
        ("messageSequenceNumber", value(row.message_sequence_number)),
        ("messageType", Value::from(&*row.message_type)),
        ("isConversationError", Value::from(row.is_conversation_error())),
        ("isEndOfDialog", Value::from(row.is_end_of_dialog())),
        ("priority", Value::from(row.priority)),
        ("attempts", value(row.attempts)),
        ("nextAttempt", row.next_attempt.map_or_else(Value::null, Value::from)),
        ("transmissionStatus", Value::from(&*row.transmission_status)),
        ("body", row.body.clone()),
        ("packing", Value::from(row.packing)),
    ])
}

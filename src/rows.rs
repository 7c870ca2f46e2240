//! Queue rows, as a reader gets them: columns of one conversation, to be expanded where they are used.

use std::rc::Rc;

use crate::body::Value;
use crate::clock::Instant;
use crate::columns::Column;
use crate::conversation::Conversation;
use crate::definitions::{Catalog, DEFAULT};
use crate::error_queue::FailedAt;
use crate::ids::Role;
use crate::lane::Place;
use crate::message::{Class, Run, Status, count, system};
use crate::recoverability::Retry;

/// Rows that follow each other in a queue: the same conversation, the same status, orders and sequence numbers that rise by one.
#[derive(Clone, Debug)]
pub struct Rows {
    /// How many.
    pub count: usize,
    /// Of all of them.
    pub status: Status,
    /// Of the endpoint, 1 to 10.
    pub priority: u32,
    /// The queuing order of the first.
    pub order: u64,
    /// The sequence number of the first.
    pub sequence: u64,
    /// The group of the endpoint.
    pub group_id: Rc<str>,
    /// The endpoint.
    pub handle: Rc<str>,
    /// Shared by both ends.
    pub conversation_id: Rc<str>,
    /// The service that they are addressed to.
    pub service_name: Rc<str>,
    /// The conversation's contract.
    pub contract: Rc<str>,
    /// Of a lane, if it has one.
    pub key: Option<Rc<str>>,
    /// 16 bytes a row.
    pub ids: Value,
    /// A list, or null: none has any.
    pub headers: Value,
    /// A list.
    pub bodies: Value,
    /// A list, or null: all 0.
    pub packings: Value,
    /// They are to be given last to first.
    pub is_reversed: bool,
    /// Of archived rows: when, and from which queue.
    pub archived: Option<(Instant, Rc<str>)>,
    /// What handlers have made of the first of them.
    pub(crate) retry: Option<Box<Retry>>,
    /// Of a message in the error queue: where and how it failed.
    pub(crate) failed: Option<Rc<FailedAt>>,
    pub(crate) types: Column<Rc<str>>,
    pub(crate) validations: Column<&'static str>,
    pub(crate) times: Column<Instant>,
}

/// What the rows of one side have in common.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    pub(crate) priority: u32,
    pub(crate) group_id: Rc<str>,
    pub(crate) handle: Rc<str>,
    pub(crate) conversation_id: Rc<str>,
    pub(crate) service: Rc<str>,
    pub(crate) far_service: Rc<str>,
    pub(crate) contract: Rc<str>,
    /// It is a lane.
    pub(crate) lane: Option<Place>,
    pub(crate) retry: Option<Box<Retry>>,
}

impl Owner {
    pub(crate) fn of(conversation: &Conversation, role: Role) -> Self {
        Self {
            priority: conversation.side(role).map_or(5, |side| side.priority),
            group_id: conversation.group(role),
            handle: conversation.handle(role),
            conversation_id: Rc::clone(&conversation.id),
            service: Rc::clone(conversation.service(role)),
            far_service: Rc::clone(conversation.service(role.other())),
            contract: Rc::clone(&conversation.contract),
            lane: conversation.lane.clone(),
            retry: conversation.side(role).and_then(|side| side.retry.clone()),
        }
    }
}

impl Rows {
    /// Rows `from` (included) to `to` (excluded) of a run.
    pub(crate) fn of(catalog: &Catalog, owner: &Owner, run: &Run, from: usize, to: usize, status: Status) -> Self {
        let types = run.columns.types.slice(from, to);
        // What `enqueue` takes the queue says.
        let taken = owner.lane.as_ref().and_then(|_| catalog.queues.get(&owner.service)).map(|queue| queue.body);
        let letter = |name: &Rc<str>| {
            if let Some(body) = taken.filter(|_| **name == *DEFAULT) {
                return body.letter();
            }
            catalog.message_types.get(name).map_or_else(|| system_validation(name), |known| known.validation.letter())
        };
        let validations = match &types {
            Column::Same(name) => Column::Same(letter(name)),
            Column::Each(names) => Column::Each(names.iter().map(letter).collect()),
        };
        let base = owner.lane.as_ref().map_or(0, |lane| lane.base);
        // A run that is used whole needs no copy of its columns.
        let whole = from == 0 && to == run.count;
        let cut = |column: &Value| if whole || column.is_null() { column.clone() } else { column.slice(from, to) };
        Self {
            count: to.saturating_sub(from),
            status,
            priority: owner.priority,
            order: run.first_order + count(from),
            // System rows have numbers of their own and show the number at which they came.
            sequence: (run.sequence + if run.class == Class::System { 0 } else { count(from) }).saturating_sub(base),
            group_id: Rc::clone(&owner.group_id),
            handle: Rc::clone(&owner.handle),
            conversation_id: Rc::clone(&owner.conversation_id),
            service_name: Rc::clone(if status == Status::RetainedSent { &owner.far_service } else { &owner.service }),
            contract: Rc::clone(&owner.contract),
            key: owner.lane.as_ref().and_then(|lane| lane.key.text()).cloned(),
            ids: if whole { run.columns.ids.clone() } else { run.columns.ids.byte_slice(from * 16, to * 16) },
            headers: cut(&run.columns.headers),
            bodies: cut(&run.columns.bodies),
            packings: cut(&run.columns.packings),
            is_reversed: false,
            archived: None,
            failed: owner.lane.as_ref().and_then(|lane| lane.failed.clone()),
            retry: owner.retry.clone().filter(|retry| retry.row == (run.class, run.first() + count(from))),
            types,
            validations,
            times: run.times.slice(from, to),
        }
    }

    /// The same with the large body of row `index` in its place.
    pub(crate) fn with_body(mut self, index: usize, body: Value) -> Self {
        self.bodies = self.bodies.with_item(index, body);
        self
    }

    /// Of the first row: attempts of handlers that have failed.
    pub fn attempts(&self) -> u64 {
        self.retry.as_ref().map_or(0, |retry| retry.attempts)
    }

    /// Of the first row: when it will be tried again.
    pub fn retry_at(&self) -> Option<Instant> {
        self.retry.as_ref().and_then(|retry| retry.until).map(|(at, _)| at)
    }

    /// Of the first row: what the last attempt failed with.
    pub fn last_error(&self) -> Option<&str> {
        self.retry.as_ref().and_then(|retry| retry.error.as_deref())
    }

    /// One message a row.
    pub fn messages(&self) -> Vec<Message> {
        let mut messages: Vec<Message> = (0..self.count).map(|index| self.message(index)).collect();
        if self.is_reversed {
            messages.reverse();
        }
        messages
    }

    fn message(&self, index: usize) -> Message {
        let id = self
            .ids
            .byte_slice(index * 16, index * 16 + 16)
            .bytes()
            .and_then(|bytes| uuid::Uuid::from_slice(&bytes).ok());
        let packing = self.packings.item(index).number().unwrap_or(0.0);
        Message {
            status: self.status,
            priority: self.priority,
            queuing_order: self.order + count(index),
            conversation_group_id: Rc::clone(&self.group_id),
            conversation_handle: Rc::clone(&self.handle),
            conversation_id: Rc::clone(&self.conversation_id),
            message_sequence_number: self.sequence + count(index),
            service_name: Rc::clone(&self.service_name),
            service_contract_name: Rc::clone(&self.contract),
            key: self.key.clone(),
            message_type_name: self.types.get(index).cloned().unwrap_or_else(|| "".into()),
            validation: self.validations.get(index).copied().unwrap_or("N"),
            message_id: crate::ids::text(id.unwrap_or_default()),
            message_enqueue_time: self.times.get(index).copied().unwrap_or_default(),
            headers: self.headers.item(index),
            body: self.bodies.item(index),
            packing,
            attempts: if index == 0 { self.attempts() } else { 0 },
            retry_at: self.retry_at().filter(|_| index == 0),
            failed_queue: self.failed.as_ref().map(|failed| Rc::clone(&failed.queue)),
            last_error: self.last_error().filter(|_| index == 0).map(Rc::from),
        }
    }
}

/// System message types are in no catalog: Error has a body of its own making, EndDialog none, and DialogTimer what the application gave.
fn system_validation(message_type: &str) -> &'static str {
    match message_type {
        system::ERROR => "J",
        system::END_DIALOG => "E",
        _ => "N",
    }
}

/// A queue row, with Service Broker's columns.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// 0 retained received, 1 ready, 2 not yet complete, 3 retained sent. A row that RECEIVE gives is 0.
    pub status: Status,
    /// Of the endpoint, 1 to 10.
    pub priority: u32,
    /// Rises in a queue.
    pub queuing_order: u64,
    /// The group of the endpoint.
    pub conversation_group_id: Rc<str>,
    /// The endpoint.
    pub conversation_handle: Rc<str>,
    /// Shared by both ends.
    pub conversation_id: Rc<str>,
    /// Per conversation and direction, from 0.
    pub message_sequence_number: u64,
    /// The service that it is addressed to.
    pub service_name: Rc<str>,
    /// The conversation's contract.
    pub service_contract_name: Rc<str>,
    /// Of a lane's message.
    pub key: Option<Rc<str>>,
    /// Its message type.
    pub message_type_name: Rc<str>,
    /// N none, E empty, J json, S schema.
    pub validation: &'static str,
    /// The same at every attempt.
    pub message_id: Rc<str>,
    /// When it was enqueued, in milliseconds since 1970.
    pub message_enqueue_time: Instant,
    /// A plain object of texts, or undefined.
    pub headers: Value,
    /// The body, as it was stored.
    pub body: Value,
    /// How the body is packed: see [`crate::body::Body`].
    pub packing: f64,
    /// Attempts of handlers that have failed.
    pub attempts: u64,
    /// When it will be tried again, while its conversation waits for that.
    pub retry_at: Option<Instant>,
    /// What the last attempt failed with.
    pub last_error: Option<Rc<str>>,
    /// Of a message in the error queue: the queue that it failed in.
    pub failed_queue: Option<Rc<str>>,
}

//! The verbs: how each is thought up, made, and told to the model. A new verb is a variant here, with an arm in each of the functions here
//! and in
//! `calls/think.rs` and `calls/apply.rs`.

use std::rc::Rc;

use pocket_broker::body::{Body, Value};
use pocket_broker::definitions::{Definitions, QueueOptions, ServiceChange, ServiceOptions, Status};
use pocket_broker::error::{Error, Result};
use pocket_broker::{
    BeginDialog, Broker, ConversationInfo, Destination, EndResult, EnqueueOptions, FailedFilter, Message,
    OutgoingMessage, ReceiveOptions, Recovered, Rows, Transaction,
};
use uuid::Uuid;

use crate::conformance::random::model::{BIN, End, Ending, PLACES, service_name};
use crate::conformance::support::shop::{dialog_of, named};
use crate::failing::{Recovering, Unbury};
use crate::lanes::Enqueue;
use crate::model::{Begin, Goal, Related};
use crate::origin::Origin;
use crate::sabotage::Sabotage;

mod apply;
mod later;
mod think;

pub(crate) use apply::Differs;
pub(crate) use later::{Later, Under};

#[derive(Clone, Debug)]
pub(crate) enum Call {
    Begin(Begin),
    /// Many messages on one conversation, or one on each of several.
    Send(Vec<End>, &'static str, Vec<String>),
    End(End, Ending, bool),
    Timer(End, &'static str, Option<f64>, String),
    Receive(usize, Wanted, Option<u32>, Option<f64>),
    GetGroup(usize),
    Move(End, Goal),
    SetState(End, String),
    GetState(End),
    Alter(usize, Option<bool>, Option<bool>),
    Poll,
    Enqueue(Enqueue),
    /// What concerns delayed messages.
    Later(Later),
    Resume,
    Unbury(Unbury),
    /// A service goes to another queue.
    MoveService(usize, usize),
    DropService(usize),
    DropBin,
    /// The queue that comes and goes is made, and a service on a queue.
    Define(Option<(usize, usize)>),
    /// A transaction is given up because its handler failed.
    Recover(Box<Recovering>),
    /// A transaction is given up because of the conversations with these handles.
    Fail(Vec<Rc<str>>),
    /// What a transaction has done.
    Commit(Vec<Done>),
}

/// A call that a transaction has made, and when.
#[derive(Clone, Debug)]
pub(crate) struct Done {
    pub(crate) call: Call,
    pub(crate) answer: Answer,
    pub(crate) at: f64,
}

#[derive(Clone, Debug)]
pub(crate) enum Wanted {
    Anything,
    /// The same, where nobody else has anything: it is the turn of the highest priority.
    Next,
    Conversation(End),
    Group(Rc<str>),
}

#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Done,
    Begun(ConversationInfo),
    Ended(EndResult),
    Received(Vec<Message>),
    State(Option<String>),
    Group(Option<Rc<str>>),
    /// Whether there was a message with the id already.
    Seen(bool),
    Recovered(Recovered),
    Count(u64),
    /// Whether a delayed message was there.
    Was(bool),
}

impl Call {
    /// Makes it, as a transaction of its own.
    pub(crate) async fn make(&self, origin: &Origin, broker: &Broker) -> Result<Answer> {
        match self {
            Self::Begin(begin) => broker.begin_dialog(begin.options(origin)).await.map(Answer::Begun),
            Self::Send(ends, kind, bodies) => {
                broker.send(origin.handles(ends), messages(origin, kind, bodies), None).await.map(|()| Answer::Done)
            }
            Self::End(end, how, archive) => {
                broker.end_conversation(&origin.handle(end), how.options(*archive)).await.map(Answer::Ended)
            }
            Self::Timer(end, name, timeout, body) => {
                let options = named(name, Some(body));
                broker.begin_conversation_timer(&origin.handle(end), *timeout, options).await.map(|()| Answer::Done)
            }
            Self::Receive(queue, wanted, top, timeout) => {
                let options = wanted.options(origin, *top, *timeout);
                broker.receive(PLACES[*queue], options, None).await.map(received)
            }
            Self::Move(end, goal) => {
                broker.move_conversation(&origin.handle(end), goal.destination(origin)).await.map(|()| Answer::Done)
            }
            Self::SetState(end, state) => {
                broker.set_group_state(&origin.handle(end), small(state)).await.map(|()| Answer::Done)
            }
            Self::GetState(end) => broker.get_group_state(&origin.handle(end)).await.map(state),
            Self::Alter(queue, retention, on) => {
                let status = on.map(|on| if on { Status::On } else { Status::Off });
                let options = QueueOptions { retention: *retention, status, ..QueueOptions::default() };
                broker.alter_queue(PLACES[*queue], options).await.map(|()| Answer::Done)
            }
            Self::Poll => broker.poll().await.map(|_| Answer::Done),
            Self::Enqueue(enqueue) => {
                let (messages, options) = (enqueue.messages(), enqueue.options());
                if origin.breaks(Sabotage::Double) {
                    let (messages, options) = (messages.clone(), options.clone());
                    broker.enqueue(PLACES[enqueue.queue], messages, options, None).await?;
                }
                let seen = broker.enqueue(PLACES[enqueue.queue], messages, options, None).await;
                seen.map(|seen| Answer::Seen(seen.is_some()))
            }
            Self::Later(later) => later.make(origin, broker).await,
            Self::Resume => broker.resume().await.map(|()| Answer::Done),
            Self::Unbury(unbury) => {
                let message_id = unbury.one.as_ref().map(|(id, _)| Rc::clone(id));
                let limit = unbury.limit.map(|limit| limit as f64);
                let filter = FailedFilter { message_id, limit, ..FailedFilter::default() };
                let count = if unbury.discard {
                    broker.discard_failed(&filter).await
                } else {
                    broker.return_to_source(&filter).await
                };
                count.map(Answer::Count)
            }
            Self::MoveService(service, queue) => {
                let change = ServiceChange { queue: Some(PLACES[*queue].into()), ..ServiceChange::default() };
                broker.alter_service(service_name(*service), change).await.map(|()| Answer::Done)
            }
            Self::DropService(service) => broker.drop_service(service_name(*service)).await.map(|()| Answer::Done),
            Self::DropBin => broker.drop_queue(PLACES[BIN]).await.map(|()| Answer::Done),
            Self::Define(service) => {
                let options = |queue: usize| ServiceOptions {
                    queue: Some(PLACES[queue].into()),
                    contracts: vec!["Ordering".into()],
                };
                let definitions = Definitions {
                    queues: vec![(PLACES[BIN].into(), origin.poison())],
                    services: service
                        .iter()
                        .map(|(service, queue)| (service_name(*service).into(), options(*queue)))
                        .collect(),
                    ..Definitions::default()
                };
                broker.define(definitions).await.map(|()| Answer::Done)
            }
            Self::GetGroup(_) | Self::Recover(_) | Self::Fail(_) | Self::Commit(_) => Err(not_here()),
        }
    }

    /// Makes it within a transaction.
    pub(crate) async fn make_in(&self, origin: &Origin, transaction: &Transaction) -> Result<Answer> {
        match self {
            Self::Begin(begin) => transaction.begin_dialog(begin.options(origin)).await.map(Answer::Begun),
            Self::Send(ends, kind, bodies) => {
                transaction.send(origin.handles(ends), messages(origin, kind, bodies)).await.map(|()| Answer::Done)
            }
            Self::End(end, how, archive) => {
                transaction.end_conversation(&origin.handle(end), how.options(*archive)).await.map(Answer::Ended)
            }
            Self::Timer(end, name, timeout, body) => {
                let options = named(name, Some(body));
                transaction
                    .begin_conversation_timer(&origin.handle(end), *timeout, options)
                    .await
                    .map(|()| Answer::Done)
            }
            Self::Receive(queue, wanted, top, timeout) => {
                let options = wanted.options(origin, *top, *timeout);
                transaction.receive(PLACES[*queue], options).await.map(received)
            }
            Self::GetGroup(queue) => {
                transaction.get_conversation_group(PLACES[*queue], Some(500.0)).await.map(Answer::Group)
            }
            Self::Move(end, goal) => transaction
                .move_conversation(&origin.handle(end), goal.destination(origin))
                .await
                .map(|()| Answer::Done),
            Self::SetState(end, state) => {
                transaction.set_group_state(&origin.handle(end), small(state)).await.map(|()| Answer::Done)
            }
            Self::GetState(end) => transaction.get_group_state(&origin.handle(end)).await.map(state),
            Self::Enqueue(enqueue) => {
                let (messages, options) = (enqueue.messages(), enqueue.options());
                transaction.enqueue(PLACES[enqueue.queue], messages, options).await.map(|()| Answer::Done)
            }
            Self::Later(later) => later.make_in(origin, transaction).await,
            _ => Err(not_here()),
        }
    }

    /// Whether it is of those that show nothing where they find nothing.
    pub(crate) fn is_nothing(&self, answer: &Answer) -> bool {
        match (self, answer) {
            (Self::Receive(..), Answer::Received(messages)) => messages.is_empty(),
            (Self::Commit(done), _) => done.iter().all(|done| done.call.is_nothing(&done.answer)),
            (Self::Poll | Self::GetGroup(_), _) => true,
            (Self::Fail(handles), _) => handles.is_empty(),
            // What it is for may be in other hands.
            (Self::Unbury(unbury), Answer::Count(0)) => !unbury.alone,
            (Self::Recover(_), answer) => matches!(answer, Answer::Done),
            _ => false,
        }
    }

    /// Whether a transaction may make it.
    pub(crate) fn is_for_transactions(&self) -> bool {
        matches!(
            self,
            Self::Begin(_)
                | Self::Send(..)
                | Self::End(..)
                | Self::Timer(..)
                | Self::Receive(..)
                | Self::GetGroup(_)
                | Self::Move(..)
                | Self::SetState(..)
                | Self::GetState(_)
                | Self::Enqueue(_)
                | Self::Later(_)
        )
    }
}

fn not_here() -> Error {
    Error::invalid_argument("call", "is not for here")
}

fn small(text: &str) -> Body {
    Body::small(Value::from(text))
}

fn state(state: Option<Body>) -> Answer {
    Answer::State(state.and_then(|state| state.value.value().text()))
}

fn received(rows: Vec<Rows>) -> Answer {
    Answer::Received(rows.iter().flat_map(Rows::messages).collect())
}

fn messages(origin: &Origin, kind: &str, bodies: &[String]) -> Vec<OutgoingMessage> {
    let message = |body: &String| {
        let id = origin.uuid();
        origin.note_id(id, body);
        message(id, kind, body)
    };
    bodies.iter().map(message).collect()
}

fn message(id: Uuid, kind: &str, body: &str) -> OutgoingMessage {
    // Every seventh body is a large one.
    let size = if body.ends_with('7') { 70_000.0 } else { 200.0 };
    let body = Body { value: Value::from(body).into(), packing: 0, size };
    OutgoingMessage { message_type: kind.into(), id, headers: None, body }
}

impl Enqueue {
    fn messages(&self) -> Vec<OutgoingMessage> {
        self.messages.iter().map(|(id, body)| message(*id, "DEFAULT", body)).collect()
    }

    fn place(&self) -> &'static str {
        PLACES[self.queue]
    }

    fn options(&self) -> EnqueueOptions {
        EnqueueOptions {
            key: self.key.map(Rc::from),
            ordered: self.ordered,
            priority: self.priority.into(),
            dedupe_id: self.dedupe.map(|(id, _)| id.into()),
            dedupe_window: self.dedupe.map_or(0.0, |(_, window)| window),
            delay: None,
        }
    }
}

impl Begin {
    /// The answer, had it been this conversation.
    pub(crate) fn begun(&self, id: &Rc<str>) -> Answer {
        Answer::Begun(ConversationInfo {
            handle: "".into(),
            conversation_id: Rc::clone(id),
            group_id: "".into(),
            is_initiator: true,
            service: service_name(self.from).into(),
            far_service: service_name(self.to).into(),
            contract: "".into(),
        })
    }

    /// The conversation whose group it goes into, if one is named.
    fn related_end(&self) -> Option<End> {
        if let Some(Related::Conversation(end)) = &self.related { Some(end.clone()) } else { None }
    }

    fn options(&self, origin: &Origin) -> BeginDialog {
        BeginDialog {
            related_conversation: self.related_end().map(|end| origin.handle(&end).to_string()),
            related_group: match &self.related {
                Some(Related::Group(group)) if !origin.breaks(Sabotage::Alone) => Some(group.to_string()),
                _ => None,
            },
            lifetime: self.lifetime,
            reuse: self.reuse.map(str::to_owned),
            ..dialog_of(service_name(self.from), service_name(self.to))
        }
    }
}

impl Goal {
    fn destination(&self, origin: &Origin) -> Destination {
        match self {
            Self::Beside(end) => Destination::Conversation(origin.handle(end)),
            Self::New(group) => Destination::Named(Rc::clone(group)),
        }
    }
}

impl Wanted {
    fn options(&self, origin: &Origin, top: Option<u32>, timeout: Option<f64>) -> ReceiveOptions {
        let mut options = ReceiveOptions { top: top.map(f64::from), timeout, ..ReceiveOptions::default() };
        match self {
            Self::Anything | Self::Next => {}
            Self::Conversation(end) => options.conversation = Some(origin.handle(end)),
            Self::Group(group) => options.group = Some(Rc::clone(group)),
        }
        options
    }
}

//! The verbs: how each is thought up, made, and told to the model. A new verb is a variant here, with an arm in each of the functions here
//! and in `calls/apply.rs`.

use std::rc::Rc;

use pocket_broker::body::{Body, Value};
use pocket_broker::definitions::{QueueOptions, Status};
use pocket_broker::error::{Error, Result};
use pocket_broker::ids::text;
use pocket_broker::{
    BeginDialog, Broker, ConversationInfo, Destination, EndResult, Message, OutgoingMessage, ReceiveOptions, Rows,
    Transaction,
};

use crate::conformance::random::model::{End, Ending, QUEUES};
use crate::conformance::support::shop::{dialog_of, named};
use crate::model::{Begin, Goal, service_name};
use crate::origin::Origin;

mod apply;

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
}

impl Call {
    /// Something that an application may do.
    pub(crate) fn think_up(origin: &Origin) -> Option<Self> {
        let mut chance = origin.chance.borrow_mut();
        let queue = chance.below(QUEUES.len());
        let end = origin.any_end(&mut chance);
        Some(match chance.below(40) {
            0..=5 => Self::Begin(Begin {
                from: chance.below(4),
                to: chance.below(5),
                related: end.filter(|_| chance.one_in(3)),
                lifetime: if chance.one_in(4) { chance.pick(&[1.0, 500.0, 20_000.0]) } else { None },
                reuse: if chance.one_in(4) { chance.pick(&["a", "b"]) } else { None },
            }),
            6..=15 => {
                let end = end?;
                let kind = if chance.one_in(2) {
                    "Note"
                } else if end.1 != chance.one_in(20) {
                    "Order"
                } else {
                    "Confirm"
                };
                let count = 1 + chance.below(3);
                let mut ends = vec![end];
                if kind == "Note" && chance.one_in(3) {
                    let other = origin.any_end(&mut chance);
                    ends.extend(other.filter(|other| *other != ends[0]));
                }
                let count = if ends.len() > 1 { ends.len() } else { count };
                Self::Send(ends, kind, (0..count).map(|_| origin.body()).collect())
            }
            16..=23 => {
                let wanted = match (chance.below(4), end) {
                    (0, Some(end)) => Wanted::Conversation(end),
                    (1, Some(end)) => Wanted::Group(origin.own_group(&end)),
                    _ => Wanted::Anything,
                };
                let top = chance.pick(&[None, Some(1), Some(2), Some(5)])?;
                Self::Receive(queue, wanted, top, chance.pick(&[None, Some(10.0), Some(4_000.0), Some(20_000.0)])?)
            }
            24 => Self::GetGroup(queue),
            25..=28 => {
                let ending = chance.pick(&[Ending::Plain, Ending::Plain, Ending::Error, Ending::Cleanup])?;
                Self::End(end?, ending, chance.one_in(3))
            }
            29..=31 => {
                let name = chance.pick(&["", "a"])?;
                let timeout = chance.pick(&[Some(0.0), Some(1.0), Some(500.0), Some(20_000.0), None])?;
                Self::Timer(end?, name, timeout, origin.body())
            }
            32..=33 => {
                let goal = match origin.any_end(&mut chance).filter(|_| !chance.one_in(4)) {
                    Some(other) => Goal::Beside(other),
                    None => Goal::New(text(origin.uuid())),
                };
                Self::Move(end?, goal)
            }
            34 => Self::SetState(end?, origin.body()),
            35 => Self::GetState(end?),
            36 => Self::Alter(queue, Some(chance.one_in(2)), None),
            37 => Self::Alter(queue, None, Some(!chance.one_in(3))),
            38 => Self::Poll,
            _ => return None,
        })
    }

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
                broker.receive(QUEUES[*queue], options, None).await.map(received)
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
                broker.alter_queue(QUEUES[*queue], options).await.map(|()| Answer::Done)
            }
            Self::Poll => broker.poll().await.map(|_| Answer::Done),
            Self::GetGroup(_) | Self::Fail(_) | Self::Commit(_) => Err(not_here()),
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
                transaction.receive(QUEUES[*queue], options).await.map(received)
            }
            Self::GetGroup(queue) => {
                transaction.get_conversation_group(QUEUES[*queue], Some(500.0)).await.map(Answer::Group)
            }
            Self::Move(end, goal) => transaction
                .move_conversation(&origin.handle(end), goal.destination(origin))
                .await
                .map(|()| Answer::Done),
            Self::SetState(end, state) => {
                transaction.set_group_state(&origin.handle(end), small(state)).await.map(|()| Answer::Done)
            }
            Self::GetState(end) => transaction.get_group_state(&origin.handle(end)).await.map(state),
            Self::Alter(..) | Self::Poll | Self::Fail(_) | Self::Commit(_) => Err(not_here()),
        }
    }

    /// Whether it is of those that show nothing where they find nothing.
    pub(crate) fn is_nothing(&self, answer: &Answer) -> bool {
        match (self, answer) {
            (Self::Receive(..), Answer::Received(messages)) => messages.is_empty(),
            (Self::Commit(done), _) => done.iter().all(|done| done.call.is_nothing(&done.answer)),
            (Self::Poll | Self::GetGroup(_), _) => true,
            (Self::Fail(handles), _) => handles.is_empty(),
            _ => false,
        }
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
        // Every seventh body is a large one.
        let size = if body.ends_with('7') { 70_000.0 } else { 200.0 };
        let body = Body { value: Value::from(&**body).into(), packing: 0, size };
        OutgoingMessage { message_type: kind.into(), id: origin.uuid(), headers: None, body }
    };
    bodies.iter().map(message).collect()
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

    fn options(&self, origin: &Origin) -> BeginDialog {
        BeginDialog {
            related_conversation: self.related.as_ref().map(|end| origin.handle(end).to_string()),
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
            Self::Anything => {}
            Self::Conversation(end) => options.conversation = Some(origin.handle(end)),
            Self::Group(group) => options.group = Some(Rc::clone(group)),
        }
        options
    }
}

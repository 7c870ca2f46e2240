//! The verbs, one file each. A verb reads like its specification: the preconditions in order, each with its error; then the effects.

mod begin_dialog;
mod end_conversation;
mod group_state;
mod move_conversation;
mod receive;
mod send;
mod take;

use std::rc::Rc;

pub(crate) use begin_dialog::Begun;
#[cfg(feature = "audit")]
pub(crate) use begin_dialog::lifetime_key;
pub use begin_dialog::{BeginDialog, ConversationInfo};
pub(crate) use end_conversation::End;
pub use end_conversation::{EndError, EndOptions, EndResult};
pub(crate) use group_state::GroupState;
pub use move_conversation::Destination;
pub(crate) use move_conversation::Move;
pub use receive::ReceiveOptions;
pub(crate) use receive::{Received, receive};
pub use send::{OutgoingMessage, Send};
pub(crate) use send::{change_state, wrong_state};
pub(crate) use take::{Take, TakenRun};

use crate::body::Body;
use crate::core::Core;
use crate::definitions::{self, Definitions, QueueOptions, ServiceChange};
use crate::error::Result;
use crate::ids::Decoded;
use crate::reads::Reads;
use crate::rows::Rows;
use crate::work::{Outcome, Work};

/// A verb with its arguments. It can be run again from the start.
#[derive(Debug)]
pub(crate) enum Verb {
    BeginDialog(Begun),
    Send(Send),
    Receive(Rc<str>, ReceiveOptions),
    /// The rows that a transaction received are taken out.
    Take(Vec<Take>),
    End(End),
    Move(Move),
    GetGroupState(Rc<str>),
    SetGroupState(Rc<str>, Body),
    Define(Definitions),
    AlterQueue(Rc<str>, QueueOptions),
    AlterService(Rc<str>, ServiceChange),
    DropService(Rc<str>),
    DropQueue(Rc<str>),
    PurgeArchive(f64),
    /// What a transaction did, all or nothing.
    All(Vec<Rc<Verb>>),
}

/// What a verb answers.
#[derive(Debug)]
pub(crate) enum Answer {
    Done,
    Conversation(ConversationInfo),
    /// Rows, and what it takes to take them out.
    Received(Vec<Rows>, Vec<Take>),
    Ended(EndResult),
    /// The move as it was understood.
    Moved(Move),
    GroupState(Option<Body>),
    Count(u64),
}

impl Verb {
    /// What can be seen without looking anything up.
    pub(crate) fn check(&self) -> Result<()> {
        match self {
            Self::Receive(_, options) => options.check(),
            Self::End(end) => end.options.check(),
            Self::Move(moved) => moved.check(),
            _ => Ok(()),
        }
    }

    /// Runs it.
    pub(crate) fn run(&self, work: &mut Work<'_>) -> Outcome<Answer> {
        match self {
            Self::All(verbs) => {
                for verb in verbs {
                    verb.run_one(work)?;
                }
                Ok(Answer::Done)
            }
            verb => verb.run_one(work),
        }
    }

    fn run_one(&self, work: &mut Work<'_>) -> Outcome<Answer> {
        match self {
            Self::BeginDialog(begun) => begun.run(work).map(Answer::Conversation),
            Self::Send(send) => send.run(work).map(|()| Answer::Done),
            Self::Receive(queue, options) => {
                let Received { rows, takes } = receive(work, queue, options)?;
                if !work.is_view() {
                    for take in &takes {
                        take.run(work)?;
                    }
                }
                Ok(Answer::Received(rows, takes))
            }
            Self::Take(takes) => {
                for take in takes {
                    take.run(work)?;
                }
                Ok(Answer::Done)
            }
            Self::End(end) => end.run(work).map(Answer::Ended),
            Self::Move(moved) => moved.run(work).map(Answer::Moved),
            Self::GetGroupState(group) => GroupState(group).get(work).map(Answer::GroupState),
            Self::SetGroupState(group, state) => GroupState(group).set(work, state).map(|()| Answer::Done),
            Self::Define(definitions) => definitions::define(work, definitions).map(|()| Answer::Done),
            Self::AlterQueue(name, options) => definitions::alter_queue(work, name, options).map(|()| Answer::Done),
            Self::AlterService(name, change) => definitions::alter_service(work, name, change).map(|()| Answer::Done),
            Self::DropService(name) => definitions::drop_service(work, name).map(|()| Answer::Done),
            Self::DropQueue(name) => definitions::drop_queue(work, name).map(|()| Answer::Done),
            Self::PurgeArchive(before) => crate::archive::purge(work, *before).map(Answer::Count),
            // A transaction holds no transaction.
            Self::All(_) => Ok(Answer::Done),
        }
    }

    /// The conversations that it names: worth reading together.
    pub(crate) fn conversations(&self) -> Vec<u64> {
        let number = |handle: &str| Decoded::parse(handle).map(|decoded| decoded.side.conversation);
        match self {
            Self::Send(send) => send.to.iter().filter_map(|handle| number(handle)).collect(),
            Self::End(end) => number(&end.handle).into_iter().collect(),
            Self::Move(Move { handle, to: Destination::Conversation(to) | Destination::Named(to) }) => {
                [handle, to].into_iter().filter_map(|handle| number(handle)).collect()
            }
            Self::Receive(_, options) => options.conversation.as_deref().and_then(number).into_iter().collect(),
            Self::Take(takes) => takes.iter().map(|take| take.side.conversation).collect(),
            Self::All(verbs) => verbs.iter().flat_map(|verb| verb.conversations()).collect(),
            _ => Vec::new(),
        }
    }

    /// Asks for what it will probably need: read together, in one phase.
    pub(crate) fn guess(&self, core: &Core, reads: &mut Reads) {
        let mut wanted = self.conversations();
        if let Self::Receive(name, _) = self
            && let Some(queue) = core.catalog().queues.get(name)
        {
            reads.want_queue(queue.number);
            wanted.extend(core.heads.guess(queue.number).map(|side| side.conversation));
        }
        for number in wanted {
            core.routes.get(number).into_iter().for_each(|queue| reads.want_queue(queue));
            reads.want_conversation(number);
        }
    }

    /// Whether the stores that messages go through are all it needs.
    pub(crate) fn is_plain(&self) -> bool {
        match self {
            Self::All(verbs) => verbs.iter().all(|verb| verb.is_plain()),
            Self::End(_) | Self::PurgeArchive(_) => false,
            Self::Define(_) | Self::AlterQueue(..) | Self::AlterService(..) => false,
            Self::DropService(_) | Self::DropQueue(_) => false,
            _ => true,
        }
    }

    /// About how many bytes it stores.
    pub(crate) fn size(&self) -> f64 {
        match self {
            Self::Send(send) => send.messages.iter().map(|message| message.body.size).sum(),
            Self::SetGroupState(_, body) => body.size,
            Self::All(verbs) => verbs.iter().map(|verb| verb.size()).sum(),
            _ => 0.0,
        }
    }
}

//! The verbs, one file each. A verb reads like its specification: the preconditions in order, each with its error; then the effects.

mod begin_dialog;
mod end_conversation;
mod group_state;
mod poll;
mod receive;
mod send;
mod take;
mod timer;

use std::rc::Rc;

pub(crate) use begin_dialog::Begun;
pub use begin_dialog::{BeginDialog, ConversationInfo};
pub(crate) use end_conversation::End;
pub use end_conversation::{EndError, EndOptions, EndResult};
pub(crate) use group_state::GroupState;
pub(crate) use poll::{Poll, Polled};
pub use receive::ReceiveOptions;
pub(crate) use receive::{Received, receive};
pub use send::{OutgoingMessage, Send};
pub(crate) use send::{change_state, wrong_state};
pub(crate) use take::{Take, TakenRun};
pub(crate) use timer::BeginTimer;
pub use timer::TimerOptions;

use crate::body::Body;
use crate::core::Core;
use crate::definitions::{self, Definitions, QueueOptions};
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
    BeginTimer(BeginTimer),
    End(End),
    GetGroupState(Rc<str>),
    SetGroupState(Rc<str>, Body),
    Define(Definitions),
    AlterQueue(Rc<str>, QueueOptions),
    PurgeArchive(f64),
    /// What is due is done.
    Poll(Poll),
    /// What a transaction did, all or nothing.
    All(Vec<Rc<Verb>>),
}

/// What a verb answers.
#[derive(Debug)]
pub(crate) enum Answer {
    Done,
    Conversation(ConversationInfo),
    /// One that was there: nothing has changed.
    Reused(ConversationInfo),
    /// Rows, and what it takes to take them out.
    Received(Vec<Rows>, Vec<Take>),
    Ended(EndResult),
    GroupState(Option<Body>),
    Count(u64),
    Polled(Polled),
}

impl Verb {
    /// What can be seen without looking anything up.
    pub(crate) fn check(&self) -> Result<()> {
        match self {
            Self::Receive(_, options) => options.check(),
            Self::BeginTimer(timer) => timer.check(),
            Self::End(end) => end.options.check(),
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
            Self::BeginDialog(begun) => begun.run(work),
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
            Self::BeginTimer(timer) => timer.run(work).map(|()| Answer::Done),
            Self::End(end) => end.run(work).map(Answer::Ended),
            Self::GetGroupState(group) => GroupState(group).get(work).map(Answer::GroupState),
            Self::SetGroupState(group, state) => GroupState(group).set(work, state).map(|()| Answer::Done),
            Self::Define(definitions) => definitions::define(work, definitions).map(|()| Answer::Done),
            Self::AlterQueue(name, options) => definitions::alter_queue(work, name, options).map(|()| Answer::Done),
            Self::PurgeArchive(before) => crate::archive::purge(work, *before).map(Answer::Count),
            Self::Poll(poll) => poll.run(work).map(Answer::Polled),
            // A transaction holds no transaction.
            Self::All(_) => Ok(Answer::Done),
        }
    }

    /// The conversations that it names: worth reading together.
    pub(crate) fn conversations(&self) -> Vec<u64> {
        let number = |handle: &str| Decoded::parse(handle).map(|decoded| decoded.side.conversation);
        match self {
            Self::Send(send) => send.to.iter().filter_map(|handle| number(handle)).collect(),
            Self::BeginTimer(timer) => number(timer.handle()).into_iter().collect(),
            Self::End(end) => number(&end.handle).into_iter().collect(),
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
            Self::End(_) | Self::Define(_) | Self::AlterQueue(..) | Self::PurgeArchive(_) => false,
            _ => true,
        }
    }

    /// About how many bytes it stores.
    pub(crate) fn size(&self) -> f64 {
        match self {
            Self::Send(send) => send.messages.iter().map(|message| message.body.size).sum(),
            Self::BeginTimer(timer) => timer.size(),
            Self::SetGroupState(_, body) => body.size,
            Self::All(verbs) => verbs.iter().map(|verb| verb.size()).sum(),
            _ => 0.0,
        }
    }
}

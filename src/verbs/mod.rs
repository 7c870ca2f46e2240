//! The verbs, one file each. A verb reads like its specification: the preconditions in order, each with its error; then the effects.

mod begin_dialog;
mod deliver;
mod dropped;
mod end_conversation;
mod end_lane;
mod enqueue;
mod get_conversation_group;
mod group_state;
mod move_conversation;
mod poll;
mod receive;
mod send;
mod take;
mod timer;

use std::rc::Rc;

use uuid::Uuid;

pub(crate) use begin_dialog::Begun;
pub use begin_dialog::{BeginDialog, ConversationInfo};
pub(crate) use deliver::drop_outgoing;
pub(crate) use deliver::{deliver_later, is_local};
pub(crate) use dropped::{HAS_ENDED, drop_rows, drop_stored, shared_columns};
pub(crate) use end_conversation::{End, append_last_word};
pub use end_conversation::{EndError, EndOptions, EndResult};
pub(crate) use end_lane::end_lane;
pub use enqueue::{DEDUPE_WINDOW, EnqueueOptions};
pub(crate) use enqueue::{Enqueue, Enqueued};
pub(crate) use get_conversation_group::get_conversation_group;
pub(crate) use group_state::GroupState;
pub use move_conversation::Destination;
pub(crate) use move_conversation::Move;
pub(crate) use poll::{Poll, Polled, Which};
pub use receive::ReceiveOptions;
pub(crate) use receive::{Received, check_timeout, receivable, receive};
pub use send::{OutgoingMessage, Send};
pub(crate) use send::{change_state, send, wrong_state};
pub(crate) use take::{Take, TakenRun};
pub(crate) use timer::BeginTimer;
pub use timer::TimerOptions;

use crate::body::Body;
use crate::core::Core;
use crate::definitions::{self, Definitions, QueueOptions, ServiceChange};
use crate::delayed::{Came, Cancel, Reschedule, Step};
use crate::error::Result;
use crate::error_queue::{Unburied, Unbury};
use crate::ids::{Decoded, SideId};
use crate::mend::{Mended, Place, mend};
use crate::poison::{self, Attempt};
use crate::reads::Reads;
use crate::recoverability::{self, Finally, Recover, Recovered};
use crate::rows::Rows;
use crate::stop::Outcome;
use crate::store::StoreName;
use crate::transaction::Loss;
use crate::transmission::{self, Deliver, Delivery};
use crate::waiting::{MaybeNothing, Wait};
use crate::work::Work;

/// A verb with its arguments. It can be run again from the start.
#[derive(Debug)]
pub(crate) enum Verb {
    BeginDialog(Begun),
    Send(Send),
    Enqueue(Enqueue),
    Receive(Rc<str>, ReceiveOptions),
    /// The next group of a queue, and how long to wait for one.
    GetConversationGroup(Rc<str>, Option<f64>),
    /// The rows that a transaction received are taken out.
    Take(Vec<Take>),
    BeginTimer(BeginTimer),
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
    /// A delayed message is not to be delivered, or at another time.
    Cancel(Cancel),
    Reschedule(Reschedule),
    /// What is due is done.
    Poll(Poll),
    /// What becomes of messages that a store of the application's own has, or is to have.
    Custom(Step),
    /// What becomes of messages for far brokers.
    Transmit(transmission::Step),
    /// What became of the attempts of a transaction is counted.
    Attempts(Vec<SideId>, Attempt),
    /// A handler has failed.
    Recover(Recover),
    /// Conversations that wait after a failure wait no longer.
    Resume,
    /// Messages leave the error queue.
    Unbury(Unbury),
    /// An envelope that came from another broker.
    Deliver(Deliver),
    /// A record that can't be read is set aside.
    Mend(Place),
    /// What a transaction did, all or nothing; and how often the page had slept when its commit was asked for.
    All(Vec<Rc<Verb>>, u64),
}

/// What a verb answers.
#[derive(Debug)]
pub(crate) enum Answer {
    Done,
    /// The id of the message that was there already.
    Seen(Uuid),
    /// The ids of messages that are delayed.
    Delayed(Vec<Uuid>),
    /// Whether a delayed message was there.
    Was(bool),
    Conversation(ConversationInfo),
    /// One that was there: nothing has changed.
    Reused(ConversationInfo),
    /// Rows, and what it takes to take them out.
    Received(Vec<Rows>, Vec<Take>),
    Ended(EndResult),
    /// The move as it was understood.
    Moved(Move),
    GroupState(Option<Body>),
    Group(Option<Rc<str>>),
    Count(u64),
    Polled(Polled),
    Custom(Came),
    Transmission(transmission::Came),
    Recovered(Recovered),
    Unburied(Unburied),
    Delivered(Delivery),
    Mended(Mended),
}

impl MaybeNothing for Answer {
    fn is_nothing(&self) -> bool {
        match self {
            Self::Received(rows, _) => rows.is_empty(),
            Self::Group(group) => group.is_none(),
            _ => false,
        }
    }
}

impl Verb {
    /// What can be seen without looking anything up.
    pub(crate) fn check(&self) -> Result<()> {
        match self {
            Self::Receive(_, options) => options.check(),
            Self::Send(send) => send.delay.map_or(Ok(()), |delay| delay.check(0.0)),
            Self::Enqueue(enqueue) => enqueue.check(),
            Self::Cancel(cancel) => cancel.check(),
            Self::Reschedule(reschedule) => reschedule.check(),
            Self::GetConversationGroup(_, timeout) => check_timeout(*timeout),
            Self::BeginTimer(timer) => timer.check(),
            Self::End(end) => end.options.check(),
            Self::Move(moved) => moved.check(),
            _ => Ok(()),
        }
    }

    /// Runs it.
    pub(crate) fn run(&self, work: &mut Work<'_>) -> Outcome<Answer> {
        match self {
            Self::All(verbs, closings) => {
                if work.core.gate.closings() != *closings {
                    // Its groups were let go of before it could begin, and others may have had them since.
                    return Err(work.at_commit(Loss::Suspended.error()).into());
                }
                work.check_leases()?;
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
            Self::Send(send) => send.run(work).map(|ids| ids.map_or(Answer::Done, Answer::Delayed)),
            Self::Enqueue(enqueue) => enqueue.run(work).map(|enqueued| match enqueued {
                Enqueued::Now => Answer::Done,
                Enqueued::Later(ids) => Answer::Delayed(ids),
                Enqueued::Before(id) => Answer::Seen(id),
            }),
            Self::Cancel(cancel) => cancel.run(work).map(Answer::Was),
            Self::Reschedule(reschedule) => reschedule.run(work).map(Answer::Was),
            Self::Receive(queue, options) => {
                let Received { rows, takes } = receive(work, queue, options)?;
                if !work.is_view() {
                    for take in &takes {
                        take.run(work)?;
                    }
                }
                Ok(Answer::Received(rows, takes))
            }
            Self::GetConversationGroup(queue, _) => get_conversation_group(work, queue).map(Answer::Group),
            Self::Take(takes) => {
                for take in takes {
                    take.run(work)?;
                }
                Ok(Answer::Done)
            }
            Self::BeginTimer(timer) => timer.run(work).map(|()| Answer::Done),
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
            Self::Poll(poll) => poll.run(work).map(Answer::Polled),
            Self::Custom(step) => step.run(work).map(Answer::Custom),
            Self::Transmit(step) => step.run(work).map(Answer::Transmission),
            Self::Attempts(sides, attempt) => {
                for side in sides {
                    poison::count(work, *side, *attempt)?;
                }
                Ok(Answer::Done)
            }
            Self::Recover(recover) => recover.run(work).map(Answer::Recovered),
            Self::Resume => recoverability::resume_all(work).map(|()| Answer::Done),
            Self::Unbury(unbury) => unbury.run(work).map(Answer::Unburied),
            Self::Deliver(deliver) => deliver.run(work).map(Answer::Delivered),
            Self::Mend(place) => mend(work, place).map(Answer::Mended),
            // A transaction holds no transaction.
            Self::All(..) => Ok(Answer::Done),
        }
    }

    /// Asks for what it will probably need: read together, in one phase.
    pub(crate) fn guess(&self, core: &Core, reads: &mut Reads) {
        let named = |handle: &str| Decoded::parse(handle).map(|decoded| decoded.side);
        match self {
            Self::Send(send) => {
                for side in send.to.iter().filter_map(|handle| named(handle)) {
                    reads.want_conversation(side.conversation);
                    let (own, far) = (core.routes.get(side), core.routes.get(side.far()));
                    // Its own queue counts what is kept, or what goes elsewhere.
                    let retains = |queue: &u32| core.catalog().queue_by_number(*queue).is_some_and(|own| own.retention);
                    let own = own.filter(|queue| far.is_none() || retains(queue));
                    own.into_iter().chain(far).for_each(|queue| reads.want_queue(queue));
                }
            }
            Self::Enqueue(enqueue) => enqueue.guess(core, reads),
            Self::Move(Move { handle, to: Destination::Conversation(to) | Destination::Named(to) }) => {
                for side in [handle, to].into_iter().filter_map(|handle| named(handle)) {
                    reads.want_conversation(side.conversation);
                    core.routes.get(side).into_iter().for_each(|queue| reads.want_queue(queue));
                }
            }
            Self::BeginTimer(timer) => {
                named(timer.handle()).into_iter().for_each(|side| reads.want_conversation(side.conversation));
            }
            Self::End(end) => {
                if let Some(side) = named(&end.handle) {
                    reads.want_conversation(side.conversation);
                    let queues = [side, side.far()].map(|side| core.routes.get(side));
                    queues.into_iter().flatten().for_each(|queue| reads.want_queue(queue));
                }
            }
            Self::Receive(name, options) => {
                let queue = core.catalog().queues.get(name).map(|queue| queue.number);
                let side = match &options.conversation {
                    Some(handle) => named(handle),
                    None => queue.and_then(|queue| core.heads.guess(queue)).map(|turn| turn.side),
                };
                let own = side.and_then(|side| core.routes.get(side));
                queue.or(own).into_iter().for_each(|queue| reads.want_queue(queue));
                side.into_iter().for_each(|side| reads.want_conversation(side.conversation));
            }
            Self::Take(takes) => takes.iter().for_each(|take| guess_side(core, reads, take.side)),
            Self::Attempts(sides, _) => sides.iter().for_each(|side| guess_side(core, reads, *side)),
            Self::Deliver(deliver) => deliver.guess(&core.catalog(), reads),
            Self::All(verbs, _) => verbs.iter().for_each(|verb| verb.guess(core, reads)),
            _ => {}
        }
    }

    /// The groups that it will probably lock, or find held.
    pub(crate) fn guess_groups(&self, core: &Core) -> Vec<Rc<str>> {
        let own = |handle: &str| Decoded::parse(handle).map(|decoded| Decoded { is_group: true, ..decoded }.text());
        let one = match self {
            Self::Receive(queue, options) => match (&options.conversation, &options.group) {
                (Some(handle), _) => own(handle),
                (None, Some(group)) => Some(Rc::clone(group)),
                (None, None) => {
                    let queue = core.catalog().queues.get(queue).map(|queue| queue.number);
                    return queue.map(|queue| core.heads.guess_groups(queue)).unwrap_or_default();
                }
            },
            Self::End(end) => own(&end.handle),
            Self::BeginTimer(timer) => own(timer.handle()),
            // The other one is asked for when it is known: a handle does not say which group its conversation is in now.
            Self::Move(moved) => own(&moved.handle),
            Self::GetGroupState(group) | Self::SetGroupState(group, _) => own(group),
            _ => None,
        };
        one.into_iter().collect()
    }

    /// How long it waits for something to come, if it is one that may.
    pub(crate) fn wait(&self) -> Option<Wait> {
        let (queue, timeout) = match self {
            Self::Receive(queue, options) => (queue, options.timeout),
            Self::GetConversationGroup(queue, timeout) => (queue, *timeout),
            _ => return None,
        };
        Some(Wait { queue: Rc::clone(queue), timeout: timeout.unwrap_or(0.0) })
    }

    /// Whether it wants one certain group.
    pub(crate) fn names_a_group(&self) -> bool {
        matches!(self, Self::Receive(_, options) if options.conversation.is_some() || options.group.is_some())
    }

    /// Whether the stores that messages go through are all it needs.
    pub(crate) fn is_plain(&self) -> bool {
        match self {
            Self::All(verbs, _) => verbs.iter().all(|verb| verb.is_plain()),
            Self::End(_) | Self::PurgeArchive(_) => false,
            // These concern the delayed store.
            Self::Poll(_) | Self::Custom(_) | Self::Cancel(_) | Self::Reschedule(_) => false,
            // What names a delayed message is looked for there.
            Self::Mend((store, _)) => !matches!(store, StoreName::Delayed | StoreName::Members),
            Self::Send(send) => send.delay.is_none(),
            Self::Enqueue(enqueue) => enqueue.options.delay.is_none(),
            Self::Define(_) | Self::AlterQueue(..) | Self::AlterService(..) => false,
            Self::DropService(_) | Self::DropQueue(_) => false,
            Self::Attempts(_, attempt) => *attempt == Attempt::Withdrawn,
            Self::Recover(recover) => recover.policy.finally != Finally::Rollback,
            _ => true,
        }
    }

    /// About how many bytes it stores.
    pub(crate) fn size(&self) -> f64 {
        match self {
            Self::Send(Send { messages, .. }) | Self::Enqueue(Enqueue { messages, .. }) => {
                messages.iter().map(|message| message.body.size).sum()
            }
            Self::BeginTimer(timer) => timer.size(),
            Self::Custom(step) => step.size(),
            Self::Transmit(step) => step.size(),
            Self::Deliver(deliver) => deliver.size(),
            Self::SetGroupState(_, body) => body.size,
            Self::All(verbs, _) => verbs.iter().map(|verb| verb.size()).sum(),
            _ => 0.0,
        }
    }
}

fn guess_side(core: &Core, reads: &mut Reads, side: SideId) {
    reads.want_conversation(side.conversation);
    core.routes.get(side).into_iter().for_each(|queue| reads.want_queue(queue));
}

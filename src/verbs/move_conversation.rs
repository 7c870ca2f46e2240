//! MOVE CONVERSATION.

use std::rc::Rc;

use super::wrong_state;
use crate::conversation::{Conversation, State};
use crate::error::{Error, ErrorCode, Result};
use crate::ids::{Role, is_id};
use crate::membership;
use crate::stop::Outcome;
use crate::work::Work;

/// Where a conversation is moved to.
#[derive(Clone, Debug)]
pub enum Destination {
    /// The group of the conversation with this handle.
    Conversation(Rc<str>),
    /// A text that is looked up as a handle first, then as the id of a group. A group that nobody knows is made.
    Named(Rc<str>),
}

/// MOVE of the endpoint with a handle.
#[derive(Clone, Debug)]
pub(crate) struct Move {
    pub(crate) handle: Rc<str>,
    pub(crate) to: Destination,
}

/// A group, and some conversation in it; `None`: there is no such group yet.
type Found = (Rc<str>, Option<(Box<Conversation>, Role)>);

impl Move {
    /// What can be seen without looking anything up.
    pub(crate) fn check(&self) -> Result<()> {
        match &self.to {
            Destination::Named(name) if !is_id(name) => {
                Err(Error::invalid_argument("to", "is neither a handle nor a group id: both are UUIDs"))
            }
            _ => Ok(()),
        }
    }

    /// Puts the endpoint into the group: what it has unread is received there from now on. The far side does not hear of it. Gives the move
    /// as it was understood: what was found as a conversation is to be one at the commit, too.
    pub(crate) fn run(&self, work: &mut Work<'_>) -> Outcome<Self> {
        let (conversation, role) = work.endpoint(&self.handle)?;
        let Some(side) = conversation.side(role) else { return Err(work.not_found(&self.handle).into()) };
        let (understood, (to, member)) = self.find(work)?;
        match &member {
            Some((other, other_role)) => check_service(work, side.service, &to, other, *other_role)?,
            None => membership::check_new(work, &to)?,
        }
        let from = conversation.group(role);
        work.lock_all(&[&from, &to])?;
        if !side.state.may_move() {
            let advice = "An endpoint can be moved as long as its side has not ended it.";
            return Err(work.at_commit(wrong_state("MOVE", 8438, &conversation, role, side.state, advice)).into());
        }
        if from == to {
            return Ok(understood);
        }

        // The queue is changed even where no counter is: its turns get another group.
        work.count(side.service, |_| {})?;
        membership::leave(work, &conversation, role)?;
        if let Some((other, other_role)) = member {
            membership::open(work, &to, other, other_role)?;
        }
        // Read anew: both ends of it may be concerned.
        if let Some(mut conversation) = work.conversation(conversation.number)? {
            membership::join(work, &to, conversation.id_of(role));
            if let Some(side) = conversation.side_mut(role) {
                (side.group, side.has_group_state) = (Some(to), false);
            }
            work.save(conversation);
        }
        Ok(understood)
    }

    fn find(&self, work: &mut Work<'_>) -> Outcome<(Self, Found)> {
        let (name, found) = match &self.to {
            Destination::Conversation(handle) => (handle, Some(work.endpoint(handle)?)),
            Destination::Named(name) => (name, work.find(name)?),
        };
        match found {
            Some((conversation, role)) => {
                let understood = Self { to: Destination::Conversation(Rc::clone(name)), ..self.clone() };
                Ok((understood, (conversation.group(role), Some((conversation, role)))))
            }
            None => {
                let group: Rc<str> = name.to_ascii_lowercase().into();
                let member = membership::any_member(work, &group)?;
                Ok((self.clone(), (group, member)))
            }
        }
    }
}

/// A group belongs to one service, and so to one queue.
fn check_service(work: &mut Work<'_>, service: u32, group: &Rc<str>, member: &Conversation, role: Role) -> Outcome<()> {
    let Some(other) = member.side(role).map(|side| side.service).filter(|other| *other != service) else {
        return Ok(());
    };
    let (own_queue, other_queue) = (work.queue_of(service)?, work.queue_of(other)?);
    let error = Error::new(
        ErrorCode::GroupInvalid,
        format!(
            "The group {group} belongs to the service \"{}\" on the queue \"{}\", and the conversation to another one, on \"{}\". A group has conversations of one service only.",
            member.service(role),
            other_queue.name,
            own_queue.name
        ),
    );
    let number = if own_queue.number == other_queue.number { 9610 } else { 8439 };
    Err(work.at_commit(error.numbered(number).with("group", &**group)).into())
}

impl State {
    /// Whether MOVE is allowed.
    fn may_move(self) -> bool {
        matches!(self, Self::StartedOutbound | Self::Conversing | Self::DisconnectedInbound | Self::Error)
    }
}

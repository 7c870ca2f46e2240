//! The state of a conversation group: what the application knows about it, such as where a saga stands.

use std::rc::Rc;

use crate::body::Body;
use crate::conversation::Conversation;
use crate::error::{Error, ErrorCode};
use crate::ids::Role;
use crate::membership;
use crate::stop::Outcome;
use crate::work::Work;

/// A group, by its id or by the handle of a conversation in it.
pub(crate) struct GroupState<'a>(pub(crate) &'a Rc<str>);

impl GroupState<'_> {
    /// What was set last; `None` when nothing ever was.
    pub(crate) fn get(&self, work: &mut Work<'_>) -> Outcome<Option<Body>> {
        let (group, ..) = self.locked(work)?;
        membership::state(work, &group)
    }

    /// Sets it. It goes with the group's last conversation.
    pub(crate) fn set(&self, work: &mut Work<'_>, state: &Body) -> Outcome<()> {
        let (group, mut conversation, role) = self.locked(work)?;
        if let Some(side) =
            conversation.side_mut(role).as_mut().filter(|side| side.group.is_none() && !side.has_group_state)
        {
            side.has_group_state = true;
            work.save(conversation);
        }
        membership::set_state(work, &group, state);
        Ok(())
    }

    fn locked(&self, work: &mut Work<'_>) -> Outcome<(Rc<str>, Box<Conversation>, Role)> {
        let member = match work.find(self.0)? {
            Some(member) => Some(member),
            None => membership::any_member(work, &self.0.to_ascii_lowercase())?,
        };
        let Some((conversation, role)) = member else {
            let shown: String = self.0.chars().take(64).collect();
            let error = Error::new(
                ErrorCode::GroupNotFound,
                format!(
                    "No conversation here is in the group \"{shown}\": a group is gone with its last conversation."
                ),
            );
            return Err(work.at_commit(error.with("group", shown.as_str())).into());
        };
        let group = conversation.group(role);
        work.lock(&group)?;
        Ok((group, conversation, role))
    }
}

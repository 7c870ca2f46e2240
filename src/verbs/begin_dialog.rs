//! BEGIN DIALOG CONVERSATION.

use std::rc::Rc;

use serde::Deserialize;

use super::Answer;
use crate::conversation::{Conversation, Side, State};
use crate::definitions::{DEFAULT, MAX_NAME, check_name};
use crate::due::{self, Due};
use crate::error::{Error, ErrorCode, Result};
use crate::ids::{Bits, Decoded, Role, SideId, is_id};
use crate::membership;
use crate::reuse::Reuse;
use crate::stop::Outcome;
use crate::work::{Number, Purpose, Work};

/// The longest lifetime, in milliseconds: 2^31 − 1 seconds.
const MAX_LIFETIME: f64 = 2_147_483_647_000.0;

/// What BEGIN DIALOG takes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct BeginDialog {
    /// `FROM SERVICE`: a service here.
    pub from: String,
    /// `TO SERVICE`: a service here or elsewhere. It is not looked for yet.
    pub to: String,
    /// `ON CONTRACT`. Default "DEFAULT".
    pub contract: Option<String>,
    /// A broker's instance id, or "current" for this one. Default: as routed.
    pub to_broker: Option<String>,
    /// `RELATED_CONVERSATION`: the handle of a conversation whose group this one joins.
    pub related_conversation: Option<String>,
    /// `RELATED_CONVERSATION_GROUP`: the id of a group, made if there is none.
    pub related_group: Option<String>,
    /// `LIFETIME`, in milliseconds. Default: no limit.
    pub lifetime: Option<f64>,
    /// Gives the open conversation that was begun with the same services, contract and `reuse`, if there is one; the other options are for the one
    /// that is begun if there is none.
    pub reuse: Option<String>,
}

/// A conversation as it was begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConversationInfo {
    /// Names this end.
    pub handle: Rc<str>,
    /// Shared by both ends.
    pub conversation_id: Rc<str>,
    /// The group of this end.
    pub group_id: Rc<str>,
    /// This end began it.
    pub is_initiator: bool,
    /// The service at this end.
    pub service: Rc<str>,
    /// The service at the other end.
    pub far_service: Rc<str>,
    /// Its contract.
    pub contract: Rc<str>,
}

impl ConversationInfo {
    pub(crate) fn of(conversation: &Conversation, role: Role) -> Self {
        Self {
            handle: conversation.handle(role),
            conversation_id: Rc::clone(&conversation.id),
            group_id: conversation.group(role),
            is_initiator: role == Role::Initiator,
            service: Rc::clone(conversation.service(role)),
            far_service: Rc::clone(conversation.service(role.other())),
            contract: Rc::clone(&conversation.contract),
        }
    }
}

/// BEGIN DIALOG with the numbers that the new conversation gets, so that it can be run again.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) options: BeginDialog,
    pub(crate) number: u64,
    pub(crate) bits: Bits,
    pub(crate) id: Rc<str>,
}

impl BeginDialog {
    /// What can be seen without looking anything up.
    pub(crate) fn check(&self) -> Result<()> {
        check_name("service", &self.from)?;
        check_name("service", &self.to)?;
        check_name("contract", self.contract())?;
        if self.related_conversation.is_some() && self.related_group.is_some() {
            return Err(Error::invalid_argument(
                "relatedGroup",
                "can't be given together with `relatedConversation`: one of the two names the group",
            ));
        }
        if self.related_group.as_deref().is_some_and(|group| !is_id(group)) {
            return Err(Error::invalid_argument("relatedGroup", "is not a group id: group ids are UUIDs"));
        }
        if self.to_broker.as_deref().is_some_and(|broker| broker != "current" && !is_id(broker)) {
            return Err(Error::invalid_argument(
                "toBroker",
                "is neither \"current\" nor a broker's instance id, which is a UUID",
            ));
        }
        if self
            .reuse
            .as_deref()
            .is_some_and(|reuse| !(1..=MAX_NAME).contains(&reuse.chars().take(MAX_NAME + 1).count()))
        {
            return Err(Error::invalid_argument("reuse", "is empty or longer than 128 characters"));
        }
        if self.lifetime.is_some_and(|lifetime| !(1.0..=MAX_LIFETIME).contains(&lifetime)) {
            let error = Error::new(
                ErrorCode::InvalidLifetime,
                "`lifetime` is out of range. Give milliseconds from 1 to 2 147 483 647 000 (68 years), or leave it out for no limit.",
            );
            return Err(error.with("min", 1.0).with("max", MAX_LIFETIME));
        }
        Ok(())
    }

    fn reused(&self) -> Option<Reuse<'_>> {
        let reuse = self.reuse.as_deref()?;
        Some(Reuse { from: &self.from, to: &self.to, contract: self.contract(), reuse })
    }

    fn contract(&self) -> &str {
        self.contract.as_deref().unwrap_or(DEFAULT)
    }
}

/// Whether the initiator may go on with it.
fn is_open(conversation: &Conversation) -> bool {
    conversation.side(Role::Initiator).is_some_and(|side| side.state.may_send())
}

impl Begun {
    /// Makes an initiator endpoint in state SO. Nobody is contacted: the target is not looked for before the first SEND.
    pub(crate) fn run(&self, work: &mut Work<'_>) -> Outcome<Answer> {
        let options = &self.options;
        let from = work.look_up(|catalog| catalog.service(&options.from))?;
        work.look_up(|catalog| catalog.contract(options.contract()))?;
        let before = match options.reused() {
            Some(reuse) => reuse.find(work)?,
            None => None,
        };
        if let Some(open) = before.as_ref().filter(|before| is_open(before)) {
            return self.reuse(work, open);
        }
        let group = self.group(work, from.number)?;

        let lifetime = match options.lifetime {
            Some(lifetime) => Some((work.now + lifetime, Some(work.claim(Number::Stamp, 1)?))),
            None => None,
        };
        let priority = work.catalog.priority(options.contract(), &options.from, &options.to);
        let conversation = Conversation {
            number: self.number,
            bits: self.bits,
            id: Rc::clone(&self.id),
            contract: options.contract().into(),
            created_at: work.now,
            lifetime,
            initiator_service: options.from.as_str().into(),
            target_service: options.to.as_str().into(),
            to_broker: options.to_broker.as_deref().map(|broker| match broker.to_ascii_lowercase() {
                // However it is said: this one.
                own if *own == *work.core.instance_id => "current".into(),
                other => other.into(),
            }),
            far_broker: None,
            local: None,
            initiator: Some(Side::new(from.number, State::StartedOutbound, priority, group.clone())),
            target: None,
            reuse: options.reuse.as_deref().map(Rc::from),
            lane: None,
            closes: None,
        };
        work.move_state(&conversation, Role::Initiator, from.number, None, Some(State::StartedOutbound))?;
        if let Some(group) = &group {
            membership::join(work, group, conversation.id_of(Role::Initiator));
        }
        if let Some(due) = Due::lifetime(&conversation) {
            work.put_due(&due, due::lifetime_record(self.number));
        }
        if let Some(reuse) = options.reused() {
            // Read anew: the one before may be the one whose group this one has joined.
            let before = before.map(|before| work.conversation(before.number)).transpose()?.flatten();
            if let Some(mut before) = before {
                before.reuse = None;
                work.save(before);
            }
            reuse.name(work, self.number);
        }
        let info = ConversationInfo::of(&conversation, Role::Initiator);
        work.save(Box::new(conversation));
        Ok(Answer::Conversation(info))
    }

    /// Gives the one that is open already.
    fn reuse(&self, work: &Work<'_>, open: &Conversation) -> Outcome<Answer> {
        if let Purpose::CommitOf(_) = work.purpose {
            let error = Error::new(
                ErrorCode::Conflict,
                format!(
                    "A dialog with `reuse` \"{}\" was begun elsewhere before the transaction committed. It was rolled back; run it again and it gets that one.",
                    self.options.reuse.as_deref().unwrap_or_default()
                ),
            );
            return Err(work.at_commit(error.with("handle", &*open.handle(Role::Initiator))).into());
        }
        Ok(Answer::Reused(ConversationInfo::of(open, Role::Initiator)))
    }

    /// The explicit group that the conversation goes into, if any.
    fn group(&self, work: &mut Work<'_>, service: u32) -> Outcome<Option<Rc<str>>> {
        let group: Rc<str> = if let Some(related) = &self.options.related_conversation {
            let (conversation, role) = work.endpoint(related)?;
            conversation.group(role)
        } else if let Some(group) = &self.options.related_group {
            group.to_ascii_lowercase().into()
        } else {
            return self.own_group(work, service);
        };
        // The side whose own group it is, or any member of a group that sides were put into.
        match membership::any_member(work, &group)? {
            Some(member) => self.join(work, &group, member, service)?,
            None => membership::check_new(work, &group)?,
        }
        self.target_group(work)?;
        Ok(Some(group))
    }

    /// Its own group is explicit if it is there already: whoever was told of it within the transaction may have begun another dialog in it before
    /// the commit.
    fn own_group(&self, work: &mut Work<'_>, service: u32) -> Outcome<Option<Rc<str>>> {
        if !matches!(work.purpose, Purpose::CommitOf(_)) {
            return Ok(None);
        }
        let group = self.group_of(Role::Initiator);
        let read = membership::read_ahead(work, &group);
        self.target_group(work)?;
        read?;
        let Some(member) = membership::any_member(work, &group)? else { return Ok(None) };
        self.join(work, &group, member, service)?;
        Ok(Some(group))
    }

    /// Refuses when somebody has made a group of the id that is kept for the target's.
    fn target_group(&self, work: &mut Work<'_>) -> Outcome<()> {
        if !matches!(work.purpose, Purpose::CommitOf(_)) {
            return Ok(());
        }
        let group = self.group_of(Role::Target);
        match membership::any_member(work, &group)? {
            Some(_) => Err(membership::is_kept(work, &group).into()),
            None => Ok(()),
        }
    }

    fn group_of(&self, role: Role) -> Rc<str> {
        Decoded { side: SideId { conversation: self.number, role }, is_group: true, bits: self.bits }.text()
    }

    /// Puts the conversation beside a member of a group.
    fn join(
        &self,
        work: &mut Work<'_>,
        group: &Rc<str>,
        (conversation, role): (Box<Conversation>, Role),
        service: u32,
    ) -> Outcome<()> {
        if conversation.side(role).is_some_and(|side| side.service != service) {
            let error = Error::new(
                ErrorCode::GroupInvalid,
                format!(
                    "The group {group} belongs to the service \"{}\", and this dialog begins at \"{}\". A group has conversations of one service only.",
                    conversation.service(role),
                    self.options.from
                ),
            );
            return Err(work.at_commit(error.with("group", &**group)).into());
        }
        membership::open(work, group, conversation, role)
    }
}

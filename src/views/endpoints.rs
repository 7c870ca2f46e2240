//! `conversations`: endpoints, as `sys.conversation_endpoints` shows them.

use std::rc::Rc;

use num_traits::ToPrimitive;

use super::{Extent, PAGE_RECORDS, PAGE_ROWS, Page};
use crate::clock::Instant;
use crate::conversation::{Conversation, State};
use crate::core::Core;
use crate::driver::Driver;
use crate::ids::Role;
use crate::membership;
use crate::message::count;
use crate::record::float;
use crate::stop::{Outcome, Stop, pass_over};
use crate::store::{Bound, Direction, Key, Range, StoreName};
use crate::work::Work;

/// Which endpoints. What is absent does not matter.
#[derive(Clone, Debug, Default)]
pub struct EndpointFilter {
    /// Of this service.
    pub service: Option<Rc<str>>,
    /// In this state, by its two letters.
    pub state: Option<Rc<str>>,
    /// In this group.
    pub group: Option<Rc<str>>,
    /// Of this conversation: both ends, if both are here.
    pub conversation_id: Option<Rc<str>>,
    /// Begun before.
    pub created_before: Option<f64>,
}

/// An endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct Endpoint {
    /// Names it.
    pub conversation_handle: Rc<str>,
    /// Shared by both ends.
    pub conversation_id: Rc<str>,
    /// It began the dialog.
    pub is_initiator: bool,
    /// Its group.
    pub conversation_group_id: Rc<str>,
    /// Its service.
    pub service: Rc<str>,
    /// The service at the other end.
    pub far_service: Rc<str>,
    /// The broker of the other end; `None` while it is not known.
    pub far_broker_instance: Option<Rc<str>>,
    /// The contract.
    pub contract: Rc<str>,
    /// Of a lane, if it has one.
    pub key: Option<Rc<str>>,
    /// Its state.
    pub state: State,
    /// When the conversation expires.
    pub lifetime: Option<Instant>,
    /// When the earliest of its timers fires.
    pub dialog_timer: Option<Instant>,
    /// 1 to 10.
    pub priority: u32,
    /// The next number to send.
    pub send_sequence: u64,
    /// The next number that is expected.
    pub receive_sequence: u64,
    /// When the conversation was begun or first heard of.
    pub created_at: Instant,
    /// It is alone in its own group.
    pub(crate) is_alone: bool,
    /// Messages that wait for it.
    pub(crate) ready: u64,
}

impl Endpoint {
    fn of(core: &Core, conversation: &Conversation, role: Role) -> Option<Self> {
        let side = conversation.side(role)?;
        let here = (conversation.local == Some(true)).then(|| Rc::clone(&core.instance_id));
        Some(Self {
            conversation_handle: conversation.handle(role),
            conversation_id: Rc::clone(&conversation.id),
            is_initiator: role == Role::Initiator,
            conversation_group_id: conversation.group(role),
            service: Rc::clone(conversation.service(role)),
            far_service: Rc::clone(conversation.service(role.other())),
            far_broker_instance: here.or_else(|| conversation.far_broker.clone()),
            contract: Rc::clone(&conversation.contract),
            key: conversation.lane.as_ref().and_then(|lane| lane.key.text()).cloned(),
            state: side.state,
            lifetime: conversation.lifetime.map(|(at, _)| at),
            dialog_timer: side.timers.iter().map(|timer| timer.at).min_by(f64::total_cmp),
            priority: side.priority,
            send_sequence: side.next_send,
            receive_sequence: side.next_expected.saturating_sub(conversation.lane.as_ref().map_or(0, |lane| lane.base)),
            created_at: conversation.created_at,
            // One that is finished is in no group.
            is_alone: side.group.is_none() && side.state != State::Closed,
            ready: side.unread,
        })
    }
}

impl EndpointFilter {
    fn wants(&self, endpoint: &Endpoint) -> bool {
        self.service.as_ref().is_none_or(|service| *service == endpoint.service)
            && self.state.as_deref().is_none_or(|state| state == endpoint.state.letters())
            && self.group.as_deref().is_none_or(|group| group.eq_ignore_ascii_case(&endpoint.conversation_group_id))
            && self.conversation_id.as_deref().is_none_or(|id| id.eq_ignore_ascii_case(&endpoint.conversation_id))
            && self.created_before.is_none_or(|before| endpoint.created_at < before)
    }
}

/// The endpoint with a handle.
pub(crate) fn info(work: &mut Work<'_>, handle: &str) -> Outcome<Option<Endpoint>> {
    let found = work.find(handle)?;
    Ok(found.and_then(|(conversation, role)| Endpoint::of(work.core, &conversation, role)))
}

/// Endpoints, in the order of the numbers of their conversations. `position` is the number of the last conversation.
pub(crate) async fn conversations(
    driver: &mut Driver<'_>,
    filter: &EndpointFilter,
    position: Option<&[f64]>,
    extent: Extent,
) -> Outcome<Page<Endpoint>> {
    let mut page = Page { rows: Vec::new(), next: None };
    if let Some(group) = &filter.group {
        let endpoints = driver.look(|work| of_group(work, group)).await?;
        page.rows.extend(endpoints.into_iter().filter(|endpoint| filter.wants(endpoint)));
        return Ok(page);
    }
    let mut range = Range::all();
    if let Some([last]) = position {
        range.lower = Bound::Excluding((*last).into());
    }
    let limit = PAGE_ROWS.to_u32();
    let mut looked_at = 0;
    loop {
        let records = driver.tx.get_range(StoreName::Conversations, &range, limit, Direction::Forward).await?;
        let is_last = count(records.len()) < PAGE_ROWS;
        looked_at += count(records.len());
        let mut last = None;
        for record in records {
            let number = record.item(1).number().and_then(|number| number.to_u64()).unwrap_or_default();
            // One that can't be read says so when it is asked for by its handle.
            let conversation = pass_over(Conversation::from_record(number, &record).map_err(Stop::from), &mut None)?;
            let endpoints = [Role::Initiator, Role::Target]
                .into_iter()
                .filter_map(|role| Endpoint::of(driver.core, conversation.as_deref()?, role));
            page.rows.extend(endpoints.filter(|endpoint| filter.wants(endpoint)));
            last = conversation.is_some().then_some(float(number));
        }
        if is_last {
            return Ok(page);
        }
        if last.is_none() {
            // Only the store knows which one it is.
            last = match driver.tx.get_keys(StoreName::Conversations, &range, limit).await?.pop() {
                Some(Key::Number(number)) => Some(number),
                _ => None,
            };
        }
        let Some(last) = last else { return Ok(page) };
        range.lower = Bound::Excluding(last.into());
        if extent == Extent::Page && (count(page.rows.len()) >= PAGE_ROWS || looked_at >= PAGE_RECORDS) {
            page.next = Some(vec![last]);
            return Ok(page);
        }
    }
}

fn of_group(work: &mut Work<'_>, group: &str) -> Outcome<Vec<Endpoint>> {
    let group = group.to_ascii_lowercase();
    let mut sides = membership::members(work, &group)?;
    if sides.is_empty() {
        sides.extend(membership::any_member(work, &group)?.map(|(conversation, role)| conversation.id_of(role)));
    }
    work.need(sides.iter().map(|side| side.conversation), [])?;
    let mut endpoints = Vec::new();
    for side in sides {
        let conversation = pass_over(work.conversation(side.conversation), &mut None)?.flatten();
        endpoints.extend(conversation.and_then(|conversation| Endpoint::of(work.core, &conversation, side.role)));
    }
    Ok(endpoints)
}

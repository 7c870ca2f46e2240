//! `groups`: conversation groups, and who holds them.
//!
//! A group that conversations were put into has a record per member: those come first, in the order of their ids. Then come the sides that are
//! alone in their own group, which is not stored. A page that ends within a group says how far it has counted.

use std::rc::Rc;

use num_traits::ToPrimitive;
use uuid::Uuid;

use super::endpoints::conversations;
use super::{EndpointFilter, Extent, PAGE_RECORDS, PAGE_ROWS, Page};
use crate::core::Core;
use crate::driver::Driver;
use crate::ids::{SideId, text};
use crate::membership::{all_members, member_key, read_member};
use crate::message::count;
use crate::record::float;
use crate::stop::Outcome;
use crate::store::{Bound, StoreName};

/// Who holds a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldBy {
    /// A transaction of this context, or a verb that is just being committed.
    This,
    /// Another context of the origin.
    Other,
}

/// A conversation group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConversationGroup {
    /// Its id.
    pub conversation_group_id: Rc<str>,
    /// The service of its conversations.
    pub service: Rc<str>,
    /// That service's queue.
    pub queue: Rc<str>,
    /// How many conversations are in it.
    pub conversations: u64,
    /// Messages that wait in it.
    pub ready: u64,
    /// Who holds it, as far as locks tell.
    pub held_by: Option<HeldBy>,
}

/// A group as far as it has been counted.
struct Counted {
    group: Rc<str>,
    /// Of its members.
    service: u32,
    conversations: u64,
    ready: u64,
}

impl Counted {
    fn new(group: Rc<str>) -> Self {
        Self { group, service: 0, conversations: 0, ready: 0 }
    }
}

/// The kinds of positions.
const SHARED: f64 = 1.0;
const ALONE: f64 = 2.0;

/// A page of groups.
pub(crate) async fn groups(
    driver: &mut Driver<'_>,
    service: Option<&str>,
    position: Option<&[f64]>,
    extent: Extent,
) -> Outcome<Page<ConversationGroup>> {
    // Whether the definitions are the present ones.
    driver.look(|work| work.queue(crate::definitions::FIRST_QUEUE).map(drop)).await?;
    let mut page = Page { rows: Vec::new(), next: None };
    let alone = match position {
        Some([ALONE, last @ ..]) => Some(last),
        position => {
            shared(driver, service, position, extent, &mut page).await?;
            None
        }
    };
    if page.next.is_none() {
        own(driver, service, alone, extent, &mut page).await?;
    }
    Ok(page)
}

/// Groups that conversations were put into.
async fn shared(
    driver: &mut Driver<'_>,
    service: Option<&str>,
    position: Option<&[f64]>,
    extent: Extent,
    page: &mut Page<ConversationGroup>,
) -> Outcome<()> {
    let mut range = all_members();
    let mut looked_at = 0;
    let mut current: Option<Counted> = None;
    if let Some([SHARED, a, b, c, d, side, service, conversations, ready]) = position {
        let whole = |number: &f64| number.to_u64().unwrap_or_default();
        let id = [a, b, c, d].iter().fold(0u128, |id, part| (id << 32) | u128::from(whole(part)));
        let group = text(Uuid::from_u128(id));
        range.lower = Bound::Excluding(member_key(&group, SideId::from_number(whole(side))));
        let service = whole(service).to_u32().unwrap_or_default();
        current = Some(Counted { group, service, conversations: whole(conversations), ready: whole(ready) });
    }
    loop {
        let keys = driver.tx.get_keys(StoreName::Members, &range, PAGE_ROWS.to_u32()).await?;
        let members: Vec<(Rc<str>, SideId)> = keys.iter().filter_map(read_member).collect();
        driver.look(|work| work.need(members.iter().map(|(_, side)| side.conversation), [])).await?;
        for (group, id) in &members {
            if current.as_ref().is_none_or(|current| current.group != *group) {
                let done = current.replace(Counted::new(Rc::clone(group)));
                page.rows.extend(done.and_then(|done| show(driver, done, service)));
            }
            // One that can't be read says so when it is asked for by its handle.
            let cached = driver.changes.conversations.get(&id.conversation);
            let conversation = cached.and_then(|cached| cached.current.as_ref());
            if let (Some(current), Some(conversation)) = (&mut current, conversation)
                && let Some(side) = conversation.side(id.role)
            {
                current.service = side.service;
                current.conversations += 1;
                current.ready += side.unread;
            }
        }
        driver.changes.forget_unchanged();
        let (Some(last), Some((_, side))) = (keys.last(), members.last()) else { break };
        range.lower = Bound::Excluding(last.clone());
        looked_at += count(keys.len());
        if extent == Extent::Page && (count(page.rows.len()) >= PAGE_ROWS || looked_at >= PAGE_RECORDS) {
            page.next = current.as_ref().and_then(|current| position_in(current, *side));
            return Ok(());
        }
    }
    page.rows.extend(current.and_then(|current| show(driver, current, service)));
    Ok(())
}

/// Sides that are alone in their own group.
async fn own(
    driver: &mut Driver<'_>,
    service: Option<&str>,
    last: Option<&[f64]>,
    extent: Extent,
    page: &mut Page<ConversationGroup>,
) -> Outcome<()> {
    let filter = EndpointFilter { service: service.map(Rc::from), ..EndpointFilter::default() };
    let found = conversations(driver, &filter, last, extent).await?;
    for end in found.rows.into_iter().filter(|end| end.is_alone) {
        let service = driver.catalog.services.get(&end.service).map_or(0, |service| service.number);
        let alone = Counted { group: end.conversation_group_id, service, conversations: 1, ready: end.ready };
        page.rows.extend(show(driver, alone, None));
    }
    page.next = found.next.map(|next| [vec![ALONE], next].concat());
    Ok(())
}

/// The row of a group, if it is of the service that is asked for.
fn show(driver: &Driver<'_>, counted: Counted, wanted: Option<&str>) -> Option<ConversationGroup> {
    // None of its members could be read.
    let service = driver.catalog.service_by_number(counted.service)?;
    let queue = driver.catalog.queue_of(counted.service)?;
    wanted.is_none_or(|wanted| *wanted == *service.name).then(|| ConversationGroup {
        conversation_group_id: counted.group,
        service: Rc::clone(&service.name),
        queue: Rc::clone(&queue.name),
        conversations: counted.conversations,
        ready: counted.ready,
        held_by: None,
    })
}

fn position_in(counted: &Counted, side: SideId) -> Option<Vec<f64>> {
    let id = Uuid::try_parse(&counted.group).ok()?.as_u128();
    let mut position = vec![SHARED];
    position.extend([96u32, 64, 32, 0].map(|shift| float((id >> shift & 0xffff_ffff).to_u64().unwrap_or_default())));
    position.extend([side.number(), counted.service.into(), counted.conversations, counted.ready].map(float));
    Some(position)
}

/// Says who holds each of the groups: a context knows its own, and asks the origin's locks about others.
pub(crate) async fn say_who_holds(core: &Core, groups: &mut [ConversationGroup]) {
    let held = core.locks.held_in_origin().await;
    for group in groups {
        let id = &group.conversation_group_id;
        group.held_by = if core.locks.is_held_here(id) {
            Some(HeldBy::This)
        } else {
            held.iter().any(|name| **name == **id).then_some(HeldBy::Other)
        };
    }
}

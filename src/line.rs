//! Who is first in line in a queue: the highest priority, then who has waited longest, among the groups that nobody else holds.

use std::collections::VecDeque;
use std::rc::Rc;

use crate::ids::SideId;
use crate::reading::{first_order, readable};
use crate::store::{Bound, StoreName};
use crate::turn::Turn;
use crate::work::{Outcome, Work};

/// Turns are read in pages of this size.
const PAGE: u32 = 16;

/// The members of a group that have something to receive, the higher priority first.
pub(crate) fn members_in_line(work: &mut Work<'_>, queue: u32, group: &str) -> Outcome<Vec<SideId>> {
    let turns = work.read_range(StoreName::Turns, Turn::of_group(queue, group), None, Turn::read)?;
    let mut turns = VecDeque::from(turns);
    // What the transaction itself has put into other groups is still stored in its old one.
    let moved = if work.is_view() { work.changes.moved() } else { Vec::new() };
    for id in moved {
        turns.retain(|turn| turn.side != id);
        let turn = work.stored(id.conversation)?.and_then(|conversation| Turn::of(&conversation, id, queue));
        turn.filter(|turn| *turn.group == *group).into_iter().for_each(|turn| put(&mut turns, turn));
    }
    work.need(turns.iter().map(|turn| turn.side.conversation), [])?;
    Ok(turns.iter().map(|turn| turn.side).collect())
}

/// Puts a turn where it belongs.
fn put(turns: &mut VecDeque<Turn>, turn: Turn) {
    let place = |turn: &Turn| (10u32.saturating_sub(turn.priority), turn.order, turn.side);
    let position = turns.iter().position(|other| place(other) > place(&turn)).unwrap_or(turns.len());
    turns.insert(position, turn);
}

/// The turns of a queue in their order, page by page.
#[derive(Debug)]
pub(crate) struct Line {
    queue: u32,
    turns: VecDeque<Turn>,
    /// The last turn that was read, and whether more may follow.
    last: Option<Turn>,
    is_complete: bool,
}

impl Line {
    pub(crate) fn of(queue: u32) -> Self {
        Self { queue, turns: VecDeque::new(), last: None, is_complete: false }
    }

    /// The first whose group can be had and which has something to receive. A transaction holds the group from here on.
    pub(crate) fn first(&mut self, work: &mut Work<'_>) -> Outcome<Option<Turn>> {
        loop {
            if self.turns.is_empty() && !self.read_page(work)? {
                return Ok(None);
            }
            let Some(turn) = self.turns.pop_front() else { return Ok(None) };
            if !work.is_free(&turn.group) {
                continue;
            }
            let Some(conversation) = work.stored(turn.side.conversation)? else { continue };
            // The transaction itself may have moved it.
            let Some(side) = conversation.side(turn.side.role) else { continue };
            let turn = Turn { group: conversation.group(turn.side.role), is_shared: side.group.is_some(), ..turn };
            if readable(work, &conversation, turn.side).is_none() {
                continue;
            }
            if self.turns.is_empty() {
                self.read_page(work)?;
            }
            // The order in a key is a lower bound. It matters only if another of the same priority may have waited longer.
            let rival = self.turns.front().filter(|rival| rival.priority == turn.priority).map(|rival| rival.order);
            if let Some(rival) = rival {
                let order = first_order(work, &conversation, turn.side)?;
                if order > rival {
                    self.step_back(work, turn, order)?;
                    continue;
                }
            }
            if work.try_lock(&turn.group) {
                return Ok(Some(turn));
            }
        }
    }

    /// Puts a turn where it belongs, here and in the store.
    fn step_back(&mut self, work: &mut Work<'_>, turn: Turn, order: u64) -> Outcome<()> {
        if !work.is_view()
            && let Some(mut conversation) = work.conversation(turn.side.conversation)?
        {
            if let Some(side) = conversation.side_mut(turn.side.role) {
                side.turn = Some(order);
            }
            work.count(turn.service, |_| {})?;
            work.save(conversation);
        }
        put(&mut self.turns, Turn { order, ..turn });
        Ok(())
    }

    /// Reads the next turns; false when there are none. The first page is remembered as long as the queue's record says that it is current.
    fn read_page(&mut self, work: &mut Work<'_>) -> Outcome<bool> {
        if self.is_complete {
            return Ok(false);
        }
        let version = work.queue(self.queue)?.turns;
        let known =
            if self.last.is_none() && !work.is_view() { work.core.heads.get(self.queue, version) } else { None };
        let page = match known {
            Some(page) => page,
            None => {
                let mut range = Turn::of_queue(self.queue);
                if let Some(last) = &self.last {
                    range.lower = Bound::Excluding(last.key());
                }
                let page = Rc::new(work.read_range(StoreName::Turns, range, Some(PAGE), Turn::read)?);
                if self.last.is_none() && !work.is_view() {
                    work.core.heads.put(self.queue, version, Rc::clone(&page));
                }
                page
            }
        };
        self.is_complete = crate::message::count(page.len()) < u64::from(PAGE);
        self.last = page.last().cloned();
        self.turns.extend(page.iter().cloned());
        Ok(!page.is_empty())
    }
}

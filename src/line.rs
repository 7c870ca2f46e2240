//! Who is next in line in a queue: the highest priority, then who has waited longest, among the groups that nobody else holds.

use std::collections::VecDeque;
use std::rc::Rc;

use crate::cache::Expected;
use crate::error::Error;
use crate::ids::SideId;
use crate::message::count;
use crate::reading::{first_order, readable};
use crate::stop::{Outcome, pass_over};
use crate::store::{Bound, Key, Range, StoreName};
use crate::turn::Turn;
use crate::work::Work;

/// Turns are read in pages of this size.
const PAGE: u32 = 16;

/// So many groups that others hold are asked for beforehand the next time: what a look finds out one by one, costs a storage transaction each.
const HELD: usize = 8;

/// Sides whose rows come together, and why others can't be read.
#[derive(Debug, Default)]
pub(crate) struct Sides {
    pub(crate) sides: Vec<SideId>,
    pub(crate) problem: Option<Error>,
}

impl From<SideId> for Sides {
    fn from(side: SideId) -> Self {
        Self { sides: vec![side], problem: None }
    }
}

/// The members of a group that have something to receive, the higher priority first.
pub(crate) fn members_in_line(work: &mut Work<'_>, queue: u32, group: &str) -> Outcome<Sides> {
    let Page { turns, mut problem, .. } = read_turns(work, Turn::of_group(queue, group), None)?;
    let mut turns = VecDeque::from(turns);
    // What the transaction itself has put into other groups is still stored in its old one.
    let moved = if work.is_view() { work.changes.moved() } else { Vec::new() };
    for id in moved {
        turns.retain(|turn| turn.side != id);
        let conversation = pass_over(work.stored(id.conversation), &mut problem)?.flatten();
        let turn = conversation.and_then(|conversation| Turn::of(&conversation, id, queue));
        turn.filter(|turn| *turn.group == *group).into_iter().for_each(|turn| put(&mut turns, turn));
    }
    work.need(turns.iter().map(|turn| turn.side.conversation), [])?;
    Ok(Sides { sides: turns.iter().map(|turn| turn.side).collect(), problem })
}

/// Where a turn belongs.
type Place = (u32, u64, SideId);

fn place(turn: &Turn) -> Place {
    (10u32.saturating_sub(turn.priority), turn.order, turn.side)
}

/// Puts a turn where it belongs.
fn put(turns: &mut VecDeque<Turn>, turn: Turn) {
    let position = turns.iter().position(|other| place(other) > place(&turn)).unwrap_or(turns.len());
    turns.insert(position, turn);
}

/// The order in the key of a side's turn is made that of its oldest unread row.
pub(crate) fn correct(work: &mut Work<'_>, id: SideId, order: u64) -> Outcome<()> {
    let Some(mut conversation) = work.conversation(id.conversation)? else { return Ok(()) };
    let Some(side) = conversation.side_mut(id.role) else { return Ok(()) };
    side.turn = Some(order);
    let service = side.service;
    work.count(service, |_| {})?;
    work.save(conversation);
    Ok(())
}

/// The turns of a queue in their order, page by page. What can't be read is passed over.
#[derive(Debug)]
pub(crate) struct Line {
    queue: u32,
    turns: VecDeque<Turn>,
    /// The key of the last turn that was read, and whether none follows.
    last: Option<Key>,
    is_complete: bool,
    /// The place of the last turn that was read: none of those that were not comes before it.
    end: Option<Place>,
    /// Groups that the transaction holds already are passed over.
    only_new: bool,
    /// The first groups that others hold.
    held: Vec<Rc<str>>,
    /// Why the first that was passed over could not be read.
    pub(crate) problem: Option<Error>,
}

impl Line {
    pub(crate) fn of(queue: u32) -> Self {
        Self {
            queue,
            turns: VecDeque::new(),
            last: None,
            is_complete: false,
            end: None,
            only_new: false,
            held: Vec::new(),
            problem: None,
        }
    }

    /// The same without the groups that the transaction holds already.
    pub(crate) fn of_others(mut self) -> Self {
        self.only_new = true;
        self
    }

    /// The next whose group can be had and which has something to receive.
    pub(crate) fn next(&mut self, work: &mut Work<'_>) -> Outcome<Option<Turn>> {
        loop {
            self.read_on(work)?;
            let Some(turn) = self.turns.pop_front() else { return Ok(None) };
            if !work.is_free(&turn.group) {
                if self.held.len() < HELD && work.core.locks.are_asked_for_cheaply() {
                    self.held.push(turn.group);
                }
                continue;
            }
            if self.only_new && work.holds(&turn.group) {
                continue;
            }
            let conversation = pass_over(work.stored(turn.side.conversation), &mut self.problem)?.flatten();
            let Some(conversation) = conversation else { continue };
            // The transaction itself may have moved it.
            let Some(side) = conversation.side(turn.side.role) else { continue };
            let turn = Turn { group: conversation.group(turn.side.role), is_shared: side.group.is_some(), ..turn };
            if readable(work, &conversation, turn.side).is_none() {
                continue;
            }
            self.read_on(work)?;
            // The order in a key is a lower bound. It matters only if another of the same priority may have waited longer.
            let rival = self.turns.front().filter(|rival| rival.priority == turn.priority).map(|rival| rival.order);
            if let Some(rival) = rival {
                let order = first_order(work, &conversation, turn.side);
                let Some(order) = pass_over(order, &mut self.problem)? else { continue };
                if order > rival {
                    self.step_back(work, turn, order)?;
                    continue;
                }
            }
            return Ok(Some(turn));
        }
    }

    /// Puts a turn where it belongs, here and in the store. A transaction's call notes it, for who may write.
    fn step_back(&mut self, work: &mut Work<'_>, turn: Turn, order: u64) -> Outcome<()> {
        if !work.is_view() {
            correct(work, turn.side, order)?;
        } else if !work.changes.taken.contains_key(&turn.side) {
            work.changes.late.push((turn.side, order));
        }
        put(&mut self.turns, Turn { order, ..turn });
        Ok(())
    }

    /// What the next reader will probably meet when `turn` has got its rows. `left`: not above the order of what it still has.
    pub(crate) fn after(self, turn: Turn, left: Option<u64>) -> Expected {
        let left = left.map(|order| Turn { order, ..turn });
        let rival = self.turns.front();
        let rank = |turn: &Turn| (10u32.saturating_sub(turn.priority), turn.order);
        // An order is one row's alone.
        let turn = left.filter(|left| rival.is_none_or(|rival| rank(left) < rank(rival))).or_else(|| rival.cloned());
        Expected { held: self.held, turn }
    }

    /// The same when nothing was to be had.
    pub(crate) fn after_all(self) -> (Expected, Option<Error>) {
        (Expected { held: self.held, turn: None }, self.problem)
    }

    /// Reads until it is known who comes next: who has stepped back may be behind some that were not read.
    fn read_on(&mut self, work: &mut Work<'_>) -> Outcome<()> {
        while !self.is_complete && self.turns.front().is_none_or(|front| self.end.is_none_or(|end| place(front) > end))
        {
            self.read_page(work)?;
        }
        Ok(())
    }

    /// Reads the next turns. The first page is remembered as long as the queue's record says that it is current.
    fn read_page(&mut self, work: &mut Work<'_>) -> Outcome<()> {
        let version = work.queue(self.queue)?.turns;
        let is_first = self.last.is_none();
        let known = is_first.then(|| work.core.heads.get(self.queue, version)).flatten();
        let page = match known {
            Some(turns) => Page {
                count: count(turns.len()),
                last: turns.last().map(Turn::key),
                turns: turns.to_vec(),
                problem: None,
            },
            None => {
                let mut range = Turn::of_queue(self.queue);
                if let Some(last) = &self.last {
                    range.lower = Bound::Excluding(last.clone());
                }
                let page = read_turns(work, range, Some(PAGE))?;
                if is_first && page.problem.is_none() {
                    work.core.heads.put(self.queue, version, Rc::new(page.turns.clone()));
                }
                page
            }
        };
        (self.is_complete, self.last) = (page.count < u64::from(PAGE), page.last);
        self.end = page.turns.last().map(place).or(self.end);
        self.problem = self.problem.take().or(page.problem);
        page.turns.into_iter().for_each(|turn| put(&mut self.turns, turn));
        Ok(())
    }
}

/// Turns that were read together.
#[derive(Debug)]
struct Page {
    turns: Vec<Turn>,
    /// How many records there were, and the key of the last.
    count: u64,
    last: Option<Key>,
    /// Why the first of those that are left out can't be read.
    problem: Option<Error>,
}

/// Reads turns to receive, as far as they can be read.
fn read_turns(work: &mut Work<'_>, range: Range, limit: Option<u32>) -> Outcome<Page> {
    let records = work.get_range(StoreName::Turns, range.clone(), limit)?.to_vec();
    let mut page =
        Page { turns: Vec::with_capacity(records.len()), count: count(records.len()), last: None, problem: None };
    for (index, record) in records.iter().enumerate() {
        match Turn::read(record) {
            Ok(turn) => page.turns.push(turn),
            Err(problem) => {
                // Only the store knows the key of such a record.
                let keys = work.get_keys(StoreName::Turns, range.clone(), limit)?;
                page.last = keys.last().and_then(Key::from_value);
                let key = keys.get(index).and_then(Key::from_value).unwrap_or(Key::Number(-1.0));
                pass_over::<()>(Err(problem.at(StoreName::Turns, &key).into()), &mut page.problem)?;
            }
        }
    }
    if page.problem.is_none() {
        page.last = page.turns.last().map(Turn::key);
    }
    Ok(page)
}

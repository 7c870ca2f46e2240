//! The check: is there an order of the calls that the journal allows, by which the model answers what was answered and comes to what is there?
//!
//! The journal says which tab committed when, and who was told by that commit. So most calls have one place only; those whose outcome nobody
//! knows may have one or none, and what is there decides.

use std::rc::Rc;

use pocket_broker::error::ErrorCode;

use crate::calls::{Answer, Call, Later, Wanted};
use crate::conformance::random::model::{End, Row};
use crate::history::{Outcome, Record};
use crate::journal::Event;
use crate::look::Look;
use crate::model::{Model, Names, may_give};
use crate::origin::Kind;

/// After so many steps the search is given up.
const STEPS: usize = 20_000;
/// So many models that fit are kept: they differ in what can't be seen.
const KEPT: usize = 3;

/// What a reader gets: of one group, conversation by conversation.
type Taken = (Rc<str>, Vec<(End, Vec<Row>)>);

pub(crate) struct Search<'a> {
    pub(crate) names: &'a Names,
    /// The number of the first event.
    pub(crate) first: usize,
    pub(crate) events: &'a [Event],
    pub(crate) records: &'a [Record],
    pub(crate) look: &'a Look,
    /// Failures in a row are looked at, too.
    counts_failures: bool,
    pub(crate) steps: usize,
    pub(crate) found: Vec<Model>,
    /// How far the best attempt came, and why it went no further.
    pub(crate) furthest: (usize, Kind, String),
}

#[derive(Clone)]
struct Path {
    model: Model,
    placed: Vec<bool>,
    /// How much of what is delayed and goes in this commit has gone.
    delivered: usize,
    /// Of how many that are withdrawn it is known whether the store has refused them.
    refused: usize,
}

impl<'a> Search<'a> {
    pub(crate) fn new(
        names: &'a Names,
        (first, events): (usize, &'a [Event]),
        records: &'a [Record],
        look: &'a Look,
        counts_failures: bool,
    ) -> Self {
        Self {
            names,
            first,
            events,
            records,
            look,
            counts_failures,
            steps: 0,
            found: Vec::new(),
            furthest: (0, Kind::Unexplained, String::new()),
        }
    }

    /// Looks for orders that begin with a model.
    pub(crate) fn run(&mut self, model: &Model) {
        let placed = self.records.iter().map(|record| matches!(record.outcome, Some(Outcome::Nothing))).collect();
        self.go(0, Path { model: model.clone(), placed, delivered: 0, refused: 0 });
    }

    fn is_enough(&self) -> bool {
        // No look sees the body of a timer, or what a group knows.
        let is_unseen = |record: &Record| {
            matches!(record.outcome, Some(Outcome::Unknown))
                || matches!(record.call, Call::Timer(..) | Call::SetState(..))
        };
        let is_certain = !self.records.iter().any(is_unseen);
        self.steps > STEPS || self.found.len() >= if is_certain { 1 } else { KEPT }
    }

    fn go(&mut self, index: usize, mut path: Path) {
        self.steps += 1;
        if self.is_enough() {
            return;
        }
        self.place_idle(index, &mut path);
        let number = self.first + index;
        let late = self.records.iter().zip(&path.placed).find(|(record, is_placed)| {
            !**is_placed && !matches!(record.outcome, Some(Outcome::Unknown)) && record.over < number.max(record.issued)
        });
        let events = self.events;
        let Some(event) = events.get(index) else { return self.end(index, path) };
        if let Some((record, _)) = late {
            let says = record.call.apply(&mut path.model.clone(), self.names, None, (record.at, event.now));
            return self.stuck(index, || format!("{record:?} has no place, the model says {says:?}"));
        }
        if !event.wrote && !self.is_asked(index, &path) {
            path.model.sweep(self.names);
            return self.go(index + 1, path);
        }
        let delivers = event.wrote && path.delivered < event.deliveries();
        if delivers {
            let mut delivered = Path { delivered: path.delivered + 1, ..path.clone() };
            match delivered.model.deliver_some(self.names, event, path.delivered) {
                Ok(()) => {
                    delivered.model.forget_empty_groups(self.names);
                    self.go(index, delivered);
                }
                Err(kind) => {
                    self.stuck_by(kind, index, || format!("{event:?}, and the model has {:?}", path.model.delayed))
                }
            }
        }
        if let Some(id) = event.withdraws.get(path.refused).filter(|_| event.wrote) {
            // By whoever cancels it, or because the store does not take it.
            let mut refused = Path { refused: path.refused + 1, ..path.clone() };
            if self.names.refused.contains(id) && refused.model.refuse_for_good(self.names, id) {
                self.go(index, refused);
            }
            path.refused += 1;
            return self.go(index, path);
        }
        if event.fires && !delivers && path.model.has_due(event.now) {
            let mut fired = path.clone();
            fired.model.world.poll(event.now);
            fired.model.forget_empty_groups(self.names);
            self.go(index, fired);
        }
        let (must, may): (Vec<usize>, Vec<usize>) =
            self.eligible(index, &path).into_iter().partition(|record| self.is_last_place(index, *record));
        for record in &must {
            self.try_place(index, *record, &path);
        }
        for record in &may {
            self.try_place(index, *record, &path);
        }
        if must.is_empty() {
            if delivers {
                return;
            }
            path.model.sweep(self.names);
            (path.delivered, path.refused) = (0, 0);
            self.go(index + 1, path);
        } else {
            self.stuck(index, || {
                format!("must be placed: {:?}", must.iter().map(|number| &self.records[*number]).collect::<Vec<_>>())
            });
        }
    }

    /// Whether somebody's answer came with a commit that wrote nothing.
    fn is_asked(&self, index: usize, path: &Path) -> bool {
        !self.eligible(index, path).is_empty()
    }

    /// Which calls may have happened in a commit.
    fn eligible(&self, index: usize, path: &Path) -> Vec<usize> {
        (0..self.records.len()).filter(|record| !path.placed[*record] && self.fits(index, *record)).collect()
    }

    fn fits(&self, index: usize, record: usize) -> bool {
        let (record, event, number) = (&self.records[record], &self.events[index], self.first + index);
        // That nothing waits any more is perhaps what a store of the application's own has said, in no commit: between any two of them.
        let is_said_by_a_store = matches!(record.call, Call::Later(Later::Reschedule(..)))
            && matches!(record.outcome, Some(Outcome::Answer(Answer::Was(false))));
        let is_told = || record.tab == event.tab && event.told.as_ref().is_none_or(|told| told.contains(&record.task));
        (record.issued..record.over).contains(&number)
            && (is_said_by_a_store || is_told())
            && !matches!(record.outcome, Some(Outcome::Refused(_)))
    }

    /// Whether a call has its answer, and no later commit can have given it.
    fn is_last_place(&self, index: usize, record: usize) -> bool {
        matches!(self.records[record].outcome, Some(Outcome::Answer(_)))
            && !(index + 1..self.events.len()).any(|later| self.fits(later, record))
    }

    fn try_place(&mut self, index: usize, record: usize, path: &Path) {
        let (known, now) = (&self.records[record], self.events[index].now);
        let answer = match &known.outcome {
            Some(Outcome::Answer(answer)) => Some(answer),
            _ => None,
        };
        let mut placed = path.placed.clone();
        placed[record] = true;
        let mut before = vec![path.model.clone()];
        if !path.model.empty_lanes().is_empty() {
            // What shares a commit may find a lane that the calls before it have left empty, or a new one.
            before.push(path.model.clone());
            before[1].sweep(self.names);
        }
        let guesses: Vec<_> = before.iter().flat_map(|model| self.alternatives(&known.call, answer, model)).collect();
        if guesses.is_empty() {
            self.stuck(index, || format!("{known:?}, and the model has nothing that it could be about"));
        }
        for (mut model, guess) in guesses {
            let outcome = known.call.apply(&mut model, self.names, answer.or(guess.as_ref()), (known.at, now));
            match outcome {
                Ok(Ok(())) => {
                    self.go(index, Path { model, placed: placed.clone(), ..path.clone() });
                }
                outcome => {
                    let is_late = answer.is_some() && matches!(outcome, Ok(Err(ErrorCode::TransactionClosed)));
                    let kind = if is_late { Kind::NotFenced } else { Kind::Unexplained };
                    self.stuck_by(kind, index, || format!("{known:?}, and the model says {outcome:?}"));
                }
            }
        }
    }

    /// What a call may have come to. When nobody knows what it gave, there are several ways.
    fn alternatives(&self, call: &Call, answer: Option<&Answer>, model: &Model) -> Vec<(Model, Option<Answer>)> {
        match (call, answer) {
            (Call::Receive(queue, wanted, top, _), None) => {
                let takes = self.takes(model, *queue, wanted, *top);
                let taken = |(group, take): Taken| {
                    let mut after = model.clone();
                    after.take(self.names, &group, &take).is_ok().then_some((after, None))
                };
                takes.into_iter().filter_map(taken).collect()
            }
            (Call::Unbury(unbury), answer) => {
                let count = if let Some(Answer::Count(count)) = answer { Some(*count as usize) } else { None };
                let buried = model.buried(unbury);
                let most = unbury.limit.map_or(buried.len(), |limit| (limit as usize).min(buried.len()));
                let is_it = |count: usize| if unbury.alone { count == most } else { (1..=most).contains(&count) };
                let counts = (0..=most).filter(|taken| is_it(*taken) && count.is_none_or(|count| count == *taken));
                let taken = |ends: Vec<End>| {
                    let mut after = model.clone();
                    after.unbury(&ends, unbury.discard);
                    (after, None)
                };
                let chosen = counts.flat_map(|count| subsets(&buried, count));
                // They go in the order of their numbers. Where several tabs dispatch at a time, these are of blocks that each of them has.
                let in_order = |ends| if model.is_elsewhere { orders(ends) } else { vec![ends] };
                chosen.flat_map(in_order).map(taken).collect()
            }
            (Call::Begin(begin), None) if model.reused(begin).is_none() => {
                let unborn = self.names.services.iter().filter(|(id, services)| {
                    !model.world.services.contains_key(*id) && **services == (begin.from, begin.to)
                });
                unborn.map(|(id, _)| (model.clone(), Some(begin.begun(id)))).collect()
            }
            _ => vec![(model.clone(), None)],
        }
    }

    /// Everything that a reader could have been given.
    fn takes(&self, model: &Model, queue: usize, wanted: &Wanted, top: Option<u32>) -> Vec<Taken> {
        let mut told = model.clone();
        let wanted = &wanted.resolved(&mut told, self.names);
        let mut groups: Vec<Taken> = Vec::new();
        for (end, side) in model.world.sides.iter().filter(|(_, side)| side.queue == queue) {
            let group = self.names.group_of(&model.world, end);
            let is_wanted = match wanted {
                Wanted::Anything | Wanted::Next => may_give(side),
                Wanted::Conversation(wanted) => wanted == end,
                Wanted::Group(wanted) => *wanted == group && may_give(side),
            };
            let rows = side.unread();
            if is_wanted && !rows.is_empty() {
                match groups.iter_mut().find(|(other, _)| *other == group) {
                    Some((_, ends)) => ends.push((end.clone(), rows)),
                    None => groups.push((group, vec![(end.clone(), rows)])),
                }
            }
        }
        let limit = top.map_or(usize::MAX, |top| top as usize);
        let mut takes = Vec::new();
        for (group, ends) in groups {
            for order in orders(ends) {
                let mut left = limit;
                let cut = |(end, mut rows): (End, Vec<Row>)| {
                    rows.truncate(left);
                    left -= rows.len();
                    (end, rows)
                };
                let take: Vec<_> = order.into_iter().map(cut).filter(|(_, rows)| !rows.is_empty()).collect();
                if !takes.contains(&(Rc::clone(&group), take.clone())) {
                    takes.push((Rc::clone(&group), take));
                }
            }
        }
        takes
    }

    /// What was refused changes nothing, nor does a commit of nothing new: they are placed at the first chance.
    fn place_idle(&self, index: usize, path: &mut Path) {
        let number = self.first + index;
        for (record, known) in self.records.iter().enumerate() {
            if path.placed[record] || !(known.issued..=known.over).contains(&number) {
                continue;
            }
            let now = self.events.get(index).map_or(known.at, |event| event.now);
            path.placed[record] = match &known.outcome {
                Some(Outcome::Refused(code)) => {
                    let outcome = known.call.apply(&mut path.model.clone(), self.names, None, (known.at, now));
                    matches!(outcome, Ok(Err(told)) if told == *code)
                        || known.call.may_be_refused(&path.model, self.names, *code)
                }
                Some(Outcome::Answer(answer)) => known.call.is_idle(&path.model, answer),
                _ => false,
            };
        }
    }

    fn end(&mut self, index: usize, path: Path) {
        let left = self
            .records
            .iter()
            .zip(&path.placed)
            .find(|(record, is_placed)| !**is_placed && !matches!(record.outcome, Some(Outcome::Unknown)));
        if let Some((record, _)) = left {
            return self.stuck(index, || format!("{record:?} has no place"));
        }
        let mut path = path;
        path.model.sweep(self.names);
        let expected = Look::expected(&path.model, self.names, self.look, self.counts_failures);
        if expected == *self.look {
            self.look.tell(self.names, &mut path.model);
            if !self.found.contains(&path.model) {
                self.found.push(path.model);
            }
        } else {
            self.stuck(index + 1, || self.look.differences(&expected));
        }
    }

    fn stuck(&mut self, index: usize, why: impl Fn() -> String) {
        self.stuck_by(Kind::Unexplained, index, why);
    }

    fn stuck_by(&mut self, kind: Kind, index: usize, why: impl Fn() -> String) {
        if self.furthest.2.is_empty() || index > self.furthest.0 {
            self.furthest = (index, kind, why());
        }
    }
}

/// The orders in which conversations may come: all for a few, else each one first.
fn orders<T: Clone>(items: Vec<T>) -> Vec<Vec<T>> {
    if items.len() <= 1 {
        return vec![items];
    }
    let mut all = Vec::new();
    for first in 0..items.len() {
        let mut rest = items.clone();
        let head = rest.remove(first);
        let tails = if items.len() > 4 { vec![rest] } else { orders(rest) };
        all.extend(tails.into_iter().map(|tail| std::iter::once(head.clone()).chain(tail).collect()));
    }
    all
}

/// Every choice of so many.
fn subsets<T: Clone>(items: &[T], count: usize) -> Vec<Vec<T>> {
    match (items, count) {
        (_, 0) => vec![Vec::new()],
        ([], _) => Vec::new(),
        ([first, rest @ ..], count) => {
            let with = subsets(rest, count - 1).into_iter();
            let with = with.map(|chosen| std::iter::once(first.clone()).chain(chosen).collect());
            with.chain(subsets(rest, count)).collect()
        }
    }
}

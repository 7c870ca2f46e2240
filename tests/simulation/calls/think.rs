//! What an application may do.

use super::{Call, Later, Wanted};
use crate::conformance::random::model::{BIN, End, Ending};
use crate::conformance::support::chance::Chance;
use crate::failing::Unbury;
use crate::lanes::Enqueue;
use crate::model::{Begin, Goal, Related};
use crate::origin::{Mix, Origin};

impl Call {
    /// Something that an application may do.
    pub(crate) fn think_up(origin: &Origin) -> Option<Self> {
        let mut chance = origin.chance.borrow_mut();
        let call = Self::any(origin, &mut chance);
        // What is put off comes early where the clock is set back, which the model does not know.
        call.filter(|call| !origin.has_jumps || !matches!(call, Self::Alter(.., Some(false))))
    }

    fn any(origin: &Origin, chance: &mut Chance) -> Option<Self> {
        match origin.mix {
            Mix::Dialogs => Self::dialogs(origin, chance),
            // With messages under way.
            Mix::Later | Mix::Elsewhere if chance.one_in(16) => {
                let ending = chance.pick(&[Ending::Plain, Ending::Plain, Ending::Error, Ending::Cleanup])?;
                Some(Self::End(origin.any_sender(chance)?, ending, false))
            }
            Mix::Later | Mix::Elsewhere if chance.one_in(3) => Later::think_up(origin, chance).map(Self::Later),
            Mix::Lanes | Mix::Later | Mix::Elsewhere if chance.one_in(3) => Self::dialogs(origin, chance),
            Mix::Lanes | Mix::Later | Mix::Elsewhere => Self::lanes(origin, chance),
        }
    }

    /// Conversations, groups and timers.
    fn dialogs(origin: &Origin, chance: &mut Chance) -> Option<Self> {
        let queue = origin.some_queue(chance);
        let end = origin.any_end(chance);
        Some(match chance.below(40) {
            0..=5 => Self::Begin(Begin {
                from: chance.below(4),
                to: chance.below(5),
                related: if chance.one_in(2) { Self::related(origin, chance, end) } else { None },
                lifetime: if chance.one_in(4) { chance.pick(&[1.0, 500.0, 20_000.0]) } else { None },
                reuse: if chance.one_in(4) { chance.pick(&["a", "b"]) } else { None },
            }),
            6..=15 => {
                let end = end?;
                let kind = if chance.one_in(2) {
                    "Note"
                } else if end.1 != chance.one_in(20) {
                    "Order"
                } else {
                    "Confirm"
                };
                let count = 1 + chance.below(3);
                let mut ends = vec![end];
                if kind == "Note" && chance.one_in(3) {
                    let other = origin.any_end(chance);
                    ends.extend(other.filter(|other| *other != ends[0]));
                }
                let count = if ends.len() > 1 { ends.len() } else { count };
                Self::Send(ends, kind, (0..count).map(|_| origin.body()).collect())
            }
            16..=23 => {
                let wanted = match (chance.below(4), end) {
                    (0, Some(end)) => Wanted::Conversation(end),
                    (1, end) => origin.some_group(chance, end).map_or(Wanted::Anything, Wanted::Group),
                    _ => Wanted::Anything,
                };
                let top = chance.pick(&[None, Some(1), Some(2), Some(5)])?;
                Self::Receive(queue, wanted, top, chance.pick(&[None, Some(10.0), Some(4_000.0), Some(20_000.0)])?)
            }
            24 => Self::GetGroup(queue),
            25..=28 => {
                let ending = chance.pick(&[Ending::Plain, Ending::Plain, Ending::Error, Ending::Cleanup])?;
                Self::End(end?, ending, chance.one_in(3))
            }
            29..=31 => {
                let name = chance.pick(&["", "a"])?;
                let timeout = chance.pick(&[Some(0.0), Some(1.0), Some(500.0), Some(20_000.0), None])?;
                Self::Timer(end?, name, timeout, origin.body())
            }
            32..=33 => {
                let goal = match origin.any_end(chance).filter(|_| !chance.one_in(4)) {
                    Some(other) => Goal::Beside(other),
                    None => Goal::New(origin.new_group()),
                };
                Self::Move(end?, goal)
            }
            34 => Self::SetState(end?, origin.body()),
            35 => Self::GetState(end?),
            36 => Self::Alter(queue, Some(chance.one_in(2)), None),
            37 => Self::Alter(queue, None, Some(!chance.one_in(3))),
            38 => Self::Poll,
            _ => return None,
        })
    }

    fn related(origin: &Origin, chance: &mut Chance, end: Option<End>) -> Option<Related> {
        Some(match (chance.below(4), end) {
            (0 | 1, Some(end)) => Related::Conversation(end),
            (2, end) => Related::Group(origin.some_group(chance, end)?),
            _ => Related::Group(origin.new_group()),
        })
    }

    /// Lanes, failing handlers, and definitions that change.
    fn lanes(origin: &Origin, chance: &mut Chance) -> Option<Self> {
        let queue = origin.some_queue(chance);
        Some(match chance.below(40) {
            0..=13 => {
                // More than a run has, now and then.
                let count = if chance.one_in(200) { 300 } else { 1 + chance.below(3) };
                Self::Enqueue(Enqueue::think_up(origin, chance, count))
            }
            14..=25 => {
                let top = chance.pick(&[None, Some(1), Some(1), Some(3)])?;
                Self::Receive(queue, Wanted::Anything, top, chance.pick(&[None, None, Some(4_000.0)])?)
            }
            26..=29 => {
                let one = origin.any_failed(chance).filter(|_| !chance.one_in(8));
                let limit = if one.is_none() && chance.one_in(2) { Some(1) } else { None };
                Self::Unbury(Unbury { discard: chance.one_in(4), one, limit, alone: false })
            }
            30..=31 => Self::Resume,
            32 => Self::MoveService(chance.below(4), chance.pick(&[0, 1, 2, BIN])?),
            33 if chance.one_in(3) => Self::DropService(chance.below(4)),
            34..=35 => Self::DropBin,
            36..=38 => {
                let service = (chance.below(4), chance.pick(&[0, 1, 2, BIN])?);
                Self::Define(Some(service).filter(|_| chance.one_in(2)))
            }
            _ => return None,
        })
    }
}

impl Enqueue {
    pub(super) fn think_up(origin: &Origin, chance: &mut Chance, count: usize) -> Self {
        let ordered = !chance.one_in(4);
        let dedupe =
            if chance.one_in(4) { chance.pick(&["x", "y"]).zip(chance.pick(&[500.0, 20_000.0])) } else { None };
        // For how long an id is known hangs on how the clock is set.
        let dedupe = dedupe.filter(|_| !origin.has_jumps);
        let count = if dedupe.is_some() { 1 } else { count };
        let enqueue = Self {
            queue: chance.pick(&[0, 1, 1, 2, BIN]).unwrap_or_default(),
            messages: (0..count).map(|_| (origin.uuid(), origin.body())).collect(),
            key: chance.pick(&["a", "b", ""]).filter(|key| ordered && !key.is_empty()),
            ordered,
            priority: if chance.one_in(3) { 9 } else { 5 },
            dedupe,
        };
        if enqueue.ordered && enqueue.key.is_none() {
            let bodies = enqueue.messages.iter().map(|(_, body)| body.clone());
            origin.names.borrow_mut().plain.extend(bodies);
        }
        enqueue
    }
}

//! What a unit of work does to delayed messages: noted one by one while its verbs run, and made runs of at its end. So those that are stored
//! together become one run, whatever verbs they are of, and what goes again before the end was never stored.

use std::rc::Rc;

use uuid::Uuid;

use super::{Delayed, Place, Run, custom, run};
use crate::body::Value;
use crate::columns::run_length;
use crate::map::Map;
use crate::record;
use crate::stop::{Outcome, Stop};
use crate::store::{Change, Key, StoreName};
use crate::work::Work;

/// What becomes of a message.
#[derive(Clone, Debug)]
pub(crate) struct Shift {
    /// Where the store has it, if it is to be taken out of there.
    pub(super) from: Option<Place>,
    /// How it is to be stored; `None`: it is gone.
    pub(super) to: Option<Rc<Delayed>>,
}

impl Shift {
    /// It was taken out of the store, and is nowhere.
    pub(super) fn gone() -> Self {
        Self { from: None, to: None }
    }

    pub(super) fn is_gone(&self) -> bool {
        self.to.is_none()
    }
}

impl Work<'_> {
    /// Notes what becomes of a message. `from`: where the store has it, if it was found there.
    pub(super) fn shift(&mut self, id: Uuid, from: Option<Place>, to: Option<Delayed>) {
        if let Some(delayed) = to.as_ref().filter(|delayed| delayed.hop.is_none()) {
            self.changes.notice.due_by(delayed.place.at);
        }
        self.changes.notice.delayed = true;
        let from = self.changes.delayed.get(&id).and_then(|known| known.from).or(from);
        self.changes.note_delayed(id, Shift { from, to: to.map(Rc::new) });
    }

    /// Writes all of it.
    pub(crate) fn flush_delayed(&mut self) -> Outcome<()> {
        if self.changes.delayed.is_empty() {
            return Ok(());
        }
        for Run { key, messages } in self.runs_to_change()? {
            let is_left = |delayed: &Delayed| !self.is_taken_out(delayed.id);
            let left: Vec<_> = messages.into_iter().filter(is_left).map(Rc::new).collect();
            run::delete(self, key);
            run::put(self, &left);
        }
        let mut stored: Map<Key, Rc<Delayed>> = Map::default();
        let changed: Vec<Rc<Delayed>> = self.changes.delayed.values().filter_map(|shift| shift.to.clone()).collect();
        for delayed in changed {
            match delayed.hop {
                Some(hop) => {
                    self.put_apart(&delayed);
                    custom::put(self, &delayed, hop);
                }
                None => _ = stored.insert(delayed.place.key(), delayed),
            }
        }
        let stored: Vec<Rc<Delayed>> = stored.values().cloned().collect();
        let mut rest = stored.as_slice();
        while !rest.is_empty() {
            let (together, others) = rest.split_at(length(rest));
            together.iter().for_each(|delayed| self.put_apart(delayed));
            run::put(self, together);
            rest = others;
        }
        Ok(())
    }

    fn is_taken_out(&self, id: Uuid) -> bool {
        self.changes.delayed.get(&id).is_some_and(|shift| shift.from.is_some())
    }

    /// The runs that messages are to be taken out of. Those of a side that has ended are gone.
    fn runs_to_change(&mut self) -> Outcome<Vec<Run>> {
        let from: Vec<Place> = self.changes.delayed.values().filter_map(|shift| shift.from).collect();
        let (mut runs, mut is_missing) = (Vec::<Run>::new(), false);
        for place in from {
            let has_it = |run: &Run| run.messages.iter().any(|delayed| delayed.place == place);
            if runs.iter().any(has_it) {
                continue;
            }
            match run::at(self, place) {
                Ok(run) => runs.extend(run),
                // Those that have not been read are read together.
                Err(Stop::Missing) => is_missing = true,
                Err(stop) => return Err(stop),
            }
        }
        runs.retain(|run| run.key.side.is_none_or(|side| !self.changes.ended.contains(&side)));
        if is_missing { Err(Stop::Missing) } else { Ok(runs) }
    }

    /// What of a message is not in its run: its large body, and its name.
    fn put_apart(&mut self, delayed: &Delayed) {
        if delayed.is_large() {
            let body = delayed.body.value.value();
            // One that was missing is still.
            if !body.is_undefined() {
                self.write(Change::Put(StoreName::Bodies, delayed.body_key(), body));
            }
        }
        if delayed.is_named && delayed.hop.is_none() {
            let Place { at, stamp } = delayed.place;
            let place = Value::list(vec![Value::from(1u32), Value::from(at), record::value(stamp)]);
            self.write(Change::Put(StoreName::Members, Delayed::name(delayed.id), place));
        }
    }
}

/// How many of these messages become one run: their stamps follow each other, and they have everything else in common that a run says once.
fn length(messages: &[Rc<Delayed>]) -> usize {
    let Some(first) = messages.first().filter(|first| first.seen.is_none()) else { return 1 };
    let is_like_first = |(delayed, stamp): &(&Rc<Delayed>, u64)| {
        delayed.place == Place { stamp: *stamp, ..first.place }
            && delayed.to == first.to
            && (delayed.is_named, delayed.time, delayed.waits) == (first.is_named, first.time, first.waits)
            && delayed.seen.is_none()
    };
    let alike = messages.iter().zip(first.place.stamp..).take_while(is_like_first);
    run_length(alike.map(|(delayed, _)| &delayed.body))
}

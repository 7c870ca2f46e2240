//! What the delayed store has, as the journal sees it: who stored it, and when it is due.

use std::cell::RefCell;
use std::collections::BTreeMap;

use pocket_broker::store::{Change, Key};

use crate::executor::TabId;

/// The longest sleep of a poller.
const LONGEST: f64 = 60_000.0;

/// A number in the key of a run.
fn part(key: &Key, index: usize) -> f64 {
    match key {
        Key::List(parts) => match parts.get(index) {
            Some(Key::Number(number)) => *number,
            _ => panic!("{key:?} has no number at {index}"),
        },
        key => panic!("{key:?} is no list"),
    }
}

fn time_of(key: &Key) -> f64 {
    part(key, 0)
}

/// How many messages it has.
fn count_of(key: &Key) -> usize {
    part(key, 2) as usize
}

/// Delayed messages that wait together.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) by: TabId,
    pub(crate) since: f64,
    at: f64,
    /// For how long it has been due while somebody was there who knew of it and nobody had anything else to do.
    waited: f64,
}

#[derive(Default)]
pub(crate) struct Waiting(RefCell<BTreeMap<Key, Stored>>);

impl Waiting {
    /// A commit has changed this. Gives how many messages have gone: whoever cancels names a run, a dispatch a range.
    pub(crate) fn change(&self, by: TabId, now: f64, changes: Vec<Change>) -> usize {
        let mut waiting = self.0.borrow_mut();
        let mut gone = 0;
        let mut before: Option<Stored> = None;
        for change in changes {
            match change {
                Change::Put(_, key, _) => {
                    let at = time_of(&key);
                    // What is left of a run waits as it did.
                    let left = before.take().filter(|before| before.at == at);
                    waiting.insert(key, left.unwrap_or(Stored { by, since: now, at, waited: 0.0 }));
                }
                Change::Delete(_, key) => before = waiting.remove(&key),
                Change::DeleteRange(_, range) => {
                    gone += waiting.keys().filter(|key| range.contains(key)).map(count_of).sum::<usize>();
                    waiting.retain(|key, _| !range.contains(key));
                }
            }
        }
        gone
    }

    /// Time passes while nobody has anything to do. Gives what has waited for longer than a poller sleeps.
    pub(crate) fn pass(&self, from: f64, to: f64, is_known: impl Fn(&Stored) -> bool) -> Option<Stored> {
        let mut waiting = self.0.borrow_mut();
        let mut late = None;
        for stored in waiting.values_mut().take_while(|stored| stored.at < to) {
            let waited = stored.waited + to - from.max(stored.at);
            stored.waited = if is_known(stored) { waited } else { 0.0 };
            if stored.waited > LONGEST {
                late = Some(stored.clone());
            }
        }
        late
    }
}

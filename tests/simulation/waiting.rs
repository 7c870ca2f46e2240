//! What the delayed store has, as the journal sees it: who stored it, and when it is due.

use std::cell::RefCell;
use std::collections::BTreeMap;

use pocket_broker::store::{Change, Key};

use crate::executor::TabId;

/// The longest sleep of a poller.
const LONGEST: f64 = 60_000.0;

fn time_of(key: &Key) -> f64 {
    match key {
        Key::List(parts) => match parts.first() {
            Some(Key::Number(at)) => *at,
            _ => panic!("{key:?} says no time"),
        },
        key => panic!("{key:?} says no time"),
    }
}

/// A delayed message that waits.
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
    /// A commit has changed this. Gives how many have gone: whoever cancels names one, a dispatch a range.
    pub(crate) fn change(&self, by: TabId, now: f64, changes: Vec<Change>) -> usize {
        let mut waiting = self.0.borrow_mut();
        let mut gone = 0;
        for change in changes {
            match change {
                Change::Put(_, key, _) => {
                    let at = time_of(&key);
                    waiting.insert(key, Stored { by, since: now, at, waited: 0.0 });
                }
                Change::Delete(_, key) => _ = waiting.remove(&key),
                Change::DeleteRange(_, range) => {
                    let before = waiting.len();
                    waiting.retain(|key, _| !range.contains(key));
                    gone += before - waiting.len();
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

//! The store as one tab calls it.

use std::rc::Rc;

use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, pending};
use pocket_broker::clock::{Clock, Timer};
use pocket_broker::error::{Error, ErrorCode, Result};
use pocket_broker::{DelayedFilter, DelayedMessage, DelayedMessageStore, Fetched, TransactionMode};

use super::{Row, Shelf, Trouble};
use crate::conformance::support::host::tick;
use crate::executor::TabId;
use crate::sabotage::Sabotage;
use crate::time::TabTimer;

/// After so many milliseconds nobody waits for an answer.
const LIMIT: f64 = 60_000.0;

pub(super) struct TabShelf {
    pub(super) shelf: Rc<Shelf>,
    pub(super) tab: TabId,
    /// Things may go wrong.
    pub(super) is_watched: bool,
}

impl TabShelf {
    fn call<T: std::fmt::Debug + 'static>(
        &self,
        method: &'static str,
        id: Rc<str>,
        work: impl FnOnce(&Shelf, Option<Trouble>) -> T + 'static,
    ) -> LocalBoxFuture<'static, Result<T>> {
        let (shelf, tab, is_watched) = (Rc::clone(&self.shelf), self.tab, self.is_watched);
        async move {
            if !is_watched {
                return Ok(work(&shelf, None));
            }
            let asked_at = shelf.time.now();
            tick().await;
            if shelf.time.now() - asked_at > LIMIT {
                // Nobody waits any more: it was taken back.
                return pending().await;
            }
            shelf.catch_up(shelf.time.now());
            let failed = |text: &str| Error::new(ErrorCode::DelayedStoreFailed, format!("{method}: {text}"));
            let mut trouble = shelf.trouble(method);
            if method == "store" && (trouble == Some(Trouble::Refuses) || shelf.has_refused(&id)) {
                let has_it = shelf.row(&id, |_| ()).is_some() || shelf.is_over(&id);
                if has_it {
                    trouble = trouble.filter(|trouble| *trouble != Trouble::Refuses);
                } else {
                    shelf.refused.borrow_mut().insert(Rc::clone(&id));
                    shelf.tell(tab, method, &id, &"refuses");
                    return Err(failed("never").with("unrecoverable", true));
                }
            }
            let timer = TabTimer { time: Rc::clone(&shelf.time), tab };
            match trouble {
                Some(Trouble::Fails) => {
                    shelf.tell(tab, method, &id, &"fails");
                    return Err(failed("out of order"));
                }
                Some(Trouble::Hangs) => {
                    shelf.tell(tab, method, &id, &"hangs");
                    return pending().await;
                }
                Some(Trouble::IsLate(ms)) if shelf.one_in(2) => timer.sleep(ms).await,
                _ => {}
            }
            if shelf.time.now() - asked_at > LIMIT {
                return pending().await;
            }
            let answer = work(&shelf, trouble);
            shelf.tell(tab, method, &id, &(trouble, &answer));
            match trouble {
                Some(Trouble::IsLate(ms)) => timer.sleep(ms).await,
                Some(Trouble::IsSilent) => return pending().await,
                _ => tick().await,
            }
            match trouble {
                Some(Trouble::AnswerIsLost | Trouble::Lingers(_)) => Err(failed("the answer is lost")),
                _ => Ok(answer),
            }
        }
        .boxed_local()
    }
}

impl DelayedMessageStore for TabShelf {
    fn setup_infrastructure(&self, _: &str, _: TransactionMode, _: &str) -> LocalBoxFuture<'static, Result<()>> {
        self.call("setupInfrastructure", "".into(), |_, _| ())
    }

    fn initialize(&self, _: &str, _: TransactionMode) -> LocalBoxFuture<'static, Result<()>> {
        self.call("initialize", "".into(), |_, _| ())
    }

    fn store(&self, message: DelayedMessage) -> LocalBoxFuture<'static, Result<bool>> {
        self.call("store", Rc::clone(&message.message_id), move |shelf, trouble| {
            if shelf.breaks(Sabotage::Leak) {
                return true;
            }
            if let Some(Trouble::Lingers(ms)) = trouble {
                shelf.lingering.borrow_mut().push((shelf.time.now() + ms, message));
                return false;
            }
            shelf.put(message) != (trouble == Some(Trouble::Lies))
        })
    }

    fn remove(&self, message: DelayedMessage) -> LocalBoxFuture<'static, Result<bool>> {
        self.call("remove", Rc::clone(&message.message_id), move |shelf, trouble| {
            let id = &message.message_id;
            // What a cancel comes to hangs on the answer: where nothing else does, it may be a lie.
            let is_there = shelf.row(id, |_| ()).is_some();
            let lies = trouble == Some(Trouble::Lies) && is_there && shelf.is_over(id);
            if lies && shelf.one_in(2) {
                return true;
            }
            shelf.remove(id) != lies
        })
    }

    fn increment_failure_count(&self, message: DelayedMessage, next: f64) -> LocalBoxFuture<'static, Result<bool>> {
        self.call("incrementFailureCount", Rc::clone(&message.message_id), move |shelf, trouble| {
            if trouble == Some(Trouble::Lies) {
                return shelf.one_in(2);
            }
            let count = |row: &mut Row| {
                row.message.number_of_retries += 1;
                row.message.time = next;
                row.held_until = None;
            };
            shelf.row(&message.message_id, count).is_some()
        })
    }

    fn next(&self) -> LocalBoxFuture<'static, Result<Option<f64>>> {
        self.call("next", "".into(), |shelf, trouble| {
            let rows = shelf.rows.borrow();
            let next = rows.iter().map(|row| row.message.time).reduce(f64::min);
            // It may be somewhat behind.
            next.filter(|_| trouble != Some(Trouble::Lies))
        })
    }

    fn fetch_next_due_timeout(&self, at: f64) -> LocalBoxFuture<'static, Result<Fetched>> {
        self.call("fetchNextDueTimeout", "".into(), move |shelf, trouble| {
            if shelf.breaks(Sabotage::Idle) {
                return Fetched::Nothing;
            }
            shelf.fetch(at, trouble == Some(Trouble::Lies))
        })
    }

    fn release(&self, message: DelayedMessage) -> LocalBoxFuture<'static, Result<()>> {
        self.call("release", Rc::clone(&message.message_id), move |shelf, trouble| {
            if trouble != Some(Trouble::Lies) {
                shelf.row(&message.message_id, |row| row.held_until = None);
            }
        })
    }

    fn select(&self, filter: &DelayedFilter) -> LocalBoxFuture<'static, Result<Option<Vec<DelayedMessage>>>> {
        let filter = filter.clone();
        self.call("select", "".into(), move |shelf, _| {
            let rows = shelf.rows.borrow();
            let mut messages: Vec<DelayedMessage> = rows.iter().map(|row| row.message.clone()).collect();
            messages.retain(|message| filter.before.is_none_or(|before| message.time < before));
            messages.sort_by(|one, other| one.time.total_cmp(&other.time));
            Some(messages)
        })
    }

    fn count(&self) -> LocalBoxFuture<'static, Result<Option<u64>>> {
        self.call("count", "".into(), |shelf, _| Some(shelf.rows.borrow().len() as u64))
    }
}

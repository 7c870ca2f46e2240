//! A delayed message store outside of the broker's database, which does as its contract says until it is told otherwise.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use pocket_broker::clock::Clock;
use pocket_broker::error::{Error, ErrorCode, Result};
use pocket_broker::store::Faults;
use pocket_broker::{DelayedFilter, DelayedMessage, DelayedMessageStore, Fetched, TransactionMode};

use super::host::{ManualClock, tick};

std::thread_local! {
    /// How many calls are being answered, and the storage beside.
    static CALLS: Cell<u32> = const { Cell::new(0) };
    static STORAGE: RefCell<Option<Faults>> = const { RefCell::new(None) };
}

/// The storage that [`settle`] waits for, too.
pub(crate) fn watch(faults: &Faults) {
    STORAGE.set(Some(faults.clone()));
}

/// A call that is being answered.
struct Answering;

impl Answering {
    fn new() -> Self {
        CALLS.set(CALLS.get() + 1);
        Self
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        CALLS.set(CALLS.get() - 1);
    }
}

/// Lets everybody run until nobody does anything: neither a store elsewhere nor the storage has something to answer, and that for a while.
pub(crate) async fn settle() {
    let mut quiet = 0;
    for _ in 0..PATIENCE {
        tick().await;
        let is_busy =
            CALLS.get() > 0 || STORAGE.with_borrow(|faults| faults.as_ref().is_some_and(|faults| faults.open() > 0));
        quiet = if is_busy { 0 } else { quiet + 1 };
        if quiet == QUIET {
            return;
        }
    }
    panic!("somebody goes on and on: {} calls of a store elsewhere are open", CALLS.get());
}

const PATIENCE: u32 = 3_000;
const QUIET: u32 = 10;

/// For so many milliseconds whoever has fetched a message holds it.
const HOLD: f64 = 60_000.0;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Trouble {
    /// Nothing is done, and it says so.
    Fails,
    /// It is done, and the answer is lost.
    AnswerIsLost,
    /// Nothing is done, and nothing is ever answered.
    Hangs,
    /// It is done, and the answer comes with [`Elsewhere::answer`].
    AnswersLate,
    /// It says that it never will.
    Refuses,
}

#[derive(Clone, Debug)]
struct Row {
    message: DelayedMessage,
    order: u64,
    held: Option<(u64, f64)>,
}

#[derive(Default)]
struct Inner {
    rows: Vec<Row>,
    stored: u64,
    calls: Vec<&'static str>,
    /// Once, and from now on.
    next: Vec<(&'static str, Trouble)>,
    always: Vec<(&'static str, Trouble)>,
    /// What `fetchNextDueTimeout` gives first.
    planted: Vec<Fetched>,
    lies: Vec<&'static str>,
    /// The bodies that it never stores.
    refused: Vec<&'static str>,
    /// Answers that are still to come.
    late: Vec<oneshot::Sender<()>>,
    /// What goes wrong in the broker's database as soon as a message has been fetched.
    then: Vec<Rc<dyn Fn()>>,
}

/// The store, as one instance of it.
#[derive(Clone)]
pub(crate) struct Elsewhere {
    inner: Rc<RefCell<Inner>>,
    clock: Rc<ManualClock>,
    instance: u64,
    has_views: bool,
}

impl Elsewhere {
    pub(crate) fn new(clock: Rc<ManualClock>) -> Self {
        Self { inner: Rc::default(), clock, instance: 1, has_views: true }
    }

    /// The same messages, as another instance.
    pub(crate) fn of(&self, instance: u64) -> Self {
        Self { instance, ..self.clone() }
    }

    pub(crate) fn without_views(&self) -> Self {
        Self { has_views: false, ..self.clone() }
    }

    /// The next call of a method goes wrong.
    pub(crate) fn once(&self, method: &'static str, trouble: Trouble) {
        self.inner.borrow_mut().next.push((method, trouble));
    }

    /// All of them do, until it is well again.
    pub(crate) fn always(&self, method: &'static str, trouble: Trouble) {
        self.inner.borrow_mut().always.push((method, trouble));
    }

    pub(crate) fn is_well(&self) {
        self.inner.borrow_mut().always.clear();
    }

    /// It fails to store messages with this body.
    pub(crate) fn never_stores(&self, body: &'static str) {
        self.inner.borrow_mut().refused.push(body);
    }

    /// What was to be answered late is answered now.
    pub(crate) fn answer(&self) {
        self.inner.borrow_mut().late.clear();
    }

    /// A method says what is not so: `fetchNextDueTimeout` gives what is not due, and what is held; `remove` and `incrementFailureCount` do nothing.
    pub(crate) fn lies(&self, method: &'static str) {
        self.inner.borrow_mut().lies.push(method);
    }

    /// It says what is so again.
    pub(crate) fn is_honest(&self) {
        self.inner.borrow_mut().lies.clear();
    }

    /// As soon as the next message has been fetched, the clock is another one.
    pub(crate) fn then_passes(&self, ms: f64) {
        let clock = Rc::clone(&self.clock);
        self.then(move || clock.advance(ms));
    }

    /// As soon as the next message has been fetched, this happens.
    pub(crate) fn then(&self, happens: impl Fn() + 'static) {
        self.inner.borrow_mut().then.push(Rc::new(happens));
    }

    /// Somebody else has stored a message for the kitchen.
    pub(crate) fn foreign(&self, body: &str, time: f64) -> Rc<str> {
        let mut inner = self.inner.borrow_mut();
        inner.stored += 1;
        let id: Rc<str> =
            uuid::Uuid::from_u128(0x4000_8000_0000_0000_0000 + u128::from(inner.stored)).to_string().into();
        let properties = [("messageType", "DEFAULT"), ("priority", "5")];
        let message = DelayedMessage {
            destination: "kitchen".into(),
            time,
            properties: properties.map(|(name, value)| (name.into(), value.into())).to_vec(),
            body: pocket_broker::body::Body::small(body.into()),
            ..DelayedMessage::with_id(Rc::clone(&id))
        };
        let order = inner.stored;
        inner.rows.push(Row { message, order, held: None });
        id
    }

    /// Somebody else has removed a message.
    pub(crate) fn forget(&self, id: &str) {
        self.inner.borrow_mut().rows.retain(|row| &*row.message.message_id != id);
    }

    /// What is fetched first.
    pub(crate) fn plant(&self, fetched: Fetched) {
        self.inner.borrow_mut().planted.push(fetched);
    }

    /// What was called since the last time that somebody asked.
    pub(crate) fn calls(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.inner.borrow_mut().calls)
    }

    /// The bodies that it holds.
    pub(crate) fn bodies(&self) -> Vec<String> {
        let inner = self.inner.borrow();
        inner.rows.iter().map(|row| row.message.body.value.value().text().unwrap_or_default()).collect()
    }

    pub(crate) fn messages(&self) -> Vec<DelayedMessage> {
        self.inner.borrow().rows.iter().map(|row| row.message.clone()).collect()
    }

    fn call<T: 'static>(
        &self,
        method: &'static str,
        work: impl FnOnce(&mut Inner, f64, u64) -> T + 'static,
    ) -> LocalBoxFuture<'static, Result<T>> {
        let (inner, clock, instance) = (Rc::clone(&self.inner), Rc::clone(&self.clock), self.instance);
        async move {
            let answering = Answering::new();
            tick().await;
            let trouble = {
                let mut inner = inner.borrow_mut();
                inner.calls.push(method);
                let once = inner.next.iter().position(|(other, _)| *other == method);
                let always = inner.always.iter().find(|(other, _)| *other == method).map(|(_, trouble)| *trouble);
                once.map(|index| inner.next.remove(index).1).or(always)
            };
            let failed = |text: &str| Error::new(ErrorCode::DelayedStoreFailed, format!("{method}: {text}"));
            match trouble {
                Some(Trouble::Fails) => return Err(failed("out of order")),
                Some(Trouble::Refuses) => return Err(failed("never").with("unrecoverable", true)),
                Some(Trouble::Hangs) => {
                    drop(answering);
                    return std::future::pending().await;
                }
                Some(Trouble::AnswerIsLost | Trouble::AnswersLate) | None => {}
            }
            let answer = work(&mut inner.borrow_mut(), clock.now(), instance);
            let was_fetched =
                method == "fetchNextDueTimeout" && inner.borrow().rows.iter().any(|row| row.held.is_some());
            let then = if was_fetched { std::mem::take(&mut inner.borrow_mut().then) } else { Vec::new() };
            then.iter().for_each(|happens| happens());
            if trouble == Some(Trouble::AnswersLate) {
                let (sender, answered) = oneshot::channel();
                inner.borrow_mut().late.push(sender);
                drop(answering);
                // Let go of, it is answered.
                let _ = answered.await;
                return Ok(answer);
            }
            tick().await;
            match trouble {
                Some(_) => Err(failed("the answer is lost")),
                None => Ok(answer),
            }
        }
        .boxed_local()
    }
}

impl DelayedMessageStore for Elsewhere {
    fn setup_infrastructure(&self, _: &str, _: TransactionMode, _: &str) -> LocalBoxFuture<'static, Result<()>> {
        self.call("setupInfrastructure", |_, _, _| ())
    }

    fn initialize(&self, _: &str, _: TransactionMode) -> LocalBoxFuture<'static, Result<()>> {
        self.call("initialize", |_, _, _| ())
    }

    fn store(&self, message: DelayedMessage) -> LocalBoxFuture<'static, Result<bool>> {
        let body = message.body.value.value().text().unwrap_or_default();
        if self.inner.borrow().refused.iter().any(|refused| **refused == *body) {
            self.once("store", Trouble::Fails);
        }
        self.call("store", move |inner, _, _| {
            if inner.rows.iter().any(|row| row.message.message_id == message.message_id) {
                return false;
            }
            inner.stored += 1;
            let order = inner.stored;
            inner.rows.push(Row { message, order, held: None });
            true
        })
    }

    fn remove(&self, message: DelayedMessage) -> LocalBoxFuture<'static, Result<bool>> {
        self.call("remove", move |inner, _, _| {
            let before = inner.rows.len();
            if inner.lies.contains(&"remove") {
                return true;
            }
            inner.rows.retain(|row| row.message.message_id != message.message_id);
            inner.rows.len() < before
        })
    }

    fn increment_failure_count(&self, message: DelayedMessage, next: f64) -> LocalBoxFuture<'static, Result<bool>> {
        self.call("incrementFailureCount", move |inner, _, _| {
            if inner.lies.contains(&"incrementFailureCount") {
                return true;
            }
            let row = inner.rows.iter_mut().find(|row| row.message.message_id == message.message_id);
            row.map(|row| {
                row.message.number_of_retries += 1;
                row.message.time = next;
                row.held = None;
            })
            .is_some()
        })
    }

    fn next(&self) -> LocalBoxFuture<'static, Result<Option<f64>>> {
        self.call("next", |inner, _, _| inner.rows.iter().map(|row| row.message.time).reduce(f64::min))
    }

    fn fetch_next_due_timeout(&self, at: f64) -> LocalBoxFuture<'static, Result<Fetched>> {
        self.call("fetchNextDueTimeout", move |inner, now, instance| {
            if let Some(planted) = inner.planted.pop() {
                inner.then.drain(..).for_each(|happens| happens());
                return planted;
            }
            let is_lying = inner.lies.contains(&"fetchNextDueTimeout");
            let free = inner
                .rows
                .iter_mut()
                .filter(|row| is_lying || (row.message.time <= at && row.held.is_none_or(|(_, until)| until <= now)));
            let first = free.min_by(|one, other| {
                (one.message.time, one.order)
                    .partial_cmp(&(other.message.time, other.order))
                    .expect("times are numbers")
            });
            first.map_or(Fetched::Nothing, |row| {
                row.held = Some((instance, now + HOLD));
                Fetched::Message(row.message.clone())
            })
        })
    }

    fn release(&self, message: DelayedMessage) -> LocalBoxFuture<'static, Result<()>> {
        self.call("release", move |inner, _, _| {
            let row = inner.rows.iter_mut().find(|row| row.message.message_id == message.message_id);
            row.into_iter().for_each(|row| row.held = None);
        })
    }

    fn select(&self, filter: &DelayedFilter) -> LocalBoxFuture<'static, Result<Option<Vec<DelayedMessage>>>> {
        let (filter, has_views) = (filter.clone(), self.has_views);
        self.call("select", move |inner, _, _| {
            let mut rows: Vec<&Row> = inner.rows.iter().collect();
            rows.sort_by(|one, other| one.message.time.total_cmp(&other.message.time));
            let messages = rows.into_iter().map(|row| row.message.clone());
            let wanted = messages.filter(|message| filter.before.is_none_or(|before| message.time < before));
            has_views.then(|| wanted.collect())
        })
    }

    fn count(&self) -> LocalBoxFuture<'static, Result<Option<u64>>> {
        let has_views = self.has_views;
        self.call("count", move |inner, _, _| {
            has_views.then(|| u64::try_from(inner.rows.len()).expect("a small number"))
        })
    }
}

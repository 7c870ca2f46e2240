//! Virtual time: it passes when nobody has anything else to do, or when chance says so.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use pocket_broker::clock::{Clock, Instant, Timer};

use crate::executor::TabId;

pub(crate) const START: f64 = 1_700_000_000_000.0;

/// The clock of the whole origin, and who sleeps.
pub(crate) struct Time {
    now: Cell<f64>,
    sleepers: RefCell<Vec<Sleeper>>,
}

struct Sleeper {
    tab: TabId,
    at: f64,
    wake: oneshot::Sender<()>,
}

impl Time {
    pub(crate) fn new() -> Rc<Self> {
        Rc::new(Self { now: Cell::new(START), sleepers: RefCell::default() })
    }

    /// When the next who is not frozen wants to be woken.
    pub(crate) fn next(&self, may_run: impl Fn(TabId) -> bool) -> Option<f64> {
        self.sleepers.borrow_mut().retain(|sleeper| !sleeper.wake.is_canceled());
        let sleepers = self.sleepers.borrow();
        sleepers.iter().filter(|sleeper| may_run(sleeper.tab)).map(|sleeper| sleeper.at).min_by(f64::total_cmp)
    }

    /// Lets time pass, and wakes who is due. Those who are frozen are woken when they come back.
    pub(crate) fn advance_to(&self, at: f64, may_run: impl Fn(TabId) -> bool) {
        self.now.set(self.now.get().max(at));
        let now = self.now.get();
        let (due, others) =
            self.sleepers.take().into_iter().partition(|sleeper| sleeper.at <= now && may_run(sleeper.tab));
        self.sleepers.replace(others);
        let due: Vec<Sleeper> = due;
        due.into_iter().for_each(|sleeper| _ = sleeper.wake.send(()));
    }
}

impl Clock for Time {
    fn now(&self) -> Instant {
        self.now.get()
    }
}

/// The clock on the wall, as applications and rules see it: somebody may set it.
pub(crate) struct Wall {
    pub(crate) time: Rc<Time>,
    ahead: Cell<f64>,
}

impl Wall {
    pub(crate) fn new(time: &Rc<Time>) -> Rc<Self> {
        Rc::new(Self { time: Rc::clone(time), ahead: Cell::new(0.0) })
    }

    /// Sets it: so many milliseconds before or behind real time.
    pub(crate) fn set(&self, ahead: f64) {
        self.ahead.set(ahead);
    }
}

impl Clock for Wall {
    fn now(&self) -> Instant {
        self.time.now() + self.ahead.get()
    }
}

/// The timer of one tab.
pub(crate) struct TabTimer {
    pub(crate) time: Rc<Time>,
    pub(crate) tab: TabId,
}

impl Timer for TabTimer {
    fn sleep(&self, ms: f64) -> LocalBoxFuture<'static, ()> {
        let (wake, woken) = oneshot::channel();
        let at = self.time.now.get() + ms.max(0.0);
        self.time.sleepers.borrow_mut().push(Sleeper { tab: self.tab, at, wake });
        woken.map(drop).boxed_local()
    }
}

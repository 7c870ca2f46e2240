//! A host under the test's control: its clock stands still, its timer fires when told, its chance is counted.

use std::cell::{Cell, RefCell};
use std::fmt::Debug;
use std::pin::pin;
use std::rc::Rc;

use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::future::{Either, LocalBoxFuture, join, select};
use pocket_broker::clock::{Clock, Pulse, Timer};
use pocket_broker::ids::Ids;
use pocket_broker::store::Store;
use pocket_broker::{Host, Notice, Sharing};

use super::chance::Chance;
use super::locks::OriginLocks;

/// A clock that stands still until it is moved.
#[derive(Debug)]
pub(crate) struct ManualClock(Cell<f64>);

impl ManualClock {
    pub(crate) fn advance(&self, ms: f64) {
        self.0.set(self.0.get() + ms);
    }
}

/// A clock that goes on by a millisecond whenever somebody looks at it, from the time of another one.
pub(crate) struct RunningClock(pub(crate) Rc<ManualClock>);

impl Clock for RunningClock {
    fn now(&self) -> f64 {
        self.0.advance(1.0);
        self.0.now()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> f64 {
        self.0.get()
    }
}

/// A timer that fires when told. Waiting for a group may be over at once instead.
#[derive(Debug, Default)]
pub(crate) struct ManualTimer {
    sleepers: RefCell<Vec<(f64, oneshot::Sender<()>)>>,
    #[cfg(not(target_arch = "wasm32"))]
    at_once: Cell<bool>,
}

impl ManualTimer {
    /// Wakes everybody.
    pub(crate) fn fire(&self) {
        self.sleepers.take().into_iter().for_each(|(_, sleeper)| _ = sleeper.send(()));
    }

    /// Wakes those who sleep no longer than so many milliseconds.
    pub(crate) fn fire_up_to(&self, ms: f64) {
        let woken: Vec<_> = self.sleepers.borrow_mut().extract_if(.., |(sleep, _)| *sleep <= ms).collect();
        woken.into_iter().for_each(|(_, sleeper)| _ = sleeper.send(()));
    }

    /// From now on nobody waits for a group.
    #[cfg(not(target_arch = "wasm32"))]
    pub(crate) fn give_up_at_once(&self) {
        self.at_once.set(true);
        self.fire();
    }

    /// For how long those who sleep want to, in milliseconds.
    pub(crate) fn sleeps(&self) -> Vec<f64> {
        self.sleepers.borrow().iter().filter(|(_, sleeper)| !sleeper.is_canceled()).map(|(ms, _)| *ms).collect()
    }

    /// How many sleep.
    pub(crate) fn sleeping(&self) -> usize {
        self.sleeps().len()
    }

    /// Runs `event` once `waiting` sleeps, and gives what `waiting` comes to.
    pub(crate) async fn wakes<T: Debug>(&self, waiting: impl Future<Output = T>, event: impl AsyncFnOnce()) -> T {
        match select(pin!(waiting), pin!(self.until_sleeping())).await {
            Either::Left((found, _)) => panic!("it must wait: {found:?}"),
            Either::Right(((), waiting)) => join(waiting, event()).await.0,
        }
    }

    /// Resolves once somebody sleeps: a verb that waits for a group.
    pub(crate) async fn until_sleeping(&self) {
        while self.sleeping() == 0 {
            tick().await;
        }
    }
}

impl Timer for ManualTimer {
    fn sleep(&self, ms: f64) -> LocalBoxFuture<'static, ()> {
        let (sleeper, woken) = oneshot::channel();
        #[cfg(not(target_arch = "wasm32"))]
        if self.at_once.get() && ms == pocket_broker::LOCK_TIMEOUT {
            return std::future::ready(()).boxed_local();
        }
        self.sleepers.borrow_mut().push((ms, sleeper));
        woken.map(drop).boxed_local()
    }
}

/// What signs of life go by, without the looks that a poller without anything to wait for takes once a minute: those are a timer of their own.
struct PulseTimer {
    signs: Rc<ManualTimer>,
    looks: Rc<ManualTimer>,
}

impl Timer for PulseTimer {
    fn sleep(&self, ms: f64) -> LocalBoxFuture<'static, ()> {
        if ms == 50_000.0 { self.looks.sleep(ms) } else { self.signs.sleep(ms) }
    }
}

/// Bytes that never repeat and are the same in every run.
struct CountedIds(RefCell<Chance>);

impl Ids for CountedIds {
    fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let number = self.0.borrow_mut().next().to_be_bytes();
            chunk.copy_from_slice(&number[..chunk.len()]);
        }
    }
}

/// Chance for the context with a number.
pub(crate) fn ids(seed: u64) -> Rc<dyn Ids> {
    Rc::new(CountedIds(RefCell::new(Chance(seed.wrapping_mul(0xd134_2543_de82_ef95)))))
}

/// What a test holds of its host.
pub(crate) struct TestHost {
    pub(crate) host: Host,
    pub(crate) clock: Rc<ManualClock>,
    pub(crate) timer: Rc<ManualTimer>,
    /// For signs of life.
    pub(crate) pulse: Rc<ManualTimer>,
    /// For looks at what is due that nobody told of.
    pub(crate) looks: Rc<ManualTimer>,
    /// What was told to other contexts.
    pub(crate) notices: Rc<RefCell<Vec<Notice>>>,
    /// The origin's.
    pub(crate) locks: OriginLocks,
}

/// A host over a store. `seed`: another one for every context of a database.
pub(crate) fn host(store: Rc<dyn Store>, seed: u64) -> TestHost {
    let clock = Rc::new(ManualClock(Cell::new(1_700_000_000_000.0)));
    let (timer, pulse, looks): (Rc<ManualTimer>, Rc<ManualTimer>, Rc<ManualTimer>) = Default::default();
    let pulse_timer = PulseTimer { signs: Rc::clone(&pulse), looks: Rc::clone(&looks) };
    let notices = Rc::new(RefCell::new(Vec::new()));
    let told = Rc::clone(&notices);
    let locks = OriginLocks::default();
    let host = Host {
        name: "shop".into(),
        store,
        clock: Rc::<ManualClock>::clone(&clock),
        timer: Rc::<ManualTimer>::clone(&timer),
        ids: ids(seed),
        sharing: Sharing::Locks(Rc::new(locks.of_tab(seed))),
        pulse: Pulse { clock: Rc::<ManualClock>::clone(&clock), timer: Rc::new(pulse_timer) },
        delayed: pocket_broker::DelayedSettings::default(),
        delayed_store: None,
        is_hidden: Rc::new(|| false),
        spawn: Rc::new(spawn),
        wake: Rc::new(move |notice| told.borrow_mut().push(notice.clone())),
    };
    TestHost { host, clock, timer, pulse, looks, notices, locks }
}

#[cfg(target_arch = "wasm32")]
fn spawn(task: LocalBoxFuture<'static, ()>) {
    wasm_bindgen_futures::spawn_local(task);
}

#[cfg(not(target_arch = "wasm32"))]
fn spawn(task: LocalBoxFuture<'static, ()>) {
    use futures_executor::LocalSpawner;
    use futures_util::task::LocalSpawn;
    let spawner =
        SPAWNER.with_borrow(|spawner: &Option<LocalSpawner>| spawner.clone()).expect("the test runs by `block_on`");
    spawner.spawn_local_obj(task.into()).expect("the pool is there");
}

#[cfg(not(target_arch = "wasm32"))]
std::thread_local! {
    static SPAWNER: RefCell<Option<futures_executor::LocalSpawner>> = const { RefCell::new(None) };
}

/// Runs a test, and what it spawns beside it.
#[cfg(not(target_arch = "wasm32"))]
pub(crate) fn block_on<T>(test: impl Future<Output = T>) -> T {
    let mut pool = futures_executor::LocalPool::new();
    SPAWNER.set(Some(pool.spawner()));
    pool.run_until(test)
}

/// Lets others run.
#[cfg(not(target_arch = "wasm32"))]
pub(crate) async fn tick() {
    let mut polled = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut polled, true) {
            return std::task::Poll::Ready(());
        }
        context.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}

/// Lets others run.
#[cfg(target_arch = "wasm32")]
pub(crate) async fn tick() {
    gloo_timers::future::TimeoutFuture::new(1).await;
}

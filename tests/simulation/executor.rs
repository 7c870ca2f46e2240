//! An executor that polls whom it is told to poll: with a seeded choice every run can be repeated.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};

use futures_util::future::LocalBoxFuture;

/// One life of a tab: a tab that was crashed and opened again has another.
pub(crate) type TabId = u64;
pub(crate) type TaskId = u64;

type Woken = Arc<Mutex<Vec<TaskId>>>;

/// The tasks of all tabs.
#[derive(Default)]
pub(crate) struct Executor {
    tasks: RefCell<BTreeMap<TaskId, Task>>,
    spawned: Cell<TaskId>,
    current: Cell<TaskId>,
    woken: Woken,
    /// Tabs that are gone: nothing of theirs runs any more.
    dead: RefCell<BTreeSet<TabId>>,
}

struct Task {
    tab: TabId,
    /// Away while it is polled.
    future: Option<LocalBoxFuture<'static, ()>>,
    is_ready: bool,
}

struct TaskWaker(TaskId, Woken);

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.1.lock().unwrap_or_else(PoisonError::into_inner).push(self.0);
    }
}

impl Executor {
    pub(crate) fn spawn(&self, tab: TabId, future: LocalBoxFuture<'static, ()>) {
        if self.dead.borrow().contains(&tab) {
            return;
        }
        self.spawned.set(self.spawned.get() + 1);
        let task = Task { tab, future: Some(future), is_ready: true };
        self.tasks.borrow_mut().insert(self.spawned.get(), task);
    }

    /// The task that is being polled.
    pub(crate) fn current(&self) -> TaskId {
        self.current.get()
    }

    /// Whose a task is.
    pub(crate) fn tab_of(&self, task: TaskId) -> Option<TabId> {
        self.tasks.borrow().get(&task).map(|task| task.tab)
    }

    /// The tasks that may be polled.
    pub(crate) fn ready(&self, may_run: impl Fn(TabId) -> bool) -> Vec<TaskId> {
        self.note_woken();
        let tasks = self.tasks.borrow();
        tasks.iter().filter(|(_, task)| task.is_ready && may_run(task.tab)).map(|(id, _)| *id).collect()
    }

    /// Polls a task. Gives whom it woke meanwhile.
    pub(crate) fn poll(&self, id: TaskId) -> Vec<TaskId> {
        self.note_woken();
        let Some(mut future) = self.tasks.borrow_mut().get_mut(&id).and_then(|task| {
            task.is_ready = false;
            task.future.take()
        }) else {
            return Vec::new();
        };
        let waker = Waker::from(Arc::new(TaskWaker(id, Arc::clone(&self.woken))));
        self.current.set(id);
        let is_over = future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        self.current.set(0);
        if is_over {
            self.tasks.borrow_mut().remove(&id);
            // It may wake others.
            drop(future);
        } else if let Some(task) = self.tasks.borrow_mut().get_mut(&id) {
            task.future = Some(future);
        }
        self.note_woken()
    }

    /// Drops the tasks of a tab where they stand.
    pub(crate) fn crash(&self, tab: TabId) {
        self.dead.borrow_mut().insert(tab);
        let lost: Vec<Task> = {
            let mut tasks = self.tasks.borrow_mut();
            let (lost, left) = mem::take(&mut *tasks).into_iter().partition(|(_, task)| task.tab == tab);
            *tasks = left;
            let lost: BTreeMap<TaskId, Task> = lost;
            lost.into_values().collect()
        };
        drop(lost);
    }

    fn note_woken(&self) -> Vec<TaskId> {
        let woken = mem::take(&mut *self.woken.lock().unwrap_or_else(PoisonError::into_inner));
        let mut tasks = self.tasks.borrow_mut();
        for id in &woken {
            if let Some(task) = tasks.get_mut(id) {
                task.is_ready = true;
            }
        }
        woken
    }
}

/// The executor as the tabs see it.
pub(crate) type Tasks = Rc<Executor>;

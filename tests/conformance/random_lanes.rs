//! Random use of lanes against a small model: every message is received once, in the order of its lane, and a lane is there exactly while it has
//! something.
//!
//! `SEED=17 cargo test random_lanes` runs one seed. `FROM=1000 SEEDS=5000 cargo test --release random_lanes` looks further.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use futures_util::future::join_all;
use pocket_broker::definitions::{QueueOptions, Status};
use pocket_broker::error::ErrorCode;
use pocket_broker::{Broker, EndOptions, EndpointFilter, EnqueueOptions, Message, ReceiveOptions, RowFilter, Rows};

use super::support::Bench;
use super::support::chance::Chance;
use super::support::host::block_on;
use super::support::shop::{Shop, cleanup, named, refused, show_message, top_of};

const SEEDS: u64 = if cfg!(debug_assertions) { 15 } else { 300 };
const STEPS: usize = 60;
const QUEUE: &str = "kitchen";

#[test]
fn lanes_do_what_the_model_does() {
    let number = |name: &str| std::env::var(name).ok().and_then(|number| number.parse::<u64>().ok());
    let seed = number("SEED");
    let first = seed.or(number("FROM")).unwrap_or(1);
    for number in first..first + seed.map_or_else(|| number("SEEDS").unwrap_or(SEEDS), |_| 1) {
        let told = std::panic::AssertUnwindSafe(|| block_on(run(number)));
        if let Err(failure) = std::panic::catch_unwind(told) {
            println!("It was SEED={number}");
            std::panic::resume_unwind(failure);
        }
    }
}

/// Key ("": none) and priority.
type Name = (String, u32);

#[derive(Default)]
struct Lane {
    unread: VecDeque<String>,
    /// Outside, while the queue is off.
    held: VecDeque<String>,
    kept: usize,
    timer: bool,
}

impl Lane {
    fn is_empty(&self) -> bool {
        self.unread.is_empty() && self.held.is_empty() && self.kept == 0 && !self.timer
    }
}

struct Run {
    shop: Shop,
    tabs: [Broker; 2],
    chance: Chance,
    lanes: BTreeMap<Name, Lane>,
    ids: BTreeMap<String, f64>,
    now: f64,
    bodies: usize,
    is_on: bool,
    retains: bool,
}

async fn run(seed: u64) {
    let shop = Shop::open(Bench::memory()).await;
    shop.timer().give_up_at_once();
    let tabs = [shop.broker.another(), shop.another_tab().await];
    let chance = Chance(seed);
    let (lanes, ids) = (BTreeMap::new(), BTreeMap::new());
    let mut run = Run { shop, tabs, chance, lanes, ids, now: 0.0, bodies: 0, is_on: true, retains: false };
    for _ in 0..STEPS {
        match run.chance.below(12) {
            0..=3 => run.enqueue().await,
            4..=5 => run.receive().await,
            6..=7 => run.transact().await,
            8 => run.end().await,
            9 => run.timer().await,
            10 => run.alter().await,
            _ => {
                let ms = 100_000.0 * run.chance.below(4) as f64;
                run.now += ms;
                run.shop.pass(ms).await;
            }
        }
        run.check().await;
    }
    for tab in &run.tabs {
        tab.close().await;
    }
    run.shop.close().await;
}

fn name_of(message: &Message) -> Name {
    (message.key.as_deref().unwrap_or("").to_owned(), message.priority)
}

fn body_of(message: &Message) -> String {
    show_message(message).rsplit(' ').next().unwrap_or("").to_owned()
}

fn messages(rows: &[Rows]) -> Vec<Message> {
    rows.iter().flat_map(Rows::messages).collect()
}

impl Run {
    fn options(&mut self) -> (Name, EnqueueOptions) {
        let key = ["", "a", "b", "c"][self.chance.below(4)];
        let priority = [5, 5, 9][self.chance.below(3)];
        let options = EnqueueOptions {
            key: (!key.is_empty()).then(|| key.into()),
            priority: f64::from(priority),
            ..EnqueueOptions::default()
        };
        ((key.to_owned(), priority), options)
    }

    fn body(&mut self) -> String {
        self.bodies += 1;
        self.bodies.to_string()
    }

    fn arrive(&mut self, name: Name, bodies: Vec<String>) {
        let is_on = self.is_on;
        let lane = self.lanes.entry(name).or_default();
        if is_on { &mut lane.unread } else { &mut lane.held }.extend(bodies);
    }

    async fn enqueue(&mut self) {
        let tab = self.chance.below(2);
        let mut calls = Vec::new();
        for _ in 0..1 + self.chance.below(4) {
            let (name, mut options) = self.options();
            let many = if self.chance.one_in(20) { 300 } else { 1 + self.chance.below(2) };
            let bodies: Vec<String> = (0..many).map(|_| self.body()).collect();
            let id = format!("id {}", self.chance.below(6));
            let is_second = many == 1 && self.chance.one_in(3) && {
                (options.dedupe_id, options.dedupe_window) = (Some(Rc::from(&*id)), 150_000.0);
                let is_second = self.ids.get(&id).is_some_and(|expiry| *expiry > self.now);
                if !is_second {
                    self.ids.insert(id, self.now + 150_000.0);
                }
                is_second
            };
            let sent = bodies.iter().map(|body| self.shop.message("DEFAULT", body)).collect();
            calls.push((sent, options, is_second));
            if !is_second {
                self.arrive(name, bodies);
            }
        }
        let (calls, expected): (Vec<_>, Vec<_>) =
            calls.into_iter().map(|(sent, options, is_second)| ((sent, options), is_second)).unzip();
        let calls = calls.into_iter().map(|(sent, options)| self.tabs[tab].enqueue(QUEUE, sent, options, None));
        let seen: Vec<_> = join_all(calls).await.into_iter().map(|seen| seen.expect("it can be enqueued")).collect();
        assert_eq!(seen.iter().map(Option::is_some).collect::<Vec<_>>(), expected);
    }

    /// The rows are the first of one lane, and it is of the highest priority among those that are not held.
    fn take(&mut self, rows: &[Message], except: Option<&Name>) {
        let ready = self.lanes.iter().filter(|(name, lane)| !lane.unread.is_empty() && Some(*name) != except);
        let highest = ready.map(|((_, priority), _)| *priority).max();
        let Some(first) = rows.first() else {
            assert_eq!(highest, None, "something is ready");
            return;
        };
        let name = name_of(first);
        assert_eq!(Some(name.1), highest);
        assert!(Some(&name) != except && rows.iter().all(|row| name_of(row) == name));
        let lane = self.lanes.get_mut(&name).expect("a lane that is there");
        let expected: Vec<String> = lane.unread.drain(..rows.len()).collect();
        assert_eq!(rows.iter().map(body_of).collect::<Vec<_>>(), expected);
        lane.kept += if self.retains { rows.len() } else { 0 };
    }

    async fn receive(&mut self) {
        let (tab, top) = (self.chance.below(2), 1 + self.chance.below(3));
        let answer = self.tabs[tab].receive(QUEUE, top_of(top as u32), None).await;
        if self.is_on {
            let rows = messages(&answer.expect("the queue is on"));
            self.take(&rows, None);
        } else {
            refused(answer, ErrorCode::QueueDisabled);
        }
    }

    /// Receives in a transaction while the other tab goes on, and maybe ENDs.
    async fn transact(&mut self) {
        if !self.is_on {
            return;
        }
        let tab = self.chance.below(2);
        let transaction = self.tabs[tab].begin().expect("the broker is open");
        let received = transaction.receive(QUEUE, top_of(2)).await.expect("the queue is on");
        let rows = messages(&received);
        let Some(first) = rows.first().cloned() else {
            assert!(self.lanes.values().all(|lane| lane.unread.is_empty()));
            return;
        };
        let name = name_of(&first);
        // Meanwhile: more for the same lane, and another reader.
        let body = self.body();
        let key = (!name.0.is_empty()).then(|| Rc::from(&*name.0));
        let options = || EnqueueOptions { key: key.clone(), priority: f64::from(name.1), ..EnqueueOptions::default() };
        let message = vec![self.shop.message("DEFAULT", &body)];
        self.tabs[1 - tab].enqueue(QUEUE, message, options(), None).await.expect("arrivals are never blocked");
        self.arrive(name.clone(), vec![body]);
        let others = self.tabs[1 - tab].receive(QUEUE, ReceiveOptions::default(), None).await.expect("it is on");
        self.take(&messages(&others), Some(&name));
        let own = self.body();
        let message = vec![self.shop.message("DEFAULT", &own)];
        transaction.enqueue(QUEUE, message, options()).await.expect("it is accepted");
        let ends = self.chance.one_in(2);
        let kept = self.lanes[&name].kept + if self.retains { rows.len() } else { 0 };
        let timer = usize::from(self.lanes[&name].timer);
        if ends {
            let archive = EndOptions { archive: Some(true), ..EndOptions::default() };
            let ended = transaction.end_conversation(&first.conversation_handle, archive).await;
            let ended = ended.expect("it holds the lane");
            assert_eq!((ended.discarded, ended.archived), (timer as u64, kept as u64));
        }
        if self.chance.one_in(3) {
            return transaction.rollback();
        }
        transaction.commit().await.expect("nobody else has touched the lane");
        let lane = self.lanes.get_mut(&name).expect("a lane that is there");
        lane.unread.drain(..rows.len());
        lane.kept = kept;
        if ends {
            (lane.kept, lane.timer) = (0, false);
        }
        self.arrive(name, vec![own]);
    }

    async fn some_lane(&mut self) -> Option<(Name, Rc<str>)> {
        let ends = self.shop.endpoints(EndpointFilter::default()).await;
        let end = self.chance.pick(&ends)?;
        Some(((end.key.as_deref().unwrap_or("").to_owned(), end.priority), end.conversation_handle))
    }

    async fn end(&mut self) {
        let Some((name, handle)) = self.some_lane().await else { return };
        let (tab, all) = (self.chance.below(2), self.chance.one_in(3));
        let options = if all { cleanup() } else { EndOptions::default() };
        let ended = self.tabs[tab].end_conversation(&handle, options).await.expect("it is there");
        let lane = self.lanes.get_mut(&name).expect("a lane that is there");
        let unread = if all { lane.unread.len() + lane.held.len() } else { 0 };
        assert_eq!(ended.discarded, (unread + usize::from(lane.timer)) as u64);
        (lane.kept, lane.timer) = (0, false);
        if all {
            lane.unread.clear();
            lane.held.clear();
        }
        let again = self.tabs[tab].end_conversation(&handle, EndOptions::default()).await;
        refused(again, ErrorCode::ConversationNotFound);
    }

    /// Begins one that never fires here, or cancels it.
    async fn timer(&mut self) {
        let Some((name, handle)) = self.some_lane().await else { return };
        let begins = self.chance.one_in(2);
        let timeout = begins.then_some(1e12);
        let tab = self.chance.below(2);
        let begun = self.tabs[tab].begin_conversation_timer(&handle, timeout, named("", None)).await;
        begun.expect("it is there");
        self.lanes.get_mut(&name).expect("a lane that is there").timer = begins;
    }

    async fn alter(&mut self) {
        let mut options = QueueOptions::default();
        if self.chance.one_in(2) {
            self.retains = !self.retains;
            options.retention = Some(self.retains);
        } else {
            self.is_on = !self.is_on;
            options.status = Some(if self.is_on { Status::On } else { Status::Off });
        }
        self.shop.alter(QUEUE, options).await;
        if self.is_on {
            self.lanes.values_mut().for_each(|lane| lane.unread.extend(std::mem::take(&mut lane.held)));
        }
    }

    async fn check(&mut self) {
        self.lanes.retain(|_, lane| !lane.is_empty());
        let ends = self.shop.endpoints(EndpointFilter::default()).await;
        let mut names: Vec<Name> =
            ends.iter().map(|end| (end.key.as_deref().unwrap_or("").to_owned(), end.priority)).collect();
        names.sort();
        assert_eq!(names, self.lanes.keys().cloned().collect::<Vec<_>>(), "lanes that have something are there");
        let mut found: BTreeMap<Name, (Vec<String>, usize)> = BTreeMap::new();
        for row in self.shop.messages(QUEUE, RowFilter::default()).await {
            let lane = found.entry(name_of(&row)).or_default();
            if row.status.number() == 1 { lane.0.push(body_of(&row)) } else { lane.1 += 1 }
        }
        for (name, lane) in &self.lanes {
            let (unread, kept) = found.remove(name).unwrap_or_default();
            assert_eq!((unread, kept), (lane.unread.iter().cloned().collect(), lane.kept), "{name:?}");
        }
        let held: usize = self.lanes.values().map(|lane| lane.held.len()).sum();
        assert_eq!(self.shop.transmission().await.len(), held);
        let queue = self.shop.queue(QUEUE).await;
        let unread: usize = self.lanes.values().map(|lane| lane.unread.len()).sum();
        let kept: usize = self.lanes.values().map(|lane| lane.kept).sum();
        assert_eq!((queue.ready, queue.retained), (unread as u64, kept as u64));
        self.shop.assert_sound().await;
    }
}

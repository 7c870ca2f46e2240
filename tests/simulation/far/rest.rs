//! The end of a run: nothing fails any more, and everything comes to its end.

use std::rc::Rc;

use futures_util::FutureExt;
use pocket_broker::definitions::{QueueOptions, Status};
use pocket_broker::store::{Mode, Range, Store, StoreName};
use pocket_broker::{EndpointFilter, Extent, FailedFilter};

use super::actor::{Actor, give_routes};
use super::net::{Item, Packet, key};
use super::run::Run;
use super::world::{QUEUES, Seen, Tab, World, place_of};
use crate::conformance::support;
use crate::conformance::support::host::block_on;
use crate::origin::{Kind, Violation};

/// Everything has to be over after so many milliseconds without any trouble.
const LIMIT: f64 = 14_400_000.0;
/// Between two looks.
const LOOK: f64 = 200_000.0;
/// Longer than a finished conversation is shown.
const SHOWN: f64 = 1_801_000.0;
/// Longer than it is remembered.
const REMEMBERED: f64 = 2_600_000_000.0;

impl Run {
    pub(super) fn finish(&mut self) -> Result<(), Violation> {
        for place in 0..self.world.places.len() {
            let tab = Rc::clone(&self.world.places[place].tabs.borrow()[0]);
            self.world.tasks.spawn(tab.id, look(Rc::clone(&self.world), Rc::clone(&tab)).boxed_local());
        }
        self.rest("what is under way arrives", |seen| {
            seen.received == 0
                && seen.outside.is_empty()
                && seen.ends.iter().all(|(_, state)| !matches!(*state, "DO" | "DI" | "ER"))
        })?;
        self.world.ledger.borrow().check_all()?;
        self.world.ends_all.set(true);
        self.rest("all conversations end", |seen| {
            seen.received == 0 && seen.outside.is_empty() && seen.ends.iter().all(|(_, state)| *state == "CD")
        })?;
        let calls = self.world.net.calls.get();
        self.pass(SHOWN);
        self.rest("what is finished goes", |seen| seen.ends.is_empty())?;
        self.replay();
        self.rest("what comes again begins nothing", |seen| seen.ends.is_empty() && seen.received == 0)?;
        if self.world.net.calls.get() != calls {
            return Err(Violation { kind: Kind::Hangs, text: "something is sent although nothing is left".into() });
        }
        self.pass(REMEMBERED);
        self.rest("what is remembered is forgotten", |seen| seen.ends.is_empty())?;
        self.close()
    }

    /// Everything that was ever handed over and has arrived comes once more.
    fn replay(&self) {
        let world = &self.world;
        let passed = world.net.passed.borrow();
        let seen = world.net.seen.take();
        let has_arrived = |key: &(Rc<str>, usize)| passed.get(key).is_some_and(|passed| passed.stored.contains(&0));
        for envelope in seen.into_iter().filter(|envelope| has_arrived(&key(envelope)) || !envelope.from_initiator) {
            let (from, to) = (place_of(&envelope.from_service), place_of(&envelope.to_service));
            let items = vec![Item::Message(Box::new(envelope))];
            world.net.post(Packet { at: world.now() + 1.0, from, to, items, answer: None });
        }
    }

    fn pass(&self, ms: f64) {
        self.world.time.advance_to(self.world.now() + ms, |_| true);
    }

    /// Goes on until all brokers are as they should be.
    fn rest(&mut self, what: &str, is_right: impl Fn(&Seen) -> bool) -> Result<(), Violation> {
        let (world, since) = (Rc::clone(&self.world), self.world.now());
        world.tell(|| format!("── {what}"));
        // What was seen before is not what is.
        world.places.iter().for_each(|place| _ = place.seen.take());
        loop {
            let is_over = |place: &super::world::Place| place.seen.borrow().as_ref().is_some_and(&is_right);
            if world.net.is_empty() && world.places.iter().all(is_over) {
                return Ok(());
            }
            if world.now() - since > LIMIT {
                let late = world.places.iter().position(|place| !is_over(place)).unwrap_or_default();
                let seen = world.places[late].seen.borrow();
                let text = format!("{what}: this has not come to an end in place {late}: {seen:#?}");
                return Err(Violation { kind: Kind::Late, text });
            }
            self.turn()?;
        }
    }

    /// Closes all, and looks at what is left.
    fn close(&mut self) -> Result<(), Violation> {
        let world = Rc::clone(&self.world);
        for tab in world.places.iter().flat_map(|place| place.tabs.borrow().clone()) {
            let Some(broker) = tab.broker.take() else { continue };
            world.tasks.spawn(tab.id, async move { broker.close().await }.boxed_local());
        }
        // With the last of them goes whoever sleeps.
        while !world.tasks.ready(|_| true).is_empty() || world.time.next(|_| true).is_some() {
            self.turn()?;
        }
        for (number, place) in world.places.iter().enumerate() {
            let held = place.locks.held();
            if held > 0 {
                return Err(Violation { kind: Kind::Hangs, text: format!("{held} locks are held in place {number}") });
            }
            let unsound = |text: String| Violation { kind: Kind::Unsound, text: format!("place {number}: {text}") };
            let found = block_on(async { pocket_broker::audit(&place.store).await });
            let found = found.map_err(|error| unsound(format!("{error:?}")))?;
            if !found.is_empty() {
                return Err(unsound(found.join("\n")));
            }
            for name in [
                StoreName::Conversations,
                StoreName::Messages,
                StoreName::Bodies,
                StoreName::Turns,
                StoreName::Seen,
                StoreName::Due,
            ] {
                let left = block_on(records(&place.store, name));
                if left > 0 {
                    return Err(unsound(format!("{left} records are left in {name:?}")));
                }
            }
        }
        Ok(())
    }
}

async fn records(store: &dyn Store, name: StoreName) -> u64 {
    support::transact(store, &[name], Mode::ReadOnly, async |tx| tx.count(name, &Range::all()).await)
        .await
        .expect("it can be read")
}

/// What an application does once it is calm: it receives, ends what has ended, and says what it sees.
async fn look(world: Rc<World>, tab: Rc<Tab>) {
    let id = tab.id;
    let broker = loop {
        if let Some(broker) = tab.broker.borrow().clone() {
            break broker;
        }
        world.sleep(id, 100.0).await;
    };
    let actor = Actor { world: Rc::clone(&world), tab: Rc::clone(&tab), broker: Rc::clone(&broker) };
    // Whoever was to switch it on again, or to give a route again, may be gone.
    for queue in QUEUES {
        let on = QueueOptions { status: Some(Status::On), ..QueueOptions::default() };
        if let Err(error) = broker.alter_queue(queue, on).await {
            world.report(Kind::Hangs, format!("{queue} of {}: {error:?}", tab.place));
        }
    }
    give_routes(&world, &tab, &broker);
    while !broker.is_closed() {
        let received = actor.drain().await;
        // What was to be sent later, and came too late.
        if let Err(error) = broker.discard_failed(&FailedFilter::default()).await {
            world.report(Kind::Hangs, format!("the error queue of {}: {error:?}", tab.place));
        }
        let ends = broker.conversations(&EndpointFilter::default(), None, Extent::All).await;
        let outside = broker.transmission_queue(None).await;
        let (Ok(ends), Ok(outside)) = (ends, outside) else { return };
        let outside = outside.iter().map(|row| {
            let (number, status) = (row.message_sequence_number, &row.transmission_status);
            format!("{number} {} of {}: {status}", row.message_type, row.conversation_handle)
        });
        let ends: Vec<_> =
            ends.rows.iter().map(|end| (Rc::clone(&end.conversation_handle), end.state.letters())).collect();
        let is_open = |state: &str| !matches!(state, "DO" | "CD");
        // What came while it looked is read before it is ended.
        let is_over = |handle: &str, state: &str| {
            state == "ER" || (state == "DI" && world.ledger.borrow().has_heard_all(tab.place, handle))
        };
        let is_to_end =
            |(handle, state): &&(Rc<str>, &str)| is_over(handle, state) || (world.ends_all.get() && is_open(state));
        let to_end: Vec<_> = ends.iter().filter(is_to_end).collect();
        for (handle, _) in &to_end {
            actor.end_plainly(handle).await;
        }
        let seen = Seen { received: received + to_end.len(), outside: outside.collect(), ends };
        world.places[tab.place].seen.replace(Some(seen));
        world.sleep(id, LOOK).await;
    }
}

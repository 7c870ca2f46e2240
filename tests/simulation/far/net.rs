//! The network: it loses, repeats, delays and reorders, one in five of each. Transports hand over to it what brokers have for each other.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use pocket_broker::error::{Error, Result};
use pocket_broker::{Acknowledgement, MessageEnvelope, Refusal, SendResult, Transport};

use super::broken::Sabotage;
use super::ledger::{INITIATOR, TARGET};
use super::world::{World, place_of};
use crate::executor::TabId;
use crate::origin::Kind;

/// What is handed over at once at most.
pub(crate) const BATCH: u64 = 5;
/// No side sends as many.
const MOST: u64 = 10_000;
/// Longer than a call of a transport may take.
const TOO_LATE: f64 = 130_000.0;

/// What travels.
#[derive(Clone)]
pub(crate) enum Item {
    Message(Box<MessageEnvelope>),
    Acknowledgement(Acknowledgement),
}

/// What became of one envelope, for who waits for an answer.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Taken(Option<Acknowledgement>),
    Later(Option<f64>, Rc<str>),
    Refused(Rc<str>, Option<f64>),
}

/// What arrives together.
pub(crate) struct Packet {
    pub(crate) at: f64,
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) items: Vec<Item>,
    /// Who waits for what became of it.
    pub(crate) answer: Option<oneshot::Sender<Vec<Answer>>>,
}

/// What is known of the messages of one side of a conversation.
#[derive(Default)]
pub(crate) struct Passed {
    /// The brokers at both ends of the way.
    from: usize,
    to: usize,
    /// The number after the highest that was handed over.
    pub(crate) handed: u64,
    /// The far broker has said that something has arrived.
    pub(crate) is_acknowledged: bool,
    /// Its numbers that were stored.
    pub(crate) stored: Vec<u64>,
}

#[derive(Default)]
pub(crate) struct Net {
    packets: RefCell<Vec<Packet>>,
    pub(crate) passed: RefCell<BTreeMap<(Rc<str>, usize), Passed>>,
    /// Everything that was handed over once: it may come again at any time.
    pub(crate) seen: RefCell<Vec<MessageEnvelope>>,
    /// How often a transport was called.
    pub(crate) calls: Cell<u64>,
    /// Calls that have not been answered.
    live: Cell<u64>,
    pub(crate) lost: Cell<u64>,
    pub(crate) repeated: Cell<u64>,
}

impl Net {
    pub(crate) fn post(&self, packet: Packet) {
        self.packets.borrow_mut().push(packet);
    }

    /// When the next packet arrives.
    pub(crate) fn next(&self) -> Option<f64> {
        self.packets.borrow().iter().map(|packet| packet.at).min_by(f64::total_cmp)
    }

    /// What arrives by now.
    pub(crate) fn arrived(&self, now: f64) -> Vec<Packet> {
        let (arrived, others) = self.packets.take().into_iter().partition(|packet| packet.at <= now);
        self.packets.replace(others);
        arrived
    }

    /// Nothing is under way.
    pub(crate) fn is_empty(&self) -> bool {
        self.packets.borrow().is_empty() && self.live.get() == 0
    }
}

pub(crate) fn sender(envelope: &MessageEnvelope) -> usize {
    if envelope.from_initiator { INITIATOR } else { TARGET }
}

pub(crate) fn key(envelope: &MessageEnvelope) -> (Rc<str>, usize) {
    (Rc::clone(&envelope.conversation_id), sender(envelope))
}

impl World {
    /// How long something travels: one in five overtakes others or is overtaken.
    fn travel(&self) -> f64 {
        let short = self.below(20) as f64;
        if self.misfortune() {
            return short + self.pick(&[50.0, 500.0, 5_000.0, 40_000.0, 300_000.0, 2_500_000.0]);
        }
        short
    }

    /// Sends it off; it may get lost, and may come twice.
    pub(crate) fn carry(&self, from: usize, to: usize, items: &[Item]) {
        if self.misfortune() {
            self.net.repeated.set(self.net.repeated.get() + 1);
            self.net.post(self.packet(from, to, items.to_vec()));
        }
        if self.misfortune() {
            self.net.lost.set(self.net.lost.get() + 1);
            return;
        }
        self.net.post(self.packet(from, to, items.to_vec()));
    }

    fn packet(&self, from: usize, to: usize, mut items: Vec<Item>) -> Packet {
        if items.len() > 1 && self.misfortune() {
            let index = self.below(items.len());
            items.rotate_left(index);
        }
        Packet { at: self.now() + self.travel(), from, to, items, answer: None }
    }

    /// Somebody makes up an acknowledgement of what was never handed over.
    pub(crate) fn forge(&self) {
        let passed = self.net.passed.borrow();
        let Some(index) = passed.len().checked_sub(1).map(|last| self.below(last + 1)) else { return };
        let Some(((conversation, role), known)) = passed.iter().nth(index) else { return };
        let forged = Acknowledgement {
            conversation_id: Rc::clone(conversation),
            from_initiator: *role == INITIATOR,
            // Of what was taken out to be handed over nobody may have heard.
            sequence: known.handed + 2 * MOST + self.below(3) as u64,
            from_broker: Rc::clone(&self.places[known.to].id),
            to_broker: Rc::clone(&self.places[known.from].id),
        };
        let items = vec![Item::Acknowledgement(forged)];
        self.net.post(Packet { at: self.now(), from: known.to, to: known.from, items, answer: None });
    }

    /// It is handed in again after so many milliseconds.
    pub(crate) fn carry_again(&self, from: usize, to: usize, item: Item, after: f64) {
        self.net.post(Packet { at: self.now() + after.max(1.0), from, to, items: vec![item], answer: None });
    }
}

/// How a transport knows what became of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Style {
    /// It waits for the answer.
    Post,
    /// It gives away what it has; acknowledgements come by themselves.
    Stream,
}

/// One route's transport.
pub(crate) struct Line {
    pub(crate) world: Rc<World>,
    pub(crate) place: usize,
    pub(crate) tab: TabId,
    pub(crate) style: Style,
}

/// A call that is under way.
struct Live(Rc<World>);

impl Drop for Live {
    fn drop(&mut self) {
        self.0.net.live.set(self.0.net.live.get() - 1);
    }
}

impl Transport for Line {
    fn send(&self, envelopes: Vec<MessageEnvelope>) -> LocalBoxFuture<'static, Result<Vec<SendResult>>> {
        let world = Rc::clone(&self.world);
        world.net.calls.set(world.net.calls.get() + 1);
        world.net.live.set(world.net.live.get() + 1);
        let live = Live(Rc::clone(&world));
        self.check(&envelopes);
        let first = &envelopes[0];
        world.tell(|| {
            let kinds = envelopes.iter().map(|envelope| format!("{} {}", envelope.sequence, envelope.message_type));
            let kinds: Vec<_> = kinds.collect();
            format!("place {} tab {} sends {:?} of {:?}: {kinds:?}", self.place, self.tab, self.style, key(first))
        });
        let (place, tab, to) = (self.place, self.tab, place_of(&first.to_service));
        match self.style {
            Style::Stream => async move {
                let results = stream(&world, place, to, envelopes);
                world.sleep(tab, world.below(30) as f64).await;
                drop(live);
                Ok(results)
            }
            .boxed_local(),
            Style::Post => async move {
                let results = post(&world, place, tab, to, envelopes).await;
                drop(live);
                results
            }
            .boxed_local(),
        }
    }

    fn is_slow(&self) -> bool {
        self.world.misfortune()
    }
}

impl Line {
    fn check(&self, envelopes: &[MessageEnvelope]) {
        let (world, first) = (&self.world, &envelopes[0]);
        let mut passed = world.net.passed.borrow_mut();
        let known = passed.entry(key(first)).or_default();
        (known.from, known.to) = (self.place, place_of(&first.to_service));
        let are_in_order = envelopes.windows(2).all(|pair| pair[0].sequence + 1 == pair[1].sequence);
        let are_of_one = envelopes.iter().all(|envelope| key(envelope) == key(first));
        if !are_in_order || !are_of_one || envelopes.len() as u64 > BATCH {
            world.report(Kind::OutOfOrder, format!("these are handed over together: {envelopes:#?}"));
        }
        // What is broken on purpose the model is to notice.
        if first.from_initiator && !known.is_acknowledged && envelopes.len() > 1 && !world.is_trusting {
            world.report(Kind::OutOfOrder, format!("nobody has acknowledged anything, and these go: {envelopes:#?}"));
        }
        let mut seen = world.net.seen.borrow_mut();
        for envelope in envelopes {
            if envelope.sequence >= known.handed {
                seen.push(envelope.clone());
                known.handed = envelope.sequence + 1;
            }
        }
    }
}

/// Each goes its own way, or some go together.
fn stream(world: &World, place: usize, to: usize, envelopes: Vec<MessageEnvelope>) -> Vec<SendResult> {
    let mut results = Vec::new();
    let mut items: Vec<Item> = envelopes.into_iter().map(|envelope| Item::Message(Box::new(envelope))).collect();
    let together = world.one_in(2);
    let count = items.len();
    if world.one_in(8) && world.misfortune() {
        // It takes some of them.
        items.truncate(world.below(count));
    }
    for _ in &items {
        let again = world.pick(&[2_000.0, 20_000.0, 60_000.0, 600_000.0]);
        results.push(if world.breaks(Sabotage::Accepts) {
            SendResult::Acknowledged { up_to: None, from_broker: None, reply: None }
        } else {
            SendResult::Accepted(again)
        });
    }
    if together && !items.is_empty() {
        world.carry(place, to, &items);
    } else {
        items.into_iter().for_each(|item| world.carry(place, to, &[item]));
    }
    while results.len() < count {
        results.push(SendResult::Retry { after: Some(700.0), reason: "the line is busy".into() });
    }
    results
}

async fn post(
    world: &Rc<World>,
    place: usize,
    tab: TabId,
    to: usize,
    envelopes: Vec<MessageEnvelope>,
) -> Result<Vec<SendResult>> {
    let numbers: Vec<u64> = envelopes.iter().map(|envelope| envelope.sequence).collect();
    let items: Vec<Item> = envelopes.into_iter().map(|envelope| Item::Message(Box::new(envelope))).collect();
    let lost = |what: &str| Err(Error::invalid_argument("network", what));
    if world.misfortune() {
        world.net.lost.set(world.net.lost.get() + 1);
        world.sleep(tab, world.pick(&[10.0, 1_000.0, TOO_LATE])).await;
        return lost("the request got lost");
    }
    if world.misfortune() {
        world.net.repeated.set(world.net.repeated.get() + 1);
        world.net.post(world.packet(place, to, items.clone()));
    }
    let (answer, answered) = oneshot::channel();
    world.net.post(Packet { answer: Some(answer), ..world.packet(place, to, items) });
    let Ok(answers) = answered.await else { return lost("the connection was cut") };
    if world.misfortune() {
        world.net.lost.set(world.net.lost.get() + 1);
        world.sleep(tab, world.pick(&[10.0, 1_000.0, TOO_LATE])).await;
        return lost("the answer got lost");
    }
    if world.misfortune() {
        // It comes late, or too late.
        world.sleep(tab, world.pick(&[100.0, 10_000.0, 100_000.0, TOO_LATE])).await;
    }
    Ok(numbers.into_iter().map(|number| result_of(number, &answers)).collect())
}

/// As an answer of acknowledgements is read: those that are about this number, or about one behind it.
fn result_of(number: u64, answers: &[Answer]) -> SendResult {
    let highest = answers.iter().filter_map(|answer| match answer {
        Answer::Taken(Some(acknowledgement)) => Some(acknowledgement),
        _ => None,
    });
    let found = highest.max_by_key(|acknowledgement| acknowledgement.sequence);
    if let Some(found) = found.filter(|found| found.sequence >= number) {
        let from_broker = Some(Rc::clone(&found.from_broker));
        return SendResult::Acknowledged { up_to: Some(found.sequence), from_broker, reply: None };
    }
    let refused = answers.iter().find_map(|answer| match answer {
        Answer::Refused(reason, Some(code)) => Some((Rc::clone(reason), *code)),
        _ => None,
    });
    if let Some((description, code)) = refused {
        return SendResult::Refused(Refusal { code, description, ends: true, headers: Vec::new() });
    }
    let later = answers.iter().find_map(|answer| match answer {
        Answer::Later(after, reason) => Some((*after, Rc::clone(reason))),
        _ => None,
    });
    match later {
        Some((after, reason)) => SendResult::Retry { after, reason },
        None => SendResult::Accepted(5_000.0),
    }
}

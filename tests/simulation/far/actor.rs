//! An application: it begins conversations, sends, answers and ends, as chance has it.

use std::rc::Rc;

use pocket_broker::body::Body;
use pocket_broker::definitions::{QueueOptions, Status};
use pocket_broker::error::{Error, ErrorCode};
use pocket_broker::message::system;
use pocket_broker::{BeginDialog, Broker, Delay, EndError, EndOptions, Message, OutgoingMessage, ReceiveOptions, Rows};

use super::arrive::queue_of;
use super::ledger::{End, Fate, How, Reading};
use super::net::{BATCH, Line, Style};
use super::world::{NOWHERE, QUEUES, SERVICES, SOUR, STRANGE, TALK, Tab, WORD, World};
use crate::history::{Outcome, outcome_of};
use crate::origin::{Kind, Violation};

pub(crate) struct Actor {
    pub(crate) world: Rc<World>,
    pub(crate) tab: Rc<Tab>,
    pub(crate) broker: Rc<Broker>,
}

/// What is to be sent.
struct Word {
    end: End,
    body: String,
}

impl Actor {
    /// Goes on until there is nothing to do any more.
    pub(crate) async fn act(self) {
        loop {
            let pause = self.world.pick(&[0.0, 1.0, 50.0, 1_000.0, 5_000.0, 40_000.0]);
            self.world.sleep(self.tab.id, pause).await;
            let place = &self.world.places[self.tab.place];
            if place.left.get() == 0 || self.world.is_calm.get() {
                return;
            }
            place.left.set(place.left.get() - 1);
            match self.world.below(20) {
                0..=2 => self.begin().await,
                3..=7 => self.send().await,
                8..=15 => self.handle().await,
                16 => self.end().await,
                17 => self.send_later().await,
                18 => self.switch().await,
                _ => self.meddle().await,
            }
        }
    }

    fn fate<T>(&self, outcome: &Result<T, Error>) -> Fate {
        match outcome {
            Ok(_) => Fate::Done,
            Err(error) => match outcome_of(error) {
                Some(Outcome::Unknown) => Fate::Unknown,
                Some(_) => Fate::Not,
                None => {
                    self.world.report(Kind::Unsound, format!("place {}: {error:?}", self.tab.place));
                    Fate::Unknown
                }
            },
        }
    }

    fn report(&self, checked: Result<(), Violation>) {
        if let Err(Violation { kind, text }) = checked {
            self.world.report(kind, text);
        }
    }

    fn some_end(&self) -> Option<End> {
        let ends = self.world.ledger.borrow().ends_of(self.tab.place);
        (!ends.is_empty()).then(|| self.world.pick(&ends))
    }

    // ── what is sent ──

    async fn begin(&self) {
        let (world, own) = (&self.world, self.tab.place);
        let other = (own + 1 + world.below(world.places.len() - 1)) % world.places.len();
        let (letter, place) = match world.below(40) {
            0 => (NOWHERE, other),
            1..=2 => (world.pick(&SERVICES), own),
            _ => (world.pick(&SERVICES), other),
        };
        let contract = if world.one_in(40) { STRANGE } else { TALK };
        let lifetime = world.one_in(12).then(|| world.pick(&[1_000.0, 60_000.0, 1_000_000.0]));
        let options = BeginDialog {
            from: format!("{}{own}", world.pick(&SERVICES)),
            to: format!("{letter}{place}"),
            contract: Some(contract.into()),
            lifetime,
            to_broker: world.one_in(8).then(|| world.places[place].id.to_string()),
            ..BeginDialog::default()
        };
        let is_cut = lifetime.is_some() || letter == NOWHERE || contract == STRANGE;
        let begun = self.broker.begin_dialog(options.clone()).await;
        self.fate(&begun);
        let Ok(info) = begun else { return };
        let end = world.ledger.borrow_mut().begin(&info, is_cut);
        world.tell(|| format!("place {own} begins {end:?} to {}", options.to));
        self.send_words(&end).await;
    }

    async fn send(&self) {
        if let Some(end) = self.some_end() {
            self.send_words(&end).await;
        }
    }

    async fn send_words(&self, end: &End) {
        // Nobody checks what stays inside a broker.
        if self.world.one_in(60) && self.world.ledger.borrow_mut().issue_sour(end) {
            let sour = vec![self.message(SOUR, "sour")];
            self.fate(&self.broker.send(vec![Rc::clone(&end.handle)], sour, None).await);
            return;
        }
        let words: Vec<_> = (0..=self.world.below(4)).map(|_| self.word(end)).collect();
        let messages = words.iter().map(|word| self.message(WORD, &word.body)).collect();
        self.issue(&words, false);
        let sent = self.broker.send(vec![Rc::clone(&end.handle)], messages, None).await;
        self.resolve(&words, self.fate(&sent));
    }

    async fn send_later(&self) {
        let Some(end) = self.some_end() else { return };
        let words = vec![self.word(&end)];
        let messages = words.iter().map(|word| self.message(WORD, &word.body)).collect();
        let delay = Delay::After(self.world.pick(&[10.0, 3_000.0, 90_000.0]));
        self.issue(&words, true);
        let sent = self.broker.send_later(vec![Rc::clone(&end.handle)], messages, delay, None).await;
        self.resolve(&words, self.fate(&sent));
    }

    fn word(&self, end: &End) -> Word {
        Word { end: end.clone(), body: self.world.ledger.borrow_mut().body() }
    }

    fn message(&self, message_type: &str, body: &str) -> OutgoingMessage {
        let mut body = Body::small(body.into());
        if self.world.one_in(10) {
            // It gets a record of its own.
            body.size = 70_000.0;
        }
        OutgoingMessage { message_type: message_type.into(), id: self.world.uuid(), headers: None, body }
    }

    fn issue(&self, words: &[Word], is_delayed: bool) {
        let mut ledger = self.world.ledger.borrow_mut();
        for Word { end, body } in words {
            self.world.tell(|| format!("place {} sends {body} of {end:?}, delayed: {is_delayed}", self.tab.place));
            ledger.issue(end, body, is_delayed);
        }
    }

    fn resolve(&self, words: &[Word], fate: Fate) {
        let mut ledger = self.world.ledger.borrow_mut();
        for Word { end, body } in words {
            self.world.tell(|| format!("{body} is sent: {fate:?}"));
            ledger.resolve(end, body, fate);
        }
    }

    // ── what is received ──

    /// A transaction: something is received, and answered, and what has ended is ended.
    async fn handle(&self) {
        let (world, queue) = (&self.world, self.world.pick(&QUEUES));
        let Ok(transaction) = self.broker.begin() else { return };
        let top = world.one_in(2).then(|| (1 + world.below(3)) as f64);
        let timeout = world.one_in(3).then_some(20_000.0);
        let received = transaction.receive(queue, ReceiveOptions { top, timeout, ..ReceiveOptions::default() }).await;
        self.fate(&received);
        let Ok(rows) = received else { return transaction.rollback() };
        let messages: Vec<Message> = rows.iter().flat_map(Rows::messages).collect();
        let Some((reading, ends)) = self.read(&messages) else { return transaction.rollback() };
        let (mut words, mut ended) = (Vec::new(), Vec::new());
        for (message, end) in messages.iter().zip(ends) {
            let is_over = matches!(&*message.message_type_name, system::END_DIALOG | system::ERROR);
            if (is_over && !world.one_in(8)) || world.one_in(30) {
                let (how, options) = self.some_way(is_over);
                if transaction.end_conversation(&end.handle, options).await.is_ok() {
                    ended.push((end, how, is_over));
                }
            } else if world.one_in(2) {
                let word = self.word(&end);
                let message = self.message(WORD, &word.body);
                if transaction.send(vec![Rc::clone(&end.handle)], vec![message]).await.is_ok() {
                    words.push(word);
                }
            }
            if world.one_in(6) {
                world.sleep(self.tab.id, world.pick(&[1.0, 100.0, 8_000.0])).await;
            }
        }
        match world.below(10) {
            0 => return transaction.rollback(),
            1 => return,
            _ => {}
        }
        self.issue(&words, false);
        world.ledger.borrow_mut().issue_reading(&reading);
        for (end, how, knows) in &ended {
            world.tell(|| format!("place {} ends {end:?}: {how:?}", self.tab.place));
            world.ledger.borrow_mut().end(end, *how, *knows);
        }
        let fate = self.fate(&transaction.commit().await);
        world.tell(|| format!("place {} has committed: {fate:?}", self.tab.place));
        self.resolve(&words, fate);
        self.report(world.ledger.borrow_mut().resolve_reading(reading, fate));
    }

    /// What a reader has got, and the ends that it is of.
    fn read(&self, messages: &[Message]) -> Option<(Reading, Vec<End>)> {
        let mut ledger = self.world.ledger.borrow_mut();
        let reading = ledger.read(messages);
        self.world.tell(|| {
            let shown: Vec<_> = messages.iter().map(shown).collect();
            format!("place {} tab {} gets {shown:?}", self.tab.place, self.tab.id)
        });
        let ends = messages.iter().filter_map(|message| ledger.end_of(message)).collect();
        drop(ledger);
        match reading {
            Ok(reading) => Some((reading, ends)),
            Err(Violation { kind, text }) => {
                self.world.report(kind, text);
                None
            }
        }
    }

    fn some_way(&self, is_over: bool) -> (How, EndOptions) {
        match self.world.below(if is_over { 20 } else { 5 }) {
            0 => (How::Cleanup, EndOptions { cleanup: true, ..EndOptions::default() }),
            1 => {
                let error = Some(EndError { code: 42.0, description: "no more".into() });
                (How::Error, EndOptions { error, ..EndOptions::default() })
            }
            _ => (How::Plain, EndOptions::default()),
        }
    }

    async fn end(&self) {
        let Some(end) = self.some_end() else { return };
        let (how, options) = self.some_way(false);
        self.world.tell(|| format!("place {} ends {end:?}: {how:?}", self.tab.place));
        self.world.ledger.borrow_mut().end(&end, how, false);
        self.fate(&self.broker.end_conversation(&end.handle, options).await);
    }

    // ── what else there is ──

    /// A queue is off for a while.
    async fn switch(&self) {
        let queue = self.world.pick(&QUEUES);
        for status in [Status::Off, Status::On] {
            let options = QueueOptions { status: Some(status), ..QueueOptions::default() };
            self.fate(&self.broker.alter_queue(queue, options).await);
            self.world.sleep(self.tab.id, self.world.pick(&[10.0, 2_000.0, 30_000.0])).await;
        }
    }

    /// Somebody asks for an attempt, or takes a route away for a while.
    async fn meddle(&self) {
        let world = &self.world;
        match world.below(4) {
            0 => _ = self.fate(&self.broker.transmit().await),
            1 => _ = self.fate(&self.broker.hurry().await),
            2 => {
                let routes = self.tab.routes.borrow().clone();
                let Some((_, number)) = (!routes.is_empty()).then(|| world.pick(&routes)) else { return };
                self.fate(&self.broker.offer_again(number).await);
            }
            _ => {
                let routes = self.tab.routes.borrow().clone();
                let Some((name, number)) = (!routes.is_empty()).then(|| world.pick(&routes)) else { return };
                self.tab.routes.borrow_mut().retain(|(_, other)| *other != number);
                self.broker.remove_route(number);
                world.tell(|| format!("place {} has no route {name} any more", self.tab.place));
                world.sleep(self.tab.id, world.pick(&[0.0, 3_000.0, 50_000.0])).await;
                give_route(world, &self.tab, &self.broker, &name);
            }
        }
    }

    // ── at the end ──

    /// Receives everything that is there, and ends what has ended.
    pub(crate) async fn drain(&self) -> usize {
        let mut count = 0;
        for queue in QUEUES {
            loop {
                let options = ReceiveOptions { top: Some(10.0), ..ReceiveOptions::default() };
                let received = self.broker.receive(queue, options, None).await;
                let Ok(rows) = received else {
                    self.world.report(Kind::Hangs, format!("{queue} of {}: {received:?}", self.tab.place));
                    return count;
                };
                let messages: Vec<Message> = rows.iter().flat_map(Rows::messages).collect();
                count += messages.len();
                let Some((reading, ends)) = self.read(&messages).filter(|_| !messages.is_empty()) else { break };
                self.world.ledger.borrow_mut().issue_reading(&reading);
                self.report(self.world.ledger.borrow_mut().resolve_reading(reading, Fate::Done));
                for (message, end) in messages.iter().zip(ends) {
                    if matches!(&*message.message_type_name, system::END_DIALOG | system::ERROR) {
                        self.end_plainly(&end.handle).await;
                    }
                }
            }
        }
        count
    }

    /// It may be gone by now, or have ended, or somebody may be at it still.
    pub(crate) async fn end_plainly(&self, handle: &str) {
        let ended = self.broker.end_conversation(handle, EndOptions::default()).await;
        self.world.tell(|| format!("place {} ends {handle}: {ended:?}", self.tab.place));
        if let Err(error) = &ended
            && !matches!(
                error.code(),
                ErrorCode::ConversationNotFound | ErrorCode::InvalidState | ErrorCode::GroupLocked
            )
        {
            self.world.report(Kind::Hangs, format!("{handle} of place {} can't be ended: {error:?}", self.tab.place));
        }
    }
}

/// The routes of a tab: one for all, or some that win over it.
pub(crate) fn give_routes(world: &Rc<World>, tab: &Rc<Tab>, broker: &Broker) {
    give_route(world, tab, broker, "*");
    for place in (0..world.places.len()).filter(|place| *place != tab.place) {
        if world.one_in(if world.places.len() > 10 { 60 } else { 5 }) {
            let name = format!("{}{place}", world.pick(&SERVICES));
            give_route(world, tab, broker, &name);
        }
    }
}

fn give_route(world: &Rc<World>, tab: &Rc<Tab>, broker: &Broker, name: &str) {
    // All tabs of a broker transmit in the same way, as all load the same program.
    let style = if (tab.place + name.len()).is_multiple_of(2) { Style::Post } else { Style::Stream };
    let line = Line { world: Rc::clone(world), place: tab.place, tab: tab.id, style };
    if let Ok(number) = broker.route(name, Rc::new(line), BATCH) {
        tab.routes.borrow_mut().push((name.into(), number));
    }
}

pub(crate) fn shown(message: &Message) -> String {
    let number = message.message_sequence_number;
    let body = message.body.text().unwrap_or_default();
    let queue = queue_of(&message.service_name);
    format!("{number} {} {body} of {} in {queue}", message.message_type_name, message.conversation_handle)
}

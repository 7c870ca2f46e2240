//! The fixture of the verbs: a counter that orders, and a kitchen that confirms.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use pocket_broker::body::{Body, Value};
use pocket_broker::clock::Pulse;
use pocket_broker::conversation::State;
use pocket_broker::definitions::{Definitions, QueueOptions, SentBy, ServiceOptions, Status, Validation};
use pocket_broker::error::{Error, ErrorCode, Result};
use pocket_broker::message::system;
use pocket_broker::store::{Faults, Mode, Range, Store, StoreName};
use pocket_broker::{
    BeginDialog, Broker, ConversationInfo, DelayedSettings, EndOptions, EndResult, Endpoint, EndpointFilter,
    EnqueueOptions, Extent, Message, Notice, OutgoingMessage, QueueInfo, ReceiveOptions, RowFilter, Rows, Sharing,
    TimerOptions, Transaction, TransmissionRow,
};

use uuid::Uuid;

use super::elsewhere::{Elsewhere, watch};
use super::host::{ManualClock, ManualTimer, RunningClock, TestHost, host};
use super::locks::OriginLocks;
use super::{Bench, transact};

/// A broker with two services on two queues, over a store that counts and fails on demand.
pub(crate) struct Shop {
    pub(crate) broker: Broker,
    pub(crate) store: Rc<dyn Store>,
    pub(crate) faults: Faults,
    bench: Bench,
    host: TestHost,
    tabs: Cell<u64>,
    /// Tabs that nobody sees.
    is_hidden: Rc<RefCell<Vec<u64>>>,
}

/// Both ends of a conversation, by handle.
#[derive(Clone, Debug)]
pub(crate) struct Dialog {
    pub(crate) initiator: Rc<str>,
    pub(crate) target: Rc<str>,
    pub(crate) id: Rc<str>,
}

impl Shop {
    /// Queues "counter" and "kitchen", services "Counter" and "Kitchen", the contract "Ordering". And one queue for two services: "house",
    /// "Front" and "Back".
    pub(crate) async fn open(bench: Bench) -> Self {
        let bench = bench.with_faults();
        watch(bench.faults());
        let store = bench.connect().await;
        let mut host = host(Rc::clone(&store), 1);
        if bench.has_leases {
            host.host.sharing = Sharing::Leases;
        }
        let broker = Broker::open(host.host.clone()).await.expect("the broker opens");
        broker.define(definitions()).await.expect("the definitions are right");
        Self {
            broker,
            faults: bench.faults().clone(),
            store,
            bench,
            host,
            tabs: Cell::new(1),
            is_hidden: Rc::default(),
        }
    }

    /// Closes the broker, audits the database and removes it.
    pub(crate) async fn close(self) {
        self.broker.close().await;
        self.assert_sound().await;
        self.store.close();
        self.bench.remove().await;
    }

    /// Closes the broker and removes the database without an audit: the test has broken it.
    pub(crate) async fn discard(self) {
        self.broker.close().await;
        self.store.close();
        self.bench.remove().await;
    }

    pub(crate) async fn assert_sound(&self) {
        let found = pocket_broker::audit(&*self.store).await.expect("the database can be read");
        assert!(found.is_empty(), "the audit found:\n{}", found.join("\n"));
    }

    /// Another broker over the same database that shares nothing else: another tab.
    pub(crate) async fn another_tab(&self) -> Broker {
        self.another_tab_with_pulse().await.0
    }

    /// The same, and what it watches others by.
    pub(crate) async fn another_tab_with_pulse(&self) -> (Broker, Rc<ManualTimer>) {
        self.tab(|number| match &self.host.host.sharing {
            Sharing::Locks(_) => Sharing::Locks(Rc::new(self.host.locks.of_tab(number))),
            other => other.clone(),
        })
        .await
    }

    /// Another tab that keeps its delayed messages elsewhere, with these settings. It leads if it is the first.
    pub(crate) async fn tab_with(&self, delayed: DelayedSettings, elsewhere: &Elsewhere) -> Broker {
        self.try_tab_with(delayed, elsewhere).await.expect("the broker opens")
    }

    /// The same, if it can be opened.
    pub(crate) async fn try_tab_with(&self, delayed: DelayedSettings, elsewhere: &Elsewhere) -> Result<Broker> {
        self.try_tab(delayed, Some(elsewhere)).await
    }

    /// Another tab with these settings, and the built-in store.
    pub(crate) async fn tab_of(&self, delayed: DelayedSettings) -> Broker {
        self.try_tab(delayed, None).await.expect("the broker opens")
    }

    async fn try_tab(&self, delayed: DelayedSettings, elsewhere: Option<&Elsewhere>) -> Result<Broker> {
        self.tabs.set(self.tabs.get() + 1);
        let number = self.tabs.get();
        let TestHost { host: mut other, .. } = host(Rc::clone(&self.store), number);
        (other.clock, other.timer) = (Rc::clone(&self.host.host.clock), Rc::clone(&self.host.host.timer));
        other.pulse = Pulse { clock: Rc::clone(&self.host.host.clock), timer: Rc::clone(&self.host.host.pulse.timer) };
        other.wake = Rc::clone(&self.host.host.wake);
        other.sharing = match &self.host.host.sharing {
            Sharing::Locks(_) => Sharing::Locks(Rc::new(self.host.locks.of_tab(number))),
            other => other.clone(),
        };
        let is_hidden = Rc::clone(&self.is_hidden);
        other.is_hidden = Rc::new(move || is_hidden.borrow().contains(&number));
        other.delayed = delayed;
        if let Some(elsewhere) = elsewhere {
            other.delayed_store = Some(Rc::new(elsewhere.of(number)));
        }
        Broker::open(other).await
    }

    /// A store elsewhere, which goes by the same clock.
    pub(crate) fn elsewhere(&self) -> Elsewhere {
        Elsewhere::new(Rc::clone(&self.host.clock))
    }

    /// The tab that was opened as the one with this number is seen by nobody from now on, or is seen again.
    pub(crate) fn hide(&self, number: u64, is_hidden: bool) {
        let mut hidden = self.is_hidden.borrow_mut();
        hidden.retain(|other| *other != number);
        hidden.extend(is_hidden.then_some(number));
    }

    /// Another tab that was frozen and lost its locks: only the commit keeps it from the others.
    /// A tab whose clock runs.
    pub(crate) async fn tab_in_time(&self) -> Broker {
        let mut other = host(Rc::clone(&self.store), 77).host;
        other.clock = Rc::new(RunningClock(Rc::clone(&self.host.clock)));
        other.sharing = Sharing::Alone;
        Broker::open(other).await.expect("the broker opens")
    }

    pub(crate) async fn tab_without_locks(&self) -> Broker {
        self.tab(|_| Sharing::Alone).await.0
    }

    /// Another tab, if it can be opened.
    pub(crate) async fn try_another_tab(&self) -> Result<Broker> {
        Broker::open(host(Rc::clone(&self.store), self.tabs.get() + 1).host).await
    }

    async fn tab(&self, sharing: impl Fn(u64) -> Sharing) -> (Broker, Rc<ManualTimer>) {
        self.tabs.set(self.tabs.get() + 1);
        let TestHost { host: mut other, pulse, .. } = host(Rc::clone(&self.store), self.tabs.get());
        (other.clock, other.timer) = (Rc::clone(&self.host.host.clock), Rc::clone(&self.host.host.timer));
        other.pulse.clock = Rc::clone(&self.host.host.clock);
        other.sharing = sharing(self.tabs.get());
        (Broker::open(other).await.expect("the broker opens"), pulse)
    }

    /// The locks of the origin as this tab sees them.
    pub(crate) fn host_locks(&self) -> OriginLocks {
        self.host.locks.of_tab(1)
    }

    /// How many locks of the origin are held.
    pub(crate) fn locks_held(&self) -> usize {
        self.host.locks.held()
    }

    pub(crate) fn clock(&self) -> &ManualClock {
        &self.host.clock
    }

    pub(crate) fn timer(&self) -> &ManualTimer {
        &self.host.timer
    }

    /// What this tab gives its signs of life by.
    pub(crate) fn pulse(&self) -> &ManualTimer {
        &self.host.pulse
    }

    /// What this tab looks at what is due by when nothing is.
    pub(crate) fn looks(&self) -> &ManualTimer {
        &self.host.looks
    }

    /// What the commits have told since the last call.
    pub(crate) fn notices(&self) -> Vec<Notice> {
        let mut notices = self.host.notices.take();
        notices.retain(|notice| !notice.released);
        notices
    }

    /// Messages that went nowhere since the last call.
    pub(crate) fn dropped(&self) -> Vec<String> {
        self.notices()
            .iter()
            .flat_map(|notice| notice.dropped.iter().map(|dropped| dropped.reason.to_string()))
            .collect()
    }

    /// How many records an object store holds.
    pub(crate) async fn records_in(&self, store: StoreName) -> u64 {
        transact(&*self.store, &[store], Mode::ReadOnly, async |tx| tx.count(store, &Range::all()).await)
            .await
            .expect("the store can be read")
    }

    // ── short ways to the verbs ──

    pub(crate) async fn alter(&self, queue: &str, options: QueueOptions) {
        self.broker.alter_queue(queue, options).await.expect("the queue can be altered");
    }

    pub(crate) async fn retain(&self, queue: &str, retention: bool) {
        self.alter(queue, QueueOptions { retention: Some(retention), ..QueueOptions::default() }).await;
    }

    pub(crate) async fn switch(&self, queue: &str, status: Status) {
        self.alter(queue, QueueOptions { status: Some(status), ..QueueOptions::default() }).await;
    }

    pub(crate) async fn begin(&self) -> ConversationInfo {
        self.broker.begin_dialog(to_kitchen()).await.expect("the dialog begins")
    }

    /// A dialog with its first message.
    pub(crate) async fn order(&self, body: &str) -> Dialog {
        let begun = self.begin().await;
        self.send(&begun.handle, "Order", body).await;
        self.dialog(&begun).await
    }

    /// The same when the next commit is to fail: it is tried again.
    pub(crate) async fn order_after_a_failure(&self, body: &str) -> Dialog {
        let begun = self.broker.begin_dialog(to_kitchen()).await;
        refused(begun, ErrorCode::QuotaExceeded);
        self.order(body).await
    }

    /// Both ends of a conversation that was begun and used.
    pub(crate) async fn dialog(&self, begun: &ConversationInfo) -> Dialog {
        let ends = self
            .endpoints(EndpointFilter {
                conversation_id: Some(Rc::clone(&begun.conversation_id)),
                ..EndpointFilter::default()
            })
            .await;
        let target = ends
            .iter()
            .find(|end| !end.is_initiator)
            .map_or_else(|| "".into(), |end| Rc::clone(&end.conversation_handle));
        Dialog { initiator: Rc::clone(&begun.handle), target, id: Rc::clone(&begun.conversation_id) }
    }

    pub(crate) async fn try_send(&self, handle: &str, message_type: &str, body: &str) -> Result<()> {
        self.broker.send(vec![handle.into()], vec![self.message(message_type, body)], None).await
    }

    pub(crate) async fn send(&self, handle: &str, message_type: &str, body: &str) {
        self.try_send(handle, message_type, body).await.expect("the message can be sent");
    }

    /// A message whose body gets a record of its own.
    pub(crate) async fn send_large(&self, handle: &str, body: &str) {
        let body = Body { value: Value::from(body).into(), packing: 0, size: 70_000.0 };
        self.broker
            .send(vec![handle.into()], vec![self.message_of("Note", body)], None)
            .await
            .expect("the message can be sent");
    }

    /// Numbered messages in one call: "0", "1" …
    pub(crate) async fn send_many(&self, handle: &str, message_type: &str, numbers: std::ops::Range<usize>) {
        let messages = numbers.map(|number| self.message(message_type, &number.to_string())).collect();
        self.broker.send(vec![handle.into()], messages, None).await.expect("the messages can be sent");
    }

    pub(crate) fn message(&self, message_type: &str, body: &str) -> OutgoingMessage {
        self.message_of(message_type, Body::small(Value::from(body)))
    }

    pub(crate) fn message_of(&self, message_type: &str, body: Body) -> OutgoingMessage {
        OutgoingMessage { message_type: message_type.into(), id: self.host.host.ids.uuid(), headers: None, body }
    }

    pub(crate) async fn try_enqueue(&self, queue: &str, body: &str, options: EnqueueOptions) -> Result<Option<Uuid>> {
        self.broker.enqueue(queue, vec![self.message("DEFAULT", body)], options, None).await
    }

    /// Without a key.
    pub(crate) async fn enqueue(&self, queue: &str, body: &str) {
        self.enqueue_as(queue, body, EnqueueOptions::default()).await;
    }

    pub(crate) async fn enqueue_as(&self, queue: &str, body: &str, options: EnqueueOptions) {
        let seen = self.try_enqueue(queue, body, options).await.expect("the message can be enqueued");
        assert_eq!(seen, None, "nobody was there with that id");
    }

    /// With a key.
    pub(crate) async fn enqueue_key(&self, queue: &str, key: &str, body: &str) {
        self.enqueue_as(queue, body, keyed(key)).await;
    }

    /// Numbered messages in one call: "0", "1" …
    pub(crate) async fn enqueue_many(&self, queue: &str, numbers: std::ops::Range<usize>, options: EnqueueOptions) {
        let messages = numbers.map(|number| self.message("DEFAULT", &number.to_string())).collect();
        self.broker.enqueue(queue, messages, options, None).await.expect("the messages can be enqueued");
    }

    pub(crate) async fn receive(&self, queue: &str) -> Vec<String> {
        show_all(
            &self.broker.receive(queue, ReceiveOptions::default(), None).await.expect("the queue can be received from"),
        )
    }

    pub(crate) async fn receive_from(&self, queue: &str, handle: &str) -> Vec<String> {
        let options = ReceiveOptions { conversation: Some(handle.into()), ..ReceiveOptions::default() };
        show_all(&self.broker.receive(queue, options, None).await.expect("the conversation can be received from"))
    }

    pub(crate) async fn receive_top(&self, queue: &str, top: u32) -> Vec<String> {
        show_all(&self.broker.receive(queue, top_of(top), None).await.expect("the queue can be received from"))
    }

    pub(crate) async fn end(&self, handle: &str) -> EndResult {
        self.broker.end_conversation(handle, EndOptions::default()).await.expect("the conversation can be ended")
    }

    pub(crate) async fn fail(&self, handle: &str) -> EndResult {
        self.broker
            .end_conversation(handle, with_error(42.0, "no more bread"))
            .await
            .expect("the conversation can be ended")
    }

    pub(crate) async fn clean_up(&self, handle: &str) -> EndResult {
        self.broker.end_conversation(handle, cleanup()).await.expect("the conversation can be ended")
    }

    /// A timer without a body.
    pub(crate) async fn try_timer(&self, handle: &str, timeout: f64, name: &str) -> Result<()> {
        self.broker.begin_conversation_timer(handle, Some(timeout), named(name, None)).await
    }

    pub(crate) async fn timer_of(&self, handle: &str, timeout: f64, name: &str) {
        self.try_timer(handle, timeout, name).await.expect("the timer can be begun");
    }

    /// Lets time pass and does what is due then. Gives how many messages came of it.
    pub(crate) async fn pass(&self, ms: f64) -> u64 {
        self.clock().advance(ms);
        self.broker.poll().await.expect("what is due can be done")
    }

    // ── short ways to the views ──

    pub(crate) async fn messages(&self, queue: &str, filter: RowFilter) -> Vec<Message> {
        let page = self.broker.select(queue, &filter, None, Extent::All).await.expect("the queue can be looked at");
        assert_eq!(page.next, None, "everything is one page");
        let messages: Vec<Message> = page.rows.iter().flat_map(Rows::messages).collect();
        let counted = self.broker.count(queue, &filter).await.expect("the queue can be counted");
        assert_eq!(
            counted,
            u64::try_from(messages.len()).expect("a small number"),
            "count is what select gives: {filter:?}"
        );
        messages
    }

    /// The rows of a queue, each as "status type number body".
    pub(crate) async fn rows(&self, queue: &str) -> Vec<String> {
        self.messages(queue, RowFilter::default()).await.iter().map(show_message).collect()
    }

    /// Those of one endpoint.
    pub(crate) async fn rows_of(&self, queue: &str, handle: &str) -> Vec<String> {
        let filter = RowFilter { conversation: Some(handle.into()), ..RowFilter::default() };
        self.messages(queue, filter).await.iter().map(show_message).collect()
    }

    pub(crate) async fn endpoints(&self, filter: EndpointFilter) -> Vec<Endpoint> {
        self.broker.conversations(&filter, None, Extent::All).await.expect("the conversations can be looked at").rows
    }

    pub(crate) async fn info(&self, handle: &str) -> Option<Endpoint> {
        self.broker.info(handle).await.expect("the endpoint can be looked at")
    }

    /// The two letters of an endpoint's state; "" when it is gone.
    pub(crate) async fn state(&self, handle: &str) -> &'static str {
        self.info(handle).await.map_or("", |endpoint| State::letters(endpoint.state))
    }

    pub(crate) async fn queue(&self, name: &str) -> QueueInfo {
        let queues = self.broker.queues().await.expect("the queues can be looked at");
        queues.into_iter().find(|queue| &*queue.name == name).expect("a queue of that name")
    }

    pub(crate) async fn transmission(&self) -> Vec<TransmissionRow> {
        self.broker.transmission_queue(None).await.expect("the transmission queue can be looked at")
    }

    /// The rows of the transmission queue, each as "type number body".
    pub(crate) async fn outside(&self) -> Vec<String> {
        let show = |row: &TransmissionRow| {
            format!("{} {} {}", short(&row.message_type), row.message_sequence_number, show_body(&row.body))
        };
        self.transmission().await.iter().map(show).map(|row| row.trim_end().to_owned()).collect()
    }
}

pub(crate) fn definitions() -> Definitions {
    let contract =
        [("Order", SentBy::Initiator), ("Confirm", SentBy::Target), ("Note", SentBy::Any), ("Sealed", SentBy::Any)];
    let service = |queue: &str| ServiceOptions { queue: Some(queue.into()), contracts: vec!["Ordering".into()] };
    Definitions {
        message_types: ["Order", "Confirm", "Note", "Sealed"]
            .map(|name| (name.into(), if name == "Sealed" { Validation::Empty } else { Validation::None }))
            .into(),
        contracts: vec![("Ordering".into(), contract.map(|(name, sent_by)| (name.into(), sent_by)).into())],
        queues: ["counter", "kitchen", "house"].map(|name| (name.into(), QueueOptions::default())).into(),
        services: [("Counter", "counter"), ("Kitchen", "kitchen"), ("Front", "house"), ("Back", "house")]
            .map(|(name, queue)| (name.into(), service(queue)))
            .into(),
        priorities: Vec::new(),
    }
}

pub(crate) fn dialog_of(from: &str, to: &str) -> BeginDialog {
    BeginDialog { from: from.into(), to: to.into(), contract: Some("Ordering".into()), ..BeginDialog::default() }
}

pub(crate) fn to_kitchen() -> BeginDialog {
    dialog_of("Counter", "Kitchen")
}

pub(crate) fn keyed(key: &str) -> EnqueueOptions {
    EnqueueOptions { key: Some(key.into()), ..EnqueueOptions::default() }
}

pub(crate) fn top_of(top: u32) -> ReceiveOptions {
    ReceiveOptions { top: Some(top.into()), ..ReceiveOptions::default() }
}

pub(crate) fn with_error(code: f64, description: &str) -> EndOptions {
    EndOptions {
        error: Some(pocket_broker::EndError { code, description: description.into() }),
        ..EndOptions::default()
    }
}

pub(crate) fn cleanup() -> EndOptions {
    EndOptions { cleanup: true, ..EndOptions::default() }
}

pub(crate) fn archived() -> EndOptions {
    EndOptions { archive: Some(true), ..EndOptions::default() }
}

pub(crate) fn named(name: &str, body: Option<&str>) -> TimerOptions {
    TimerOptions { name: name.into(), body: body.map_or_else(Body::none, |body| Body::small(body.into())) }
}

/// The error of something that must be refused.
#[track_caller]
pub(crate) fn refused<T: std::fmt::Debug>(outcome: Result<T>, code: ErrorCode) -> Error {
    match outcome {
        Ok(value) => panic!("{} was expected, and it worked: {value:?}", code.name()),
        Err(error) => {
            assert_eq!(error.code(), code, "{error}");
            error
        }
    }
}

pub(crate) fn show_all(rows: &[Rows]) -> Vec<String> {
    rows.iter().flat_map(Rows::messages).map(|message| show_message(&message)).collect()
}

/// "status type number body".
pub(crate) fn show_message(message: &Message) -> String {
    let text = format!(
        "{} {} {} {}",
        message.status.number(),
        short(&message.message_type_name),
        message.message_sequence_number,
        show_body(&message.body)
    );
    text.trim_end().to_owned()
}

/// System types without what they have in common.
pub(crate) fn short(message_type: &str) -> &str {
    match message_type {
        system::END_DIALOG => "EndDialog",
        system::ERROR => "Error",
        system::DIALOG_TIMER => "DialogTimer",
        other => other,
    }
}

pub(crate) fn show_body(body: &Value) -> String {
    let code = body.field("code").number().map(|code| code.to_string());
    code.or_else(|| body.text()).unwrap_or_default()
}

/// What a transaction receives.
pub(crate) async fn receive(transaction: &Transaction, queue: &str) -> Vec<String> {
    show_all(&transaction.receive(queue, ReceiveOptions::default()).await.expect("the queue is on"))
}

/// SEND in a transaction.
pub(crate) async fn send(
    shop: &Shop,
    transaction: &Transaction,
    handle: &Rc<str>,
    message_type: &str,
    body: &str,
) -> Result<(), Error> {
    transaction.send(vec![Rc::clone(handle)], vec![shop.message(message_type, body)]).await
}

/// Begins a transaction.
pub(crate) fn begin(shop: &Shop) -> Rc<Transaction> {
    shop.broker.begin().expect("the broker is open")
}

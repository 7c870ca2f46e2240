//! What may happen.

use std::rc::Rc;

use futures_util::future::join_all;
use pocket_broker::body::{Body, Value};
use pocket_broker::definitions::{QueueOptions, Status};
use pocket_broker::error::{Error, ErrorCode, Result};
use pocket_broker::ids::{Decoded, Role, SideId};
use pocket_broker::store::{Fault, Operation};
use pocket_broker::{BeginDialog, Message, OutgoingMessage, ReceiveOptions, RowFilter, Rows};

use super::super::support::shop::{dialog_of, named};
use super::model::{End, Ending, QUEUES, SERVICES};
use super::{Random, agree};

/// One call on a broker, with its arguments.
#[derive(Clone, Debug)]
pub(super) enum Call {
    Send(End, &'static str, Vec<String>),
    End(End, Ending, bool),
    /// Timer of a name; without a time it is cancelled.
    Timer(End, &'static str, Option<f64>, String),
    Receive(usize, Wanted, Option<u32>),
    Alter(usize, Option<bool>, Option<bool>),
}

#[derive(Clone, Debug)]
pub(super) enum Wanted {
    Anything,
    Conversation(End),
    Group(Rc<str>),
}

/// What it answered.
#[derive(Debug)]
pub(super) enum Answer {
    Done,
    Ended(u64, u64),
    Received(Vec<Message>),
}

impl Random {
    pub(super) async fn step(&mut self) {
        if self.chance.one_in(30) {
            self.restart().await;
        }
        match self.chance.below(26) {
            0..=3 => self.begin().await,
            24..=25 => self.pass().await,
            4..=14 => {
                let tab = self.chance.below(2);
                let calls: Vec<Call> = self.call().into_iter().collect();
                self.perform(tab, calls).await;
            }
            15..=17 => {
                let tab = self.chance.below(2);
                let count = 2 + self.chance.below(5);
                let calls = (0..count).filter_map(|_| self.call()).collect();
                self.perform(tab, calls).await;
            }
            _ => self.transaction_step().await,
        }
    }

    /// A tab is closed and opened again: what is committed is there.
    async fn restart(&mut self) {
        let tab = self.chance.below(2);
        self.tell(|| format!("tab {tab} is opened again"));
        self.tabs[tab].close().await;
        let opened = if self.sees_locks { self.shop.another_tab().await } else { self.shop.tab_without_locks().await };
        self.tabs[tab] = opened;
        self.open.retain(|open| open.tab != tab);
    }

    /// Time passes, and what is due then is done.
    async fn pass(&mut self) {
        let ms = [0.0, 1.0, 500.0, 5_000.0][self.chance.below(4)];
        let tab = self.chance.below(2);
        self.shop.clock().advance(ms);
        self.now += ms;
        let fails = self.chance.one_in(8);
        if fails {
            let quota = Error::new(ErrorCode::QuotaExceeded, "No space.");
            self.shop.faults.plan(Operation::Commit, 1, Fault::Abort(quota));
        }
        self.tell(|| format!("{ms} ms pass, tab {tab} polls, fails: {fails}"));
        let polled = self.tabs[tab].poll().await;
        self.shop.faults.clear();
        if !fails || polled.is_ok() {
            let moved = self.world.poll(self.now);
            agree(polled, Ok(moved));
        }
    }

    async fn begin(&mut self) {
        let (from, to) = (self.chance.below(SERVICES.len()), self.chance.below(SERVICES.len() + 1));
        let far = SERVICES.get(to).map_or("Elsewhere", |(name, _)| name);
        let mut options = dialog_of(SERVICES[from].0, far);
        let related = if self.chance.one_in(2) { self.any_end() } else { None };
        let mut expected = Ok(None);
        if let Some(related) = related {
            let handle = Rc::clone(&self.handles[&related]);
            expected = match self.world.sides.get(&related) {
                None => Err(ErrorCode::ConversationNotFound),
                Some(side) if side.service != from => Err(ErrorCode::GroupInvalid),
                Some(_) => Ok(Some((self.group_of(&related), related))),
            };
            options = BeginDialog { related_conversation: Some(handle.to_string()), ..options };
        }
        let lifetime = if self.chance.one_in(4) { Some([1.0, 500.0, 2_000.0][self.chance.below(3)]) } else { None };
        options.lifetime = lifetime;
        self.tell(|| format!("begin {} → {far}, related {expected:?}, lifetime {lifetime:?}", SERVICES[from].0));
        let tab = self.chance.below(2);
        let begun = self.tabs[tab].begin_dialog(options).await;
        match (begun, expected) {
            (Ok(begun), Ok(group)) => {
                let end = (Rc::clone(&begun.conversation_id), true);
                let explicit = group.as_ref().map(|(group, _)| Rc::clone(group));
                if let Some((group, related)) = group {
                    assert_eq!(begun.group_id, group);
                    // Its own group is one that others are in from now on.
                    self.world.sides.get_mut(&related).expect("it is there").group = Some(group);
                }
                self.world.begin(
                    &begun.conversation_id,
                    from,
                    to,
                    explicit,
                    lifetime.map(|lifetime| self.now + lifetime),
                );
                let handle = Decoded::parse(&begun.handle).expect("a handle");
                let far = Decoded { side: SideId { role: Role::Target, ..handle.side }, ..handle };
                self.handles.insert((begun.conversation_id, false), far.text());
                self.handles.insert(end, begun.handle);
            }
            (begun, expected) => agree(begun.map(drop), expected.map(drop)),
        }
    }

    /// A call, thought up.
    pub(super) fn call(&mut self) -> Option<Call> {
        let queue = self.chance.below(QUEUES.len());
        match self.chance.below(23) {
            0..=9 => {
                let end = self.any_end()?;
                let kind = if self.chance.one_in(2) {
                    "Note"
                } else if end.1 != self.chance.one_in(20) {
                    "Order"
                } else {
                    "Confirm"
                };
                Some(Call::Send(end, kind, self.some_bodies()))
            }
            10..=14 => {
                let end = self.any_end();
                let on = end.as_ref().and_then(|end| self.world.sides.get(end)).map_or(queue, |side| side.queue);
                let wanted = match (self.chance.below(4), end) {
                    (0, Some(end)) => Wanted::Conversation(end),
                    (1, Some(end)) if self.world.sides.contains_key(&end) => Wanted::Group(self.group_of(&end)),
                    _ => Wanted::Anything,
                };
                let queue = if self.chance.one_in(10) { queue } else { on };
                let top = [None, Some(1), Some(2), Some(5)][self.chance.below(4)];
                Some(Call::Receive(queue, wanted, top))
            }
            15..=17 => {
                let ending = [Ending::Plain, Ending::Plain, Ending::Error, Ending::Cleanup][self.chance.below(4)];
                Some(Call::End(self.any_end()?, ending, self.chance.one_in(3)))
            }
            20..=22 => {
                let end = self.any_end()?;
                let name = ["", "a", "b"][self.chance.below(3)];
                let timeout = [Some(0.0), Some(1.0), Some(500.0), Some(1_000.0), None][self.chance.below(5)];
                let body = self.some_bodies().remove(0);
                Some(Call::Timer(end, name, timeout, body))
            }
            18 => Some(Call::Alter(queue, Some(self.chance.one_in(2)), None)),
            _ => Some(Call::Alter(queue, None, Some(!self.chance.one_in(3)))),
        }
    }

    /// Makes calls together and compares what each answers.
    async fn perform(&mut self, tab: usize, calls: Vec<Call>) {
        self.tell(|| format!("tab {tab}: {calls:?}"));
        let fails = self.chance.one_in(8);
        if fails {
            let quota = Error::new(ErrorCode::QuotaExceeded, "No space.");
            self.shop.faults.plan(Operation::Commit, 1, Fault::Abort(quota));
            self.tell(|| "the next commit fails".into());
        }
        // Who has waited longest can be seen before a single call, not amid many.
        let ready = match calls.as_slice() {
            [Call::Receive(queue, ..)] if !fails => Some(
                self.shop.messages(QUEUES[*queue], RowFilter { status: Some(vec![1.0]), ..RowFilter::default() }).await,
            ),
            _ => None,
        };
        let answers = join_all(calls.iter().map(|call| self.make(tab, call))).await;
        self.shop.faults.clear();
        let is_guilty =
            |answer: &Result<Answer>| answer.as_ref().is_err_and(|error| error.code() == ErrorCode::QuotaExceeded);
        assert!(
            answers.iter().filter(|answer| is_guilty(answer)).count() <= usize::from(fails),
            "one failure is one call's"
        );
        for (call, answer) in calls.iter().zip(answers).filter(|(_, answer)| !is_guilty(answer)) {
            self.compare(tab, call, answer, ready.as_deref());
        }
    }

    pub(super) async fn make(&self, tab: usize, call: &Call) -> Result<Answer> {
        let broker = &self.tabs[tab];
        match call {
            Call::Send(end, kind, bodies) => broker
                .send(vec![Rc::clone(&self.handles[end])], self.messages(kind, bodies), None)
                .await
                .map(|()| Answer::Done),
            Call::End(end, ending, archive) => {
                let ended = broker.end_conversation(&self.handles[end], ending.options(*archive)).await?;
                Ok(Answer::Ended(ended.discarded, ended.archived))
            }
            Call::Timer(end, name, timeout, body) => broker
                .begin_conversation_timer(&self.handles[end], *timeout, named(name, Some(body)))
                .await
                .map(|()| Answer::Done),
            Call::Receive(queue, wanted, top) => {
                let rows = broker.receive(QUEUES[*queue], self.wanted(wanted, *top), None).await?;
                Ok(Answer::Received(rows.iter().flat_map(Rows::messages).collect()))
            }
            Call::Alter(queue, retention, status) => {
                let status = status.map(|on| if on { Status::On } else { Status::Off });
                broker
                    .alter_queue(
                        QUEUES[*queue],
                        QueueOptions { retention: *retention, status, ..QueueOptions::default() },
                    )
                    .await
                    .map(|()| Answer::Done)
            }
        }
    }

    /// The model makes the call too.
    pub(super) fn compare(&mut self, tab: usize, call: &Call, answer: Result<Answer>, ready: Option<&[Message]>) {
        match call {
            Call::Send(end, kind, bodies) => agree(answer.map(drop), self.world.send(end, kind, bodies, false)),
            Call::End(end, ending, archive) => {
                let is_locked = self.world.sides.contains_key(end) && self.is_locked(tab, &self.group_of(end), None);
                let expected = if is_locked { Err(ErrorCode::GroupLocked) } else { self.world.end(end, *ending) };
                let expected = expected.map(|(discarded, archived)| (discarded, if *archive { archived } else { 0 }));
                let numbers = answer.map(|answer| {
                    if let Answer::Ended(discarded, archived) = answer { (discarded, archived) } else { (0, 0) }
                });
                agree(numbers, expected);
            }
            Call::Timer(end, name, timeout, body) => {
                let is_locked = self.world.sides.contains_key(end) && self.is_locked(tab, &self.group_of(end), None);
                let at = timeout.map(|timeout| self.now + timeout);
                let expected =
                    if is_locked { Err(ErrorCode::GroupLocked) } else { self.world.timer(end, name, at, body) };
                agree(answer.map(drop), expected.map(drop));
            }
            Call::Receive(queue, wanted, top) => {
                let receivable = self.receivable(tab, *queue, wanted, None);
                let messages =
                    answer.map(|answer| if let Answer::Received(messages) = answer { messages } else { Vec::new() });
                match (messages, receivable) {
                    (Ok(messages), Ok(receivable)) => {
                        self.check_received(&messages, &receivable, *top, ready);
                        for (end, rows) in self.by_end(&messages) {
                            self.world.take(&end, &rows).expect("what was received was there");
                        }
                    }
                    (messages, receivable) => agree(messages.map(drop), receivable.map(drop)),
                }
            }
            Call::Alter(queue, retention, on) => {
                agree(answer.map(drop), Ok(()));
                if let Some(retention) = retention {
                    self.world.retain(*queue, *retention);
                }
                if let Some(on) = on {
                    self.world.switch(*queue, *on);
                }
            }
        }
    }

    pub(super) fn messages(&self, kind: &str, bodies: &[String]) -> Vec<OutgoingMessage> {
        // Every seventh body is a large one.
        let size = |body: &String| if body.ends_with('7') { 70_000.0 } else { 200.0 };
        bodies
            .iter()
            .map(|body| {
                self.shop.message_of(kind, Body { value: Value::from(&**body).into(), packing: 0, size: size(body) })
            })
            .collect()
    }

    pub(super) fn wanted(&self, wanted: &Wanted, top: Option<u32>) -> ReceiveOptions {
        let mut options = ReceiveOptions { top: top.map(f64::from), ..ReceiveOptions::default() };
        match wanted {
            Wanted::Anything => {}
            Wanted::Conversation(end) => options.conversation = Some(Rc::clone(&self.handles[end])),
            Wanted::Group(group) => options.group = Some(Rc::clone(group)),
        }
        options
    }
}

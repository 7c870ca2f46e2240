//! An application: calls, transactions, and pauses, as chance has it.

use std::collections::BTreeMap;
use std::rc::Rc;

use futures_util::FutureExt;

use pocket_broker::clock::{Clock, Timer};
use pocket_broker::error::{Error, ErrorCode};
use pocket_broker::{
    Broker, FailedFilter, Failure, FailureKind, Finally, Message, Recoverability, Thrown, Transaction,
};

use crate::calls::{Answer, Call, Done, Later, Wanted};
use crate::conformance::random::model::{BIN, PLACES};
use crate::conformance::support::detail;
use crate::executor::TabId;
use crate::failing::{Recovering, Unbury};
use crate::history::{Outcome, outcome_of};
use crate::origin::{Kind, Origin};
use crate::sabotage::Sabotage;
use crate::time::TabTimer;

/// One of the tasks of a tab.
pub(crate) struct Actor {
    pub(crate) origin: Rc<Origin>,
    pub(crate) tab: TabId,
    pub(crate) broker: Rc<Broker>,
}

impl Actor {
    /// Goes on until the tab is gone.
    pub(crate) async fn act(self) {
        loop {
            self.origin.pass_gate().await;
            match self.origin.below(10) {
                0 => self.pause(&[1.0, 100.0, 6_000.0]).await,
                1..=4 => self.transact().await,
                _ => {
                    let call = Call::think_up(&self.origin).filter(|call| !matches!(call, Call::GetGroup(_)));
                    if let Some(call) = call {
                        self.call(call).await;
                    } else {
                        self.pause(&[1.0]).await;
                    }
                }
            }
        }
    }

    async fn pause(&self, lengths: &[f64]) {
        let ms = lengths[self.origin.below(lengths.len())];
        TabTimer { time: Rc::clone(&self.origin.time), tab: self.tab }.sleep(ms).await;
    }

    /// A call of its own, noted.
    pub(crate) async fn call(&self, call: Call) -> Option<Answer> {
        let turn = self.origin.readers.turn.get();
        let answer = self.note(call.clone(), call.make(&self.origin, &self.broker)).await?;
        if let (Call::Receive(queue, ..), Answer::Received(messages)) = (&call, &answer)
            && let Some(first) = messages.first()
        {
            self.origin.learn_lanes(*queue, messages);
            self.origin.note_robberies();
            let other = self.origin.readers.pass(self.tab, &first.conversation_group_id, turn);
            other.into_iter().for_each(|text| self.origin.report(Kind::TwoReaders, text));
        }
        Some(answer)
    }

    async fn note(&self, call: Call, made: impl Future<Output = Result<Answer, Error>>) -> Option<Answer> {
        let origin = &*self.origin;
        let (task, at) = (origin.tasks.current(), origin.clock.now());
        let number = origin.history.issue(self.tab, task, call.clone(), at, origin.journal.len());
        origin.tell(|| format!("tab {} #{number}: {call:?}", self.tab));
        let answer = made.await;
        origin.tell(|| format!("tab {} #{number} answers {}", self.tab, brief(&answer)));
        let outcome = match &answer {
            Ok(answer) if call.is_nothing(answer) => Outcome::Nothing,
            Ok(answer) => Outcome::Answer(answer.clone()),
            Err(error) if detail(error, "reason").as_deref() == Some("robbed") && origin.may_rob() => Outcome::Nothing,
            Err(error)
                if detail(error, "reason").as_deref() == Some("suspended") && origin.readers.has_slept(self.tab) =>
            {
                Outcome::Nothing
            }
            // The message may be marked, and the store could not be asked, or that not be noted.
            Err(_) if origin.shelf.is_some() && matches!(call, Call::Later(Later::Cancel(..))) => Outcome::Unknown,
            Err(error) if error.code() == ErrorCode::DelayedStoreFailed => Outcome::Nothing,
            Err(error) => outcome_of(error).unwrap_or_else(|| {
                origin.report(Kind::Unsound, format!("{call:?} says {error:?}"));
                Outcome::Nothing
            }),
        };
        if let Ok(Answer::Begun(info)) = &answer {
            origin.learn(info);
        }
        origin.history.resolve(number, outcome, origin.journal.len());
        answer.ok()
    }

    async fn transact(&self) {
        let origin = &*self.origin;
        let Ok(transaction) = self.broker.begin() else { return };
        let number = origin.readers.begin();
        let mut done: Vec<Done> = Vec::new();
        for step in 0..1 + origin.below(4) {
            origin.pass_gate().await;
            if origin.one_in(4) {
                self.pause(&[0.0, 50.0, 3_000.0, 40_000.0]).await;
                origin.pass_gate().await;
            }
            let queue = || origin.some_queue(&mut origin.chance.borrow_mut());
            let ended = done.last().and_then(|done| if let Call::End(end, ..) = &done.call { Some(end) } else { None });
            let ended = ended.filter(|_| origin.mix.has_delays() && origin.one_in(2));
            let behind = ended.and_then(|end| Later::behind(origin, end)).map(Call::Later);
            let is_behind = behind.is_some();
            let call = match behind.or_else(|| Call::think_up(origin)) {
                Some(Call::Alter(queue, ..)) => Call::Receive(queue, Wanted::Anything, None, None),
                Some(call) if !call.is_for_transactions() => continue,
                None => continue,
                Some(_) if step == 0 && origin.one_in(2) => {
                    Call::Receive(queue(), Wanted::Anything, None, Some(2_000.0))
                }
                Some(call) => call,
            };
            let at = origin.clock.now();
            origin.tell(|| format!("tab {} transaction {number}: {call:?}", self.tab));
            let answer = call.make_in(origin, &transaction).await;
            origin.tell(|| format!("tab {} transaction {number} answers {}", self.tab, brief(&answer)));
            match answer {
                Ok(answer) => {
                    self.enter(number, &call, &answer);
                    if is_behind && matches!(answer, Answer::Was(true)) {
                        origin.report(Kind::Revived, format!("{call:?} finds what its END has taken along"));
                    }
                    if matches!(answer, Answer::Was(true)) && origin.one_in(2) {
                        // It may go meanwhile.
                        self.pause(&[50.0, 500.0, 3_000.0, 20_000.0]).await;
                    }
                    let is_idle = matches!(call, Call::GetState(_)) || matches!(answer, Answer::Was(false));
                    if !call.is_nothing(&answer) && !is_idle {
                        done.push(Done { call, answer, at });
                    }
                }
                Err(error) if outcome_of(&error).is_none() => {
                    origin.report(Kind::Unsound, format!("{call:?} says {error:?}"))
                }
                Err(_) => {}
            }
        }
        origin.pass_gate().await;
        origin.readers.leave(number);
        match origin.below(8) {
            0 => transaction.rollback(),
            1 => drop(transaction),
            2..=4 if origin.mix.has_lanes() => self.recover(&transaction, &done).await,
            2..=3 => {
                let fail = async { transaction.fail(None).map(|()| Ok(Answer::Done)).await };
                // Where the storage fails, nobody knows whether it was counted.
                if origin.counts_failures && transaction.is_open() {
                    _ = self.note(Call::Fail(first_of_each_queue(&done)), fail).await
                } else {
                    _ = fail.await
                }
            }
            _ => {
                let commit = async { transaction.commit().await.map(|()| Answer::Done) };
                let committed = self.note(Call::Commit(done.clone()), commit).await;
                if committed.is_some() {
                    let later = done
                        .iter()
                        .filter_map(|done| if let Call::Later(later) = &done.call { Some(later) } else { None });
                    later.for_each(|later| later.learn_late(origin));
                }
                if committed.is_none() && origin.mix.has_lanes() && origin.one_in(2) {
                    self.recover(&transaction, &done).await;
                }
            }
        }
    }

    /// The handler of what was received first has failed.
    async fn recover(&self, transaction: &Transaction, done: &[Done]) {
        let origin = &*self.origin;
        // What was put off comes early where the clock is set back, which the model does not know.
        let first = first_of(done).filter(|_| !origin.has_jumps);
        let Some((queue, message)) = first else { return transaction.rollback() };
        let kinds = [FailureKind::Ordinary, FailureKind::Unrecoverable, FailureKind::Later(None)];
        let last = [Finally::ErrorQueue, Finally::RetryForever, Finally::Rollback];
        let failed = Recovering {
            message: message.clone(),
            queue,
            // After a commit that failed it is the first one that counts.
            firsts: if transaction.is_open() {
                first_of_each_queue(done)
            } else {
                vec![Rc::clone(&message.conversation_handle)]
            },
            kind: kinds[origin.below(8).saturating_sub(5)],
            policy: Recoverability {
                immediate_retries: origin.below(2) as u64,
                delayed_retries: origin.below(2) as u64,
                time_increase: 1_000.0,
                // Where the storage fails, nobody knows whether it was counted.
                finally: last[origin.below(if origin.counts_failures { 6 } else { 5 }).saturating_sub(3)],
            },
            error: format!("error {}", origin.body()),
        };
        origin.note_failed(message);
        let failure = Failure {
            kind: failed.kind,
            error: Thrown { name: "TypeError".into(), message: failed.error.as_str().into(), code: None },
            message_id: Rc::clone(&message.message_id),
            queue: PLACES[queue].into(),
            stack: "".into(),
            endpoint: "".into(),
        };
        let policy = failed.policy.clone();
        let recover = async {
            let recovered = transaction.recover(failure, policy).await?;
            if origin.breaks(Sabotage::Grave) {
                let message_id = Some(Rc::clone(&message.message_id));
                self.broker.discard_failed(&FailedFilter { message_id, ..FailedFilter::default() }).await?;
            }
            Ok(recovered.map_or(Answer::Done, Answer::Recovered))
        };
        self.note(Call::Recover(Box::new(failed)), recover).await;
    }

    /// Everything that is left is received, and what has failed tried once more.
    pub(crate) async fn do_the_rest(&self) {
        let places = || (0..PLACES.len()).filter(|queue| *queue != BIN || self.origin.mix.has_lanes());
        if self.origin.mix.has_lanes() {
            self.call(Call::Define(None)).await;
        }
        for queue in places() {
            self.call(Call::Alter(queue, None, Some(true))).await;
        }
        // Whatever is due is over.
        TabTimer { time: Rc::clone(&self.origin.time), tab: self.tab }.sleep(600_000.0).await;
        self.call(Call::Poll).await;
        if self.origin.mix.has_lanes() {
            self.call(Call::Unbury(Unbury { discard: false, one: None, limit: None, alone: true })).await;
        }
        for queue in places() {
            let receive = || self.call(Call::Receive(queue, Wanted::Next, Some(3), None));
            while matches!(receive().await, Some(Answer::Received(messages)) if !messages.is_empty()) {}
        }
    }

    /// The transaction has got what it has got.
    fn enter(&self, transaction: u64, call: &Call, answer: &Answer) {
        if let (Call::Receive(queue, ..), Answer::Received(messages)) = (call, answer) {
            self.origin.learn_lanes(*queue, messages);
        }
        let group = match answer {
            Answer::Begun(info) => {
                self.origin.learn(info);
                None
            }
            Answer::Received(messages) => messages.first().map(|message| Rc::clone(&message.conversation_group_id)),
            Answer::Group(group) => group.clone(),
            _ => None,
        };
        self.origin.note_robberies();
        let other = group.and_then(|group| self.origin.readers.enter(self.tab, transaction, &group));
        other.into_iter().for_each(|text| self.origin.report(Kind::TwoReaders, text));
    }
}

/// The first row that was received, and its queue.
fn first_of(done: &[Done]) -> Option<(usize, &Message)> {
    done.iter().find_map(|done| match (&done.call, &done.answer) {
        (Call::Receive(queue, ..), Answer::Received(messages)) => Some((*queue, messages.first()?)),
        _ => None,
    })
}

/// The handles of the first rows that were received, one for each queue.
fn first_of_each_queue(done: &[Done]) -> Vec<Rc<str>> {
    let mut queues = BTreeMap::new();
    for done in done {
        if let (Call::Receive(queue, ..), Answer::Received(messages)) = (&done.call, &done.answer)
            && let Some(first) = messages.first()
        {
            queues.entry(*queue).or_insert_with(|| Rc::clone(&first.conversation_handle));
        }
    }
    queues.into_values().collect()
}

fn brief(answer: &Result<Answer, Error>) -> String {
    match answer {
        Ok(Answer::Received(messages)) => {
            let shown = |message: &pocket_broker::Message| {
                let handle = &message.conversation_handle;
                format!("{handle} {}", crate::conformance::support::shop::show_message(message))
            };
            format!("{:#?}", messages.iter().map(shown).collect::<Vec<_>>())
        }
        answer => format!("{answer:?}"),
    }
}

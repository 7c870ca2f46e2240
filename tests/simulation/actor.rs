//! An application: calls, transactions, and pauses, as chance has it.

use std::collections::BTreeMap;
use std::rc::Rc;

use futures_util::FutureExt;

use pocket_broker::Broker;
use pocket_broker::clock::{Clock, Timer};
use pocket_broker::error::Error;

use crate::calls::{Answer, Call, Done, Wanted};
use crate::executor::TabId;
use crate::history::{Outcome, outcome_of};
use crate::origin::{Kind, Origin};
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
        if let Answer::Received(messages) = &answer
            && let Some(first) = messages.first()
        {
            let other = self.origin.readers.pass(self.tab, &first.conversation_group_id, turn);
            other.into_iter().for_each(|text| self.origin.report(Kind::TwoReaders, text));
        }
        Some(answer)
    }

    async fn note(&self, call: Call, made: impl Future<Output = Result<Answer, Error>>) -> Option<Answer> {
        let origin = &*self.origin;
        let (task, at) = (origin.tasks.current(), origin.time.now());
        let number = origin.history.issue(self.tab, task, call.clone(), at, origin.journal.len());
        origin.tell(|| format!("tab {} #{number}: {call:?}", self.tab));
        let answer = made.await;
        origin.tell(|| format!("tab {} #{number} answers {}", self.tab, brief(&answer)));
        let outcome = match &answer {
            Ok(answer) if call.is_nothing(answer) => Outcome::Nothing,
            Ok(answer) => Outcome::Answer(answer.clone()),
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
            let call = match Call::think_up(origin) {
                Some(Call::Alter(queue, ..)) => Call::Receive(queue, Wanted::Anything, None, None),
                Some(Call::Poll) | None => continue,
                Some(_) if step == 0 && origin.one_in(2) => {
                    Call::Receive(origin.below(3), Wanted::Anything, None, Some(2_000.0))
                }
                Some(call) => call,
            };
            let at = origin.time.now();
            origin.tell(|| format!("tab {} transaction {number}: {call:?}", self.tab));
            let answer = call.make_in(origin, &transaction).await;
            origin.tell(|| format!("tab {} transaction {number} answers {}", self.tab, brief(&answer)));
            match answer {
                Ok(answer) => {
                    self.enter(number, &answer);
                    if !call.is_nothing(&answer) && !matches!(call, Call::GetState(_)) {
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
            2..=3 => {
                let fail = async { transaction.fail(None).map(|()| Ok(Answer::Done)).await };
                // Where the storage fails, nobody knows whether it was counted.
                if origin.counts_failures {
                    _ = self.note(Call::Fail(first_of_each_queue(&done)), fail).await
                } else {
                    _ = fail.await
                }
            }
            _ => _ = self.note(Call::Commit(done), async { transaction.commit().await.map(|()| Answer::Done) }).await,
        }
    }

    /// The transaction has got what it has got.
    fn enter(&self, transaction: u64, answer: &Answer) {
        let group = match answer {
            Answer::Begun(info) => {
                self.origin.learn(info);
                None
            }
            Answer::Received(messages) => messages.first().map(|message| Rc::clone(&message.conversation_group_id)),
            Answer::Group(group) => group.clone(),
            _ => None,
        };
        let other = group.and_then(|group| self.origin.readers.enter(self.tab, transaction, &group));
        other.into_iter().for_each(|text| self.origin.report(Kind::TwoReaders, text));
    }
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

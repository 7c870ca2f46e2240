//! Poison messages: attempts of transactions are counted, and the queue of a conversation that fails again and again is switched off.
//!
//! An attempt begins when a transaction receives its first rows: the mark of it is stored with that call, so that a tab that dies over a
//! message leaves a trace. It ends with the transaction. What is counted belongs to the conversation of the first row; a commit that received
//! from a conversation sets its counts to 0, and so does switching the queue on.

use std::cell::RefCell;
use std::rc::Rc;

use crate::changes::Changes;
use crate::conversation::Side;
use crate::core::Core;
use crate::definitions::{self, Catalog};
use crate::driver::Driver;
use crate::error::{Error, ErrorCode, Result};
use crate::ids::SideId;
use crate::line;
use crate::map::Map;
use crate::notice::Notice;
use crate::reads::Reads;
use crate::stop::Outcome;
use crate::store::Tx;
use crate::verbs::Verb;
use crate::work::{Purpose, Work};

/// So many rollbacks in a row are poison.
pub(crate) const ROLLBACKS: u64 = 5;
/// So many attempts in a row that never ended are poison, too: a tab dies for other reasons than its messages.
pub(crate) const UNFINISHED: u64 = 20;

/// What transactions have made of the rows that a side has to give.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Trial {
    /// The counts are of this epoch of the service's counters: in another one they are 0.
    pub(crate) epoch: u64,
    /// Rollbacks in a row.
    pub(crate) rollbacks: u64,
    /// Attempts that began, and of whose end nobody has heard.
    pub(crate) unfinished: u64,
}

/// What becomes of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    Begun,
    /// The application gave up on the messages.
    Failed,
    /// The same, and its mark is off: the commit had failed before.
    Refused,
    /// Something else was in the way: the storage, a lock, the caller's abort.
    Withdrawn,
}

/// Counts an attempt. Gives whether the messages are poison: then the queue is off from now on.
pub(crate) fn count(work: &mut Work<'_>, id: SideId, attempt: Attempt) -> Outcome<bool> {
    let Some(mut conversation) = work.conversation(id.conversation)? else { return Ok(false) };
    let side = conversation.side_mut(id.role).as_mut();
    // One that has ended has nothing left to try, and nobody would take off what is counted.
    let Some(side) = side.filter(|side| !side.state.is_over()) else { return Ok(false) };
    let service = side.service;
    let queue = work.queue_of(service)?;
    let epoch = work.queue(queue.number)?.services.get(&service).map_or(0, |counters| counters.epoch);
    let before = side.trial.of(epoch);
    let mut trial = before;
    match attempt {
        Attempt::Begun => trial.unfinished += 1,
        Attempt::Failed | Attempt::Withdrawn => trial.unfinished = trial.unfinished.saturating_sub(1),
        Attempt::Refused => {}
    }
    if matches!(attempt, Attempt::Failed | Attempt::Refused) {
        trial.rollbacks += 1;
        work.count(service, |counters| counters.tried(before.rollbacks, trial.rollbacks))?;
    }
    let is_poison = attempt != Attempt::Withdrawn && (trial.rollbacks >= ROLLBACKS || trial.unfinished > UNFINISHED);
    if is_poison && queue.poison_message_handling && queue.receive_enabled {
        if attempt == Attempt::Begun {
            // It does not begin.
            trial = before;
        }
        definitions::switch_off(work, &queue, "poison")?;
    }
    side.trial = trial;
    let told = work.changes.notice.told();
    work.save(conversation);
    if attempt == Attempt::Withdrawn {
        // Nothing that anybody can see has changed.
        work.changes.notice.back_to(told);
    }
    Ok(is_poison && queue.poison_message_handling)
}

/// The begin of an attempt, stored with the first rows that a transaction receives from a queue.
#[derive(Debug)]
pub(crate) struct Begun {
    queue: u32,
    side: SideId,
    is_poison: bool,
    notice: Notice,
    catalog: Rc<Catalog>,
}

/// The attempts of one transaction: by queue, whose rows it received first.
#[derive(Debug, Default)]
pub(crate) struct Attempts(RefCell<Map<u32, SideId>>);

impl Attempts {
    /// Whether an attempt may begin with a verb: it may be the first to receive from its queue.
    pub(crate) fn may_begin(&self, core: &Core, verb: &Verb) -> bool {
        let Verb::Receive(name, _) = verb else { return false };
        let catalog = core.catalog();
        let number = catalog.queues.get(name).map(|queue| queue.number);
        number.is_none_or(|number| !self.0.borrow().contains_key(&number))
    }

    /// Counts the begin of an attempt, in the storage transaction that reads the rows, and puts turns that were found too far in front
    /// (`late`) where they belong.
    pub(crate) async fn begin(
        &self,
        core: &Core,
        tx: &Tx,
        catalog: Rc<Catalog>,
        side: SideId,
        late: &[(SideId, u64)],
    ) -> Outcome<Option<Begun>> {
        let (mut reads, mut changes) = (Reads::default(), Changes::default());
        let mut driver = Driver { catalog, ..Driver::new(core, tx, &mut reads, &mut changes) };
        let begin = |work: &mut Work<'_>| {
            work.need(late.iter().map(|(late, _)| late.conversation), [])?;
            late.iter().try_for_each(|(late, order)| line::correct(work, *late, *order))?;
            self.count_begin(work, side)
        };
        let counted = driver.run(Purpose::Commit, begin).await?;
        let Some((queue, is_poison)) = counted else { return Ok(None) };
        driver.hand_over().await?;
        let catalog = driver.catalog;
        Ok(Some(Begun { queue, side, is_poison, notice: changes.notice, catalog }))
    }

    fn count_begin(&self, work: &mut Work<'_>, id: SideId) -> Outcome<Option<(u32, bool)>> {
        let conversation = work.conversation(id.conversation)?;
        let Some(service) = conversation.and_then(|conversation| Some(conversation.side(id.role)?.service)) else {
            return Ok(None);
        };
        let queue = work.queue_of(service)?.number;
        if self.0.borrow().contains_key(&queue) {
            return Ok(None);
        }
        Ok(Some((queue, count(work, id, Attempt::Begun)?)))
    }

    /// After that commit.
    pub(crate) fn begun(&self, core: &Rc<Core>, begun: Begun) -> Result<()> {
        if !begun.is_poison {
            self.0.borrow_mut().insert(begun.queue, begun.side);
            return Ok(());
        }
        core.keep_catalog(begun.catalog);
        core.announce(&begun.notice);
        let text = format!(
            "The queue was switched off: {ROLLBACKS} attempts in a row to handle the next messages of one conversation have failed, or {UNFINISHED} have begun and never ended. Look at them with select, mend the handler or END the conversation, then switch the queue on with alterQueue."
        );
        Err(Error::new(ErrorCode::QueueDisabled, text).with("reason", "poison"))
    }

    /// The transaction has committed: the commit has set the counts to 0.
    pub(crate) fn succeed(&self) {
        self.0.borrow_mut().clear();
    }

    /// What counts their end, if any has begun.
    pub(crate) fn end(&self, attempt: Attempt) -> Option<Rc<Verb>> {
        let attempts = self.take();
        (!attempts.is_empty()).then(|| Rc::new(Verb::Attempts(attempts, attempt)))
    }

    /// Whose marks are to be taken off.
    pub(crate) fn take(&self) -> Vec<SideId> {
        self.0.take().values().copied().collect()
    }

    /// They were ended by something else than a failure of the application: they do not count.
    pub(crate) fn withdraw(&self, core: &Rc<Core>) {
        if let Some(verb) = self.end(Attempt::Withdrawn) {
            drop(core.commit(verb, Purpose::Commit, 0, None, None));
        }
    }
}

/// A commit has received from the side, or ENDs it: its counts are 0.
pub(crate) fn settle(work: &mut Work<'_>, side: &mut Side) -> Outcome<()> {
    let counted = std::mem::take(&mut side.trial);
    if counted.rollbacks > 0 {
        let queue = work.queue_of(side.service)?.number;
        let epoch = work.queue(queue)?.services.get(&side.service).map_or(0, |counters| counters.epoch);
        let rollbacks = counted.of(epoch).rollbacks;
        work.count(side.service, |counters| counters.tried(rollbacks, 0))?;
    }
    Ok(())
}

impl Trial {
    /// What it says in an epoch.
    pub(crate) fn of(self, epoch: u64) -> Self {
        if self.epoch == epoch { self } else { Self { epoch, ..Self::default() } }
    }
}

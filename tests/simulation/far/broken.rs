//! Breaks brokers at their ports, to show that the simulation would notice.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use pocket_broker::body::Value;
use pocket_broker::error::Result;
use pocket_broker::store::{Change, Direction, Key, Mode, Range, Session, Source, Store, StoreName};

use super::ledger::{INITIATOR, TARGET};
use crate::conformance::support::chance::Chance;

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sabotage {
    /// An acknowledgement is believed for a number that was never handed over.
    Gullible,
    /// A number that was there before is taken for the next one.
    Repeats,
    /// A row leaves when a transport has accepted it.
    Accepts,
    /// What arrives is acknowledged, and then not stored.
    Early,
    /// Nobody remembers which conversations are finished.
    Forgetful,
}

/// Does it, now and then.
pub(crate) struct Saboteur {
    sabotage: Sabotage,
    chance: RefCell<Chance>,
    /// Envelopes are being delivered.
    pub(crate) delivering: Cell<u32>,
    /// Of a conversation, and of this receiver, the last number comes again.
    pub(crate) again: RefCell<Option<(Rc<str>, usize)>>,
}

/// Where a conversation's record has its id and its sides, and a side what this is about.
const ID: usize = 4;
const SIDES: [usize; 2] = [13, 14];
const NEXT_EXPECTED: usize = 5;
const CURSOR: usize = 6;
const OUTGOING: usize = 24;
const HANDED: usize = 5;

impl Saboteur {
    pub(crate) fn new(sabotage: Sabotage, seed: u64) -> Self {
        Self { sabotage, chance: RefCell::new(Chance(!seed)), delivering: Cell::new(0), again: RefCell::default() }
    }

    pub(crate) fn strikes(&self, sabotage: Sabotage) -> bool {
        self.sabotage == sabotage && (sabotage != Sabotage::Early || self.chance.borrow_mut().one_in(8))
    }

    pub(crate) fn store(self: &Rc<Self>, inner: Rc<dyn Store>) -> Rc<dyn Store> {
        Rc::new(BrokenStore { inner, saboteur: Rc::clone(self) })
    }

    /// What a broker reads in place of a conversation's record.
    fn broken(&self, record: Value) -> Value {
        if self.strikes(Sabotage::Gullible) {
            let gullible = |record: Value, place: usize| {
                let side = record.item(place);
                let outgoing = if side.is_list() { side.item(OUTGOING) } else { Value::null() };
                // Who has handed nothing over has no name that he could be told by.
                if !outgoing.is_list() || outgoing.item(HANDED).number().is_none_or(|handed| handed < 1.0) {
                    return record;
                }
                let outgoing = outgoing.with_item(HANDED, 1_000_000u32.into());
                record.with_item(place, side.with_item(OUTGOING, outgoing))
            };
            return SIDES.into_iter().fold(record, gullible);
        }
        if self.strikes(Sabotage::Repeats)
            && let Some((id, role)) = &*self.again.borrow()
            && record.item(ID).text().as_deref() == Some(&**id)
        {
            let place = SIDES[if *role == INITIATOR { INITIATOR } else { TARGET }];
            let side = record.item(place);
            let expected = if side.is_list() { side.item(NEXT_EXPECTED).number() } else { None };
            let before = expected.map(|expected| expected - 1.0).filter(|before| *before >= 0.0);
            if let Some(before) = before
                && side.item(CURSOR).number() == expected
            {
                let side = side.with_item(NEXT_EXPECTED, before.into()).with_item(CURSOR, before.into());
                return record.with_item(place, side);
            }
        }
        record
    }
}

struct BrokenStore {
    inner: Rc<dyn Store>,
    saboteur: Rc<Saboteur>,
}

impl Store for BrokenStore {
    fn begin<'a>(&'a self, scope: &'a [StoreName], mode: Mode) -> LocalBoxFuture<'a, Result<Box<dyn Session>>> {
        async move {
            let inner = self.inner.begin(scope, mode).await?;
            let saboteur = Rc::clone(&self.saboteur);
            let session: Box<dyn Session> = Box::new(BrokenSession { inner, saboteur, has_arrived: Cell::new(false) });
            Ok(session)
        }
        .boxed_local()
    }

    fn close(&self) {
        self.inner.close();
    }
}

struct BrokenSession {
    inner: Box<dyn Session>,
    saboteur: Rc<Saboteur>,
    has_arrived: Cell<bool>,
}

impl Session for BrokenSession {
    fn get<'a>(&'a self, store: StoreName, key: &Key) -> LocalBoxFuture<'a, Result<Option<Value>>> {
        let answer = self.inner.get(store, key);
        async move {
            let answer = answer.await?;
            let is_meant = store == StoreName::Conversations;
            Ok(answer.map(|value| if is_meant { self.saboteur.broken(value) } else { value }))
        }
        .boxed_local()
    }

    fn get_range<'a>(
        &'a self,
        source: Source,
        range: &Range,
        limit: Option<u32>,
        direction: Direction,
    ) -> LocalBoxFuture<'a, Result<Vec<Value>>> {
        self.inner.get_range(source, range, limit, direction)
    }

    fn get_keys<'a>(
        &'a self,
        source: Source,
        range: &Range,
        limit: Option<u32>,
    ) -> LocalBoxFuture<'a, Result<Vec<Key>>> {
        self.inner.get_keys(source, range, limit)
    }

    fn count<'a>(&'a self, source: Source, range: &Range) -> LocalBoxFuture<'a, Result<u64>> {
        self.inner.count(source, range)
    }

    fn write(&self, change: Change) -> Result<()> {
        let is_put = |store| change.store() == store && matches!(change, Change::Put(..));
        if is_put(StoreName::Messages) && self.saboteur.delivering.get() > 0 {
            self.has_arrived.set(true);
        }
        if is_put(StoreName::Seen) && self.saboteur.strikes(Sabotage::Forgetful) {
            return Ok(());
        }
        self.inner.write(change)
    }

    fn commit(self: Box<Self>) -> LocalBoxFuture<'static, Result<()>> {
        if self.has_arrived.get() && self.saboteur.strikes(Sabotage::Early) {
            return self.inner.abort().map(|()| Ok(())).boxed_local();
        }
        self.inner.commit()
    }

    fn abort(self: Box<Self>) -> LocalBoxFuture<'static, ()> {
        self.inner.abort()
    }
}

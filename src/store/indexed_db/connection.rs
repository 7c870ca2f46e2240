//! A connection to a database, and what can happen to it.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use js_sys::Array;
use wasm_bindgen::prelude::*;
use web_sys::{Event, IdbTransaction, IdbVersionChangeEvent};

use super::super::failure::connection_lost;
use super::super::{Mode, StoreName};
use super::error::{from_exception, is_over};
use super::open::{Database, open};
use super::request::Requests;
use super::sys::{self, TransactionArguments};
use super::transaction::Transactions;
use super::{CloseReason, IndexedDbOptions};
use crate::error::Result;
use crate::map::Map;

/// What has become of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It can begin transactions.
    Open,
    /// The browser took it away. Another one may be opened.
    Lost,
    /// We let go of it. Another one may be opened.
    LetGo,
    /// It was closed, by us or for another tab's sake.
    Closed,
}

pub(super) struct Connection {
    database: Database,
    pub(super) requests: Rc<Requests>,
    pub(super) transactions: Rc<Transactions>,
    /// Whether a commit has to be asked for from a success handler.
    pub(super) commits_late: bool,
    arguments: TransactionArguments,
    /// Scopes that were used, as JavaScript takes them.
    scopes: RefCell<Map<Vec<StoreName>, Array>>,
    fate: Rc<Cell<Fate>>,
    /// Owned here, so that they live as long as events may come.
    _on_version_change: Closure<dyn Fn(IdbVersionChangeEvent)>,
    _on_close: Closure<dyn Fn(Event)>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("fate", &self.fate)
            .field("transactions", &self.transactions)
            .finish_non_exhaustive()
    }
}

impl Connection {
    pub(super) async fn open(name: &str, options: &IndexedDbOptions, is_known: bool) -> Result<Rc<Self>> {
        let database = open(name, is_known).await?;
        let requests = Rc::new(Requests::new());
        let transactions = Rc::new(Transactions::new());
        let fate = Rc::new(Cell::new(Fate::Open));

        let on_version_change = Closure::new({
            let (fate, notify, database) = (Rc::clone(&fate), options.on_close.clone(), database.handle());
            move |event: IdbVersionChangeEvent| {
                // At once, whatever the app does next: until then the other tab is blocked.
                database.close();
                let reason =
                    if event.new_version().is_none() { CloseReason::Deleted } else { CloseReason::UpgradedElsewhere };
                if fate.replace(Fate::Closed) == Fate::Open
                    && let Some(notify) = &notify
                {
                    notify(reason);
                }
            }
        });
        let on_close = Closure::new({
            let (fate, requests, transactions) = (Rc::clone(&fate), Rc::clone(&requests), Rc::clone(&transactions));
            move |_: Event| {
                lose(&fate);
                requests.lose();
                transactions.lose();
            }
        });
        database.set_onversionchange(Some(on_version_change.as_ref().unchecked_ref()));
        database.set_onclose(Some(on_close.as_ref().unchecked_ref()));

        Ok(Rc::new(Self {
            database,
            requests,
            transactions,
            commits_late: sys::commits_late(),
            arguments: TransactionArguments::new(options.durability),
            scopes: RefCell::default(),
            fate,
            _on_version_change: on_version_change,
            _on_close: on_close,
        }))
    }
}

impl Connection {
    pub(super) fn fate(&self) -> Fate {
        self.fate.get()
    }

    /// Begins a transaction. A connection that was closed behind our back is found out here.
    pub(super) fn begin(&self, scope: &[StoreName], mode: Mode) -> Result<IdbTransaction> {
        self.arguments.begin(&self.database, &self.scope(scope), mode).map_err(|exception| {
            if is_over(&exception) {
                lose(&self.fate);
                connection_lost()
            } else {
                from_exception(exception)
            }
        })
    }

    /// What runs is rolled back, unless its commit was asked for: nobody is to wait for it.
    pub(super) fn let_go(&self) {
        if self.fate.get() == Fate::Open {
            self.fate.set(Fate::LetGo);
        }
        // Whoever waits for an answer rolls back when he hears that there is none.
        self.requests.lose();
        self.transactions.let_go();
        self.database.close();
    }

    /// Running transactions finish.
    pub(super) fn close(&self) {
        self.fate.set(Fate::Closed);
        self.database.close();
    }

    fn scope(&self, scope: &[StoreName]) -> Array {
        if let Some(array) = self.scopes.borrow().get(scope) {
            return array.clone();
        }
        let array: Array = scope.iter().map(|store| JsValue::from_str(store.name())).collect();
        self.scopes.borrow_mut().insert(scope.to_vec(), array.clone());
        array
    }
}

fn lose(fate: &Cell<Fate>) {
    if fate.get() == Fate::Open {
        fate.set(Fate::Lost);
    }
}

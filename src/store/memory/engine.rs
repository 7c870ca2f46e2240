//! The transactions of a memory store: who waits for whom, and when each is over.

use std::collections::VecDeque;
use std::fmt;

use futures_channel::oneshot;

use super::super::{Mode, StoreName};
use super::tables::{Before, Tables};

/// Something that a transaction asked for.
pub(super) type Request = Box<dyn FnOnce(&mut Tables, &mut Vec<Before>)>;

/// The records, and the transactions that have not finished, in order of creation.
#[derive(Debug, Default)]
pub(super) struct Engine {
    tables: Tables,
    live: Vec<Transaction>,
    begun: u64,
}

struct Transaction {
    number: u64,
    scope: Vec<StoreName>,
    mode: Mode,
    requests: VecDeque<Request>,
    /// Requests whose answers have not been taken: while there is one, the transaction stays open.
    outstanding: u32,
    undo: Vec<Before>,
    /// Set once the commit was asked for.
    committing: Option<oneshot::Sender<()>>,
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").field("number", &self.number).field("scope", &self.scope).field("mode", &self.mode).finish_non_exhaustive()
    }
}

impl Engine {
    /// Creates a transaction and returns its number.
    pub(super) fn begin(&mut self, scope: &[StoreName], mode: Mode) -> u64 {
        self.begun += 1;
        self.live.push(Transaction {
            number: self.begun,
            scope: scope.to_vec(),
            mode,
            requests: VecDeque::new(),
            outstanding: 0,
            undo: Vec::new(),
            committing: None,
        });
        self.begun
    }

    /// Whether the transaction can take requests.
    pub(super) fn is_open(&self, number: u64) -> bool {
        self.live.iter().any(|transaction| transaction.number == number && transaction.committing.is_none())
    }

    /// Takes a request. It is served at once, or as soon as no earlier transaction is in the way.
    pub(super) fn request(&mut self, number: u64, request: Request) {
        if let Some(transaction) = self.find(number) {
            transaction.requests.push_back(request);
        }
        self.serve();
    }

    /// A request's answer is awaited.
    pub(super) fn hold(&mut self, number: u64) {
        if let Some(transaction) = self.find(number) {
            transaction.outstanding += 1;
        }
    }

    /// The answer was taken, or nobody wants it any more.
    pub(super) fn let_go(&mut self, number: u64) {
        if let Some(transaction) = self.find(number) {
            transaction.outstanding = transaction.outstanding.saturating_sub(1);
        }
    }

    /// Asks for the commit; the receiver learns of it. A transaction that has closed itself has committed already.
    pub(super) fn commit(&mut self, number: u64) -> oneshot::Receiver<()> {
        let (done, receiver) = oneshot::channel();
        if let Some(transaction) = self.find(number) {
            transaction.committing = Some(done);
        }
        self.serve();
        receiver
    }

    /// Undoes a transaction, unless it has finished or was told to commit.
    pub(super) fn roll_back(&mut self, number: u64) {
        if self.is_open(number)
            && let Some(position) = self.live.iter().position(|transaction| transaction.number == number)
        {
            let transaction = self.live.remove(position);
            self.tables.revert(transaction.undo);
            self.serve();
        }
    }

    /// Control has been with the executor, on behalf of transaction `current`: every other one that had nothing outstanding meanwhile has
    /// closed itself, as in IndexedDB.
    pub(super) fn turn(&mut self, current: u64) {
        let mut position = 0;
        while let Some(transaction) = self.live.get(position) {
            let idle = transaction.outstanding == 0 && transaction.requests.is_empty() && transaction.committing.is_none();
            if idle && transaction.number != current {
                self.live.remove(position);
            } else {
                position += 1;
            }
        }
        self.serve();
    }

    /// Serves every transaction that nobody blocks. Only earlier ones can block, so one pass in order of creation is enough.
    fn serve(&mut self) {
        let mut position = 0;
        while position < self.live.len() {
            let (earlier, rest) = self.live.split_at_mut(position);
            let Some(transaction) = rest.first_mut() else { break };
            if earlier.iter().any(|earlier| earlier.blocks(transaction)) {
                position += 1;
                continue;
            }
            for request in transaction.requests.drain(..) {
                request(&mut self.tables, &mut transaction.undo);
            }
            if let Some(done) = transaction.committing.take() {
                self.live.remove(position);
                // Whoever asked may have gone away; the commit counts all the same.
                let _ = done.send(());
            } else {
                position += 1;
            }
        }
    }

    fn find(&mut self, number: u64) -> Option<&mut Transaction> {
        self.live.iter_mut().find(|transaction| transaction.number == number)
    }
}

impl Transaction {
    fn blocks(&self, later: &Self) -> bool {
        (self.mode == Mode::ReadWrite || later.mode == Mode::ReadWrite) && self.scope.iter().any(|store| later.scope.contains(store))
    }
}

//! The transactions of a memory store: who waits for whom, and when each is over.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::mem;
use std::task::Waker;

use futures_channel::oneshot;
use futures_util::FutureExt;

use super::super::{Mode, StoreName};
use super::tables::{Before, Tables};

/// Something that a transaction asked for.
pub(super) type Request = Box<dyn FnOnce(&mut Tables, &mut Vec<Before>)>;

/// The records and the transactions of one database, over all its connections.
#[derive(Debug, Default)]
pub(super) struct Engine(RefCell<State>);

#[derive(Debug, Default)]
struct State {
    tables: Tables,
    /// The transactions that have not finished, in order of creation.
    live: Vec<Transaction>,
    begun: u64,
    /// Who waits for an answer.
    waiting: Vec<Waker>,
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
        f.debug_struct("Transaction").field("number", &self.number).field("scope", &self.scope).finish_non_exhaustive()
    }
}

impl Engine {
    /// Creates a transaction and returns its number.
    pub(super) fn begin(&self, scope: &[StoreName], mode: Mode) -> u64 {
        let mut state = self.0.borrow_mut();
        state.begun += 1;
        let transaction = Transaction {
            number: state.begun,
            scope: scope.to_vec(),
            mode,
            requests: VecDeque::new(),
            outstanding: 0,
            undo: Vec::new(),
            committing: None,
        };
        state.live.push(transaction);
        state.begun
    }

    /// Whether the transaction can take requests.
    pub(super) fn is_open(&self, number: u64) -> bool {
        self.0.borrow().live.iter().any(|transaction| transaction.number == number && transaction.committing.is_none())
    }

    /// Takes a request. It is served at once, or as soon as no earlier transaction is in the way.
    pub(super) fn request(&self, number: u64, request: Request) {
        let mut state = self.0.borrow_mut();
        if let Some(transaction) = state.find(number) {
            transaction.requests.push_back(request);
        }
        state.serve();
    }

    /// A request's answer is awaited.
    pub(super) fn hold(&self, number: u64) {
        if let Some(transaction) = self.0.borrow_mut().find(number) {
            transaction.outstanding += 1;
        }
    }

    /// The answer was taken, or nobody wants it any more. If the transaction asks for nothing else, those who wait for it will find out.
    pub(super) fn let_go(&self, number: u64) {
        let mut state = self.0.borrow_mut();
        if let Some(transaction) = state.find(number) {
            transaction.outstanding = transaction.outstanding.saturating_sub(1);
        }
        let waiting = mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Asks for the commit; the receiver learns of it. A transaction that has closed itself has committed already.
    pub(super) fn commit(&self, number: u64) -> oneshot::Receiver<()> {
        let (done, receiver) = oneshot::channel();
        let mut state = self.0.borrow_mut();
        if let Some(transaction) = state.find(number) {
            transaction.committing = Some(done);
        }
        state.serve();
        receiver
    }

    /// Undoes a transaction, unless it has finished or was told to commit.
    pub(super) fn roll_back(&self, number: u64) {
        let mut state = self.0.borrow_mut();
        let position =
            state.live.iter().position(|transaction| transaction.number == number && transaction.committing.is_none());
        if let Some(position) = position {
            let transaction = state.live.remove(position);
            state.tables.revert(transaction.undo);
            state.serve();
        }
    }

    /// The answer to a request of transaction `number`; `None` if the transaction ended before it.
    pub(super) fn wait<T>(&self, number: u64, mut answer: oneshot::Receiver<T>) -> impl Future<Output = Option<T>> {
        poll_fn(move |context| {
            let mut state = self.0.borrow_mut();
            state.close_idle(number);
            let poll = answer.poll_unpin(context).map(Result::ok);
            if poll.is_pending() {
                state.waiting.push(context.waker().clone());
            }
            poll
        })
    }
}

impl State {
    /// Whoever waits is polled by the executor. So control has been with it, and every other transaction that asked for nothing meanwhile
    /// has closed itself, as in IndexedDB.
    fn close_idle(&mut self, current: u64) {
        self.live.retain(|transaction| {
            let busy =
                transaction.outstanding > 0 || !transaction.requests.is_empty() || transaction.committing.is_some();
            busy || transaction.number == current
        });
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
        (self.mode != Mode::ReadOnly || later.mode != Mode::ReadOnly)
            && self.scope.iter().any(|store| later.scope.contains(store))
    }
}

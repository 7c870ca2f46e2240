//! Requests that have not been answered, and who waits for their answers.

use std::cell::RefCell;
use std::rc::Rc;

use futures_channel::oneshot;
use idb::Cursor;
use js_sys::Array;
use wasm_bindgen::prelude::*;
use web_sys::{Event, IdbRequest};

use super::error::{from_exception, from_idb, is_loss};
use super::transaction::Running;
use crate::error::Result;

/// What comes of a request.
pub(super) type Answer = oneshot::Receiver<Result<JsValue>>;

/// The unanswered requests of a connection, over all its transactions, and the event handlers that they share.
#[derive(Debug)]
pub(super) struct Requests {
    pending: Rc<RefCell<Vec<Pending>>>,
    on_success: Closure<dyn Fn(Event)>,
    on_error: Closure<dyn Fn(Event)>,
}

#[derive(Debug)]
struct Pending {
    request: IdbRequest,
    transaction: Rc<Running>,
    purpose: Purpose,
}

#[derive(Debug)]
enum Purpose {
    /// The result is wanted.
    Result(oneshot::Sender<Result<JsValue>>),
    /// The values that a cursor passes are wanted, at most so many.
    Walk { answer: oneshot::Sender<Result<JsValue>>, values: Array, left: u32 },
    /// The transaction is to commit after it.
    Commit,
}

impl Requests {
    pub(super) fn new() -> Self {
        let pending = Rc::<RefCell<Vec<Pending>>>::default();
        let on_success = Closure::new({
            let pending = Rc::clone(&pending);
            move |event: Event| {
                let answered = take(&pending, &event);
                if let Some(unfinished) = answered.and_then(Pending::succeed) {
                    pending.borrow_mut().push(unfinished);
                }
            }
        });
        let on_error = Closure::new({
            let pending = Rc::clone(&pending);
            move |event: Event| {
                if let Some(failed) = take(&pending, &event) {
                    failed.fail();
                }
            }
        });
        Self { pending, on_success, on_error }
    }

    /// The result of a request.
    pub(super) fn result(&self, request: IdbRequest, transaction: &Rc<Running>) -> Answer {
        let (answer, receiver) = oneshot::channel();
        self.add(request, transaction, Purpose::Result(answer));
        receiver
    }

    /// An array of the values that a cursor passes, at most `limit` of them.
    pub(super) fn walk(&self, request: IdbRequest, transaction: &Rc<Running>, limit: u32) -> Answer {
        let (answer, receiver) = oneshot::channel();
        self.add(request, transaction, Purpose::Walk { answer, values: Array::new(), left: limit });
        receiver
    }

    /// Commits once the request has succeeded.
    pub(super) fn commit_after(&self, request: IdbRequest, transaction: &Rc<Running>) {
        self.add(request, transaction, Purpose::Commit);
    }

    /// Forgets the requests of a transaction: their events find no handler.
    pub(super) fn forget(&self, transaction: &Rc<Running>) {
        self.pending.borrow_mut().retain(|pending| {
            let stays = !Rc::ptr_eq(&pending.transaction, transaction);
            if !stays {
                pending.detach();
            }
            stays
        });
    }

    /// The connection is lost: no answer will come any more.
    pub(super) fn lose(&self) {
        for pending in self.pending.take() {
            pending.detach();
            pending.lose();
        }
    }

    fn add(&self, request: IdbRequest, transaction: &Rc<Running>, purpose: Purpose) {
        request.set_onsuccess(Some(self.on_success.as_ref().unchecked_ref()));
        request.set_onerror(Some(self.on_error.as_ref().unchecked_ref()));
        self.pending.borrow_mut().push(Pending { request, transaction: Rc::clone(transaction), purpose });
    }
}

/// Takes out the request that an event is about.
fn take(pending: &RefCell<Vec<Pending>>, event: &Event) -> Option<Pending> {
    let target = event.target()?;
    let mut pending = pending.borrow_mut();
    // Requests are answered in order, so it is nearly always the first.
    let position = pending.iter().position(|pending| **pending.request == *target)?;
    Some(pending.remove(position))
}

impl Pending {
    /// Hands on the answer, or returns what is still to come. Nobody takes the answer if the future was dropped.
    fn succeed(self) -> Option<Self> {
        let Self { request, transaction, purpose } = self;
        match purpose {
            Purpose::Result(answer) => drop(answer.send(request.result().map_err(from_exception))),
            Purpose::Walk { answer, values, left } => match step(&request, &values, left) {
                Ok(false) => {
                    let purpose = Purpose::Walk { answer, values, left: left.saturating_sub(1) };
                    return Some(Self { request, transaction, purpose });
                }
                Ok(true) => drop(answer.send(Ok(values.into()))),
                Err(error) => drop(answer.send(Err(error))),
            },
            Purpose::Commit => transaction.commit(),
        }
        None
    }

    /// Hands on the error. It is left to abort the transaction too.
    fn fail(self) {
        let error = match self.request.error() {
            Ok(Some(exception)) if !is_loss(&exception) => from_exception(exception.into()),
            _ => self.transaction.cause_of_abort(),
        };
        self.purpose.answer(Err(error));
    }

    fn lose(self) {
        let error = self.transaction.lost();
        self.purpose.answer(Err(error));
    }

    fn detach(&self) {
        self.request.set_onsuccess(None);
        self.request.set_onerror(None);
    }
}

impl Purpose {
    fn answer(self, result: Result<JsValue>) {
        match self {
            Self::Result(answer) | Self::Walk { answer, .. } => drop(answer.send(result)),
            // Its transaction's own events tell.
            Self::Commit => {}
        }
    }
}

/// Takes the value under the cursor and moves on. `true`: that was the last.
fn step(request: &IdbRequest, values: &Array, left: u32) -> Result<bool> {
    let cursor = request.result().map_err(from_exception)?;
    if cursor.is_null() {
        return Ok(true);
    }
    let cursor = Cursor::try_from(cursor).map_err(from_idb)?;
    values.push(&cursor.value().map_err(from_idb)?);
    if left > 1 {
        cursor.next(None).map_err(from_idb)?;
    }
    Ok(left <= 1)
}

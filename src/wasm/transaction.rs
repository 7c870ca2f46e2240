//! `RawTransaction`: a transaction, as the package's TypeScript sees it.

use std::rc::Rc;

use js_sys::{Array, Function, Promise};
use wasm_bindgen::prelude::*;
use web_sys::AbortSignal;

use super::convert;
use super::error::{promise, to_js};
use super::outgoing::{self, Columns};
use super::signal;
use crate::call::Call;
use crate::error::{ErrorCode, Result};
use crate::transaction::Transaction;
use crate::verbs::Verb;

/// A transaction.
#[wasm_bindgen]
#[derive(Debug)]
pub struct RawTransaction {
    transaction: Rc<Transaction>,
}

impl RawTransaction {
    pub(super) fn new(transaction: Rc<Transaction>) -> Self {
        Self { transaction }
    }

    /// Runs a verb. `done` is what it gives when it has no answer of its own.
    fn call(&self, call: Result<Call>, signal: Option<AbortSignal>, done: JsValue) -> Promise {
        let transaction = Rc::clone(&self.transaction);
        promise(async move {
            let nudged = Rc::clone(&transaction);
            let cancelled = signal::cancelled(signal, move || nudged.nudge());
            let answer = transaction.call(call?, cancelled).await?;
            Ok(convert::answer(answer, done))
        })
    }

    fn verb(&self, verb: Verb) -> Promise {
        self.call(Ok(Call::Verb(verb)), None, JsValue::UNDEFINED)
    }
}

#[wasm_bindgen]
impl RawTransaction {
    /// Whether it ended by nobody's doing: its locks were taken away, or its broker was closed under it.
    #[wasm_bindgen(getter, js_name = isLost)]
    pub fn is_lost(&self) -> bool {
        self.transaction.is_lost()
    }

    /// Whether its commit failed by the storage.
    #[wasm_bindgen(getter, js_name = isUnstored)]
    pub fn is_unstored(&self) -> bool {
        self.transaction.is_unstored()
    }

    /// BEGIN DIALOG.
    #[wasm_bindgen(js_name = beginDialog)]
    pub fn begin_dialog(&self, options: JsValue) -> Promise {
        self.call(convert::options(options).map(Call::Begin), None, JsValue::UNDEFINED)
    }

    /// SEND on one or several conversations.
    #[allow(clippy::too_many_arguments)]
    pub fn send(
        &self,
        handles: Array,
        message_type: String,
        body: JsValue,
        packing: u32,
        size: f64,
        headers: JsValue,
        when: &JsValue,
    ) -> Promise {
        let (send, ids) = outgoing::send(
            &self.transaction.core,
            &handles,
            &message_type,
            convert::body(body, packing, size),
            headers,
            when,
        );
        self.call(Ok(Call::Verb(send)), None, ids)
    }

    /// SEND of many messages on one conversation.
    #[allow(clippy::too_many_arguments)]
    #[wasm_bindgen(js_name = sendMany)]
    pub fn send_many(
        &self,
        handle: String,
        types: JsValue,
        bodies: Array,
        packings: Option<Vec<u32>>,
        sizes: Vec<f64>,
        headers: Option<Array>,
        when: &JsValue,
    ) -> Promise {
        let columns = Columns { types, bodies, packings, sizes, headers };
        let (send, ids) = outgoing::send_many(&self.transaction.core, handle, columns, when);
        self.call(Ok(Call::Verb(send)), None, ids)
    }

    /// `enqueue` of one or many messages, with the same headers.
    #[allow(clippy::too_many_arguments)]
    pub fn enqueue(
        &self,
        queue: String,
        bodies: Array,
        packings: Option<Vec<u32>>,
        sizes: Vec<f64>,
        headers: JsValue,
        options: &JsValue,
    ) -> Promise {
        let columns = Columns { types: "DEFAULT".into(), bodies, packings, sizes, headers: None };
        let (enqueue, ids) = outgoing::enqueue(&self.transaction.core, queue, columns, headers, options);
        self.call(Ok(Call::Verb(enqueue)), None, ids)
    }

    /// RECEIVE.
    pub fn receive(&self, queue: String, options: JsValue, signal: Option<AbortSignal>) -> Promise {
        self.call(Ok(Call::Verb(Verb::Receive(queue.into(), convert::receive(&options)))), signal, JsValue::UNDEFINED)
    }

    /// GET CONVERSATION GROUP. Gives null when there is none.
    #[wasm_bindgen(js_name = getConversationGroup)]
    pub fn get_conversation_group(&self, queue: String, timeout: Option<f64>, signal: Option<AbortSignal>) -> Promise {
        self.call(Ok(Call::Verb(Verb::GetConversationGroup(queue.into(), timeout))), signal, JsValue::UNDEFINED)
    }

    /// BEGIN CONVERSATION TIMER; without `timeout` it is cancelled.
    #[wasm_bindgen(js_name = beginConversationTimer)]
    pub fn begin_conversation_timer(
        &self,
        handle: &str,
        timeout: Option<f64>,
        name: &str,
        body: JsValue,
        packing: u32,
        size: f64,
    ) -> Promise {
        self.verb(convert::timer(
            &self.transaction.core.host,
            handle,
            timeout,
            name,
            convert::body(body, packing, size),
        ))
    }

    /// MOVE CONVERSATION.
    #[wasm_bindgen(js_name = moveConversation)]
    pub fn move_conversation(&self, handle: String, to: String, is_conversation: bool) -> Promise {
        self.verb(convert::move_to(handle, to, is_conversation))
    }

    /// END CONVERSATION.
    #[wasm_bindgen(js_name = endConversation)]
    pub fn end_conversation(&self, handle: String, options: JsValue) -> Promise {
        self.verb(convert::end(handle, &options))
    }

    /// What a group knows.
    #[wasm_bindgen(js_name = getGroupState)]
    pub fn get_group_state(&self, group: String) -> Promise {
        self.verb(Verb::GetGroupState(group.into()))
    }

    /// What a group is to know.
    #[wasm_bindgen(js_name = setGroupState)]
    pub fn set_group_state(&self, group: String, value: JsValue, packing: u32, size: f64) -> Promise {
        self.verb(Verb::SetGroupState(group.into(), convert::body(value, packing, size)))
    }

    /// A delayed message is not to be delivered. Gives whether it waited.
    pub fn cancel(&self, id: String) -> Promise {
        let transaction = Rc::clone(&self.transaction);
        promise(async move { Ok(transaction.cancel(&id).await?.into()) })
    }

    /// It is to be delivered at another time. Gives whether it waited.
    pub fn reschedule(&self, id: String, to: f64) -> Promise {
        let transaction = Rc::clone(&self.transaction);
        promise(async move { Ok(transaction.reschedule(&id, to).await?.into()) })
    }

    /// Commits.
    pub fn commit(&self) -> Promise {
        let transaction = Rc::clone(&self.transaction);
        promise(async move { transaction.commit().await.map(|()| JsValue::UNDEFINED) })
    }

    /// Rolls back because the work on the messages failed; `code`: that of the broker's error that it failed with.
    pub fn fail(&self, code: Option<String>) -> Promise {
        let transaction = Rc::clone(&self.transaction);
        promise(async move {
            transaction.fail(code.as_deref().and_then(ErrorCode::named)).await;
            Ok(JsValue::UNDEFINED)
        })
    }

    /// Rolls back because a handler failed, and counts it. Gives what comes next, or null: it is lost, or its commit failed by the storage.
    pub fn recover(&self, failure: JsValue, policy: JsValue) -> Promise {
        let transaction = Rc::clone(&self.transaction);
        promise(async move {
            let recovered = transaction.recover(convert::failure(&failure), convert::recoverability(&policy)).await?;
            Ok(recovered.map_or(JsValue::NULL, |recovered| convert::recovered(&recovered).0))
        })
    }

    /// Calls `lost` with the reason when the transaction was rolled back because it can't commit any more.
    #[wasm_bindgen(js_name = onLost)]
    pub fn on_lost(&self, lost: Function) {
        // The package throws nothing there.
        self.transaction.on_lost(move |error| _ = lost.call1(&JsValue::UNDEFINED, &to_js(error)));
    }

    /// Rolls back.
    pub fn rollback(&self) {
        self.transaction.rollback();
    }
}

//! `RawTransaction`: a transaction, as the package's TypeScript sees it.

use std::rc::Rc;

use js_sys::{Array, Promise};
use wasm_bindgen::prelude::*;

use super::convert;
use super::error::promise;
use crate::body::{Body, Value};
use crate::core::Host;
use crate::transaction::Transaction;
use crate::verbs::{BeginDialog, EndOptions, ReceiveOptions};

/// A transaction.
#[wasm_bindgen]
#[derive(Debug)]
pub struct RawTransaction {
    transaction: Rc<Transaction>,
    host: Host,
}

/// A promise of what `$work` gives, in which `$transaction` is this transaction.
macro_rules! with {
    ($self:ident, $transaction:ident, $work:block) => {{
        let $transaction = Rc::clone(&$self.transaction);
        promise(async move { $work })
    }};
}

impl RawTransaction {
    pub(super) fn new(transaction: Rc<Transaction>, host: Host) -> Self {
        Self { transaction, host }
    }
}

#[wasm_bindgen]
impl RawTransaction {
    /// Whether it takes calls.
    #[wasm_bindgen(getter, js_name = isOpen)]
    pub fn is_open(&self) -> bool {
        self.transaction.is_open()
    }

    /// BEGIN DIALOG.
    #[wasm_bindgen(js_name = beginDialog)]
    pub fn begin_dialog(&self, options: JsValue) -> Promise {
        with!(self, transaction, {
            let options: BeginDialog = convert::options(options)?;
            transaction.begin_dialog(options).await.map(|info| convert::conversation(&info))
        })
    }

    /// SEND on one or several conversations.
    pub fn send(&self, handles: Array, message_type: String, body: JsValue, packing: u32, size: f64, headers: JsValue) -> Promise {
        let handles = convert::names(&handles);
        let messages = convert::message_for_each(&self.host, handles.len(), &message_type, Body { value: Value(body), packing, size }, headers);
        with!(self, transaction, {
            let ids = convert::ids(&messages);
            transaction.send(handles, messages).await.map(|()| ids)
        })
    }

    /// SEND of many messages on one conversation.
    #[wasm_bindgen(js_name = sendMany)]
    pub fn send_many(&self, handle: String, types: Array, bodies: Array, packings: Array, sizes: Array, headers: Array) -> Promise {
        let messages = convert::messages(&self.host, &types, &bodies, &packings, &sizes, &headers);
        with!(self, transaction, {
            let ids = convert::ids(&messages);
            transaction.send(vec![handle.into()], messages).await.map(|()| ids)
        })
    }

    /// RECEIVE.
    pub fn receive(&self, queue: String, options: JsValue) -> Promise {
        with!(self, transaction, {
            let options: ReceiveOptions = convert::options(options)?;
            transaction.receive(&queue, options).await.map(|rows| convert::list(&rows, convert::rows))
        })
    }

    /// END CONVERSATION.
    #[wasm_bindgen(js_name = endConversation)]
    pub fn end_conversation(&self, handle: String, options: JsValue) -> Promise {
        with!(self, transaction, {
            let options: EndOptions = convert::options(options)?;
            transaction.end_conversation(&handle, options).await.map(convert::end_result)
        })
    }

    /// What a group knows.
    #[wasm_bindgen(js_name = getGroupState)]
    pub fn get_group_state(&self, group: String) -> Promise {
        with!(self, transaction, { transaction.get_group_state(&group).await.map(convert::body) })
    }

    /// What a group is to know.
    #[wasm_bindgen(js_name = setGroupState)]
    pub fn set_group_state(&self, group: String, value: JsValue, packing: u32, size: f64) -> Promise {
        with!(self, transaction, { transaction.set_group_state(&group, Body { value: Value(value), packing, size }).await.map(|()| JsValue::UNDEFINED) })
    }

    /// Commits.
    pub fn commit(&self) -> Promise {
        with!(self, transaction, { transaction.commit().await.map(|()| JsValue::UNDEFINED) })
    }

    /// Rolls back.
    pub fn rollback(&self) {
        self.transaction.rollback();
    }
}

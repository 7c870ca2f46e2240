//! `RawBroker`: a broker, as the package's TypeScript sees it.

use std::rc::Rc;

use js_sys::{Array, Function, Promise, Reflect};
use wasm_bindgen::prelude::*;
use web_sys::AbortSignal;

use super::convert;
use super::error::promise;
use super::registry::{self, Callbacks, Member, Settings};
use super::transaction::RawTransaction;
use crate::body::{Body, Value};
use crate::definitions::{Definitions, QueueOptions, Validation};
use crate::error::Result;
use crate::store::CloseReason;
use crate::verbs::{BeginDialog, EndOptions, ReceiveOptions};
use crate::views::{EndpointFilter, Extent, RowFilter};

/// Deletes a database. Brokers over it close first, here and in other contexts.
#[wasm_bindgen(js_name = deleteBroker)]
pub fn delete_broker(name: String) -> Promise {
    promise(async move {
        registry::close_all(&name, CloseReason::Deleted);
        crate::store::delete_database(&name).await?;
        Ok(JsValue::UNDEFINED)
    })
}

/// A broker.
#[wasm_bindgen]
#[derive(Debug)]
pub struct RawBroker {
    member: Rc<Member>,
}

/// A promise of what `$work` gives, in which `$member` is this broker.
macro_rules! with {
    ($self:ident, $member:ident, $work:block) => {{
        let $member = Rc::clone(&$self.member);
        promise(async move { $work })
    }};
}

#[wasm_bindgen]
impl RawBroker {
    /// Opens a broker. `on_notice` hears what commits touch, `on_close` once why the broker was closed.
    pub fn open(name: String, options: JsValue, on_notice: Function, on_close: Function) -> Promise {
        promise(async move {
            let now = Reflect::get(&options, &"now".into()).ok().and_then(|now| now.dyn_into().ok());
            let settings: Settings = convert::options(options)?;
            let member = registry::join(&name, &settings, now, Callbacks { on_notice, on_close }).await?;
            Ok(Self { member }.into())
        })
    }

    /// A UUID that was made with the database.
    #[wasm_bindgen(getter, js_name = instanceId)]
    pub fn instance_id(&self) -> String {
        self.member.broker.instance_id().to_string()
    }

    /// Whether bodies may hold Blobs.
    #[wasm_bindgen(js_name = canStoreBlobs)]
    pub fn can_store_blobs(&self) -> Promise {
        with!(self, member, { Ok(member.connection.can_store_blobs().await.into()) })
    }

    /// N, E, J or S; undefined for an unknown message type.
    #[wasm_bindgen(js_name = validationOf)]
    pub fn validation_of(&self, message_type: &str) -> JsValue {
        self.member.broker.validation_of(message_type).map_or(JsValue::UNDEFINED, |validation: Validation| validation.letter().into())
    }

    /// Adds definitions.
    pub fn define(&self, definitions: JsValue) -> Promise {
        with!(self, member, {
            let definitions: Definitions = convert::options(definitions)?;
            member.broker.define(definitions).await.map(|()| JsValue::UNDEFINED)
        })
    }

    /// ALTER QUEUE.
    #[wasm_bindgen(js_name = alterQueue)]
    pub fn alter_queue(&self, name: String, options: JsValue) -> Promise {
        with!(self, member, {
            let options: QueueOptions = convert::options(options)?;
            member.broker.alter_queue(&name, options).await.map(|()| JsValue::UNDEFINED)
        })
    }

    /// BEGIN DIALOG.
    #[wasm_bindgen(js_name = beginDialog)]
    pub fn begin_dialog(&self, options: JsValue) -> Promise {
        with!(self, member, {
            let options: BeginDialog = convert::options(options)?;
            member.broker.begin_dialog(options).await.map(|info| convert::conversation(&info))
        })
    }

    /// SEND on one or several conversations.
    #[allow(clippy::too_many_arguments)]
    pub fn send(&self, handles: Array, message_type: String, body: JsValue, packing: u32, size: f64, headers: JsValue, signal: Option<AbortSignal>) -> Promise {
        let handles = convert::names(&handles);
        let body = Body { value: Value(body), packing, size };
        let messages = convert::message_for_each(&self.member.connection.host, handles.len(), &message_type, body, headers);
        with!(self, member, {
            let ids = convert::ids(&messages);
            member.broker.send(handles, messages, convert::cancelled(signal)).await.map(|()| ids)
        })
    }

    /// SEND of many messages on one conversation.
    #[allow(clippy::too_many_arguments)]
    #[wasm_bindgen(js_name = sendMany)]
    pub fn send_many(&self, handle: String, types: Array, bodies: Array, packings: Array, sizes: Array, headers: Array, signal: Option<AbortSignal>) -> Promise {
        let messages = convert::messages(&self.member.connection.host, &types, &bodies, &packings, &sizes, &headers);
        with!(self, member, {
            let ids = convert::ids(&messages);
            member.broker.send(vec![handle.into()], messages, convert::cancelled(signal)).await.map(|()| ids)
        })
    }

    /// RECEIVE.
    pub fn receive(&self, queue: String, options: JsValue, signal: Option<AbortSignal>) -> Promise {
        with!(self, member, {
            let options: ReceiveOptions = convert::options(options)?;
            member.broker.receive(&queue, options, convert::cancelled(signal)).await.map(|rows| convert::list(&rows, convert::rows))
        })
    }

    /// END CONVERSATION.
    #[wasm_bindgen(js_name = endConversation)]
    pub fn end_conversation(&self, handle: String, options: JsValue) -> Promise {
        with!(self, member, {
            let options: EndOptions = convert::options(options)?;
            member.broker.end_conversation(&handle, options).await.map(convert::end_result)
        })
    }

    /// What a group knows.
    #[wasm_bindgen(js_name = getGroupState)]
    pub fn get_group_state(&self, group: String) -> Promise {
        with!(self, member, { member.broker.get_group_state(&group).await.map(convert::body) })
    }

    /// What a group is to know.
    #[wasm_bindgen(js_name = setGroupState)]
    pub fn set_group_state(&self, group: String, value: JsValue, packing: u32, size: f64) -> Promise {
        with!(self, member, { member.broker.set_group_state(&group, Body { value: Value(value), packing, size }).await.map(|()| JsValue::UNDEFINED) })
    }

    /// The rows of a queue.
    pub fn select(&self, queue: String, filter: JsValue, token: JsValue, all: bool) -> Promise {
        with!(self, member, {
            let filter: RowFilter = convert::options(filter)?;
            let page = member.broker.select(&queue, &filter, convert::position(&token).as_deref(), extent(all)).await?;
            Ok(convert::page(&page, convert::rows))
        })
    }

    /// How many rows `select` would give.
    pub fn count(&self, queue: String, filter: JsValue) -> Promise {
        with!(self, member, {
            let filter: RowFilter = convert::options(filter)?;
            member.broker.count(&queue, &filter).await.map(convert::number)
        })
    }

    /// Every queue.
    pub fn queues(&self) -> Promise {
        with!(self, member, { member.broker.queues().await.map(|queues| convert::list(&queues, convert::queue)) })
    }

    /// Endpoints of conversations.
    pub fn conversations(&self, filter: JsValue, token: JsValue, all: bool) -> Promise {
        with!(self, member, {
            let filter: EndpointFilter = convert::options(filter)?;
            let page = member.broker.conversations(&filter, convert::position(&token).as_deref(), extent(all)).await?;
            Ok(convert::page(&page, convert::endpoint))
        })
    }

    /// One endpoint, or null.
    pub fn info(&self, handle: String) -> Promise {
        with!(self, member, { member.broker.info(&handle).await.map(|found| found.map_or(JsValue::NULL, |endpoint| convert::endpoint(&endpoint).0)) })
    }

    /// What waits for its transmission.
    #[wasm_bindgen(js_name = transmissionQueue)]
    pub fn transmission_queue(&self, filter: JsValue) -> Promise {
        with!(self, member, {
            let conversation = Reflect::get(&filter, &"conversation".into()).ok().and_then(|handle| handle.as_string());
            let rows = member.broker.transmission_queue(conversation.as_deref()).await?;
            Ok(convert::page(&crate::views::Page { rows, next: None }, convert::transmission_row))
        })
    }

    /// Rows that END copied.
    pub fn archive(&self, filter: JsValue, token: JsValue, all: bool) -> Promise {
        with!(self, member, {
            let filter: RowFilter = convert::options(filter)?;
            let page = member.broker.archive(&filter, convert::position(&token).as_deref(), extent(all)).await?;
            Ok(convert::page(&page, convert::rows))
        })
    }

    /// Deletes what was archived before a time.
    #[wasm_bindgen(js_name = purgeArchive)]
    pub fn purge_archive(&self, before: f64) -> Promise {
        with!(self, member, { member.broker.purge_archive(before).await.map(convert::number) })
    }

    /// Begins a transaction.
    pub fn begin(&self) -> std::result::Result<RawTransaction, JsValue> {
        let begun: Result<_> = self.member.broker.begin();
        begun.map(|transaction| RawTransaction::new(transaction, self.member.connection.host.clone())).map_err(|error| super::error::to_js(&error))
    }

    /// Closes it. Idempotent.
    pub fn close(&self) -> Promise {
        with!(self, member, {
            member.close().await;
            Ok(JsValue::UNDEFINED)
        })
    }
}

fn extent(all: bool) -> Extent {
    if all { Extent::All } else { Extent::Page }
}

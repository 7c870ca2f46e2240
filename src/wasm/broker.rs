//! `RawBroker`: a broker, as the package's TypeScript sees it.

use std::rc::Rc;

use js_sys::{Array, Function, Promise, Reflect};
use wasm_bindgen::prelude::*;
use web_sys::AbortSignal;

use super::convert;
use super::delayed_store::GivenStore;
use super::error::{promise, to_js};
use super::outgoing::{self, Columns};
use super::registry::{self, Callbacks, Member};
use super::settings::{Given, GivenClock, Settings};
use super::signal;
use super::transaction::RawTransaction;
use crate::call::Call;
use crate::error::Result;
use crate::recoverability::Thrown;
use crate::verbs::Verb;
use crate::views::{Extent, View};

/// Deletes a database. Brokers over it close first, here and in other contexts.
#[wasm_bindgen(js_name = deleteBroker)]
pub fn delete_broker(name: String) -> Promise {
    promise(async move {
        registry::close_all(&name, "deleted");
        crate::store::delete_database(&name).await?;
        Ok(JsValue::UNDEFINED)
    })
}

/// A broker.
#[wasm_bindgen]
#[derive(Debug)]
pub struct RawBroker {
    pub(super) member: Rc<Member>,
}

impl RawBroker {
    /// Runs a verb. `done` is what it gives when it has no answer of its own.
    fn call(&self, call: Result<Call>, signal: Option<AbortSignal>, done: JsValue) -> Promise {
        let member = Rc::clone(&self.member);
        promise(async move {
            let nudged = Rc::clone(&member);
            let cancelled = signal::cancelled(signal, move || nudged.broker.nudge());
            let answer = member.broker.call(call?, cancelled).await?;
            Ok(convert::answer(answer, done))
        })
    }

    fn verb(&self, verb: Verb) -> Promise {
        self.call(Ok(Call::Verb(verb)), None, JsValue::UNDEFINED)
    }

    /// Answers a question: everything, or the page behind `token`.
    fn see(&self, view: Result<View>, token: JsValue, all: bool) -> Promise {
        let member = Rc::clone(&self.member);
        promise(async move {
            let view = view?;
            let extent = if all { Extent::All } else { Extent::Page };
            let seen = member.broker.see(&view, convert::position(&token).as_deref(), extent).await?;
            Ok(convert::seen(&view, &seen))
        })
    }
}

#[wasm_bindgen]
impl RawBroker {
    /// Opens a broker. `on_notice` hears what commits touch, `on_close` once why the broker was closed.
    pub fn open(name: String, options: JsValue, on_notice: Function, on_close: Function) -> Promise {
        promise(async move {
            let function = |name: &str| Reflect::get(&options, &name.into()).ok().and_then(|it| it.dyn_into().ok());
            let clock = GivenClock { now: function("now"), sleep: function("sleep") };
            let store = Reflect::get(&options, &"store".into()).ok().filter(JsValue::is_object).map(GivenStore);
            let settings: Settings = convert::options(options)?;
            let given = Given { clock, store };
            let member = registry::join(&name, &settings, given, Callbacks { on_notice, on_close }).await?;
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
        let member = Rc::clone(&self.member);
        promise(async move { Ok(member.connection.can_store_blobs().await.into()) })
    }

    /// N, E, J or S; undefined for an unknown message type.
    #[wasm_bindgen(js_name = validationOf)]
    pub fn validation_of(&self, message_type: &str) -> JsValue {
        self.member
            .broker
            .validation_of(message_type)
            .map_or(JsValue::UNDEFINED, |validation| validation.letter().into())
    }

    /// What `enqueue` takes: N, E, J or S; undefined for an unknown queue.
    #[wasm_bindgen(js_name = bodyOf)]
    pub fn body_of(&self, queue: &str) -> JsValue {
        self.member.broker.body_of(queue).map_or(JsValue::UNDEFINED, |validation| validation.letter().into())
    }

    /// The validators that brokers over this connection were given, by message type, and of queues. The package fills it.
    #[wasm_bindgen(getter)]
    pub fn validators(&self) -> js_sys::Map {
        self.member.connection.validators.clone()
    }

    /// Adds definitions.
    pub fn define(&self, definitions: JsValue) -> Promise {
        self.call(
            convert::options(definitions).map(|definitions| Call::Verb(Verb::Define(definitions))),
            None,
            JsValue::UNDEFINED,
        )
    }

    /// ALTER QUEUE.
    #[wasm_bindgen(js_name = alterQueue)]
    pub fn alter_queue(&self, name: String, options: JsValue) -> Promise {
        self.call(
            convert::options(options).map(|options| Call::Verb(Verb::AlterQueue(name.into(), options))),
            None,
            JsValue::UNDEFINED,
        )
    }

    /// DROP QUEUE.
    #[wasm_bindgen(js_name = dropQueue)]
    pub fn drop_queue(&self, name: String) -> Promise {
        self.verb(Verb::DropQueue(name.into()))
    }

    /// ALTER SERVICE.
    #[wasm_bindgen(js_name = alterService)]
    pub fn alter_service(&self, name: String, change: JsValue) -> Promise {
        self.verb(Verb::AlterService(name.into(), convert::service_change(&change)))
    }

    /// DROP SERVICE.
    #[wasm_bindgen(js_name = dropService)]
    pub fn drop_service(&self, name: String) -> Promise {
        self.verb(Verb::DropService(name.into()))
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
        signal: Option<AbortSignal>,
    ) -> Promise {
        let (send, ids) = outgoing::send(
            &self.member.broker.core,
            &handles,
            &message_type,
            convert::body(body, packing, size),
            headers,
            when,
        );
        self.call(Ok(Call::Verb(send)), signal, ids)
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
        signal: Option<AbortSignal>,
    ) -> Promise {
        let columns = Columns { types, bodies, packings, sizes, headers };
        let (send, ids) = outgoing::send_many(&self.member.broker.core, handle, columns, when);
        self.call(Ok(Call::Verb(send)), signal, ids)
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
        signal: Option<AbortSignal>,
    ) -> Promise {
        let columns = Columns { types: "DEFAULT".into(), bodies, packings, sizes, headers: None };
        let (enqueue, ids) = outgoing::enqueue(&self.member.broker.core, queue, columns, headers, options);
        self.call(Ok(Call::Verb(enqueue)), signal, ids)
    }

    /// RECEIVE.
    pub fn receive(&self, queue: String, options: JsValue, signal: Option<AbortSignal>) -> Promise {
        self.call(Ok(Call::Verb(Verb::Receive(queue.into(), convert::receive(&options)))), signal, JsValue::UNDEFINED)
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
        let host = &self.member.connection.host;
        self.verb(convert::timer(host, handle, timeout, name, convert::body(body, packing, size)))
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

    /// The rows of a queue; without one, of all that hold failed messages.
    pub fn select(&self, queue: Option<String>, filter: JsValue, token: JsValue, all: bool) -> Promise {
        let filter = convert::row_filter(&filter);
        let view = queue.map(|queue| View::Select(queue.into(), filter.clone()));
        self.see(Ok(view.unwrap_or(View::SelectFailed(filter))), token, all)
    }

    /// How many rows `select` would give.
    pub fn count(&self, queue: String, filter: JsValue) -> Promise {
        self.see(Ok(View::Count(queue.into(), convert::row_filter(&filter))), JsValue::NULL, true)
    }

    /// Every queue.
    pub fn queues(&self) -> Promise {
        self.see(Ok(View::Queues), JsValue::NULL, true)
    }

    /// What this broker has done, and what the database holds.
    pub fn stats(&self) -> Promise {
        self.see(Ok(View::Stats), JsValue::NULL, true)
    }

    /// Endpoints of conversations.
    pub fn conversations(&self, filter: JsValue, token: JsValue, all: bool) -> Promise {
        self.see(Ok(View::Conversations(convert::endpoint_filter(&filter))), token, all)
    }

    /// Conversation groups.
    pub fn groups(&self, filter: JsValue, token: JsValue, all: bool) -> Promise {
        self.see(Ok(View::Groups(convert::text(&filter, "service"))), token, all)
    }

    /// One endpoint, or null.
    pub fn info(&self, handle: String) -> Promise {
        self.see(Ok(View::Info(handle.into())), JsValue::NULL, true)
    }

    /// What waits for its transmission.
    #[wasm_bindgen(js_name = transmissionQueue)]
    pub fn transmission_queue(&self, filter: JsValue) -> Promise {
        self.see(Ok(View::TransmissionQueue(convert::text(&filter, "conversation"))), JsValue::NULL, true)
    }

    /// Rows that END copied.
    pub fn archive(&self, filter: JsValue, token: JsValue, all: bool) -> Promise {
        self.see(Ok(View::Archive(convert::row_filter(&filter))), token, all)
    }

    /// Deletes what was archived before a time.
    #[wasm_bindgen(js_name = purgeArchive)]
    pub fn purge_archive(&self, before: f64) -> Promise {
        self.verb(Verb::PurgeArchive(before))
    }

    /// What is delayed.
    pub fn delayed(&self, filter: JsValue, token: JsValue, all: bool) -> Promise {
        self.see(Ok(View::Delayed(convert::delayed_filter(&filter))), token, all)
    }

    /// How many messages are delayed.
    #[wasm_bindgen(js_name = countDelayed)]
    pub fn count_delayed(&self) -> Promise {
        self.see(Ok(View::CountDelayed), JsValue::NULL, true)
    }

    /// When the first of them is due, or null.
    #[wasm_bindgen(js_name = nextDelayed)]
    pub fn next_delayed(&self) -> Promise {
        self.see(Ok(View::NextDelayed), JsValue::NULL, true)
    }

    /// When something is due next, or null.
    #[wasm_bindgen(js_name = nextDue)]
    pub fn next_due(&self) -> Promise {
        self.see(Ok(View::NextDue), JsValue::NULL, true)
    }

    /// A delayed message is not to be delivered. Gives whether it waited.
    pub fn cancel(&self, id: String) -> Promise {
        let member = Rc::clone(&self.member);
        promise(async move { Ok(member.broker.cancel(&id).await?.into()) })
    }

    /// It is to be delivered at another time. Gives whether it waited.
    pub fn reschedule(&self, id: String, to: f64) -> Promise {
        let member = Rc::clone(&self.member);
        promise(async move { Ok(member.broker.reschedule(&id, to).await?.into()) })
    }

    /// Moves messages of the error queue back to where they failed; `discard`: deletes them. Gives how many.
    pub fn unbury(&self, filter: JsValue, discard: bool) -> Promise {
        let member = Rc::clone(&self.member);
        promise(async move {
            let count = member.broker.unbury(&convert::failed_filter(&filter), discard).await?;
            Ok(crate::record::value(count).0)
        })
    }

    /// Conversations that handlers have put off, or that could not be transmitted, wait no longer.
    pub fn resume(&self) -> Promise {
        let member = Rc::clone(&self.member);
        promise(async move {
            member.broker.resume().await?;
            member.broker.hurry().await?;
            Ok(JsValue::UNDEFINED)
        })
    }

    /// Something goes wrong that is no message's fault: every open broker of the origin hears of it.
    pub fn warn(&self, source: &str, name: &str, message: &str, code: Option<String>) {
        let error = Thrown { name: name.into(), message: message.into(), code: code.map(Into::into) };
        self.member.broker.warn(source, error);
    }

    /// Does what is due now; gives how many messages came of it.
    pub fn poll(&self) -> Promise {
        let member = Rc::clone(&self.member);
        promise(async move { Ok(crate::record::value(member.broker.poll().await?).0) })
    }

    /// Begins a transaction.
    pub fn begin(&self) -> std::result::Result<RawTransaction, JsValue> {
        self.member.broker.begin().map(RawTransaction::new).map_err(|error| to_js(&error))
    }

    /// Closes it. Idempotent.
    pub fn close(&self) -> Promise {
        let member = Rc::clone(&self.member);
        promise(async move {
            member.close().await;
            Ok(JsValue::UNDEFINED)
        })
    }
}

//! Messages on their way in, from the columns that the package gives.

use std::rc::Rc;

use js_sys::Array;
use wasm_bindgen::prelude::*;

use super::convert::{self, flag, names, number, text};
use crate::body::{Body, Part, Value};
use crate::core::Core;
use crate::delayed::Delay;
use crate::verbs::{Enqueue, EnqueueOptions, OutgoingMessage, Send, Verb};

/// SEND of one message on several conversations, and the ids of the messages.
pub(super) fn send(
    core: &Core,
    handles: &Array,
    message_type: &str,
    body: Body,
    headers: JsValue,
    when: &JsValue,
) -> (Verb, JsValue) {
    let to = names(handles);
    let message_type: Rc<str> = message_type.into();
    let headers = (!headers.is_undefined()).then(|| Part::from(Value(headers)));
    let message = || OutgoingMessage {
        message_type: Rc::clone(&message_type),
        id: core.host.ids.uuid(),
        headers: headers.clone(),
        body: body.clone(),
    };
    let messages: Vec<_> = std::iter::repeat_with(message).take(to.len()).collect();
    let ids = ids(&messages);
    (Verb::Send(Send { to, messages, delay: delay(when), validated_by: Some(core.catalog()) }), ids)
}

/// The columns of many messages, all of one length.
pub(super) struct Columns {
    /// One name for all, or one each.
    pub(super) types: JsValue,
    pub(super) bodies: Array,
    /// undefined: all 0.
    pub(super) packings: Option<Vec<u32>>,
    pub(super) sizes: Vec<f64>,
    /// undefined: none has any.
    pub(super) headers: Option<Array>,
}

impl Columns {
    /// A message each.
    fn messages(self, core: &Core) -> Vec<OutgoingMessage> {
        let types = match self.types.as_string() {
            Some(name) => vec![Rc::from(name); self.sizes.len()],
            None => names(self.types.unchecked_ref()),
        };
        let bodies = Rc::new(Value(self.bodies.into()));
        let headers = self.headers.map(|headers| Value(headers.into()));
        let message = |(index, (message_type, size)): (usize, (Rc<str>, f64))| OutgoingMessage {
            message_type,
            id: core.host.ids.uuid(),
            headers: headers
                .as_ref()
                .map(|headers| headers.item(index))
                .filter(|own| !own.is_undefined())
                .map(Part::from),
            body: Body {
                value: Part::item(&bodies, index),
                packing: self.packings.as_ref().and_then(|packings| packings.get(index)).copied().unwrap_or(0),
                size,
            },
        };
        types.into_iter().zip(self.sizes).enumerate().map(message).collect()
    }
}

/// SEND of many messages on one conversation, and their ids.
pub(super) fn send_many(core: &Core, handle: String, columns: Columns, when: &JsValue) -> (Verb, JsValue) {
    let messages = columns.messages(core);
    let ids = ids(&messages);
    (
        Verb::Send(Send { to: vec![handle.into()], messages, delay: delay(when), validated_by: Some(core.catalog()) }),
        ids,
    )
}

/// `enqueue` of many messages with the same headers, and their ids.
pub(super) fn enqueue(
    core: &Core,
    queue: String,
    columns: Columns,
    headers: JsValue,
    options: &JsValue,
) -> (Verb, JsValue) {
    let mut messages = columns.messages(core);
    let headers = (!headers.is_undefined()).then(|| Part::from(Value(headers)));
    messages.iter_mut().for_each(|message| message.headers.clone_from(&headers));
    let ids = ids(&messages);
    let usual = EnqueueOptions::default();
    let options = EnqueueOptions {
        key: text(options, "key"),
        ordered: flag(options, "ordered").unwrap_or(usual.ordered),
        priority: number(options, "priority").unwrap_or(usual.priority),
        dedupe_id: text(options, "dedupeId"),
        dedupe_window: number(options, "dedupeWindow").unwrap_or(usual.dedupe_window),
        delay: delay(options),
    };
    (Verb::Enqueue(Enqueue { queue: queue.into(), messages, options, validated_by: Some(core.catalog()) }), ids)
}

/// When messages are to be delivered; undefined, or an object with neither: now.
fn delay(when: &JsValue) -> Option<Delay> {
    if when.is_undefined() {
        return None;
    }
    number(when, "delay").map(Delay::After).or_else(|| number(when, "deliverAt").map(Delay::At))
}

/// The ids of messages.
fn ids(messages: &[OutgoingMessage]) -> JsValue {
    convert::ids(messages.iter().map(|message| message.id))
}

//! What commits tell, on its way to the package and to other contexts.

use std::rc::Rc;

use wasm_bindgen::prelude::*;

use super::convert::{field, number};
use crate::body::Value;
use crate::notice::{Failed, Notice, RoleKind, RoleNotice};
use crate::record::{optional, value};
use crate::recoverability::Thrown;

/// The queues that another context has touched.
pub(super) fn touched(notice: &JsValue) -> Vec<Rc<str>> {
    field(notice, "queues").items().iter().filter_map(Value::text).map(Rc::from).collect()
}

/// When something new is due, as the notice of another context says.
pub(super) fn due(notice: &JsValue) -> Option<f64> {
    number(notice, "due")
}

/// Whether something came for a store of the application's own.
pub(super) fn is_hop(notice: &JsValue) -> bool {
    field(notice, "hop").boolean() == Some(true)
}

/// Whether something may be handed over to another broker.
pub(super) fn is_outgoing(notice: &JsValue) -> bool {
    field(notice, "outgoing").boolean() == Some(true)
}

/// What another context says about who leads, if that is what it is.
pub(super) fn role(notice: &JsValue) -> Option<RoleNotice> {
    let said = field(notice, "role");
    let kind = said.item(1).text().and_then(|kind| RoleKind::named(&kind))?;
    Some(RoleNotice { role: said.item(0).text()?.into(), kind })
}

/// Whether it is no commit: another context has given a group back.
pub(super) fn is_release(notice: &JsValue) -> bool {
    field(notice, "released").boolean() == Some(true)
}

fn thrown(error: &Thrown) -> Value {
    Value::object(vec![
        ("name", Value::from(&*error.name)),
        ("message", Value::from(&*error.message)),
        ("code", optional(error.code.as_deref())),
    ])
}

fn failed(failed: &Failed) -> Value {
    let recovered = &failed.recovered;
    Value::object(vec![
        ("messageId", Value::from(&*failed.message_id)),
        ("queue", Value::from(&*failed.queue)),
        ("conversationHandle", Value::from(&*failed.handle)),
        ("error", thrown(&failed.error)),
        ("attempts", value(recovered.attempts)),
        ("next", Value::from(recovered.next.name())),
        ("retryAt", recovered.retry_at.map_or_else(Value::null, Value::from)),
    ])
}

/// What a commit touched: for the package's events and for other contexts.
pub(super) fn notice(notice: &Notice) -> JsValue {
    let names = |names: &[Rc<str>]| Value::list(names.iter().map(|name| Value::from(&**name)).collect());
    let states = notice
        .states
        .iter()
        .map(|(handle, state)| Value::list(vec![Value::from(&**handle), Value::from(*state)]))
        .collect();
    let dropped = notice
        .dropped
        .iter()
        .map(|dropped| {
            Value::object(vec![
                ("reason", Value::from(&*dropped.reason)),
                ("message", Value::object(dropped.message.clone())),
                ("envelope", dropped.envelope.clone().unwrap_or_default()),
            ])
        })
        .collect();
    let disabled = notice
        .disabled
        .iter()
        .map(|(queue, reason)| Value::object(vec![("queue", Value::from(&**queue)), ("reason", Value::from(*reason))]))
        .collect();
    let failed = notice.failed.iter().map(failed).collect();
    let critical = notice
        .critical
        .iter()
        .map(|critical| {
            Value::object(vec![("source", Value::from(&*critical.source)), ("error", thrown(&critical.error))])
        })
        .collect();
    let pairs = |pairs: &[(Rc<str>, Rc<str>)]| {
        Value::list(
            pairs.iter().map(|(one, other)| Value::list(vec![Value::from(&**one), Value::from(&**other)])).collect(),
        )
    };
    let role = notice.role.as_ref();
    let role = role.map(|said| Value::list(vec![Value::from(&*said.role), Value::from(said.kind.name())]));
    let notice = Value::object(vec![
        ("queues", names(&notice.queues)),
        ("enqueued", names(&notice.enqueued)),
        ("conversations", Value::from(notice.conversations)),
        ("delayed", Value::from(notice.delayed)),
        ("transmission", Value::from(notice.transmission)),
        ("outgoing", Value::from(notice.outgoing)),
        ("archive", Value::from(notice.archive)),
        ("states", Value::list(states)),
        ("dropped", Value::list(dropped)),
        ("disabled", Value::list(disabled)),
        ("failed", Value::list(failed)),
        ("critical", Value::list(critical)),
        ("transmitted", pairs(&notice.transmitted)),
        ("unsent", pairs(&notice.unsent)),
        ("due", notice.due.map_or_else(Value::null, Value::from)),
        ("hop", Value::from(notice.hop)),
        ("role", role.unwrap_or_else(Value::null)),
        ("released", Value::from(notice.released)),
    ]);
    notice.0
}

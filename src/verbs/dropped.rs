//! Messages that go nowhere, and who hears of it (D13).

use std::rc::Rc;

use crate::body::Value;
use crate::conversation::Conversation;
use crate::ids::Role;
use crate::message::{Row, count};
use crate::notice::Dropped;
use crate::record;
use crate::work::Work;

/// Why a message is dropped.
pub(crate) const HAS_ENDED: &str = "the far side has ended the conversation";
pub(super) const IS_GONE: &str = "the far endpoint is gone";

/// Rows that `role` has sent go nowhere: every broker hears of each.
pub(crate) fn drop_rows(work: &mut Work<'_>, conversation: &Conversation, role: Role, rows: &[Row], reason: &str) {
    let reason: Rc<str> = reason.into();
    for row in rows {
        let mut message = shared_columns(conversation, role);
        message.extend([
            ("messageId", Value::from(&*crate::ids::text(row.id))),
            ("messageTypeName", Value::from(&*row.message_type)),
            ("messageEnqueueTime", Value::from(row.time)),
        ]);
        work.changes.notice.dropped.push(Dropped { reason: Rc::clone(&reason), message, envelope: None });
    }
    work.changes.counts.dropped += count(rows.len());
}

/// The same for rows that are stored, so many from a number on. They are not read for it: every broker hears of all of them together.
pub(crate) fn drop_stored(
    work: &mut Work<'_>,
    conversation: &Conversation,
    role: Role,
    (first, rows): (u64, u64),
    reason: &str,
) {
    let reason: Rc<str> = match rows {
        0 => return,
        1 => reason.into(),
        _ => format!("{reason} ({rows} messages)").into(),
    };
    let mut message = shared_columns(conversation, role);
    message.push(("messageSequenceNumber", record::value(first)));
    work.changes.notice.dropped.push(Dropped { reason, message, envelope: None });
    work.changes.counts.dropped += rows;
}

/// What the messages that `role` has sent have in common.
pub(crate) fn shared_columns(conversation: &Conversation, role: Role) -> Vec<(&'static str, Value)> {
    vec![
        ("conversationHandle", Value::from(&*conversation.handle(role))),
        ("conversationId", Value::from(&*conversation.id)),
        ("serviceName", Value::from(&**conversation.service(role.other()))),
        ("serviceContractName", Value::from(&*conversation.contract)),
    ]
}

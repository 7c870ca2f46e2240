//! What the views of the broker as a whole show.

use crate::body::{Part, Value};
use crate::conversation::State;
use crate::record::{optional, value};
use crate::views::{BrokerStats, ConversationGroup, DelayedMessage, HeldBy};

pub(super) fn group(group: &ConversationGroup) -> Value {
    let held_by = group.held_by.map(|holder| match holder {
        HeldBy::This => "this",
        HeldBy::Other => "other",
    });
    Value::object(vec![
        ("conversationGroupId", Value::from(&*group.conversation_group_id)),
        ("service", Value::from(&*group.service)),
        ("queue", Value::from(&*group.queue)),
        ("conversations", value(group.conversations)),
        ("ready", value(group.ready)),
        ("heldBy", optional(held_by)),
    ])
}

pub(super) fn stats(stats: &BrokerStats) -> Value {
    let (counts, gauges) = (&stats.counts, &stats.gauges);
    let time = |time: Option<f64>| time.map_or_else(Value::null, Value::from);
    let states = State::ALL.iter().zip(gauges.open_conversations);
    Value::object(vec![
        ("sends", value(counts.sends)),
        ("receives", value(counts.receives)),
        ("enqueued", value(counts.enqueued)),
        ("delayedDispatched", value(counts.delayed_dispatched)),
        ("transmitted", value(counts.transmitted)),
        ("rollbacks", value(counts.rollbacks)),
        ("dropped", value(counts.dropped)),
        ("timers", value(counts.timers)),
        ("openConversations", Value::object(states.map(|(state, count)| (state.letters(), value(count))).collect())),
        ("transmissionQueued", value(gauges.transmission_queued)),
        ("delayed", value(gauges.delayed)),
        ("failed", value(gauges.failed)),
        ("breakers", Value::list(stats.breakers.iter().map(|breaker| Value::from(breaker.name())).collect())),
        ("oldestReady", time(gauges.oldest_ready)),
        ("oldestTransmission", time(gauges.oldest_transmission)),
    ])
}

pub(super) fn delayed(message: &DelayedMessage) -> Value {
    // Names and values, one after the other.
    let properties = message.properties.iter().flat_map(|(name, value)| [name, value]);
    Value::object(vec![
        ("messageId", Value::from(&*message.message_id)),
        ("destination", Value::from(&*message.destination)),
        ("time", Value::from(message.time)),
        ("properties", Value::list(properties.map(|text| Value::from(&**text)).collect())),
        ("headers", message.headers.as_ref().map_or_else(Value::null, Part::value)),
        ("body", message.body.value.value()),
        ("packing", Value::from(message.body.packing)),
        ("retries", value(message.number_of_retries)),
    ])
}

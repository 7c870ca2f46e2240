//! What can be seen of a broker, and what the model says that can be seen.

use std::collections::BTreeMap;
use std::rc::Rc;

use pocket_broker::ids::Decoded;
use pocket_broker::{Endpoint, Message, TransmissionRow};

use super::super::support::shop::{short, show_message};
use super::model::{End, Row, SERVICES, World, other};

/// The handles that the broker gave.
pub(crate) type Handles = BTreeMap<End, Rc<str>>;

/// The group that an end is in.
pub(crate) fn group_of(world: &World, handles: &Handles, end: &End) -> Rc<str> {
    let explicit = world.sides.get(end).and_then(|side| side.group.clone());
    explicit.unwrap_or_else(|| {
        let handle = Decoded::parse(&handles[end]).expect("a handle");
        Decoded { is_group: true, ..handle }.text()
    })
}

/// An endpoint: its end, handle, group, state, service, numbers and earliest timer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SeenEnd {
    pub(crate) end: End,
    handle: Rc<str>,
    group: Rc<str>,
    state: &'static str,
    service: String,
    send: u64,
    receive: u64,
    timer: Option<f64>,
}

/// What an endpoint that has ended expects next says nothing.
fn expected_next(state: &str, next: u64) -> u64 {
    if state == "DO" { 0 } else { next }
}

pub(crate) fn ends_seen(endpoints: &[Endpoint]) -> Vec<SeenEnd> {
    let mut ends: Vec<SeenEnd> = endpoints
        .iter()
        .map(|endpoint| SeenEnd {
            end: (Rc::clone(&endpoint.conversation_id), endpoint.is_initiator),
            handle: Rc::clone(&endpoint.conversation_handle),
            group: Rc::clone(&endpoint.conversation_group_id),
            state: endpoint.state.letters(),
            service: endpoint.service.to_string(),
            send: endpoint.send_sequence,
            receive: expected_next(endpoint.state.letters(), endpoint.receive_sequence),
            timer: endpoint.dialog_timer,
        })
        .collect();
    ends.sort_by(|a, b| a.end.cmp(&b.end));
    ends
}

pub(crate) fn ends_expected(world: &World, handles: &Handles) -> Vec<SeenEnd> {
    world
        .sides
        .iter()
        .map(|(end, side)| SeenEnd {
            end: end.clone(),
            handle: Rc::clone(&handles[end]),
            group: group_of(world, handles, end),
            state: side.state,
            service: SERVICES[side.service].0.to_owned(),
            send: side.next_send,
            receive: expected_next(side.state, side.next_expected),
            timer: side.timers.iter().map(|timer| timer.at).min_by(f64::total_cmp),
        })
        .collect()
}

/// The rows of one queue by handle.
pub(crate) type SeenRows = Vec<(String, Vec<String>)>;

/// What was sent and what was received in one commit has no order among each other; each in itself has.
fn sorted(rows: BTreeMap<&str, Vec<String>>) -> SeenRows {
    let in_order = |(handle, mut rows): (&str, Vec<String>)| {
        rows.sort_by_key(|row| (row.starts_with('3'), row.contains("Error"), row.contains("DialogTimer")));
        (handle.to_owned(), rows)
    };
    rows.into_iter().map(in_order).collect()
}

pub(crate) fn rows_seen(messages: &[Message]) -> SeenRows {
    let mut found: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for message in messages {
        found.entry(&message.conversation_handle).or_default().push(show_message(message));
    }
    sorted(found)
}

pub(crate) fn rows_expected(world: &World, handles: &Handles, queue: usize) -> SeenRows {
    let show = |row: &Row| format!("{} {} {} {}", row.status, row.kind, row.number, row.body).trim_end().to_owned();
    let sides = world.sides.iter().filter(|(_, side)| side.queue() == queue && !side.rows.is_empty());
    sorted(sides.map(|(end, side)| (&*handles[end], side.rows.iter().map(show).collect())).collect())
}

/// Rows of the transmission queue: the sender's handle, and which row.
pub(crate) type SeenOutside = Vec<(String, String)>;

pub(crate) fn outside_seen(rows: &[TransmissionRow]) -> SeenOutside {
    let show = |row: &TransmissionRow| {
        (row.conversation_handle.to_string(), format!("1 {} {}", short(&row.message_type), row.message_sequence_number))
    };
    let mut found: SeenOutside = rows.iter().map(show).collect();
    found.sort();
    found
}

pub(crate) fn outside_expected(world: &World, handles: &Handles) -> SeenOutside {
    let mut expected = SeenOutside::new();
    for (end, side) in &world.sides {
        // What is still to be transmitted is held once the conversation has failed.
        for row in side.outgoing.iter().filter(|_| side.state != "ER") {
            expected.push((handles[end].to_string(), format!("1 {} {}", row.kind, row.number)));
        }
        for row in &side.held {
            let sender = if row.is_own() { end.clone() } else { other(end) };
            let sender = handles.get(&sender).expect("the end was there");
            expected.push((sender.to_string(), format!("1 {} {}", row.kind, row.number)));
        }
    }
    expected.sort();
    expected
}

/// Messages by end, in the order in which the ends come.
pub(crate) fn in_order(handles: &Handles, messages: &[Message]) -> Vec<(End, Vec<Row>)> {
    let mut ends: Vec<(End, Vec<Row>)> = Vec::new();
    for message in messages {
        let end = handles
            .iter()
            .find(|(_, handle)| **handle == message.conversation_handle)
            .map(|(end, _)| end.clone())
            .expect("a known handle");
        let kind = ["Order", "Confirm", "Note", "EndDialog", "Error", "DialogTimer"]
            .into_iter()
            .find(|kind| *kind == short(&message.message_type_name))
            .expect("a known type");
        let body = show_message(message).splitn(4, ' ').nth(3).unwrap_or_default().to_owned();
        let row = Row { status: 1, kind, number: message.message_sequence_number, body };
        match ends.last_mut().filter(|(last, _)| *last == end) {
            Some((_, rows)) => rows.push(row),
            None => ends.push((end, vec![row])),
        }
    }
    ends
}

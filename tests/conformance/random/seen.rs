//! What can be seen of a broker, and what the model says that can be seen.

use std::collections::BTreeMap;
use std::rc::Rc;

use pocket_broker::ids::Decoded;
use pocket_broker::{Endpoint, Message, TransmissionRow};

use super::super::support::shop::{short, show_message};
use super::model::{End, Row, Side, World, other, service_name};

/// The handles that the broker gave.
pub(crate) type Handles = BTreeMap<End, Rc<str>>;

/// The group that an end is in.
pub(crate) fn group_of(world: &World, handles: &Handles, end: &End) -> Rc<str> {
    let side = world.sides.get(end);
    let lane = side.and_then(|side| side.lane.as_ref());
    let own = || match lane {
        // Nobody has been told what the lane is called.
        Some(lane) => lane.handle.as_ref().map_or_else(|| Rc::clone(&end.0), |handle| own_group(handle)),
        None => own_group(&handles[end]),
    };
    side.and_then(|side| side.group.clone()).unwrap_or_else(own)
}

/// The group that an end is in as long as it is put into no other.
pub(crate) fn own_group(handle: &str) -> Rc<str> {
    let decoded = Decoded::parse(handle).expect("a handle");
    Decoded { is_group: true, ..decoded }.text()
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
    let dialogs = endpoints.iter().filter(|endpoint| *endpoint.contract != *"DEFAULT");
    let mut ends: Vec<SeenEnd> = dialogs
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
    let dialogs = world.sides.iter().filter(|(_, side)| side.lane.is_none());
    dialogs
        .map(|(end, side)| SeenEnd {
            end: end.clone(),
            handle: Rc::clone(&handles[end]),
            group: group_of(world, handles, end),
            state: side.state,
            service: service_name(side.service).to_owned(),
            send: side.next_send,
            receive: expected_next(side.state, side.next_expected),
            timer: side.timers.iter().map(|timer| timer.at).min_by(f64::total_cmp),
        })
        .collect()
}

/// The rows of one queue by handle.
pub(crate) type SeenRows = Vec<(String, Vec<String>)>;

/// What a commit brings has no order among each other where numbers give none.
fn sorted(rows: BTreeMap<&str, Vec<String>>) -> SeenRows {
    let in_order = |(handle, mut rows): (&str, Vec<String>)| {
        rows.sort();
        (handle.to_owned(), rows)
    };
    rows.into_iter().map(in_order).collect()
}

pub(crate) fn rows_seen(messages: &[Message]) -> SeenRows {
    let mut found: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for message in messages.iter().filter(|message| *message.service_contract_name != *"DEFAULT") {
        found.entry(&message.conversation_handle).or_default().push(show_message(message));
    }
    sorted(found)
}

pub(crate) fn rows_expected(world: &World, handles: &Handles, queue: usize) -> SeenRows {
    let is_seen = |side: &Side| side.queue == queue && side.lane.is_none() && !side.rows.is_empty();
    let sides = world.sides.iter().filter(|(_, side)| is_seen(side));
    sorted(sides.map(|(end, side)| (&*handles[end], side.rows.iter().map(Row::show).collect())).collect())
}

/// Rows of the transmission queue: the sender's handle, and which row.
pub(crate) type SeenOutside = Vec<(String, String)>;

pub(crate) fn outside_seen(rows: &[TransmissionRow]) -> SeenOutside {
    let show = |row: &TransmissionRow| {
        (row.conversation_handle.to_string(), format!("1 {} {}", short(&row.message_type), row.message_sequence_number))
    };
    let mut found: SeenOutside = rows.iter().filter(|row| *row.contract != *"DEFAULT").map(show).collect();
    found.sort();
    found
}

pub(crate) fn outside_expected(world: &World, handles: &Handles) -> SeenOutside {
    let mut expected = SeenOutside::new();
    for (end, side) in world.sides.iter().filter(|(_, side)| side.lane.is_none()) {
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

/// What a message shows of its row.
pub(crate) fn row_of(message: &Message) -> Row {
    let kind = ["DEFAULT", "Order", "Confirm", "Note", "EndDialog", "Error", "DialogTimer"]
        .into_iter()
        .find(|kind| *kind == short(&message.message_type_name))
        .expect("a known type");
    let shown = show_message(message);
    Row::new(kind, message.message_sequence_number, shown.splitn(4, ' ').nth(3).unwrap_or_default())
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
        match ends.last_mut().filter(|(last, _)| *last == end) {
            Some((_, rows)) => rows.push(row_of(message)),
            None => ends.push((end, vec![row_of(message)])),
        }
    }
    ends
}

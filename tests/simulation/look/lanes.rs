//! Lanes, and what handlers have made of rows, as a look sees them.

use std::collections::BTreeMap;
use std::rc::Rc;

use pocket_broker::{Endpoint, Message, TransmissionRow};

use crate::conformance::random::due::Retry;
use crate::conformance::random::lane::FailedAt;
use crate::conformance::random::model::{End, PLACES, Side, World, service_name};
use crate::conformance::random::seen::own_group;
use crate::conformance::support::shop::show_message;
use crate::lanes::shown;
use crate::model::{Model, Names};

/// A lane: its handle, which the model may not know, and all that can be seen of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SeenLane {
    pub(crate) handle: Rc<str>,
    text: String,
    rows: Vec<String>,
}

impl SeenLane {
    pub(crate) fn has_body(&self, body: &str) -> bool {
        self.rows.iter().any(|row| row.split(' ').nth(3) == Some(body))
    }

    pub(crate) fn shows_rows(&self) -> bool {
        !self.rows.is_empty()
    }
}

fn show_tried(row: &str, attempts: u64, retry_at: Option<f64>, error: &str) -> String {
    format!("{row} tried {attempts} times, again at {retry_at:?}, by {error}")
}

fn show_row(message: &Message) -> String {
    let row = show_message(message);
    match &message.last_error {
        Some(error) => show_tried(&row, message.attempts, message.retry_at, error),
        None => row,
    }
}

fn show_retry(row: &str, retry: &Retry) -> String {
    show_tried(row, retry.attempts, retry.until, &retry.error)
}

fn text(
    parts: (&str, Option<&str>, u32),
    next: u64,
    timer: Option<f64>,
    group: Option<&str>,
    failed: Option<&str>,
) -> String {
    format!("{parts:?}, next {next}, timer {timer:?}, group {group:?}, failed in {failed:?}")
}

pub(crate) fn seen(endpoints: &[Endpoint], messages: &[Message]) -> Vec<SeenLane> {
    let mut rows: BTreeMap<&str, Vec<&Message>> = BTreeMap::new();
    for message in messages {
        rows.entry(&message.conversation_handle).or_default().push(message);
    }
    let lanes = endpoints.iter().filter(|endpoint| *endpoint.contract == *"DEFAULT").map(|endpoint| {
        let rows = rows.get(&*endpoint.conversation_handle).map_or(&[][..], Vec::as_slice);
        let group = &endpoint.conversation_group_id;
        let is_own = *group == own_group(&endpoint.conversation_handle);
        let text = text(
            (&endpoint.service, endpoint.key.as_deref(), endpoint.priority),
            endpoint.receive_sequence,
            endpoint.dialog_timer,
            Some(&**group).filter(|_| !is_own),
            rows.iter().find_map(|row| row.failed_queue.as_deref()),
        );
        let mut rows: Vec<String> = rows.iter().map(|row| show_row(row)).collect();
        rows.sort();
        SeenLane { handle: Rc::clone(&endpoint.conversation_handle), text, rows }
    });
    let mut lanes: Vec<SeenLane> = lanes.collect();
    lanes.sort_by(|a, b| a.handle.cmp(&b.handle));
    lanes
}

/// What is to be seen. Lanes whose handle nobody was told have that of one that looks the same.
pub(crate) fn expected(model: &Model, names: &Names, found: &[SeenLane]) -> Vec<(End, SeenLane)> {
    let mut unnamed: Vec<&SeenLane> = found.iter().collect();
    let lanes = model.world.sides.iter().filter_map(|(end, side)| Some((end, side, side.lane.as_ref()?)));
    let (named, others): (Vec<_>, Vec<_>) = lanes.partition(|(.., lane)| lane.handle.is_some());
    let mut expected = Vec::new();
    for (end, side, lane) in named.into_iter().chain(others) {
        let (text, rows) = show_lane(side, names);
        let known = lane.handle.as_ref();
        let looks_so =
            |lane: &&SeenLane| known.map_or(lane.text == text && lane.rows == rows, |known| lane.handle == *known);
        let place = unnamed.iter().position(looks_so);
        let handle = place.map(|place| Rc::clone(&unnamed.remove(place).handle));
        let handle = known.cloned().or(handle).unwrap_or_else(|| "unknown".into());
        expected.push((end.clone(), SeenLane { handle, text, rows }));
    }
    expected.sort_by(|a, b| a.1.handle.cmp(&b.1.handle));
    expected
}

fn show_lane(side: &Side, names: &Names) -> (String, Vec<String>) {
    let Some(lane) = &side.lane else { return (String::new(), Vec::new()) };
    let timer = side.timers.iter().map(|timer| timer.at).min_by(f64::total_cmp);
    // Where a message was never sent, its sender is named.
    let failed_at = |failed: &FailedAt| match &failed.end {
        Some(end) if failed.was_delayed => names.handles[end].to_string(),
        _ => PLACES[failed.queue].to_owned(),
    };
    let failed = lane.failed.as_deref().filter(|_| !side.rows.is_empty()).map(failed_at);
    let own = lane.handle.as_deref().map(own_group);
    let text = text(
        (service_name(side.service), lane.key.text(), lane.priority),
        side.next_expected.saturating_sub(lane.base),
        timer,
        side.group.as_deref().filter(|group| own.as_deref() != Some(*group)),
        failed.as_deref(),
    );
    let mut rows: Vec<String> = side
        .rows
        .iter()
        .map(|row| {
            let text = shown(side, row).show();
            match side.retry.as_ref().filter(|retry| retry.row == *row) {
                Some(retry) => show_retry(&text, retry),
                None => text,
            }
        })
        .collect();
    rows.sort();
    (text, rows)
}

/// Rows of dialogs that handlers have failed over.
pub(crate) fn tried(messages: &[Message]) -> Vec<String> {
    let is_tried = |message: &&Message| message.last_error.is_some() && *message.service_contract_name != *"DEFAULT";
    let show = |message: &Message| format!("{} {}", message.conversation_handle, show_row(message));
    let mut rows: Vec<String> = messages.iter().filter(is_tried).map(show).collect();
    rows.sort();
    rows
}

pub(crate) fn tried_expected(world: &World, names: &Names) -> Vec<String> {
    let dialogs = world.sides.iter().filter(|(_, side)| side.lane.is_none());
    let mut rows: Vec<String> = dialogs
        .filter_map(|(end, side)| {
            let retry = side.retry.as_ref().filter(|retry| side.rows.contains(&retry.row))?;
            Some(format!("{} {}", names.handles[end], show_retry(&retry.row.show(), retry)))
        })
        .collect();
    rows.sort();
    rows
}

/// What waits outside of lanes.
pub(crate) fn held(rows: &[TransmissionRow]) -> Vec<String> {
    let lanes = rows.iter().filter(|row| *row.contract == *"DEFAULT");
    let show =
        |row: &TransmissionRow| format!("{} {} {:?}", row.from_service, row.message_sequence_number, row.body.text());
    let mut rows: Vec<String> = lanes.map(show).collect();
    rows.sort();
    rows
}

pub(crate) fn held_expected(world: &World) -> Vec<String> {
    let mut rows = Vec::new();
    for side in world.sides.values().filter(|side| side.lane.is_some()) {
        let show = |number: u64, body: &str| format!("{} {number} {:?}", service_name(side.service), Some(body));
        rows.extend(side.held.iter().map(|row| show(shown(side, row).number, &row.body)));
    }
    rows.sort();
    rows
}

//! An end of a conversation, or a lane, and its rows.

use std::rc::Rc;

use super::due::{Retry, Timer};
use super::lane::Lane;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) status: u32,
    pub(crate) kind: &'static str,
    pub(crate) number: u64,
    pub(crate) body: String,
    /// It came back from the error queue: when, among others of its side.
    pub(crate) returned: Option<u64>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Side {
    /// The service that it began with.
    pub(crate) service: usize,
    /// The one that it is of now: a queue's own has what is left of one that was dropped.
    pub(crate) home: usize,
    pub(crate) queue: usize,
    pub(crate) state: &'static str,
    /// The id of the group that it was put into.
    pub(crate) group: Option<Rc<str>>,
    pub(crate) rows: Vec<Row>,
    /// What waits outside because the queue is off.
    pub(crate) held: Vec<Row>,
    /// What is to be transmitted to a service that is not here.
    pub(crate) outgoing: Vec<Row>,
    pub(crate) next_send: u64,
    pub(crate) next_expected: u64,
    pub(crate) timers: Vec<Timer>,
    /// What handlers have made of its first row.
    pub(crate) retry: Option<Retry>,
    /// It is a lane: the only end of its conversation.
    pub(crate) lane: Option<Lane>,
}

impl Row {
    /// One that is ready.
    pub(crate) fn new(kind: &'static str, number: u64, body: &str) -> Self {
        Self { status: 1, kind, number, body: body.to_owned(), returned: None }
    }

    /// "status type number body".
    pub(crate) fn show(&self) -> String {
        format!("{} {} {} {}", self.status, self.kind, self.number, self.body).trim_end().to_owned()
    }

    /// It is read before the messages, and has no number of its own.
    pub(crate) fn is_system(&self) -> bool {
        self.returned.is_some() || ["DialogTimer", "Error"].contains(&self.kind)
    }

    /// It comes from the broker, not from the far side.
    pub(crate) fn is_own(&self) -> bool {
        self.returned.is_some() || self.kind == "DialogTimer" || ["-8462", "-8489"].contains(&self.body.as_str())
    }
}

impl Side {
    pub(crate) fn new(service: usize, queue: usize, state: &'static str, group: Option<Rc<str>>) -> Self {
        Self {
            service,
            home: service,
            queue,
            state,
            group,
            rows: Vec::new(),
            held: Vec::new(),
            outgoing: Vec::new(),
            next_send: 0,
            next_expected: 0,
            timers: Vec::new(),
            retry: None,
            lane: None,
        }
    }

    /// Nothing is left of it but what the far side is to hear.
    pub(super) fn close(&mut self) {
        (self.state, self.retry) = ("DO", None);
        self.rows.clear();
        self.held.clear();
        self.timers.clear();
    }

    /// RECEIVE passes it over if nobody names it.
    pub(crate) fn waits(&self) -> bool {
        self.retry.as_ref().is_some_and(|retry| retry.until.is_some())
    }

    /// What RECEIVE gives, in its order.
    pub(crate) fn unread(&self) -> Vec<Row> {
        let ready = || self.rows.iter().filter(|row| row.status == 1);
        let of = |kind| ready().filter(move |row| row.kind == kind);
        let mut returned: Vec<&Row> = ready().filter(|row| row.returned.is_some()).collect();
        returned.sort_by_key(|row| row.returned);
        let others = ready().filter(|row| !row.is_system());
        of("DialogTimer").chain(of("Error")).chain(returned).chain(others).cloned().collect()
    }
}

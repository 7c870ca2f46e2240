//! What the model knows of a lane besides what every side has.

use std::rc::Rc;

/// What makes a side a lane.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Lane {
    pub(crate) key: LaneKey,
    pub(crate) priority: u32,
    /// The number that is shown as 0: the first after the last END.
    pub(crate) base: u64,
    /// Its handle, once somebody has been told.
    pub(crate) handle: Option<Rc<str>>,
    /// Where its one message failed: it is in the error queue.
    pub(crate) failed: Option<Rc<FailedAt>>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LaneKey {
    Text(&'static str),
    /// Of messages without a key.
    Plain,
    /// One of the sixteen of messages whose order does not matter.
    Loose(u32),
    /// Of one message that was moved away from others.
    Own,
}

/// Where a message has failed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FailedAt {
    pub(crate) queue: usize,
    /// The end it failed at, unless that was a lane.
    pub(crate) end: Option<super::model::End>,
    pub(crate) lane: Option<(LaneKey, u32)>,
    pub(crate) number: u64,
    /// It was delayed and never came there.
    pub(crate) was_delayed: bool,
}

impl LaneKey {
    /// What a row shows of it.
    pub(crate) fn text(&self) -> Option<&'static str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }
}

//! Which rows of a queue or of the archive are asked for.

use std::rc::Rc;

use num_traits::ToPrimitive;

use crate::error::{Error, Result};
use crate::message::{Run, Status, count};
use crate::record::float;
use crate::store::Direction;

/// Which rows. What is absent does not matter.
#[derive(Clone, Debug, Default)]
pub struct RowFilter {
    /// Any of these.
    pub status: Option<Vec<f64>>,
    /// Of this endpoint.
    pub conversation: Option<Rc<str>>,
    /// Of this group.
    pub group: Option<Rc<str>>,
    /// Of this type.
    pub message_type: Option<Rc<str>>,
    /// With a greater queuing order.
    pub after: Option<f64>,
    /// At most this many.
    pub limit: Option<f64>,
    /// Newest first.
    pub reverse: bool,
    /// Of the archive: from this queue.
    pub queue: Option<Rc<str>>,
    /// Of the archive: of this conversation, either end.
    pub conversation_id: Option<Rc<str>>,
}

impl RowFilter {
    /// What can be seen without looking anything up.
    pub(crate) fn check(&self) -> Result<()> {
        if self.limit.is_some_and(|limit| !(limit >= 0.0 && limit.fract() == 0.0)) {
            return Err(Error::invalid_argument("limit", "is not a whole number from 0"));
        }
        if self.after.is_some_and(f64::is_nan) {
            return Err(Error::invalid_argument("after", "is not a queuing order"));
        }
        if self.status.iter().flatten().any(|status| ![0.0, 1.0, 2.0, 3.0].contains(status)) {
            return Err(Error::invalid_argument("status", "is not 0, 1, 2 or 3, or a list of them"));
        }
        Ok(())
    }

    pub(crate) fn has_status(&self, status: f64) -> bool {
        self.status.as_ref().is_none_or(|wanted| wanted.contains(&status))
    }

    pub(crate) fn limit(&self) -> Option<u64> {
        self.limit.and_then(|limit| limit.to_u64())
    }

    pub(super) fn direction(&self) -> Direction {
        if self.reverse { Direction::Backward } else { Direction::Forward }
    }
}

impl RowFilter {
    /// What is wanted of a stretch of rows: those that follow each other stay together.
    pub(super) fn cut(
        &self,
        run: &Run,
        from: usize,
        to: usize,
        status: Status,
        last: Option<u64>,
    ) -> Vec<(usize, usize, Status)> {
        if !self.has_status(status.number().into()) {
            return Vec::new();
        }
        let order = |index: usize| run.first_order + count(index);
        let is_ahead =
            |index: usize| last.is_none_or(|last| if self.reverse { order(index) < last } else { order(index) > last });
        let is_after = |index: usize| self.after.is_none_or(|after| float(order(index)) > after);
        let is_type =
            |index: usize| self.message_type.is_none() || run.columns.types.get(index) == self.message_type.as_ref();
        let mut stretches = Vec::new();
        let mut begin = from;
        for index in from..=to {
            if index == to || !(is_ahead(index) && is_after(index) && is_type(index)) {
                if begin < index {
                    stretches.push((begin, index, status));
                }
                begin = index + 1;
            }
        }
        stretches
    }

    /// Cuts a stretch to what may still come.
    pub(super) fn limited(&self, (from, to, status): (usize, usize, Status), left: u64) -> (usize, usize, Status) {
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        if self.reverse {
            (from.max(to.saturating_sub(left)), to, status)
        } else {
            (from, to.min(from.saturating_add(left)), status)
        }
    }

    /// Cuts a stretch to what fits into `room` bytes: up to the row that fills it.
    pub(super) fn fitting(&self, run: &Run, from: usize, to: usize, mut room: f64) -> (usize, usize) {
        let mut fits = |index: &usize| {
            let fits = room > 0.0;
            room -= run.size_of(*index);
            fits
        };
        if self.reverse {
            (to - (from..to).rev().take_while(&mut fits).count(), to)
        } else {
            (from, from + (from..to).take_while(&mut fits).count())
        }
    }
}

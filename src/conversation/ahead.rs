//! What has arrived at a side from a far broker ahead of its turn.

use super::Interval;
use crate::body::Value;
use crate::record::{self, Fields, Read};

/// Rows with status 2, and what is known of the last one of all.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Ahead {
    /// The numbers of the rows, in their order.
    pub(crate) parked: Vec<Interval>,
    /// What their bodies and headers take.
    pub(crate) bytes: f64,
    /// The number of the far side's EndDialog or Error, once it is here: nothing comes behind it.
    pub(crate) last: Option<u64>,
}

impl Ahead {
    /// Whether a row is here.
    pub(crate) fn has(&self, number: u64) -> bool {
        self.parked.iter().any(|interval| (interval.from..interval.to).contains(&number))
    }

    /// Whether a row behind a number is here.
    pub(crate) fn has_behind(&self, number: u64) -> bool {
        self.parked.last().is_some_and(|interval| interval.to > number + 1)
    }

    /// A row that is not here yet has come.
    pub(crate) fn park(&mut self, number: u64, size: f64) {
        self.bytes += size;
        let index = self.parked.partition_point(|interval| interval.to < number);
        match self.parked.get_mut(index) {
            Some(interval) if interval.to == number => {
                interval.to += 1;
                let to = interval.to;
                if let Some(next) = self.parked.get(index + 1).copied().filter(|next| next.from == to) {
                    self.parked.remove(index + 1);
                    self.parked.iter_mut().skip(index).take(1).for_each(|interval| interval.to = next.to);
                }
            }
            Some(interval) if interval.from == number + 1 => interval.from = number,
            _ => self.parked.insert(index, Interval { from: number, to: number + 1 }),
        }
    }

    /// Where the stretch ends that begins with a number; the number itself if it is not here.
    pub(crate) fn end_of(&self, number: u64) -> u64 {
        self.parked.first().filter(|first| first.from == number).map_or(number, |first| first.to)
    }

    /// The first stretch has had its turn.
    pub(crate) fn take(&mut self, size: f64) {
        if !self.parked.is_empty() {
            self.parked.remove(0);
        }
        self.bytes = if self.parked.is_empty() { 0.0 } else { (self.bytes - size).max(0.0) };
    }

    /// Where the stretch ends that a number is in.
    pub(crate) fn end_of_stretch(&self, number: u64) -> u64 {
        let stretch = self.parked.iter().find(|interval| (interval.from..interval.to).contains(&number));
        stretch.map_or(number, |interval| interval.to)
    }

    /// Rows are not here any more: they may come again. `left`: what the others take. Gives how many there were.
    pub(crate) fn forget(&mut self, from: u64, to: u64, left: f64) -> u64 {
        let before = self.count();
        let parts = self.parked.iter().flat_map(|interval| {
            let left = Interval { from: interval.from, to: interval.to.min(from) };
            [left, Interval { from: interval.from.max(to), to: interval.to }]
        });
        self.parked = parts.filter(|part| part.from < part.to).collect();
        self.bytes = left;
        before - self.count()
    }

    /// How many rows are here.
    pub(crate) fn count(&self) -> u64 {
        self.parked.iter().map(|interval| interval.to - interval.from).sum()
    }

    pub(super) fn record(&self) -> Value {
        let mut record = vec![Value::from(self.bytes), self.last.map_or_else(Value::null, record::value)];
        record.extend(self.parked.iter().flat_map(|interval| [interval.from, interval.to].map(record::value)));
        Value::list(record)
    }

    pub(super) fn read(value: &Value) -> Read<Self> {
        if !value.is_list() {
            return Ok(Self::default());
        }
        let mut fields = Fields::part(value)?;
        let (bytes, last) = (fields.float()?, fields.optional_number()?);
        let mut parked = Vec::new();
        while let Some(from) = fields.optional_number()? {
            parked.push(Interval { from, to: fields.number()? });
        }
        Ok(Self { parked, bytes, last })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(numbers: &[u64]) -> Ahead {
        let mut ahead = Ahead::default();
        numbers.iter().for_each(|number| ahead.park(*number, 10.0));
        ahead
    }

    fn stretches(ahead: &Ahead) -> Vec<(u64, u64)> {
        ahead.parked.iter().map(|interval| (interval.from, interval.to)).collect()
    }

    #[test]
    fn whatever_order_they_come_in_the_stretches_are_the_same() {
        let numbers = [3, 4, 5, 7, 9, 10];
        let mut orders = vec![numbers.to_vec()];
        for index in 0..numbers.len() {
            let mut other = numbers.to_vec();
            other.rotate_left(index);
            orders.push(other.clone());
            other.reverse();
            orders.push(other);
        }
        orders.push(vec![3, 5, 4, 9, 7, 10]);
        for order in orders {
            let ahead = of(&order);
            assert_eq!(stretches(&ahead), [(3, 6), (7, 8), (9, 11)], "{order:?}");
            assert_eq!((ahead.count(), ahead.bytes), (6, 60.0));
            assert_eq!(Ahead::read(&ahead.record()).ok(), Some(ahead));
        }
    }

    #[test]
    fn a_stretch_has_its_turn_as_a_whole() {
        let mut ahead = of(&[3, 4, 7]);
        assert_eq!((ahead.end_of(2), ahead.end_of(3), ahead.end_of(7)), (2, 5, 7));
        assert!(ahead.has(4) && !ahead.has(5) && ahead.has_behind(6) && !ahead.has_behind(7));
        ahead.take(20.0);
        assert_eq!((stretches(&ahead), ahead.bytes), (vec![(7, 8)], 10.0));
        assert_eq!(ahead.forget(7, 8, 0.0), 1);
        assert_eq!((ahead.count(), ahead.bytes), (0, 0.0));
    }

    #[test]
    fn some_of_a_stretch_can_be_forgotten() {
        let mut ahead = of(&[3, 4, 5, 6]);
        assert_eq!(ahead.forget(4, 6, 20.0), 2);
        assert_eq!((stretches(&ahead), ahead.bytes), (vec![(3, 4), (6, 7)], 20.0));
    }
}

//! Columns: how messages that are stored together lie in one record. A column whose values are all equal is one value.

use std::rc::Rc;

use num_traits::ToPrimitive;
use uuid::Uuid;

use crate::body::{Body, Part, Value};
use crate::message::{LARGE_BODY, RUN_BYTES, RUN_ROWS, Row, count};
use crate::record::{self, Fields, Read, Unreadable};

/// One value for all rows, or one each.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Column<T> {
    Same(T),
    Each(Vec<T>),
}

impl<T: Clone + PartialEq> Column<T> {
    pub(crate) fn of(values: Vec<T>) -> Self {
        match values.split_first() {
            Some((first, rest)) if rest.iter().all(|value| value == first) => Self::Same(first.clone()),
            _ => Self::Each(values),
        }
    }

    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        match self {
            Self::Same(value) => Some(value),
            Self::Each(values) => values.get(index),
        }
    }

    pub(crate) fn slice(&self, from: usize, to: usize) -> Self {
        match self {
            Self::Same(value) => Self::Same(value.clone()),
            Self::Each(values) => Self::Each(values.get(from..to).unwrap_or_default().to_vec()),
        }
    }

    pub(crate) fn record(&self, value: impl Fn(&T) -> Value) -> Value {
        match self {
            Self::Same(same) => value(same),
            Self::Each(values) => Value::list(values.iter().map(value).collect()),
        }
    }

    pub(crate) fn read(column: &Value, value: impl Fn(&Value) -> Option<T>, problem: &'static str) -> Read<Self> {
        let read = |item: &Value| value(item).ok_or(Unreadable::Field(problem));
        if column.is_list() {
            column.items().iter().map(read).collect::<Read<_>>().map(Self::Each)
        } else {
            read(column).map(Self::Same)
        }
    }
}

/// What all runs have of their messages, wherever they lie.
#[derive(Clone, Debug)]
pub(crate) struct Columns {
    pub(crate) types: Column<Rc<str>>,
    /// 16 bytes a row.
    pub(crate) ids: Value,
    /// A list, or null: none has any.
    pub(crate) headers: Value,
    /// A list. In the place of a body that has a record of its own: undefined.
    pub(crate) bodies: Value,
    /// A list, or null: all 0.
    pub(crate) packings: Value,
    /// Which bodies have records of their own, and their sizes.
    pub(crate) large: Vec<(usize, f64)>,
    /// Of all bodies.
    pub(crate) size: f64,
}

impl Columns {
    pub(crate) fn of(rows: &[Row]) -> Self {
        let large: Vec<(usize, f64)> = rows
            .iter()
            .enumerate()
            .filter(|(_, row)| row.body.is_large())
            .map(|(index, row)| (index, row.body.size))
            .collect();
        let bodies = if large.is_empty() {
            Part::list(rows.iter().map(|row| &row.body.value))
        } else {
            let body = |row: &Row| if row.body.is_large() { Value::undefined() } else { row.body.value.value() };
            Value::list(rows.iter().map(body).collect())
        };
        let mut ids = Vec::with_capacity(rows.len() * 16);
        rows.iter().for_each(|row| ids.extend_from_slice(row.id.as_bytes()));
        let headers: Vec<&Part> = rows.iter().filter_map(|row| row.headers.as_ref()).collect();
        Self {
            types: Column::of(rows.iter().map(|row| Rc::clone(&row.message_type)).collect()),
            ids: Value::from_bytes(&ids),
            headers: match headers.len() {
                0 => Value::null(),
                some if some == rows.len() => Part::list(headers.into_iter()),
                _ => {
                    let own = |row: &Row| row.headers.as_ref().map(Part::value).unwrap_or_default();
                    Value::list(rows.iter().map(own).collect())
                }
            },
            bodies,
            packings: if rows.iter().all(|row| row.body.packing == 0) {
                Value::null()
            } else {
                Value::list(rows.iter().map(|row| Value::from(row.body.packing)).collect())
            },
            large,
            size: rows.iter().map(|row| row.body.size).sum(),
        }
    }

    pub(crate) fn types_record(&self) -> Value {
        self.types.record(|name| Value::from(&**name))
    }

    /// Which bodies have records of their own, and their sizes, in one list.
    pub(crate) fn large_record(&self) -> Value {
        let pair = |(index, size): &(usize, f64)| [record::value(count(*index)), Value::from(*size)];
        Value::list(self.large.iter().flat_map(pair).collect())
    }

    /// From the fields of a record, in the order of ours.
    pub(crate) fn read([types, ids, headers, bodies, packings, large, size]: [Value; 7]) -> Read<Self> {
        let mut pairs = Fields::part(&large)?;
        let pair = |_| Ok((usize::try_from(pairs.number()?).unwrap_or(usize::MAX), pairs.float()?));
        Ok(Self {
            types: Column::read(&types, |item| item.text().map(Rc::from), "a message type is missing")?,
            ids,
            headers,
            bodies,
            packings,
            large: (0..large.len() / 2).map(pair).collect::<Read<_>>()?,
            size: size.number().ok_or(Unreadable::Field("the size is missing"))?,
        })
    }

    /// Whether each column has so many rows.
    pub(crate) fn check(&self, rows: usize) -> Read<()> {
        let complete = |column: &Value| column.is_null() || column.len() == rows;
        let is_complete = (1..=RUN_ROWS).contains(&rows)
            && self.bodies.len() == rows
            && complete(&self.headers)
            && complete(&self.packings)
            && self.ids.byte_length() == rows * 16;
        if is_complete { Ok(()) } else { Err(Unreadable::Field("its columns do not have its length")) }
    }

    /// The rows, in order, as of one instant. Their bodies and headers stay the lists that they are in. Large bodies are not there.
    pub(crate) fn rows(self, time: f64) -> Vec<Row> {
        let ids = self.ids.bytes().unwrap_or_default();
        let small = self.size - self.large.iter().map(|(_, size)| size).sum::<f64>();
        let average = small.max(0.0) / ids.len().to_f64().unwrap_or(0.0).max(1.0) * 16.0;
        let packings = self.packings.items();
        let has_headers = !self.headers.is_null();
        let (headers, bodies) = (Rc::new(self.headers), Rc::new(self.bodies));
        let row = |(index, id): (usize, &[u8])| Row {
            message_type: self.types.get(index).cloned().unwrap_or_else(|| "".into()),
            id: Uuid::from_slice(id).unwrap_or_default(),
            time,
            headers: has_headers.then(|| Part::item(&headers, index)),
            body: Body {
                value: Part::item(&bodies, index),
                packing: packings.get(index).and_then(Value::number).and_then(|packing| packing.to_u32()).unwrap_or(0),
                size: average,
            },
        };
        let mut rows: Vec<Row> = ids.chunks_exact(16).enumerate().map(row).collect();
        for (index, size) in self.large {
            rows.get_mut(index).into_iter().for_each(|row| row.body.size = size);
        }
        rows
    }
}

impl Body {
    /// Whether it gets a record of its own.
    pub(crate) fn is_large(&self) -> bool {
        self.size >= LARGE_BODY
    }

    /// What it takes in a run.
    fn share(&self) -> f64 {
        if self.is_large() { 64.0 } else { self.size }
    }
}

/// How many of these go into the next run: as many as fit, but at least one.
pub(crate) fn run_length<'a>(bodies: impl Iterator<Item = &'a Body>) -> usize {
    let mut size = 0.0;
    let fits = |body: &&Body| {
        size += body.share();
        size <= RUN_BYTES
    };
    bodies.take(RUN_ROWS).take_while(fits).count().max(1)
}

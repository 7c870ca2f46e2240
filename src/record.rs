//! Records: lists with a format number in front, read field by field.

use std::rc::Rc;

use num_traits::ToPrimitive;

use crate::body::Value;
use crate::error::{Error, ErrorCode};
use crate::store::{Key, StoreName};

/// A number as a value or key part. Our numbers stay below 2^53.
pub(crate) fn float(number: u64) -> f64 {
    number.to_f64().unwrap_or(f64::MAX)
}

/// A number as a value.
pub(crate) fn value(number: u64) -> Value {
    Value::from(float(number))
}

/// A text, or null.
pub(crate) fn optional(text: Option<&str>) -> Value {
    text.map_or_else(Value::null, Value::from)
}

/// Why a record can't be read.
#[derive(Debug)]
pub(crate) enum Unreadable {
    /// A field that should be something else.
    Field(&'static str),
    /// Written by a newer build.
    Format(u64),
}

impl Unreadable {
    /// The error, naming the store and the key.
    pub(crate) fn at(self, store: StoreName, key: &Key) -> Error {
        match self {
            Self::Field(problem) => Error::corrupt(store.name(), key, problem),
            Self::Format(format) => Error::new(
                ErrorCode::VersionTooNew,
                format!("A record of the object store \"{}\" has format {format}, which this build does not know. Load the newer build: reload the page.", store.name()),
            )
            .with("store", store.name()),
        }
    }
}

/// What can't be read is not a reason to stop reading the rest.
pub(crate) type Read<T> = std::result::Result<T, Unreadable>;

/// Reads records in their order. The first that can't be read ends it: which it is, and why.
pub(crate) fn read_all<T>(records: &[Value], read: impl Fn(&Value) -> Read<T>) -> Result<Vec<T>, (usize, Unreadable)> {
    records.iter().enumerate().map(|(index, record)| read(record).map_err(|problem| (index, problem))).collect()
}

/// Reads a record from its first field to its last.
#[derive(Debug)]
pub(crate) struct Fields {
    items: Vec<Value>,
    position: usize,
}

impl Fields {
    /// Opens a record of format 1.
    pub(crate) fn open(record: &Value) -> Read<Self> {
        let mut fields = Self::part(record)?;
        match fields.number()? {
            1 => Ok(fields),
            format => Err(Unreadable::Format(format)),
        }
    }

    /// Opens a list inside a record.
    pub(crate) fn part(list: &Value) -> Read<Self> {
        if !list.is_list() {
            return Err(Unreadable::Field("it is not a list"));
        }
        Ok(Self { items: list.items(), position: 0 })
    }

    /// The next field, whatever it is; `undefined` after the last one: older records are shorter.
    pub(crate) fn any(&mut self) -> Value {
        let item = self.items.get(self.position).cloned().unwrap_or_default();
        self.position += 1;
        item
    }

    /// The next field, a whole number.
    pub(crate) fn number(&mut self) -> Read<u64> {
        whole(&self.any())
    }

    /// The next field, a number of at most 32 bits.
    pub(crate) fn small(&mut self) -> Read<u32> {
        self.number()?.to_u32().ok_or(Unreadable::Field("a number is too large"))
    }

    /// The next field, any number.
    pub(crate) fn float(&mut self) -> Read<f64> {
        self.any().number().ok_or(Unreadable::Field("a number is missing"))
    }

    /// The next field, a whole number or nothing.
    pub(crate) fn optional_number(&mut self) -> Read<Option<u64>> {
        let item = self.any();
        if item.is_null() || item.is_undefined() { Ok(None) } else { whole(&item).map(Some) }
    }

    /// The next field, a text.
    pub(crate) fn text(&mut self) -> Read<Rc<str>> {
        self.optional_text()?.ok_or(Unreadable::Field("a text is missing"))
    }

    /// The next field, a text or nothing.
    pub(crate) fn optional_text(&mut self) -> Read<Option<Rc<str>>> {
        let item = self.any();
        if item.is_null() || item.is_undefined() {
            return Ok(None);
        }
        item.text().map(|text| Some(text.into())).ok_or(Unreadable::Field("a text is missing"))
    }

    /// The next field, a boolean; false where there is none.
    pub(crate) fn flag(&mut self) -> Read<bool> {
        let item = self.any();
        if item.is_undefined() { Ok(false) } else { item.boolean().ok_or(Unreadable::Field("a boolean is missing")) }
    }

    /// The next field, a list; empty where there is none.
    pub(crate) fn list(&mut self) -> Read<Vec<Value>> {
        let item = self.any();
        if item.is_undefined() || item.is_list() {
            Ok(item.items())
        } else {
            Err(Unreadable::Field("a list is missing"))
        }
    }
}

fn whole(item: &Value) -> Read<u64> {
    item.number()
        .filter(|number| number.fract() == 0.0)
        .and_then(|number| number.to_u64())
        .ok_or(Unreadable::Field("a whole number is missing"))
}

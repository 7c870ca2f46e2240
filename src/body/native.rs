//! Values without a browser.

use std::rc::Rc;

use crate::error::Result;

/// A structured-clone value.
#[derive(Clone, Debug, PartialEq, Default)]
pub enum Value {
    /// `undefined`.
    #[default]
    Undefined,
    /// `null`.
    Null,
    /// A boolean.
    Bool(bool),
    /// A number.
    Number(f64),
    /// A string.
    Text(Rc<str>),
    /// Bytes.
    Bytes(Rc<[u8]>),
    /// An array.
    List(Vec<Value>),
    /// A plain object.
    Object(Vec<(Rc<str>, Value)>),
}

impl Value {
    /// `undefined`.
    pub fn undefined() -> Self {
        Self::Undefined
    }

    /// `null`.
    pub fn null() -> Self {
        Self::Null
    }

    /// A `Uint8Array`.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self::Bytes(bytes.into())
    }

    /// An array.
    pub fn list(items: Vec<Self>) -> Self {
        Self::List(items)
    }

    /// A plain object.
    pub fn object(fields: Vec<(&'static str, Self)>) -> Self {
        Self::Object(fields.into_iter().map(|(name, value)| (name.into(), value)).collect())
    }

    /// Whether it is `undefined`.
    pub fn is_undefined(&self) -> bool {
        *self == Self::Undefined
    }

    /// Whether it is `null`.
    pub fn is_null(&self) -> bool {
        *self == Self::Null
    }

    /// Whether it is an array.
    pub fn is_list(&self) -> bool {
        matches!(self, Self::List(_))
    }

    /// The number, if it is one.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// The text, if it is one.
    pub fn text(&self) -> Option<String> {
        match self {
            Self::Text(text) => Some(text.to_string()),
            _ => None,
        }
    }

    /// The boolean, if it is one.
    pub fn boolean(&self) -> Option<bool> {
        match self {
            Self::Bool(flag) => Some(*flag),
            _ => None,
        }
    }

    /// The bytes, if it is a `Uint8Array`.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        match self {
            Self::Bytes(bytes) => Some(bytes.to_vec()),
            _ => None,
        }
    }

    /// The number of bytes of a `Uint8Array`; 0 for anything else.
    pub fn byte_length(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            _ => 0,
        }
    }

    /// A part of a `Uint8Array`.
    #[must_use]
    pub fn byte_slice(&self, from: usize, to: usize) -> Self {
        match self {
            Self::Bytes(bytes) => Self::from_bytes(bytes.get(from..to).unwrap_or_default()),
            _ => Self::Undefined,
        }
    }

    /// The same array with another item at `index`.
    #[must_use]
    pub fn with_item(mut self, index: usize, item: Self) -> Self {
        if let Self::List(items) = &mut self
            && let Some(place) = items.get_mut(index)
        {
            *place = item;
        }
        self
    }

    /// The number of items of an array; 0 for anything else.
    pub fn len(&self) -> usize {
        match self {
            Self::List(items) => items.len(),
            _ => 0,
        }
    }

    /// Whether it is anything but an array with items.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// An item of an array; `undefined` where there is none.
    pub fn item(&self, index: usize) -> Self {
        match self {
            Self::List(items) => items.get(index).cloned().unwrap_or_default(),
            _ => Self::Undefined,
        }
    }

    /// The items of an array; none for anything else.
    pub fn items(&self) -> Vec<Self> {
        match self {
            Self::List(items) => items.clone(),
            _ => Vec::new(),
        }
    }

    /// A part of an array: items `from` (included) to `to` (excluded).
    #[must_use]
    pub fn slice(&self, from: usize, to: usize) -> Self {
        match self {
            Self::List(items) => Self::List(items.get(from..to).unwrap_or_default().to_vec()),
            _ => Self::Undefined,
        }
    }

    /// An array with the items of both.
    #[must_use]
    pub(crate) fn concat(self, more: Self) -> Self {
        match (self, more) {
            (Self::List(list), Self::List(more)) => Self::List(list.into_iter().chain(more).collect()),
            _ => Self::Undefined,
        }
    }

    /// A field of an object; `undefined` where there is none.
    pub fn field(&self, name: &str) -> Self {
        match self {
            Self::Object(fields) => {
                fields.iter().find(|(field, _)| &**field == name).map(|(_, value)| value.clone()).unwrap_or_default()
            }
            _ => Self::Undefined,
        }
    }

    /// An object with the fields of this one, if it is an object, and more.
    #[must_use]
    pub(crate) fn with_fields(&self, more: Vec<(&'static str, Self)>) -> Self {
        let own = match self {
            Self::Object(fields) => fields.clone(),
            _ => Vec::new(),
        };
        Self::Object(own.into_iter().chain(more.into_iter().map(|(name, value)| (name.into(), value))).collect())
    }

    /// The fields of a plain object; `None` for anything else.
    pub(crate) fn entries(&self) -> Option<Vec<(Rc<str>, Self)>> {
        match self {
            Self::Object(fields) => Some(fields.clone()),
            _ => None,
        }
    }

    /// A structured clone: nothing in it is shared with this one.
    ///
    /// # Errors
    /// `NotCloneable`; never natively.
    pub fn copy(&self) -> Result<Self> {
        Ok(self.clone())
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Bool(flag)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

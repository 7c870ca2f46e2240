//! Keys and key ranges, ordered as IndexedDB orders them.

use std::cmp::Ordering;
use std::fmt;
use std::rc::Rc;

use num_traits::ToPrimitive;

use crate::body::Value;

/// A key of an object store.
///
/// The order is IndexedDB's: numbers, then texts by UTF-16 code units, then lists, element by element.
#[derive(Clone, Debug)]
pub enum Key {
    /// Never NaN.
    Number(f64),
    /// A well-formed text.
    Text(Rc<str>),
    /// Sorts after every number and text.
    List(Vec<Key>),
}

impl Key {
    /// A list key, from anything that makes keys.
    pub fn list<const N: usize>(parts: [Key; N]) -> Self {
        Self::List(parts.into())
    }
}

impl Key {
    /// The key as a value.
    pub(crate) fn to_value(&self) -> Value {
        match self {
            Self::Number(number) => Value::from(*number),
            Self::Text(text) => Value::from(&**text),
            Self::List(parts) => Value::list(parts.iter().map(Self::to_value).collect()),
        }
    }

    /// The key that a value is.
    pub(crate) fn from_value(value: &Value) -> Option<Self> {
        match (value.number(), value.text()) {
            (Some(number), _) => Some(Self::Number(number)),
            (None, Some(text)) => Some(Self::Text(text.into())),
            (None, None) => value
                .is_list()
                .then(|| value.items().iter().map(Self::from_value).collect::<Option<_>>().map(Self::List))
                .flatten(),
        }
    }
}

impl fmt::Display for Key {
    /// As JavaScript writes it: `[12, "name"]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => match number.to_i64() {
                Some(whole) => write!(f, "{whole}"),
                None => f.write_str("?"),
            },
            Self::Text(text) => write!(f, "\"{text}\""),
            Self::List(parts) => {
                f.write_str("[")?;
                for (index, part) in parts.iter().enumerate() {
                    f.write_str(if index == 0 { "" } else { ", " })?;
                    part.fmt(f)?;
                }
                f.write_str("]")
            }
        }
    }
}

impl From<f64> for Key {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<u32> for Key {
    fn from(number: u32) -> Self {
        Self::Number(f64::from(number))
    }
}

impl From<&str> for Key {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            // `+ 0.0` makes the two zeros one key, as IndexedDB does.
            (Self::Number(a), Self::Number(b)) => (a + 0.0).total_cmp(&(b + 0.0)),
            (Self::Text(a), Self::Text(b)) => a.encode_utf16().cmp(b.encode_utf16()),
            (Self::List(a), Self::List(b)) => a.cmp(b),
            (a, b) => a.kind().cmp(&b.kind()),
        }
    }
}

impl Key {
    fn kind(&self) -> u8 {
        match self {
            Self::Number(_) => 0,
            Self::Text(_) => 1,
            Self::List(_) => 2,
        }
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key {
    /// What [`Ord`] calls equal, without looking at code units.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Number(a), Self::Number(b)) => a == b,
            (Self::Text(a), Self::Text(b)) => a == b,
            (Self::List(a), Self::List(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for Key {}

/// One end of a [`Range`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bound {
    /// No limit.
    Open,
    /// The key itself belongs to the range.
    Including(Key),
    /// The key itself does not.
    Excluding(Key),
}

/// A contiguous range of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// Where it begins.
    pub lower: Bound,
    /// Where it ends.
    pub upper: Bound,
}

impl Range {
    /// Every key.
    pub fn all() -> Self {
        Self { lower: Bound::Open, upper: Bound::Open }
    }

    /// `from ≤ key ≤ to`.
    pub fn between(from: Key, to: Key) -> Self {
        Self { lower: Bound::Including(from), upper: Bound::Including(to) }
    }

    /// `from ≤ key < to`.
    pub fn up_to(from: Key, to: Key) -> Self {
        Self { lower: Bound::Including(from), upper: Bound::Excluding(to) }
    }

    /// Every list key that begins with `parts`.
    pub fn prefix(parts: Vec<Key>) -> Self {
        let mut end = parts.clone();
        // An empty list sorts after every number and text, so no element of our keys comes after it.
        end.push(Key::List(Vec::new()));
        Self { lower: Bound::Including(Key::List(parts)), upper: Bound::Excluding(Key::List(end)) }
    }

    /// What of it comes after `key`.
    #[must_use]
    pub fn behind(self, key: Key) -> Self {
        Self { lower: Bound::Excluding(key), ..self }
    }

    /// Whether no key can be inside. IndexedDB refuses to make such a range.
    pub fn is_empty(&self) -> bool {
        match (&self.lower, &self.upper) {
            (Bound::Including(a), Bound::Including(b)) => a > b,
            (Bound::Including(a) | Bound::Excluding(a), Bound::Including(b) | Bound::Excluding(b)) => a >= b,
            _ => false,
        }
    }

    /// Whether `key` is inside.
    pub fn contains(&self, key: &Key) -> bool {
        !self.is_above(key) && !self.is_below(key)
    }

    /// Whether the range begins behind `key`.
    pub(crate) fn is_above(&self, key: &Key) -> bool {
        match &self.lower {
            Bound::Open => false,
            Bound::Including(lower) => key < lower,
            Bound::Excluding(lower) => key <= lower,
        }
    }

    /// Whether the range ends before `key`.
    pub(crate) fn is_below(&self, key: &Key) -> bool {
        match &self.upper {
            Bound::Open => false,
            Bound::Including(upper) => key > upper,
            Bound::Excluding(upper) => key >= upper,
        }
    }
}

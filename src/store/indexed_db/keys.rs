//! Keys and ranges, as IndexedDB takes and gives them.

use idb::{KeyRange, Query};
use js_sys::Array;
use wasm_bindgen::prelude::*;

use super::super::{Bound, Key, Range};
use super::error::from_idb;
use crate::error::{Error, Result};

pub(super) fn to_js(key: &Key) -> JsValue {
    match key {
        // Never -0: to Chromium's filters on disk that is another key than 0, to its memory it is not.
        Key::Number(number) => JsValue::from_f64(number + 0.0),
        Key::Text(text) => JsValue::from_str(text),
        Key::List(parts) => parts.iter().map(to_js).collect::<Array>().into(),
    }
}

/// The key that IndexedDB gave, if it is of a kind that we write.
pub(super) fn from_js(key: &JsValue) -> Option<Key> {
    if let Some(number) = key.as_f64() {
        Some(Key::Number(number))
    } else if let Some(text) = key.as_string() {
        Some(Key::Text(text.into()))
    } else {
        key.dyn_ref::<Array>()?.iter().map(|part| from_js(&part)).collect::<Option<_>>().map(Key::List)
    }
}

/// The keys in an array.
pub(super) fn list_from_js(store: &str, keys: &JsValue) -> Result<Vec<Key>> {
    let keys = keys.unchecked_ref::<Array>();
    keys.iter()
        .map(|key| from_js(&key).ok_or_else(|| Error::corrupt(store, &"?".into(), "a key of a foreign kind")))
        .collect()
}

/// The range; `None` for all keys. The range must not be empty: IndexedDB refuses to make such a one.
pub(super) fn query(range: &Range) -> Result<Option<Query>> {
    let range = match (end(&range.lower), end(&range.upper)) {
        (None, None) => return Ok(None),
        (Some((lower, open)), None) => KeyRange::lower_bound(&lower, Some(open)),
        (None, Some((upper, open))) => KeyRange::upper_bound(&upper, Some(open)),
        (Some((lower, lower_open)), Some((upper, upper_open))) => {
            KeyRange::bound(&lower, &upper, Some(lower_open), Some(upper_open))
        }
    };
    range.map(|range| Some(range.into())).map_err(from_idb)
}

/// The key of a bound, and whether it is excluded.
fn end(bound: &Bound) -> Option<(JsValue, bool)> {
    match bound {
        Bound::Open => None,
        Bound::Including(key) => Some((to_js(key), false)),
        Bound::Excluding(key) => Some((to_js(key), true)),
    }
}

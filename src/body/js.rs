//! Values in a browser: `JsValue`s.

use std::rc::Rc;

use js_sys::{Array, Object, Reflect, Uint8Array};
use wasm_bindgen::prelude::*;

use crate::error::{Error, ErrorCode, Result};

/// A structured-clone value.
#[derive(Clone, Debug, Default)]
pub struct Value(pub JsValue);

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_name = structuredClone, catch)]
    fn structured_clone(value: &JsValue) -> std::result::Result<JsValue, JsValue>;
}

impl Value {
    /// `undefined`.
    pub fn undefined() -> Self {
        Self(JsValue::UNDEFINED)
    }

    /// `null`.
    pub fn null() -> Self {
        Self(JsValue::NULL)
    }

    /// A `Uint8Array`.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self(Uint8Array::from(bytes).into())
    }

    /// An array.
    pub fn list(items: Vec<Self>) -> Self {
        let list = Array::new();
        for item in items {
            list.push(&item.0);
        }
        Self(list.into())
    }

    /// A plain object.
    pub fn object(fields: Vec<(&'static str, Self)>) -> Self {
        let object = Object::new();
        for (name, value) in fields {
            // An ordinary object takes every field.
            let _ = Reflect::set(&object, &wasm_bindgen::intern(name).into(), &value.0);
        }
        Self(object.into())
    }

    /// Whether it is `undefined`.
    pub fn is_undefined(&self) -> bool {
        self.0.is_undefined()
    }

    /// Whether it is `null`.
    pub fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Whether it is an array.
    pub fn is_list(&self) -> bool {
        Array::is_array(&self.0)
    }

    /// The number, if it is one.
    pub fn number(&self) -> Option<f64> {
        self.0.as_f64()
    }

    /// The text, if it is one.
    pub fn text(&self) -> Option<String> {
        self.0.as_string()
    }

    /// The boolean, if it is one.
    pub fn boolean(&self) -> Option<bool> {
        self.0.as_bool()
    }

    /// The bytes, if it is a `Uint8Array`.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        self.0.dyn_ref::<Uint8Array>().map(Uint8Array::to_vec)
    }

    /// The number of bytes of a `Uint8Array`; 0 for anything else.
    pub fn byte_length(&self) -> usize {
        self.0.dyn_ref::<Uint8Array>().map_or(0, |bytes| usize::try_from(bytes.length()).unwrap_or(0))
    }

    /// A part of a `Uint8Array`.
    #[must_use]
    pub fn byte_slice(&self, from: usize, to: usize) -> Self {
        match (self.0.dyn_ref::<Uint8Array>(), u32::try_from(from), u32::try_from(to)) {
            (Some(bytes), Ok(from), Ok(to)) => Self(bytes.subarray(from, to).into()),
            _ => Self::undefined(),
        }
    }

    /// The same array with another item at `index`.
    #[must_use]
    pub fn with_item(self, index: usize, item: Self) -> Self {
        if let (Some(list), Ok(index)) = (self.array(), u32::try_from(index)) {
            list.set(index, item.0);
        }
        self
    }

    /// The number of items of an array; 0 for anything else.
    pub fn len(&self) -> usize {
        self.array().map_or(0, |list| usize::try_from(list.length()).unwrap_or(0))
    }

    /// Whether it is anything but an array with items.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// An item of an array; `undefined` where there is none.
    pub fn item(&self, index: usize) -> Self {
        match (self.array(), u32::try_from(index)) {
            (Some(list), Ok(index)) => Self(list.get(index)),
            _ => Self::undefined(),
        }
    }

    /// The items of an array; none for anything else.
    pub fn items(&self) -> Vec<Self> {
        self.array().map(|list| list.iter().map(Self).collect()).unwrap_or_default()
    }

    /// A part of an array: items `from` (included) to `to` (excluded).
    #[must_use]
    pub fn slice(&self, from: usize, to: usize) -> Self {
        match (self.array(), u32::try_from(from), u32::try_from(to)) {
            (Some(list), Ok(from), Ok(to)) => Self(list.slice(from, to).into()),
            _ => Self::undefined(),
        }
    }

    /// An array with the items of both.
    #[must_use]
    pub(crate) fn concat(self, more: Self) -> Self {
        match (self.array(), more.array()) {
            (Some(list), Some(more)) => Self(list.concat(more).into()),
            _ => Self::undefined(),
        }
    }

    /// A field of an object; `undefined` where there is none.
    pub fn field(&self, name: &str) -> Self {
        Self(Reflect::get(&self.0, &wasm_bindgen::intern(name).into()).unwrap_or(JsValue::UNDEFINED))
    }

    /// An object with the fields of this one, if it is an object, and more.
    #[must_use]
    pub(crate) fn with_fields(&self, more: Vec<(&'static str, Self)>) -> Self {
        let all = Self::object(more);
        match (self.0.dyn_ref::<Object>(), all.0.dyn_ref::<Object>()) {
            (Some(own), Some(more)) => Self(Object::assign(&Object::assign(&Object::new(), own), more).into()),
            _ => all,
        }
    }

    /// The fields of a plain object; `None` for anything else.
    pub(crate) fn entries(&self) -> Option<Vec<(Rc<str>, Self)>> {
        let object = self.0.dyn_ref::<Object>().filter(|_| !self.is_list() && !self.0.is_function())?;
        let entries = Self(Object::entries(object).into()).items();
        let entry = |entry: &Self| (entry.item(0).text().unwrap_or_default().into(), entry.item(1));
        Some(entries.iter().map(entry).collect())
    }

    /// A structured clone: nothing in it is shared with this one.
    ///
    /// # Errors
    /// `NotCloneable`.
    pub fn copy(&self) -> Result<Self> {
        structured_clone(&self.0).map(Self).map_err(|cause| {
            Error::new(ErrorCode::NotCloneable, "The value can't be stored: structured clone refuses it.")
                .caused_by(Self(cause))
        })
    }

    fn array(&self) -> Option<&Array> {
        // `dyn_ref` asks Array.isArray, which is right for arrays of other realms too.
        self.0.dyn_ref::<Array>()
    }
}

impl PartialEq for Value {
    /// Identity for objects, as `===`.
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self(JsValue::from_f64(number))
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self(JsValue::from_f64(number.into()))
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self(JsValue::from_bool(flag))
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self(JsValue::from_str(text))
    }
}

//! What is stored: a structured-clone value.
//!
//! [`Value`] is a message's body, which the rules carry and never look into, and what the rules' own records are made of. In a browser it
//! is a `JsValue` and crosses the boundary untouched; natively it is a value of the same shape, so that the rules can be tested without one.
//! Records are lists with a format number in front; positions are only ever added at the end.

#[cfg(target_arch = "wasm32")]
#[path = "body/js.rs"]
mod value;
#[cfg(not(target_arch = "wasm32"))]
#[path = "body/native.rs"]
mod value;

use std::rc::Rc;

pub use value::Value;

/// A value on its own, or an item of a list that came as one: such items become a list again in one call instead of one for each.
#[derive(Clone, Debug)]
pub struct Part(Inner);

/// So many pieces of lists become one list without a look at their items.
const STRETCHES: usize = 8;

#[derive(Clone, Debug)]
enum Inner {
    Own(Value),
    Item(Rc<Value>, usize),
}

impl Part {
    /// The item of `list` at `index`.
    pub fn item(list: &Rc<Value>, index: usize) -> Self {
        Self(Inner::Item(Rc::clone(list), index))
    }

    /// The value.
    pub fn value(&self) -> Value {
        match &self.0 {
            Inner::Own(value) => value.clone(),
            Inner::Item(list, index) => list.item(*index),
        }
    }

    /// A list of these.
    pub(crate) fn list<'a>(parts: impl ExactSizeIterator<Item = &'a Self> + Clone) -> Value {
        // Stretches of items that follow each other in one list, as long as there are few.
        let mut stretches: Vec<(&Rc<Value>, usize, usize)> = Vec::new();
        for part in parts.clone() {
            let Inner::Item(list, index) = &part.0 else { return Value::list(parts.map(Self::value).collect()) };
            match stretches.last_mut() {
                Some((same, _, end)) if index == end && Rc::ptr_eq(list, same) => *end += 1,
                _ => stretches.push((list, *index, index + 1)),
            }
            if stretches.len() > STRETCHES {
                return Value::list(parts.map(Self::value).collect());
            }
        }
        let slices = stretches.into_iter().map(|(list, from, to)| list.slice(from, to));
        slices.reduce(Value::concat).unwrap_or_else(|| Value::list(Vec::new()))
    }
}

impl From<Value> for Part {
    fn from(value: Value) -> Self {
        Self(Inner::Own(value))
    }
}

/// A body as it goes into a message.
#[derive(Clone, Debug)]
pub struct Body {
    /// The value; `undefined` when there is none.
    pub value: Part,
    /// How the value is packed: 0 as it is. Other numbers belong to the layer that packed it, which gets them back with the value.
    pub packing: u32,
    /// Estimated size in bytes. Large bodies get a record of their own.
    pub size: f64,
}

impl Body {
    /// No body.
    pub fn none() -> Self {
        Self { value: Value::undefined().into(), packing: 0, size: 0.0 }
    }

    /// A small body, as it is.
    pub fn small(value: Value) -> Self {
        Self { value: value.into(), packing: 0, size: 64.0 }
    }
}

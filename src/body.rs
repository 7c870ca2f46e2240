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

pub use value::Value;

/// A body as it goes into a message.
#[derive(Clone, Debug)]
pub struct Body {
    /// The value; `undefined` when there is none.
    pub value: Value,
    /// How the value is packed: 0 as it is. Other numbers belong to the layer that packed it, which gets them back with the value.
    pub packing: u32,
    /// Estimated size in bytes. Large bodies get a record of their own.
    pub size: f64,
}

impl Body {
    /// No body.
    pub fn none() -> Self {
        Self { value: Value::undefined(), packing: 0, size: 0.0 }
    }

    /// A small body, as it is.
    pub fn small(value: Value) -> Self {
        Self { value, packing: 0, size: 64.0 }
    }
}

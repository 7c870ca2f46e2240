//! Random bytes from `crypto.getRandomValues`, which every context has, on plain http too.

use std::cell::RefCell;

use js_sys::Uint8Array;
use wasm_bindgen::prelude::*;

use crate::error::{Error, ErrorCode, Result};
use crate::ids::Ids;

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_namespace = crypto, js_name = getRandomValues, catch)]
    fn get_random_values(bytes: &Uint8Array) -> std::result::Result<JsValue, JsValue>;
}

/// So many bytes are asked for at once.
const POOL: usize = 4_096;

/// Random bytes, asked for in large pieces.
#[derive(Debug)]
pub(crate) struct WebIds {
    pool: RefCell<Vec<u8>>,
}

impl WebIds {
    /// # Errors
    /// `NotSupported`: the context has no source of random bytes.
    pub(crate) fn new() -> Result<Self> {
        let missing = || {
            Error::new(
                ErrorCode::NotSupported,
                "This context has no crypto.getRandomValues, so no unique ids can be made.",
            )
        };
        Ok(Self { pool: RefCell::new(random(POOL).ok_or_else(missing)?) })
    }
}

impl Ids for WebIds {
    fn fill(&self, bytes: &mut [u8]) {
        let mut pool = self.pool.borrow_mut();
        if pool.len() < bytes.len() {
            // It worked when this was made, so it works now.
            *pool = random(POOL.max(bytes.len())).unwrap_or_default();
        }
        let rest = pool.len().saturating_sub(bytes.len());
        for (byte, random) in bytes.iter_mut().zip(pool.drain(rest..)) {
            *byte = random;
        }
    }
}

fn random(length: usize) -> Option<Vec<u8>> {
    let bytes = Uint8Array::new_with_length(u32::try_from(length).ok()?);
    get_random_values(&bytes).ok()?;
    Some(bytes.to_vec())
}

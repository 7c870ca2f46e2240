//! Reading from an object store or an index: the same questions, two types.

use idb::{CursorDirection, Index, ObjectStore, Query};
use wasm_bindgen::JsValue;
use web_sys::{IdbIndex, IdbObjectStore, IdbRequest};

use super::error::{from_exception, from_idb};
use super::sys;
use crate::error::Result;

pub(super) enum Rows {
    Store(ObjectStore),
    Index(Index),
}

impl Rows {
    pub(super) fn get_all(&self, query: Option<Query>, limit: Option<u32>) -> Result<IdbRequest> {
        match self {
            Self::Store(store) => store.get_all(query, limit).map(Into::into),
            Self::Index(index) => index.get_all(query, limit).map(Into::into),
        }
        .map_err(from_idb)
    }

    pub(super) fn get_all_keys(&self, query: Option<Query>, limit: Option<u32>) -> Result<IdbRequest> {
        match self {
            Self::Store(store) => store.get_all_keys(query, limit).map(Into::into),
            Self::Index(index) => index.get_all_keys(query, limit).map(Into::into),
        }
        .map_err(from_idb)
    }

    pub(super) fn count(&self, query: Option<Query>) -> Result<IdbRequest> {
        match self {
            Self::Store(store) => store.count(query).map(Into::into),
            Self::Index(index) => index.count(query).map(Into::into),
        }
        .map_err(from_idb)
    }

    /// The last rows, last first, in one request; `None` where the browser can't.
    pub(super) fn get_all_backward(&self, query: Option<&Query>, limit: u32) -> Option<Result<IdbRequest>> {
        let source: JsValue = match self {
            Self::Store(store) => IdbObjectStore::from(store.clone()).into(),
            Self::Index(index) => IdbIndex::from(index.clone()).into(),
        };
        let query = query.map_or(JsValue::NULL, |query| query.clone().into());
        sys::get_all_backward(&source, &query, limit).map(|request| request.map_err(from_exception))
    }

    /// A walk from the last row to the first.
    pub(super) fn open_cursor_backward(&self, query: Option<Query>) -> Result<IdbRequest> {
        let direction = Some(CursorDirection::Prev);
        match self {
            Self::Store(store) => store.open_cursor(query, direction).map(Into::into),
            Self::Index(index) => index.open_cursor(query, direction).map(Into::into),
        }
        .map_err(from_idb)
    }
}

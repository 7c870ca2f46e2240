//! What neither `idb` nor web-sys binds, or binds at the cost of a conversion per call.

use js_sys::{Array, Object, Reflect};
use wasm_bindgen::prelude::*;
use web_sys::{IdbDatabase, IdbTransaction};

use super::super::{Durability, Mode};

#[wasm_bindgen]
extern "C" {
    /// An `IDBDatabase`, for the options of `transaction`.
    type Transactional;

    #[wasm_bindgen(method, catch)]
    fn transaction(
        this: &Transactional,
        scope: &Array,
        mode: &JsValue,
        options: &JsValue,
    ) -> Result<IdbTransaction, JsValue>;

    /// An `IDBObjectStore` or `IDBIndex`, for reading backwards.
    type Readable;

    #[wasm_bindgen(method, catch, js_name = getAllRecords)]
    fn get_all_records(this: &Readable, options: &Object) -> Result<web_sys::IdbRequest, JsValue>;

    /// An `IDBRecord`.
    type Record;

    #[wasm_bindgen(method, getter)]
    fn value(this: &Record) -> JsValue;

    #[wasm_bindgen(js_name = Number)]
    fn to_u32(value: &JsValue) -> u32;
}

/// The arguments of `IDBDatabase.transaction`, made once per connection.
#[derive(Debug)]
pub(super) struct TransactionArguments {
    read_only: JsValue,
    read_write: JsValue,
    options: JsValue,
    relaxed: JsValue,
}

impl TransactionArguments {
    pub(super) fn new(durability: Durability) -> Self {
        let options = |durability: Durability| {
            let options = Object::new();
            let durability = match durability {
                Durability::Strict => "strict",
                Durability::Relaxed => "relaxed",
            };
            set(&options, "durability", &durability.into());
            options.into()
        };
        Self {
            read_only: "readonly".into(),
            read_write: "readwrite".into(),
            options: options(durability),
            relaxed: options(Durability::Relaxed),
        }
    }

    pub(super) fn begin(&self, database: &IdbDatabase, scope: &Array, mode: Mode) -> Result<IdbTransaction, JsValue> {
        let (mode, options) = match mode {
            Mode::ReadOnly => (&self.read_only, &self.options),
            Mode::ReadWrite => (&self.read_write, &self.options),
            Mode::Relaxed => (&self.read_write, &self.relaxed),
        };
        database.unchecked_ref::<Transactional>().transaction(scope, mode, options)
    }
}

/// `getAllRecords` in descending order, where it exists.
pub(super) fn get_all_backward(
    source: &JsValue,
    query: &JsValue,
    limit: u32,
) -> Option<Result<web_sys::IdbRequest, JsValue>> {
    if !has(source, "getAllRecords") {
        return None;
    }
    let options = Object::new();
    set(&options, "query", query);
    set(&options, "count", &limit.into());
    set(&options, "direction", &"prev".into());
    Some(source.unchecked_ref::<Readable>().get_all_records(&options))
}

/// The value of an item of what [`get_all_backward`] gives.
pub(super) fn record_value(record: JsValue) -> JsValue {
    record.unchecked_into::<Record>().value()
}

/// A count as IndexedDB gives it.
pub(super) fn count(value: &JsValue) -> u64 {
    to_u32(value).into()
}

pub(super) fn has(object: &JsValue, name: &str) -> bool {
    Reflect::has(object, &name.into()).unwrap_or(false)
}

/// Whether a commit asked for outside of a success handler can lock the database for everybody: in WebKit, if the worker is terminated then.
pub(super) fn commits_late() -> bool {
    let global = js_sys::global();
    let agent = Reflect::get(&global, &"navigator".into())
        .and_then(|navigator| Reflect::get(&navigator, &"userAgent".into()))
        .ok()
        .and_then(|agent| agent.as_string())
        .unwrap_or_default();
    has(&global, "WorkerGlobalScope") && agent.contains("AppleWebKit") && !agent.contains("Chrome")
}

fn set(object: &Object, name: &str, value: &JsValue) {
    // An ordinary object takes every field.
    let _ = Reflect::set(object, &name.into(), value);
}

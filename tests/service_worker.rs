//! The conformance suite in a service worker, on a real IndexedDB.
#![cfg(target_arch = "wasm32")]

mod conformance;

wasm_bindgen_test::wasm_bindgen_test_configure!(run_in_service_worker);

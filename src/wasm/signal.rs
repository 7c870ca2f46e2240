//! The caller's `AbortSignal`.

use std::rc::Rc;

use wasm_bindgen::prelude::*;
use web_sys::AbortSignal;

use crate::commit::Cancelled;

/// A signal that is listened to as long as this lives.
struct Listening {
    signal: AbortSignal,
    on_abort: Closure<dyn Fn()>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        // It throws nothing: the listener is one that was added.
        let _ = self.signal.remove_event_listener_with_callback("abort", self.on_abort.as_ref().unchecked_ref());
    }
}

/// What tells whether the caller has given up. `nudge` is called when he does: whoever waits looks whether he is still wanted.
pub(super) fn cancelled(signal: Option<AbortSignal>, nudge: impl Fn() + 'static) -> Option<Cancelled> {
    let signal = signal?;
    let on_abort = Closure::new(nudge);
    let _ = signal.add_event_listener_with_callback("abort", on_abort.as_ref().unchecked_ref());
    let listening = Listening { signal, on_abort };
    Some(Rc::new(move || listening.signal.aborted()))
}

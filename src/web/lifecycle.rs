//! The life of a page: put away for the way back, frozen in the background, and there again.

use js_sys::Reflect;
use wasm_bindgen::prelude::*;
use web_sys::{Event, EventTarget};

/// Listens as long as it lives.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    window: EventTarget,
    document: EventTarget,
    on_sleep: Closure<dyn Fn(Event)>,
    on_return: Closure<dyn Fn(Event)>,
    on_wake: Closure<dyn Fn(Event)>,
}

impl Lifecycle {
    /// `None` outside of a window: a worker is told of nothing. `on_wake`: the page was awake, but its timers may have been late.
    pub(crate) fn new(
        on_sleep: impl Fn() + 'static,
        on_return: impl Fn() + 'static,
        on_wake: impl Fn() + 'static,
    ) -> Option<Self> {
        let window = js_sys::global();
        let document = Reflect::get(&window, &"document".into()).ok().filter(JsValue::is_object)?;
        let life = Self {
            window: window.unchecked_into(),
            document: document.unchecked_into(),
            on_sleep: Closure::new(move |event: Event| {
                // A page that goes for good lets go of everything by itself.
                if event.type_() == "freeze" || is_persisted(&event) {
                    on_sleep();
                }
            }),
            on_return: Closure::new(move |_| on_return()),
            on_wake: Closure::new(move |_| on_wake()),
        };
        life.each(|target, event, listener| target.add_event_listener_with_callback(event, listener));
        Some(life)
    }

    /// `freeze` and `resume` are Chromium's. The order in which the four come differs between browsers.
    fn each(&self, change: impl Fn(&EventTarget, &str, &js_sys::Function) -> Result<(), JsValue>) {
        let (sleep, back) = (self.on_sleep.as_ref().unchecked_ref(), self.on_return.as_ref().unchecked_ref());
        let wake = self.on_wake.as_ref().unchecked_ref();
        for (target, event, listener) in [
            (&self.window, "pagehide", sleep),
            (&self.document, "freeze", sleep),
            (&self.document, "resume", back),
            (&self.window, "pageshow", back),
            (&self.document, "visibilitychange", wake),
            (&self.window, "online", wake),
        ] {
            // It throws nothing.
            let _ = change(target, event, listener);
        }
    }
}

impl Drop for Lifecycle {
    fn drop(&mut self) {
        self.each(|target, event, listener| target.remove_event_listener_with_callback(event, listener));
    }
}

fn is_persisted(event: &Event) -> bool {
    Reflect::get(event, &"persisted".into()).is_ok_and(|persisted| persisted.is_truthy())
}

/// Whether the context is a page that nobody sees.
pub(crate) fn is_hidden() -> bool {
    let document = Reflect::get(&js_sys::global(), &"document".into());
    let state = document.and_then(|document| Reflect::get(&document, &"visibilityState".into()));
    state.is_ok_and(|state| state == "hidden")
}

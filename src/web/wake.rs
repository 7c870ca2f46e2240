//! Hints between the contexts of an origin, by a BroadcastChannel. What they say is in the database; a hint that is lost costs time only.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use gloo_timers::callback::Timeout;
use wasm_bindgen::prelude::*;
use web_sys::{BroadcastChannel, MessageEvent};

use crate::notice::Notice;

/// What commits tell within so many milliseconds is told at once: a post costs as much as a write.
const TOGETHER: u32 = 4;

/// A channel that is closed when this is dropped. Does nothing where there are no channels.
pub(crate) struct Wake {
    line: Rc<Line>,
    _on_message: Closure<dyn FnMut(MessageEvent)>,
}

struct Line {
    channel: Option<BroadcastChannel>,
    to_js: fn(&Notice) -> JsValue,
    waiting: RefCell<Option<(Notice, Timeout)>>,
}

impl fmt::Debug for Wake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wake")
    }
}

impl Wake {
    pub(crate) fn new(
        name: &str,
        to_js: fn(&Notice) -> JsValue,
        mut on_message: impl FnMut(JsValue) + 'static,
    ) -> Self {
        let channel = BroadcastChannel::new(&format!("pocket-broker:{name}")).ok();
        let on_message = Closure::new(move |event: MessageEvent| on_message(event.data()));
        if let Some(channel) = &channel {
            channel.set_onmessage(Some(on_message.as_ref().unchecked_ref()));
        }
        Self { line: Rc::new(Line { channel, to_js, waiting: RefCell::default() }), _on_message: on_message }
    }

    pub(crate) fn notify(&self, notice: &Notice) {
        if notice.released || notice.role.is_some() {
            // Somebody waits for it, and it is alone in its notice.
            self.line.send(notice);
            return;
        }
        self.line.add(notice);
        // This context may be gone in a moment: the others are to know what they have to wait for.
        if notice.due.is_some() || notice.hop {
            self.line.post();
        }
    }
}

impl Line {
    fn add(self: &Rc<Self>, notice: &Notice) {
        let mut waiting = self.waiting.borrow_mut();
        if let Some((others, _)) = &mut *waiting {
            others.merge(notice);
            return;
        }
        let line = Rc::clone(self);
        *waiting = Some((notice.clone(), Timeout::new(TOGETHER, move || line.post())));
    }

    fn post(&self) {
        if let Some((notice, _)) = self.waiting.take() {
            self.send(&notice);
        }
    }

    fn send(&self, notice: &Notice) {
        if let Some(channel) = &self.channel {
            // A closed channel has nobody to tell.
            let _ = channel.post_message(&(self.to_js)(notice));
        }
    }
}

impl Drop for Wake {
    fn drop(&mut self) {
        self.line.post();
        if let Some(channel) = &self.line.channel {
            channel.set_onmessage(None);
            channel.close();
        }
    }
}

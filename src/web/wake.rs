//! Hints between the contexts of an origin, by a BroadcastChannel. What they say is in the database; a hint that is lost costs time only.

use std::fmt;

use wasm_bindgen::prelude::*;
use web_sys::{BroadcastChannel, MessageEvent};

/// A channel that is closed when this is dropped. Does nothing where there are no channels.
pub(crate) struct Wake {
    channel: Option<BroadcastChannel>,
    _on_message: Closure<dyn FnMut(MessageEvent)>,
}

impl fmt::Debug for Wake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wake")
    }
}

impl Wake {
    pub(crate) fn new(name: &str, mut on_message: impl FnMut(JsValue) + 'static) -> Self {
        let channel = BroadcastChannel::new(&format!("pocket-broker:{name}")).ok();
        let on_message = Closure::new(move |event: MessageEvent| on_message(event.data()));
        if let Some(channel) = &channel {
            channel.set_onmessage(Some(on_message.as_ref().unchecked_ref()));
        }
        Self { channel, _on_message: on_message }
    }

    pub(crate) fn notify(&self, message: &JsValue) {
        if let Some(channel) = &self.channel {
            // A closed channel has nobody to tell.
            let _ = channel.post_message(message);
        }
    }
}

impl Drop for Wake {
    fn drop(&mut self) {
        if let Some(channel) = &self.channel {
            channel.set_onmessage(None);
            channel.close();
        }
    }
}

//! A delayed message as the rules know it, and as a store does.

use std::rc::Rc;

use uuid::Uuid;

use super::store::DelayedMessage;
use crate::delayed::{Delayed, Place, To};
use crate::ids::{Decoded, text};
use crate::lane::{LOOSE, LaneKey};

const MESSAGE_TYPE: &str = "messageType";
const KEY: &str = "key";
const PRIORITY: &str = "priority";
/// "false": the order of the message does not matter.
const ORDERED: &str = "ordered";
const DEDUPE_ID: &str = "dedupeId";

impl From<Delayed> for DelayedMessage {
    fn from(delayed: Delayed) -> Self {
        let mut properties = vec![(MESSAGE_TYPE, Rc::clone(&delayed.message_type))];
        let destination = match &delayed.to {
            To::Conversation(handle) => Rc::clone(handle),
            To::Lane { queue, key, priority } => {
                properties.push((PRIORITY, priority.to_string().into()));
                properties.extend(key.text().map(|key| (KEY, Rc::clone(key))));
                properties.extend(key.is_loose().then(|| (ORDERED, "false".into())));
                Rc::clone(queue)
            }
        };
        properties.extend(delayed.seen.as_ref().map(|id| (DEDUPE_ID, Rc::clone(id))));
        Self {
            message_id: text(delayed.id),
            destination,
            time: delayed.time,
            // In a list, those that have none are undefined.
            headers: delayed.headers.filter(|headers| !headers.value().is_undefined()),
            properties: properties.into_iter().map(|(name, value)| (name.into(), value)).collect(),
            body: delayed.body,
            number_of_retries: delayed.waits,
        }
    }
}

impl DelayedMessage {
    /// A property by its name: `messageType`; of a message for a queue `priority`, too, and `key`, `ordered` and `dedupeId` if it has them.
    pub fn property(&self, name: &str) -> Option<&Rc<str>> {
        self.properties.iter().find(|(other, _)| &**other == name).map(|(_, value)| value)
    }

    /// As the rules know it; or what is wrong with it.
    pub(super) fn read(&self) -> Result<Delayed, &'static str> {
        let id = Uuid::try_parse(&self.message_id).map_err(|_| "its `messageId` is no UUID")?;
        if !self.time.is_finite() {
            return Err("its `time` is no instant");
        }
        let message_type = self.property(MESSAGE_TYPE).ok_or("its property `messageType` is missing")?;
        let priority = self.property(PRIORITY).map(|priority| priority.parse::<u32>());
        let is_handle = Decoded::parse(&self.destination).is_some_and(|decoded| !decoded.is_group);
        let to = match priority {
            None if is_handle => To::Conversation(Rc::clone(&self.destination)),
            None => return Err("its property `priority` is missing, or its `destination` is no conversation's handle"),
            Some(Ok(priority @ 1..=10)) => {
                let key = match (self.property(KEY), self.property(ORDERED)) {
                    (Some(key), _) => LaneKey::Text(Rc::clone(key)),
                    (None, Some(_)) => LaneKey::Number(id.as_bytes().last().copied().map_or(0, u32::from) % LOOSE),
                    (None, None) => LaneKey::Number(LOOSE),
                };
                To::Lane { queue: Rc::clone(&self.destination), key, priority }
            }
            Some(_) => return Err("its property `priority` is no number from 1 to 10"),
        };
        Ok(Delayed {
            place: Place { at: self.time, stamp: 0 },
            to,
            id,
            is_named: false,
            message_type: Rc::clone(message_type),
            headers: self.headers.clone(),
            body: self.body.clone(),
            time: self.time,
            waits: self.number_of_retries,
            seen: self.property(DEDUPE_ID).cloned(),
            hop: None,
        })
    }
}

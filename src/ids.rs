//! Identifiers: what a handle, a group id and a message id are made of.

use std::fmt;
use std::rc::Rc;

use uuid::{Builder, Uuid};

/// Where random bytes come from.
pub trait Ids {
    /// Fills `bytes` with random bytes that nobody can guess.
    fn fill(&self, bytes: &mut [u8]);

    /// A random UUID (version 4).
    fn uuid(&self) -> Uuid {
        let mut bytes = [0; 16];
        self.fill(&mut bytes);
        Builder::from_random_bytes(bytes).into_uuid()
    }

    /// The random part of a conversation's handles.
    fn bits(&self) -> Bits {
        let mut bytes = [0; 16];
        self.fill(&mut bytes);
        Bits(u128::from_be_bytes(bytes) & BITS_MASK)
    }
}

const BITS_MASK: u128 = (1 << 74) - 1;
const HALF: u32 = 37;
const HALF_MASK: u128 = (1 << HALF) - 1;
/// Conversation numbers have 46 bits.
const NUMBER_MASK: u128 = (1 << 46) - 1;

/// The 74 random bits that a conversation's handles and default group ids carry: who guesses a number does not have a handle.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Bits(u128);

impl Bits {
    /// As two numbers that a JavaScript number holds exactly.
    pub fn halves(self) -> (u64, u64) {
        let half = |bits: u128| u64::try_from(bits & HALF_MASK).unwrap_or_default();
        (half(self.0 >> HALF), half(self.0))
    }

    /// From two halves.
    pub fn from_halves(high: u64, low: u64) -> Self {
        Self(((u128::from(high) & HALF_MASK) << HALF) | (u128::from(low) & HALF_MASK))
    }
}

impl fmt::Debug for Bits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bits(…)")
    }
}

/// Which end of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// The end that began the dialog.
    Initiator,
    /// The end that the dialog was begun with.
    Target,
}

impl Role {
    /// The other end.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Initiator => Self::Target,
            Self::Target => Self::Initiator,
        }
    }
}

/// A side of a conversation, by number. Rows, turns and memberships are keyed by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SideId {
    /// The conversation's number.
    pub conversation: u64,
    /// Which of its ends.
    pub role: Role,
}

impl SideId {
    /// The number that stands in keys: 2 × conversation, plus 1 for the target.
    pub fn number(self) -> u64 {
        self.conversation * 2 + u64::from(self.role == Role::Target)
    }

    /// The other end.
    #[must_use]
    pub fn far(self) -> Self {
        Self { role: self.role.other(), ..self }
    }

    /// From the number that stands in keys.
    pub fn from_number(number: u64) -> Self {
        let role = if number.is_multiple_of(2) { Role::Initiator } else { Role::Target };
        Self { conversation: number / 2, role }
    }
}

/// What a handle or a default group id says: it is decoded, not looked up, and then compared with the conversation's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// Whose it is.
    pub side: SideId,
    /// Whether it is the id of the side's own group rather than its handle.
    pub is_group: bool,
    /// To be compared with the record's.
    pub bits: Bits,
}

impl Decoded {
    /// Reads a handle or group id; `None` when it is neither.
    pub fn parse(text: &str) -> Option<Self> {
        let id = Uuid::try_parse(text).ok().filter(|id| text.len() == 36 && id.get_version_num() == 8)?.as_u128();
        let head = id >> 80;
        let side = SideId {
            conversation: u64::try_from(head & NUMBER_MASK).ok()?,
            role: if head >> 46 & 1 == 0 { Role::Initiator } else { Role::Target },
        };
        // Version and variant lie inside the random part: twelve bits before the variant, 62 after it.
        let bits = ((id >> 64 & 0xfff) << 62) | (id & ((1 << 62) - 1));
        Some(Self { side, is_group: head >> 47 & 1 == 1, bits: Bits(bits) })
    }

    /// The UUID (version 8).
    pub fn uuid(self) -> Uuid {
        let tag = u128::from(self.side.role == Role::Target) | (u128::from(self.is_group) << 1);
        let head = (tag << 46) | (u128::from(self.side.conversation) & NUMBER_MASK);
        let id = (head << 80) | ((self.bits.0 >> 62) << 64) | (self.bits.0 & ((1 << 62) - 1));
        Builder::from_custom_bytes(id.to_be_bytes()).into_uuid()
    }

    /// As text, lower case with hyphens.
    pub fn text(self) -> Rc<str> {
        text(self.uuid())
    }
}

/// Whether a text is a UUID, written with hyphens.
pub(crate) fn is_id(text: &str) -> bool {
    text.len() == 36 && Uuid::try_parse(text).is_ok()
}

/// A UUID as text, lower case with hyphens.
pub fn text(id: Uuid) -> Rc<str> {
    let mut buffer = Uuid::encode_buffer();
    Rc::from(&*id.hyphenated().encode_lower(&mut buffer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_says_what_it_was_made_of() {
        for (conversation, role, is_group) in [
            (0, Role::Initiator, false),
            (1, Role::Target, false),
            ((1 << 46) - 1, Role::Target, true),
            (77, Role::Initiator, true),
        ] {
            let made = Decoded { side: SideId { conversation, role }, is_group, bits: Bits(BITS_MASK / 3) };
            assert_eq!(Decoded::parse(&made.text()), Some(made));
            let (high, low) = made.bits.halves();
            assert_eq!(Bits::from_halves(high, low), made.bits);
        }
    }

    #[test]
    fn other_texts_are_no_handles() {
        for text in ["", "x", "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "urn:uuid:6ba7b810-9dad-81d1-80b4-00c04fd430c8"] {
            assert_eq!(Decoded::parse(text), None, "{text}");
        }
    }
}

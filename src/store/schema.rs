//! The object stores, their keys and their one index.
//!
//! The steps are numbered and append-only: a step that has been released never changes. New queues, services and conversations never
//! need a step.

/// The version that this build writes. IndexedDB's version number is the number of the last step.
pub const VERSION: u32 = 1;

/// An object store of the broker's database.
///
/// | store | key | value |
/// |---|---|---|
/// | journal | number, given by the store | a commit; reserved, not written yet |
/// | meta | name, or list of name and what it is about | birth, blocks of numbers, sweeps, leases |
/// | definitions | [kind, name] | message type, contract, queue, service, priority |
/// | queues | queue number | flags and counters (`queue.rs`) |
/// | conversations | conversation number | both sides of a conversation (`conversation.rs`) |
/// | members | ["g", group, side], ["s", group], ["l", service, key, priority], ["r", from, to, contract, reuse], ["d", side, time, last stamp, count], ["i", message id], ["o", side, stamp], ["h", message id] | what names a conversation, or a delayed message |
/// | messages | [side, class, last sequence] | a run of messages (`message.rs`) |
/// | bodies | [side, class, sequence] | one large body |
/// | turns | [queue, kind, …] | who has something to receive or to transmit (`turn.rs`) |
/// | due | [time, stamp, kind, number] | what is to happen at a time |
/// | delayed | [time, last stamp, count] with the side if there is one, ["hop", stamp], ["gone", message id] | a run of delayed messages (`delayed/run.rs`); one that is for another store, or was in it (`delayed/custom/hop.rs`, `delayed/custom/memory.rs`) |
/// | archive | [archived at, stamp, part, rows] | a run that END copied |
/// | seen | [kind, queue, id] | ids not to be taken twice (`seen.rs`) |
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StoreName {
    /// Commits, one record each.
    Journal,
    /// Birth, number blocks, sweeps, leases.
    Meta,
    /// What `define` made.
    Definitions,
    /// Flags and counters.
    Queues,
    /// Both sides of each conversation.
    Conversations,
    /// Names that lead to conversations.
    Members,
    /// Runs of messages.
    Messages,
    /// Large bodies.
    Bodies,
    /// Who has something to receive or to transmit.
    Turns,
    /// What is to happen at a time.
    Due,
    /// Delayed messages.
    Delayed,
    /// What END copied.
    Archive,
    /// Ids not to be taken twice.
    Seen,
}

impl StoreName {
    /// Every store.
    pub const ALL: [Self; 13] = [
        Self::Journal,
        Self::Meta,
        Self::Definitions,
        Self::Queues,
        Self::Conversations,
        Self::Members,
        Self::Messages,
        Self::Bodies,
        Self::Turns,
        Self::Due,
        Self::Delayed,
        Self::Archive,
        Self::Seen,
    ];

    /// The name in IndexedDB.
    pub fn name(self) -> &'static str {
        match self {
            Self::Journal => "journal",
            Self::Meta => "meta",
            Self::Definitions => "definitions",
            Self::Queues => "queues",
            Self::Conversations => "conversations",
            Self::Members => "members",
            Self::Messages => "messages",
            Self::Bodies => "bodies",
            Self::Turns => "turns",
            Self::Due => "due",
            Self::Delayed => "delayed",
            Self::Archive => "archive",
            Self::Seen => "seen",
        }
    }

    /// Whether IndexedDB gives the keys (1, 2, 3 …).
    pub fn gives_keys(self) -> bool {
        self == Self::Journal
    }
}

/// The index `order` of the store `messages`: key path ["s", "o"], that is [service number, order of the first row].
/// A run without a field "s" is not in it.
pub const ORDER_INDEX: &str = "order";
/// The key path of [`ORDER_INDEX`].
pub const ORDER_INDEX_PATH: [&str; 2] = ["s", "o"];

//! Definitions: message types, contracts, queues, services and priorities, as the application gives them.
//!
//! `CREATE MESSAGE TYPE`, `CREATE CONTRACT`, `CREATE QUEUE`, `CREATE SERVICE` and `CREATE BROKER PRIORITY` in one idempotent call.

mod alter;
mod catalog;
mod define;
mod drop;
mod load;
mod names;

use std::rc::Rc;

use serde::Deserialize;

use crate::ids::Role;
pub(crate) use alter::{alter_queue, alter_service, switch_off};
pub(crate) use catalog::{Catalog, Contract, MessageType, QueueDefinition, ServiceDefinition};
pub(crate) use define::define;
pub(crate) use drop::{drop_queue, drop_service};
pub(crate) use load::{FIRST_QUEUE, birth, load};
pub use names::{MAX_NAME, check_name};

/// The message type and the contract that are always there.
pub const DEFAULT: &str = "DEFAULT";
/// The queue that is always there.
pub const ERROR_QUEUE: &str = "error";

/// What [`crate::Broker::define`] takes. Lists keep the application's order; names are unique within a list.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Definitions {
    /// Name and what a body of this type must be.
    pub message_types: Vec<(String, Validation)>,
    /// Name and entries: a message type and who sends it.
    pub contracts: Vec<(String, Vec<(String, SentBy)>)>,
    /// Name and options.
    pub queues: Vec<(String, QueueOptions)>,
    /// Name and options.
    pub services: Vec<(String, ServiceOptions)>,
    /// Name and rule.
    pub priorities: Vec<(String, PriorityRule)>,
}

/// What a body must be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Validation {
    /// Anything.
    #[default]
    #[serde(rename = "N")]
    None,
    /// No body.
    #[serde(rename = "E")]
    Empty,
    /// What survives JSON unchanged.
    #[serde(rename = "J")]
    Json,
    /// What a Standard Schema validator accepts.
    #[serde(rename = "S")]
    Schema,
}

impl Validation {
    /// The letter in a queue row's column `validation`.
    pub fn letter(self) -> &'static str {
        match self {
            Self::None => "N",
            Self::Empty => "E",
            Self::Json => "J",
            Self::Schema => "S",
        }
    }

    fn from_letter(letter: &str) -> Option<Self> {
        [Self::None, Self::Empty, Self::Json, Self::Schema].into_iter().find(|validation| validation.letter() == letter)
    }
}

/// `SENT BY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SentBy {
    /// Only the side that began the dialog.
    Initiator,
    /// Only the other side.
    Target,
    /// Both.
    Any,
}

impl SentBy {
    /// As in the definitions.
    pub fn name(self) -> &'static str {
        match self {
            Self::Initiator => "initiator",
            Self::Target => "target",
            Self::Any => "any",
        }
    }

    /// Whether a side of a conversation may send it.
    pub(crate) fn lets(self, role: Role) -> bool {
        match self {
            Self::Initiator => role == Role::Initiator,
            Self::Target => role == Role::Target,
            Self::Any => true,
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        [Self::Initiator, Self::Target, Self::Any].into_iter().find(|sent_by| sent_by.name() == name)
    }
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// On.
    On,
    /// Off.
    Off,
}

/// Options of a queue. What is absent is left as it is, or takes its default when the queue is created.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct QueueOptions {
    /// `STATUS`. Default on. `define` sets it only when it creates the queue.
    pub status: Option<Status>,
    /// `RETENTION`. Default false. Bounds go with it: those that are not given with it are none.
    pub retention: Option<bool>,
    /// The oldest retained rows beyond this many go. Default: no bound.
    pub max_rows: Option<f64>,
    /// Retained rows older than this many milliseconds go. Default: no bound.
    pub max_age: Option<f64>,
    /// `POISON_MESSAGE_HANDLING`. Default true.
    pub poison_message_handling: Option<bool>,
    /// Whether every END archives. Default false.
    pub archive: Option<bool>,
    /// `ACTIVATION (STATUS)`. Default on.
    pub activation: Option<Status>,
    /// What `enqueue` takes. Default anything.
    pub body: Option<Validation>,
}

/// Options of a service.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ServiceOptions {
    /// The queue's name.
    pub queue: Option<String>,
    /// The contracts that it accepts as a target.
    pub contracts: Vec<String>,
}

/// `ALTER SERVICE`: what is absent stays.
#[derive(Clone, Debug, Default)]
pub struct ServiceChange {
    /// The queue that it goes to, with all that it has.
    pub queue: Option<Rc<str>>,
    /// Contracts that it accepts as a target from now on.
    pub add_contracts: Vec<Rc<str>>,
    /// Contracts that it does not accept any more. Conversations that are under way go on.
    pub drop_contracts: Vec<Rc<str>>,
}

/// `CREATE BROKER PRIORITY`: an absent name matches any.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PriorityRule {
    /// The conversation's contract.
    #[serde(default)]
    pub contract: Option<Rc<str>>,
    /// The service of the endpoint that is rated.
    #[serde(default)]
    pub local_service: Option<Rc<str>>,
    /// The service at its other end.
    #[serde(default)]
    pub remote_service: Option<Rc<str>>,
    /// 1 to 10, higher first.
    pub level: f64,
}

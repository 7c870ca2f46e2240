//! What travels between brokers, in version 1.

use std::rc::Rc;

use uuid::Uuid;

use crate::body::{Body, Part};

/// A message on its way.
#[derive(Clone, Debug)]
pub struct MessageEnvelope {
    /// The same at every attempt.
    pub message_id: Uuid,
    /// Shared by both ends.
    pub conversation_id: Rc<str>,
    /// The initiator sent it.
    pub from_initiator: bool,
    /// From 0, per conversation and direction.
    pub sequence: u64,
    /// The sender.
    pub from_service: Rc<str>,
    /// Its broker.
    pub from_broker: Rc<str>,
    /// The receiver.
    pub to_service: Rc<str>,
    /// Its broker; `None`: not known yet.
    pub to_broker: Option<Rc<str>>,
    /// The contract.
    pub contract: Rc<str>,
    /// The type of the message, or of a system message.
    pub message_type: Rc<str>,
    /// Milliseconds that are left to the conversation; `None`: no limit.
    pub lifetime: Option<f64>,
    /// A plain object of texts.
    pub headers: Option<Part>,
    /// The body.
    pub body: Body,
}

/// Nothing is missing up to a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acknowledgement {
    /// The conversation.
    pub conversation_id: Rc<str>,
    /// Whose messages are acknowledged.
    pub from_initiator: bool,
    /// The highest number below which nothing is missing.
    pub sequence: u64,
    /// Who acknowledges.
    pub from_broker: Rc<str>,
    /// To whom.
    pub to_broker: Rc<str>,
}

//! Envelopes as they come: anything may be in them. What is not exactly an envelope is refused by name.

use std::fmt;
use std::rc::Rc;

use num_traits::ToPrimitive;
use uuid::Uuid;

use super::{Acknowledgement, MessageEnvelope};
use crate::body::{Body, Part, Value};
use crate::definitions::check_name;
use crate::ids::{is_id, text};
use crate::message::{count, system};
use crate::record::float;

/// The longest body, headers included, in bytes as they are measured here.
pub(crate) const MOST_BYTES: f64 = 4_194_304.0;
/// The longest lifetime that a conversation can have left, in milliseconds.
const MOST_LIFETIME: f64 = 2_147_483_647_000.0;
/// The largest whole number that JSON keeps.
const MOST: u64 = (1 << 53) - 1;
/// The longest description of an Error, in code points.
pub(super) const MOST_DESCRIPTION: usize = 3_000;
/// What the error queue writes into headers itself, and what it begins with.
const RESERVED: [&str; 4] = ["FailedQ", "TimeOfFailure", "ProcessingEndpoint", "Retries"];
const RESERVED_PREFIX: &str = "ExceptionInfo.";

/// An envelope as it came from outside.
#[derive(Clone, Debug)]
pub struct GivenEnvelope {
    /// A plain object with the fields of an envelope, or anything else. `body` is not looked at.
    pub fields: Value,
    /// What has become of the body.
    pub body: GivenBody,
}

/// The body of an envelope, as far as who hands it in could tell.
#[derive(Clone, Debug)]
pub enum GivenBody {
    /// Decoded and measured. It is what its message type asks for, as far as that is known here.
    Fine(Body),
    /// It, or another field, can't be read, and why.
    Malformed(Rc<str>),
    /// It takes so many bytes.
    TooLarge(f64),
    /// Its message type refuses it, and why.
    Invalid(Rc<str>),
    /// Nobody here can tell for now, and why.
    Unchecked(Rc<str>),
}

/// Why an envelope is refused: a name, and what is wrong with this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal(pub(crate) Rc<str>);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What is known of a body that is an envelope's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Fine,
    Invalid(Rc<str>),
    Unchecked(Rc<str>),
}

/// An envelope whose fields are what they have to be.
#[derive(Clone, Debug)]
pub(crate) enum Envelope {
    Message(Box<MessageEnvelope>, Verdict),
    Acknowledgement(Acknowledgement),
}

type Read<T> = Result<T, Refusal>;

pub(crate) fn refusal(name: &str, problem: impl fmt::Display) -> Refusal {
    Refusal(format!("{name}: {problem}").into())
}

fn malformed(field: &str, problem: &str) -> Refusal {
    refusal("malformed", format_args!("`{field}` {problem}"))
}

impl GivenEnvelope {
    pub(crate) fn read(&self) -> Read<Envelope> {
        let fields = &self.fields;
        if let GivenBody::Malformed(problem) = &self.body {
            return Err(refusal("malformed", problem));
        }
        if fields.entries().is_none() {
            return Err(refusal("malformed", "an envelope is an object"));
        }
        match fields.field("v").number() {
            Some(version) if version.total_cmp(&1.0).is_eq() => {}
            Some(version) => {
                return Err(refusal("unknown version", format_args!("`v` is {version}, and this broker reads 1")));
            }
            None => return Err(malformed("v", "must be 1")),
        }
        match fields.field("kind").text().as_deref() {
            Some("message") => self.message(),
            Some("acknowledgement") => Ok(Envelope::Acknowledgement(Acknowledgement {
                conversation_id: id(fields, "conversationId")?,
                from_initiator: flag(fields, "fromInitiator")?,
                sequence: sequence(fields)?,
                from_broker: id(fields, "fromBroker")?,
                to_broker: id(fields, "toBroker")?,
            })),
            Some(kind) => {
                let shown: String = kind.chars().take(32).collect();
                Err(refusal(
                    "unknown kind",
                    format_args!("`kind` is \"{shown}\", and this broker reads \"message\" and \"acknowledgement\""),
                ))
            }
            None => Err(malformed("kind", "must be \"message\" or \"acknowledgement\"")),
        }
    }

    fn message(&self) -> Read<Envelope> {
        let fields = &self.fields;
        let (headers, header_bytes) = headers(fields)?;
        let (mut body, verdict) = match &self.body {
            GivenBody::Fine(body) => (body.clone(), Verdict::Fine),
            GivenBody::Invalid(problem) => (Body::none(), Verdict::Invalid(Rc::clone(problem))),
            GivenBody::Unchecked(problem) => (Body::none(), Verdict::Unchecked(Rc::clone(problem))),
            GivenBody::TooLarge(size) => return Err(too_large(*size)),
            GivenBody::Malformed(problem) => return Err(refusal("malformed", problem)),
        };
        let to_broker = if fields.field("toBroker").is_null() { None } else { Some(id(fields, "toBroker")?) };
        let message_type = name(fields, "messageType", "message type")?;
        match &*message_type {
            system::DIALOG_TIMER => {
                return Err(refusal("dialog timer", "timers are of one side alone: no DialogTimer comes from outside"));
            }
            system::END_DIALOG if !body.value.value().is_undefined() => {
                return Err(malformed("body", "must be absent: an EndDialog has none"));
            }
            system::ERROR => body.value = error_body(&body.value.value())?.into(),
            _ => {}
        }
        // Both are kept, and both count.
        body.size += header_bytes;
        if !(0.0..=MOST_BYTES).contains(&body.size) {
            return Err(too_large(body.size));
        }
        let message = MessageEnvelope {
            message_id: Uuid::try_parse(&id(fields, "messageId")?).unwrap_or_default(),
            conversation_id: id(fields, "conversationId")?,
            from_initiator: flag(fields, "fromInitiator")?,
            sequence: sequence(fields)?,
            from_service: name(fields, "fromService", "service")?,
            from_broker: id(fields, "fromBroker")?,
            to_service: name(fields, "toService", "service")?,
            to_broker,
            contract: name(fields, "contract", "contract")?,
            message_type,
            lifetime: lifetime(fields)?,
            headers,
            body,
        };
        Ok(Envelope::Message(Box::new(message), verdict))
    }

    /// What can be shown of it, whatever it is: no body, and nothing long.
    pub(crate) fn shown(&self) -> Value {
        let fields = [
            "v",
            "kind",
            "messageId",
            "conversationId",
            "fromInitiator",
            "sequence",
            "fromService",
            "fromBroker",
            "toService",
            "toBroker",
            "contract",
            "messageType",
            "lifetime",
            "bodyEncoding",
        ];
        if self.fields.entries().is_none() {
            return Value::object(Vec::new());
        }
        let short = |name: &'static str| {
            let value = self.fields.field(name);
            let text = value.text().map(|text| text.chars().take(LONGEST_SHOWN).collect::<String>());
            let is_plain = value.is_null() || value.number().is_some() || value.boolean().is_some();
            text.map(|text| Value::from(&*text)).or(is_plain.then_some(value)).map(|value| (name, value))
        };
        Value::object(fields.into_iter().filter_map(short).collect())
    }
}

const LONGEST_SHOWN: usize = 256;

fn too_large(size: f64) -> Refusal {
    refusal(
        "too large",
        format_args!("it takes about {size} bytes, and {MOST_BYTES} are the most that come from outside"),
    )
}

fn name(fields: &Value, field: &'static str, what: &str) -> Read<Rc<str>> {
    let Some(name) = fields.field(field).text() else { return Err(malformed(field, "must be a text")) };
    match check_name(what, &name) {
        Ok(()) => Ok(name.into()),
        Err(problem) => Err(malformed(field, &format!("is no name. {problem}"))),
    }
}

fn id(fields: &Value, field: &'static str) -> Read<Rc<str>> {
    let given = fields.field(field).text().filter(|given| is_id(given));
    let id = given.and_then(|given| Uuid::try_parse(&given).ok());
    id.map(text).ok_or_else(|| malformed(field, "must be a UUID"))
}

fn flag(fields: &Value, field: &'static str) -> Read<bool> {
    fields.field(field).boolean().ok_or_else(|| malformed(field, "must be true or false"))
}

fn sequence(fields: &Value) -> Read<u64> {
    let number = fields.field("sequence").number();
    let whole = number.filter(|number| number.fract() == 0.0 && *number >= 0.0 && *number <= float(MOST));
    whole
        .and_then(|number| number.to_u64())
        .ok_or_else(|| malformed("sequence", "must be a whole number from 0 to 2^53 - 1"))
}

fn lifetime(fields: &Value) -> Read<Option<f64>> {
    let lifetime = fields.field("lifetime");
    if lifetime.is_null() {
        return Ok(None);
    }
    let given = lifetime.number().filter(|given| (0.0..=MOST_LIFETIME).contains(given));
    given.map(Some).ok_or_else(|| malformed("lifetime", "must be milliseconds from 0 to 2 147 483 647 000, or null"))
}

/// The headers, if there are any, and what they take.
fn headers(fields: &Value) -> Read<(Option<Part>, f64)> {
    let headers = fields.field("headers");
    let Some(entries) = headers.entries() else { return Err(malformed("headers", "must be an object of texts")) };
    let mut bytes = 0;
    for (name, value) in &entries {
        let Some(value) = value.text() else { return Err(malformed("headers", "must be an object of texts")) };
        if RESERVED.contains(&&**name) || name.starts_with(RESERVED_PREFIX) {
            return Err(refusal("reserved header", format_args!("the error queue writes \"{name}\" itself")));
        }
        bytes += count(name.len() + value.len());
    }
    Ok(((!entries.is_empty()).then(|| headers.into()), float(bytes)))
}

/// An Error's body says a code and a description, and nothing else.
fn error_body(body: &Value) -> Read<Value> {
    let code = body.field("code").number();
    let code = code.filter(|code| code.fract() == 0.0 && code.abs() >= 1.0 && code.abs() <= f64::from(i32::MAX));
    let description = body.field("description").text();
    let description = description.filter(|text| text.chars().take(MOST_DESCRIPTION + 1).count() <= MOST_DESCRIPTION);
    match (code, description) {
        (Some(code), Some(description)) => {
            Ok(Value::object(vec![("code", Value::from(code)), ("description", Value::from(&*description))]))
        }
        _ => Err(malformed(
            "body",
            "of an Error must be { code, description }: a whole number other than 0, and at most 3 000 characters",
        )),
    }
}

//! The catalogue: every definition, in memory.
//!
//! Each queue record carries the stamp of the definitions that it was written under, so that whoever reads one sees at once whether its
//! catalogue is still the present one.

use std::rc::Rc;

use num_traits::ToPrimitive;

use super::{PriorityRule, SentBy, Validation};
use crate::body::Value;
use crate::error::{Error, ErrorCode, Result};
use crate::map::Map;
use crate::record::{self, Fields, Read, Unreadable};
use crate::store::Key;

/// What kind of definition a record of the store `definitions` is: the first part of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    MessageType = 0,
    Contract = 1,
    Queue = 2,
    Service = 3,
    Priority = 4,
}

impl Kind {
    pub(crate) const ALL: [Self; 5] = [Self::MessageType, Self::Contract, Self::Queue, Self::Service, Self::Priority];

    pub(crate) fn number(self) -> u32 {
        match self {
            Self::MessageType => 0,
            Self::Contract => 1,
            Self::Queue => 2,
            Self::Service => 3,
            Self::Priority => 4,
        }
    }

    pub(crate) fn key(self, name: &str) -> Key {
        Key::list([self.number().into(), name.into()])
    }
}

/// `CREATE MESSAGE TYPE`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MessageType {
    pub(crate) validation: Validation,
}

/// `CREATE CONTRACT`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Contract {
    pub(crate) entries: Vec<(Rc<str>, SentBy)>,
}

/// `CREATE QUEUE`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct QueueDefinition {
    pub(crate) name: Rc<str>,
    pub(crate) number: u32,
    pub(crate) receive_enabled: bool,
    pub(crate) enqueue_enabled: bool,
    pub(crate) retention: bool,
    pub(crate) max_rows: Option<u64>,
    pub(crate) max_age: Option<u64>,
    pub(crate) poison_message_handling: bool,
    pub(crate) archive: bool,
    pub(crate) activation: bool,
    pub(crate) body: Validation,
}

/// `CREATE SERVICE`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ServiceDefinition {
    pub(crate) name: Rc<str>,
    pub(crate) number: u32,
    pub(crate) queue: u32,
    pub(crate) contracts: Vec<Rc<str>>,
    /// Of a queue's own name, made with the queue.
    pub(crate) implicit: bool,
}

/// Every definition, as of `stamp`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Catalog {
    pub(crate) stamp: u64,
    pub(crate) message_types: Map<Rc<str>, MessageType>,
    pub(crate) contracts: Map<Rc<str>, Contract>,
    pub(crate) queues: Map<Rc<str>, QueueDefinition>,
    pub(crate) services: Map<Rc<str>, ServiceDefinition>,
    pub(crate) priorities: Map<Rc<str>, PriorityRule>,
    queue_names: Map<u32, Rc<str>>,
    service_names: Map<u32, Rc<str>>,
    /// The service that was dropped last, by its number alone: what is left of it is cleared away by the same commit.
    dropped: Option<ServiceDefinition>,
}

impl Catalog {
    pub(crate) fn queue(&self, name: &str) -> Result<&QueueDefinition> {
        self.queues.get(name).ok_or_else(|| not_found(ErrorCode::QueueNotFound, "queue", name))
    }

    pub(crate) fn service(&self, name: &str) -> Result<&ServiceDefinition> {
        self.services.get(name).ok_or_else(|| not_found(ErrorCode::ServiceNotFound, "service", name))
    }

    pub(crate) fn contract(&self, name: &str) -> Result<&Contract> {
        self.contracts.get(name).ok_or_else(|| not_found(ErrorCode::ContractNotFound, "contract", name))
    }

    pub(crate) fn message_type(&self, name: &str) -> Result<&MessageType> {
        self.message_types.get(name).ok_or_else(|| not_found(ErrorCode::MessageTypeNotFound, "message type", name))
    }

    pub(crate) fn queue_by_number(&self, number: u32) -> Option<&QueueDefinition> {
        self.queue_names.get(&number).and_then(|name| self.queues.get(name))
    }

    pub(crate) fn service_by_number(&self, number: u32) -> Option<&ServiceDefinition> {
        let dropped = || self.dropped.as_ref().filter(|service| service.number == number);
        self.service_names.get(&number).and_then(|name| self.services.get(name)).or_else(dropped)
    }

    /// The queue of a service.
    pub(crate) fn queue_of(&self, service: u32) -> Option<&QueueDefinition> {
        self.service_by_number(service).and_then(|service| self.queue_by_number(service.queue))
    }

    /// The services of a queue.
    pub(crate) fn services_on(&self, queue: u32) -> impl Iterator<Item = &ServiceDefinition> {
        self.services.values().filter(move |service| service.queue == queue)
    }

    /// The level of an endpoint, from the rules in their eight steps: contract, local and remote service, the more exact first; else 5.
    pub(crate) fn priority(&self, contract: &str, local: &str, remote: &str) -> u32 {
        let exactness = |rule: &PriorityRule| {
            let fits = |want: &Option<Rc<str>>, have: &str| want.as_deref().is_none_or(|want| want == have);
            let known = |want: &Option<Rc<str>>, weight: u8| if want.is_some() { weight } else { 0 };
            (fits(&rule.contract, contract) && fits(&rule.local_service, local) && fits(&rule.remote_service, remote))
                .then(|| known(&rule.contract, 4) + known(&rule.local_service, 2) + known(&rule.remote_service, 1))
        };
        let best = self
            .priorities
            .values()
            .filter_map(|rule| exactness(rule).map(|exact| (exact, rule)))
            .max_by_key(|(exact, _)| *exact);
        best.and_then(|(_, rule)| rule.level.to_u32()).unwrap_or(5)
    }

    pub(crate) fn put_queue(&mut self, queue: QueueDefinition) {
        self.queue_names.insert(queue.number, Rc::clone(&queue.name));
        self.queues.insert(Rc::clone(&queue.name), queue);
    }

    pub(crate) fn put_service(&mut self, service: ServiceDefinition) {
        self.service_names.insert(service.number, Rc::clone(&service.name));
        self.services.insert(Rc::clone(&service.name), service);
    }

    pub(crate) fn drop_queue(&mut self, name: &str) {
        let dropped = self.queues.remove(name);
        dropped.iter().for_each(|queue| _ = self.queue_names.remove(&queue.number));
    }

    pub(crate) fn drop_service(&mut self, name: &str) {
        self.dropped = self.services.remove(name);
        self.dropped.iter().for_each(|service| _ = self.service_names.remove(&service.number));
    }

    /// Whether a service is the one that its queue was made with: of the queue's own name.
    pub(crate) fn is_own(&self, service: &ServiceDefinition) -> bool {
        self.queues.get(&service.name).is_some_and(|queue| queue.number == service.queue)
    }

    /// Takes in one record of the store.
    pub(crate) fn read(&mut self, record: &Value) -> Read<()> {
        let mut fields = Fields::open(record)?;
        let kind = fields.number()?;
        let name = fields.text()?;
        match kind {
            0 => {
                let validation =
                    Validation::from_letter(&fields.text()?).ok_or(Unreadable::Field("an unknown validation"))?;
                self.message_types.insert(name, MessageType { validation });
            }
            1 => {
                let entries = fields.list()?.iter().map(read_entry).collect::<Read<_>>()?;
                self.contracts.insert(name, Contract { entries });
            }
            2 => {
                let queue = read_queue(name, &mut fields)?;
                self.put_queue(queue);
            }
            3 => {
                let (number, queue) = (fields.small()?, fields.small()?);
                let implicit = fields.flag()?;
                let contracts = fields.list()?.iter().filter_map(Value::text).map(Rc::from).collect();
                self.put_service(ServiceDefinition { name, number, queue, contracts, implicit });
            }
            4 => {
                let level = fields.float()?;
                let rule = PriorityRule {
                    contract: fields.optional_text()?,
                    local_service: fields.optional_text()?,
                    remote_service: fields.optional_text()?,
                    level,
                };
                self.priorities.insert(name, rule);
            }
            _ => return Err(Unreadable::Field("an unknown kind of definition")),
        }
        Ok(())
    }
}

fn read_entry(entry: &Value) -> Read<(Rc<str>, SentBy)> {
    let mut fields = Fields::part(entry)?;
    let message_type = fields.text()?;
    let sent_by = SentBy::from_name(&fields.text()?).ok_or(Unreadable::Field("an unknown sender"))?;
    Ok((message_type, sent_by))
}

fn read_queue(name: Rc<str>, fields: &mut Fields) -> Read<QueueDefinition> {
    Ok(QueueDefinition {
        name,
        number: fields.small()?,
        receive_enabled: fields.flag()?,
        enqueue_enabled: fields.flag()?,
        retention: fields.flag()?,
        max_rows: fields.optional_number()?,
        max_age: fields.optional_number()?,
        poison_message_handling: fields.flag()?,
        archive: fields.flag()?,
        activation: fields.flag()?,
        body: Validation::from_letter(&fields.text()?).ok_or(Unreadable::Field("an unknown validation"))?,
    })
}

fn head(kind: Kind, name: &str) -> Vec<Value> {
    vec![Value::from(1u32), Value::from(kind.number()), Value::from(name)]
}

impl MessageType {
    pub(crate) fn record(&self, name: &str) -> Value {
        let mut record = head(Kind::MessageType, name);
        record.push(Value::from(self.validation.letter()));
        Value::list(record)
    }
}

impl Contract {
    pub(crate) fn record(&self, name: &str) -> Value {
        let mut record = head(Kind::Contract, name);
        let entry = |(message_type, sent_by): &(Rc<str>, SentBy)| {
            Value::list(vec![Value::from(&**message_type), Value::from(sent_by.name())])
        };
        record.push(Value::list(self.entries.iter().map(entry).collect()));
        Value::list(record)
    }
}

impl QueueDefinition {
    pub(crate) fn record(&self) -> Value {
        let mut record = head(Kind::Queue, &self.name);
        let bound = |bound: Option<u64>| bound.map_or_else(Value::null, record::value);
        record.extend([
            Value::from(self.number),
            Value::from(self.receive_enabled),
            Value::from(self.enqueue_enabled),
            Value::from(self.retention),
            bound(self.max_rows),
            bound(self.max_age),
            Value::from(self.poison_message_handling),
            Value::from(self.archive),
            Value::from(self.activation),
            Value::from(self.body.letter()),
        ]);
        Value::list(record)
    }
}

impl ServiceDefinition {
    pub(crate) fn record(&self) -> Value {
        let mut record = head(Kind::Service, &self.name);
        let contracts = self.contracts.iter().map(|contract| Value::from(&**contract)).collect();
        record.extend([
            Value::from(self.number),
            Value::from(self.queue),
            Value::from(self.implicit),
            Value::list(contracts),
        ]);
        Value::list(record)
    }
}

impl PriorityRule {
    pub(crate) fn record(&self, name: &str) -> Value {
        let mut record = head(Kind::Priority, name);
        record.push(Value::from(self.level));
        record.extend(
            [&self.contract, &self.local_service, &self.remote_service].map(|name| record::optional(name.as_deref())),
        );
        Value::list(record)
    }
}

fn not_found(code: ErrorCode, what: &'static str, name: &str) -> Error {
    let shown: String = name.chars().take(128).collect();
    Error::new(code, format!("There is no {what} \"{shown}\" here. Define it with broker.define, or look at the spelling: names are compared character by character."))
        .with("name", shown.as_str())
}

//! `define`: what is new is added, what is there must say the same.

use std::rc::Rc;

use num_traits::ToPrimitive;

use super::catalog::Kind;
use super::{
    Catalog, Contract, DEFAULT, Definitions, FIRST_QUEUE, MessageType, PriorityRule, QueueDefinition, QueueOptions,
    SentBy, ServiceDefinition, ServiceOptions, Status, Validation, check_name,
};
use crate::body::Value;
use crate::changes::Cached;
use crate::error::{Error, ErrorCode, Result};
use crate::message::system;
use crate::queue::Queue;
use crate::stop::{Outcome, Stop};
use crate::store::{Change, StoreName};
use crate::verbs::deliver_later;
use crate::work::{Number, Work};

/// `CREATE` for everything that is not there yet.
pub(crate) fn define(work: &mut Work<'_>, definitions: &Definitions) -> Outcome<()> {
    // What the verbs before this one sent may wait for a service that comes now.
    work.after_others()?;
    // Only what is present can be compared with.
    work.queue(FIRST_QUEUE)?;
    let mut defining = Defining::from(&work.catalog);
    for (name, validation) in &definitions.message_types {
        defining.message_type(name, *validation)?;
    }
    for (name, entries) in &definitions.contracts {
        defining.contract(name, entries)?;
    }
    for (name, options) in &definitions.queues {
        defining.queue(work, name, options)?;
    }
    for (name, options) in &definitions.services {
        defining.service(work, name, options)?;
    }
    for (name, rule) in &definitions.priorities {
        defining.priority(name, rule)?;
    }
    if defining.catalog.services.len() > work.catalog.services.len() {
        deliver_later(work)?;
    }
    defining.finish(work)
}

/// Definitions that are about to be others: the catalogue as it will be, and the records that make it so.
pub(super) struct Defining {
    catalog: Catalog,
    changes: Vec<Change>,
    new_queues: Vec<u32>,
    dropped_queues: Vec<QueueDefinition>,
}

impl From<&Rc<Catalog>> for Defining {
    fn from(present: &Rc<Catalog>) -> Self {
        Self { catalog: (**present).clone(), changes: Vec::new(), new_queues: Vec::new(), dropped_queues: Vec::new() }
    }
}

impl Defining {
    fn message_type(&mut self, name: &str, validation: Validation) -> Result<()> {
        check_name("message type", name)?;
        if system::is_system(name) {
            return Err(Error::new(
                ErrorCode::InvalidArgument,
                format!("The message type \"{name}\" is the broker's own and can't be defined."),
            )
            .with("argument", "messageTypes"));
        }
        match self.catalog.message_types.get(name) {
            Some(known) if known.validation == validation => Ok(()),
            Some(known) => {
                let difference =
                    format!("its validation is \"{}\", not \"{}\"", known.validation.letter(), validation.letter());
                Err(conflict("message type", name, &difference))
            }
            None => {
                let message_type = MessageType { validation };
                self.put(Kind::MessageType, name, message_type.record(name));
                self.catalog.message_types.insert(name.into(), message_type);
                Ok(())
            }
        }
    }

    fn contract(&mut self, name: &str, entries: &[(String, SentBy)]) -> Result<()> {
        check_name("contract", name)?;
        for (position, (message_type, _)) in entries.iter().enumerate() {
            if system::is_system(message_type) {
                return Err(Error::new(ErrorCode::InvalidArgument, format!("The contract \"{name}\" lists \"{message_type}\", which is the broker's own: every contract has it.")).with("argument", "contracts"));
            }
            self.catalog.message_type(message_type)?;
            if entries.iter().take(position).any(|(other, _)| other == message_type) {
                return Err(Error::new(
                    ErrorCode::InvalidArgument,
                    format!("The contract \"{name}\" lists the message type \"{message_type}\" twice."),
                )
                .numbered(8403)
                .with("argument", "contracts"));
            }
        }
        if !entries.iter().any(|(_, sent_by)| *sent_by != SentBy::Target) {
            let text = format!(
                "The contract \"{name}\" has no message type that its initiator may send. Give at least one \"initiator\" or \"any\"."
            );
            return Err(Error::new(ErrorCode::InvalidArgument, text)
                .numbered(8492)
                .with("argument", "contracts")
                .with("contract", name));
        }
        let entries: Vec<(Rc<str>, SentBy)> =
            entries.iter().map(|(message_type, sent_by)| (message_type.as_str().into(), *sent_by)).collect();
        if let Some(known) = self.catalog.contracts.get(name) {
            for (message_type, sent_by) in &known.entries {
                match entries.iter().find(|(other, _)| other == message_type) {
                    Some((_, other)) if other == sent_by => {}
                    Some(_) => {
                        return Err(conflict(
                            "contract",
                            name,
                            &format!("\"{message_type}\" is sent by \"{}\"", sent_by.name()),
                        ));
                    }
                    None => {
                        return Err(conflict(
                            "contract",
                            name,
                            &format!("it has \"{message_type}\", which these definitions leave out"),
                        ));
                    }
                }
            }
            if known.entries.len() == entries.len() {
                return Ok(());
            }
        }
        let contract = Contract { entries };
        self.put(Kind::Contract, name, contract.record(name));
        self.catalog.contracts.insert(name.into(), contract);
        Ok(())
    }

    fn queue(&mut self, work: &mut Work<'_>, name: &str, options: &QueueOptions) -> Outcome<()> {
        check_name("queue", name)?;
        if let Some(known) = self.catalog.queues.get(name) {
            let mut queue = known.clone();
            set_options(&mut queue, options)?;
            let changed = queue != *known;
            self.put_queue(&queue, changed);
            return Ok(());
        }
        if self.catalog.services.contains_key(name) {
            return Err(conflict(
                "queue",
                name,
                "a service of that name is on another queue, and a queue has a service of its own name",
            )
            .into());
        }
        let number = work.claim(Number::Queue, 1)?.to_u32().ok_or(Stop::Stale)?;
        let mut queue = new_queue(name, number);
        set_options(&mut queue, options)?;
        if options.status == Some(Status::Off) {
            (queue.receive_enabled, queue.enqueue_enabled) = (false, false);
        }
        let service = implicit_service(&queue, work.claim(Number::Service, 1)?.to_u32().ok_or(Stop::Stale)?);
        self.put_queue(&queue, true);
        self.put_service(service);
        self.new_queues.push(number);
        Ok(())
    }

    fn service(&mut self, work: &mut Work<'_>, name: &str, options: &ServiceOptions) -> Outcome<()> {
        check_name("service", name)?;
        for contract in &options.contracts {
            self.catalog.contract(contract)?;
        }
        let queue = match &options.queue {
            Some(queue) => self.catalog.queue(queue)?.number,
            None => {
                return Err(Error::invalid_argument(
                    "services",
                    &format!("has no queue for the service \"{name}\": give `queue`"),
                )
                .into());
            }
        };
        let mut contracts: Vec<Rc<str>> = options.contracts.iter().map(|contract| contract.as_str().into()).collect();
        let Some(known) = self.catalog.services.get(name).cloned() else {
            let number = work.claim(Number::Service, 1)?.to_u32().ok_or(Stop::Stale)?;
            self.put_service(ServiceDefinition { name: name.into(), number, queue, contracts, implicit: false });
            return Ok(());
        };
        if known.queue != queue {
            let on = self.catalog.queue_by_number(known.queue).map_or("?", |queue| &queue.name);
            return Err(conflict("service", name, &format!("it is on the queue \"{on}\"")).into());
        }
        // A queue's own service keeps the contract that it came with.
        if self.catalog.queues.contains_key(name) && !contracts.iter().any(|contract| &**contract == DEFAULT) {
            contracts.insert(0, DEFAULT.into());
        }
        if let Some(missing) = known.contracts.iter().find(|contract| !contracts.contains(contract)) {
            return Err(conflict(
                "service",
                name,
                &format!("it accepts the contract \"{missing}\", which these definitions leave out"),
            )
            .into());
        }
        if known.contracts.len() != contracts.len() || known.implicit {
            self.put_service(ServiceDefinition { contracts, implicit: false, ..known });
        }
        Ok(())
    }

    fn priority(&mut self, name: &str, rule: &PriorityRule) -> Result<()> {
        check_name("priority", name)?;
        if !(1.0..=10.0).contains(&rule.level) || rule.level.fract() != 0.0 {
            return Err(Error::invalid_argument(
                "priorities",
                &format!("gives \"{name}\" a level that is not a whole number from 1 to 10"),
            ));
        }
        if self.catalog.priorities.get(name) != Some(rule) {
            self.put(Kind::Priority, name, rule.record(name));
            self.catalog.priorities.insert(name.into(), rule.clone());
        }
        Ok(())
    }

    fn put(&mut self, kind: Kind, name: &str, record: Value) {
        self.changes.push(Change::Put(StoreName::Definitions, kind.key(name), record));
    }

    pub(super) fn put_queue(&mut self, queue: &QueueDefinition, changed: bool) {
        if changed {
            self.put(Kind::Queue, &queue.name, queue.record());
            self.catalog.put_queue(queue.clone());
        }
    }

    pub(super) fn put_service(&mut self, service: ServiceDefinition) {
        self.put(Kind::Service, &service.name, service.record());
        self.catalog.put_service(service);
    }

    pub(super) fn drop_service(&mut self, name: &str) {
        self.changes.push(Change::Delete(StoreName::Definitions, Kind::Service.key(name)));
        self.catalog.drop_service(name);
    }

    pub(super) fn drop_queue(&mut self, queue: QueueDefinition) {
        self.changes.push(Change::Delete(StoreName::Definitions, Kind::Queue.key(&queue.name)));
        self.catalog.drop_queue(&queue.name);
        self.dropped_queues.push(queue);
    }

    /// Writes what is new, and stamps every queue's record: who reads one knows that the definitions have changed. Who reads that of a
    /// dropped queue finds none, which says the same.
    pub(super) fn finish(mut self, work: &mut Work<'_>) -> Outcome<()> {
        if self.changes.is_empty() {
            return Ok(());
        }
        let stamp = work.claim(Number::Stamp, 1)?;
        self.catalog.stamp = stamp;
        let numbers: Vec<u32> = self.catalog.queues.values().map(|queue| queue.number).collect();
        let dropped = self.dropped_queues.iter().map(|queue| queue.number);
        let known = numbers.iter().copied().filter(|number| !self.new_queues.contains(number));
        work.need([], known.chain(dropped))?;
        for number in self.new_queues {
            work.changes
                .queues
                .insert(number, Cached { stored: None, current: Some(Queue::new(number, stamp)), dirty: true });
        }
        for number in numbers {
            work.change_queue(number, |queue| queue.stamp = stamp);
        }
        for queue in &self.dropped_queues {
            work.changes.remove_queue(queue.number);
            work.changes.notice.touch(&queue.name);
        }
        self.changes.into_iter().for_each(|change| work.write(change));
        self.catalog.queues.keys().for_each(|name| work.changes.notice.touch(name));
        work.catalog = Rc::new(self.catalog);
        Ok(())
    }
}

pub(super) fn new_queue(name: &str, number: u32) -> QueueDefinition {
    QueueDefinition {
        name: name.into(),
        number,
        receive_enabled: true,
        enqueue_enabled: true,
        retention: false,
        max_rows: None,
        max_age: None,
        poison_message_handling: true,
        archive: false,
        activation: true,
        body: Validation::None,
    }
}

pub(super) fn implicit_service(queue: &QueueDefinition, number: u32) -> ServiceDefinition {
    ServiceDefinition {
        name: Rc::clone(&queue.name),
        number,
        queue: queue.number,
        contracts: vec![DEFAULT.into()],
        implicit: true,
    }
}

/// What a number of JavaScript holds exactly.
const MAX_BOUND: f64 = 9_007_199_254_740_992.0;

pub(super) fn set_options(queue: &mut QueueDefinition, options: &QueueOptions) -> Result<()> {
    for (argument, bound) in [("maxRows", options.max_rows), ("maxAge", options.max_age)] {
        if bound.is_some_and(|bound| !(0.0..=MAX_BOUND).contains(&bound)) {
            return Err(Error::invalid_argument(argument, "is not a number from 0 to 2^53"));
        }
    }
    if let Some(retention) = options.retention {
        queue.retention = retention;
        queue.max_rows = options.max_rows.and_then(|rows| rows.to_u64());
        queue.max_age = options.max_age.and_then(|age| age.to_u64());
    }
    queue.poison_message_handling = options.poison_message_handling.unwrap_or(queue.poison_message_handling);
    queue.archive = options.archive.unwrap_or(queue.archive);
    queue.activation = options.activation.map_or(queue.activation, |activation| activation == Status::On);
    queue.body = options.body.unwrap_or(queue.body);
    Ok(())
}

fn conflict(what: &'static str, name: &str, difference: &str) -> Error {
    Error::new(
        ErrorCode::DefinitionConflict,
        format!("The {what} \"{name}\" exists and is defined differently: {difference}. Definitions may grow but not change: keep what is there, or use another name."),
    )
    .with("kind", what)
    .with("name", name)
    .with("difference", difference)
}

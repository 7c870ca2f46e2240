//! The definitions as they are stored, and those that a new database has.

use std::rc::Rc;

use num_traits::ToPrimitive;

use super::catalog::Kind;
use super::define::{implicit_service, new_queue};
use super::{Catalog, Contract, DEFAULT, ERROR_QUEUE, MessageType, SentBy, Validation};
use crate::body::Value;
use crate::error::{Error, Result};
use crate::ids::{Ids, text};
use crate::queue::Queue;
use crate::store::{Direction, Key, Range, StoreName, Tx};
use crate::work::{Number, Numbers};

/// The number of the queue "error", which is always there.
pub(crate) const FIRST_QUEUE: u32 = 1;

/// The instance id and the definitions; gives the database both when it is new.
pub(crate) async fn birth(tx: &Tx, ids: &dyn Ids) -> Result<(Rc<str>, Catalog)> {
    let key = Key::from("birth");
    if let Some(record) = tx.get(StoreName::Meta, &key).await? {
        let id = record
            .item(1)
            .text()
            .ok_or_else(|| Error::corrupt(StoreName::Meta.name(), &key, "the instance id is missing"))?;
        return Ok((id.into(), load(tx).await?));
    }
    let id = text(ids.uuid());
    tx.put(StoreName::Meta, key, Value::list(vec![Value::from(1u32), Value::from(&*id)]));
    let mut numbers = Numbers::default();
    let mut number = |kind| numbers.claim(kind, 1).to_u32().unwrap_or(FIRST_QUEUE);
    let queue = new_queue(ERROR_QUEUE, number(Number::Queue));
    let service = implicit_service(&queue, number(Number::Service));
    let stamp = numbers.claim(Number::Stamp, 1);
    tx.put(StoreName::Meta, Key::from("numbers"), numbers.record());
    tx.put(StoreName::Definitions, Kind::Queue.key(ERROR_QUEUE), queue.record());
    tx.put(StoreName::Definitions, Kind::Service.key(ERROR_QUEUE), service.record());
    tx.put(StoreName::Queues, Key::from(queue.number), Queue::new(queue.number, stamp).record());
    Ok((id, load(tx).await?))
}

/// Reads every definition.
pub(crate) async fn load(tx: &Tx) -> Result<Catalog> {
    let mut catalog = Catalog::default();
    catalog.message_types.insert(DEFAULT.into(), MessageType { validation: Validation::None });
    catalog.contracts.insert(DEFAULT.into(), Contract { entries: vec![(DEFAULT.into(), SentBy::Any)] });
    for record in tx.get_range(StoreName::Definitions, &Range::all(), None, Direction::Forward).await? {
        catalog.read(&record).map_err(|problem| {
            problem.at(StoreName::Definitions, &record.item(2).text().unwrap_or_default().as_str().into())
        })?;
    }
    let key = Key::from(FIRST_QUEUE);
    let first = tx
        .get(StoreName::Queues, &key)
        .await?
        .ok_or_else(|| Error::corrupt(StoreName::Queues.name(), &key, "the queue \"error\" is missing"))?;
    catalog.stamp = match Queue::from_record(FIRST_QUEUE, &first) {
        // The others have it, too: whoever needs this one mends it.
        Err(error) if error.is_corrupt() => {
            let queues = tx.get_range(StoreName::Queues, &Range::all(), None, Direction::Forward).await?;
            queues
                .iter()
                .filter_map(|queue| Queue::from_record(0, queue).ok())
                .map(|queue| queue.stamp)
                .max()
                .unwrap_or(0)
        }
        first => first?.stamp,
    };
    Ok(catalog)
}

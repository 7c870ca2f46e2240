//! The definitions as they are stored, and those that a new database has.

use std::rc::Rc;

use num_traits::ToPrimitive;

use super::catalog::Kind;
use super::define::{implicit_service, new_queue};
use super::{Catalog, Contract, DEFAULT, ERROR_QUEUE, MessageType, SentBy, Validation};
use crate::body::Value;
use crate::error::{Error, ErrorCode, Result};
use crate::ids::{Ids, text};
use crate::queue::Queue;
use crate::record::Unreadable;
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
    let records = tx.get_range(StoreName::Definitions, &Range::all(), None, Direction::Forward).await?;
    for (index, record) in records.iter().enumerate() {
        if let Err(problem) = catalog.read(record) {
            // Only the store knows the key of such a record.
            let keys = tx.get_keys(StoreName::Definitions, &Range::all(), None).await?;
            pass_over(problem, keys.get(index))?;
        }
    }
    let first = tx.get(StoreName::Queues, &Key::from(FIRST_QUEUE)).await?;
    catalog.stamp = match first.map(|first| Queue::from_record(FIRST_QUEUE, &first)).transpose() {
        Ok(Some(first)) => first.stamp,
        Err(error) if !error.is_corrupt() => return Err(error),
        // The others have it, too: whoever needs this one mends it.
        _ => {
            let queues = tx.get_range(StoreName::Queues, &Range::all(), None, Direction::Forward).await?;
            queues
                .iter()
                .filter_map(|queue| Queue::from_record(0, queue).ok())
                .map(|queue| queue.stamp)
                .max()
                .unwrap_or(0)
        }
    };
    Ok(catalog)
}

/// A definition can't be read. What has no number is as if it had never been defined: the application defines it again, and it is the same. A queue
/// and a service are what their rows say that they belong to, by numbers that nobody else knows.
fn pass_over(problem: Unreadable, key: Option<&Key>) -> Result<()> {
    let key = key.cloned().unwrap_or(Key::Number(-1.0));
    let error = problem.at(StoreName::Definitions, &key);
    let Key::List(parts) = &key else { return Err(error) };
    let [Key::Number(kind), Key::Text(name)] = parts.as_slice() else { return Err(error) };
    let kind = Kind::ALL.into_iter().find(|known| f64::from(known.number()) == *kind);
    match kind {
        Some(Kind::MessageType | Kind::Contract | Kind::Priority) if error.is_corrupt() => Ok(()),
        Some(kind @ (Kind::Queue | Kind::Service)) if error.is_corrupt() => {
            let what = if kind == Kind::Queue { "queue" } else { "service" };
            let text = format!(
                "The definition of the {what} \"{name}\" can't be read, and nothing else says what it was. Its messages are still there. Put the record of the object store \"definitions\" back if there is a copy of it, or delete the broker with deleteBroker to begin anew."
            );
            let named = Error::new(ErrorCode::StorageCorrupt, text).with("store", StoreName::Definitions.name());
            Err(named.with("key", key.to_value()).with(what, &**name))
        }
        _ => Err(error),
    }
}

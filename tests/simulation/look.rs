//! A look at the whole database, through the views and through the audit, while nobody is in the middle of anything.

use std::collections::BTreeSet;
use std::rc::Rc;

use pocket_broker::error::Error;
use pocket_broker::store::{Key, MemoryStore, Mode, Range, Store, StoreName};
use pocket_broker::{Broker, DelayedFilter, DelayedMessage, EndpointFilter, Extent, Locks, Message, RowFilter, Rows};

use crate::conformance::random::model::{PLACES, Queue};
use crate::conformance::random::seen::{self, SeenEnd, SeenOutside, SeenRows};
use crate::conformance::support::host::{block_on, host};
use crate::conformance::support::transact;
use crate::later;
use crate::model::{Model, Names, service_number};
use crate::origin::{Kind, Origin, Violation};

mod lanes;

use lanes::SeenLane;

/// What is there.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Look {
    /// Whether each queue is on and retains, and its most failures in a row, where they can be counted.
    queues: Vec<Option<(Queue, u64)>>,
    ends: Vec<SeenEnd>,
    rows: Vec<SeenRows>,
    outside: SeenOutside,
    /// Rows of dialogs that were tried.
    tried: Vec<String>,
    lanes: Vec<SeenLane>,
    /// What waits outside of lanes.
    held: Vec<String>,
    /// What is delayed, in its order.
    delayed: Vec<String>,
    /// Of these only the store of the application's own knows when they are due.
    put_off: BTreeSet<String>,
}

/// What is in the database of a store of the application's own.
pub(crate) struct Hop {
    /// So many messages, with those of the built-in store.
    pub(crate) has: u64,
    /// The messages that are not delivered any more.
    knows: BTreeSet<String>,
}

/// Looks for that, behind the back of all brokers. An error: it can't be read.
async fn hop(store: &dyn Store) -> Result<Hop, Error> {
    let stores = [StoreName::Delayed, StoreName::Seen];
    transact(store, &stores, Mode::ReadOnly, async |tx| {
        let mut hop = Hop { has: 0, knows: BTreeSet::new() };
        for key in tx.get_keys(StoreName::Delayed, &Range::all(), None).await? {
            let Key::List(parts) = &key else { continue };
            match parts.as_slice() {
                [Key::Text(kind), Key::Text(id)] if **kind == *"gone" => _ = hop.knows.insert(id.to_string()),
                _ => hop.has += 1,
            }
        }
        for key in tx.get_keys(StoreName::Seen, &Range::all(), None).await? {
            let Key::List(parts) = &key else { continue };
            hop.knows.extend(
                parts.iter().filter_map(|part| if let Key::Text(id) = part { Some(id.to_string()) } else { None }),
            );
        }
        Ok(hop)
    })
    .await
}

/// Whether something is on its way into the store of the application's own, or to be removed from it.
pub(crate) fn is_under_way(store: &MemoryStore) -> bool {
    block_on(async {
        let keys = transact(store, &[StoreName::Delayed], Mode::ReadOnly, async |tx| {
            tx.get_keys(StoreName::Delayed, &Range::all(), None).await
        });
        let is_text = |key: &Key| matches!(key, Key::List(parts) if matches!(parts.first(), Some(Key::Text(_))));
        keys.await.expect("it can be read").iter().any(is_text)
    })
}

fn shown(delayed: &[DelayedMessage], put_off: &BTreeSet<String>, origin: &Origin) -> Vec<String> {
    let mut shown = later::seen(delayed, put_off);
    if origin.shelf.is_some() {
        shown.sort();
    }
    shown
}

/// Looks, and finds out whether the database is sound. Conversations that nobody knows are learned of.
pub(crate) fn look(origin: &Origin, store: &MemoryStore) -> Result<Look, Violation> {
    let put_off = origin.shelf.as_ref().map(|shelf| shelf.put_off()).unwrap_or_default();
    block_on(async {
        let unsound = |text: String| Violation { kind: Kind::Unsound, text };
        let store: Rc<dyn Store> = Rc::new(store.clone());
        let found = pocket_broker::audit(&*store).await.map_err(|error| unsound(format!("{error:?}")))?;
        if !found.is_empty() && !origin.is_trusting {
            return Err(unsound(found.join("\n")));
        }
        let failed = |error: pocket_broker::error::Error| unsound(format!("{error:?}"));
        let mut host = host(Rc::clone(&store), origin.below(1 << 30) as u64);
        // Somebody else leads: this one does nothing but look.
        let _lead = host.locks.of_tab(u64::MAX).lock("role:poller").await;
        host.host.delayed_store = origin.shelf.as_ref().map(|shelf| shelf.for_looks());
        let broker = Broker::open(host.host).await.map_err(failed)?;
        let endpoints = broker.conversations(&EndpointFilter::default(), None, Extent::All).await.map_err(failed)?.rows;
        for endpoint in &endpoints {
            if endpoint.is_initiator && *endpoint.contract != *"DEFAULT" {
                let services = (service_number(&endpoint.service), service_number(&endpoint.far_service));
                origin.learn_of(&endpoint.conversation_id, &endpoint.conversation_handle, services);
            }
        }
        let infos = broker.queues().await.map_err(failed)?;
        let (mut queues, mut rows, mut all) = (Vec::new(), Vec::new(), Vec::new());
        for name in PLACES {
            let Some(info) = infos.iter().find(|info| &*info.name == name) else {
                queues.push(None);
                rows.push(SeenRows::new());
                continue;
            };
            let queue = Queue { on: info.is_receive_enabled, retention: info.is_retention_enabled };
            queues.push(Some((queue, if origin.counts_failures { info.consecutive_rollbacks } else { 0 })));
            let page = broker.select(name, &RowFilter::default(), None, Extent::All).await.map_err(failed)?;
            let messages: Vec<Message> = page.rows.iter().flat_map(Rows::messages).collect();
            let ready = messages.iter().filter(|message| message.status.number() == 1).count() as u64;
            let is_right = (info.ready, info.retained) == (ready, messages.len() as u64 - ready);
            if !is_right && !origin.is_trusting {
                return Err(unsound(format!(
                    "the counters of {name}: {info:?}, and there are {ready} ready of {}",
                    messages.len()
                )));
            }
            rows.push(seen::rows_seen(&messages));
            all.extend(messages);
        }
        let transmission = broker.transmission_queue(None).await.map_err(failed)?;
        let mut delayed = broker.delayed(&DelayedFilter::default(), None, Extent::All).await.map_err(failed)?.rows;
        let count = broker.count_delayed().await.map_err(failed)?;
        if origin.shelf.is_some() {
            let Hop { has, knows } = hop(&*store).await.map_err(failed)?;
            let counted = broker.stats().await.map_err(failed)?.gauges.delayed;
            if counted != has && !origin.is_trusting {
                return Err(unsound(format!("{counted} are said to be delayed here, and {has} are")));
            }
            // What the store is still to remove, or has got again, is not delayed.
            delayed.retain(|message| !knows.contains(&*message.message_id));
        } else if count != delayed.len() as u64 && !origin.is_trusting {
            return Err(unsound(format!("{count} are said to be delayed, and {} are", delayed.len())));
        }
        broker.close().await;
        Ok(Look {
            delayed: shown(&delayed, &put_off, origin),
            put_off,
            queues,
            ends: seen::ends_seen(&endpoints),
            rows,
            outside: seen::outside_seen(&transmission),
            tried: lanes::tried(&all),
            lanes: lanes::seen(&endpoints, &all),
            held: lanes::held(&transmission),
        })
    })
}

impl Look {
    /// What a look finds if the model is right.
    pub(crate) fn expected(model: &Model, names: &Names, found: &Self, counts_failures: bool) -> Self {
        let world = &model.world;
        let queue = |number: usize| {
            let failures = if counts_failures { model.rollbacks(number) } else { 0 };
            model.is_there(number).then(|| (world.queues[number], failures))
        };
        Self {
            queues: (0..PLACES.len()).map(queue).collect(),
            tried: lanes::tried_expected(world, names),
            lanes: lanes::expected(model, names, &found.lanes).into_iter().map(|(_, lane)| lane).collect(),
            held: lanes::held_expected(world),
            delayed: model.show_delayed(names, &found.put_off),
            put_off: found.put_off.clone(),
            ends: seen::ends_expected(world, &names.handles),
            rows: (0..PLACES.len()).map(|queue| seen::rows_expected(world, &names.handles, queue)).collect(),
            outside: seen::outside_expected(world, &names.handles),
        }
    }

    /// Where they differ.
    pub(crate) fn differences(&self, expected: &Self) -> String {
        let mut text = String::new();
        let mut part = |name: &str, found: Vec<String>, expected: Vec<String>| {
            let only = |these: &[String], those: &[String]| -> Vec<String> {
                these.iter().filter(|this| !those.contains(this)).cloned().collect()
            };
            let (more, less) = (only(&found, &expected), only(&expected, &found));
            if !more.is_empty() || !less.is_empty() {
                text += &format!("{name}: there is {more:#?}, and the model says {less:#?}\n");
            }
        };
        let debug = |item: &dyn std::fmt::Debug| format!("{item:?}");
        part("queues", vec![debug(&self.queues)], vec![debug(&expected.queues)]);
        let ends = |look: &Self| look.ends.iter().map(|end| debug(end)).collect();
        part("endpoints", ends(self), ends(expected));
        let rows = |look: &Self| look.rows.iter().flatten().map(|rows| debug(rows)).collect();
        part("rows", rows(self), rows(expected));
        let outside = |look: &Self| look.outside.iter().map(|row| debug(row)).collect();
        part("outside", outside(self), outside(expected));
        part("tried", self.tried.clone(), expected.tried.clone());
        let lanes = |look: &Self| look.lanes.iter().map(|lane| debug(lane)).collect();
        part("lanes", lanes(self), lanes(expected));
        part("held", self.held.clone(), expected.held.clone());
        part("delayed", vec![format!("{:#?}", self.delayed)], vec![format!("{:#?}", expected.delayed)]);
        text
    }

    /// What the lanes are called that a model has found here.
    pub(crate) fn tell(&self, names: &Names, model: &mut Model) {
        // Those that show nothing may be mistaken for each other.
        for (end, lane) in lanes::expected(model, names, &self.lanes).into_iter().filter(|(_, lane)| lane.shows_rows())
        {
            model.bind(&end, &lane.handle);
        }
    }

    /// Whether an endpoint has a row with a body, or one waits outside: of those the look does not know the bodies.
    pub(crate) fn has_body(&self, handle: &str, body: &str) -> bool {
        let end = format!(" {body}");
        self.rows.iter().flatten().any(|(owner, rows)| owner == handle && rows.iter().any(|row| row.ends_with(&end)))
            || !self.outside.is_empty()
    }

    /// Whether a lane has a row with a body, or it is delayed, or one waits outside.
    pub(crate) fn has_message(&self, body: &str) -> bool {
        self.holds(body) || !self.held.is_empty()
    }

    /// Whether a lane has a row with a body, or it is delayed.
    pub(crate) fn holds(&self, body: &str) -> bool {
        let is_delayed = |shown: &String| shown.split(' ').nth(1) == Some(body);
        self.lanes.iter().any(|lane| lane.has_body(body)) || self.delayed.iter().any(is_delayed)
    }

    pub(crate) fn end(&self, end: &crate::conformance::random::model::End) -> Option<&SeenEnd> {
        self.ends.iter().find(|seen| seen.end == *end)
    }
}

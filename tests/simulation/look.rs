//! A look at the whole database, through the views and through the audit, while nobody is in the middle of anything.

use std::rc::Rc;

use pocket_broker::store::{MemoryStore, Store};
use pocket_broker::{Broker, DelayedFilter, EndpointFilter, Extent, Message, RowFilter, Rows};

use crate::conformance::random::model::{PLACES, Queue};
use crate::conformance::random::seen::{self, SeenEnd, SeenOutside, SeenRows};
use crate::conformance::support::host::{block_on, host};
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
}

/// Looks, and finds out whether the database is sound. Conversations that nobody knows are learned of.
pub(crate) fn look(origin: &Origin, store: &MemoryStore) -> Result<Look, Violation> {
    block_on(async {
        let unsound = |text: String| Violation { kind: Kind::Unsound, text };
        let store: Rc<dyn Store> = Rc::new(store.clone());
        let found = pocket_broker::audit(&*store).await.map_err(|error| unsound(format!("{error:?}")))?;
        if !found.is_empty() && !origin.is_trusting {
            return Err(unsound(found.join("\n")));
        }
        let failed = |error: pocket_broker::error::Error| unsound(format!("{error:?}"));
        let broker = Broker::open(host(store, origin.below(1 << 30) as u64).host).await.map_err(failed)?;
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
        let delayed = broker.delayed(&DelayedFilter::default(), None, Extent::All).await.map_err(failed)?.rows;
        let count = broker.count_delayed().await.map_err(failed)?;
        if count != delayed.len() as u64 && !origin.is_trusting {
            return Err(unsound(format!("{count} are said to be delayed, and {} are", delayed.len())));
        }
        broker.close().await;
        Ok(Look {
            delayed: later::seen(&delayed),
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
            delayed: model.show_delayed(names),
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

//! A look at the whole database, through the views and through the audit, while nobody is in the middle of anything.

use std::rc::Rc;

use pocket_broker::store::{MemoryStore, Store};
use pocket_broker::{Broker, EndpointFilter, Extent, Message, RowFilter, Rows};

use crate::conformance::random::model::QUEUES;
use crate::conformance::random::seen::{self, SeenEnd, SeenOutside, SeenRows};
use crate::conformance::support::host::{block_on, host};
use crate::model::{Model, Names, service_number};
use crate::origin::{Kind, Origin, Violation};

/// What is there.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Look {
    /// Whether each queue is on, and whether it retains.
    queues: Vec<(bool, bool)>,
    ends: Vec<SeenEnd>,
    rows: Vec<SeenRows>,
    outside: SeenOutside,
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
        let all = Extent::All;
        let endpoints = broker.conversations(&EndpointFilter::default(), None, all).await.map_err(failed)?.rows;
        for endpoint in &endpoints {
            if endpoint.is_initiator {
                let services = (service_number(&endpoint.service), service_number(&endpoint.far_service));
                origin.learn_of(&endpoint.conversation_id, &endpoint.conversation_handle, services);
            }
        }
        let infos = broker.queues().await.map_err(failed)?;
        let (mut queues, mut rows) = (Vec::new(), Vec::new());
        for name in QUEUES {
            let info =
                infos.iter().find(|info| &*info.name == name).ok_or_else(|| unsound(format!("{name} is gone")))?;
            queues.push((info.is_receive_enabled, info.is_retention_enabled));
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
        }
        let outside = seen::outside_seen(&broker.transmission_queue(None).await.map_err(failed)?);
        broker.close().await;
        Ok(Look { queues, ends: seen::ends_seen(&endpoints), rows, outside })
    })
}

impl Look {
    /// What a look finds if the model is right.
    pub(crate) fn expected(model: &Model, names: &Names) -> Self {
        let world = &model.world;
        Self {
            queues: world.queues.iter().map(|queue| (queue.on, queue.retention)).collect(),
            ends: seen::ends_expected(world, &names.handles),
            rows: (0..QUEUES.len()).map(|queue| seen::rows_expected(world, &names.handles, queue)).collect(),
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
        text
    }

    /// Whether an endpoint has a row with a body, or one waits outside: of those the look does not know the bodies.
    pub(crate) fn has_body(&self, handle: &str, body: &str) -> bool {
        let end = format!(" {body}");
        self.rows.iter().flatten().any(|(owner, rows)| owner == handle && rows.iter().any(|row| row.ends_with(&end)))
            || !self.outside.is_empty()
    }

    pub(crate) fn end(&self, end: &crate::conformance::random::model::End) -> Option<&SeenEnd> {
        self.ends.iter().find(|seen| seen.end == *end)
    }
}

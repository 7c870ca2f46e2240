//! What can be seen must be what the model says.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use pocket_broker::error::ErrorCode;
use pocket_broker::{EndpointFilter, Message, RowFilter};

use super::super::support::shop::short;
use super::Random;
use super::model::{End, QUEUES, Row};
use super::seen;
use super::steps::Wanted;

/// What one call could receive: rows by end, each list in its order, by group.
pub(super) type Receivable = BTreeMap<Rc<str>, BTreeMap<End, Vec<Row>>>;

impl Random {
    pub(super) async fn check(&mut self) {
        self.shop.assert_sound().await;
        let endpoints = self.shop.endpoints(EndpointFilter::default()).await;
        assert_eq!(seen::ends_seen(&endpoints), seen::ends_expected(&self.world, &self.handles));
        for (number, name) in QUEUES.into_iter().enumerate() {
            let messages = self.shop.messages(name, RowFilter::default()).await;
            let orders: Vec<u64> = messages.iter().map(|message| message.queuing_order).collect();
            assert!(orders.is_sorted_by(|a, b| a < b), "{name} is in queuing order: {orders:?}");
            let info = self.shop.queue(name).await;
            let ready = messages.iter().filter(|message| message.status.number() == 1).count() as u64;
            assert_eq!((info.ready, info.retained), (ready, messages.len() as u64 - ready), "the counters of {name}");
            let expected = seen::rows_expected(&self.world, &self.handles, number);
            assert_eq!(seen::rows_seen(&messages), expected, "the rows of {name}");
        }
        let outside = seen::outside_seen(&self.shop.transmission().await);
        assert_eq!(outside, seen::outside_expected(&self.world, &self.handles), "the transmission queue");
    }

    /// What a call in a context may receive, or its error. `own`: it is made in this transaction.
    pub(super) fn receivable(
        &self,
        tab: usize,
        queue: usize,
        wanted: &Wanted,
        own: Option<usize>,
    ) -> Result<Receivable, ErrorCode> {
        if !self.world.queues[queue].on {
            return Err(ErrorCode::QueueDisabled);
        }
        let own_taken = |end: &End| own.and_then(|own| self.open[own].taken.get(end)).cloned().unwrap_or_default();
        let is_ended = |end: &End| own.is_some_and(|own| self.open[own].has_ended(end));
        let mut receivable = Receivable::new();
        match wanted {
            Wanted::Conversation(end) => {
                let view = own.map_or(&self.world, |own| &self.open[own].view).sides.get(end);
                if view.is_none_or(|side| side.queue != queue) {
                    return Err(ErrorCode::ConversationNotFound);
                }
            }
            Wanted::Group(group) => {
                if !self.world.sides.iter().any(|(end, side)| side.queue == queue && self.group_of(end) == *group) {
                    return Err(ErrorCode::GroupNotFound);
                }
            }
            Wanted::Anything => {}
        }
        for (end, side) in self.world.sides.iter().filter(|(end, side)| side.queue == queue && !is_ended(end)) {
            let group = self.group_of(end);
            let fits = match wanted {
                Wanted::Anything => true,
                Wanted::Conversation(wanted) => wanted == end,
                Wanted::Group(wanted) => *wanted == group,
            };
            let taken = own_taken(end);
            let rows: Vec<Row> = side.unread().into_iter().filter(|row| !taken.contains(row)).collect();
            if fits && !rows.is_empty() && !self.is_locked(tab, &group, own) {
                receivable.entry(group).or_default().insert(end.clone(), rows);
            }
        }
        Ok(receivable)
    }

    /// Whether what was received is what had to be: one group, conversation by conversation, each from its beginning.
    pub(super) fn check_received(
        &self,
        messages: &[Message],
        receivable: &Receivable,
        top: Option<u32>,
        ready: Option<&[Message]>,
    ) {
        let Some(first) = messages.first() else {
            assert!(receivable.is_empty(), "nothing was received, and there was {receivable:?}");
            return;
        };
        assert!(messages.iter().all(|message| message.status.number() == 0), "what is received shows status 0");
        let group = &first.conversation_group_id;
        assert!(messages.iter().all(|message| message.conversation_group_id == *group), "all are of one group");
        let ends = receivable
            .get(group)
            .unwrap_or_else(|| panic!("the group {group} was received from, and there was {receivable:?}"));
        let total: usize = ends.values().map(Vec::len).sum();
        let limit = top.map_or(usize::MAX, |top| top as usize);
        assert_eq!(messages.len(), total.min(limit), "as many as there are, or as were asked for");

        let received = self.in_order(messages);
        let names: BTreeSet<&End> = received.iter().map(|(end, _)| end).collect();
        assert_eq!(names.len(), received.len(), "conversation by conversation");
        let priority = |end: &End| {
            messages
                .iter()
                .chain(ready.unwrap_or_default())
                .find(|message| message.conversation_handle == self.handles[end])
                .map(|message| message.priority)
        };
        for (position, (end, rows)) in received.iter().enumerate() {
            assert!(ends[end].starts_with(rows), "{end:?} has {:?}, and {rows:?} were received", ends[end]);
            assert!(
                position + 1 == received.len() || rows.len() == ends[end].len(),
                "all of one conversation before any of the next"
            );
            let rest = received
                .iter()
                .skip(position)
                .map(|(end, _)| end)
                .chain(ends.keys().filter(|end| !names.contains(end)));
            let highest = rest.filter_map(priority).max();
            assert_eq!(highest, priority(end), "the higher priority first");
        }
        if let Some(ready) = ready {
            self.check_turn(group, receivable, ready);
        }
    }

    /// Whether it was this group's turn: the highest priority of a conversation with something to receive, then who of those has waited longest.
    fn check_turn(&self, group: &Rc<str>, receivable: &Receivable, ready: &[Message]) {
        let rank = |group: &Rc<str>| {
            let ends = &receivable[group];
            let is_receivable = |message: &&Message| {
                ends.iter().any(|(end, rows)| {
                    self.handles[end] == message.conversation_handle
                        && rows.iter().any(|row| {
                            row.number == message.message_sequence_number
                                && row.kind == short(&message.message_type_name)
                        })
                })
            };
            let rows: Vec<&Message> = ready.iter().filter(is_receivable).collect();
            let priority = rows.iter().map(|row| row.priority).max().expect("there is a row");
            let oldest = rows
                .iter()
                .filter(|row| row.priority == priority)
                .map(|row| row.queuing_order)
                .min()
                .expect("there is a row");
            (10 - priority, oldest)
        };
        let first = receivable.keys().min_by_key(|group| rank(group)).expect("there is a group");
        assert_eq!(group, first, "whose turn it was: {:?} against {:?}", rank(group), rank(first));
    }

    /// Messages by end, in the order in which the ends come.
    pub(super) fn in_order(&self, messages: &[Message]) -> Vec<(End, Vec<Row>)> {
        seen::in_order(&self.handles, messages)
    }

    pub(super) fn by_end(&self, messages: &[Message]) -> BTreeMap<End, Vec<Row>> {
        self.in_order(messages).into_iter().collect()
    }
}

//! `transmissionQueue`: what has been sent and is not where it should be, and why.

use std::rc::Rc;

use crate::archive::large_bodies;
use crate::body::Value;
use crate::clock::Instant;
use crate::conversation::{Conversation, Side};
use crate::ids::{Role, SideId};
use crate::message::{self, Class, Run, count, system};
use crate::stop::Outcome;
use crate::store::StoreName;
use crate::turn::{HeldTurn, OutgoingTurn};
use crate::verbs::is_local;
use crate::work::Work;

/// A row of the transmission queue, as `sys.transmission_queue` shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct TransmissionRow {
    /// The endpoint that sent it.
    pub conversation_handle: Rc<str>,
    /// To which service.
    pub to_service: Rc<str>,
    /// Of which broker, where that is known.
    pub to_broker: Option<Rc<str>>,
    /// From which service.
    pub from_service: Rc<str>,
    /// The contract.
    pub contract: Rc<str>,
    /// When it was sent.
    pub enqueue_time: Instant,
    /// Its number.
    pub message_sequence_number: u64,
    /// Its type.
    pub message_type: Rc<str>,
    /// Of the sending endpoint, 1 to 10.
    pub priority: u32,
    /// How often it was tried.
    pub attempts: u64,
    /// When it is tried next.
    pub next_attempt: Option<Instant>,
    /// Why it is still here; "" when it was not tried.
    pub transmission_status: Rc<str>,
    /// The body, and how it is packed.
    pub body: Value,
    /// See [`crate::body::Body`].
    pub packing: f64,
}

impl TransmissionRow {
    /// It is an Error.
    pub fn is_conversation_error(&self) -> bool {
        *self.message_type == *system::ERROR
    }

    /// It is an EndDialog.
    pub fn is_end_of_dialog(&self) -> bool {
        *self.message_type == *system::END_DIALOG
    }
}

/// Rows that wait because the queue of their target is off, then those that wait for their transmission.
pub(crate) fn transmission_queue(work: &mut Work<'_>, conversation: Option<&str>) -> Outcome<Vec<TransmissionRow>> {
    let wanted = match conversation {
        Some(handle) => match work.find(handle)? {
            Some((conversation, role)) => Some(conversation.id_of(role)),
            None => return Ok(Vec::new()),
        },
        None => None,
    };
    let is_wanted = |sender: SideId| wanted.is_none_or(|wanted| wanted == sender);
    let mut rows = Vec::new();
    // A queue that is not known here yet may hold something back.
    work.queue(crate::definitions::FIRST_QUEUE)?;
    let catalog = Rc::clone(&work.catalog);
    for queue in catalog.queues.values() {
        for turn in work.read_range(StoreName::Turns, HeldTurn::of_queue(queue.number), None, HeldTurn::read)? {
            let side = turn.side;
            let reason = format!("The queue \"{}\" of the target service is off.", queue.name).into();
            held(work, side, is_wanted, &reason, &mut rows)?;
            if is_wanted(side) {
                held_own(work, side, &reason, &mut rows)?;
            }
        }
    }
    for turn in work.read_range(StoreName::Turns, OutgoingTurn::all(), None, OutgoingTurn::read)? {
        let side = turn.side;
        if is_wanted(side) {
            outgoing(work, side, &mut rows)?;
        }
    }
    Ok(rows)
}

fn held(
    work: &mut Work<'_>,
    id: SideId,
    is_wanted: impl Fn(SideId) -> bool,
    reason: &Rc<str>,
    rows: &mut Vec<TransmissionRow>,
) -> Outcome<()> {
    let Some(conversation) = work.conversation(id.conversation)? else { return Ok(()) };
    let Some(side) = conversation.side(id.role) else { return Ok(()) };
    // Nobody but the lane itself stands for those who put something into it.
    let sender = if conversation.lane.is_some() { id.role } else { id.role.other() };
    if !is_wanted(conversation.id_of(sender)) {
        return Ok(());
    }
    let handle = conversation.handle(id.role);
    let runs = read_runs(work, id, Class::Received, side.visible_end(), last_run(side.next_expected));
    let runs = runs.map_err(|stop| stop.about(&handle))?;
    add(work, &conversation, sender, &runs, side.visible_end(), reason, rows)?;
    for row in side.system.iter().filter(|row| row.held && !row.own) {
        let runs = read_runs(work, id, Class::System, row.number, row.number);
        let runs = runs.map_err(|stop| stop.about(&handle))?;
        add(work, &conversation, sender, &runs, row.number, reason, rows)?;
    }
    Ok(())
}

/// What the broker itself has to tell the side is from the side, and to it.
fn held_own(work: &mut Work<'_>, id: SideId, reason: &Rc<str>, rows: &mut Vec<TransmissionRow>) -> Outcome<()> {
    let Some(conversation) = work.conversation(id.conversation)? else { return Ok(()) };
    let Some(side) = conversation.side(id.role) else { return Ok(()) };
    let first = rows.len();
    for row in side.system.iter().filter(|row| row.held && row.own) {
        let runs = read_runs(work, id, Class::System, row.number, row.number)?;
        add(work, &conversation, id.role, &runs, row.number, reason, rows)?;
    }
    rows.iter_mut().skip(first).for_each(|row| row.to_service = Rc::clone(&row.from_service));
    Ok(())
}

fn outgoing(work: &mut Work<'_>, id: SideId, rows: &mut Vec<TransmissionRow>) -> Outcome<()> {
    let Some(conversation) = work.conversation(id.conversation)? else { return Ok(()) };
    let Some((side, outgoing)) = conversation.side(id.role).and_then(|side| Some((side, side.outgoing.as_ref()?)))
    else {
        return Ok(());
    };
    let reason: Rc<str> = match &*outgoing.reason {
        "" if outgoing.handed > outgoing.acknowledged => "It was handed over, and has not been acknowledged.".into(),
        "" => match conversation.service(id.role.other()) {
            service if is_local(work, &conversation)? => {
                format!("The service \"{service}\" was defined meanwhile: it comes in.").into()
            }
            service if work.core.transmission.leads_to(service) => "".into(),
            service => format!("There is no service \"{service}\" here and no route to it.").into(),
        },
        reason => reason.into(),
    };
    let runs = read_runs(work, id, Class::Sent, outgoing.acknowledged, last_run(side.next_send));
    let runs = runs.map_err(|stop| stop.about(&conversation.handle(id.role)))?;
    add(work, &conversation, id.role, &runs, outgoing.acknowledged, &reason, rows)
}

/// The last number that the run of a number below `end` can have.
fn last_run(end: u64) -> u64 {
    end + count(message::RUN_ROWS)
}

/// The runs whose last number is from `from` to `to`, both included.
fn read_runs(work: &mut Work<'_>, id: SideId, class: Class, from: u64, to: u64) -> Outcome<Vec<Run>> {
    work.read_range(StoreName::Messages, message::keys_between(id, class, from, to), None, Run::read)
}

fn add(
    work: &mut Work<'_>,
    conversation: &Conversation,
    sender: Role,
    runs: &[Run],
    from: u64,
    reason: &Rc<str>,
    rows: &mut Vec<TransmissionRow>,
) -> Outcome<()> {
    let side: Option<&Side> = conversation.side(sender);
    let outgoing = side.and_then(|side| side.outgoing.as_ref());
    let base = conversation.lane.as_ref().map_or(0, |lane| lane.base);
    let large = large_bodies(work, runs)?;
    let places = runs.iter().flat_map(|run| (0..run.count).map(move |index| (run, index, run.first() + count(index))));
    for (run, index, number) in places.filter(|(.., number)| *number >= from) {
        let apart = large.iter().find(|(place, _)| *place == (run.class, number));
        rows.push(TransmissionRow {
            conversation_handle: conversation.handle(sender),
            to_service: Rc::clone(conversation.service(sender.other())),
            to_broker: conversation.far_broker.clone().or_else(|| conversation.to_broker.clone()),
            from_service: Rc::clone(conversation.service(sender)),
            contract: Rc::clone(&conversation.contract),
            enqueue_time: run.times.get(index).copied().unwrap_or_default(),
            message_sequence_number: (run.sequence + if run.class == Class::System { 0 } else { count(index) })
                .saturating_sub(base),
            message_type: run.columns.types.get(index).cloned().unwrap_or_else(|| "".into()),
            priority: side.map_or(5, |side| side.priority),
            attempts: outgoing.map_or(0, |outgoing| outgoing.attempts),
            next_attempt: outgoing.and_then(|outgoing| outgoing.retry_at),
            transmission_status: Rc::clone(reason),
            body: apart.map_or_else(|| run.columns.bodies.item(index), |(_, body)| body.clone()),
            packing: run.columns.packings.item(index).number().unwrap_or(0.0),
        });
    }
    Ok(())
}

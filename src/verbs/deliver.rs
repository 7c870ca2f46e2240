//! Delivery within this broker: to the far end at once, or when its service is defined at last.

use std::collections::VecDeque;
use std::rc::Rc;

use super::dropped::{HAS_ENDED, IS_GONE, drop_rows, drop_stored};
use crate::arrival;
use crate::body::Value;
use crate::conversation::{Conversation, Side, State};
use crate::definitions::FIRST_QUEUE;
use crate::due::{Due, DueKind};
use crate::error::Error;
use crate::ids::{Role, SideId};
use crate::mend::set_aside;
use crate::message::{Class, Row, Run, count, system};
use crate::reading::{missing, read_runs};
use crate::retention;
use crate::stop::{Outcome, Stop};
use crate::store::{Bound, Key, StoreName};
use crate::sweep;
use crate::turn::{self, OutgoingTurn};
use crate::waits;
use crate::work::Work;

/// So many endpoints that wait are looked at in one storage transaction, and so many of their runs come in.
const TURNS: u32 = 64;
const RUNS: u64 = 64;

/// Whether the target service is in this broker.
pub(crate) fn is_local(work: &mut Work<'_>, conversation: &Conversation) -> Outcome<bool> {
    let here =
        conversation.to_broker.as_deref().is_none_or(|broker| broker == "current" || *broker == *work.core.instance_id);
    // What a far broker has been told of is told to the end.
    let was_handed =
        |role| conversation.side(role).and_then(|side| side.outgoing.as_ref()).is_some_and(|sent| sent.handed > 0);
    if conversation.far_broker.is_some() || was_handed(Role::Initiator) || was_handed(Role::Target) {
        return Ok(false);
    }
    if here && !work.catalog.services.contains_key(&conversation.target_service) {
        work.queue(FIRST_QUEUE)?;
    }
    Ok(here && work.catalog.services.contains_key(&conversation.target_service))
}

/// Puts the messages straight into the queue of the far end, in the same broker.
pub(super) fn deliver(work: &mut Work<'_>, conversation: &mut Conversation, role: Role, rows: Vec<Row>) -> Outcome<()> {
    let far = role.other();
    let is_first = role == Role::Initiator
        && conversation.target.is_none()
        && conversation.side(role).is_some_and(|side| side.next_send == count(rows.len()));
    if is_first && !open_target(work, conversation)? {
        drop_rows(work, conversation, role, &rows, NOT_ACCEPTED);
        return refuse(work, conversation, role);
    }
    match conversation.side(far).map(|side| (side.state, side.service)) {
        Some((State::DisconnectedOutbound, service)) => {
            work.queue_of(service)?;
            drop_rows(work, conversation, role, &rows, HAS_ENDED);
        }
        Some(_) => arrival::arrive(work, conversation, far, rows, false)?,
        None => {
            drop_rows(work, conversation, role, &rows, IS_GONE);
            miss(work, conversation, role)?;
        }
    }
    Ok(())
}

const NOT_ACCEPTED: &str = "the target service does not accept the contract";

/// Makes the target endpoint, with a group and a priority of its own. False: the service does not accept the contract.
fn open_target(work: &mut Work<'_>, conversation: &mut Conversation) -> Outcome<bool> {
    let service = work.look_up(|catalog| catalog.service(&conversation.target_service))?;
    // Whoever reads the queue's record sees whether the service has changed.
    work.queue_of(service.number)?;
    if !service.contracts.contains(&conversation.contract) {
        return Ok(false);
    }
    let priority =
        work.catalog.priority(&conversation.contract, &conversation.target_service, &conversation.initiator_service);
    conversation.target = Some(Side::new(service.number, State::Conversing, priority, None));
    work.move_state(conversation, Role::Target, service.number, None, Some(State::Conversing))?;
    Ok(true)
}

/// The sender hears that the contract is not accepted.
fn refuse(work: &mut Work<'_>, conversation: &mut Conversation, role: Role) -> Outcome<()> {
    let description = format!(
        "The service \"{}\" does not accept the contract \"{}\".",
        conversation.target_service, conversation.contract
    );
    arrival::fail(work, conversation, role, -8409, &description)
}

/// The sender hears that nobody is there.
fn miss(work: &mut Work<'_>, conversation: &mut Conversation, role: Role) -> Outcome<()> {
    arrival::fail(work, conversation, role, -8462, "The far endpoint of the conversation is gone.")
}

/// Services are about to be defined: what waits for them comes in by a due row, so that a commit has a bounded share of it. A cursor goes over the
/// turns to transmit, and stays where a conversation has come in partly.
pub(crate) fn deliver_later(work: &mut Work<'_>) -> Outcome<()> {
    if !work.get_keys(StoreName::Turns, OutgoingTurn::all(), Some(1))?.is_empty() {
        let stamp = waits::begin(work)?;
        let due = Due { at: work.now, stamp, kind: DueKind::Delivery, number: 0 };
        work.put_due(&due, record(None));
    }
    Ok(())
}

fn record(cursor: Option<&Key>) -> Value {
    Value::list(vec![Value::from(1u32), cursor.map(Key::to_value).unwrap_or_default()])
}

/// The next share. Gives how many rows came in, and whether there is more.
pub(super) fn go_on(work: &mut Work<'_>, due: &Due) -> Outcome<(u64, bool)> {
    // The definitions are the present ones.
    work.queue(FIRST_QUEUE)?;
    let mut cursor = work.get(StoreName::Due, due.key())?.and_then(|record| Key::from_value(&record.item(1)));
    let mut range = OutgoingTurn::all();
    if let Some(cursor) = &cursor {
        range.lower = Bound::Excluding(cursor.clone());
    }
    let turns = work.get_keys(StoreName::Turns, range, Some(TURNS))?;
    let turns: Vec<Key> = turns.iter().filter_map(Key::from_value).collect();
    let mut rows = 0;
    let mut is_more = count(turns.len()) == u64::from(TURNS);
    for (turn, share) in turns.iter().zip(shares(work, &turns)?) {
        let is_done = match share {
            Share::Nothing => true,
            Share::Rows(arriving) => {
                let is_last = arriving.is_last;
                rows += come_in(work, arriving)?;
                is_last
            }
            // One that can't be mended is left where it is, and so is one that nothing came of: it would be met again for ever.
            Share::Unreadable(error) => {
                let effects = work.changes.effects;
                !set_aside(work, &error)? || work.changes.effects == effects
            }
            Share::Later => false,
        };
        if !is_done {
            is_more = true;
            break;
        }
        cursor = Some(turn.clone());
    }
    if is_more {
        work.put_due(due, record(cursor.as_ref()));
    }
    Ok((rows, is_more))
}

/// What comes in by one turn.
enum Share {
    Nothing,
    Rows(Arriving),
    Unreadable(Error),
    /// No more runs may come in.
    Later,
}

/// What comes in of one endpoint's messages.
struct Arriving {
    id: SideId,
    runs: VecDeque<Rc<Run>>,
    rows: Vec<Row>,
    /// Nothing of them is left behind.
    is_last: bool,
}

/// For each turn: what comes in by it. Everything is read together.
fn shares(work: &mut Work<'_>, turns: &[Key]) -> Outcome<Vec<Share>> {
    let sides: Vec<SideId> = turns.iter().filter_map(turn::side_of).collect();
    work.need(sides.iter().map(|side| side.conversation), [])?;
    let (mut shares, mut left, mut is_missing) = (Vec::new(), RUNS, false);
    for id in sides {
        if left == 0 {
            shares.push(Share::Later);
            break;
        }
        match Arriving::read(work, id, &mut left) {
            Err(Stop::Missing) => is_missing = true,
            Err(Stop::Failed(error)) if error.is_corrupt() => shares.push(Share::Unreadable(error)),
            rows => shares.push(rows?.map_or(Share::Nothing, Share::Rows)),
        }
    }
    if is_missing { Err(Stop::Missing) } else { Ok(shares) }
}

impl Arriving {
    fn read(work: &mut Work<'_>, id: SideId, left: &mut u64) -> Outcome<Option<Self>> {
        let Some(conversation) = work.conversation(id.conversation)? else { return Ok(None) };
        let Some(side) = conversation.side(id.role) else { return Ok(None) };
        let Some(outgoing) = side.outgoing.as_ref().filter(|outgoing| outgoing.turn.is_some()) else {
            return Ok(None);
        };
        if !is_local(work, &conversation)? {
            return Ok(None);
        }
        let limit = side.runs.clamp(1, *left);
        *left -= limit;
        let runs = read_runs(work, (id, Class::Sent), outgoing.acknowledged, limit)?;
        let (mut rows, mut next, mut is_missing, mut problem) = (Vec::new(), outgoing.acknowledged, false, None);
        'runs: for run in &runs {
            // The first of them may have come in, or been set aside, before the others.
            let Some(from) = next.checked_sub(run.first()).and_then(|from| usize::try_from(from).ok()) else { break };
            for index in from..run.count {
                match run.row(work, index) {
                    Ok(row) => rows.push(row),
                    // Those that are missing are read together.
                    Err(Stop::Missing) => is_missing = true,
                    Err(Stop::Failed(error)) if error.is_corrupt() => {
                        problem = Some(error);
                        break 'runs;
                    }
                    Err(stop) => return Err(stop),
                }
                next += 1;
            }
        }
        if is_missing {
            return Err(Stop::Missing);
        }
        if rows.is_empty() {
            // What comes before it can be had: it stops who comes next.
            return Err(problem.unwrap_or_else(|| missing((id, Class::Sent), next)).into());
        }
        let is_last = next >= side.next_send;
        Ok(Some(Self { id, runs, rows, is_last }))
    }
}

/// Messages that have waited for the target's service come in, in their order. Gives how many.
fn come_in(work: &mut Work<'_>, Arriving { id, runs, mut rows, .. }: Arriving) -> Outcome<u64> {
    let Some(mut conversation) = work.conversation(id.conversation)? else { return Ok(0) };
    let (role, far) = (id.role, id.role.other());
    let is_first = conversation.local.replace(true) == Some(false)
        && conversation.target.is_none()
        && conversation.side(role).and_then(|side| side.outgoing.as_ref()).is_some_and(|sent| sent.acknowledged == 0);
    let is_refused = is_first && !open_target(work, &mut conversation)?;
    let mut moved = 0;
    if let Some(state) = conversation.side(far).map(|side| side.state) {
        moved = count(rows.len());
        let kind = rows.last().map(|row| row.message_type.clone()).unwrap_or_else(|| "".into());
        if state == State::DisconnectedOutbound {
            rows.retain(|row| !system::is_system(&row.message_type));
            drop_rows(work, &conversation, role, &rows, HAS_ENDED);
        } else if &*kind == system::ERROR {
            // An END WITH ERROR has dropped everything before it.
            let sequence = runs.front().map_or(0, |run| run.sequence);
            for row in rows {
                arrival::arrive_error(work, &mut conversation, far, row, sequence)?;
            }
        } else {
            arrival::arrive(work, &mut conversation, far, rows, &*kind == system::END_DIALOG)?;
        }
        acknowledge(work, &mut conversation, role, &runs, moved)?;
    } else if conversation.side(role).is_some_and(|side| side.state == State::DisconnectedOutbound) {
        drop_outgoing(work, &mut conversation, role, if is_refused { NOT_ACCEPTED } else { IS_GONE })?;
    } else if is_refused {
        // What it has sent is held from then on, and goes with its END.
        refuse(work, &mut conversation, role)?;
    } else {
        miss(work, &mut conversation, role)?;
    }
    work.changes.notice.transmission = true;
    let waits =
        |side: &Side| side.outgoing.is_some() || conversation.side(far).is_some_and(|far| far.held_from_far() > 0);
    if conversation.side(role).is_some_and(|side| !waits(side)) {
        arrival::finish_outbound(work, &mut conversation, role)?;
    }
    work.save(conversation);
    Ok(moved)
}

/// Rows have arrived. Their runs go, unless they are copies, too.
fn acknowledge(
    work: &mut Work<'_>,
    conversation: &mut Conversation,
    role: Role,
    runs: &VecDeque<Rc<Run>>,
    moved: u64,
) -> Outcome<()> {
    let Some(side) = conversation.side_mut(role).as_mut() else { return Ok(()) };
    let service = side.service;
    let Some(outgoing) = &mut side.outgoing else { return Ok(()) };
    outgoing.acknowledged += moved;
    if outgoing.acknowledged >= side.next_send {
        side.outgoing = None;
    }
    for run in runs.iter().filter(|run| !side.needs(run)).collect::<Vec<_>>() {
        side.runs = side.runs.saturating_sub(1);
        retention::delete(work, run, side);
    }
    work.count(service, |counters| counters.outgoing = counters.outgoing.saturating_sub(moved))
}

/// What an endpoint that has ENDed has sent, and has not arrived, never will. Its last word is no loss: nobody is there to hear it.
pub(crate) fn drop_outgoing(
    work: &mut Work<'_>,
    conversation: &mut Conversation,
    role: Role,
    reason: &str,
) -> Outcome<()> {
    let id = conversation.id_of(role);
    let Some(side) = conversation.side_mut(role).as_mut() else { return Ok(()) };
    let (service, next) = (side.service, side.next_send);
    let Some(outgoing) = side.outgoing.take() else { return Ok(()) };
    let waiting = next.saturating_sub(outgoing.acknowledged);
    work.changes.drop_rows(|pending| pending.side == id && pending.class == Class::Sent);
    sweep::remove(work, id, side);
    if outgoing.turn.is_some() {
        work.count(service, |counters| counters.outgoing = counters.outgoing.saturating_sub(waiting))?;
    }
    drop_stored(work, conversation, role, (outgoing.acknowledged, waiting.saturating_sub(1)), reason);
    Ok(())
}

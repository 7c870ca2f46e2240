//! `dropService` and `dropQueue`.

use std::rc::Rc;

use super::alter::refuse_own;
use super::define::Defining;
use super::{ERROR_QUEUE, FIRST_QUEUE, QueueDefinition, ServiceDefinition};
use crate::conversation::{Conversation, State};
use crate::error::{Error, ErrorCode, Result};
use crate::ids::SideId;
use crate::map::Map;
use crate::membership;
use crate::queue::Queue;
use crate::stop::{Outcome, Stop};
use crate::transmission;
use crate::verbs::{End, EndError, EndOptions, drop_stored};
use crate::work::Work;

/// The code of the Error that the far sides get.
const SERVICE_DROPPED: f64 = -8_470.0;

/// `DROP SERVICE`: its endpoints are ENDed with an error, whatever they have left, and it is gone. Nothing is copied to the archive: who
/// wants that ENDs first.
pub(crate) fn drop_service(work: &mut Work<'_>, name: &str) -> Outcome<()> {
    // What the verbs before this one did is to be seen.
    work.after_others()?;
    work.queue(FIRST_QUEUE)?;
    let service = work.look_up(|catalog| catalog.service(name))?;
    refuse_own(work, &service, "dropped")?;
    refuse_rated(work, name)?;
    let queue = work.queue_of(service.number)?;
    let sides = sides_to_end(work, &service)?;

    for side in &sides {
        end(work, *side, name)?;
    }
    remove_closed(work, &sides)?;
    leave_to_queue(work, &service, &queue, &sides)?;
    let mut defining = Defining::from(&work.catalog);
    defining.drop_service(name);
    defining.finish(work)
}

/// `DROP QUEUE`, and its own service with it.
pub(crate) fn drop_queue(work: &mut Work<'_>, name: &str) -> Outcome<()> {
    // What the verbs before this one did is to be seen.
    work.after_others()?;
    work.queue(FIRST_QUEUE)?;
    let queue = work.look_up(|catalog| catalog.queue(name))?;
    if name == ERROR_QUEUE {
        return Err(Error::invalid_argument("name", "is the queue \"error\", which is always there").into());
    }
    if *name == *work.core.host.delayed.error_queue {
        let problem = "is the queue that this broker's failed messages go to, as `delayedDelivery.errorQueue` says";
        return Err(Error::invalid_argument("name", problem).into());
    }
    if let Some(service) = work.catalog.services_on(queue.number).find(|service| *service.name != *name) {
        let text = format!(
            "The service \"{}\" is on the queue \"{name}\". Move it to another queue with alterService, or drop it, first.",
            service.name
        );
        return Err(in_use(text).with("queue", name).with("service", &*service.name).into());
    }
    refuse_rated(work, name)?;
    let closed = |states: &[u64]| states.get(State::Closed.index()).copied().unwrap_or(0);
    let count = |states: &[u64]| states.iter().sum::<u64>();
    let finished = work.queue(queue.number)?.total(|counters| closed(&counters.states));
    let endpoints = work.queue(queue.number)?.total(|counters| count(&counters.states)).saturating_sub(finished);
    if endpoints > 0 {
        let text = format!(
            "The queue \"{name}\" still has {endpoints} conversation endpoints, of its own service or left by one that was dropped. END them first; lanes with unread messages, and those that wait for their transmission, WITH CLEANUP."
        );
        return Err(in_use(text).with("queue", name).with("conversations", crate::record::float(endpoints)).into());
    }
    if finished > 0 {
        let own = work.look_up(|catalog| catalog.service(name))?.number;
        let sides = work.sides_of(own)?;
        work.need(sides.iter().map(|side| side.conversation), [])?;
        remove_closed(work, &sides)?;
    }
    if let Some(at) = work.queue(queue.number)?.oldest_due {
        work.drop_due(&Queue::due(queue.number, at));
    }
    let mut defining = Defining::from(&work.catalog);
    defining.drop_service(name);
    defining.drop_queue(queue);
    defining.finish(work)
}

/// Endpoints that are shown although they are finished go at once: they are remembered without it.
fn remove_closed(work: &mut Work<'_>, sides: &[SideId]) -> Outcome<()> {
    for id in sides {
        let conversation = work.conversation(id.conversation)?;
        let is_closed = |found: &Conversation| found.side(id.role).is_some_and(|side| side.state == State::Closed);
        if let Some(mut conversation) = conversation.filter(|conversation| is_closed(conversation)) {
            transmission::remove(work, &mut conversation, id.role)?;
            work.save(conversation);
        }
    }
    Ok(())
}

fn in_use(text: String) -> Error {
    Error::new(ErrorCode::InUse, text)
}

/// A service that a priority rule names can't go.
fn refuse_rated(work: &Work<'_>, name: &str) -> Result<()> {
    let names = |service: &Option<Rc<str>>| service.as_deref() == Some(name);
    let rated =
        work.catalog.priorities.iter().find(|(_, rule)| names(&rule.local_service) || names(&rule.remote_service));
    let Some((priority, _)) = rated else { return Ok(()) };
    let text = format!("The priority \"{priority}\" names the service \"{name}\", so the service can't be dropped.");
    Err(in_use(text).with("service", name).with("priority", &**priority))
}

/// The endpoints of the service, once everything that ending them needs has been read and nobody else holds their groups: half of it can't
/// be done.
fn sides_to_end(work: &mut Work<'_>, service: &ServiceDefinition) -> Outcome<Vec<SideId>> {
    let sides = work.sides_of(service.number)?;
    let queues: Vec<u32> = work.catalog.queues.values().map(|queue| queue.number).collect();
    work.need(sides.iter().map(|side| side.conversation), queues)?;
    let mut groups: Map<Rc<str>, ()> = Map::default();
    for side in &sides {
        let Some(conversation) = work.conversation(side.conversation)? else { continue };
        work.lock(&conversation.group(side.role))?;
        let explicit = conversation.side(side.role).and_then(|side| side.group.clone());
        explicit.into_iter().for_each(|group| _ = groups.insert(group, ()));
    }
    let mut is_missing = false;
    for group in groups.keys() {
        match membership::read_ahead(work, group) {
            // Those that are missing are read together.
            Err(Stop::Missing) => is_missing = true,
            read => read?,
        }
    }
    if is_missing { Err(Stop::Missing) } else { Ok(sides) }
}

/// END WITH ERROR. One that has ended already goes on telling the far side so.
fn end(work: &mut Work<'_>, side: SideId, service: &str) -> Outcome<()> {
    let conversation = work.conversation(side.conversation)?;
    let Some(conversation) =
        conversation.filter(|conversation| conversation.side(side.role).is_some_and(|side| side.state.may_end()))
    else {
        return Ok(());
    };
    if let Some(left) = conversation.side(side.role) {
        let unread = (left.cursor, left.unread + left.held_count());
        drop_stored(work, &conversation, side.role.other(), unread, "the service that it was sent to was dropped");
    }
    let handle = conversation.handle(side.role);
    let description = format!("The service \"{service}\" was dropped.");
    let error = Some(EndError { code: SERVICE_DROPPED, description });
    let options = EndOptions { error, archive: Some(false), ..EndOptions::default() };
    End { handle, options }.run(work).map(drop)
}

/// What waits to be told to far sides keeps its endpoint, in state DO, and has no row in any queue. The queue's own service takes it over.
fn leave_to_queue(
    work: &mut Work<'_>,
    service: &ServiceDefinition,
    queue: &QueueDefinition,
    sides: &[SideId],
) -> Outcome<()> {
    let own = work.look_up(|catalog| catalog.service(&queue.name))?.number;
    for id in sides {
        let Some(mut conversation) = work.conversation(id.conversation)? else { continue };
        let Some(side) = conversation.side_mut(id.role) else { continue };
        side.service = own;
        work.save(conversation);
    }
    work.change_queue(queue.number, |queue| {
        if let Some(left) = queue.services.remove(&service.number) {
            queue.count(own, |counters| counters.add(&left));
        }
    });
    Ok(())
}

//! The model: what was sent and what has come, conversation by conversation. Of what nobody knows whether it happened it believes either.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use pocket_broker::message::system;
use pocket_broker::{ConversationInfo, Message};

use super::world::{SOUR, place_of};
use crate::origin::{Kind, Violation};

/// Ends that applications still think of, in each broker.
const WELL_KNOWN: usize = 8;

pub(crate) const INITIATOR: usize = 0;
pub(crate) const TARGET: usize = 1;

/// What is known of a call or a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Done,
    Not,
    Unknown,
}

/// How an end was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Plain,
    Error,
    Cleanup,
}

/// One end of a conversation.
#[derive(Clone, Debug)]
pub(crate) struct End {
    pub(crate) conversation: Rc<str>,
    pub(crate) role: usize,
    pub(crate) handle: Rc<str>,
}

#[derive(Debug)]
struct Sent {
    issued: u64,
    /// When it was known that it had happened.
    done: Option<u64>,
    fate: Fate,
    is_delayed: bool,
}

/// What one side has sent, and what of it the other has received.
#[derive(Debug, Default)]
struct Half {
    sent: BTreeMap<String, Sent>,
    received: Vec<(u64, String)>,
    /// Numbers that may have been received, and how many commits nobody knows of had them.
    perhaps: BTreeMap<u64, u32>,
    /// The next number that has to come.
    next: u64,
    /// The latest call that something was sent by which has come.
    latest: u64,
    /// Its EndDialog or Error has come.
    has_end: bool,
    /// This side has ended, or may have.
    ended: Option<How>,
    /// Before it had the end of the other.
    is_early: bool,
}

#[derive(Debug)]
struct Talk {
    places: [usize; 2],
    initiator: Rc<str>,
    /// Something may cut it short that no application does: a lifetime, a body that is refused, a service that is not there.
    is_cut: bool,
    sides: [Half; 2],
}

/// What a reader has got, and not yet committed.
pub(crate) struct Reading(Vec<Taken>);

/// One message of it.
struct Taken {
    conversation: Rc<str>,
    /// The side that has sent it.
    sender: usize,
    number: u64,
    /// `None`: it is an EndDialog or an Error.
    body: Option<String>,
    is_error: bool,
}

pub(crate) struct Ledger {
    talks: BTreeMap<Rc<str>, Talk>,
    ends: Vec<Vec<End>>,
    clock: u64,
    bodies: u64,
    dropped: BTreeSet<(usize, Rc<str>)>,
    /// How many bodies have come.
    pub(crate) received: usize,
}

type Checked = Result<(), Violation>;

fn wrong(kind: Kind, text: String) -> Checked {
    Err(Violation { kind, text })
}

impl Ledger {
    pub(crate) fn new(places: usize) -> Self {
        Self {
            talks: BTreeMap::new(),
            ends: vec![Vec::new(); places],
            clock: 0,
            bodies: 0,
            dropped: BTreeSet::new(),
            received: 0,
        }
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// A body that no other message has.
    pub(crate) fn body(&mut self) -> String {
        self.bodies += 1;
        self.bodies.to_string()
    }

    pub(crate) fn begin(&mut self, info: &ConversationInfo, is_cut: bool) -> End {
        let places = [place_of(&info.service), place_of(&info.far_service)];
        let (initiator, sides) = (Rc::clone(&info.handle), Default::default());
        self.talks.insert(Rc::clone(&info.conversation_id), Talk { places, initiator, is_cut, sides });
        self.learn(places[INITIATOR], &info.conversation_id, INITIATOR, &info.handle)
    }

    fn learn(&mut self, place: usize, conversation: &Rc<str>, role: usize, handle: &Rc<str>) -> End {
        let end = End { conversation: Rc::clone(conversation), role, handle: Rc::clone(handle) };
        let known = &mut self.ends[place];
        if !known.iter().any(|other| other.handle == *handle) {
            known.push(end.clone());
        }
        end
    }

    /// Ends that a broker has, or has had lately.
    pub(crate) fn ends_of(&self, place: usize) -> Vec<End> {
        let ends = &self.ends[place];
        ends[ends.len().saturating_sub(WELL_KNOWN)..].to_vec()
    }

    pub(crate) fn end_of(&mut self, message: &Message) -> Option<End> {
        if *message.message_type_name == *system::ERROR {
            // Nobody was told that it was begun, and its lifetime is over.
            let own = place_of(&message.service_name);
            let unheard = || Talk {
                places: [own, own],
                initiator: Rc::clone(&message.conversation_handle),
                is_cut: true,
                sides: Default::default(),
            };
            self.talks.entry(Rc::clone(&message.conversation_id)).or_insert_with(unheard);
        }
        let talk = self.talks.get(&message.conversation_id)?;
        let role = if talk.initiator == message.conversation_handle { INITIATOR } else { TARGET };
        let place = talk.places[role];
        Some(self.learn(place, &message.conversation_id, role, &message.conversation_handle))
    }

    fn half(&mut self, conversation: &str, role: usize) -> &mut Half {
        &mut self.talks.get_mut(conversation).expect("it was begun").sides[role]
    }

    // ── what is sent ──

    /// A call that sends is made, or a commit.
    pub(crate) fn issue(&mut self, end: &End, body: &str, is_delayed: bool) {
        let issued = self.tick();
        let sent = Sent { issued, done: None, fate: Fate::Unknown, is_delayed };
        self.half(&end.conversation, end.role).sent.insert(body.to_owned(), sent);
    }

    /// What is sent is going to be refused, if it leaves its broker.
    pub(crate) fn issue_sour(&mut self, end: &End) -> bool {
        let talk = self.talks.get_mut(&end.conversation).expect("it was begun");
        let leaves = talk.places[INITIATOR] != talk.places[TARGET];
        talk.is_cut |= leaves;
        leaves
    }

    pub(crate) fn resolve(&mut self, end: &End, body: &str, fate: Fate) {
        let done = self.tick();
        if let Some(sent) = self.half(&end.conversation, end.role).sent.get_mut(body) {
            (sent.fate, sent.done) = (fate, (fate == Fate::Done).then_some(done));
        }
    }

    /// An END is asked for. `knows`: with the end of the other side in its hands.
    pub(crate) fn end(&mut self, end: &End, how: How, knows: bool) {
        let knows = knows || self.half(&end.conversation, 1 - end.role).has_end;
        let half = self.half(&end.conversation, end.role);
        half.is_early |= !knows;
        // Another attempt comes too late.
        if half.ended.is_none() || how != How::Plain {
            half.ended = Some(how);
        }
    }

    // ── what comes ──

    /// A reader has got messages. Nobody gets what somebody has received.
    pub(crate) fn read(&mut self, messages: &[Message]) -> Result<Reading, Violation> {
        let mut reading = Vec::new();
        for message in messages {
            let Some(end) = self.end_of(message) else {
                return Err(Violation { kind: Kind::Unexplained, text: format!("nobody has begun {message:?}") });
            };
            let (sender, number) = (1 - end.role, message.message_sequence_number);
            let body = match &*message.message_type_name {
                system::ERROR | system::END_DIALOG => None,
                _ => Some(message.body.text().unwrap_or_default()),
            };
            let is_error = *message.message_type_name == *system::ERROR;
            if self.dropped.contains(&(self.talks[&end.conversation].places[end.role], Rc::clone(&message.message_id)))
            {
                return Err(Violation { kind: Kind::Revived, text: format!("it was said to be dropped: {message:?}") });
            }
            let half = self.half(&end.conversation, sender);
            if let Some(body) = &body {
                if let Some((other, _)) = half.received.iter().find(|(_, other)| other == body) {
                    let text = format!("{} of {} was received as {other}: {message:?}", body, end.conversation);
                    return Err(Violation { kind: Kind::Twice, text });
                }
                let is_sent = half.sent.get(body).is_some_and(|sent| sent.fate != Fate::Not);
                if !is_sent || *message.message_type_name == *SOUR {
                    return Err(Violation { kind: Kind::Unexplained, text: format!("nobody has sent {message:?}") });
                }
            }
            reading.push(Taken { conversation: Rc::clone(&end.conversation), sender, number, body, is_error });
        }
        Ok(Reading(reading))
    }

    /// The reader's commit is asked for: from now on it may have happened.
    pub(crate) fn issue_reading(&mut self, reading: &Reading) {
        for Taken { conversation, sender, number, is_error, .. } in &reading.0 {
            if !is_error {
                *self.half(conversation, *sender).perhaps.entry(*number).or_default() += 1;
            }
        }
    }

    pub(crate) fn resolve_reading(&mut self, reading: Reading, fate: Fate) -> Checked {
        if fate == Fate::Unknown {
            return Ok(());
        }
        for Taken { conversation, sender, number, body, is_error } in reading.0 {
            let is_body = body.is_some();
            let half = self.half(&conversation, sender);
            if !is_error && let Some(count) = half.perhaps.get_mut(&number) {
                *count -= 1;
                if *count == 0 {
                    half.perhaps.remove(&number);
                }
            }
            if fate == Fate::Not {
                continue;
            }
            half.has_end |= !is_body;
            if is_error {
                continue;
            }
            half.receive(&conversation, number, body)?;
            self.received += usize::from(is_body);
        }
        Ok(())
    }

    /// A broker says that a message that came goes nowhere.
    pub(crate) fn note_dropped(&mut self, place: usize, id: &str) {
        self.dropped.insert((place, id.into()));
    }

    // ── at the end ──

    /// Whether the end of the other side has been received, or may have been: nothing more is to be read.
    pub(crate) fn has_heard_all(&self, place: usize, handle: &str) -> bool {
        let end = self.ends[place].iter().find(|end| *end.handle == *handle);
        end.is_none_or(|end| {
            let half = &self.talks[&end.conversation].sides[1 - end.role];
            half.has_end || !half.perhaps.is_empty()
        })
    }

    /// Everything that was sent in a direction that nobody has cut short has come.
    pub(crate) fn check_all(&self) -> Checked {
        for (conversation, talk) in &self.talks {
            for role in [INITIATOR, TARGET] {
                let (half, other) = (&talk.sides[role], &talk.sides[1 - role]);
                let is_short = talk.is_cut || other.is_early || matches!(half.ended, Some(How::Error | How::Cleanup));
                // What is delayed its END takes along.
                let is_meant = |sent: &Sent| sent.fate == Fate::Done && (!sent.is_delayed || half.ended.is_none());
                let unknown = half.perhaps.len();
                let missing: Vec<_> = half
                    .sent
                    .iter()
                    .filter(|(body, sent)| is_meant(sent) && !half.received.iter().any(|(_, other)| other == *body))
                    .collect();
                if !is_short && missing.len() > unknown {
                    let text = format!("of {conversation}, side {role}, {missing:?} never came: {talk:#?}");
                    return wrong(Kind::Lost, text);
                }
            }
        }
        Ok(())
    }

    /// How many conversations nobody and nothing has cut short.
    pub(crate) fn whole(&self) -> usize {
        let is_whole = |talk: &&Talk| {
            !talk.is_cut
                && talk
                    .sides
                    .iter()
                    .all(|side| !side.is_early && !matches!(side.ended, Some(How::Error | How::Cleanup)))
        };
        self.talks.values().filter(is_whole).count()
    }

    pub(crate) fn talks(&self) -> usize {
        self.talks.len()
    }
}

impl Half {
    /// The next one: no number is passed over that was not received, and nothing comes before what was sent before it.
    fn receive(&mut self, conversation: &str, number: u64, body: Option<String>) -> Checked {
        if number < self.next {
            return wrong(
                Kind::OutOfOrder,
                format!("{number} of {conversation} comes behind {}: {self:#?}", self.next),
            );
        }
        if let Some(missing) = (self.next..number).find(|missing| !self.perhaps.contains_key(missing)) {
            return wrong(Kind::OutOfOrder, format!("{number} of {conversation} comes before {missing}: {self:#?}"));
        }
        self.next = number + 1;
        self.perhaps.remove(&number);
        let Some(body) = body else { return Ok(()) };
        let Some(sent) = self.sent.get(&body) else { return Ok(()) };
        if !sent.is_delayed {
            if sent.done.is_some_and(|done| done < self.latest) {
                return wrong(Kind::OutOfOrder, format!("{body} of {conversation} was sent earlier: {self:#?}"));
            }
            self.latest = self.latest.max(sent.issued);
        }
        self.received.push((number, body));
        Ok(())
    }
}

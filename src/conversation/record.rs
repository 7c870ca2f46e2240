//! The record of a conversation, field by field.

use std::rc::Rc;

use super::{Ahead, Conversation, Held, Interval, Outgoing, Side, State, System, SystemRow, Timer};
use crate::body::Value;
use crate::clock::Instant;
use crate::error::Result;
use crate::error_queue::FailedAt;
use crate::ids::Bits;
use crate::lane::{LaneKey, Place};
use crate::message::Class;
use crate::poison::Trial;
use crate::record::{self, Fields, Read, Unreadable};
use crate::recoverability::Retry;
use crate::store::{Key, StoreName};

impl Conversation {
    /// Reads the record with this key.
    pub(crate) fn from_record(number: u64, value: &Value) -> Result<Box<Self>> {
        Self::read(number, value)
            .map(Box::new)
            .map_err(|problem| problem.at(StoreName::Conversations, &Key::from(record::float(number))))
    }

    fn read(number: u64, record: &Value) -> Read<Self> {
        let mut fields = Fields::open(record)?;
        if fields.number()? != number {
            return Err(Unreadable::Field("its number is not its key"));
        }
        Ok(Self {
            number,
            bits: Bits::from_halves(fields.number()?, fields.number()?),
            id: fields.text()?,
            contract: fields.text()?,
            created_at: fields.float()?,
            lifetime: read_lifetime(&fields.any())?,
            initiator_service: fields.text()?,
            target_service: fields.text()?,
            to_broker: fields.optional_text()?,
            far_broker: fields.optional_text()?,
            local: fields.any().boolean(),
            initiator: read_side(&fields.any())?,
            target: read_side(&fields.any())?,
            reuse: fields.optional_text()?,
            lane: read_lane(&fields.any())?,
            closes: fields.any().number().zip(fields.optional_number()?),
        })
    }

    /// What a record that can't be read still says of the endpoints of a dialog: its head, without what they had. They are in state ER.
    pub(crate) fn salvage(number: u64, record: &Value) -> Option<Box<Self>> {
        let read = || -> Read<Option<Self>> {
            let mut fields = Fields::open(record)?;
            let is_its = fields.number()? == number;
            let mut conversation = Self {
                number,
                bits: Bits::from_halves(fields.number()?, fields.number()?),
                id: fields.text()?,
                contract: fields.text()?,
                created_at: fields.float()?,
                lifetime: {
                    let _over = fields.any();
                    None
                },
                initiator_service: fields.text()?,
                target_service: fields.text()?,
                to_broker: fields.any().text().map(Rc::from),
                far_broker: fields.any().text().map(Rc::from),
                local: fields.any().boolean(),
                initiator: None,
                target: None,
                reuse: None,
                lane: None,
                closes: None,
            };
            let (initiator, target) = (fields.any(), fields.any());
            // Whoever has received from the one that was there comes too late.
            let failed = |there: bool| there.then(|| Side { fence: 1, ..Side::new(0, State::Error, 5, None) });
            // The end of a lane is alone, and one that was never reached is not here.
            conversation.initiator = failed(!initiator.is_null());
            let is_both = conversation.local == Some(true) && conversation.initiator.is_some();
            conversation.target = failed(
                !target.is_null()
                    && (is_both || (conversation.local == Some(false) && conversation.far_broker.is_some())),
            );
            Ok(Some(conversation).filter(|conversation| is_its && !conversation.is_gone()))
        };
        read().unwrap_or(None).map(Box::new)
    }

    pub(crate) fn record(&self) -> Value {
        let (high, low) = self.bits.halves();
        let lifetime =
            self.lifetime.map_or_else(Value::null, |(at, stamp)| Value::list(vec![Value::from(at), optional(stamp)]));
        let side = |side: &Option<Side>| side.as_ref().map_or_else(Value::null, Side::record);
        let mut conversation = vec![
            Value::from(1u32),
            record::value(self.number),
            record::value(high),
            record::value(low),
            Value::from(&*self.id),
            Value::from(&*self.contract),
            Value::from(self.created_at),
            lifetime,
            Value::from(&*self.initiator_service),
            Value::from(&*self.target_service),
            record::optional(self.to_broker.as_deref()),
            record::optional(self.far_broker.as_deref()),
            self.local.map_or_else(Value::null, Value::from),
            side(&self.initiator),
            side(&self.target),
            record::optional(self.reuse.as_deref()),
            self.lane.as_ref().map_or_else(Value::null, |lane| {
                let failed = lane.failed.as_ref().map_or_else(Value::null, |failed| failed.record());
                Value::list(vec![lane.key.record(), record::value(lane.base), failed])
            }),
        ];
        if let Some((at, stamp)) = self.closes {
            conversation.extend([Value::from(at), record::value(stamp)]);
        }
        Value::list(conversation)
    }
}

fn read_lane(value: &Value) -> Read<Option<Place>> {
    if !value.is_list() {
        return Ok(None);
    }
    let mut fields = Fields::part(value)?;
    Ok(Some(Place {
        key: LaneKey::read(&fields.any())?,
        base: fields.number()?,
        failed: FailedAt::read(&fields.any())?.map(Rc::new),
    }))
}

fn read_lifetime(value: &Value) -> Read<Option<(Instant, Option<u64>)>> {
    if !value.is_list() {
        return Ok(None);
    }
    let mut fields = Fields::part(value)?;
    Ok(Some((fields.float()?, fields.optional_number()?)))
}

impl Side {
    fn record(&self) -> Value {
        let intervals = |list: &[Interval]| {
            Value::list(
                list.iter().flat_map(|interval| [record::value(interval.from), record::value(interval.to)]).collect(),
            )
        };
        let system = |row: &SystemRow| {
            Value::list(vec![
                Value::from(row.kind.number()),
                record::value(row.number),
                Value::from(row.held),
                Value::from(row.own),
            ])
        };
        let mut side = vec![
            Value::from(self.service),
            record::value(u64::try_from(self.state.index()).unwrap_or_default()),
            Value::from(self.priority),
            record::optional(self.group.as_deref()),
        ];
        side.extend(
            [self.next_send, self.next_expected, self.cursor, self.unread, self.kept, self.copies, self.parked]
                .map(record::value),
        );
        side.extend([
            intervals(&self.kept_intervals),
            intervals(&self.copied_intervals),
            Value::list(self.system.iter().map(system).collect()),
        ]);
        side.extend([record::value(self.next_system), optional(self.turn)]);
        side.push(
            self.held
                .map_or_else(Value::null, |held| Value::list(vec![record::value(held.from), Value::from(held.ends)])),
        );
        side.push(optional(self.held_turn));
        side.extend([self.fence, self.runs, self.first_order, self.last_order].map(record::value));
        side.extend([Value::from(self.has_bodies), Value::from(self.has_group_state)]);
        side.push(self.outgoing.as_ref().map_or_else(Value::null, Outgoing::record));
        side.push(Value::list(self.timers.iter().map(Timer::record).collect()));
        side.push(self.trial.record());
        side.push(self.retry.as_ref().map_or_else(Value::null, |retry| retry.record()));
        let is_ahead = self.ahead != Ahead::default();
        if self.delayed > 0 || is_ahead {
            side.push(record::value(self.delayed));
        }
        if is_ahead {
            side.push(self.ahead.record());
        }
        Value::list(side)
    }
}

fn read_side(value: &Value) -> Read<Option<Side>> {
    if value.is_null() || value.is_undefined() {
        return Ok(None);
    }
    let mut fields = Fields::part(value)?;
    let service = fields.small()?;
    let state = usize::try_from(fields.number()?)
        .ok()
        .and_then(|index| State::ALL.get(index).copied())
        .ok_or(Unreadable::Field("an unknown state"))?;
    let mut side = Side::new(service, state, fields.small()?, fields.optional_text()?);
    for number in [
        &mut side.next_send,
        &mut side.next_expected,
        &mut side.cursor,
        &mut side.unread,
        &mut side.kept,
        &mut side.copies,
        &mut side.parked,
    ] {
        *number = fields.number()?;
    }
    side.kept_intervals = read_intervals(&fields.any())?;
    side.copied_intervals = read_intervals(&fields.any())?;
    side.system = fields.list()?.iter().map(read_system).collect::<Read<_>>()?;
    side.next_system = fields.number()?;
    side.turn = fields.optional_number()?;
    side.held = read_held(&fields.any())?;
    side.held_turn = fields.optional_number()?;
    for number in [&mut side.fence, &mut side.runs, &mut side.first_order, &mut side.last_order] {
        *number = fields.number()?;
    }
    side.has_bodies = fields.flag()?;
    side.has_group_state = fields.flag()?;
    side.outgoing = Outgoing::read(&fields.any())?;
    side.timers = fields.list()?.iter().map(Timer::read).collect::<Read<_>>()?;
    side.trial = Trial::read(&fields.any())?;
    side.retry = Retry::read(&fields.any())?.map(Box::new);
    side.delayed = fields.optional_number()?.unwrap_or(0);
    side.ahead = Ahead::read(&fields.any())?;
    Ok(Some(side))
}

fn read_intervals(value: &Value) -> Read<Vec<Interval>> {
    let mut fields = Fields::part(value)?;
    (0..value.len() / 2).map(|_| Ok(Interval { from: fields.number()?, to: fields.number()? })).collect()
}

fn read_system(value: &Value) -> Read<SystemRow> {
    let mut fields = Fields::part(value)?;
    Ok(SystemRow {
        kind: System::from_number(fields.number()?)?,
        number: fields.number()?,
        held: fields.flag()?,
        own: fields.flag()?,
    })
}

impl System {
    fn number(self) -> u32 {
        match self {
            Self::DialogTimer => 0,
            Self::Error => 1,
            Self::Returned => 2,
        }
    }

    fn from_number(number: u64) -> Read<Self> {
        match number {
            0 => Ok(Self::DialogTimer),
            1 => Ok(Self::Error),
            2 => Ok(Self::Returned),
            other => Err(Unreadable::Format(other)),
        }
    }
}

fn read_held(value: &Value) -> Read<Option<Held>> {
    if !value.is_list() {
        return Ok(None);
    }
    let mut fields = Fields::part(value)?;
    Ok(Some(Held { from: fields.number()?, ends: fields.flag()? }))
}

fn optional(number: Option<u64>) -> Value {
    number.map_or_else(Value::null, record::value)
}

impl Timer {
    fn record(&self) -> Value {
        Value::list(vec![Value::from(&*self.name), Value::from(self.at), record::value(self.stamp)])
    }

    fn read(value: &Value) -> Read<Self> {
        let mut fields = Fields::part(value)?;
        Ok(Self { name: fields.text()?, at: fields.float()?, stamp: fields.number()? })
    }
}

impl Trial {
    fn record(self) -> Value {
        if self == Self::default() {
            return Value::null();
        }
        Value::list([self.epoch, self.rollbacks, self.unfinished].map(record::value).to_vec())
    }

    fn read(value: &Value) -> Read<Self> {
        if !value.is_list() {
            return Ok(Self::default());
        }
        let mut fields = Fields::part(value)?;
        Ok(Self { epoch: fields.number()?, rollbacks: fields.number()?, unfinished: fields.number()? })
    }
}

impl Retry {
    fn record(&self) -> Value {
        let (class, number) = self.row;
        Value::list(vec![
            Value::from(class == Class::System),
            record::value(number),
            record::value(self.attempts),
            record::value(self.postponed),
            self.until.map_or_else(Value::null, |(at, _)| Value::from(at)),
            optional(self.until.map(|(_, stamp)| stamp)),
            record::optional(self.error.as_deref()),
        ])
    }

    fn read(value: &Value) -> Read<Option<Self>> {
        if !value.is_list() {
            return Ok(None);
        }
        let mut fields = Fields::part(value)?;
        let class = if fields.flag()? { Class::System } else { Class::Received };
        Ok(Some(Self {
            row: (class, fields.number()?),
            attempts: fields.number()?,
            postponed: fields.number()?,
            until: fields.any().number().zip(fields.optional_number()?),
            error: fields.optional_text()?,
        }))
    }
}

impl Outgoing {
    fn record(&self) -> Value {
        let time = |time: Option<Instant>| time.map_or_else(Value::null, Value::from);
        Value::list(vec![
            record::value(self.acknowledged),
            time(self.turn),
            record::value(self.attempts),
            time(self.retry_at),
            Value::from(&*self.reason),
            record::value(self.handed),
            record::value(self.accepted),
            time(self.offer_again_at),
            Value::from(self.is_confirmed),
            record::optional(self.via.as_deref()),
            Value::from(self.is_last_word),
        ])
    }

    fn read(value: &Value) -> Read<Option<Self>> {
        if !value.is_list() {
            return Ok(None);
        }
        let mut fields = Fields::part(value)?;
        Ok(Some(Self {
            acknowledged: fields.number()?,
            turn: fields.any().number(),
            attempts: fields.number()?,
            retry_at: fields.any().number(),
            reason: fields.text()?,
            handed: fields.optional_number()?.unwrap_or_default(),
            accepted: fields.optional_number()?.unwrap_or_default(),
            offer_again_at: fields.any().number(),
            is_confirmed: fields.any().boolean() == Some(true),
            via: fields.optional_text()?,
            is_last_word: fields.any().boolean() == Some(true),
        }))
    }
}

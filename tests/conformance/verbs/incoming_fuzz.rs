//! Whatever is delivered, nothing panics, nothing is thrown, and nothing is done by half.

use std::rc::Rc;

use pocket_broker::body::{Body, Value};
use pocket_broker::definitions::Status;
use pocket_broker::message::system;
use pocket_broker::{DeliverContext, Delivery, GivenBody, GivenEnvelope, ReceiveOptions};

use super::super::support::Bench;
use super::super::support::chance::Chance;
use super::super::support::far::{FAR, Far, STRANGER};
use super::super::support::host::block_on;
use super::super::support::shop::{Shop, keyed, with_error};

const TEXTS: [&str; 14] = [
    "",
    "message",
    "acknowledgement",
    "Order",
    "Note",
    "Confirm",
    "Kitchen",
    "kitchen",
    "Desk",
    "Ordering",
    FAR,
    STRANGER,
    system::END_DIALOG,
    system::ERROR,
];
const FIELDS: [&str; 15] = [
    "v",
    "kind",
    "messageId",
    "conversationId",
    "fromInitiator",
    "sequence",
    "fromService",
    "fromBroker",
    "toService",
    "toBroker",
    "contract",
    "messageType",
    "lifetime",
    "headers",
    "__proto__",
];
const NUMBERS: [f64; 12] = [
    0.0,
    1.0,
    2.0,
    -1.0,
    0.5,
    1_001.0,
    9_007_199_254_740_991.0,
    1e308,
    -0.0,
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
];

/// Any JSON, and what JSON can't say.
fn value(chance: &mut Chance, depth: usize) -> Value {
    let name = |chance: &mut Chance| -> Rc<str> { FIELDS[chance.below(FIELDS.len())].into() };
    match chance.below(if depth > 3 { 6 } else { 9 }) {
        0 => Value::undefined(),
        1 => Value::null(),
        2 => Value::from(chance.one_in(2)),
        3 => Value::from(NUMBERS[chance.below(NUMBERS.len())]),
        4 => Value::from(TEXTS[chance.below(TEXTS.len())]),
        5 => Value::from(&*"🍲".repeat(chance.below(200))),
        6 => Value::from_bytes(&[1, 2, 3]),
        7 => Value::list((0..chance.below(4)).map(|_| value(chance, depth + 1)).collect()),
        _ => Value::Object((0..chance.below(6)).map(|_| (name(chance), value(chance, depth + 1))).collect()),
    }
}

fn body(chance: &mut Chance) -> GivenBody {
    let size = [0.0, 64.0, 70_000.0, 3_000_000.0, 5_000_000.0, f64::NAN][chance.below(6)];
    match chance.below(12) {
        0 => GivenBody::Malformed("`body` is a knot".into()),
        1 => GivenBody::TooLarge(size),
        2 => GivenBody::Invalid("too salty".into()),
        3 => GivenBody::Unchecked("nobody can tell".into()),
        4 => GivenBody::Fine(Body::none()),
        5 => GivenBody::Fine(Body { value: value(chance, 0).into(), packing: 0, size }),
        _ => GivenBody::Fine(Body::small("soup".into())),
    }
}

/// One of a conversation, now and then with something else in some of its fields.
fn envelope(shop: &Shop, chance: &mut Chance, count: u32) -> GivenEnvelope {
    let far = Far::begins(shop, chance.below(count as usize) as u32);
    let number = if chance.one_in(20) { 1_200 } else { chance.below(9) as u32 };
    let types = ["Order", "Note", "Note", "Note", "Confirm", "Bill"];
    let mut made = match chance.below(12) {
        0 => far.end_dialog(number),
        1 => far.error(number, 42),
        2 => far.acknowledges(number),
        3 => far.message(number, types[chance.below(types.len())], "x").with_body(body(chance)),
        _ => far.message(number, if number == 0 { "Order" } else { "Note" }, "x"),
    };
    for _ in 0..[0, 0, 0, 1, 1, 2][chance.below(6)] {
        let field = FIELDS[chance.below(FIELDS.len())];
        made = if chance.one_in(4) { made.without(field) } else { made.with(field, value(chance, 0)) };
    }
    made.given()
}

/// What the database says of itself, but for what is only numbered.
async fn look(shop: &Shop) -> (Vec<String>, Vec<String>, Vec<String>) {
    let ends = shop.endpoints(Default::default()).await;
    let mut rows = shop.rows("kitchen").await;
    rows.extend(shop.rows("counter").await);
    (ends.iter().map(|end| format!("{end:?}")).collect(), rows, shop.outside().await)
}

async fn run(seed: u64, seen: &mut [usize; 4]) {
    let chance = &mut Chance(seed);
    let shop = &Shop::open(Bench::memory()).await;
    shop.retain("kitchen", chance.one_in(2)).await;
    for round in 0..40 {
        let given: Vec<GivenEnvelope> = (0..=chance.below(12))
            .map(|_| match chance.below(8) {
                0 => GivenEnvelope { fields: value(chance, 0), body: body(chance) },
                _ => envelope(shop, chance, 8),
            })
            .collect();
        let context = DeliverContext {
            from: chance.one_in(3).then(|| FAR.into()),
            via: chance.one_in(4).then(|| vec![["*", "Desk"][chance.below(2)].into()]),
        };
        let before = (given.len() == 1).then_some(look(shop).await);
        let deliveries = shop.broker.deliver(given.clone(), context).await.expect("nothing is thrown");
        assert_eq!(deliveries.len(), given.len(), "seed {seed}, round {round}: one for each");
        for delivery in &deliveries {
            seen[match delivery {
                Delivery::Stored(_) => 0,
                Delivery::Repeated(_) => 1,
                Delivery::Later { .. } => 2,
                Delivery::Refused { .. } => 3,
            }] += 1;
        }
        if let (Some(before), [Delivery::Refused { reason, .. } | Delivery::Later { reason, .. }]) =
            (before, &*deliveries)
        {
            assert_eq!(look(shop).await, before, "seed {seed}, round {round}: {reason}, and something was done");
        }
        // Whoever is here does something, too.
        for end in shop.endpoints(Default::default()).await {
            let handle = &end.conversation_handle;
            match chance.below(120) {
                0 => drop(shop.broker.end_conversation(handle, Default::default()).await),
                1 => drop(shop.broker.end_conversation(handle, with_error(7.0, "no more")).await),
                2 => drop(shop.broker.end_conversation(handle, super::super::support::shop::cleanup()).await),
                3..10 => drop(shop.try_send(handle, "Confirm", "r").await),
                10..20 => {
                    let options = ReceiveOptions { conversation: Some(Rc::clone(handle)), ..ReceiveOptions::default() };
                    drop(shop.broker.receive("kitchen", options, None).await);
                }
                _ => {}
            }
        }
        match chance.below(20) {
            0 => drop(shop.pass(NUMBERS[5] * 2_000.0).await),
            1 => drop(shop.try_enqueue("kitchen", "lane", keyed("a")).await),
            2 | 3 => shop.switch("kitchen", Status::Off).await,
            4..12 => shop.switch("kitchen", Status::On).await,
            _ => {}
        }
        let found = pocket_broker::audit(&*shop.store).await.expect("the database can be read");
        assert!(found.is_empty(), "seed {seed}, round {round}: the audit found:\n{}", found.join("\n"));
    }
    shop.broker.close().await;
}

#[test]
fn whatever_is_delivered_is_taken_as_a_whole_or_not_at_all() {
    let seeds = match std::env::var("SEED") {
        Ok(seed) => vec![seed.parse().expect("SEED is a number")],
        Err(_) => (1..=std::env::var("SEEDS").map_or(60, |seeds| seeds.parse().expect("SEEDS is a number"))).collect(),
    };
    let (mut seen, count) = ([0; 4], seeds.len());
    for seed in seeds {
        block_on(run(seed, &mut seen));
    }
    assert!(seen.iter().all(|seen| *seen >= count), "stored, repeated, later, refused: {seen:?}");
}

//! What is no envelope, or none that may come.

use pocket_broker::body::{Body, Value};
use pocket_broker::store::StoreName;
use pocket_broker::{DeliverContext, GivenBody, GivenEnvelope};

use super::super::support::far::{Far, Made, STRANGER, deliver, deliver_one, deliver_to};
use super::super::support::shop::Shop;

mount! {
    nobody_speaks_for_another,
    d30_what_is_no_envelope_is_refused_by_name,
}

async fn d30_what_is_no_envelope_is_refused_by_name(shop: &Shop) {
    let far = Far::begins(shop, 1);
    let message = || far.message(0, "Order", "soup");
    let acknowledgement = || far.acknowledges(0);
    let mut cases: Vec<(Made, &str)> = vec![
        (message().with("v", 2u32), "unknown version"),
        (message().with("v", "1"), "malformed: `v`"),
        (message().with("kind", "hello"), "unknown kind"),
        (message().with("kind", Value::null()), "malformed: `kind`"),
        (message().with("messageId", "7"), "malformed: `messageId`"),
        (
            message().with("conversationId", "urn:uuid:6ba7b812-9dad-41d1-80b4-000000000000"),
            "malformed: `conversationId`",
        ),
        (message().with("fromInitiator", 1u32), "malformed: `fromInitiator`"),
        (message().with("fromService", ""), "malformed: `fromService`"),
        (message().with("toService", &*"x".repeat(129)), "malformed: `toService`"),
        (message().with("contract", 7u32), "malformed: `contract`"),
        (message().with("messageType", &*"🍲".repeat(129)), "malformed: `messageType`"),
        (message().with("fromBroker", "current"), "malformed: `fromBroker`"),
        (message().with("toBroker", false), "malformed: `toBroker`"),
        (message().with("lifetime", "7"), "malformed: `lifetime`"),
        (message().with("lifetime", -1.0), "malformed: `lifetime`"),
        (message().with("lifetime", f64::INFINITY), "malformed: `lifetime`"),
        (message().with("headers", Value::null()), "malformed: `headers`"),
        (message().with("headers", Value::object(vec![("a", 7u32.into())])), "malformed: `headers`"),
        (message().with("headers", Value::object(vec![("FailedQ", "x".into())])), "reserved header"),
        (message().with("headers", Value::object(vec![("ExceptionInfo.Message", "x".into())])), "reserved header"),
        (message().with("headers", Value::object(vec![("a", (&*"x".repeat(5_000_000)).into())])), "too large"),
        (message().sized(4_194_305.0), "too large"),
        (message().with_body(GivenBody::TooLarge(5_000_000.0)), "too large"),
        (message().with_body(GivenBody::Malformed("`body` is a knot".into())), "malformed: `body` is a knot"),
        (far.message(0, pocket_broker::message::system::DIALOG_TIMER, ""), "dialog timer"),
        (far.end_dialog(0), "malformed: a conversation does not begin"),
        (far.error(0, 42), "malformed: a conversation does not begin"),
        (far.error(0, 0), "malformed: `body`"),
        (far.end_dialog(0).with_body(GivenBody::Fine(Body::small("x".into()))), "malformed: `body`"),
        (far.error(0, 42).with_body(GivenBody::Fine(Body::small("x".into()))), "malformed: `body`"),
        (acknowledgement().with("toBroker", Value::null()), "malformed: `toBroker`"),
        (acknowledgement().with("sequence", 0.5), "malformed: `sequence`"),
        (acknowledgement(), "no such conversation"),
    ];
    for sequence in [-1.0, 0.5, f64::NAN, f64::INFINITY, 9_007_199_254_740_992.0] {
        cases.push((message().with("sequence", sequence), "malformed: `sequence`"));
    }
    for field in [
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
    ] {
        cases.push((message().without(field), "malformed: "));
    }
    for (made, reason) in &cases {
        let delivery = deliver_one(shop, made.clone()).await;
        assert!(delivery.starts_with(&format!("refused: {reason}")), "{reason}: {delivery}");
    }
    for fields in
        [Value::null(), Value::undefined(), "x".into(), 7u32.into(), Value::list(vec![]), Value::from_bytes(&[1])]
    {
        let given = GivenEnvelope { fields, body: GivenBody::Fine(Body::none()) };
        let delivered = shop.broker.deliver(vec![given], DeliverContext::default()).await.expect("nothing is thrown");
        assert!(format!("{delivered:?}").contains("malformed"), "{delivered:?}");
    }
    let notices = shop.notices();
    let dropped: Vec<_> = notices.iter().flat_map(|notice| &notice.dropped).collect();
    assert_eq!(dropped.len(), cases.len() + 6);
    assert!(dropped.iter().all(|dropped| dropped.envelope.is_some()));
    for store in [StoreName::Conversations, StoreName::Messages, StoreName::Members, StoreName::Seen, StoreName::Due] {
        assert_eq!(shop.records_in(store).await, 0, "{store:?}");
    }
    // One among others fails alone.
    let mixed = [message().with("v", 7u32), message(), far.message(1, "Note", "x").without("sequence")];
    let delivered = deliver(shop, &mixed).await;
    assert_eq!(delivered[1], "stored, 0");
    assert!(delivered[0].starts_with("refused: unknown version") && delivered[2].starts_with("refused: malformed"));
    assert_eq!(shop.rows("kitchen").await, ["1 Order 0 soup"]);
}

async fn nobody_speaks_for_another(shop: &Shop) {
    let far = Far::begins(shop, 1);
    let from = |from: &str, via: Option<&[&str]>| DeliverContext {
        from: Some(from.into()),
        via: via.map(|via| via.iter().map(|name| (*name).into()).collect()),
    };
    let one = async |made: Made, context| deliver_to(&shop.broker, &[made], context).await.remove(0);
    let first = far.message(0, "Order", "soup");
    let wrong = one(first.clone(), from(STRANGER, None)).await;
    assert_eq!(wrong, "refused: wrong sender: `fromBroker` is not the peer that the transport has proved");
    let other = first.clone().with("toBroker", STRANGER);
    assert_eq!(deliver_one(shop, other).await, "refused: wrong receiver: `toBroker` is another broker");
    let shouted = from(&super::super::support::far::FAR.to_uppercase(), Some(&["Desk", "*"]));
    let shouted_to = first.with("toBroker", &*shop.broker.instance_id().to_uppercase());
    assert_eq!(one(shouted_to, shouted).await, "stored, 0");
    let second = far.message(1, "Note", "x");
    let stranger = second.clone().with("fromBroker", STRANGER);
    assert_eq!(deliver_one(shop, stranger).await, "refused: wrong sender: the conversation is another broker's");
    let desk = super::super::support::transport::Wire::default();
    let route = shop.broker.route("Desk", std::rc::Rc::new(desk), 50).expect("there is none yet");
    let elsewhere = one(second.clone(), from(super::super::support::far::FAR, Some(&["*"]))).await;
    assert_eq!(elsewhere, "refused: wrong transport: the conversation goes through another transport");
    for (field, value) in [("contract", "DEFAULT"), ("toService", "Counter"), ("fromService", "Door")] {
        let other = deliver_one(shop, second.clone().with(field, value)).await;
        assert_eq!(other, "refused: malformed: the conversation has other services or another contract");
    }
    assert_eq!(one(second, from(super::super::support::far::FAR, Some(&["*", "Desk"]))).await, "stored, 1");
    // A name that no route has any more: the partner is who he is, by whatever route he comes.
    shop.broker.remove_route(route);
    let third = far.message(2, "Note", "y");
    assert_eq!(one(third, from(super::super::support::far::FAR, Some(&["*"]))).await, "stored, 2");
}

//! DROP QUEUE.

use pocket_broker::BeginDialog;
use pocket_broker::definitions::{Definitions, PriorityRule, QueueOptions, ServiceChange};
use pocket_broker::error::{Error, ErrorCode};
use pocket_broker::store::{Fault, Operation, StoreName};

use super::super::support::detail;
use super::super::support::shop::{Shop, definitions, dialog_of, refused};

mount! {
    b07_a_queue_that_a_service_uses_is_refused,
    b07_its_own_service_counts_by_its_conversations,
    b08_its_own_service_may_be_named_by_a_priority,
    a_dropped_queue_is_gone,
    it_is_gone_in_every_tab,
    the_error_queue_stays,
    a_queue_may_come_again,
    a_failed_drop_drops_nothing,
}

fn spare() -> Definitions {
    Definitions { queues: vec![("spare".into(), QueueOptions::default())], ..Definitions::default() }
}

async fn b07_a_queue_that_a_service_uses_is_refused(shop: &Shop) {
    let error = refused(shop.broker.drop_queue("kitchen").await, ErrorCode::InUse);
    assert_eq!(
        (detail(&error, "queue").as_deref(), detail(&error, "service").as_deref()),
        (Some("kitchen"), Some("Kitchen"))
    );
    let dialog = shop.order("m1").await;
    let change = ServiceChange { queue: Some("house".into()), ..ServiceChange::default() };
    shop.broker.alter_service("Kitchen", change).await.expect("the service can be altered");
    shop.broker.drop_queue("kitchen").await.expect("nothing is on it any more");
    shop.assert_sound().await;
    shop.send(&dialog.initiator, "Note", "m2").await;
    assert_eq!(shop.receive("house").await, ["0 Order 0 m1", "0 Note 1 m2"]);
    shop.broker.drop_service("Counter").await.expect("the service can be dropped");
    shop.broker.drop_queue("counter").await.expect("nothing is on it any more");
}

async fn b07_its_own_service_counts_by_its_conversations(shop: &Shop) {
    shop.broker.define(spare()).await.expect("a new queue");
    let begun = BeginDialog { contract: None, ..dialog_of("Counter", "spare") };
    let begun = shop.broker.begin_dialog(begun).await.expect("the dialog begins");
    shop.send(&begun.handle, "DEFAULT", "m1").await;
    let error = refused(shop.broker.drop_queue("spare").await, ErrorCode::InUse);
    assert!(detail(&error, "service").is_none(), "{error:?}");
    shop.end(&shop.dialog(&begun).await.target).await;
    shop.broker.drop_queue("spare").await.expect("nothing is on it any more");
}

async fn b08_its_own_service_may_be_named_by_a_priority(shop: &Shop) {
    let rule = PriorityRule { contract: None, local_service: Some("spare".into()), remote_service: None, level: 7.0 };
    let named = Definitions { priorities: vec![("p".into(), rule)], ..spare() };
    shop.broker.define(named).await.expect("the rule is right");
    let error = refused(shop.broker.drop_queue("spare").await, ErrorCode::InUse);
    assert_eq!(detail(&error, "priority").as_deref(), Some("p"));
}

async fn a_dropped_queue_is_gone(shop: &Shop) {
    shop.broker.define(spare()).await.expect("a new queue");
    shop.notices();
    shop.broker.drop_queue("spare").await.expect("nothing is on it");
    assert!(shop.notices()[0].queues.iter().any(|queue| &**queue == "spare"), "who waits for it hears of it");
    assert_eq!((shop.records_in(StoreName::Queues).await, shop.records_in(StoreName::Definitions).await), (4, 17));
    refused(shop.broker.receive("spare", Default::default(), None).await, ErrorCode::QueueNotFound);
    refused(shop.broker.count("spare", &Default::default()).await, ErrorCode::QueueNotFound);
    refused(shop.broker.alter_queue("spare", QueueOptions::default()).await, ErrorCode::QueueNotFound);
    refused(shop.broker.drop_queue("spare").await, ErrorCode::QueueNotFound);
    refused(shop.broker.begin_dialog(dialog_of("spare", "Kitchen")).await, ErrorCode::ServiceNotFound);
    let queues = shop.broker.queues().await.expect("they can be looked at");
    assert!(queues.iter().all(|queue| &*queue.name != "spare"));
}

async fn it_is_gone_in_every_tab(shop: &Shop) {
    shop.broker.define(spare()).await.expect("a new queue");
    let (other, third) = (shop.another_tab().await, shop.another_tab().await);
    let open = third.begin().expect("the broker is open");
    assert_eq!(open.receive("spare", Default::default()).await.expect("the queue is on").len(), 0);
    shop.broker.drop_queue("spare").await.expect("nothing is on it");
    refused(other.receive("spare", Default::default(), None).await, ErrorCode::QueueNotFound);
    refused(open.receive("spare", Default::default()).await, ErrorCode::QueueNotFound);
    refused(
        third.select("spare", &Default::default(), None, pocket_broker::Extent::All).await,
        ErrorCode::QueueNotFound,
    );
    let fourth = shop.another_tab().await;
    shop.broker.define(spare()).await.expect("a new queue");
    assert_eq!(fourth.count("spare", &Default::default()).await.expect("it is there again"), 0);
}

async fn the_error_queue_stays(shop: &Shop) {
    refused(shop.broker.drop_queue("error").await, ErrorCode::InvalidArgument);
    refused(shop.broker.drop_queue("nothing").await, ErrorCode::QueueNotFound);
}

async fn a_queue_may_come_again(shop: &Shop) {
    shop.broker.drop_service("Kitchen").await.expect("the service can be dropped");
    shop.broker.drop_queue("kitchen").await.expect("nothing is on it any more");
    shop.broker.define(definitions()).await.expect("the definitions are right");
    shop.order("m1").await;
    assert_eq!(shop.receive("kitchen").await, ["0 Order 0 m1"]);
}

async fn a_failed_drop_drops_nothing(shop: &Shop) {
    shop.broker.define(spare()).await.expect("a new queue");
    shop.faults.plan(Operation::Commit, 1, Fault::Abort(Error::new(ErrorCode::QuotaExceeded, "No space.")));
    refused(shop.broker.drop_queue("spare").await, ErrorCode::QuotaExceeded);
    assert_eq!(shop.receive("spare").await, [""; 0]);
}

//! What was committed outlives everybody who knows of it.

use std::rc::Rc;

use pocket_broker::body::{Body, Value};
use pocket_broker::definitions::Status;
use pocket_broker::{BeginDialog, Broker, EndpointFilter, Extent, ReceiveOptions, RowFilter, Rows};

use super::super::support::shop::{Shop, archived, begin, dialog_of, named, show_all, to_kitchen, top_of};

mount! {
    b96_a_new_context_sees_what_each_step_left,
    b96_a_restart_goes_on_where_it_was,
    b96_what_was_not_committed_never_happened,
}

/// All that a broker shows, as a text.
async fn all_of(broker: &Broker) -> Vec<String> {
    let mut all = vec![format!("{:?}", broker.queues().await.expect("they can be looked at"))];
    for queue in ["counter", "house", "kitchen"] {
        let page = broker.select(queue, &RowFilter::default(), None, Extent::All).await.expect("it is there");
        all.extend(page.rows.iter().flat_map(Rows::messages).map(|message| format!("{message:?}")));
    }
    let page = broker.archive(&RowFilter::default(), None, Extent::All).await.expect("it can be looked at");
    all.extend(page.rows.iter().flat_map(Rows::messages).map(|message| format!("archived {message:?}")));
    for end in broker.conversations(&EndpointFilter::default(), None, Extent::All).await.expect("they are there").rows {
        let state = broker.get_group_state(&end.conversation_group_id).await.expect("its group is there");
        all.push(format!("{end:?} {:?}", state.and_then(|state| state.value.value().text())));
    }
    let waiting = broker.transmission_queue(None).await.expect("it can be looked at");
    all.extend(waiting.iter().map(|row| format!("{row:?}")));
    all
}

/// A broker that shares nothing with the one that did it sees the same.
async fn stays(shop: &Shop) {
    let tab = shop.another_tab().await;
    assert_eq!(all_of(&tab).await, all_of(&shop.broker).await);
    tab.close().await;
}

async fn b96_a_new_context_sees_what_each_step_left(shop: &Shop) {
    shop.retain("kitchen", true).await;
    stays(shop).await;
    let begun = shop.begin().await;
    stays(shop).await;
    shop.send(&begun.handle, "Order", "m1").await;
    shop.send_large(&begun.handle, "m2").await;
    stays(shop).await;
    let dialog = shop.dialog(&begun).await;
    shop.receive_top("kitchen", 1).await;
    shop.send(&dialog.target, "Confirm", "r1").await;
    stays(shop).await;
    let saga = Body::small(Value::from("reserved"));
    shop.broker.set_group_state(&dialog.initiator, saga).await.expect("the group is there");
    let related = BeginDialog {
        related_conversation: Some(dialog.initiator.to_string()),
        lifetime: Some(60_000.0),
        reuse: Some("table 5".into()),
        ..dialog_of("Counter", "Back")
    };
    shop.broker.begin_dialog(related).await.expect("the dialog begins");
    stays(shop).await;
    shop.timer_of(&dialog.initiator, 30_000.0, "").await;
    stays(shop).await;
    let (ended, failed) = (shop.order("ended").await, shop.order("failed").await);
    shop.end(&ended.target).await;
    shop.fail(&failed.initiator).await;
    stays(shop).await;
    shop.switch("kitchen", Status::Off).await;
    shop.send(&dialog.initiator, "Note", "m3").await;
    let leaving = shop.order("leaving").await;
    shop.end(&leaving.initiator).await;
    assert_eq!(shop.state(&leaving.initiator).await, "DO");
    stays(shop).await;
    let far = shop.broker.begin_dialog(dialog_of("Counter", "Elsewhere")).await.expect("nobody is contacted");
    shop.send(&far.handle, "Order", "far").await;
    stays(shop).await;
    shop.pass(30_000.0).await;
    stays(shop).await;
    shop.pass(30_000.0).await;
    stays(shop).await;
    shop.switch("kitchen", Status::On).await;
    stays(shop).await;
    let copied = shop.broker.end_conversation(&dialog.target, archived()).await.expect("it can be ended");
    assert!(copied.archived > 0);
    stays(shop).await;
}

async fn b96_a_restart_goes_on_where_it_was(shop: &Shop) {
    shop.retain("kitchen", true).await;
    let dialog = shop.order("m1").await;
    shop.send(&dialog.initiator, "Note", "m2").await;
    shop.receive_top("kitchen", 1).await;
    let reused = BeginDialog { reuse: Some("table 5".into()), ..to_kitchen() };
    let open = shop.broker.begin_dialog(reused.clone()).await.expect("the dialog begins");
    shop.timer_of(&dialog.target, 30_000.0, "no answer").await;
    let instance = shop.broker.instance_id();
    shop.broker.close().await;

    let tab = shop.another_tab().await;
    assert_eq!(tab.instance_id(), instance);
    assert_eq!(tab.begin_dialog(reused).await.expect("it is there"), open);
    let note = vec![shop.message("Note", "m3")];
    tab.send(vec![Rc::clone(&dialog.initiator)], note, None).await.expect("it may send");
    let receive = async || show_all(&tab.receive("kitchen", ReceiveOptions::default(), None).await.expect("it is on"));
    assert_eq!(receive().await, ["0 Note 1 m2", "0 Note 2 m3"], "in order, and what was received does not come again");
    let cancelled = tab.begin_conversation_timer(&dialog.target, None, named("no answer", None)).await;
    cancelled.expect("it is known by its name");
    shop.clock().advance(30_000.0);
    assert_eq!(tab.poll().await.expect("nothing is due"), 0);
    let page = tab.select("kitchen", &RowFilter::default(), None, Extent::All).await.expect("it is there");
    assert_eq!(page.rows.iter().map(|rows| rows.count).sum::<usize>(), 3, "all of them retained");
    let ended = tab.end_conversation(&dialog.target, archived()).await.expect("it can be ended");
    assert_eq!((ended.discarded, ended.archived), (0, 3));
    tab.close().await;
}

async fn b96_what_was_not_committed_never_happened(shop: &Shop) {
    let dialog = shop.order("m1").await;
    let before = all_of(&shop.broker).await;
    let tab = shop.another_tab().await;
    let dying = tab.begin().expect("the broker is open");
    dying.receive("kitchen", top_of(1)).await.expect("the queue is on");
    dying.send(vec![dialog.target.clone()], vec![shop.message("Confirm", "r1")]).await.expect("it may send");
    dying.begin_conversation_timer(&dialog.target, Some(0.0), named("", None)).await.expect("it is free");
    dying.end_conversation(&dialog.target, Default::default()).await.expect("it can be ended");
    // It dies: nobody closes anything.
    drop((dying, tab));
    stays(shop).await;
    assert_eq!(all_of(&shop.broker).await, before);
    let again = begin(shop);
    assert_eq!(show_all(&again.receive("kitchen", top_of(1)).await.expect("the queue is on")), ["0 Order 0 m1"]);
    again.commit().await.expect("it commits");
}

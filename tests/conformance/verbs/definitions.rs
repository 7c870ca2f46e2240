//! `define` and `alterQueue`.

use std::cell::Cell;

use futures_util::future::join;
use pocket_broker::definitions::{Definitions, PriorityRule, QueueOptions, SentBy, ServiceOptions, Status, Validation};
use pocket_broker::error::{Error, ErrorCode};
use pocket_broker::{BeginDialog, QueueInfo};

use super::super::support::detail;
use super::super::support::shop::{Shop, definitions, dialog_of, refused};

mount! {
    b01_b02_a_contract_needs_an_initiator_type_and_no_type_twice,
    b03_what_says_nothing_of_validation_has_none,
    b04_a_queue_without_options,
    d22_names_have_1_to_128_characters,
    d23_validations_are_kept,
    d30_system_types_cannot_be_defined,
    d33_defining_again_is_nothing,
    d33_definitions_may_grow,
    d33_definitions_may_not_change,
    d33_only_options_that_are_given_are_set,
    d33_a_queues_own_service_can_be_extended,
    a_failed_define_defines_nothing,
    another_tab_sees_new_definitions_at_once,
    another_tab_that_keeps_defining_disturbs_nobody,
    an_altered_queue_is_altered_in_every_tab,
    unknown_names_are_refused,
}

async fn conflict(shop: &Shop, definitions: Definitions) -> Error {
    let error = refused(shop.broker.define(definitions).await, ErrorCode::DefinitionConflict);
    assert!(
        detail(&error, "kind").is_some() && detail(&error, "name").is_some() && detail(&error, "difference").is_some(),
        "{error:?}"
    );
    error
}

fn contracts(name: &str, entries: &[(&str, SentBy)]) -> Definitions {
    let entries = entries.iter().map(|(name, sent_by)| ((*name).to_owned(), *sent_by)).collect();
    Definitions { contracts: vec![(name.into(), entries)], ..Definitions::default() }
}

fn queues(name: &str, options: QueueOptions) -> Definitions {
    Definitions { queues: vec![(name.into(), options)], ..Definitions::default() }
}

fn services(name: &str, queue: &str, contracts: &[&str]) -> Definitions {
    let options = ServiceOptions {
        queue: Some(queue.into()),
        contracts: contracts.iter().map(|name| (*name).to_owned()).collect(),
    };
    Definitions { services: vec![(name.into(), options)], ..Definitions::default() }
}

fn types(name: &str, validation: Validation) -> Definitions {
    Definitions { message_types: vec![(name.into(), validation)], ..Definitions::default() }
}

async fn b01_b02_a_contract_needs_an_initiator_type_and_no_type_twice(shop: &Shop) {
    let error =
        refused(shop.broker.define(contracts("C", &[("Confirm", SentBy::Target)])).await, ErrorCode::InvalidArgument);
    assert_eq!(error.number(), Some(8492));
    let error = refused(shop.broker.define(contracts("C", &[])).await, ErrorCode::InvalidArgument);
    assert_eq!(error.number(), Some(8492));
    let twice = contracts("C", &[("Order", SentBy::Any), ("Order", SentBy::Initiator)]);
    assert_eq!(refused(shop.broker.define(twice).await, ErrorCode::InvalidArgument).number(), Some(8403));
    shop.broker.define(contracts("C", &[("Note", SentBy::Any)])).await.expect("one type for both is enough");
}

/// A message type always says its validation here; what comes without one is built in, or the body of a queue.
async fn b03_what_says_nothing_of_validation_has_none(shop: &Shop) {
    assert_eq!(shop.broker.validation_of("DEFAULT"), Some(Validation::None));
    shop.broker.define(types("Plain", Validation::default())).await.expect("a new type");
    assert_eq!(shop.another_tab().await.validation_of("Plain"), Some(Validation::None));
    let begun = BeginDialog { contract: None, ..dialog_of("Counter", "kitchen") };
    let begun = shop.broker.begin_dialog(begun).await.expect("the dialog begins");
    shop.send(&begun.handle, "DEFAULT", "anything").await;
    assert_eq!(shop.messages("kitchen", Default::default()).await[0].validation, "N");
}

async fn b04_a_queue_without_options(shop: &Shop) {
    let expected = QueueInfo {
        name: "kitchen".into(),
        is_receive_enabled: true,
        is_enqueue_enabled: true,
        is_retention_enabled: false,
        is_poison_message_handling_enabled: true,
        is_activation_enabled: true,
        ready: 0,
        retained: 0,
        consecutive_rollbacks: 0,
    };
    assert_eq!(shop.queue("kitchen").await, expected);
    let names: Vec<_> = shop
        .broker
        .queues()
        .await
        .expect("they can be looked at")
        .into_iter()
        .map(|queue| queue.name.to_string())
        .collect();
    assert_eq!(
        names,
        ["counter", "error", "house", "kitchen"],
        "in the order of the names, and \"error\" is always there"
    );
}

async fn d22_names_have_1_to_128_characters(shop: &Shop) {
    let longest = "😀".repeat(128);
    for name in ["__proto__", "constructor", "😀", " ", "a\u{0}b", &longest] {
        shop.broker
            .define(queues(name, QueueOptions::default()))
            .await
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        shop.broker.define(types(name, Validation::None)).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        shop.broker
            .define(contracts(name, &[(name, SentBy::Any)]))
            .await
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        shop.broker
            .define(services(&format!("{}.", name.chars().take(127).collect::<String>()), name, &[name]))
            .await
            .unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    let begun = shop
        .broker
        .begin_dialog(BeginDialog { contract: Some("__proto__".into()), ..dialog_of("Counter", "__proto__.") })
        .await
        .expect("the dialog begins");
    shop.send(&begun.handle, "__proto__", "m1").await;
    assert_eq!(shop.receive("__proto__").await, ["0 __proto__ 0 m1"]);
    for name in ["", &"x".repeat(129)] {
        let rule = PriorityRule { contract: None, local_service: None, remote_service: None, level: 5.0 };
        for definitions in [
            queues(name, QueueOptions::default()),
            types(name, Validation::None),
            contracts(name, &[("Order", SentBy::Any)]),
            services(name, "kitchen", &[]),
            Definitions { priorities: vec![(name.into(), rule)], ..Definitions::default() },
        ] {
            refused(shop.broker.define(definitions).await, ErrorCode::InvalidArgument);
        }
    }
}

async fn d23_validations_are_kept(shop: &Shop) {
    for (name, validation) in
        [("n", Validation::None), ("e", Validation::Empty), ("j", Validation::Json), ("s", Validation::Schema)]
    {
        shop.broker.define(types(name, validation)).await.expect("a new type");
        assert_eq!(shop.broker.validation_of(name), Some(validation));
        assert_eq!(shop.another_tab().await.validation_of(name), Some(validation), "it is stored");
    }
    assert_eq!(shop.broker.validation_of("DEFAULT"), Some(Validation::None), "b03");
    assert_eq!(shop.broker.validation_of("nothing"), None);
    let dialog = shop.order("m1").await;
    shop.send(&dialog.initiator, "Sealed", "").await;
    assert_eq!(shop.messages("kitchen", Default::default()).await[1].validation, "E");
}

async fn d30_system_types_cannot_be_defined(shop: &Shop) {
    for system in ["EndDialog", "Error", "DialogTimer"] {
        let name = format!("http://schemas.microsoft.com/SQL/ServiceBroker/{system}");
        refused(shop.broker.define(types(&name, Validation::None)).await, ErrorCode::InvalidArgument);
        refused(shop.broker.define(contracts("C", &[(&name, SentBy::Any)])).await, ErrorCode::InvalidArgument);
    }
}

async fn d33_defining_again_is_nothing(shop: &Shop) {
    shop.faults.reset_counts();
    shop.broker.define(definitions()).await.expect("it is all there");
    assert_eq!(shop.faults.writes(), 0);
    let backwards = contracts(
        "Ordering",
        &[("Sealed", SentBy::Any), ("Note", SentBy::Any), ("Confirm", SentBy::Target), ("Order", SentBy::Initiator)],
    );
    shop.broker.define(backwards).await.expect("the order of entries says nothing");
}

async fn d33_definitions_may_grow(shop: &Shop) {
    let dialog = shop.order("m1").await;
    shop.broker.define(types("Extra", Validation::None)).await.expect("a new type");
    let mut grown = definitions();
    grown.contracts[0].1.push(("Extra".into(), SentBy::Initiator));
    shop.broker.define(grown).await.expect("an entry more");
    shop.send(&dialog.initiator, "Extra", "an open conversation has it").await;
    shop.broker.define(services("Kitchen", "kitchen", &["DEFAULT", "Ordering"])).await.expect("a contract more");
    let begun = shop
        .broker
        .begin_dialog(BeginDialog { contract: None, ..dialog_of("Counter", "Kitchen") })
        .await
        .expect("the dialog begins");
    shop.send(&begun.handle, "DEFAULT", "m2").await;
    assert_eq!(shop.state(&begun.handle).await, "CO");
}

async fn d33_definitions_may_not_change(shop: &Shop) {
    conflict(shop, types("Order", Validation::Json)).await;
    conflict(shop, types("Sealed", Validation::None)).await;
    let error = conflict(shop, contracts("Ordering", &[("Order", SentBy::Initiator)])).await;
    assert!(error.to_string().contains("Confirm"), "the difference is named: {error}");
    conflict(
        shop,
        contracts(
            "Ordering",
            &[("Order", SentBy::Any), ("Confirm", SentBy::Target), ("Note", SentBy::Any), ("Sealed", SentBy::Any)],
        ),
    )
    .await;
    conflict(shop, contracts("DEFAULT", &[("Order", SentBy::Any)])).await;
    conflict(shop, types("DEFAULT", Validation::Json)).await;
    conflict(shop, services("Kitchen", "counter", &["Ordering"])).await;
    conflict(shop, services("Kitchen", "kitchen", &[])).await;
    conflict(shop, queues("Kitchen", QueueOptions::default())).await;
}

async fn d33_only_options_that_are_given_are_set(shop: &Shop) {
    let options = QueueOptions {
        retention: Some(true),
        archive: Some(true),
        activation: Some(Status::Off),
        ..QueueOptions::default()
    };
    shop.broker.define(queues("kitchen", options)).await.expect("options are set");
    let changed = shop.queue("kitchen").await;
    assert_eq!(
        (changed.is_retention_enabled, changed.is_activation_enabled, changed.is_poison_message_handling_enabled),
        (true, false, true)
    );
    shop.broker
        .define(queues(
            "kitchen",
            QueueOptions { poison_message_handling: Some(false), status: Some(Status::Off), ..QueueOptions::default() },
        ))
        .await
        .expect("options are set");
    let again = shop.queue("kitchen").await;
    assert_eq!(
        (again.is_retention_enabled, again.is_activation_enabled, again.is_poison_message_handling_enabled),
        (true, false, false)
    );
    assert!(again.is_receive_enabled && again.is_enqueue_enabled, "status only when the queue is created");
    shop.broker
        .define(queues("closed", QueueOptions { status: Some(Status::Off), ..QueueOptions::default() }))
        .await
        .expect("a new queue");
    let closed = shop.queue("closed").await;
    assert!(!closed.is_receive_enabled && !closed.is_enqueue_enabled);
}

async fn d33_a_queues_own_service_can_be_extended(shop: &Shop) {
    shop.broker.define(services("kitchen", "kitchen", &["Ordering"])).await.expect("it keeps DEFAULT");
    for contract in [Some("Ordering".to_owned()), None] {
        let message_type = if contract.is_some() { "Order" } else { "DEFAULT" };
        let begun = shop
            .broker
            .begin_dialog(BeginDialog { contract, ..dialog_of("Counter", "kitchen") })
            .await
            .expect("the dialog begins");
        shop.send(&begun.handle, message_type, "m1").await;
        assert_eq!(shop.state(&begun.handle).await, "CO");
    }
    conflict(shop, services("kitchen", "counter", &["Ordering"])).await;
    refused(
        shop.broker
            .define(Definitions {
                services: vec![("Homeless".into(), ServiceOptions::default())],
                ..Definitions::default()
            })
            .await,
        ErrorCode::InvalidArgument,
    );
}

async fn a_failed_define_defines_nothing(shop: &Shop) {
    let mut mixed = types("New", Validation::None);
    mixed.queues.push(("new".into(), QueueOptions::default()));
    mixed.services.push(("New".into(), ServiceOptions { queue: Some("nothing".into()), contracts: Vec::new() }));
    refused(shop.broker.define(mixed).await, ErrorCode::QueueNotFound);
    assert_eq!(shop.broker.validation_of("New"), None);
    assert_eq!(shop.another_tab().await.validation_of("New"), None);
    assert!(shop.broker.queues().await.expect("they can be looked at").iter().all(|queue| &*queue.name != "new"));
}

async fn unknown_names_are_refused(shop: &Shop) {
    assert_eq!(
        refused(shop.broker.define(contracts("C", &[("nothing", SentBy::Any)])).await, ErrorCode::MessageTypeNotFound)
            .number(),
        Some(8428)
    );
    assert_eq!(
        refused(shop.broker.define(services("S", "kitchen", &["nothing"])).await, ErrorCode::ContractNotFound).number(),
        Some(8425)
    );
    refused(shop.broker.define(services("S", "nothing", &[])).await, ErrorCode::QueueNotFound);
    refused(shop.broker.alter_queue("nothing", QueueOptions::default()).await, ErrorCode::QueueNotFound);
    for level in [0.0, 11.0, 1.5, f64::NAN] {
        let rule = PriorityRule { contract: None, local_service: None, remote_service: None, level };
        refused(
            shop.broker.define(Definitions { priorities: vec![("p".into(), rule)], ..Definitions::default() }).await,
            ErrorCode::InvalidArgument,
        );
    }
}

async fn another_tab_sees_new_definitions_at_once(shop: &Shop) {
    let other = shop.another_tab().await;
    shop.broker.define(services("Late", "house", &["Ordering"])).await.expect("a new service");
    let begun = other.begin_dialog(dialog_of("Late", "Kitchen")).await.expect("what it does not know it looks up");
    shop.broker.define(queues("late", QueueOptions::default())).await.expect("a new queue");
    assert!(other.queues().await.expect("they can be looked at").iter().any(|queue| &*queue.name == "late"));
    assert_eq!(other.count("late", &Default::default()).await.expect("it is there"), 0);
    shop.send(&begun.handle, "Order", "m1").await;
    let transaction = shop.broker.begin().expect("the broker is open");
    transaction.send(vec![begun.handle.clone()], vec![shop.message("Note", "m2")]).await.expect("it may send");
    other.define(queues("later", QueueOptions::default())).await.expect("a new queue");
    other.define(services("Later", "later", &["Ordering"])).await.expect("a new service");
    transaction.begin_dialog(dialog_of("Later", "Kitchen")).await.expect("a transaction looks it up, too");
    transaction.commit().await.expect("it commits under the new definitions");
    assert_eq!(shop.rows("kitchen").await, ["1 Order 0 m1", "1 Note 1 m2"]);
}

/// Every storage transaction here is followed by one that changes the definitions.
async fn another_tab_that_keeps_defining_disturbs_nobody(shop: &Shop) {
    let other = shop.another_tab().await;
    let dialog = shop.order("m1").await;
    let is_over = Cell::new(false);
    let defining = async {
        for number in 0.. {
            let retention = Some(number % 2 == 0);
            let options = QueueOptions { retention, ..QueueOptions::default() };
            other.define(queues("house", options)).await.expect("it may change");
            if is_over.get() {
                break;
            }
        }
    };
    let working = async {
        for number in 0..5 {
            shop.send(&dialog.initiator, "Note", "x").await;
            assert_eq!(shop.queue("kitchen").await.ready, number + 2);
            let transaction = shop.broker.begin().expect("the broker is open");
            let to = vec![dialog.target.clone()];
            transaction.send(to, vec![shop.message("Confirm", "r")]).await.expect("it may send");
            transaction.commit().await.expect("it commits");
        }
        is_over.set(true);
    };
    join(defining, working).await;
    assert_eq!(shop.receive("counter").await.len(), 5);
}

async fn an_altered_queue_is_altered_in_every_tab(shop: &Shop) {
    let other = shop.another_tab().await;
    let dialog = shop.order("m1").await;
    other
        .alter_queue("counter", QueueOptions { retention: Some(true), ..QueueOptions::default() })
        .await
        .expect("it can be altered");
    shop.send(&dialog.initiator, "Note", "m2").await;
    assert_eq!(shop.rows("counter").await, ["3 Note 1 m2"]);
    other
        .alter_queue("kitchen", QueueOptions { status: Some(Status::Off), ..QueueOptions::default() })
        .await
        .expect("it can be altered");
    shop.send(&dialog.initiator, "Note", "m3").await;
    assert_eq!(shop.outside().await, ["Note 2 m3"]);
    refused(shop.broker.receive("kitchen", Default::default(), None).await, ErrorCode::QueueDisabled);
}

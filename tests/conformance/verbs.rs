//! The verbs, by the behaviours (b…) and decisions (d…) of the specification.

/// Mounts tests that take a [`Shop`](super::support::shop::Shop) on every kind of store. Each ends with an audit of the database.
macro_rules! mount {
    ($($name:ident,)+) => {
        $(mod $name {
            use crate::conformance::support::{Bench, async_test, shop::Shop};

            async fn on(bench: Bench) {
                let shop = Shop::open(bench).await;
                super::$name(&shop).await;
                shop.close().await;
            }

            async_test! { async fn memory() { on(Bench::memory()).await; }}

            #[cfg(target_arch = "wasm32")]
            async_test! { async fn indexed_db() { on(Bench::indexed_db()).await; }}
        })+
    };
}

mod alter_service;
mod archive;
mod audit;
mod begin_dialog;
mod budgets;
mod commit;
mod corrupt;
mod dedupe;
mod defined_later;
mod definitions;
mod drop_queue;
mod drop_service;
mod end_conversation;
mod enqueue;
mod error_queue;
mod events;
mod groups;
mod groups_view;
mod lanes;
mod large;
mod lifetimes;
mod locks;
mod mended;
mod move_conversation;
mod poison;
mod poller;
mod priorities;
mod queue_off;

mod receive;
mod recoverability;
mod remote;
mod restart;
mod retention;
mod retention_bounds;
mod reuse;
mod send;
mod set_aside;
mod set_aside_behind;
mod stats;
mod suspend;
mod sweep;
mod tabs;
mod timers;
mod transactions;
mod views;
mod waiting;

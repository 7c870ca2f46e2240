//! The verbs, by the behaviours (b…) and decisions (d…) of the specification.

/// Mounts tests that take a [`Shop`](super::support::shop::Shop) on every kind of store. Each ends with an audit of the database.
macro_rules! mount {
    ($($name:ident,)+) => {
        mount_on! { $($name,)+ => {
            async_test! { async fn memory() { on(Bench::memory()).await; }}

            // As on plain http, where an origin has no locks. In browsers the package's tests do that.
            #[cfg(not(target_arch = "wasm32"))]
            async_test! { async fn leases() { on(Bench::memory().with_leases()).await; }}

            #[cfg(target_arch = "wasm32")]
            async_test! { async fn indexed_db() { on(Bench::indexed_db()).await; }}
        }}
    };
}

/// The same for tests that count what leases cost, or that need locks that can be waited for.
macro_rules! mount_with_locks {
    ($($name:ident,)+) => {
        mount_on! { $($name,)+ => {
            async_test! { async fn memory() { on(Bench::memory()).await; }}

            #[cfg(target_arch = "wasm32")]
            async_test! { async fn indexed_db() { on(Bench::indexed_db()).await; }}
        }}
    };
}

/// The same for tests of leases.
macro_rules! mount_with_leases {
    ($($name:ident,)+) => {
        mount_on! { $($name,)+ => {
            async_test! { async fn memory() { on(Bench::memory().with_leases()).await; }}

            #[cfg(target_arch = "wasm32")]
            async_test! { async fn indexed_db() { on(Bench::indexed_db().with_leases()).await; }}
        }}
    };
}

macro_rules! mount_on {
    ($($name:ident,)+ => $mounted:tt) => {
        $(mount_on! { @one $name $mounted })+
    };
    (@one $name:ident { $($mounted:tt)+ }) => {
        mod $name {
            use crate::conformance::support::{Bench, async_test, shop::Shop};

            async fn on(bench: Bench) {
                let shop = Shop::open(bench).await;
                super::$name(&shop).await;
                shop.close().await;
            }

            $($mounted)+
        }
    };
}

mod alter_service;
mod archive;
mod audit;
mod begin_dialog;
mod bodies_lost;
mod budgets;
mod clock_set_back;
mod commit;
mod corrupt;
mod dedupe;
mod defined_later;
mod definitions;
mod delayed;
mod delayed_change;
mod delayed_errors;
mod delayed_failures;
mod delayed_poller;
mod delayed_runs;
mod delayed_runs_changed;
mod drop_queue;
mod drop_service;
mod elsewhere;
mod elsewhere_change;
mod elsewhere_failures;
mod elsewhere_modes;
mod elsewhere_moved;
mod elsewhere_races;
mod end_conversation;
mod enqueue;
mod error_queue;
mod error_queue_named;
mod events;
mod groups;
mod groups_view;
mod heartbeats;
mod incoming;
mod incoming_ends;
#[cfg(not(target_arch = "wasm32"))]
mod incoming_fuzz;
mod incoming_mended;
mod incoming_refused;
mod lanes;
mod large;
mod leases;
mod lifetimes;
mod locks;
mod mended;
mod mended_roots;
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
mod retries;
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
mod transmission;
mod transmission_answers;
mod transmission_failures;
mod transmission_roles;
mod views;
mod waiting;

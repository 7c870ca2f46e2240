//! The `Store` port: what every adapter and decorator must do.

#![allow(clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails so")]

mod faults;
mod index;
#[cfg(target_arch = "wasm32")]
mod indexed_db;
mod reads;
mod sessions;
mod transactions;

use super::support::{Bench, async_test};

/// Runs a test on a fresh database.
macro_rules! run {
    ($bench:expr, $test:path) => {{
        let bench = $bench;
        $test(&bench).await;
        bench.remove().await;
    }};
}
/// Mounts tests that take a [`Bench`] on every kind of store.
macro_rules! on_every_store {
    ($($part:ident::$name:ident,)+) => {
        mod memory {
            use super::*;
            $(async_test! { async fn $name() { run!(Bench::memory(), $part::$name) } })+
        }

        mod memory_with_faults {
            use super::*;
            $(async_test! { async fn $name() { run!(Bench::memory().with_faults(), $part::$name) } })+
        }

        #[cfg(target_arch = "wasm32")]
        mod indexed_db_plain {
            use super::*;
            $(async_test! { async fn $name() { run!(Bench::indexed_db(), $part::$name) } })+
        }

        #[cfg(target_arch = "wasm32")]
        mod indexed_db_with_faults {
            use super::*;
            $(async_test! { async fn $name() { run!(Bench::indexed_db().with_faults(), $part::$name) } })+
        }
    };
}

on_every_store! {
    reads::a_missing_key_is_none,
    reads::reads_see_the_writes_before_them,
    reads::keys_sort_as_in_indexed_db,
    reads::a_range_has_bounds,
    reads::a_range_can_be_read_backward,
    reads::a_limit_limits,
    reads::an_empty_range_holds_nothing,
    reads::deletes_remove_what_they_name,
    index::the_index_follows_the_messages,
    index::the_index_reads_backward_and_gives_primary_keys,
    reads::values_are_copies,
    transactions::an_empty_transaction_commits,
    transactions::a_commit_shows_on_another_connection,
    transactions::data_outlives_its_connection,
    transactions::an_early_return_writes_nothing,
    transactions::a_dropped_transaction_writes_nothing,
    transactions::a_foreign_await_is_an_error,
    transactions::a_dropped_request_does_not_hide_a_foreign_await,
    transactions::writers_take_turns,
    transactions::readers_wait_for_the_writer_before_them,
    transactions::many_requests_at_once_are_answered,
    transactions::a_closed_store_refuses,
    sessions::requests_are_answered_in_order,
    sessions::a_read_only_session_refuses_writes,
    sessions::a_store_outside_the_scope_is_refused,
    sessions::an_abort_undoes_and_resolves,
    sessions::an_idle_session_closes_itself,
    sessions::an_idle_session_that_wrote_commits_itself,
    sessions::a_running_transaction_outlives_close,
}

mod faults_over_memory {
    use super::*;
    faults::mount!(Bench::memory().with_faults());

    async_test! { async fn a_delayed_read_keeps_the_transaction_open() {
        run!(Bench::memory().with_faults(), faults::a_delayed_read_keeps_the_transaction_open)
    }}

    async_test! { async fn a_lost_read_never_answers() {
        run!(Bench::memory().with_faults(), faults::a_lost_read_never_answers)
    }}
}

#[cfg(target_arch = "wasm32")]
mod faults_over_indexed_db {
    use super::*;
    faults::mount!(Bench::indexed_db().with_faults());
}

//! The simulation: several tabs over one store in memory, with time, chance, crashes and faults under control, and a model that knows what must come
//! of it. A seed is a run; the same seed is the same run. Odd seeds are of conversations, even ones of lanes, failing handlers and definitions that change, too,
//! and every fourth of delayed messages besides; in every eighth these are in a store of the application's own.
//!
//! `SEED=17 cargo test --test simulation seeds` runs one seed and tells every call. `make simulate SEEDS=200000` runs many,
//! `FROM=4 STEP=4` those of delayed messages, `FROM=6 STEP=8` those of stores of the application's own.
#![cfg(not(target_arch = "wasm32"))]
// A test that panics says where and why: that is what it is for.
#![allow(clippy::as_conversions, clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss)]
#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::string_slice, clippy::unwrap_used)]
#![allow(clippy::print_stdout)]

mod actor;
mod calls;
mod deploys;
mod elsewhere;
mod executor;
mod explain;
mod failing;
mod far;
mod history;
mod journal;
mod lanes;
mod later;
mod ledger;
mod look;
mod model;
mod origin;
mod readers;
mod run;
mod sabotage;
mod time;
mod waiting;

/// What the conformance suite has already: hosts, locks, the shop, and the model of the random test.
#[path = "../conformance"]
#[allow(dead_code, unused_imports, unused_macros, reason = "the suite uses more of it")]
mod conformance {
    pub(crate) mod support;

    pub(crate) mod random {
        pub(crate) mod due;
        pub(crate) mod lane;
        pub(crate) mod model;
        pub(crate) mod seen;
        pub(crate) mod side;
    }
}

use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use self::origin::{Kind, Mix, Violation};
use self::run::Summary;
use self::sabotage::Sabotage;

/// Without a wish.
const SEEDS: u64 = 2_000;
/// So many seeds see a broken broker, if it takes that many: what is rare is met in one of hundreds.
const SABOTAGED: usize = 1_500;

/// For the search for an order, which calls itself once for each call and commit.
const STACK: usize = 1 << 26;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|number| number.parse().ok())
}

#[test]
fn seeds_are_what_the_model_says() {
    if let Some(seed) = number("SEED") {
        return check(seed, true);
    }
    let first = number("FROM").unwrap_or(1);
    let step = number("STEP").unwrap_or(1);
    let end = first + number("SEEDS").unwrap_or(SEEDS) * step;
    let next = AtomicU64::new(first);
    let work = || {
        loop {
            let seed = next.fetch_add(step, Ordering::Relaxed);
            if seed >= end {
                return;
            }
            // When one has failed the others stop, too.
            let outcome = catch_unwind(|| check(seed, false));
            if let Err(panic) = outcome {
                next.store(end, Ordering::Relaxed);
                resume_unwind(panic);
            }
        }
    };
    thread::scope(|scope| {
        let threads = thread::available_parallelism().map_or(1, NonZero::get);
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let outcomes: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        if let Some(panic) = outcomes.into_iter().find_map(Result::err) {
            resume_unwind(panic);
        }
    });
}

#[test]
fn a_seed_is_the_same_run_every_time() {
    for seed in [6, 7, 8, 10] {
        let [first, second] = [(); 2].map(|()| run(seed, None, false).expect("the model agrees"));
        assert_eq!(first, second);
        assert!(first.turns > 500 && first.commits > 50 && first.lives > 3, "{first:?}");
    }
}

fn run(seed: u64, sabotage: Option<Sabotage>, is_told: bool) -> Result<Summary, Violation> {
    thread::scope(|scope| {
        let builder = thread::Builder::new().stack_size(STACK);
        let running = builder.spawn_scoped(scope, || run::run(seed, sabotage, is_told)).expect("a thread");
        running.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

fn check(seed: u64, is_told: bool) {
    let command = format!("SEED={seed} cargo test --test simulation seeds -- --nocapture");
    match catch_unwind(AssertUnwindSafe(|| run(seed, None, is_told))) {
        Ok(Ok(_)) => {}
        Ok(Err(Violation { kind, text })) => panic!("{kind:?} in seed {seed}. Again: {command}\n{text}"),
        Err(panic) => {
            println!("A panic in seed {seed}. Again: {command}");
            resume_unwind(panic);
        }
    }
}

/// Whether what is broken on purpose is noticed, as this, within some seeds of a mix.
fn is_found(sabotage: Sabotage, mix: Mix, kind: Kind) -> bool {
    let seen = |seed| run(seed, Some(sabotage), false).err().map(|violation| violation.kind);
    let mut seeds = (1..).filter(|seed| Mix::of(*seed) == mix).take(SABOTAGED);
    seeds.any(|seed| seen(seed) == Some(kind))
}

#[test]
fn a_cursor_that_is_not_moved_is_noticed() {
    assert!(is_found(Sabotage::Cursor, Mix::Dialogs, Kind::Twice));
}

#[test]
fn a_broken_fence_is_noticed() {
    assert!(is_found(Sabotage::Fence, Mix::Dialogs, Kind::Twice));
}

#[test]
fn locks_that_keep_nobody_out_are_noticed() {
    assert!(is_found(Sabotage::Locks, Mix::Dialogs, Kind::TwoReaders));
}

#[test]
fn half_a_commit_is_noticed() {
    assert!(is_found(Sabotage::Half, Mix::Dialogs, Kind::Unsound));
}

#[test]
fn an_answer_before_the_commit_is_noticed() {
    assert!(is_found(Sabotage::Early, Mix::Dialogs, Kind::Lost));
}

#[test]
fn an_enqueue_that_is_committed_twice_is_noticed() {
    assert!(is_found(Sabotage::Double, Mix::Lanes, Kind::Twice));
}

#[test]
fn an_id_that_is_not_remembered_is_noticed() {
    assert!(is_found(Sabotage::Forgetful, Mix::Lanes, Kind::Unexplained));
}

#[test]
fn a_grave_that_does_not_keep_its_message_is_noticed() {
    assert!(is_found(Sabotage::Grave, Mix::Lanes, Kind::Lost));
}

#[test]
fn a_wait_without_an_end_is_noticed() {
    assert!(is_found(Sabotage::Sleep, Mix::Lanes, Kind::Lost));
}

#[test]
fn a_dialog_outside_its_group_is_noticed() {
    assert!(is_found(Sabotage::Alone, Mix::Dialogs, Kind::Unexplained));
}

#[test]
fn a_page_that_goes_on_in_its_sleep_is_noticed() {
    assert!(is_found(Sabotage::Walk, Mix::Dialogs, Kind::TwoReaders));
}

#[test]
fn a_dispatch_that_deletes_nothing_is_noticed() {
    assert!(is_found(Sabotage::Undead, Mix::Later, Kind::Twice));
}

#[test]
fn a_cancel_that_deletes_nothing_is_noticed() {
    assert!(is_found(Sabotage::Deaf, Mix::Later, Kind::Revived));
}

#[test]
fn a_delay_that_is_too_short_is_noticed() {
    assert!(is_found(Sabotage::Hurry, Mix::Later, Kind::Early));
}

#[test]
fn what_a_store_of_the_applications_own_does_not_keep_is_noticed() {
    assert!(is_found(Sabotage::Leak, Mix::Elsewhere, Kind::Lost));
}

#[test]
fn what_it_gives_before_its_time_is_noticed() {
    assert!(is_found(Sabotage::Rush, Mix::Elsewhere, Kind::Early));
}

#[test]
fn what_it_keeps_for_itself_is_noticed() {
    assert!(is_found(Sabotage::Idle, Mix::Elsewhere, Kind::Late));
}

#[test]
fn a_dispatch_that_is_not_remembered_is_noticed() {
    assert!(is_found(Sabotage::Amnesia, Mix::Elsewhere, Kind::Twice));
}

#[test]
fn a_cancel_that_is_not_remembered_is_noticed() {
    assert!(is_found(Sabotage::Mute, Mix::Elsewhere, Kind::Revived));
}

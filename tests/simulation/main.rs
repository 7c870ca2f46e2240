//! The simulation: several tabs over one store in memory, with time, chance, crashes and faults under control, and a model that knows what must come
//! of it. A seed is a run; the same seed is the same run.
//!
//! `SEED=17 cargo test --test simulation seeds` runs one seed and tells every call. `make simulate SEEDS=200000` runs many.
#![cfg(not(target_arch = "wasm32"))]
// A test that panics says where and why: that is what it is for.
#![allow(clippy::as_conversions, clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss)]
#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::string_slice, clippy::unwrap_used)]
#![allow(clippy::print_stdout)]

mod actor;
mod calls;
mod executor;
mod explain;
mod history;
mod journal;
mod ledger;
mod look;
mod model;
mod origin;
mod readers;
mod run;
mod sabotage;
mod time;

/// What the conformance suite has already: hosts, locks, the shop, and the model of the random test.
#[path = "../conformance"]
#[allow(dead_code, unused_imports, unused_macros, reason = "the suite uses more of it")]
mod conformance {
    pub(crate) mod support;

    pub(crate) mod random {
        pub(crate) mod due;
        pub(crate) mod model;
        pub(crate) mod seen;
    }
}

use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use self::origin::{Kind, Violation};
use self::sabotage::Sabotage;

/// Without a wish.
const SEEDS: u64 = 2_000;
/// So many seeds see a broken broker.
const SABOTAGED: u64 = 60;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|number| number.parse().ok())
}

#[test]
fn seeds_are_what_the_model_says() {
    if let Some(seed) = number("SEED") {
        return check(seed, true);
    }
    let first = number("FROM").unwrap_or(1);
    let end = first + number("SEEDS").unwrap_or(SEEDS);
    let next = AtomicU64::new(first);
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
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
    let [first, second] = [(); 2].map(|()| run::run(8, None, false).expect("the model agrees"));
    assert_eq!(first, second);
    assert!(first.turns > 500 && first.commits > 50 && first.lives > 3, "{first:?}");
}

fn check(seed: u64, is_told: bool) {
    let command = format!("SEED={seed} cargo test --test simulation seeds -- --nocapture");
    match catch_unwind(AssertUnwindSafe(|| run::run(seed, None, is_told))) {
        Ok(Ok(_)) => {}
        Ok(Err(Violation { kind, text })) => panic!("{kind:?} in seed {seed}. Again: {command}\n{text}"),
        Err(panic) => {
            println!("A panic in seed {seed}. Again: {command}");
            resume_unwind(panic);
        }
    }
}

/// What is found within some seeds when something is broken on purpose.
fn found(sabotage: Sabotage) -> Vec<Kind> {
    let kind = |seed| run::run(seed, Some(sabotage), false).err().map(|violation| violation.kind);
    let kinds: Vec<Kind> = (1..=SABOTAGED).filter_map(kind).collect();
    println!("{sabotage:?}: {kinds:?}");
    kinds
}

#[test]
fn a_cursor_that_is_not_moved_is_noticed() {
    assert!(found(Sabotage::Cursor).contains(&Kind::Twice));
}

#[test]
fn a_broken_fence_is_noticed() {
    assert!(found(Sabotage::Fence).contains(&Kind::Twice));
}

#[test]
fn locks_that_keep_nobody_out_are_noticed() {
    assert!(found(Sabotage::Locks).contains(&Kind::TwoReaders));
}

#[test]
fn half_a_commit_is_noticed() {
    assert!(found(Sabotage::Half).contains(&Kind::Unsound));
}

#[test]
fn an_answer_before_the_commit_is_noticed() {
    assert!(found(Sabotage::Early).contains(&Kind::Lost));
}

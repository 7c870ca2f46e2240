//! Brokers and a network between them that loses, repeats, delays and reorders: what is sent from one to another is received once and in order, and every
//! conversation comes to its end. Each broker has a store in memory and one or two tabs over it that die at any await; a small model knows what was sent
//! and received. A seed is a run; the same seed is the same run. Most have 2 to 5 brokers, some 100.
//!
//! `SEED=17 cargo test --test simulation brokers_hear` runs one seed and tells everything. `BROKERS` says how many there are.

mod actor;
mod arrive;
mod broken;
mod ledger;
mod net;
mod rest;
mod run;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use self::broken::Sabotage;
use self::run::{Summary, run};
use crate::number;
use crate::origin::{Kind, Violation};

/// Without a wish.
const SEEDS: u64 = 40;
/// Every so many have 100 brokers.
const CROWDED: u64 = 20;
/// So many seeds see a broken broker, if it takes that many.
const SABOTAGED: u64 = 60;

fn brokers(seed: u64) -> usize {
    let asked = number("BROKERS").map(|brokers| brokers as usize);
    asked.unwrap_or_else(|| if seed.is_multiple_of(CROWDED) { 100 } else { 2 + (seed % 4) as usize })
}

#[test]
fn brokers_hear_everything_once_and_in_order() {
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
            if let Err(panic) = catch_unwind(|| check(seed, false)) {
                next.store(end, Ordering::Relaxed);
                resume_unwind(panic);
            }
        }
    };
    thread::scope(|scope| {
        let threads = thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let outcomes: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        if let Some(panic) = outcomes.into_iter().find_map(Result::err) {
            resume_unwind(panic);
        }
    });
}

fn check(seed: u64, is_told: bool) {
    let command = format!("SEED={seed} cargo test --test simulation brokers_hear -- --nocapture");
    match catch_unwind(AssertUnwindSafe(|| run(seed, brokers(seed), None, is_told))) {
        Ok(Ok(summary)) if is_told => println!("{summary:?}"),
        Ok(Ok(_)) => {}
        Ok(Err(Violation { kind, text })) => panic!("{kind:?} in seed {seed}. Again: {command}\n{text}"),
        Err(panic) => {
            println!("A panic in seed {seed}. Again: {command}");
            resume_unwind(panic);
        }
    }
}

#[test]
fn a_seed_of_brokers_is_the_same_run_every_time() {
    for seed in [1, 2] {
        let [first, second] = [(); 2].map(|()| run(seed, 3, None, false).expect("the model agrees"));
        assert_eq!(first, second);
        let Summary { calls, lost, repeated, whole, received, .. } = first;
        assert!(calls > 50 && lost > 10 && repeated > 10 && whole > 5 && received > 50, "{second:?}");
    }
}

/// Whether what is broken on purpose is noticed, as this, within some seeds.
fn is_found(sabotage: Sabotage, kind: Kind) -> bool {
    (1..=SABOTAGED).any(|seed| {
        let found = run(seed, 3, Some(sabotage), false).err();
        found.is_some_and(|violation| violation.kind == kind)
    })
}

#[test]
fn an_acknowledgement_of_what_was_never_handed_over_is_noticed() {
    assert!(is_found(Sabotage::Gullible, Kind::Lost));
}

#[test]
fn a_number_that_is_taken_twice_is_noticed() {
    assert!(is_found(Sabotage::Repeats, Kind::Twice));
}

#[test]
fn rows_that_leave_when_they_are_accepted_are_noticed() {
    assert!(is_found(Sabotage::Accepts, Kind::Lost));
}

#[test]
fn an_acknowledgement_before_the_commit_is_noticed() {
    assert!(is_found(Sabotage::Early, Kind::Lost));
}

#[test]
fn a_finished_conversation_that_is_forgotten_is_noticed() {
    assert!(is_found(Sabotage::Forgetful, Kind::Twice));
}

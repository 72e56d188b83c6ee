//! Shared memory passes the conformance suite, also with more ranks than cores.

use onesided_fabric::shm::{Shm, threads};
use onesided_fabric::{Either, World, block_on, conformance};

#[test]
fn conforms() {
    for ranks in [1, 2, 3, 4, 8] {
        let outcomes = threads(ranks, |shm| block_on(&shm, conformance::run(&World::new(shm.clone())))).unwrap();
        for outcome in outcomes {
            let summary = outcome.unwrap_or_else(|failure| panic!("{ranks} ranks: {failure}"));
            assert_eq!(summary.fabric, "shm");
        }
    }
}

#[test]
fn conforms_when_chosen_at_run_time() {
    for first in [true, false] {
        let run = |shm: Shm| {
            let chosen = if first { Either::<Shm, Shm>::First(shm) } else { Either::Second(shm) };
            block_on(&chosen, conformance::run(&World::new(chosen.clone())))
        };
        for outcome in threads(2, run).unwrap() {
            outcome.unwrap_or_else(|failure| panic!("{failure}"));
        }
    }
}

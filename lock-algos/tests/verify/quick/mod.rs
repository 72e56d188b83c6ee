//! Deterministic tests that build and run in seconds: what mutants of this crate meet first, as the
//! program `quick` (`scripts/mutants`).
//!
//! Each lock has a file of its own, so that a change of one lock rebuilds one of them: few random
//! programs, and every schedule with a delay bound of one or two. And scenarios: [`recovery_races`]
//! has two recovering owners overtake one another, [`poisoned`] acquires poisoned locks,
//! [`cancelled`] cancels waiters, [`recovering`] tries and leaves locks under recovery,
//! [`suspicion`] has a rank that dies and holds nothing, [`release_poisoned`] has recovering owners
//! that are cancelled, [`leased`] has owners with expired leases, and [`promises`] checks the
//! properties that locks report.

mod any_lock;
mod cancelled;
mod distributed_counters;
mod fetch_add_queue;
mod global;
mod leased;
mod mcs;
mod poisoned;
mod promises;
mod recovering;
mod recovery_races;
mod release_poisoned;
mod served;
mod suspicion;
mod test_and_set;
mod ticket;
mod two_level;

use onesided_lock_algos::LockAlgorithm;
use onesided_lock_kit::{Checker, Search, Section, Setting};

/// Random programs without deaths or with one.
fn search<A: LockAlgorithm + Clone>(lock: &A) {
    let search = Search::of(lock).seed(1).cases(300);
    search.clone().run();
    search.clone().deaths().run();
    search.leaves().run();
}

/// Schedules of few sections with a delay bound of one or two: another order, a crash, a lost
/// operation or reply, a stop.
fn check<A: LockAlgorithm + Clone>(lock: &A, per_host: u32) {
    const X: Section = Section::EXCLUSIVE;
    const A: Section = X.touching(0);
    const B: Section = Section::SHARED.touching(0);
    let checker = Checker::of(lock).setting(Setting { per_host, ..Setting::USUAL }).delay_bound(1);
    for programs in [&[&[A][..], &[A]][..], &[&[A.cancelled(1), B], &[A, B]], &[&[A], &[A.cancelled(2)], &[B]]] {
        checker.clone().delay_bound(2).at_most(5_000).run(programs);
    }
    for programs in [&[&[X][..], &[B, X]][..], &[&[A.trying()], &[A]], &[&[A], &[A], &[B]]] {
        checker.run(programs);
        checker.clone().crashes(1).run(programs);
        checker.clone().crashes(1).memory_goes().delay_bound(2).at_most(5_000).run(programs);
        checker.clone().losses(1).run(programs);
        checker.clone().losses(1).crashes(1).delay_bound(2).at_most(2_000).run(programs);
        checker.clone().stops(1).crashes(1).delay_bound(2).at_most(2_000).run(programs);
    }
    // Cancelled at any point.
    for asked in [2, 5, 250] {
        let recoveries = checker.clone().crashes(1).delay_bound(2).at_most(15_000);
        recoveries.run(&[&[], &[X], &[A.cancelled_recovering(asked)]]);
    }
}

//! What is built and run in seconds, the same each time: what mutants of this crate meet first (`scripts/mutants`).
//!
//! Of each lock, in a file of its own, so that a change of one lock builds one of them again: few random programs, and every
//! schedule that is_delay_bounded once or twice from the usual one. And stories of their own: [`heirs`] has two who inherit overtake one another,
//! [`poisoned`] asks for locks of the dead, [`given_up`] waits and is not wanted any more, [`frozen`] tries and leaves frozen locks, [`forsaken`] has heirs who do not want to be, [`lossy`] those who are not answered,
//! [`leased`] has owners that are late, and [`promises`] holds locks to what they say of themselves.

mod any_lock;
mod cancelled;
mod distributed_counters;
mod fetch_add_queue;
mod global;
mod leased;
#[path = "../verify/lock_all_word.rs"]
mod lock_all_word;
mod lossy;
#[path = "../verify/marks.rs"]
mod marks;
mod mcs;
mod poisoned;
mod promises;
mod recovering;
mod recovery_races;
#[path = "../verify/refused.rs"]
mod refused;
mod release_poisoned;
mod served;
#[path = "../verify/stopped.rs"]
mod stopped;
mod test_and_set;
mod ticket;
mod two_level;

use onesided_lock_algos::{LockAlgorithm, Owner};
use onesided_lock_kit::{Checker, Search, Section, Setting};
use onesided_remote_memory::Rank;

/// A rank's owner, with a slot.
const fn slotted(rank: u32) -> Owner {
    Owner { rank: Rank(rank), slot: 0, generation: 0 }
}

/// Random programs in which nobody dies or one rank does, with nodes and without.
fn search<A: LockAlgorithm + Clone>(lock: &A) {
    let search = Search::of(lock).seed(1).cases(300);
    search.clone().run();
    search.clone().deaths().run();
    search.setting(Setting { nodes: false, ..Setting::USUAL }).run();
}

/// What became of an operation whose answer is lost.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lost {
    /// The lock finds out.
    Settled,
    /// Its owner may be told that nobody knows, and ends.
    Told,
}

/// Schedules of few rounds that depart once or twice from the usual one: another order, a crash, a lost operation or answer, a
/// stop.
fn check<A: LockAlgorithm + Clone>(lock: &A, lost: Lost, per_host: u32) {
    const X: Section = Section::EXCLUSIVE;
    const A: Section = X.touching(0);
    const B: Section = Section::SHARED.touching(0);
    let checker = Checker::of(lock).per_host(per_host).delay_bound(1);
    for programs in [&[&[A][..], &[A]][..], &[&[A.cancelled(1), B], &[A, B]], &[&[A], &[A.cancelled(2)], &[B]]] {
        checker.clone().delay_bound(2).at_most(5_000).run(programs);
    }
    if lost == Lost::Settled {
        let settled = checker.clone().delay_bound(2).losses(1).resolved().at_most(10_000);
        settled.run(&[&[A, A], &[A]]);
        settled.clone().crashes(1).run(&[&[A], &[A], &[B]]);
        settled.crashes(1).run(&[&[A], &[A.without_node()]]);
    }
    for programs in [&[&[X][..], &[B, X]][..], &[&[A.trying()], &[A]], &[&[A], &[A], &[B]]] {
        checker.run(programs);
        checker.clone().crashes(1).run(programs);
        checker.clone().crashes(1).memory_goes().delay_bound(2).at_most(5_000).run(programs);
        let loses = checker.clone().losses(1);
        if lost == Lost::Settled { loses.resolved() } else { loses }.run(programs);
        checker.clone().stops(1).crashes(1).delay_bound(2).at_most(2_000).run(programs);
    }
    // Wherever it is when it is not wanted any more.
    for asked in [2, 5, 250] {
        let recoveries = checker.clone().crashes(1).delay_bound(2).at_most(15_000);
        recoveries.run(&[&[], &[X], &[A.cancelled_recovering(asked)]]);
    }
}

//! The fetch-add queue with counters that wrap and full rings, the operations that it posts, and lost or late
//! notifications.

use crate::right::{free_at, queue, returning, taking};
use onesided_lock_algos::{FetchAddQueue, Mode};
use onesided_lock_kit::program::region_words;
use onesided_lock_kit::random::{run as run_in, scenarios as scenario};
use onesided_lock_kit::world::Time;
use onesided_lock_kit::{ModelMemory, Op, Posted, Scenario, Section, Setting, posted};
use onesided_remote_memory::Rank;
use proptest::prelude::*;

use crate::random::{expect_caught, run};
use crate::stopped::{ENDLESS, SLOTS, acquire, release, run as run_for};
use crate::users::{Acquire, slotted};
use crate::{S, X};

/// A waiter that is not notified waits without end.
const TIMELESS: Setting = Setting { timeless: true, ..Setting::USUAL };

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, max_shrink_iters: 1000, ..ProptestConfig::default() })]

    /// Counters that wrap soon, rings of two entries with counters of 4 bits, and more owners than tickets, and
    /// than entries.
    #[test]
    fn excludes_and_ends(scenario in scenario(false), readers in 0x7ff8_u64..0x8000, owners in 0x7ff8_u64..0x8000) {
        let at = |bits| Setting { lock: free_at(bits, readers, owners), ..TIMELESS };
        run_in(at(15), &queue::<15, 16>(), &scenario).map_err(TestCaseError::fail)?;
        run_in(at(4), &queue::<4, 2>(), &scenario).map_err(TestCaseError::fail)?;
        run_in(TIMELESS, &queue::<1, 1>(), &scenario).map_err(TestCaseError::fail)?;
        run_in(TIMELESS, &queue::<2, 2>(), &scenario).map_err(TestCaseError::fail)?;
        run(&queue::<2, 2>(), &scenario).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn a_death_is_reported_to_the_recovering_owner(scenario in scenario(true), readers in 0x7ff8_u64..0x8000, owners in 0x7ff8_u64..0x8000) {
        let at = |bits| Setting { lock: free_at(bits, readers, owners), ..Setting::USUAL };
        run_in(at(15), &queue::<15, 16>(), &scenario).map_err(TestCaseError::fail)?;
        run_in(at(4), &queue::<4, 1>(), &scenario).map_err(TestCaseError::fail)?;
        run(&queue::<1, 1>(), &scenario).map_err(TestCaseError::fail)?;
        run(&queue::<2, 2>(), &scenario).map_err(TestCaseError::fail)?;
    }
}

/// The operations that a run of these programs posts.
fn posted(programs: &[&[Section]]) -> Posted {
    let programs = programs.iter().map(|rounds| rounds.to_vec()).collect();
    run(&queue::<15, 16>(), &Scenario { programs, schedule: vec![], death: None }).unwrap()
}

#[test]
fn uncontended_costs_two_operations() {
    for mode in [Mode::Exclusive, Mode::Shared] {
        let quiet = Section { mode, touches: 0, ..X };
        assert_eq!(posted(&[&[quiet]]), Posted { fetch_adds: 2, ..Posted::default() });
    }
}

/// Queueing takes a fetch-add and a write, with a read in the same chain; a hand-over takes one
/// write, after a read of the entry. The next owner posts nothing more.
#[test]
fn one_fetch_add_and_one_write_to_enqueue() {
    let busy = Section { touches: 6, ..X };
    let quiet = Section { touches: 0, ..X };
    let alone = posted(&[&[busy]]);
    let both = posted(&[&[busy], &[quiet]]);
    let more = Posted {
        fetch_adds: alone.fetch_adds + 2, // a ticket, and its return
        writes: alone.writes + 2,         // its entry, and the notification
        reads: alone.reads + 1 + 2,       // it polls; the releasing owner reads the entry and the counters
        waits: 1,                         // the clock, before it sleeps
        ..alone
    };
    assert_eq!(both, more);
}

/// The same for a reader, which writes its entry by a compare-swap, after a read.
#[test]
fn a_reader_enqueues_by_a_compare_swap() {
    let busy = Section { touches: 6, ..X };
    let quiet = Section { touches: 0, ..S };
    let alone = posted(&[&[busy]]);
    let both = posted(&[&[busy], &[quiet]]);
    let more = Posted {
        fetch_adds: alone.fetch_adds + 2,
        compare_swaps: 1,
        writes: alone.writes + 1,
        reads: alone.reads + 3 + 2,
        waits: 1,
    };
    assert_eq!(both, more);
}

/// The previous owner notifies all waiting readers, each by one write.
#[test]
fn consecutive_readers_are_notified_together() {
    let busy = Section { touches: 9, ..X };
    let quiet = Section { touches: 0, ..S };
    let alone = posted(&[&[busy]]);
    let all = posted(&[&[busy], &[quiet], &[quiet], &[quiet]]);
    assert_eq!(all.fetch_adds - alone.fetch_adds, 6);
    assert_eq!(all.writes - alone.writes, 3, "one for each reader");
    assert_eq!((all.compare_swaps, all.waits), (3, 3));
    assert_eq!(all.reads - alone.reads, 3 * 3 + 3 + 1);
}

/// As the ring's documentation says. The entries of rank 0 look like counters, and stay as they
/// are.
const fn is_entry(value: u64) -> bool {
    value >> 63 == 1 && value >> 41 & 0x3f_ffff == 0 && value >> 39 != 1 << 24
}
const fn is_grant(value: u64) -> bool {
    value >> 63 == 1 && value >> 42 & 0x1f_ffff != 0
}
const fn is_hint(value: u64) -> bool {
    value >> 63 == 0 && value >> 32 != 0
}

/// Its name, its mutation, and what is found.
type Bend = (&'static str, fn(Op) -> Op, &'static str);

/// The lock with an operation left out or replaced. Counters of four bits, and rings of one entry.
#[test]
fn wrong_ones_are_caught() {
    const RETURN_X: u64 = returning(4, Mode::Exclusive);
    const RETURN_S: u64 = returning(4, Mode::Shared);
    const TAKE_X: u64 = taking(4, Mode::Exclusive);
    const TAKE_S: u64 = taking(4, Mode::Shared);
    let mutations: [Bend; 9] = [
        ("frees by a write", posted!(FetchAdd(RETURN_X) => Write(0)), ""),
        ("a release that is not done", posted!(FetchAdd(RETURN_S) => Read), ""),
        ("a reader without a ticket", posted!(FetchAdd(TAKE_S) => Read), ""),
        (
            "an owner with a reader's ticket",
            posted!(FetchAdd(TAKE_X) => FetchAdd(TAKE_S), FetchAdd(RETURN_X) => FetchAdd(RETURN_S)),
            "",
        ),
        ("an owner without an entry", posted!(Write(entry) if is_entry(entry) => Read), "wait without end"),
        (
            "an entry that names another",
            posted!(Write(entry) if is_entry(entry) => Write(entry ^ 1 << 39)),
            "wait without end",
        ),
        (
            "an entry of another turn",
            posted!(Write(entry) if is_entry(entry) => Write(entry ^ 1 << 12)),
            "wait without end",
        ),
        ("nobody is told", posted!(Write(grant) if is_grant(grant) => Read), "wait without end"),
        (
            "everybody is told the same",
            posted!(Write(grant) if is_grant(grant) => Write(1 << 63 | 1 << 42)),
            "wait without end",
        ),
    ];
    for (flaw, mutate, expected) in mutations {
        // Its counters wrap soon.
        let setting = Setting { mutate: Some(mutate), lock: free_at(4, 14, 15), ..TIMELESS };
        expect_caught(flaw, false, expected, |scenario| run_in(setting, &queue::<4, 1>(), scenario));
    }
}

/// Rank 1, a reader, is served and does not know it: it is stopped before it has written its entry,
/// or after that while rank 0, which releases, has not read it. Rank 2 reads and has left, rank 3
/// waits for an exclusive lock, and rank 4, a reader behind it, needs rank 1's entry. Returns the
/// ranks that never enter.
fn meet_at_a_place(late: Rank, mutate: Option<fn(Op) -> Op>) -> Vec<u32> {
    let lock = queue::<4, 2>();
    let memory = ModelMemory::new(5, region_words::<FetchAddQueue<4, 2>>(SLOTS));
    (memory.world().mutate, memory.world().time) = (mutate, Time::WithoutDeadlines);
    let all: Vec<_> = (0..5).map(|rank| memory.of(rank)).collect();
    let ask = |rank: u32, mode| acquire(&lock, &all[rank as usize], slotted(rank), mode);
    let give_back = |rank: u32, mode| release(&lock, &all[rank as usize], slotted(rank), mode);
    let comes_in = |acquire: &mut Acquire<'_>| run_for(&memory, acquire, ENDLESS).is_some();

    assert!(comes_in(&mut ask(0, Mode::Exclusive)));
    let mut first = ask(1, Mode::Shared);
    let mut second = ask(2, Mode::Shared);
    let mut releases = give_back(0, Mode::Exclusive);
    if late == Rank(1) {
        // Its ticket, its read of the entry, and its entry has left.
        assert!(run_for(&memory, &mut first, 6).is_none());
        memory.world().stopped = Some(late);
        assert!(run_for(&memory, &mut second, 100).is_none());
        run_for(&memory, &mut releases, ENDLESS).unwrap().unwrap();
    } else {
        assert!(run_for(&memory, &mut first, 100).is_none());
        // It has its ticket before the release.
        assert!(run_for(&memory, &mut second, 1).is_none());
        assert!(run_for(&memory, &mut releases, 3).is_none());
        memory.world().stopped = Some(late);
    }
    assert!(comes_in(&mut second));
    let mut alone = ask(3, Mode::Exclusive);
    assert!(run_for(&memory, &mut alone, 100).is_none());
    let mut returns = give_back(2, Mode::Shared);
    run_for(&memory, &mut returns, ENDLESS).unwrap().unwrap();
    let mut behind = ask(4, Mode::Shared);
    assert!(run_for(&memory, &mut behind, 100).is_none());
    memory.world().stopped = None;
    if late == Rank(0) {
        run_for(&memory, &mut releases, ENDLESS).unwrap().unwrap();
    }
    let mut outside = Vec::new();
    for (rank, acquire, mode) in
        [(1, &mut first, Mode::Shared), (3, &mut alone, Mode::Exclusive), (4, &mut behind, Mode::Shared)]
    {
        if !comes_in(acquire) {
            outside.push(rank);
            continue;
        }
        let mut returns = give_back(rank, mode);
        run_for(&memory, &mut returns, ENDLESS).unwrap().unwrap();
    }
    outside
}

#[test]
fn readers_meet_at_a_place() {
    for late in [Rank(0), Rank(1)] {
        assert_eq!(meet_at_a_place(late, None), []);
    }
    let by_a_write = posted!(CompareSwap(_, entry) if is_entry(entry) => Write(entry));
    assert_eq!(meet_at_a_place(Rank(1), Some(by_a_write)), [4], "who comes late displaces who waits");
    let untold = posted!(Write(hint) if is_hint(hint) => Read);
    assert_eq!(meet_at_a_place(Rank(0), Some(untold)), [1, 3, 4], "who is displaced is not told");
}

/// A recovery without a participant scan, and a lock that is never put under recovery.
#[test]
fn wrong_recoveries_are_caught() {
    let blind = Setting { blind: true, ..Setting::USUAL };
    expect_caught("asks nobody", true, "", |scenario| run_in(blind, &queue::<4, 2>(), scenario));
    let mutate = posted!(CompareSwap(expected, new) if new == expected | 1 && new != expected => Read);
    let never = Setting { mutate: Some(mutate), ..Setting::USUAL };
    expect_caught("no recovery", true, "wait without end", |scenario| run_in(never, &queue::<4, 2>(), scenario));
}

//! The ticket lock with counters that wrap and more owners than tickets, what it costs, and wrong variants.

use crate::right::{free_at, returning, taking, ticket};
use onesided_lock_algos::Mode;
use onesided_lock_kit::random::{run as run_in, scenarios as scenario};
use onesided_lock_kit::{Op, Posted, Scenario, Section, Setting, posted};
use proptest::prelude::*;

use crate::X;
use crate::random::{expect_caught, run};

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, max_shrink_iters: 1000, ..ProptestConfig::default() })]

    /// Counters of 15 and of 4 bits that wrap soon, and more owners than tickets.
    #[test]
    fn excludes_and_ends(scenario in scenario(false), readers in 0x7ff8_u64..0x8000, owners in 0x7ff8_u64..0x8000) {
        let at = |bits| Setting { lock: free_at(bits, readers, owners), ..Setting::USUAL };
        run_in(at(15), &ticket::<15>(), &scenario).map_err(TestCaseError::fail)?;
        run_in(at(4), &ticket::<4>(), &scenario).map_err(TestCaseError::fail)?;
        run(&ticket::<1>(), &scenario).map_err(TestCaseError::fail)?;
        run(&ticket::<2>(), &scenario).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn a_death_is_reported_to_the_recovering_owner(scenario in scenario(true), readers in 0x7ff8_u64..0x8000, owners in 0x7ff8_u64..0x8000) {
        let at = |bits| Setting { lock: free_at(bits, readers, owners), ..Setting::USUAL };
        run_in(at(15), &ticket::<15>(), &scenario).map_err(TestCaseError::fail)?;
        run_in(at(4), &ticket::<4>(), &scenario).map_err(TestCaseError::fail)?;
        run(&ticket::<1>(), &scenario).map_err(TestCaseError::fail)?;
        run(&ticket::<2>(), &scenario).map_err(TestCaseError::fail)?;
    }
}

#[test]
fn uncontended_costs_two_operations() {
    for mode in [Mode::Exclusive, Mode::Shared] {
        let programs = vec![vec![Section { mode, touches: 0, ..X }]];
        let expected = Posted { fetch_adds: 2, ..Posted::default() };
        assert_eq!(run(&ticket::<15>(), &Scenario { programs, schedule: vec![], death: None }), Ok(expected));
    }
}

/// The lock with an operation left out, weakened or added. Four bits.
#[test]
fn wrong_ones_are_caught() {
    const FROZEN: u64 = 1;
    const GUARDS: u64 = 1 << 5 | 1 << 10 | 1 << 15;
    const TAKE_S: u64 = taking(4, Mode::Shared);
    const TAKE_X: u64 = taking(4, Mode::Exclusive);
    const RETURN_S: u64 = returning(4, Mode::Shared);
    const RETURN_X: u64 = returning(4, Mode::Exclusive);
    const fn withdraws(expected: u64, new: u64) -> bool {
        let less = expected.wrapping_sub(new);
        less == TAKE_S || less == TAKE_X
    }
    const fn takes_over(expected: u64, new: u64) -> bool {
        expected & FROZEN != 0 && new & FROZEN == 0
    }
    /// Its name, its mutation, whether a rank dies, and what is found.
    type Bend = (&'static str, fn(Op) -> Op, bool, &'static str);
    let mutations: [Bend; 13] = [
        ("frees by a write", posted!(FetchAdd(RETURN_X) => Write(0)), false, ""),
        ("a release that is not done", posted!(FetchAdd(RETURN_X) => Read), false, "wait without end"),
        ("a reader without a ticket", posted!(FetchAdd(TAKE_S) => Read), false, ""),
        (
            "an owner with a reader's ticket",
            posted!(FetchAdd(TAKE_X) => FetchAdd(TAKE_S), FetchAdd(RETURN_X) => FetchAdd(RETURN_S)),
            false,
            "",
        ),
        ("a reader returns an owner's ticket", posted!(FetchAdd(RETURN_S) => FetchAdd(RETURN_X)), false, ""),
        ("an owner returns two tickets", posted!(FetchAdd(RETURN_X) => FetchAdd(2 * RETURN_X)), false, ""),
        (
            "a guard that lets a carry through",
            posted!(CompareSwap(expected, new) if expected & GUARDS != 0 && new == expected & !GUARDS =>
                CompareSwap(expected, expected.wrapping_add(expected & GUARDS))),
            false,
            "",
        ),
        (
            "withdraws whoever came since",
            posted!(CompareSwap(expected, new) if withdraws(expected, new) => Write(new)),
            false,
            "",
        ),
        (
            "no recovery",
            posted!(CompareSwap(expected, new) if new == expected | FROZEN && new != expected => Read),
            true,
            "wait without end",
        ),
        (
            "starts a recovery by a write",
            posted!(CompareSwap(expected, new) if new == expected | FROZEN && new != expected => Write(new)),
            true,
            "",
        ),
        (
            "recovers by a write",
            posted!(CompareSwap(expected, new) if takes_over(expected, new) => Write(new)),
            true,
            "",
        ),
        (
            "leaves the tickets of the dead out",
            posted!(CompareSwap(expected, new) if takes_over(expected, new) =>
                CompareSwap(expected, (expected & !FROZEN).wrapping_add(TAKE_X))),
            true,
            "",
        ),
        (
            "recovers without a ticket",
            posted!(CompareSwap(expected, new) if takes_over(expected, new) =>
                CompareSwap(expected, expected & !FROZEN)),
            true,
            "",
        ),
    ];
    for (flaw, mutate, dies, expected) in mutations {
        // Its counters wrap soon.
        let setting = Setting { mutate: Some(mutate), lock: free_at(4, 14, 15), ..Setting::USUAL };
        expect_caught(flaw, dies, expected, |scenario| run_in(setting, &ticket::<4>(), scenario));
    }
}

/// A recovery without a participant scan.
#[test]
fn a_missing_participant_scan_is_caught() {
    let setting = Setting { blind: true, ..Setting::USUAL };
    expect_caught("asks nobody", true, "", |scenario| run_in(setting, &ticket::<4>(), scenario));
}

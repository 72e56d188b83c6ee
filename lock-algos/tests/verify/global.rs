//! Lock-all over several locks of the targets, a stopped waiter, and wrong variants.

use crate::right::{global, mcs, right, ticket};
use onesided_lock_kit::random::{run as run_in, scenarios as scenario};
use onesided_lock_kit::{Op, Setting, posted};
use proptest::prelude::*;

use crate::lock_all_word::tested;
use crate::random::{expect_caught, run};
use crate::stopped::stop_everywhere;

/// What one owner of each group adds to the lock-all word when it enters, leaves, and waits.
const ENTER_ALL: u64 = 1;
const ENTER_X: u64 = 1 << 15;
const LEAVE_ALL: u64 = ENTER_ALL.wrapping_neg();
const LEAVE_X: u64 = ENTER_X.wrapping_neg();
const WAIT_X: u64 = 1 << 45;
const BACK_ALL: u64 = (1 << 30) - ENTER_ALL;
const BACK_X: u64 = WAIT_X - ENTER_X;
const PHASES: u64 = 3 << 60;
const INSIDE: u64 = (1 << 30) - 1;
const FROZEN: u64 = 1 << 63;
const STAMP: u64 = 0x3fff << 30 | 0x3fff << 45;

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, max_shrink_iters: 1000, ..ProptestConfig::default() })]

    /// Over other locks of the targets, and with more owners than there is room for.
    #[test]
    fn excludes_and_ends(scenario in scenario(false)) {
        run(&global::<_, 15>(ticket::<2>()), &scenario).map_err(TestCaseError::fail)?;
        run(&global::<_, 15>(mcs()), &scenario).map_err(TestCaseError::fail)?;
        run(&global::<_, 1>(right()), &scenario).map_err(TestCaseError::fail)?;
        run(&global::<_, 2>(right()), &scenario).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn a_death_is_reported_to_the_recovering_owner(scenario in scenario(true)) {
        run(&global::<_, 15>(ticket::<2>()), &scenario).map_err(TestCaseError::fail)?;
        run(&global::<_, 15>(mcs()), &scenario).map_err(TestCaseError::fail)?;
        run(&global::<_, 1>(right()), &scenario).map_err(TestCaseError::fail)?;
        run(&global::<_, 2>(right()), &scenario).map_err(TestCaseError::fail)?;
    }
}

#[test]
fn a_stopped_waiter_does_no_harm() {
    stop_everywhere(&tested(), None);
}

/// Its recoveries have no nonce.
#[test]
#[should_panic(expected = "rank 0, stopped")]
fn recoveries_without_a_nonce_are_caught() {
    let mutate = posted!(CompareSwap(expected, new) if expected & FROZEN == 0 && new & FROZEN != 0 =>
        CompareSwap(expected, new & !STAMP & !PHASES));
    stop_everywhere(&tested(), Some(mutate));
}

/// The lock with an operation on the lock-all word left out or replaced.
#[test]
fn wrong_ones_are_caught() {
    /// Its name, its mutation, whether a rank dies, and what is found.
    type Bend = (&'static str, fn(Op) -> Op, bool, &'static str);
    let mutations: [Bend; 11] = [
        ("an exclusive owner who does not announce itself", posted!(FetchAdd(ENTER_X) => Read), false, ""),
        ("who locks all and does not count", posted!(FetchAdd(ENTER_ALL) => Read), false, ""),
        ("an exclusive owner who stays", posted!(FetchAdd(LEAVE_X) => Read), false, ""),
        ("who locks all and stays", posted!(FetchAdd(LEAVE_ALL) => Read), false, ""),
        ("leaves by a write", posted!(FetchAdd(LEAVE_ALL) => Write(0)), false, ""),
        ("waits and does not step back", posted!(FetchAdd(BACK_X) => FetchAdd(WAIT_X)), false, ""),
        ("steps back and does not wait", posted!(FetchAdd(BACK_ALL) => FetchAdd(LEAVE_ALL)), false, ""),
        (
            "lets in by the same phase",
            posted!(CompareSwap(expected, new) if (expected ^ new) & PHASES != 0 && new & FROZEN == 0 =>
                CompareSwap(expected, new & !PHASES | expected & PHASES)),
            false,
            "",
        ),
        (
            "lets in by a write",
            posted!(CompareSwap(expected, new) if (expected ^ new) & PHASES != 0 && new & FROZEN == 0 => Write(new)),
            false,
            "",
        ),
        (
            "no recovery",
            posted!(CompareSwap(expected, new) if expected & FROZEN == 0 && new & FROZEN != 0 => Read),
            true,
            "wait without end",
        ),
        (
            "a recovering owner that leaves the dead in",
            posted!(CompareSwap(expected, new) if expected & new & FROZEN != 0 =>
                CompareSwap(expected, new + (expected & INSIDE))),
            true,
            "",
        ),
    ];
    for (flaw, mutate, dies, expected) in mutations {
        let setting = Setting { mutate: Some(mutate), ..Setting::USUAL };
        expect_caught(flaw, dies, expected, |scenario| run_in(setting, &tested(), scenario));
    }
    let blind = Setting { blind: true, ..Setting::USUAL };
    expect_caught("asks nobody", true, "", |scenario| run_in(blind, &tested(), scenario));
}

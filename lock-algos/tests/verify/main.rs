//! The requirements on the locks, tested by the kit ([`onesided_lock_kit`]):
//!
//! - [`conformance`]: every lock through the whole kit, within bounds that suit all of them, also with counters
//!   of few bits: every interleaving up to a bound, over a sequentially consistent memory whose waits block, so
//!   that it verifies the algorithms and finds no missing fence of a fabric; every schedule up to a bound; and
//!   random programs, schedules and deaths, over a memory with delayed effects and completions;
//! - a module of each lock: what the suite does not vary, what the lock costs, and wrong variants.
//!
//! [`stopped`] stops a waiter at every step of a recovery. Tests that take seconds are a program of
//! their own, `quick`.
//!
//! The locks of [`wrong`] and of [`wrong_locks`] are wrong on purpose: a test that they pass is
//! worthless.

use onesided_lock_algos::LockAlgorithm;
use onesided_lock_kit::{Checker, Exploration, Section, Setting};

mod conformance;
mod distributed;
mod fetch_add_queues;
mod global;
mod linear;
mod lock_all_word;
mod marks;
mod model_check;
mod random;
mod refused;
mod right;
mod served;
mod shared_event;
mod stopped;
mod tickets;
mod two_level;
mod users;
mod wrong;
mod wrong_locks;

pub(crate) const X: Section = Section::EXCLUSIVE;
pub(crate) const S: Section = Section::SHARED;
/// An exclusive lock whose first operation leaves before other work, and whose wait comes after it.
pub(crate) const EARLY: Section = X.early(1);
/// Tries.
pub(crate) const T: Section = X.trying();
pub(crate) const TS: Section = S.trying();

/// An exploration in which waiters depend on no pause that ends by itself.
pub(crate) fn woken_exploration<A: LockAlgorithm + Clone>(lock: &A) -> Exploration<A> {
    Exploration::of(lock).setting(Setting { woken: true, ..Setting::USUAL })
}

/// A check of the same.
pub(crate) fn woken_checker<A: LockAlgorithm + Clone>(lock: &A) -> Checker<A> {
    Checker::of(lock).setting(Setting { woken: true, ..Setting::USUAL })
}

/// A bound of a search: of every `cargo test`, or, with `ONESIDED_LONG` set, of `scripts/test
/// --long`. With both, the locks that are wrong on purpose are caught.
pub(crate) fn bound<T>(usual: T, long: T) -> T {
    if std::env::var_os("ONESIDED_LONG").is_some() { long } else { usual }
}

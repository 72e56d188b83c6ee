//! `bench scale`: locks in simulation, in [`windows`] and on their own ([`contention`]), also under
//! [`conditions`].

mod conditions;
pub(crate) mod contention;
mod footprint;
mod windows;

use onesided_lock_kit::lock_algos::AnyLock;
use onesided_windows::LockDesign;

use crate::bench::output::json::Sections;
use crate::bench::results::report::Measured;
use crate::bench::simulated::contention::Load;
use crate::failure::Failure;

/// What is shown, and the texts of all plots.
pub(crate) fn sections() -> Sections {
    vec![
        ("contended: all origins at one lock".to_owned(), contention::DESCRIPTIONS.iter().collect()),
        ("conditions: faults, and cards of two generations".to_owned(), conditions::DESCRIPTIONS.iter().collect()),
        ("windows: few origins, at one lock or with a window each".to_owned(), windows::DESCRIPTIONS.iter().collect()),
    ]
}

/// Measures windows with this lock.
pub(crate) fn windows(design: LockDesign, seed: u64) -> Result<Vec<Measured>, Failure> {
    windows::measure(design, seed)
}

/// Measures a lock under conditions, with so many origins.
pub(crate) fn conditions(load: &Load, lock: &AnyLock, name: &str, origins: u32) -> Result<Vec<Measured>, Failure> {
    conditions::measure(load, lock, name, origins)
}

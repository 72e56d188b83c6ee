//! `bench scale`: locks in simulation, in [`windows`] and on their own ([`contention`]).

pub(crate) mod contention;
mod windows;

use onesided_windows::LockDesign;

use crate::bench::results::description::Description;
use crate::bench::results::report::Measured;
use crate::failure::Failure;

/// The texts of all plots.
pub(crate) fn descriptions() -> Vec<&'static Description> {
    windows::DESCRIPTIONS.iter().chain(&contention::DESCRIPTIONS).collect()
}

/// Measures windows with this lock.
pub(crate) fn windows(design: LockDesign, seed: u64) -> Result<Vec<Measured>, Failure> {
    windows::measure(design, seed)
}

//! `bench scale`: locks in simulation, in [`windows`] and on their own ([`contention`]).

pub(crate) mod contention;
mod windows;

use onesided_windows::LockDesign;

use crate::bench::output::json::Sections;
use crate::bench::results::report::Measured;
use crate::failure::Failure;

/// What is shown, and the texts of all plots.
pub(crate) fn sections() -> Sections {
    vec![
        ("contended: all origins at one lock".to_owned(), contention::DESCRIPTIONS.iter().collect()),
        ("windows: few origins, at one lock or with a window each".to_owned(), windows::DESCRIPTIONS.iter().collect()),
    ]
}

/// Measures windows with this lock.
pub(crate) fn windows(design: LockDesign, seed: u64) -> Result<Vec<Measured>, Failure> {
    windows::measure(design, seed)
}

//! The designs of locks that the usual run tests.

use onesided_windows::LockDesign;

/// A thread for each window serves a lock as one for all windows does: those are left to the long run,
/// and to what tests each design.
pub(crate) fn designs() -> impl Iterator<Item = LockDesign> {
    let is_long = std::env::var_os("ONESIDED_LONG").is_some();
    LockDesign::ALL.iter().copied().filter(move |design| is_long || !design.name().ends_with("per-window"))
}

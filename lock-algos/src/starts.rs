//! How often locks were started, in debug builds alone: tests prove by it that a program runs the
//! locks of this crate.

#[cfg(debug_assertions)]
use std::cell::RefCell;

#[cfg(debug_assertions)]
thread_local! {
    /// By name; room for every lock that counts, so that none allocates.
    static STARTS: RefCell<[(&'static str, u64); 12]> = const { RefCell::new([("", 0); 12]) };
}

/// An acquire of a lock starts.
#[inline(always)]
pub(crate) fn count(name: &'static str) {
    #[cfg(debug_assertions)]
    STARTS.with_borrow_mut(|starts| {
        if let Some(of) = starts.iter_mut().find(|(of, _)| of.is_empty() || *of == name) {
            *of = (name, of.1 + 1);
        }
    });
    #[cfg(not(debug_assertions))]
    let _ = name;
}

/// How often this thread has called `start` of the lock with this [name](crate::LockAlgorithm::NAME).
/// A lock that starts another one counts that one, too.
#[cfg(debug_assertions)]
#[doc(hidden)]
#[must_use]
pub fn starts(name: &str) -> u64 {
    STARTS.with_borrow(|starts| starts.iter().find(|(of, _)| *of == name).map_or(0, |(_, count)| *count))
}

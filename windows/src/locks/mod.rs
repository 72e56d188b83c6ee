//! The lock algorithms as windows use them: the design, its words in the hidden region, leases and
//! the lock server.

pub(crate) mod commit;
pub(crate) mod context;
pub(crate) mod design;
pub(crate) mod layout;
pub(crate) mod lease;
pub(crate) mod lease_policy;
pub(crate) mod notes;
pub(crate) mod owner;
pub(crate) mod parse;
pub(crate) mod revoke;
pub(crate) mod server;
pub(crate) mod slots;
pub(crate) mod state;
pub(crate) mod takeover;
pub(crate) mod window_lock;

/// Size of the lock words in the hidden region beside each rank's window memory: one cache line.
pub(crate) const LOCK_BYTES: u64 = 64;

/// Runs `run` with the lock's own type if its uncontended acquire and release take a few
/// instructions, and `run_other` for all other designs, so that callers stay small.
macro_rules! by_design {
    ($chosen:expr, $lock:ident => $run:expr, $other:ident => $run_other:expr) => {
        match $chosen {
            $crate::locks::window_lock::WindowLock::Library(onesided_lock_algos::AnyLock::TestAndSet($lock)) => $run,
            $crate::locks::window_lock::WindowLock::Library(onesided_lock_algos::AnyLock::Mcs($lock)) => $run,
            $crate::locks::window_lock::WindowLock::Library(onesided_lock_algos::AnyLock::Ticket($lock)) => $run,
            $crate::locks::window_lock::WindowLock::Library(onesided_lock_algos::AnyLock::FetchAddQueue($lock)) => $run,
            $crate::locks::window_lock::WindowLock::Library(onesided_lock_algos::AnyLock::TwoLevel($lock)) => $run,
            $other => $run_other,
        }
    };
}

pub(crate) use by_design;

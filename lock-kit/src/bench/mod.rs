//! What a lock costs: the measurements of `onesided bench locks`, for custom locks too.
//!
//! A [`ThroughputRun`] has many origins acquire and release one lock for a while: threads over
//! shared memory, in real time, or 10 to 100,000 simulated ranks, in virtual time and
//! deterministically. An [`Outcome`] has acquisitions per second, the distribution of the waits,
//! fairness, how often a waiter was bypassed, and the operations.
//!
//! ```
//! use std::time::Duration;
//!
//! use onesided_lock_algos::{TestAndSet, Ticket};
//! use onesided_lock_kit::bench::ThroughputRun;
//!
//! # fn main() -> Result<(), onesided_fabric::Error> {
//! let threads = ThroughputRun::of(&TestAndSet::default()).origins(2).lasting(Duration::from_millis(20)).threads()?;
//! assert!(threads.acquisitions() > 0);
//!
//! let simulated = ThroughputRun::of(&<Ticket>::default()).origins(100).lasting(Duration::from_millis(1)).simulated();
//! println!("{:.0} a second, p99 {:?} ns", simulated.rate(), simulated.waits.quantile(0.99));
//! assert!(simulated.bypasses.largest() < 100, "first come, first served: each rank bypasses a waiter at most once");
//! # Ok(())
//! # }
//! ```
//!
//! [`Histogram`], [`jain`], [`share`] and [`Counted`] can be used on their own: `Counted` is a
//! fabric, on which windows run too.

mod context;
mod counted;
mod histogram;
mod rng;
mod simulated;
mod threads;
mod throughput;

pub use counted::{Counted, Operations};
pub use histogram::{Histogram, jain, share};
pub use rng::Rng;
pub use throughput::{Outcome, ThroughputRun};

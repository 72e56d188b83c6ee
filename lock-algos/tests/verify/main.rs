//! What the locks must do, tried by the kit ([`onesided_lock_kit`]):
//!
//! - [`conformance`]: every lock through the whole of the kit, within bounds that all of them bear;
//! - [`explored`]: loom runs every interleaving up to a bound, over a memory whose waits block. That memory is sequentially
//!   consistent, so this is about the algorithms and finds no missing fence of a fabric.
//! - [`modelled`]: proptest makes up programs, schedules and deaths, over a memory whose operations travel: posted, in effect
//!   and completed are three points in time, and the schedule chooses.
//!
//! And [`stopped`] stops a waiter at every step of a recovery. What takes seconds is in `tests/quick`.
//!
//! The locks of [`onesided_lock_kit::wrong`] are wrong on purpose: whatever passes them is worth nothing.

mod conformance;
mod distributed;
mod fetch_add_queues;
mod global;
mod linear;
mod lock_all_word;
mod loom;
mod marks;
mod model_check;
mod random;
mod refused;
mod served;
mod shared_event;
mod stopped;
mod tickets;
mod two_level;

//! What the locks must do, tried in two ways on the same programs:
//!
//! - [`explored`]: loom runs every interleaving up to a bound, over a memory whose waits block ([`loom_memory`]). That
//!   memory is sequentially consistent, so this is about the algorithms and finds no missing fence of a fabric.
//! - [`modelled`]: proptest makes up programs, schedules and deaths, over a memory whose operations travel
//!   ([`model_memory`]): posted, in effect and completed are three points in time, and the schedule chooses.
//!
//! And [`stopped`] stops a waiter at every step of a recovery, and [`poisoned`] asks for locks of the dead.
//!
//! A [`program`] is what an origin does; the [`record`] is the sequential model it is held against. The locks of
//! [`wrong`] are wrong on purpose: whatever passes them is worth nothing.

mod explored;
mod loom_memory;
mod model_memory;
mod modelled;
mod poisoned;
mod program;
mod record;
mod stopped;
mod tickets;
mod wrong;

//! The manual.
//!
//! - [`memory_model`]: what a put, a flush, an unlock and a barrier promise, and to whom.
//! - [`processes`]: how a program becomes ranks, how it finds its job, and how it ends.
//! - [`fabrics`]: shared memory, verbs, the simulator: what each needs and can do.
//! - [`locks`]: the lock designs of windows, and what happens to a lock whose owner dies.
//! - [`own_lock`]: a lock of your own, verified and measured.
//! - [`failures`]: what happens when a rank dies, a peer is lost or a resource is exhausted.
//! - [`architecture`]: how the library is built, for contributors.

pub mod architecture;
pub mod fabrics;
pub mod failures;
pub mod locks;
pub mod memory_model;
pub mod own_lock;
pub mod processes;
pub mod reproduce;

//! Distributed locks as algorithms over remote memory.
//!
//! May use: [`RemoteMemory`](remote_memory::RemoteMemory). May not use: I/O, a clock of its own, threads, atomics,
//! `unsafe`. That is why the code that ships over shared memory and verbs is the very code that the simulator runs and
//! that loom explores.
//!
//! Begin to read at [`LockAlgorithm`], then [`TestAndSet`], the shortest one.
//!
//! | lock | source | words | uncontended acquire + release |
//! |---|---|---|---|
//! | [`TestAndSet`] | jiang-2004, section 5.1 | 1 at the home | compare-swap + write (on cards, and shared: compare-swap + fetch-add) |
//!
//! # How it is verified
//!
//! `tests/verify` runs the shipped code over two memories of its own, on programs that are data:
//!
//! - **loom** explores every interleaving of 2 origins with 2 rounds each at up to 4 preemptions, and of 3 origins with
//!   1 round each at up to 3: exclusive, shared, mixed, and with other work between the start of an acquire and the
//!   wait for it; 5,000 to 15,000 executions each. Also 2 origins of which one dies holding the lock. Its waits block
//!   until the word changes, so a lost wake-up is a deadlock. Its memory is sequentially consistent: fences are the
//!   fabric's matter and are tested there.
//! - **proptest** makes up programs of 2 to 4 origins with 1 to 3 rounds each (released, released without waiting,
//!   abandoned), the order in which up to 200 operations take effect and complete, and the death of a rank at any point.
//!
//! Both check exclusion, lost updates, that every wait ends, that a dead holder is told by its name, and that the lock
//! is free at the end; both must catch locks that are wrong on purpose.

#![forbid(unsafe_code)]

mod algorithm;
mod backoff;
mod mcs;
mod owner;
mod place;
mod recovery;
mod test_and_set;

pub use crate::algorithm::LockAlgorithm;
pub use crate::backoff::Backoff;
pub use crate::mcs::Mcs;
pub use crate::owner::{Held, Mode, Owner};
pub use crate::place::Place;
pub use crate::test_and_set::TestAndSet;
pub use remote_memory;

//! Atomics, locks and threads: the standard library's, or loom's where loom explores what is made of them.

#[cfg(onesided_loom)]
pub(crate) use loom::{
    sync::{Condvar, Mutex, MutexGuard, atomic},
    thread, thread_local,
};
#[cfg(not(onesided_loom))]
pub(crate) use std::{
    sync::{Condvar, Mutex, MutexGuard, atomic},
    thread, thread_local,
};

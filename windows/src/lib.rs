//! RMA windows: memory on every rank of a world that every rank may read, write and lock without
//! the help of its owner.
//!
//! Dependencies: [`onesided_fabric`] (through its traits), [`onesided_lock_algos`] and
//! [`onesided_layouts`]. This crate does not know which fabric it runs on and uses no `unsafe`.
//!
//! Start reading at [`Window`], then [`Epoch`] (a lock that is held, and the operations under it)
//! and [`Access`] (the operations: put, get, accumulate and atomics, on contiguous elements, on
//! [`Shape`]s and on [`Field`]s of records). Every guard that permits operations gives out an
//! [`Access`]:
//!
//! | MPI | here |
//! |---|---|
//! | allocate, create, dynamic with attach and detach | [`Window::allocate`], [`Window::create`], [`Window::dynamic`], [`Window::attach`], [`Window::detach`] |
//! | overlapping windows; mappings and other memory | [`WindowMemory`], [`Window::create_over`]; [`Builder::create_from`] |
//! | shared windows | [`Window::direct`] |
//! | info, name, flavor | [`Window::info`], module [`info`] |
//! | lock, unlock | [`Window::lock_exclusive`], [`Window::lock_shared`], [`Epoch::unlock`]; as separate calls, checked at run time: [`Epochs`] |
//! | (several locks, without a deadlock) | [`Window::lock_many`], [`LockTable::lock_many`] |
//! | lock, get or put, unlock in one operation | [`Window::locked`], [`Locked`] |
//! | (a value with its lock) | [`Mutex`], [`RwLock`] |
//! | (a table of up to millions of locks) | [`LockTable`] |
//! | (fencing tokens) | [`Epoch::fencing_token`], [`fenced`](handles::LockRequest::fenced) |
//! | (reads without a lock) | [`Window::versioned`], [`Versioned`] |
//! | lock_all, unlock_all; flush_all, flush_local_all | [`Window::lock_all`], [`LockAll`] |
//! | sync | [`Window::sync`] |
//! | lock, lock_all with `MPI_MODE_NOCHECK` | [`Window::no_check`], [`NoCheckEpoch`] |
//! | (many operations on borrowed slices) | [`Window::scope`], [`Scope`] |
//! | (registered memory) | [`Window::buffer`], [`Buffer`] |
//! | fence | [`Window::fence`], [`FenceEpoch`] |
//! | post, wait, test | [`Window::post`] |
//! | (OpenSHMEM: put_signal, signal, wait_until) | [`Access::put_signal`], [`Access::signal`], [`Local::wait_until`], [`Local::wait_until_any`] |
//! | start, complete | [`Window::start`], [`Window::start_no_check`], [`AccessEpoch`] |
//!
//! # Handles
//!
//! A call that may have to wait returns a handle: a [`Request`], or one of [`handles`] where the
//! call takes nanoseconds. `.wait()` blocks the thread, `.await` works under any runtime, `.test()`
//! polls once (`MPI_Test`), and `.wait_timeout()` waits for a limited time and leaves the handle
//! pending. Operations and lock requests start when they are called. Every other call documents
//! that it does nothing unless waited on or polled; `.test()` counts as a poll.
//!
//! Options are set before the first wait or poll. With a `.deadline()`, which a request and the
//! requests for locks have, the call fails when it passes, and leaves nothing behind.
//!
//! A handle yields its result once: it panics when it is polled again, as futures may. The method
//! that returns it documents what dropping it does. A call that never waits returns its result
//! directly ([`Access::put`], [`Window::post`], [`Window::attach`]).
//!
//! Only [`Window::scope`] is blocking, and it has an asynchronous counterpart: its purpose is that
//! the borrowed slices are free when it returns, even by a panic.
//!
//! Names and semantics are MPI's (MPI-4.1, chapter 12); the locks are those of jiang-2004,
//! section 5.

#![allow(clippy::type_complexity)] // an alias cannot name what begins a call, which returned types have
#![forbid(unsafe_code)]

mod active;
mod datatype;
mod error;
mod helper;
mod locks;
mod memory;
mod operation;
mod passive;
#[cfg(doctest)]
mod refused;
mod sync;
mod window;

pub use bytemuck;
pub use onesided_layouts::{Located, Op, Runs, Shape};
pub use onesided_lock_algos::Mode;

pub use crate::active::fence::FenceEpoch;
pub use crate::active::start::AccessEpoch;
pub use crate::datatype::element::{AtomicElement, Element};
pub use crate::datatype::fields::{Field, Fields};
pub use crate::error::Error;
pub use crate::locks::design::{LockAllDesign, LockDesign};
pub use crate::locks::lease_policy::LeasePolicy;
pub use crate::memory::buffer::Buffer;
pub use crate::memory::buffer_error::BufferError;
pub use crate::memory::direct::Direct;
pub use crate::memory::local::Local;
pub use crate::memory::remote_ptr::RemotePtr;
pub use crate::memory::window_memory::WindowMemory;
pub use crate::operation::access::Access;
pub use crate::operation::field_access::FieldAccess;
pub use crate::operation::request::Request;
pub use crate::operation::scope::Scope;
pub use crate::passive::calls::Epochs;
pub use crate::passive::epoch::Epoch;
pub use crate::passive::lock_all::LockAll;
pub use crate::passive::no_check::NoCheckEpoch;
pub use crate::passive::previous_owner::PreviousOwner;
pub use crate::sync::combined::Locked;
pub use crate::sync::lock_table::{LockTable, TableGuard};
pub use crate::sync::mutex::Mutex;
pub use crate::sync::rw_lock::RwLock;
pub use crate::sync::sequence_lock::{Versioned, VersionedEpoch};
pub use crate::sync::value::{ReadGuard, WriteGuard};
pub use crate::window::Window;
pub use crate::window::create::Builder;

/// The handles of calls that take nanoseconds: types of their own, because a boxed [`Request`]
/// would cost more than the call.
pub mod handles {
    pub use crate::operation::fetch::Fetch;
    pub use crate::operation::handles::{Flush, Get, Operation, Yielded};
    pub use crate::operation::request::{Begin, Recover};
    pub use crate::passive::lock::LockRequest;
    pub use crate::passive::unlock::Unlock;
    pub use crate::sync::value::ValueGuard;
}

/// What a window says about itself: see [`Window::info`].
pub mod info {
    pub use onesided_fabric::{AtomicAgent, Path};

    pub use crate::window::exchange::Flavor;
    pub use crate::window::info::Info;
    pub use crate::window::paths::Paths;
}

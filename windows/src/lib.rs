//! RMA windows: memory on every rank of a world that every rank may read, write and lock without
//! the help of its owner.
//!
//! Dependencies: [`onesided_fabric`] (through its traits) and [`onesided_lock_algos`]. This crate
//! does not know which fabric it runs on and uses no `unsafe`.
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
//! | info, name, flavor | [`Window::info`] |
//! | lock, unlock | [`Window::lock_exclusive`], [`Window::lock_shared`], [`Epoch::unlock`]; as separate calls, checked at run time: [`Epochs`] |
//! | lock, get or put, unlock in one operation | [`Window::locked`], [`Locked`] |
//! | (a value with its lock) | [`Mutex`], [`RwLock`] |
//! | (a table of up to millions of locks) | [`LockTable`] |
//! | (fencing tokens) | [`Epoch::fencing_token`], [`LockRequest::fenced`] |
//! | (reads without a lock) | [`Window::versioned`], [`Versioned`] |
//! | lock_all, unlock_all; flush_all, flush_local_all | [`Window::lock_all`], [`LockAll`], [`At`] |
//! | sync | [`Window::sync`] |
//! | lock, lock_all with `MPI_MODE_NOCHECK` | [`Window::no_check`], [`NoCheckEpoch`] |
//! | (many operations on borrowed slices) | [`Window::scope`], [`Scope`] |
//! | (registered memory) | [`Window::buffer`], [`Buffer`] |
//! | fence | [`Window::fence`], [`FenceEpoch`] |
//! | post, wait, test | [`Window::post`], [`ExposureEpoch`] |
//! | (OpenSHMEM: put_signal, signal, wait_until) | [`Access::put_signal`], [`Access::signal`], [`Local::wait_until`] |
//! | start, complete | [`Window::start`], [`AccessEpoch`] |
//!
//! # Handles
//!
//! A call that may have to wait returns a handle: `.wait()` blocks the thread, `.await` works under
//! any runtime, `.test()` polls once (`MPI_Test`), and `.wait_timeout()` waits for a limited time
//! and leaves the handle pending. Operations and lock requests start when they are called. Every
//! other handle documents that it does nothing unless waited on or polled; `.test()` counts as a
//! poll. A `.deadline()`, where there is one, is part of the request: when it passes, the call
//! fails and leaves nothing behind.
//!
//! A handle yields its result once. A handle without a value (a get, a flush, an unlock, an
//! exposure) repeats its success when it is polled again; a lock request reports that it is closed;
//! the others panic, as futures may. Each handle documents what dropping it does. A call that never
//! waits returns its result directly ([`Access::put`], [`Window::post`], [`Window::attach`]).
//!
//! Only [`Window::scope`] is blocking, and it has an asynchronous counterpart: its purpose is that
//! the borrowed slices are free when it returns, even by a panic.
//!
//! Names and semantics are MPI's (MPI-4.1, chapter 12); the locks are those of jiang-2004, section
//! 5.

#![forbid(unsafe_code)]

mod abandoned;
mod access;
mod access_epoch;
mod accumulate;
mod agent;
mod at;
mod attach;
mod buffer;
mod buffer_error;
mod combine;
mod create;
mod cuts;
mod design;
mod direct;
mod element;
mod ending;
mod epoch;
mod epochs;
mod error;
mod exposure;
mod fence;
mod fencing;
mod fetch;
mod field_access;
mod fields;
mod flush_all;
mod fused;
mod handles;
mod home;
mod homes;
mod info;
mod lease;
mod local;
mod located;
mod lock;
mod lock_all;
mod mutex;
mod no_check;
mod nodes;
mod op;
mod part;
mod paths;
mod previous_owner;
mod reached;
mod reader;
#[cfg(doctest)]
mod refused;
mod remote_ptr;
mod request;
mod revoke;
mod rw_lock;
mod scope;
mod served;
mod shape;
mod shaped;
mod signalled;
mod signals;
mod spread;
mod sync;
mod table;
mod try_lock;
mod unlock;
mod unlock_all;
mod value;
mod versioned;
mod window;
mod window_memory;

pub use onesided_fabric::Path;
pub use onesided_lock_algos::Mode;

pub use crate::access::Access;
pub use crate::access_epoch::{AccessEpoch, StartRequest};
pub use crate::accumulate::Accumulate;
pub use crate::at::At;
pub use crate::attach::Resolve;
pub use crate::buffer::{Buffer, Transfer};
pub use crate::buffer_error::BufferError;
pub use crate::create::Builder;
pub use crate::design::{LockAllDesign, LockDesign, Threads};
pub use crate::direct::Direct;
pub use crate::element::{AtomicElement, Element};
pub use crate::epoch::Epoch;
pub use crate::epochs::{Epochs, LockCall, UnlockCall};
pub use crate::error::Error;
pub use crate::exposure::ExposureEpoch;
pub use crate::fence::{FenceEpoch, FenceRequest};
pub use crate::fencing::FencingToken;
pub use crate::fetch::Fetch;
pub use crate::field_access::FieldAccess;
pub use crate::fields::{Field, Fields};
pub use crate::flush_all::FlushAll;
pub use crate::fused::{Locked, LockedGet, LockedPut, LockedUpdate};
pub use crate::handles::{Flush, Get};
pub use crate::info::Info;
pub use crate::lease::LeasePolicy;
pub use crate::local::Local;
pub use crate::located::{Located, LocatedValue};
pub use crate::lock::LockRequest;
pub use crate::lock_all::{LockAll, LockAllRequest};
pub use crate::mutex::Mutex;
pub use crate::no_check::NoCheckEpoch;
pub use crate::op::Op;
pub use crate::part::Flavor;
pub use crate::paths::Paths;
pub use crate::previous_owner::PreviousOwner;
pub use crate::remote_ptr::RemotePtr;
pub use crate::request::Request;
pub use crate::rw_lock::RwLock;
pub use crate::scope::Scope;
pub use crate::shape::{Runs, Shape};
pub use crate::shaped::Shaped;
pub use crate::signalled::WaitUntil;
pub use crate::table::{LockTable, TableGuard, TableRequest, TableTry};
pub use crate::try_lock::TryLock;
pub use crate::unlock::Unlock;
pub use crate::unlock_all::UnlockAll;
pub use crate::value::{Guard, ReadGuard, ValueLock, ValueUnlock, WriteGuard};
pub use crate::versioned::{Versioned, VersionedEpoch, VersionedRead, VersionedWrite};
pub use crate::window::Window;
pub use crate::window_memory::WindowMemory;

//! RMA windows: memory that every rank of a world may read, write and lock without its owner's help.
//!
//! May use: [`fabric`] (any of them, through its traits), [`lock_algos`]. May not know which fabric it runs on; may not
//! use `unsafe`.
//!
//! Begin to read at [`Window`], then [`Epoch`] (a lock that is held, and what may be done under it) and [`Access`] (the
//! operations). [`Epochs`] is the same in MPI's manner, checked at run time instead of by types.
//!
//! The names and their meaning are MPI's (MPI-4.1, chapter 12); the locks are those of jiang-2004, section 5.

#![forbid(unsafe_code)]

mod access;
mod accumulate;
mod create;
mod element;
mod epoch;
mod epochs;
mod error;
mod fetch;
mod handles;
mod local;
mod located;
mod lock;
mod lock_all;
mod op;
mod part;
#[cfg(doctest)]
mod refused;
mod shape;
mod shaped;
mod window;

pub use lock_algos::Mode;

pub use crate::access::Access;
pub use crate::accumulate::Accumulate;
pub use crate::create::{Builder, LockDesign};
pub use crate::element::{AtomicElement, Element};
pub use crate::epoch::Epoch;
pub use crate::epochs::Epochs;
pub use crate::error::Error;
pub use crate::fetch::Fetch;
pub use crate::handles::{Flush, Get};
pub use crate::local::Local;
pub use crate::located::{Located, LocatedValue};
pub use crate::lock::{LockFuture, LockRequest};
pub use crate::lock_all::{LockAll, LockAllRequest};
pub use crate::op::Op;
pub use crate::shape::{Runs, Shape};
pub use crate::shaped::GetShaped;
pub use crate::window::Window;

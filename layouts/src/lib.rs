//! Layouts: where elements lie in memory. Windows and messages share them.
//!
//! [`Shape`] says which elements, [`Runs`] iterates over their ranges, [`Cursor`] packs and unpacks
//! them (the datatype engine whose cost yu-2004, Fig. 7, measures). The crate knows no fabric, no
//! rank and no element type, and has no dependency.

#![forbid(unsafe_code)]

mod cursor;
mod shape;

pub use crate::cursor::Cursor;
pub use crate::shape::{Runs, Shape};

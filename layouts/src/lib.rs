//! What windows and messages share: where elements lie in memory, and the operations on them.
//!
//! [`Shape`] says which elements, [`Runs`] iterates over their ranges, [`Cursor`] packs and unpacks
//! them (the datatype engine whose cost yu-2004, Fig. 7, measures). [`Op`] is an operation on elements,
//! [`Operand`] the types that it applies to. The crate knows no fabric and no rank.

#![forbid(unsafe_code)]

mod cursor;
mod located;
mod op;
mod shape;

pub use crate::cursor::Cursor;
pub use crate::located::{Located, LocatedValue};
pub use crate::op::{OPERANDS, Op, Operand, apply_row};
pub use crate::shape::{Runs, Shape};

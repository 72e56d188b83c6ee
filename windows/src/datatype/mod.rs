//! What an operation moves: elements, fields of records, and the operations on them.

pub(crate) mod element;
pub(crate) mod fields;
pub(crate) mod pieces;
pub(crate) mod type_map;

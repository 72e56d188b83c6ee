//! What an operation moves: elements, fields of records, and the operations on them.

pub(crate) mod element;
pub(crate) mod fields;
pub(crate) mod located;
pub(crate) mod op;
pub(crate) mod pieces;
pub(crate) mod type_map;

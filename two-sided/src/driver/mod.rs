//! What moves the messages of a rank over its fabric.

pub(crate) mod handler;
pub(crate) mod measured;
pub(crate) mod memory;
pub(crate) mod offered;
pub(crate) mod pieces;
pub(crate) mod progress;
pub(crate) mod rules;
pub(crate) mod tasks;
pub(crate) mod transfers;

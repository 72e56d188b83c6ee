//! What users call.

pub(crate) mod buffer;
pub(crate) mod create;
pub(crate) mod destination;
pub(crate) mod error;
pub(crate) mod explanation;
pub(crate) mod group;
pub(crate) mod lists;
pub(crate) mod messages;
pub(crate) mod persistent;
pub(crate) mod probe;
pub(crate) mod receive;
pub(crate) mod rules;
pub(crate) mod send;
pub(crate) mod shaped;
pub(crate) mod statistics;
pub(crate) mod taken;

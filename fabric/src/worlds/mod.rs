//! A fabric with its collectives: what users hold.

pub(crate) mod arrival;
pub(crate) mod collective;
#[macro_use]
pub(crate) mod handle;
pub(crate) mod members;
pub(crate) mod split;
pub(crate) mod world;

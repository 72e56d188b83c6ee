//! What runs in the simulator, in one program, which is linked once.

mod common;
mod conformance;
mod contests;
mod deadlocks;
mod deaths;
mod disconnected;
mod disconnected_locks;
mod dropped;
mod lease;
mod left;
mod linear;
mod planted;
mod profiles;
mod recovery;
mod restarts;
mod simulation;
mod suspected;
mod suspected_locks;
mod testbed;
mod windows;

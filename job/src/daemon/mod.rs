//! The host daemon: a service thread that keeps the peer table of a host, serves values and memory,
//! and watches for deaths. A [control relay](relay) connects it with the daemons of other hosts. It
//! has no policy: the [launcher](crate::launcher) decides what a death means for the job.

pub(crate) mod failover;
pub(crate) mod relay;
mod server;
pub(crate) mod session;
mod tables;

pub use crate::daemon::relay::SUSPECT_AFTER;
pub use crate::daemon::server::Server;

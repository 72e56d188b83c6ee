//! The host daemon: a service thread that keeps the peer table of a host, hands out values and
//! memory, watches for deaths, and is connected to the daemons of other hosts by a control relay
//! (`relay`). It has no policy: what a death means for the job is the
//! [launcher](crate::launcher)'s business.

pub(crate) mod failover;
pub(crate) mod relay;
mod server;
pub(crate) mod session;
mod tables;

pub use crate::daemon::relay::SUSPECT_AFTER;
pub use crate::daemon::server::Server;

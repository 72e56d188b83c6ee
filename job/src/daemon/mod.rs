//! The host daemon: a service thread that keeps the peer table of a host, serves values and memory,
//! and watches for deaths. A [control relay](relay) connects it with the daemons of other hosts.
//!
//! It has no policy. Whoever runs it decides when it ends, what a death means for the job, and what
//! the control frames of the relay say: the [launcher](crate::launcher), its agent, or a rank of a
//! job without them ([`head_daemon`](crate::head_daemon)). The peer table is the job segment, which
//! alone has a number of places. The daemon keeps nothing for a rank that has not joined.

pub(crate) mod failover;
pub(crate) mod relay;
mod server;
pub(crate) mod session;
mod tables;

pub use crate::daemon::relay::SUSPECT_AFTER;
pub use crate::daemon::server::Server;

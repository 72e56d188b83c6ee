//! Several hosts: network namespaces of this one, or agents on this one that act as other hosts.

mod coming;
mod launch;
mod lossy;
mod managed;
mod meet;
pub(crate) mod network;
pub(crate) mod rsh;
mod slurm;
mod ssh;

//! Several hosts: network namespaces of this one, or processes that are told that they are on
//! another.

mod coming;
mod launch;
mod lossy;
mod managed;
mod meet;
pub(crate) mod network;
pub(crate) mod rsh;
mod slurm;
mod ssh;

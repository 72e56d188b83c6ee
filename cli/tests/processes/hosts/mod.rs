//! Several hosts: network namespaces of this one, or only what says that it is another.

mod coming;
mod launch;
mod lossy;
mod meet;
mod network;
pub(crate) mod rsh;
mod ssh;

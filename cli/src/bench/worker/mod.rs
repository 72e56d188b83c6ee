//! What the measurements of a worker share: its [`rank`], interleaved [`probes`], [`throughput`]
//! runs, and [`timing`].

pub(crate) mod probes;
pub(crate) mod rank;
pub(crate) mod throughput;
pub(crate) mod timing;

//! What the measurements of a worker share: its [`rank`], interleaved [`probes`], [`throughput`]
//! runs, [`timing`], and locks [`served`] over messages.

pub(crate) mod probes;
pub(crate) mod rank;
pub(crate) mod served;
pub(crate) mod throughput;
pub(crate) mod timing;

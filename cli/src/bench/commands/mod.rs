//! The entry points of `onesided bench locks`, `rma`, `messages`, `collectives`, `transport`, `scale` and `worker`.

pub(crate) mod collectives;
pub(crate) mod locks;
pub(crate) mod messages;
pub(crate) mod rma;
pub(crate) mod scale;
pub(crate) mod two_ranks;
pub(crate) mod worker;

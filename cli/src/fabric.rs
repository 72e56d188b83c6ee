//! The values of `--fabric`.

use clap::ValueEnum;

use crate::failure::{Failure, USAGE};

/// What a build without the feature `verbs` says of verbs.
pub(crate) const NO_VERBS: &str = "this program was built without verbs: install it by `cargo install --path cli --features \
    verbs` (Debian: apt install libibverbs-dev cmake libclang-dev)";

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum FabricName {
    /// Shared memory of this host; needs nothing installed
    Shm,
    /// RDMA cards and Soft-RoCE by libibverbs
    Verbs,
    /// Both: shared memory between ranks of one host, cards between hosts, and for all locks and
    /// atomics
    Mixed,
}

impl FabricName {
    /// The library's name for it.
    ///
    /// # Errors
    /// If this program was built without it.
    pub(crate) fn built_in(self) -> Result<&'static str, Failure> {
        match self {
            Self::Shm => Ok("shm"),
            Self::Verbs if cfg!(feature = "verbs") => Ok("verbs"),
            Self::Mixed if cfg!(feature = "verbs") => Ok("mixed"),
            Self::Verbs | Self::Mixed => Err(Failure::new(USAGE, NO_VERBS)),
        }
    }
}

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

/// Whether this program was built with the feature.
pub(crate) const HAS_VERBS: bool = cfg!(feature = "verbs");

impl FabricName {
    /// The library's name for it.
    ///
    /// # Errors
    /// If this program was built without it.
    pub(crate) fn built_in(self) -> Result<&'static str, Failure> {
        self.of_build(HAS_VERBS).ok_or_else(|| Failure::new(USAGE, NO_VERBS))
    }

    fn of_build(self, has_verbs: bool) -> Option<&'static str> {
        match self {
            Self::Shm => Some("shm"),
            Self::Verbs => has_verbs.then_some("verbs"),
            Self::Mixed => has_verbs.then_some("mixed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_verbs_has_shared_memory_alone() {
        let all = [FabricName::Shm, FabricName::Verbs, FabricName::Mixed];
        assert_eq!(all.map(|fabric| fabric.of_build(true)), [Some("shm"), Some("verbs"), Some("mixed")]);
        assert_eq!(all.map(|fabric| fabric.of_build(false)), [Some("shm"), None, None]);
    }
}

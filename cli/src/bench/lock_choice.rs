//! The values of `--lock`.

use onesided_windows::LockDesign;

use crate::bench::results;

/// One lock, or all of them.
#[derive(Debug, Clone)]
pub(crate) struct Locks(Vec<LockDesign>);

pub(crate) fn parse(name: &str) -> Result<Locks, onesided_windows::Error> {
    if name == "all" { Ok(Locks(LockDesign::ALL.to_vec())) } else { Ok(Locks(vec![name.parse()?])) }
}

/// Each chosen lock once, in the order of the choice.
pub(crate) fn unique(all: &[Locks]) -> Vec<LockDesign> {
    results::unique(all.iter().flat_map(|locks| &locks.0).copied())
}

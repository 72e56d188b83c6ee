//! Locks and operations without contention.

mod computing_target;
mod operations;
mod transfers;

use crate::bench::effort::Effort;
use crate::bench::metrics::{LockMetric, Ranks};
use crate::bench::runner::suite::{Program, Suite};
use crate::bench::worker::rank::BenchRank;
use crate::failure::Failure;

pub(super) static METRIC: LockMetric = LockMetric {
    name: "overhead",
    help: "Time of acquire and release, together and apart, and of small operations; the same while the target computes",
    jobs: &[(
        Suite { steps: |effort| 4 * effort.runs() as u64, ..Suite::new("uncontended", Program::Plain(run)) },
        Ranks::Default(&[2]),
    )],
    descriptions: &[],
};

fn run(rank: &BenchRank, effort: Effort) -> Result<(), Failure> {
    operations::run(rank, effort)?;
    computing_target::run(rank, effort)?;
    transfers::run(rank, effort)
}

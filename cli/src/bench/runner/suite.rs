//! What one job of workers measures.

use onesided_fabric::Any;
use onesided_lock_kit::bench::Counted;

use crate::bench::effort::Effort;
use crate::bench::worker::rank::BenchRank;
use crate::failure::Failure;

/// A program of workers.
#[derive(Debug)]
pub(crate) struct Suite {
    /// Names the suite to `bench worker` and in the progress bar.
    pub(crate) name: &'static str,
    pub(crate) program: Program,
    /// How many [`Line::Step`](crate::bench::results::report::Line::Step)s rank 0 reports.
    pub(crate) steps: fn(Effort) -> u64,
    /// Variables of the workers, as in `NAME=value`.
    pub(crate) environment: &'static [&'static str],
}

/// What each rank does.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Program {
    /// All ranks end together.
    Plain(fn(&BenchRank, Effort) -> Result<(), Failure>),
    /// The same over a fabric that counts operations.
    Counted(fn(&BenchRank<Counted<Any>>, Effort) -> Result<(), Failure>),
    /// All ranks but rank 0 are killed on the way.
    Killed(fn(&BenchRank, Effort) -> Result<(), Failure>),
}

impl Suite {
    /// A suite with a step a run.
    pub(crate) const fn new(name: &'static str, program: Program) -> Self {
        Self { name, program, steps: |effort| effort.runs() as u64, environment: &[] }
    }

    /// Whether its ranks are killed on purpose.
    pub(crate) const fn is_killed(&self) -> bool {
        matches!(self.program, Program::Killed(_))
    }
}

impl PartialEq for Suite {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

//! How long a benchmark measures.

use std::time::Duration;

use clap::ValueEnum;
use onesided_fabric::entries;

entries! {
    /// `--quick` or not.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
    pub(crate) enum Effort {
        Full => "full",
        Quick => "quick",
        /// Everything is measured once, to see that it is. The figures are worth nothing.
        Trial => "trial",
    }
    pub(crate) fn name;
}

impl Effort {
    pub(crate) const fn of(quick: bool, trial: bool) -> Self {
        match (quick, trial) {
            (_, true) => Self::Trial,
            (true, _) => Self::Quick,
            _ => Self::Full,
        }
    }

    /// Runs of each measurement. The median counts.
    pub(crate) const fn runs(self) -> usize {
        match self {
            Self::Full => 7,
            Self::Quick => 3,
            Self::Trial => 1,
        }
    }

    /// Batches of a run, in which limits and results are interleaved.
    pub(crate) const fn batches(self) -> usize {
        match self {
            Self::Full => 31,
            Self::Quick => 7,
            Self::Trial => 1,
        }
    }

    const fn select<T: Copy>(self, full: T, quick: T) -> T {
        if matches!(self, Self::Full) { full } else { quick }
    }

    /// How long a computing target computes.
    pub(crate) const fn computing(self) -> Duration {
        self.select(Duration::from_millis(400), Duration::from_millis(100))
    }

    /// How long all ranks contend for one lock.
    pub(crate) const fn contending(self) -> Duration {
        self.select(Duration::from_millis(250), Duration::from_millis(60))
    }

    /// How long one point of a sweep takes.
    pub(crate) const fn sweeping(self) -> Duration {
        self.select(Duration::from_millis(50), Duration::from_millis(20))
    }

    /// How long an idle process is observed.
    pub(crate) const fn idle(self) -> Duration {
        self.select(Duration::from_secs(1), Duration::from_millis(200))
    }

    /// Hand-overs between two origins in a run.
    pub(crate) const fn handovers(self) -> u64 {
        self.select(400, 80)
    }
}

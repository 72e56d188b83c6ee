//! A rank of a benchmark: `onesided bench worker`, started by `onesided bench locks` and `bench rma`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;

use crate::bench::rank::RankOfBench;
use crate::bench::sweep::Way;
use crate::bench::{
    busy, concurrency, contended, cpu, delay, messages, operations, recovery, sweep, transfers, waits, wake,
};
use crate::failure::Failure;
use onesided_lock_kit::bench::Counted;

/// A rank of a benchmark; `bench locks` and `bench rma` start it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    suite: Suite,
    effort: Effort,
    /// Where rank 0 writes its report
    report: PathBuf,
}

/// What a job measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Suite {
    /// One rank at a time.
    Uncontended,
    /// All ranks at one lock.
    Contended,
    /// From one origin's release to another one's having the lock.
    Delay,
    /// The first at a lock after a rest.
    Wake,
    /// Origins at a window of their own each.
    Concurrency,
    /// Operations that leave, counted.
    Messages,
    /// A target that computes in several threads.
    ComputingThreads,
    /// Pairs of origin and target at once.
    Pairs,
    /// All ranks at one lock, each wait timed.
    Waits,
    /// The same, some of whom only read.
    Readers,
    /// The same, holding it for a while.
    Sections,
    /// Many locks.
    Zipf,
    /// Owners that are killed.
    Recovery,
    /// Operations of all sizes, one rank at a time.
    Rma,
    /// The same on memory that its owner has lent, by process_vm.
    RmaProcessVm,
    /// The same by the owner's helper thread.
    RmaHelper,
}

/// How long it measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Effort {
    Full,
    Quick,
}

impl Suite {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Uncontended => "uncontended",
            Self::Contended => "contended",
            Self::Delay => "delay",
            Self::Wake => "wake",
            Self::Concurrency => "concurrency",
            Self::Messages => "messages",
            Self::ComputingThreads => "computing-threads",
            Self::Pairs => "pairs",
            Self::Waits => "waits",
            Self::Readers => "readers",
            Self::Sections => "sections",
            Self::Zipf => "zipf",
            Self::Recovery => "recovery",
            Self::Rma => "rma",
            Self::RmaProcessVm => "rma-process-vm",
            Self::RmaHelper => "rma-helper",
        }
    }

    /// Whether its results are among the curves of the picture.
    pub(crate) const fn has_curves(self) -> bool {
        matches!(
            self,
            Self::Contended
                | Self::Concurrency
                | Self::Messages
                | Self::ComputingThreads
                | Self::Waits
                | Self::Readers
                | Self::Sections
        )
    }

    /// How many [`Line::Step`](crate::bench::report::Line::Step)s it says.
    pub(crate) fn steps(self, effort: Effort) -> u64 {
        match self {
            Self::Uncontended => 4 * effort.runs() as u64,
            Self::Recovery => 1,
            Self::Contended
            | Self::Delay
            | Self::Wake
            | Self::Concurrency
            | Self::Messages
            | Self::ComputingThreads
            | Self::Pairs
            | Self::Waits
            | Self::Readers
            | Self::Sections
            | Self::Zipf => effort.runs() as u64,
            Self::Rma | Self::RmaProcessVm | Self::RmaHelper => (sweep::sizes(effort).count() * effort.runs()) as u64,
        }
    }
}

impl Effort {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Quick => "quick",
        }
    }

    /// How often everything is measured; the median counts.
    pub(crate) const fn runs(self) -> usize {
        match self {
            Self::Full => 7,
            Self::Quick => 3,
        }
    }

    /// Batches of a run, limit and ours in turns.
    pub(crate) const fn batches(self) -> usize {
        match self {
            Self::Full => 31,
            Self::Quick => 7,
        }
    }

    /// For how long the target computes.
    pub(crate) const fn computing(self) -> Duration {
        match self {
            Self::Full => Duration::from_millis(400),
            Self::Quick => Duration::from_millis(100),
        }
    }

    /// For how long all ranks are at one lock.
    pub(crate) const fn contending(self) -> Duration {
        match self {
            Self::Full => Duration::from_millis(250),
            Self::Quick => Duration::from_millis(60),
        }
    }

    /// The same for one point of a sweep.
    pub(crate) const fn sweeping(self) -> Duration {
        match self {
            Self::Full => Duration::from_millis(50),
            Self::Quick => Duration::from_millis(20),
        }
    }

    /// For how long nobody does anything.
    pub(crate) const fn resting(self) -> Duration {
        match self {
            Self::Full => Duration::from_secs(1),
            Self::Quick => Duration::from_millis(200),
        }
    }

    /// How often two origins take turns in a run.
    pub(crate) const fn turns(self) -> u64 {
        match self {
            Self::Full => 400,
            Self::Quick => 80,
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    if args.suite == Suite::Messages {
        let rank = RankOfBench::join_over(Some(&args.report), Counted::new)?;
        messages::run(&rank, args.effort)?;
        rank.world.barrier().wait()?;
        return Ok(ExitCode::SUCCESS);
    }
    let rank = RankOfBench::join(Some(&args.report))?;
    match args.suite {
        Suite::Uncontended => {
            operations::run(&rank, args.effort)?;
            busy::run(&rank, args.effort)?;
            transfers::run(&rank, args.effort)?;
        }
        Suite::Contended => contended::run(&rank, args.effort)?,
        Suite::Delay => delay::run(&rank, args.effort)?,
        Suite::Wake => wake::run(&rank, args.effort)?,
        Suite::Concurrency => concurrency::run(&rank, args.effort)?,
        Suite::Messages => {}
        Suite::ComputingThreads => cpu::computing_threads(&rank, args.effort)?,
        Suite::Pairs => cpu::pairs(&rank, args.effort)?,
        Suite::Waits => waits::run(&rank, args.effort)?,
        Suite::Readers => waits::readers(&rank, args.effort)?,
        Suite::Sections => waits::sections(&rank, args.effort)?,
        Suite::Zipf => waits::zipf(&rank, args.effort)?,
        Suite::Recovery => {
            recovery::run(&rank)?;
            return Ok(ExitCode::SUCCESS); // nobody is left to meet
        }
        Suite::Rma => sweep::run(&rank, args.effort, Way::Direct)?,
        Suite::RmaProcessVm => sweep::run(&rank, args.effort, Way::ProcessVm)?,
        Suite::RmaHelper => sweep::run(&rank, args.effort, Way::Helper)?,
    }
    rank.world.barrier().wait()?;
    Ok(ExitCode::SUCCESS)
}

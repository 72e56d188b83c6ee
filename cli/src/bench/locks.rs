//! `onesided bench locks`: the user's side.

use std::process::ExitCode;

use clap::ValueEnum;
use onesided_windows::LockDesign;

use crate::bench::measure::{self, HELP, Job, Options};
use crate::bench::worker::Suite;
use crate::failure::Failure;

/// Measures locks and small operations between processes of this host, beside what bare instructions can do.
///
/// First without contention: one rank locks, puts, gets, swaps, at its own part of a window and at a peer's, also while
/// the peer computes. Then all ranks contend for one lock. The limits of the machine (compare-swap locks, the same
/// algorithms by bare instructions, a shared pthread mutex, stores, memcpy) are measured in turns with the results, by the
/// same processes. Uncontended, every lock stands beside a bare compare-swap lock, whatever its own algorithm; contended,
/// beside the same algorithm (fetch-add-queue: a bare ticket lock), or beside nothing where there is no bare one. More is measured when --metric asks for it. Each rank is kept on one core. Every figure is the
/// median of 7 runs (--quick: 3). An otherwise idle machine is assumed.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// How many ranks [default: 2, and contended 2, 4 and 8]; metrics that need a certain number have it all the same
    #[arg(short = 'n', long = "ranks", visible_alias = "np", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    ranks: Option<u32>,

    /// Which locks, by name, or all; several, with commas between them, are shown side by side
    #[arg(long = "lock", value_name = "NAME", value_delimiter = ',', default_value = "test-and-set", value_parser = locks)]
    locks: Vec<Locks>,

    /// What is measured; several with commas between them
    #[arg(
        long = "metric",
        value_name = "METRIC",
        value_enum,
        value_delimiter = ',',
        default_value = "overhead,contended"
    )]
    metrics: Vec<Metric>,

    #[command(flatten)]
    options: Options,
}

/// One lock, or all of them.
#[derive(Debug, Clone)]
pub(crate) struct Locks(Vec<LockDesign>);

pub(crate) fn locks(name: &str) -> Result<Locks, onesided_windows::Error> {
    if name == "all" { Ok(Locks(LockDesign::ALL.to_vec())) } else { Ok(Locks(vec![name.parse()?])) }
}

/// Each of them once.
pub(crate) fn unique(all: &[Locks]) -> Vec<LockDesign> {
    let mut locks: Vec<LockDesign> = Vec::new();
    for lock in all.iter().flat_map(|locks| &locks.0) {
        if !locks.contains(lock) {
            locks.push(*lock);
        }
    }
    locks
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Metric {
    /// Time of acquire and release, together and apart, and of small operations; the same while the target computes
    Overhead,
    /// Acquisitions a second when all ranks are at one lock, and how fair that is
    Contended,
    /// From one origin's release to another's having the lock, with short and long waits
    Delay,
    /// The first lock after a rest, beside a bare futex wake where a thread has to be woken for it, and what a target at rest
    /// takes of its core
    Wake,
    /// 1 to 8 origins, each at a window of its own, at one target
    Concurrency,
    /// Operations that leave for an acquire and a release, with 1 to 7 origins at one lock
    Messages,
    /// A target that computes in 0 to 4 threads; two pairs of origin and target at once; what the target's process takes
    Cpu,
    /// How long ranks wait for a contended lock (p50, p99, p99.9), and how many pass them meanwhile
    Wait,
    /// A contended lock that 0 to 100 % only read
    Readers,
    /// A contended lock that is held for 0 ns to 100 us
    Section,
    /// Many locks, uniformly wanted to heavily skewed (Zipf's law)
    Zipf,
    /// From an owner's being killed to its heir's having the lock
    Recovery,
    /// All of these
    All,
}

impl Metric {
    /// Which suites measure it, by how many ranks.
    fn suites(self, ranks: Option<u32>) -> Vec<(Suite, u32)> {
        let each = |suite, default: &[u32]| -> Vec<(Suite, u32)> {
            ranks
                .map_or_else(|| default.to_vec(), |ranks| vec![ranks])
                .into_iter()
                .map(|ranks| (suite, ranks))
                .collect()
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        match self {
            Self::Overhead => each(Suite::Uncontended, &[2]),
            Self::Contended => each(Suite::Contended, &[2, 4, 8]),
            // Two origins, and a target where it does not take a core from them.
            Self::Delay => vec![(Suite::Delay, if cores > 2 { 3 } else { 2 })],
            Self::Wake => vec![(Suite::Wake, 2)],
            Self::Concurrency => [2, 3, 5, 9].map(|ranks| (Suite::Concurrency, ranks)).to_vec(),
            Self::Messages => [2, 3, 5, 8].map(|ranks| (Suite::Messages, ranks)).to_vec(),
            Self::Cpu => vec![(Suite::ComputingThreads, 2), (Suite::Pairs, 4)],
            Self::Wait => each(Suite::Waits, &[2, 4, 8]),
            Self::Readers => each(Suite::Readers, &[4]),
            Self::Section => each(Suite::Sections, &[4]),
            Self::Zipf => each(Suite::Zipf, &[4]),
            Self::Recovery => vec![(Suite::Recovery, 6)],
            Self::All => Self::value_variants()
                .iter()
                .filter(|one| **one != Self::All)
                .flat_map(|one| one.suites(ranks))
                .collect(),
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let locks = unique(&args.locks);
    let mut suites: Vec<(Suite, u32)> = Vec::new();
    for suite in args.metrics.iter().flat_map(|metric| metric.suites(args.ranks)) {
        if !suites.contains(&suite) {
            suites.push(suite);
        }
    }
    // The same with each lock shortly after one another.
    let jobs: Vec<Job> =
        suites.iter().flat_map(|(suite, ranks)| locks.iter().map(|lock| (*suite, *ranks, *lock))).collect();
    measure::run("onesided bench locks", &args.options, &jobs)
}

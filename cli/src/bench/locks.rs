//! `onesided bench locks`: the user's side.

use std::process::ExitCode;

use windows::LockDesign;

use crate::bench::measure::{self, HELP, Options};
use crate::bench::worker::Suite;
use crate::failure::Failure;

/// Measures locks and small operations between processes of this host, beside what bare instructions can do.
///
/// First without contention: one rank locks, puts, gets, swaps, at its own part of a window and at a peer's, also while
/// the peer computes. Then all ranks contend for one lock. The limits of the machine (compare-swap locks, stores, memcpy)
/// are measured in turns with the results, by the same processes. Each rank is kept on one core. Every figure is the
/// median of 7 runs (--quick: 3). An otherwise idle machine is assumed.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// How many ranks [default: 2, and contended 2, 4 and 8]
    #[arg(short = 'n', long = "ranks", visible_alias = "np", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    ranks: Option<u32>,

    /// Which locks: test-and-set, mcs, ticket; several, with commas between them, are shown side by side
    #[arg(long = "lock", value_name = "NAME", value_delimiter = ',', default_value = "test-and-set")]
    locks: Vec<LockDesign>,

    #[command(flatten)]
    options: Options,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let contended = args.ranks.map_or(vec![2, 4, 8], |ranks| vec![ranks]);
    let suites: Vec<_> = std::iter::once((Suite::Uncontended, args.ranks.unwrap_or(2)))
        .chain(contended.into_iter().map(|ranks| (Suite::Contended, ranks)))
        .collect();
    // The same with each lock shortly after one another.
    let jobs: Vec<_> =
        suites.iter().flat_map(|(suite, ranks)| args.locks.iter().map(|lock| (*suite, *ranks, *lock))).collect();
    measure::run("onesided bench locks", &args.options, &jobs)
}

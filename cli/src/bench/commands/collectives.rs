//! `onesided bench collectives`.

use std::process::ExitCode;

use onesided_windows::LockDesign;

use crate::bench::collectives::{MOST_RANKS, SUITE};
use crate::bench::runner::{self, Job, Options};
use crate::failure::Failure;

/// Measures collectives of messages among 2 and 4 processes of this host.
///
/// All ranks call the same collective again and again; rank 0 is timed. A barrier; all_reduce of 8 B
/// and 1 MiB, sums of floats of 8 B; broadcast of 8 B and 1 MiB, from each rank in turn; all_gather
/// and all_to_all of blocks of 8 B and 64 KiB. Each rank is kept on one core; they share the cores if
/// there are fewer than ranks. There are no limits to compare with: `bench peers --suite collectives`
/// compares with MPICH and Open MPI. Every figure is the median of 7 runs (--quick: 3). The benchmark
/// assumes an otherwise idle machine.
#[derive(Debug, clap::Args)]
#[command(after_help = runner::help())]
pub(crate) struct Args {
    /// How many ranks; several with commas between them
    #[arg(short = 'n', long = "ranks", visible_alias = "np", value_name = "N", value_delimiter = ',', default_value = "2,4", value_parser = clap::value_parser!(u32).range(1..=MOST_RANKS as i64))]
    ranks: Vec<u32>,

    #[command(flatten)]
    options: Options,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    args.options.without_picture()?;
    let jobs: Vec<Job> = args.ranks.iter().map(|ranks| (&SUITE, *ranks, LockDesign::default())).collect();
    runner::run("onesided bench collectives", &args.options, &jobs, Vec::new())
}

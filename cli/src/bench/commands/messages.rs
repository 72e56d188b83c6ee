//! `onesided bench messages`.

use std::process::ExitCode;

use onesided_windows::LockDesign;

use crate::bench::messages;
use crate::bench::runner::{self, Options};
use crate::failure::Failure;

/// Measures messages between two processes of this host: half a round trip, and streams.
///
/// Rank 0 sends to the last rank, which receives into a slice. Sizes are powers of two
/// (--quick: of eight) from 8 B to 4 MiB. Half a round trip: a message there and one back, over
/// two. A stream: 64 messages, or as many as 16 MiB hold, and an empty one back. The limit of a
/// ping-pong is one by stores (8 B), or by memcpy into shared memory, a store, and memcpy out of
/// it, measured interleaved with the results by the same processes. Each rank is kept on one core.
/// Every figure is the median of 7 runs (--quick: 3). The benchmark assumes an otherwise idle
/// machine.
#[derive(Debug, clap::Args)]
#[command(after_help = runner::help())]
pub(crate) struct Args {
    /// How many ranks, two of which send
    #[arg(short = 'n', long = "ranks", visible_alias = "np", value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..))]
    ranks: u32,

    #[command(flatten)]
    options: Options,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    if args.options.wants_picture() {
        return Err(runner::NO_CURVES.into());
    }
    let jobs = [(&messages::SUITE, args.ranks, LockDesign::default())];
    runner::run("onesided bench messages", &args.options, &jobs, Vec::new())
}

//! `onesided bench transport`.

use std::process::ExitCode;

use onesided_windows::LockDesign;

use crate::bench::runner::{self, Options};
use crate::bench::transport;
use crate::failure::Failure;

/// Measures the packets that messages travel in, without what finds their receives.
///
/// Rank 0 sends packets of 8, 64, 512 and 2,064 B to the last rank, as far as the fabric has packets
/// of that length, by the fabric's poll_send, poll_recv and read. Half a round trip: a packet there
/// and one back, over two. A stream: 64 packets, and one of 8 B back. What `bench messages` takes
/// beyond that, the matching and the protocols take. The limits send as many messages by stores (a
/// ping-pong of 8 B), or by memcpy into shared memory and out of it; they are measured interleaved
/// with the results by the same processes. Each rank is kept on one core. Every figure is the median
/// of 7 runs (--quick: 3). The benchmark assumes an otherwise idle machine.
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
    let jobs = [(&transport::SUITE, args.ranks, LockDesign::default())];
    runner::run("onesided bench transport", &args.options, &jobs, Vec::new())
}

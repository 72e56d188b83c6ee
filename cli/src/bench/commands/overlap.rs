//! `onesided bench overlap`.

use std::process::ExitCode;

use onesided_windows::LockDesign;

use crate::bench::overlap;
use crate::bench::runner::{self, Options};
use crate::failure::Failure;

/// Measures whether messages move while a rank computes, by progress mode and rendezvous protocol.
///
/// Rank 0 receives from the last rank, each on a core of its own; a handler may run on every core. A
/// rank computes for 1.8 ms between the start of its send or receive and the wait for it. The limit
/// is the same computation alone: a ratio of 1 is full overlap (W/T of sur-2006, section 5, is its
/// inverse). It receives into a slice, or a vector, which needs no copy. A sender is held from its
/// send until it may go on, while its receiver computes: one that posts the receive before (early),
/// or when the message was announced (late). Sizes are 8 B, 16 KiB and powers of four to 4 MiB
/// (--quick: 1 MiB). Receivers read messages (RGET); with "rput", senders write them when the
/// receiver has said where (RPUT: sur-2006, section 3). What a mode costs messages that are waited
/// for: the latency (half a round trip) of 4 B and 4 KiB (yu-2004, Table 1), and the processor time
/// and the wake-ups of both ranks for a message. A wake-up is the end of a thread's sleep; those of
/// a receiver that computes are shown apart.
/// Every figure is the median of 7 runs (--quick: 3). The benchmark assumes an otherwise idle
/// machine.
#[derive(Debug, clap::Args)]
#[command(after_help = runner::help())]
pub(crate) struct Args {
    /// How many ranks, two of which compute
    #[arg(short = 'n', long = "ranks", visible_alias = "np", value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..))]
    ranks: u32,

    #[command(flatten)]
    options: Options,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    if args.options.wants_picture() {
        return Err(runner::NO_CURVES.into());
    }
    let jobs = [(&overlap::SUITE, args.ranks, LockDesign::default())];
    runner::run("onesided bench overlap", &args.options, &jobs, Vec::new())
}

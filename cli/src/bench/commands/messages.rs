//! `onesided bench messages`.

use std::process::ExitCode;

use onesided_windows::LockDesign;

use crate::bench::baselines::ends::MOST_PAIRS;
use crate::bench::messages;
use crate::bench::runner::{self, Job, Options};
use crate::failure::Failure;

/// Measures messages between two processes of this host, and between several pairs.
///
/// Rank 0 sends to the last rank, from a slice into slices. Sizes are powers of two from 8 B to 4
/// MiB (--quick and pairs: eight of them). Half a round trip: a message there and one back, over
/// two. Of columns: elements of 8 bytes, each in a cache line of its own, at both ends. A stream:
/// 64 messages (16 from 1 MiB on), each into a place of its own, whose receives are posted before,
/// and an empty one back. Both ways: two streams at the same time, counted together. All
/// unexpected: the receives are posted after all 64 messages, of at most 2 KiB, have arrived.
/// Pairs: a stream in each pair of ranks at the same time, counted together. 2 pairs share the
/// cores if there are fewer than 4. The limits send as many messages by stores (a ping-pong of 8
/// B), or by memcpy into shared memory and out of it, in pieces of at most 32 KiB and a store for
/// each, columns by a move for each element before and after; they are measured interleaved with
/// the results by the same processes. Each rank is kept on one core. Buffers: 16 messages of 1 MiB,
/// of which 0 to 100 % have memory that was registered before. Over cards (--fabric verbs) the
/// limits are loops of the same calls of libibverbs: sends; datagrams, if ONESIDED_MESSAGES_CHANNEL
/// says so; reads and writes of messages that are announced, with the sends before and after; a
/// stream of sends that are posted in lists of 16. Every figure is the median of 7 runs (--quick:
/// 3). The benchmark assumes an otherwise idle machine.
#[derive(Debug, clap::Args)]
#[command(after_help = runner::help())]
pub(crate) struct Args {
    /// How many ranks, two of which send, and then each to its partner; 2 and 3 have one pair
    /// [default: 2, and of pairs 4]
    #[arg(short = 'n', long = "ranks", visible_alias = "np", value_name = "N", value_parser = clap::value_parser!(u32).range(2..=2 * MOST_PAIRS as i64))]
    ranks: Option<u32>,

    /// Measures, in place of all that, half a round trip of 8 and 512 B at each layer: bare, packets,
    /// messages; and what each adds (yu-2004)
    #[arg(long, conflicts_with = "ranks")]
    layers: bool,

    /// Measures, in place of all that, messages of two ranks by each channel of cards: rc-sr, rc-fp and ud-sr of
    /// 8, 64 and 512 B, rc-rdma, ud-zcopy and copy of 64 KiB and 1 MiB (koop-2008)
    #[arg(long, conflicts_with_all = ["ranks", "layers"])]
    channels: bool,

    #[command(flatten)]
    options: Options,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    args.options.without_picture()?;
    if args.layers {
        let jobs = [(&messages::layers::SUITE, 2, LockDesign::default())];
        return runner::run("onesided bench messages --layers", &args.options, &jobs, messages::layers::sections());
    }
    if args.channels {
        if args.options.is_shm() && args.options.measures() {
            return Err("--channels: they are those of cards (--fabric verbs)".into());
        }
        let jobs = [(&messages::channels::SUITE, 2, LockDesign::default())];
        return runner::run("onesided bench messages --channels", &args.options, &jobs, messages::channels::sections());
    }
    let mut jobs: Vec<Job> = vec![(&messages::SUITE, args.ranks.unwrap_or(2), LockDesign::default())];
    let in_pairs = args.ranks.unwrap_or(4);
    if in_pairs >= 4 {
        jobs.push((&messages::PAIRS, in_pairs, LockDesign::default()));
    }
    runner::run("onesided bench messages", &args.options, &jobs, messages::sections())
}

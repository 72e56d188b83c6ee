//! `onesided bench`: the library's performance on this machine, beside the machine's own limits.
//!
//! `bench locks` ([`metrics`]), [`rma`], [`messages`], [`collectives`], [`overlap`] and [`transport`] start
//! jobs of their own executable, whose ranks run the hidden `bench worker`: [`runner`] is the user's
//! side, [`worker`] what ranks share, [`baselines`] what they compare with. `bench scale` measures in
//! simulation: [`simulated`]. All of them yield [`results`], and [`output`] prints them. [`peers`] is
//! `bench peers`, with a worker, tables and pages of its own. What every measurement needs is in
//! [`prelude`].

mod baselines;
mod collectives;
mod effort;
mod lock_choice;
mod messages;
mod metrics;
pub(crate) mod output;
mod overlap;
mod peers;
mod prelude;
mod results;
mod rma;
mod runner;
mod simulated;
mod transport;
mod worker;

use std::process::ExitCode;

use clap::Subcommand;

use crate::bench::runner::two_ranks;
use crate::failure::Failure;

/// Measures the library beside the limits of this machine.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Locks(metrics::Args),
    Rma(rma::Args),
    Messages(messages::Args),
    Collectives(collectives::Args),
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
    Overlap(two_ranks::Args),
    /// Measures the packets that messages travel in, without what finds their receives.
    ///
    /// Rank 0 sends packets of 8, 64, 512 and 2,064 B to the last rank, as far as the fabric has packets
    /// of that length, by the fabric's poll_send, poll_recv and read. Half a round trip: a packet there
    /// and one back, over two. A stream: 64 packets, and one of 8 B back. What `bench messages` takes
    /// beyond that, the matching and the protocols take. The limits send as many messages by stores (a
    /// ping-pong of 8 B), or by memcpy into shared memory and out of it; they are measured interleaved
    /// with the results by the same processes. Each rank is kept on one core. Every figure is the median
    /// of 7 runs (--quick: 3). The benchmark assumes an otherwise idle machine.
    Transport(two_ranks::Args),
    Scale(simulated::Args),
    Peers(peers::Args),
    #[command(hide = true)]
    Peer(peers::worker::Args),
    #[command(hide = true)]
    Worker(worker::Args),
}

pub(crate) fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Locks(args) => metrics::start(&args),
        Command::Rma(args) => rma::start(&args),
        Command::Messages(args) => messages::start(&args),
        Command::Collectives(args) => collectives::start(&args),
        Command::Overlap(args) => two_ranks::start("onesided bench overlap", &args, &overlap::SUITE),
        Command::Transport(args) => two_ranks::start("onesided bench transport", &args, &transport::SUITE),
        Command::Scale(args) => simulated::start(&args),
        Command::Peers(args) => peers::run(&args),
        Command::Peer(args) => peers::worker::run(&args),
        Command::Worker(args) => worker::run(&args),
    }
}

//! `onesided bench rma`.

use std::process::ExitCode;

use onesided_windows::LockDesign;

use crate::bench::rma::{self, Transport};
use crate::bench::runner::{self, Job, Options};
use crate::failure::Failure;

/// Measures put, get, strided put, accumulate, get_accumulate, fetch_and_op and compare_and_swap
/// between processes of this host, beside what bare instructions can do.
///
/// Rank 0 accesses the window memory of the last rank, which is idle meanwhile. Sizes are 8 B to 4
/// MiB by powers of two (--quick: of four); accumulate and get_accumulate, sums of 8-byte words, go
/// to 4 KiB, the other atomic operations have 8 B; a strided put goes to every second word.
/// Latency: one operation, waited for, and a flush. Bandwidth and message rate ("many"): 64
/// operations at 64 displacements, or as many as fit in 16 MiB, are open at once, all are waited
/// for, and one flush follows; "requests" are the same without the flush (a put has no request: its
/// buffer is free when it returns). The limits do the same with memcpy (8 B: a store or a load)
/// between the same local buffer and memory that is shared like a window's, and a full fence for a
/// flush, or with the bare atomic instruction; they are measured interleaved with the results, by
/// the same process. --path measures other transports as well. Each rank is kept on one core. Every
/// figure is the median of 7 runs (--quick: 3). The benchmark assumes an otherwise idle machine.
#[derive(Debug, clap::Args)]
#[command(after_help = runner::help())]
pub(crate) struct Args {
    /// How many ranks; 1 measures its own window memory
    #[arg(short = 'n', long = "ranks", visible_alias = "np", value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    ranks: u32,

    /// Which transports are measured, several with commas between
    #[arg(long = "path", value_name = "PATH", value_enum, value_delimiter = ',', default_value = "direct")]
    transports: Vec<Transport>,

    #[command(flatten)]
    options: Options,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    args.options.without_picture()?;
    let mut jobs: Vec<Job> = Vec::new();
    for transport in &args.transports {
        if *transport != Transport::Direct && (args.ranks < 2 || !args.options.is_shm()) {
            return Err("--path process-vm and helper: these transports lead from process to process over shm".into());
        }
        let job = (transport.suite(), args.ranks, LockDesign::default());
        if !jobs.contains(&job) {
            jobs.push(job);
        }
    }
    runner::run("onesided bench rma", &args.options, &jobs, rma::sections())
}

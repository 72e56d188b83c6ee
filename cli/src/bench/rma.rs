//! `onesided bench rma`: the user's side.

use std::process::ExitCode;

use clap::ValueEnum;

use onesided_windows::LockDesign;

use crate::bench::measure::{self, HELP, Job, Options};
use crate::bench::worker::Suite;
use crate::failure::Failure;

/// Measures put, get, strided put, accumulate, get_accumulate, fetch_and_op and compare_and_swap between processes of
/// this host, beside what bare instructions can do.
///
/// Rank 0 reaches into the part of the last rank, which does nothing meanwhile. Sizes are 8 B to 4 MiB by powers of two
/// (--quick: of four); accumulate and get_accumulate, sums of 8-byte words, go to 4 KiB, the other atomic operations have
/// 8 B; a strided put goes to every second word. Latency: one operation, waited for, and a flush. Bandwidth and message
/// rate ("many"): 64 operations on 64 places, as many as 16 MiB hold if those are fewer, open at once, all waited for,
/// and one flush; "requests" are the same without the flush (a put has no request: it is done with its buffer when it
/// returns). The limits do the same with memcpy (8 B: a store or a load) between the same local buffer and memory that is
/// shared like a window's, and a full fence for a flush, or with the bare atomic instruction; they are measured in turns
/// with the results, by the same process. --path measures other ways to the memory as well. Each rank is kept on one core. Every figure is the median of 7 runs (--quick:
/// 3). An otherwise idle machine is assumed.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// How many ranks; 1 measures its own part
    #[arg(short = 'n', long = "ranks", visible_alias = "np", value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    ranks: u32,

    /// Which ways to the memory are measured, several with commas between
    #[arg(long = "path", value_name = "PATH", value_enum, value_delimiter = ',', default_value = "direct")]
    paths: Vec<PathName>,

    #[command(flatten)]
    options: Options,
}

/// A way to a peer's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PathName {
    /// Memory that the window has allocated: by instructions over shm, by the card over verbs
    Direct,
    /// Memory of the peer's own: put and get by process_vm_writev and process_vm_readv, whose bare calls are the limit
    ProcessVm,
    /// The same, with everything done by the peer's helper thread
    Helper,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let mut jobs: Vec<Job> = Vec::new();
    for path in &args.paths {
        let suite = match path {
            PathName::Direct => Suite::Rma,
            PathName::ProcessVm => Suite::RmaProcessVm,
            PathName::Helper => Suite::RmaHelper,
        };
        if suite != Suite::Rma && (args.ranks < 2 || !args.options.is_shm()) {
            return Err("--path process-vm and helper: these ways lead from process to process over shm".into());
        }
        let job = (suite, args.ranks, LockDesign::default());
        if !jobs.contains(&job) {
            jobs.push(job);
        }
    }
    measure::run("onesided bench rma", &args.options, &jobs)
}

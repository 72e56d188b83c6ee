//! `onesided bench worker`: a rank of a benchmark, started by `bench locks`, `rma`, `messages` and others.
//!
//! What the measurements of a worker share: its [`rank`], interleaved [`probes`], [`throughput`]
//! runs, [`timing`], and locks [`served`] over messages.

pub(crate) mod probes;
pub(crate) mod rank;
pub(crate) mod served;
pub(crate) mod throughput;
pub(crate) mod timing;

use std::path::PathBuf;
use std::process::ExitCode;

use onesided_lock_kit::bench::Counted;

use crate::bench::effort::Effort;
use crate::bench::metrics::LOCK_METRICS;
use crate::bench::rma::Transport;
use crate::bench::runner::suite::{Program, Suite};
use crate::bench::worker::rank::BenchRank;
use crate::bench::{collectives, messages, overlap, transport};
use crate::failure::Failure;

/// A rank of a benchmark; `bench locks` and others start it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(value_parser = suite)]
    suite: &'static Suite,
    effort: Effort,
    /// Where rank 0 writes its report
    report: PathBuf,
}

fn suite(name: &str) -> Result<&'static Suite, String> {
    let of_locks = LOCK_METRICS.iter().flat_map(|metric| metric.jobs).map(|(suite, _)| suite);
    let of_messages = [&messages::SUITE, &messages::PAIRS, &messages::layers::SUITE, &messages::channels::SUITE];
    let others = of_messages.into_iter().chain([&collectives::SUITE, &overlap::SUITE, &transport::SUITE]);
    let mut all = of_locks.chain(Transport::suites()).chain(others);
    all.find(|suite| suite.name == name).ok_or_else(|| format!("there is no suite {name}"))
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let report = Some(&*args.report);
    match args.suite.program {
        Program::Plain(run) => {
            let rank = BenchRank::join(report)?;
            run(&rank, args.effort)?;
            rank.world.barrier().wait()?;
        }
        Program::Counted(run) => {
            let rank = BenchRank::join_over(report, Counted::new)?;
            run(&rank, args.effort)?;
            rank.world.barrier().wait()?;
        }
        // Without a barrier: the other ranks are dead.
        Program::Killed(run) => run(&BenchRank::join(report)?, args.effort)?,
    }
    Ok(ExitCode::SUCCESS)
}

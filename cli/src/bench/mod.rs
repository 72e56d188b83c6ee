//! `onesided bench`: what this program does on this machine, beside what the machine itself can do.
//!
//! `bench locks` and `bench rma` start jobs of their own executable, whose ranks run the hidden `bench worker`: [`measure`]
//! is the side of the user, [`worker`] that of a rank, [`report`] what goes from one to the other. The results leave as
//! [`table`], [`json`] and [`html`].

mod bare;
mod bare_locks;
mod busy;
mod concurrency;
mod contended;
mod contest;
mod cpu;
mod delay;
mod html;
mod job;
mod json;
mod locks;
mod measure;
mod messages;
mod operations;
mod peers;
mod rank;
mod recovery;
mod report;
mod rma;
mod rounds;
mod scale;
mod simulated;
mod spread;
mod sweep;
mod table;
mod transfers;
mod units;
mod waits;
mod wake;
mod worker;

use std::process::ExitCode;

use clap::Subcommand;

use crate::failure::Failure;

/// Measures the library beside the limits of this machine.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Locks(locks::Args),
    Rma(rma::Args),
    Scale(scale::Args),
    Peers(peers::Args),
    #[command(hide = true)]
    Peer(peers::worker::Args),
    #[command(hide = true)]
    Worker(worker::Args),
}

pub(crate) fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Locks(args) => locks::run(&args),
        Command::Rma(args) => rma::run(&args),
        Command::Scale(args) => scale::run(&args),
        Command::Peers(args) => peers::run(&args),
        Command::Peer(args) => peers::worker::run(&args),
        Command::Worker(args) => worker::run(&args),
    }
}

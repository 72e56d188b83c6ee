//! `onesided bench`: what this program does on this machine, beside what the machine itself can do.
//!
//! `bench locks` starts jobs of its own executable, whose ranks run the hidden `bench worker`: [`locks`] is the side of
//! the user, [`worker`] that of a rank, [`report`] what goes from one to the other.

mod bare;
mod busy;
mod contended;
mod job;
mod json;
mod locks;
mod operations;
mod rank;
mod report;
mod rounds;
mod spread;
mod table;
mod transfers;
mod worker;

use std::process::ExitCode;

use clap::Subcommand;

use crate::failure::Failure;

/// Measures the library beside the limits of this machine.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Locks(locks::Args),
    #[command(hide = true)]
    Worker(worker::Args),
}

pub(crate) fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Locks(args) => locks::run(&args),
        Command::Worker(args) => worker::run(&args),
    }
}

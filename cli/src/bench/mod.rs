//! `onesided bench`: the library's performance on this machine, beside the machine's own limits.
//!
//! [`commands`] has the entry points. `bench locks`, `bench rma`, `bench messages`, `bench
//! collectives` and `bench transport` start jobs of their own executable, whose ranks run the hidden
//! `bench worker`: [`runner`] is the user's side, [`worker`] what ranks share, [`metrics`], [`rma`],
//! [`messages`], [`collectives`] and [`transport`] what they measure, [`baselines`] what they compare with. `bench scale` measures
//! in simulation: [`simulated`]. All of them yield [`results`], and [`output`] prints them.
//! [`peers`] is `bench peers`, with a worker and outputs of its own.

mod baselines;
mod collectives;
mod commands;
mod effort;
mod lock_choice;
mod messages;
mod metrics;
mod output;
mod overlap;
mod peers;
mod results;
mod rma;
mod runner;
mod simulated;
mod transport;
mod worker;

use std::process::ExitCode;

use clap::Subcommand;

use crate::failure::Failure;

/// Measures the library beside the limits of this machine.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Locks(commands::locks::Args),
    Rma(commands::rma::Args),
    Messages(commands::messages::Args),
    Collectives(commands::collectives::Args),
    Overlap(commands::overlap::Args),
    Transport(commands::transport::Args),
    Scale(commands::scale::Args),
    Peers(peers::Args),
    #[command(hide = true)]
    Peer(peers::worker::Args),
    #[command(hide = true)]
    Worker(commands::worker::Args),
}

pub(crate) fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Locks(args) => commands::locks::run(&args),
        Command::Rma(args) => commands::rma::run(&args),
        Command::Messages(args) => commands::messages::run(&args),
        Command::Collectives(args) => commands::collectives::run(&args),
        Command::Overlap(args) => commands::overlap::run(&args),
        Command::Transport(args) => commands::transport::run(&args),
        Command::Scale(args) => commands::scale::run(&args),
        Command::Peers(args) => peers::run(&args),
        Command::Peer(args) => peers::worker::run(&args),
        Command::Worker(args) => commands::worker::run(&args),
    }
}

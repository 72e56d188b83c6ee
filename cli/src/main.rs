//! The program `onesided`: starts jobs (`run`), shows what this host can do (`info`), measures
//! (`bench`), reproduces figures of papers (`reproduce`).
//!
//! May use: everything. Each subcommand has a module; begin to read at [`Command`].

mod bench;
mod experiment;
mod fabric;
mod failure;
mod info;
mod output;
mod reproduce;
mod run;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::failure::Failure;

/// One-sided remote memory access and distributed locks.
#[derive(Debug, Parser)]
#[command(name = "onesided", version, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Args),
    Info(info::Args),
    /// The agent that `run --hosts` starts on other hosts
    #[command(hide = true)]
    Agent,
    #[command(subcommand)]
    Bench(bench::Command),
    Reproduce(reproduce::Args),
}

const EXIT_CODES: &str = "\
Exit status:
  0        success
  1        onesided itself failed; standard error says why
  2        the command line is wrong, or needs what this build does not have
  126/127  `run`: the program cannot be executed / was not found
  128+n    `run`: signal n ended the first rank that failed, or the job (130: Ctrl-C, 143: SIGTERM)
  other    `run`: the exit status of the first rank that failed";

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Run(args) => run::run(args),
        Command::Info(args) => info::run(&args),
        Command::Agent => run::agent(),
        Command::Bench(command) => bench::run(command),
        Command::Reproduce(args) => reproduce::run(&args),
    };
    done.unwrap_or_else(Failure::report)
}

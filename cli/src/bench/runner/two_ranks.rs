//! `onesided bench overlap` and `onesided bench transport`: a suite of two ranks.

use std::process::ExitCode;

use onesided_windows::LockDesign;

use crate::bench::runner::suite::Suite;
use crate::bench::runner::{self, Options};
use crate::failure::Failure;

#[derive(Debug, clap::Args)]
#[command(after_help = runner::help())]
pub(crate) struct Args {
    /// How many ranks; the first and the last one are measured
    #[arg(short = 'n', long = "ranks", visible_alias = "np", value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..))]
    ranks: u32,

    #[command(flatten)]
    options: Options,
}

pub(crate) fn start(title: &str, args: &Args, suite: &'static Suite) -> Result<ExitCode, Failure> {
    args.options.without_picture()?;
    runner::run(title, &args.options, &[(suite, args.ranks, LockDesign::default())], Vec::new())
}

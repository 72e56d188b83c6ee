//! `onesided bench locks`: the user's side.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::bench::job::{self, Outcome};
use crate::bench::json::{Document, Machine};
use crate::bench::worker::{Effort, Suite};
use crate::failure::Failure;
use crate::run::{FabricName, interrupts};

/// Measures locks and small operations between processes of this host, beside what bare instructions can do.
///
/// First without contention: one rank locks, puts, gets, swaps, at its own part of a window and at a peer's, also while
/// the peer computes. Then all ranks contend for one lock. The limits of the machine (compare-swap locks, stores, memcpy)
/// are measured in turns with the results, by the same processes. Each rank is kept on one core. Every figure is the
/// median of 7 runs (--quick: 3). An otherwise idle machine is assumed.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// How many ranks [default: 2, and contended 2, 4 and 8]
    #[arg(short = 'n', long = "ranks", visible_alias = "np", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    ranks: Option<u32>,

    /// What the ranks reach each other's memory by
    #[arg(long, value_enum, default_value_t = FabricName::Shm)]
    fabric: FabricName,

    /// Also write the results as one JSON object
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Fewer and shorter runs: some seconds, and more noise
    #[arg(long)]
    quick: bool,
}

const HELP: &str = "\
JSON: an object with `machine`, `limits` and `results`. Each result has `benchmark`, `algorithm`, `fabric`, `ranks`,
`metric`, `value` (the median), `unit`, `limit` (what bare instructions reach, or null) and `ratio` (value / limit, or
null). These names stay.";

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let fabric = args.fabric.built_in()?;
    let machine = Machine::collect();
    // Made first: a minute of measurements must not end in a file that cannot be written.
    let json = args.json.as_ref().map(|path| {
        File::create(path).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
    });
    let json = json.transpose()?;
    let interrupts = interrupts()?;
    let effort = if args.quick { Effort::Quick } else { Effort::Full };
    let contended = args.ranks.map_or(vec![2, 4, 8], |ranks| vec![ranks]);
    let jobs = std::iter::once((Suite::Uncontended, args.ranks.unwrap_or(2)))
        .chain(contended.into_iter().map(|ranks| (Suite::Contended, ranks)));
    let jobs: Vec<_> = jobs.collect();

    let progress = progress(jobs.iter().map(|(suite, _)| suite.steps(effort)).sum());
    let mut measured = Vec::new();
    for (suite, ranks) in jobs {
        progress.set_message(format!("{}, {ranks} ranks", suite.name()));
        match job::run((suite, effort), (ranks, fabric), &interrupts, || progress.inc(1))? {
            Outcome::Measured(more) => measured.extend(more),
            Outcome::Ended(code) => return Ok(code.into()),
        }
    }
    progress.finish_and_clear();

    let document = Document::new(machine, fabric, &measured);
    if let Some(mut json) = json {
        json.write_all((serde_json::to_string_pretty(&document)? + "\n").as_bytes())?;
    }
    match io::stdout().lock().write_all(document.to_text().as_bytes()) {
        // A reader that has seen enough.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// A bar on standard error, if that is a terminal. It is drawn between the steps, never while something is measured.
fn progress(steps: u64) -> ProgressBar {
    let target = if io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let style = ProgressStyle::with_template("{bar:40} {percent:>3} %  {msg}");
    ProgressBar::with_draw_target(Some(steps), target)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

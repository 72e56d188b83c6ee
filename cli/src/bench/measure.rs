//! The user's side of every benchmark: its options, its jobs, what becomes of the results.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use onesided_windows::LockDesign;

use crate::bench::html;
use crate::bench::job::{self, Outcome};
use crate::bench::json::{Document, Machine};
use crate::bench::report::{Against, Measured};
use crate::bench::worker::{Effort, Suite};
use crate::failure::Failure;
use crate::run::{FabricName, interrupts};

/// What every benchmark lets one choose.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// What the ranks reach each other's memory by
    #[arg(long, value_enum, default_value_t = FabricName::Shm)]
    fabric: FabricName,

    #[command(flatten)]
    files: Files,

    /// Fewer and shorter runs: some seconds, and more noise
    #[arg(long)]
    quick: bool,
}

/// Where the results go, beside standard output.
#[derive(Debug, clap::Args)]
pub(crate) struct Files {
    /// Also write the results as one JSON object
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Also write a page with plots and all results: one HTML file that needs nothing else
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,

    /// Also draw the curves that tell most about locks as a picture; one number of ranks makes no curve of contended ones
    #[arg(long, value_name = "FILE.svg")]
    picture: Option<PathBuf>,
}

const NO_CURVES: &str = "--picture: these results have no curves to draw; contended, concurrency, messages, cpu, wait, \
                         readers and section have, and `bench scale`";

/// The same, open.
pub(crate) struct Open {
    json: Option<File>,
    report: Option<File>,
    picture: Option<(File, PathBuf)>,
}

impl Files {
    /// Made first: a minute of measurements must not end in a file that cannot be written.
    pub(crate) fn create(&self) -> io::Result<Open> {
        let open = |path: &Option<PathBuf>| path.as_deref().map(create).transpose();
        let picture = open(&self.picture)?.zip(self.picture.clone());
        Ok(Open { json: open(&self.json)?, report: open(&self.report)?, picture })
    }
}

impl Open {
    pub(crate) fn write(self, document: &Document, title: &str, begun: SystemTime) -> io::Result<()> {
        if let Some(mut json) = self.json {
            json.write_all((serde_json::to_string_pretty(document)? + "\n").as_bytes())?;
        }
        if let Some(mut report) = self.report {
            report.write_all(html::page(document, title, &command(), begun).as_bytes())?;
        }
        if let Some((mut file, path)) = self.picture {
            let Some(picture) = html::picture(document, begun) else {
                if file.metadata()?.is_file() {
                    drop(std::fs::remove_file(path)); // it is empty
                }
                return Err(io::Error::other(NO_CURVES));
            };
            file.write_all(picture.as_bytes())?;
        }
        Ok(())
    }
}

impl Options {
    pub(crate) fn is_shm(&self) -> bool {
        matches!(self.fabric, FabricName::Shm)
    }
}

/// What the help of every benchmark ends with.
pub(crate) const HELP: &str = "\
JSON: an object with `machine`, `limits` and `results`. Each result has `benchmark`, `algorithm`, `fabric`, `size` (the
bytes of one operation, or null), `parameter` (`name`, `value` and `unit` of a sweep's point, or null), `ranks`, `metric`,
`value` (the median), `unit`, `limit` (what bare instructions reach, or null) and `ratio` (value / limit, or null). These
names stay. Metrics: latency, bandwidth, message rate, acquisitions (of all ranks together), smallest/largest share, jain
(index of fairness), p50, p99, p99.9 (of all waits, without what the clock takes; who starves others has many short ones),
p99 of the rank served worst (of its own waits; a rank that had no turn waited all the time), longest bypass, p99.9 bypass
(how many others had the lock between somebody's asking and having), operations (on the fabric), cpu (of a core's time).";

/// What is measured: a suite, by so many ranks, whose windows have this lock.
pub(crate) type Job = (Suite, u32, LockDesign);

/// Runs the jobs and prints and writes the results.
pub(crate) fn run(title: &str, options: &Options, jobs: &[Job]) -> Result<ExitCode, Failure> {
    let fabric = options.fabric.built_in()?;
    if options.files.picture.is_some() && !jobs.iter().any(|(suite, ..)| suite.has_curves()) {
        return Err(NO_CURVES.into());
    }
    let (machine, begun) = (Machine::collect(), SystemTime::now());
    let files = options.files.create()?;
    let interrupts = interrupts()?;
    let effort = if options.quick { Effort::Quick } else { Effort::Full };

    let progress = progress(jobs.iter().map(|(suite, ..)| suite.steps(effort)).sum());
    let mut measured = Vec::new();
    for (suite, ranks, lock) in jobs {
        progress.set_message(format!("{}, {ranks} ranks, {lock}", suite.name()));
        let first = jobs.first().is_some_and(|(.., first)| first == lock);
        match job::run((*suite, effort, lock.name()), (*ranks, fabric), &interrupts, || progress.inc(1))? {
            Outcome::Measured(more) => measured.extend(more.into_iter().filter(|one| first || is_of_lock(one))),
            Outcome::Ended(code) => return Ok(code.into()),
        }
    }
    progress.finish_and_clear();

    let document = Document::new(machine, fabric, &measured);
    finish(&document, files, title, begun)
}

/// Prints and writes the results; those that are printed are there whatever becomes of the files.
pub(crate) fn finish(document: &Document, files: Open, title: &str, begun: SystemTime) -> Result<ExitCode, Failure> {
    let printed = io::stdout().lock().write_all(document.to_text().as_bytes());
    files.write(document, title, begun)?;
    match printed {
        // A reader that has seen enough.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Whether it is measured again with each lock: what has nothing to do with the lock stands there once. Limits do, for each
/// result is compared with those of its own job; the document has them once.
fn is_of_lock(one: &Measured) -> bool {
    one.against == Against::IsLimit || one.what.contains("lock")
}

pub(crate) fn create(path: &Path) -> io::Result<File> {
    File::create(path).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

/// A bar on standard error, if that is a terminal. It is drawn between the steps, never while something is measured.
pub(crate) fn progress(steps: u64) -> ProgressBar {
    let target = if io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let style = ProgressStyle::with_template("{bar:40} {percent:>3} %  {msg}");
    ProgressBar::with_draw_target(Some(steps), target)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// What this program was asked to do, whatever folder it lies in.
pub(crate) fn command() -> String {
    let mut command = "onesided".to_owned();
    for argument in std::env::args_os().skip(1) {
        let argument = argument.to_string_lossy();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,+%@".contains(c);
        if !argument.is_empty() && argument.chars().all(plain) {
            command += &format!(" {argument}");
        } else {
            command += &format!(" '{}'", argument.replace('\'', r"'\''"));
        }
    }
    command
}

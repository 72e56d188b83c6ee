//! The user's side of every benchmark: its options, its jobs, and the output of the results.

pub(crate) mod job;
pub(crate) mod suite;
pub(crate) mod two_ranks;

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use onesided_windows::LockDesign;
use serde::Serialize;

use crate::bench::effort::Effort;
use crate::bench::output::html;
use crate::bench::output::json::{Document, Machine, Sections};
use crate::bench::results::quantity::Quantity;
use crate::bench::results::report::{Against, Measured};
use crate::bench::runner::job::Outcome;
use crate::bench::runner::suite::Suite;
use crate::fabric::FabricName;
use crate::failure::Failure;
use crate::output::{command, create, print, progress};
use crate::run::interrupts;

/// The options of every benchmark.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How the ranks access each other's memory
    #[arg(long, value_enum, default_value_t = FabricName::Shm)]
    fabric: FabricName,

    #[command(flatten)]
    files: Files,

    /// Fewer and shorter runs: some seconds, and more noise
    #[arg(long)]
    quick: bool,

    /// One short run of each measurement, for tests
    #[arg(long, hide = true, conflicts_with = "quick")]
    trial: bool,
}

impl Options {
    pub(crate) fn is_shm(&self) -> bool {
        matches!(self.fabric, FabricName::Shm)
    }

    /// Whether anything is measured, or only shown.
    pub(crate) const fn measures(&self) -> bool {
        self.files.from.is_none()
    }

    pub(crate) fn wants_picture(&self) -> bool {
        self.files.picture.is_some()
    }

    /// Of a benchmark that has no curves to draw.
    pub(crate) fn without_picture(&self) -> Result<(), Failure> {
        if self.wants_picture() { Err(NO_CURVES.into()) } else { Ok(()) }
    }
}

/// Where the results go, beside standard output.
#[derive(Debug, clap::Args)]
pub(crate) struct Files {
    /// Also write the results as one JSON object
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Also write a page with plots and all results: one self-contained HTML file
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,

    /// Also draw the main curves of locks as a picture; contended metrics need several numbers of
    /// ranks for a curve
    #[arg(long, value_name = "FILE.svg")]
    picture: Option<PathBuf>,

    /// Measure nothing: print and draw what an earlier run wrote with --json
    #[arg(long, value_name = "FILE")]
    pub(crate) from: Option<PathBuf>,
}

/// The error of `--picture` without anything to draw.
pub(crate) const NO_CURVES: &str = "--picture: these results have no curves to draw";

/// The same files, open.
pub(crate) struct Open {
    json: Option<File>,
    report: Option<File>,
    picture: Option<(File, PathBuf)>,
}

impl Files {
    /// Creates the files before anything is measured: minutes of measurements must not end in a
    /// file that cannot be written.
    pub(crate) fn create(&self) -> io::Result<Open> {
        let open = |path: &Option<PathBuf>| path.as_deref().map(create).transpose();
        let picture = open(&self.picture)?.zip(self.picture.clone());
        Ok(Open { json: open(&self.json)?, report: open(&self.report)?, picture })
    }

    /// Prints and draws the document of an earlier run.
    pub(crate) fn show(&self, from: &Path, title: &str, sections: Sections) -> Result<ExitCode, Failure> {
        finish(&Document::read(from, sections)?, self.create()?, title)
    }
}

impl Open {
    fn write(
        self,
        document: &impl Serialize,
        page: impl FnOnce() -> String,
        picture: impl FnOnce() -> Option<String>,
    ) -> io::Result<()> {
        if let Some(mut json) = self.json {
            json.write_all((serde_json::to_string_pretty(document)? + "\n").as_bytes())?;
        }
        if let Some(mut report) = self.report {
            report.write_all(page().as_bytes())?;
        }
        if let Some((mut file, path)) = self.picture {
            let Some(picture) = picture() else {
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

/// The end of every benchmark's help.
pub(crate) fn help() -> String {
    let text = format!(
        "JSON: an object with `machine`, `limits` and `results`. Each result has `benchmark`, `algorithm`, `fabric`, \
         `size` (the bytes of one operation, or null), `parameter` (`name`, `value` and `unit` of a sweep's point, or \
         null), `ranks`, `metric`, `value` (the median), `unit`, `limit` (what bare instructions reach, or null) and \
         `ratio` (value / limit, or null). These names stay. `compared_with` names the limit; `comparison` is `limit`, or \
         `baseline` if a result beats it fivefold; `min` and `max` are the smallest and the largest run; \
         `oversubscribed` tells of more ranks than cores, `needs_own_core` of a lock served by a thread that polls. \
         Metrics: {}.",
        Quantity::help()
    );
    wrap(&text, 120)
}

/// Breaks a text into lines of at most `width` characters.
pub(crate) fn wrap(text: &str, width: usize) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.len() - 1;
        if lines[last].is_empty() {
            lines[last] = word.to_owned();
        } else if lines[last].chars().count() + 1 + word.chars().count() > width {
            lines.push(word.to_owned());
        } else {
            lines[last] += " ";
            lines[last] += word;
        }
    }
    lines.join("\n")
}

/// A suite, the number of its ranks, and the lock of their windows.
pub(crate) type Job = (&'static Suite, u32, LockDesign);

/// Runs the jobs, and prints and writes the results.
pub(crate) fn run(title: &str, options: &Options, jobs: &[Job], sections: Sections) -> Result<ExitCode, Failure> {
    if let Some(from) = &options.files.from {
        return options.files.show(from, title, sections);
    }
    let fabric = options.fabric.built_in()?;
    let (machine, begun) = (Machine::collect(), SystemTime::now());
    let files = options.files.create()?;
    let interrupts = interrupts()?;
    let effort = Effort::of(options.quick, options.trial);

    let progress = progress(jobs.iter().map(|(suite, ..)| (suite.steps)(effort)).sum());
    let mut measured = Vec::new();
    for (suite, ranks, lock) in jobs {
        progress.set_message(format!("{}, {ranks} ranks, {lock}", suite.name));
        let first = jobs.first().is_some_and(|(.., first)| first == lock);
        match job::run((suite, effort, lock.name()), (*ranks, fabric), &interrupts, || progress.inc(1))? {
            Outcome::Measured(more) => measured.extend(more.into_iter().filter(|one| first || depends_on_lock(one))),
            Outcome::Ended(code) => return Ok(code.into()),
        }
    }
    progress.finish_and_clear();

    finish(&Document::new(machine, fabric, (begun, command()), &measured, sections), files, title)
}

/// Prints and writes the results.
pub(crate) fn finish(document: &Document, files: Open, title: &str) -> Result<ExitCode, Failure> {
    let (page, picture) = (|| html::page(document, title), || html::picture(document));
    show(document, &document.to_text(), files, page, picture)
}

/// Prints the text, then writes the files, so that it is printed even if a file cannot be written.
pub(crate) fn show(
    document: &impl Serialize,
    text: &str,
    files: Open,
    page: impl FnOnce() -> String,
    picture: impl FnOnce() -> Option<String>,
) -> Result<ExitCode, Failure> {
    let printed = print(io::stdout().lock(), text);
    files.write(document, page, picture)?;
    printed?;
    Ok(ExitCode::SUCCESS)
}

/// Whether the results of several locks differ in it; everything else is kept for the first lock
/// alone. Limits are kept for each lock, because each result is compared with those of its own job;
/// the document has them once.
fn depends_on_lock(one: &Measured) -> bool {
    one.point.against == Against::IsLimit || one.point.what.contains("lock")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_help_are_short() {
        assert_eq!(wrap("one two three", 7), "one two\nthree");
        assert!(help().lines().all(|line| line.len() <= 120), "{}", help());
    }
}

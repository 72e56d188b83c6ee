//! A job of workers, from its start to its last report.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::fd::AsRawFd;

use onesided_fabric::bootstrap::launcher::{Interrupt, Launch, OnFailure};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::bench::effort::Effort;
use crate::bench::results::report::{Line, Measured};
use crate::bench::runner::suite::Suite;
use crate::failure::{Failure, say};

/// The exit status of a job whose first failed rank was killed by SIGKILL.
const KILLED: u8 = 128 + 9;

/// How a job of workers ended.
pub(crate) enum Outcome {
    Measured(Vec<Measured>),
    /// With this exit status: a rank failed and has reported why, or an interrupt ended the job.
    Ended(u8),
}

/// Runs a suite in `ranks` processes of this program, whose windows have this lock; calls `step`
/// after each of its steps.
pub(crate) fn run(
    (suite, effort, lock): (&Suite, Effort, &str),
    (ranks, fabric): (u32, &str),
    interrupts: &[Interrupt],
    step: impl Fn() + Send,
) -> Result<Outcome, Failure> {
    // Close-on-exec: rank 0 opens the pipe by its path, so that processes it leaves behind do not
    // hold it open.
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    let report = format!("/proc/{}/fd/{}", std::process::id(), write.as_raw_fd());
    let on_failure = if suite.is_killed() { OnFailure::Continue } else { OnFailure::Abort };
    let of_windows = format!("ONESIDED_LOCK={lock}");
    let variables = ["env", &of_windows].into_iter().chain(suite.environment.iter().copied());
    let args = ["worker", suite.name, effort.name(), &report];
    let launch = Launch { on_failure, ..of_this_program((ranks, fabric), variables, args)? };
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| collect(File::from(read), step));
        let code = launch.run(interrupts, &mut |event| {
            // Deaths are expected of a suite that kills its ranks.
            if !suite.is_killed() {
                say(&event.to_string());
            }
        });
        drop(write); // the reader's end of file
        let measured = reader.join().map_err(|_| "the thread that reads the reports panicked")??;
        match code? {
            code if code == 0 || (suite.is_killed() && code == KILLED && !measured.is_empty()) => {
                let of_lock = |measured| Measured { lock: lock.to_owned(), ..measured };
                Ok(Outcome::Measured(measured.into_iter().map(of_lock).collect()))
            }
            code => Ok(Outcome::Ended(code)),
        }
    })
}

/// A job of `bench` with these arguments, by this program, behind these words.
pub(crate) fn of_this_program<'w>(
    (size, fabric): (u32, &str),
    before: impl Iterator<Item = &'w str>,
    args: impl IntoIterator<Item = impl Into<OsString>>,
) -> io::Result<Launch> {
    let program = [std::env::current_exe()?.into_os_string(), "bench".into()];
    let mut words = before.map(OsString::from).chain(program).chain(args.into_iter().map(Into::into));
    Ok(Launch {
        size,
        program: words.next().unwrap_or_default(),
        args: words.collect(),
        fabric: fabric.to_owned(),
        on_failure: OnFailure::Abort,
        labels: size > 1,
        stuck_after: None,
        statistics: None,
    })
}

fn collect(reports: File, step: impl Fn()) -> io::Result<Vec<Measured>> {
    let mut all = Vec::new();
    for line in BufReader::new(reports).lines() {
        match serde_json::from_str(&line?)? {
            Line::Step => step(),
            Line::Measured(measured) => all.push(measured),
        }
    }
    Ok(all)
}

//! A job of workers, from its start to its last line.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::fd::AsRawFd;

use onesided_fabric::bootstrap::launcher::{Interrupt, Launch, OnFailure};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::bench::report::{Line, Measured};
use crate::bench::worker::{Effort, Suite};
use crate::failure::{Failure, say};

/// The status of a job whose first rank that failed was killed by SIGKILL.
const KILLED: u8 = 128 + 9;

/// How a job of workers ended.
pub(crate) enum Outcome {
    Measured(Vec<Measured>),
    /// With this status: a rank failed and has said why, or an interrupt ended it.
    Ended(u8),
}

/// Runs a suite by `ranks` processes of this program, whose windows have this lock; `step` is called as its steps are done.
pub(crate) fn run(
    (suite, effort, lock): (Suite, Effort, &str),
    (ranks, fabric): (u32, &str),
    interrupts: &[Interrupt],
    step: impl Fn() + Send,
) -> Result<Outcome, Failure> {
    // Not inherited by the workers, which open it by its name: nothing is left open by what they may start.
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    let report = format!("/proc/{}/fd/{}", std::process::id(), write.as_raw_fd());
    let mut command = vec![std::env::current_exe()?.into_os_string()];
    command.extend(["bench", "worker", suite.name(), effort.name(), &report].map(OsString::from));
    if suite == Suite::RmaHelper {
        command.splice(0..0, ["env", "ONESIDED_PROCESS_VM=off"].map(OsString::from));
    }
    let lock_variable = format!("ONESIDED_LOCK={lock}");
    command.splice(0..0, ["env", &lock_variable].map(OsString::from));
    let launch = Launch {
        size: ranks,
        program: command.remove(0),
        args: command,
        fabric: fabric.to_owned(),
        on_failure: if suite == Suite::Recovery { OnFailure::Continue } else { OnFailure::Abort },
        labels: ranks > 1,
    };
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| collect(File::from(read), step));
        let code = launch.run(interrupts, &mut |event| {
            // That ranks are killed is what is asked for.
            if suite != Suite::Recovery {
                say(&event.to_string());
            }
        });
        drop(write); // the reader's end of file
        let measured = reader.join().map_err(|_| "the thread that reads the reports panicked")??;
        match code? {
            code if code == 0 || (suite == Suite::Recovery && code == KILLED && !measured.is_empty()) => {
                let of_lock = |measured| Measured { lock: lock.to_owned(), ..measured };
                Ok(Outcome::Measured(measured.into_iter().map(of_lock).collect()))
            }
            code => Ok(Outcome::Ended(code)),
        }
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

//! How a subcommand fails: one line on standard error, and an exit status.

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

/// Why a subcommand failed, and its exit status.
#[derive(Debug)]
pub(crate) struct Failure {
    error: Box<dyn Error>,
    code: u8,
}

/// The exit status of a usage error, as clap's.
pub(crate) const USAGE: u8 = 2;

impl Failure {
    pub(crate) fn new(code: u8, error: impl Into<Box<dyn Error>>) -> Self {
        Self { error: error.into(), code }
    }

    /// Prints the error and its causes in one line.
    pub(crate) fn report(self) -> ExitCode {
        let mut line = self.error.to_string();
        let mut cause = self.error.source();
        while let Some(error) = cause {
            line += &format!(": {error}");
            cause = error.source();
        }
        say(&line.replace('\n', " "));
        self.code.into()
    }
}

/// Prints a line on standard error. A closed pipe is no error.
pub(crate) fn say(line: &str) {
    let _ = io::stderr().write_all(format!("onesided: {line}\n").as_bytes()); // one system call: lines stay whole
}

impl<E: Into<Box<dyn Error>>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new(1, error)
    }
}

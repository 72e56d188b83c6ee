//! What every subcommand writes: its text, its files, a progress bar.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Prints. A reader that closes its end early is no error.
pub(crate) fn print(mut out: impl Write, text: &str) -> io::Result<()> {
    match out.write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

pub(crate) fn create(path: &Path) -> io::Result<File> {
    File::create(path).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

/// A bar on standard error if that is a terminal. It is drawn between the steps, never during a
/// measurement.
pub(crate) fn progress(steps: u64) -> ProgressBar {
    let target = if io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let style = ProgressStyle::with_template("{bar:40} {percent:>3} %  {msg}");
    ProgressBar::with_draw_target(Some(steps), target)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// The command line of this process, with the program's plain name.
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

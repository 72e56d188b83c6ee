//! The thread that asks by itself: on SIGUSR1, and when a wait lasts.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use onesided_job::environment::STUCK_AFTER;
use rustix::process::Signal;

use super::{Dump, SEEN, ask, lock, waiters};

/// Writes a [`dump`](crate::dump) to standard error whenever the process gets SIGUSR1. A handler
/// that the program has for it runs as well.
///
/// `ONESIDED_STUCK_AFTER` has the same effect without this call, and its value in seconds, if it is
/// not 0, makes the process write one when a wait has lasted so long.
///
/// # Errors
/// The system refuses a thread, a descriptor, or the handler.
pub fn dump_on_signal() -> io::Result<()> {
    watch(None)
}

/// Watches, if the variable says so.
pub(super) fn begin() {
    static SAID: OnceLock<()> = OnceLock::new();
    SAID.get_or_init(|| {
        let Some(value) = std::env::var_os(STUCK_AFTER) else { return };
        let after = value.to_str().and_then(|value| value.parse().ok()).map(Duration::try_from_secs_f64);
        let begun = match after {
            Some(Ok(after)) => watch(Some(after).filter(|after| !after.is_zero())),
            _ => Err(io::Error::other(format!("{} is not a number of seconds", value.display()))),
        };
        if let Err(error) = begun {
            let _ = io::stderr().write_all(format!("onesided: {STUCK_AFTER}: {error}\n").as_bytes());
        }
    });
}

fn watch(after: Option<Duration>) -> io::Result<()> {
    static IS_ON: Mutex<bool> = Mutex::new(false);
    let mut is_on = lock(&IS_ON);
    if *is_on {
        return Ok(());
    }
    let (asked, handler) = UnixStream::pair()?;
    let period = after.map(|after| (after / 4).clamp(Duration::from_millis(50), Duration::from_secs(2)));
    asked.set_read_timeout(period)?;
    signal_hook::low_level::pipe::register(Signal::USR1.as_raw(), handler)?;
    thread::Builder::new().name("onesided-waits".into()).spawn(move || run(&asked, after))?;
    *is_on = true;
    Ok(())
}

fn run(mut asked: &UnixStream, after: Option<Duration>) {
    let mut reported = BTreeSet::new();
    loop {
        let is_asked = match asked.read(&mut [0; 64]) {
            Ok(0) => return, // the handler is gone, which it never is
            Ok(_) => true,
            Err(_) => false, // the time is over, or a signal came
        };
        if waiters().is_empty() && !is_asked {
            continue;
        }
        let waits = ask();
        reported.retain(|wait| lock(&SEEN).contains_key(wait));
        let mut is_stuck = false;
        for (number, wait) in &waits {
            if after.is_some_and(|after| wait.since.is_some_and(|since| since >= after)) {
                is_stuck |= reported.insert(*number);
            }
        }
        // Made each time, so that it tells since when messages are under way.
        let dump = Dump::of(waits);
        if is_asked || is_stuck {
            let _ = io::stderr().write_all(dump.to_string().as_bytes());
        }
    }
}

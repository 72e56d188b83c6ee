//! The thread that asks by itself: on SIGUSR1, and when a wait lasts.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use onesided_job::environment::STUCK_AFTER;
use rustix::process::Signal;

use super::{Dump, ask, lock, waiters};

/// How long a wait may miss questions, because its thread gets no core, before it counts as over.
const MISSES: u32 = 3;

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
            let _ = writeln!(io::stderr(), "onesided: {STUCK_AFTER}: {error}");
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

/// A wait as it was seen.
struct Seen {
    first: Instant,
    misses: u32,
    is_reported: bool,
}

fn run(mut asked: &UnixStream, after: Option<Duration>) {
    let mut seen: BTreeMap<u32, Seen> = BTreeMap::new();
    loop {
        let is_asked = match asked.read(&mut [0; 64]) {
            Ok(0) => return, // the handler is gone, which it never is
            Ok(_) => true,
            Err(_) => false, // the time is over, or a signal came
        };
        if waiters().is_empty() && !is_asked {
            continue;
        }
        let (mut waits, now) = (ask(), Instant::now());
        seen.retain(|wait, seen| {
            seen.misses = if waits.contains_key(wait) { 0 } else { seen.misses + 1 };
            seen.misses <= MISSES
        });
        let mut is_stuck = false;
        for (number, wait) in &mut waits {
            let seen = seen.entry(*number).or_insert(Seen { first: now, misses: 0, is_reported: false });
            let lasted = now.duration_since(seen.first);
            wait.since = after.map(|_| lasted);
            if after.is_some_and(|after| lasted >= after) {
                is_stuck |= !std::mem::replace(&mut seen.is_reported, true);
            }
        }
        if is_asked || is_stuck {
            let _ = io::stderr().write_all(Dump::of(waits).to_string().as_bytes());
        }
    }
}

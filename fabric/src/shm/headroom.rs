//! How much memory can still be had.
//!
//! Asking the kernel for more pages than there are does not fail, it calls the out-of-memory killer, which ends some process,
//! often another one. So what is clearly too much is refused first.

use std::fs;
use std::io;
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;

use crate::drive;

/// Up to this size nobody asks how much memory there is left.
pub(crate) const SMALL: u64 = 1 << 20;

/// For how long, in nanoseconds, an answer holds, and for which part of what there was.
const HOLDS: u64 = 1_000_000_000;
const PART: u64 = 8;

/// Until when, and for how many bytes, the last answer holds.
static ANSWER: Mutex<(u64, u64)> = Mutex::new((0, 0));

/// `ENOMEM` if so many bytes are more than there are left.
pub(crate) fn admit(len: u64) -> io::Result<()> {
    if len <= SMALL {
        return Ok(());
    }
    let mut answer = ANSWER.lock().unwrap_or_else(PoisonError::into_inner);
    let now = drive::now();
    if now >= answer.0 || len > answer.1 {
        let left = bytes().unwrap_or(u64::MAX);
        *answer = (now + HOLDS, left / PART);
        if len > left {
            return Err(Errno::NOMEM.into());
        }
    }
    answer.1 = answer.1.saturating_sub(len);
    Ok(())
}

/// Bytes that can be allocated at this moment, as far as the system tells: `None` if it tells nothing. The smaller of
/// what the host has left and what this process's control group (version 2) has left.
fn bytes() -> Option<u64> {
    [host(), group()].into_iter().flatten().min()
}

fn host() -> Option<u64> {
    let table = fs::read_to_string("/proc/meminfo").ok()?;
    let kib = |name| {
        let line = table.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    };
    Some((kib("MemAvailable:")? + kib("SwapFree:").unwrap_or(0)) * 1024)
}

fn group() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let number = |name| {
        let text = fs::read_to_string(format!("/sys/fs/cgroup{path}/{name}")).ok()?;
        text.trim().parse::<u64>().ok() // `max` is none
    };
    Some(number("memory.max")?.saturating_sub(number("memory.current")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_much_is_refused_however_it_is_asked_for() {
        let there = bytes().unwrap();
        for _ in 0..3 {
            assert!(admit(2 * SMALL).is_ok() && admit(u64::MAX).is_err() && admit(there * 2).is_err());
        }
    }

    #[test]
    fn there_is_some_and_not_without_end() {
        let bytes = bytes().expect("Linux tells");
        assert!(bytes > 1 << 20 && bytes < 1 << 60, "{bytes}");
    }
}

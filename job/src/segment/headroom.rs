//! How much memory is available.
//!
//! Requesting more pages than there are does not fail: the kernel calls the out-of-memory killer,
//! which ends some process. So requests that clearly exceed the available memory are refused first.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::lock;

/// Up to this size the available memory is not checked.
pub const SMALL: u64 = 1 << 20;

/// How long an answer is valid, in nanoseconds, and for which fraction of the available memory.
const HOLDS: Duration = Duration::from_secs(1);
const PART: u64 = 8;

/// Until when, and for how many bytes, the last answer is valid.
static ANSWER: Mutex<Option<(Instant, u64)>> = Mutex::new(None);

/// `ENOMEM` if `len` exceeds the available memory.
pub fn admit(len: u64) -> io::Result<()> {
    if len <= SMALL {
        return Ok(());
    }
    let mut answer = lock(&ANSWER);
    let now = Instant::now();
    let known = answer.filter(|(until, bytes)| now < *until && len <= *bytes);
    let (until, bytes) = match known {
        Some(known) => known,
        None => {
            let left = bytes().unwrap_or(u64::MAX);
            let fresh = (now + HOLDS, left / PART);
            *answer = Some(fresh);
            if len > left {
                return Err(Errno::NOMEM.into());
            }
            fresh
        }
    };
    *answer = Some((until, bytes.saturating_sub(len)));
    Ok(())
}

/// The bytes that can be allocated now, as the system reports: the minimum over the host and this
/// process's control groups (version 2). `None` if it reports nothing.
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
    let path = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    group_below(Path::new("/sys/fs/cgroup"), path)
}

/// The minimum over a control group and its ancestors, any of which may have a limit.
fn group_below(root: &Path, path: &str) -> Option<u64> {
    let whole = root.join(path);
    let left = |group: &Path| {
        let number = |name| fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok(); // `max` is none
        Some(number("memory.max")?.saturating_sub(number("memory.current")?))
    };
    whole.ancestors().take_while(|group| group.starts_with(root)).filter_map(left).min()
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
    fn the_groups_around_count() {
        let root = std::env::temp_dir().join(format!("onesided-groups-{}", std::process::id()));
        let below = root.join("job/step/task");
        fs::create_dir_all(&below).unwrap();
        let set = |group: &str, most: &str, now: &str| {
            fs::write(root.join(group).join("memory.max"), most).unwrap();
            fs::write(root.join(group).join("memory.current"), now).unwrap();
        };
        set("job/step/task", "max\n", "10\n");
        assert_eq!(group_below(&root, "job/step/task"), None);
        set("job", "5000\n", "1000\n");
        assert_eq!(group_below(&root, "job/step/task"), Some(4000));
        set("job/step", "300\n", "400\n");
        assert_eq!((group_below(&root, "job/step/task"), group_below(&root, "job")), (Some(0), Some(4000)));
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn there_is_some_and_not_without_end() {
        let bytes = bytes().expect("Linux tells");
        assert!(bytes > 1 << 20 && bytes < 1 << 60, "{bytes}");
    }
}

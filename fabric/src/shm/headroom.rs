//! How much memory can still be had.
//!
//! Pages of a memory file are allocated at once; asking for more than there is does not fail, it calls the kernel's
//! out-of-memory killer, which ends some process, often another one. So what is clearly too much is refused first.

use std::fs;

/// Bytes that can be allocated at this moment, as far as the system tells: `None` if it tells nothing. The smaller of
/// what the host has left and what this process's control group (version 2) has left.
pub(crate) fn bytes() -> Option<u64> {
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
    #[test]
    fn there_is_some_and_not_without_end() {
        let bytes = super::bytes().expect("Linux tells");
        assert!(bytes > 1 << 20 && bytes < 1 << 60, "{bytes}");
    }
}

//! What a simulation takes of this machine: memory and processor time.

use std::fs;
use std::sync::OnceLock;
use std::time::Duration;

/// The peak of the memory since a time.
pub(super) struct Peak {
    /// What the process had before its first run. Later ones may use what the allocator has kept of
    /// earlier ones.
    base: Option<u64>,
}

static BASE: OnceLock<Option<u64>> = OnceLock::new();

impl Peak {
    /// Forgets the peak so far, as far as the system can.
    pub(super) fn begin() -> Self {
        let base = *BASE.get_or_init(|| resident("VmRSS:"));
        Self { base: base.filter(|_| fs::write("/proc/self/clear_refs", "5").is_ok()) }
    }

    /// The bytes of the runs, at most. `None` where that is unknown.
    pub(super) fn bytes(&self) -> Option<u64> {
        Some(resident("VmHWM:")?.saturating_sub(self.base?))
    }
}

/// The processor time of this thread, which other processes on a busy machine do not lengthen. Zero
/// where that is unknown.
pub(super) fn cpu_time() -> Duration {
    let schedstat = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(schedstat.split_whitespace().next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0))
}

/// A field of the process's status, in bytes.
fn resident(field: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let kib = status.lines().find_map(|line| line.strip_prefix(field))?.split_whitespace().next()?;
    Some(kib.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_counts_what_was_freed() {
        let peak = Peak::begin();
        let pages = vec![1_u8; 64 << 20];
        assert_eq!(pages.iter().map(|byte| u64::from(*byte)).sum::<u64>(), 64 << 20);
        drop(pages);
        let bytes = peak.bytes().unwrap();
        assert!(bytes >= 60 << 20, "{bytes}");
    }
}

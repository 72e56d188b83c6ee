//! Who aborted the job.

use std::sync::atomic::Ordering;

use onesided_remote_memory::Rank;

use crate::segment::JobSegment;
use crate::segment::job_segment::ABORTED_AT;

/// The end of a job by [`Job::abort`](crate::Job::abort).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Aborted {
    /// Who aborted it.
    pub rank: Rank,
    /// The exit status of all processes.
    pub status: u8,
}

impl JobSegment {
    /// Records that a rank aborts the job; the first one counts. Whoever holds the job ends its
    /// processes.
    pub fn abort(&self, Aborted { rank, status }: Aborted) {
        let value = (rank.0 + 1) << 8 | u32::from(status);
        let _ = self.half(ABORTED_AT).compare_exchange(0, value, Ordering::AcqRel, Ordering::Relaxed);
        self.note_change();
    }

    /// Who aborted the job, if anybody did.
    pub fn aborted(&self) -> Option<Aborted> {
        let value = self.half(ABORTED_AT).load(Ordering::Acquire);
        Some(Aborted { rank: Rank((value >> 8).checked_sub(1)?), status: value as u8 })
    }
}

//! The rings of the job segment.

use std::sync::atomic::AtomicU64;

use onesided_job::segment::{JobSegment, RING_LINE};
use onesided_remote_memory::Rank;

use crate::shm::ring::{RingMemory, SLOT_WORDS};

const _: () = assert!(SLOT_WORDS * 8 <= RING_LINE as usize, "a slot is one line");

/// The ring from one rank to another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentRing<'a> {
    job_segment: &'a JobSegment,
    start: u64,
}

impl<'a> SegmentRing<'a> {
    pub(crate) fn new(job_segment: &'a JobSegment, from: Rank, to: Rank) -> Self {
        Self { job_segment, start: job_segment.ring(from, to) }
    }

    fn at(&self, offset: u64) -> &'a AtomicU64 {
        self.job_segment.memory().word(self.start + offset).expect("the layout fits the job segment")
    }
}

impl RingMemory for SegmentRing<'_> {
    fn slots(&self) -> u32 {
        self.job_segment.ring_slots()
    }

    fn taken(&self) -> &AtomicU64 {
        self.at(0)
    }

    fn word(&self, slot: u32, word: usize) -> &AtomicU64 {
        self.at(RING_LINE * (1 + u64::from(slot)) + 8 * word as u64)
    }
}

//! The rings of the job segment.

use std::sync::atomic::AtomicU64;

use onesided_job::segment::{Board, RING_LINE};
use onesided_remote_memory::Rank;

use crate::shm::ring::{RingMemory, SLOT_WORDS};

const _: () = assert!(SLOT_WORDS * 8 <= RING_LINE as usize, "a slot is one line");

/// The ring from one rank to another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BoardRing<'a> {
    board: &'a Board,
    start: u64,
}

impl<'a> BoardRing<'a> {
    pub(crate) fn new(board: &'a Board, from: Rank, to: Rank) -> Self {
        Self { board, start: board.ring(from, to) }
    }

    fn at(&self, offset: u64) -> &'a AtomicU64 {
        self.board.memory().word(self.start + offset).expect("the layout fits the board")
    }
}

impl RingMemory for BoardRing<'_> {
    fn slots(&self) -> u32 {
        self.board.ring_slots()
    }

    fn taken(&self) -> &AtomicU64 {
        self.at(0)
    }

    fn word(&self, slot: u32, word: usize) -> &AtomicU64 {
        self.at(RING_LINE * (1 + u64::from(slot)) + 8 * word as u64)
    }
}

//! What a window's memory and locks are called: in a simulator's report of a deadlock, whose notes
//! compile to nothing on all other fabrics, and in a dump.

use std::sync::Arc;

use onesided_fabric::remote_memory::Rank;
use onesided_fabric::{Fabric, LockState, Note, NotedLock, NotedMemory, NotedWindow, Segment, Wait, WhichLock};
use onesided_lock_algos::Mode;

use crate::locks::layout::{LockId, Table};
use crate::window::inner::Inner;

impl<F: Fabric> Inner<F> {
    fn noted(&self) -> NotedWindow {
        NotedWindow { name: Arc::clone(&self.name), is_table: self.locks.table != Table::default() }
    }

    /// Notes what this rank's regions hold.
    pub(crate) fn note_memory(&self) {
        let note = |segment: &F::Segment, has_locks: bool| {
            let memory = NotedMemory { of: self.noted(), has_locks };
            Some(Note::Memory(segment.key().region, memory))
        };
        self.fabric().note(|| note(&self.memory.own, self.locks.table != Table::default()));
        self.fabric().note(|| note(&self.memory.hidden, true));
    }

    /// Notes that this rank's wait for a lock, or its hold of it, ends or begins.
    #[inline(always)] // nothing is left of it
    pub(crate) fn note_lock(&self, lock: (u32, LockId), mode: Mode, was: Option<LockState>, is: Option<LockState>) {
        self.fabric().note(|| Some(Note::Lock { lock: self.noted_lock(lock, mode)?, was, is }));
    }

    fn noted_lock(&self, (rank, id): (u32, LockId), mode: Mode) -> Option<NotedLock> {
        let target = self.target(rank).ok()?;
        let (which, words) = match id {
            id if id.is_window_lock() => (WhichLock::Rank, &target.locks),
            id if id.is_all() => (WhichLock::AllRanks, &target.locks),
            id => (WhichLock::Table(id.index()), &target.data),
        };
        Some(NotedLock {
            of: self.noted(),
            design: self.locks.design.name(),
            which,
            home: target.fabric_rank(),
            region: words.key().region,
            is_exclusive: mode == Mode::Exclusive,
        })
    }

    /// This rank's wait for a lock, and a rank that has it or waits for it before this one.
    #[cold]
    pub(crate) fn lock_wait(
        &self,
        lock: (u32, LockId),
        mode: Mode,
        (owner, found): (u64, Option<Rank>),
    ) -> Option<Wait> {
        let (rank, what) = (self.fabric().rank(), self.noted_lock(lock, mode)?.to_string());
        let awaited = self.late(lock, owner, found).rank().into_iter().collect();
        Some(Wait { rank, awaited, since: None, what })
    }
}

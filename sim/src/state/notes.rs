//! What ranks have noted of memory and locks, for the report of a deadlock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use onesided_fabric::{LockState, Note, NotedLock, NotedMemory};
use onesided_remote_memory::Rank;

use super::State;
use crate::report::{LockWait, WaitsFor};

/// The notes of all ranks.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// What regions hold, by rank and region.
    pub(crate) memory: BTreeMap<(Rank, u32), NotedMemory>,
    /// By rank, in the order in which they began.
    locks: BTreeMap<Rank, Vec<Noted>>,
    /// The ranks that ended, and that hold locks which no other has taken over.
    ended: BTreeSet<Rank>,
}

/// A lock that a rank waits for or holds.
#[derive(Debug)]
struct Noted {
    lock: NotedLock,
    state: LockState,
    /// When that began.
    since: u64,
}

impl Notes {
    /// A rank has ended: it waits no more, and holds its locks until another takes them over.
    pub(super) fn end(&mut self, rank: Rank) {
        if let Some(locks) = self.locks.get_mut(&rank) {
            locks.retain(|noted| noted.state == LockState::Holds);
            if !locks.is_empty() {
                self.ended.insert(rank);
            }
        }
    }

    /// A lock is held exclusively: no rank that ended holds it any more.
    fn take_over(&mut self, lock: &NotedLock) {
        for rank in &self.ended {
            self.locks.entry(*rank).or_default().retain(|noted| !noted.lock.is_same(lock));
        }
    }
}

impl State {
    pub(crate) fn note(&mut self, rank: Rank, note: Note) {
        if self.over || self.lives[rank.index()].is_over() {
            return; // it drops its guards, and still holds its locks
        }
        match note {
            Note::Memory(region, memory) => drop(self.notes.memory.insert((rank, region.0), memory)),
            Note::Lock { lock, was, is } => {
                let locks = self.notes.locks.entry(rank).or_default();
                let ends = |noted: &Noted| Some(noted.state) == was && noted.lock == lock;
                if let Some(index) = locks.iter().position(ends) {
                    locks.remove(index);
                }
                if let Some(state) = is {
                    if state == LockState::Holds && lock.is_exclusive {
                        self.notes.take_over(&lock);
                    }
                    let locks = self.notes.locks.entry(rank).or_default();
                    locks.push(Noted { lock, state, since: self.now });
                }
            }
        }
    }

    /// The locks that a rank waits for, and their holders.
    pub(super) fn lock_waits(&self, rank: Rank) -> Vec<LockWait> {
        let of = |rank: &Rank| self.notes.locks.get(rank).into_iter().flatten();
        let waits = of(&rank).filter(|noted| noted.state == LockState::Waits);
        let wait = |Noted { lock, .. }: &Noted| {
            let excludes = |noted: &&Noted| noted.state == LockState::Holds && lock.is_excluded_by(&noted.lock);
            let holders =
                self.notes.locks.keys().flat_map(|rank| of(rank).filter(excludes).map(|noted| (*rank, noted)));
            let holders = holders.map(|(rank, noted)| (rank, Duration::from_nanos(noted.since))).collect();
            LockWait { lock: lock.clone(), holders }
        };
        waits.map(wait).collect()
    }

    /// What the memory of these words holds, as far as it is noted.
    pub(super) fn noted_memory(&self, rank: Rank, waits_for: &[WaitsFor]) -> Vec<((Rank, u32), NotedMemory)> {
        let regions = waits_for.iter().filter_map(|what| what.region(rank));
        regions.filter_map(|at| Some((at, self.notes.memory.get(&at)?.clone()))).collect()
    }
}

//! What layers above tell a simulator of memory and locks, for its report of a deadlock.

use std::fmt;
use std::sync::Arc;

use onesided_remote_memory::{Rank, RegionId, display};

/// A note for the report of a deadlock: see [`Fabric::note`](crate::Fabric::note).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// What an own region holds, from now on.
    Memory(RegionId, NotedMemory),
    /// This rank's wait for a lock, or its hold of it, ends or begins.
    Lock {
        /// The lock.
        lock: NotedLock,
        /// What ends.
        was: Option<LockState>,
        /// What begins.
        is: Option<LockState>,
    },
}

/// A window, or a lock table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotedWindow {
    /// Its name.
    pub name: Arc<str>,
    /// Whether it is a lock table.
    pub is_table: bool,
}

/// What memory holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotedMemory {
    /// The window that has it.
    pub of: NotedWindow,
    /// Whether it holds the words of locks and signals, not elements.
    pub has_locks: bool,
}

/// What a rank has to do with a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockState {
    /// It waits for the lock.
    Waits,
    /// It holds the lock.
    Holds,
}

/// Which of a window's locks it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhichLock {
    /// That of a rank's window memory.
    Rank,
    /// Of a lock table, by its index among those of its rank.
    Table(u64),
    /// That of all ranks.
    AllRanks,
}

/// A lock, and the mode in which a rank waits for it or holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotedLock {
    /// Its window.
    pub of: NotedWindow,
    /// The name of its design.
    pub design: &'static str,
    /// Which of the window's locks it is.
    pub which: WhichLock,
    /// The rank of its words.
    pub home: Rank,
    /// The region of its words.
    pub region: RegionId,
    /// Whether the mode is exclusive.
    pub is_exclusive: bool,
}

impl NotedLock {
    /// Whether it is the same lock, in whichever mode.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        (self.home, self.region, self.which) == (other.home, other.region, other.which)
    }

    /// Whether a hold of `other` keeps a wait for this lock waiting.
    #[must_use]
    pub fn is_excluded_by(&self, other: &Self) -> bool {
        // The lock of all ranks excludes the exclusive ones of each rank.
        let is_all = |lock: &Self| lock.which == WhichLock::AllRanks;
        let concerns = self.is_same(other) || is_all(self) != is_all(other) && self.of == other.of;
        concerns && (self.is_exclusive || other.is_exclusive)
    }
}

display!([] NotedWindow, |this| "{} \"{}\"", if this.is_table { "table" } else { "window" }, this.name);

display!([] NotedMemory, |this| "{}{}", if this.has_locks { "the locks and signals of " } else { "" }, this.of);

impl fmt::Display for NotedLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { of, design, which, home, is_exclusive, .. } = self;
        let mode = if *is_exclusive { "exclusive" } else { "shared" };
        match which {
            WhichLock::Rank => write!(f, "the {mode} lock of {of} ({design}) at {home}"),
            WhichLock::Table(index) => write!(f, "the {mode} lock {index} of those at {home} of {of} ({design})"),
            WhichLock::AllRanks => write!(f, "the {mode} lock of all ranks of {of} ({design})"),
        }
    }
}

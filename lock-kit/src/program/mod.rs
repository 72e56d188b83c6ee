//! The programs of origins, as data.

mod layout;
mod origin;

use std::fmt;

use onesided_lock_algos::Mode;

pub use layout::{DATA, HOME, LOCK, Layout, Place, Slots, idle, lock_and_data, per_rank_word, region_words};
pub(crate) use layout::{Names, word};
pub use origin::{Crashable, Spawn, Task, run};

/// One section under the lock: an acquire and a release.
///
/// ```
/// use onesided_lock_kit::Section;
///
/// const NONBLOCKING_TRY: Section = Section::EXCLUSIVE.early(1).trying();
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
#[must_use = "a section is part of a program"]
pub struct Section {
    /// The requested mode.
    pub mode: Mode,
    /// Reads of the data between the start of the acquire and the wait for it: the nonblocking
    /// lock. Then as many looks at the home, where [that tells](onesided_lock_algos::LockAlgorithm::ahead).
    pub early: u8,
    /// How often the section touches the data.
    pub touches: u8,
    /// How the section ends.
    pub ending: Ending,
    /// How the lock is acquired.
    pub kind: AcquireKind,
    /// Whether it draws a fencing token.
    pub fencing: Fencing,
}

/// As a program says it.
impl fmt::Debug for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mode, early, touches, ending, kind, fencing } = self;
        f.write_str(if *mode == Mode::Exclusive { "EXCLUSIVE" } else { "SHARED" })?;
        match kind {
            AcquireKind::Usual => {}
            AcquireKind::WithoutRecovery => f.write_str(".without_recovery()")?,
            AcquireKind::Try => f.write_str(".trying()")?,
        }
        match ending {
            Ending::Released => {}
            Ending::Detached => f.write_str(".detached()")?,
            Ending::Dies => f.write_str(".dying()")?,
            Ending::Stays => f.write_str(".staying()")?,
            Ending::Cancelled { asked, leaves: true, .. } => write!(f, ".leaving({asked})")?,
            Ending::Cancelled { asked, recovers: true, .. } => write!(f, ".cancelled_recovering({asked})")?,
            Ending::Cancelled { asked, .. } => write!(f, ".cancelled({asked})")?,
        }
        if *early > 0 {
            write!(f, ".early({early})")?;
        }
        if *touches != 1 {
            write!(f, ".touching({touches})")?;
        }
        if *fencing == Fencing::None { Ok(()) } else { write!(f, ".fenced({fencing:?})") }
    }
}

/// Whether a section draws a [fencing token](onesided_lock_algos::TokenDraw), which must be higher
/// than those of all previous holders. A cancelled acquire draws none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fencing {
    /// None.
    None,
    /// Once it holds the lock.
    Inside,
    /// Behind the acquire's first operation, and once more if that did not acquire the lock.
    Fused,
    /// Behind the acquire's first operation, whether that acquired the lock or not: wrong on
    /// purpose.
    Hasty,
}

/// How the lock is acquired. A cancelled acquire is a usual one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcquireKind {
    /// By an owner that waits.
    Usual,
    /// The same, without recovering a poisoned lock: the acquire fails then.
    WithoutRecovery,
    /// Without waiting.
    Try,
}

/// How a section ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By a release that is waited for.
    Released,
    /// By a detached release, if the algorithm allows that.
    Detached,
    /// The acquire is cancelled: its future is spawned, and releases the lock if it acquired it, or
    /// [releases it as poisoned](onesided_lock_algos::LockAlgorithm::release_poisoned) if it
    /// recovered it.
    Cancelled {
        /// The intent is cancelled after it was read this many times, which covers every await
        /// between two reads.
        asked: u8,
        /// Whether the acquire recovers.
        recovers: bool,
        /// Whether it gives up its place in a queue, as if its rank left.
        leaves: bool,
    },
    /// The origin dies inside the section.
    Dies,
    /// The origin ends inside the section, and lives.
    Stays,
}

impl Section {
    /// An exclusive lock, under which the data is incremented once.
    pub const EXCLUSIVE: Self = Self {
        mode: Mode::Exclusive,
        early: 0,
        touches: 1,
        ending: Ending::Released,
        kind: AcquireKind::Usual,
        fencing: Fencing::None,
    };
    /// A shared lock, under which the data is read twice.
    pub const SHARED: Self = Self { mode: Mode::Shared, ..Self::EXCLUSIVE };

    /// The same, with this many reads between the start of the acquire and the wait for it.
    pub const fn early(self, reads: u8) -> Self {
        Self { early: reads, ..self }
    }

    /// The same, with this many accesses to the data.
    pub const fn touching(self, times: u8) -> Self {
        Self { touches: times, ..self }
    }

    /// The same as a try.
    pub const fn trying(self) -> Self {
        Self { kind: AcquireKind::Try, ..self }
    }

    /// The same, without recovering a poisoned lock.
    pub const fn without_recovery(self) -> Self {
        Self { kind: AcquireKind::WithoutRecovery, ..self }
    }

    /// The same, cancelled after its intent was read this many times.
    pub const fn cancelled(self, asked: u8) -> Self {
        Self { ending: Ending::Cancelled { asked, recovers: false, leaves: false }, ..self }
    }

    /// The same for an acquire that recovers.
    pub const fn cancelled_recovering(self, asked: u8) -> Self {
        Self { ending: Ending::Cancelled { asked, recovers: true, leaves: false }, ..self }
    }

    /// The same, [cancelled](Self::cancelled) as if its rank left.
    pub const fn leaving(self, asked: u8) -> Self {
        Self { ending: Ending::Cancelled { asked, recovers: false, leaves: true }, ..self }
    }

    /// The same with a detached release.
    pub const fn detached(self) -> Self {
        Self { ending: Ending::Detached, ..self }
    }

    /// The same, with a fencing token.
    pub const fn fenced(self, fencing: Fencing) -> Self {
        Self { fencing, ..self }
    }

    /// The same, whose origin dies inside.
    pub const fn dying(self) -> Self {
        Self { ending: Ending::Dies, ..self }
    }

    /// The same, whose origin ends inside, and lives: the lock stays held.
    pub const fn staying(self) -> Self {
        Self { ending: Ending::Stays, ..self }
    }

    /// Whether the acquire is cancelled.
    pub const fn is_cancelled(&self) -> bool {
        matches!(self.ending, Ending::Cancelled { .. })
    }
}

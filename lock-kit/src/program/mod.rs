//! What an origin does, as data.

mod layout;
mod origin;

use onesided_lock_algos::Mode;

pub use layout::{DATA, HOME, LOCK, Layout, Slots, idle, lock_and_data, open, region_words, spread};
pub use origin::{Crashable, Task, run};

/// One acquire and release.
///
/// ```
/// use onesided_lock_kit::Section;
///
/// const NONBLOCKING_TRY: Section = Section::EXCLUSIVE.early(1).trying();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// How the lock is asked for.
    pub mode: Mode,
    /// Reads of the data between the start of the acquire and the wait for it: the nonblocking lock.
    pub early: u8,
    /// How often the section touches the data.
    pub touches: u8,
    /// How the round ends.
    pub ending: Ending,
    /// By whom, and how patiently.
    pub kind: AcquireKind,
    /// Whether it draws a fencing token.
    pub fencing: Fencing,
}

/// Whether a round draws a [fencing token](onesided_lock_algos::TokenDraw), which must be higher than those of all who held the lock
/// before. Of an acquire that is abandoned none is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fencing {
    /// It does not.
    None,
    /// Once it holds the lock.
    Inside,
    /// Behind the acquire's first operation, and once more if that did not suffice.
    Fused,
    /// Behind the acquire's first operation, whether that sufficed or not: wrong on purpose.
    Hasty,
}

/// How the lock is asked for. Whoever abandons it does so in the usual manner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcquireKind {
    /// By an owner with a node, however long it takes.
    Usual,
    /// By an owner without a node.
    WithoutNode,
    /// If it is free.
    Try,
}

/// How a round ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By a release that is waited for.
    Released,
    /// By a release that nobody waits for, where the algorithm allows that.
    Detached,
    /// While the acquire was under way: whoever adopts it finishes and releases it, or [forsakes](onesided_lock_algos::LockAlgorithm::release_poisoned)
    /// what it has inherited.
    Cancelled {
        /// It is not wanted any more after it was asked for that so many times, which covers every await between two
        /// questions.
        asked: u8,
        /// Whether it was wanted from the dead as well.
        recovers: bool,
    },
    /// By the origin's end inside the section.
    Dies,
}

impl Section {
    /// An exclusive lock, under which the data is counted up once.
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

    /// The same, with so many reads between the start of the acquire and the wait for it.
    #[must_use]
    pub const fn early(self, reads: u8) -> Self {
        Self { early: reads, ..self }
    }

    /// The same, with so many touches of the data.
    #[must_use]
    pub const fn touching(self, times: u8) -> Self {
        Self { touches: times, ..self }
    }

    /// The same, if it is free.
    #[must_use]
    pub const fn trying(self) -> Self {
        Self { kind: AcquireKind::Try, ..self }
    }

    /// The same, by an owner without a node.
    #[must_use]
    pub const fn without_node(self) -> Self {
        Self { kind: AcquireKind::WithoutNode, ..self }
    }

    /// The same, by an owner with a node.
    #[must_use]
    pub const fn with_node(self) -> Self {
        match self.kind {
            AcquireKind::WithoutNode => Self { kind: AcquireKind::Usual, ..self },
            AcquireKind::Usual | AcquireKind::Try => self,
        }
    }

    /// The same, given up after it was asked so many times whether it is still wanted.
    #[must_use]
    pub const fn cancelled(self, asked: u8) -> Self {
        Self { ending: Ending::Cancelled { asked, recovers: false }, ..self }
    }

    /// The same of one that was wanted from the dead as well.
    #[must_use]
    pub const fn cancelled_recovering(self, asked: u8) -> Self {
        Self { ending: Ending::Cancelled { asked, recovers: true }, ..self }
    }

    /// The same, with a release that nobody waits for.
    #[must_use]
    pub const fn detached(self) -> Self {
        Self { ending: Ending::Detached, ..self }
    }

    /// The same, with a fencing token.
    #[must_use]
    pub const fn fenced(self, fencing: Fencing) -> Self {
        Self { fencing, ..self }
    }

    /// The same, whose origin ends inside.
    #[must_use]
    pub const fn dying(self) -> Self {
        Self { ending: Ending::Dies, ..self }
    }

    /// Whether somebody else finishes it.
    #[must_use]
    pub const fn is_cancelled(&self) -> bool {
        matches!(self.ending, Ending::Cancelled { .. })
    }
}

//! The intent of an acquire: how long it may wait, and whether it recovers.

use onesided_remote_memory::{Fault, FaultKind};

/// The intent of a running acquire. The acquire reads it between two operations, because it may
/// change meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intent {
    /// How long the acquire may wait.
    pub wanted: WaitPolicy,
    /// Whether the acquire recovers the lock from dead owners. Otherwise the lock stays poisoned,
    /// and the acquire fails with their fault.
    pub recovers: bool,
}

/// Returns the current intent. A reference to a trait object, so that the slow path of each lock is
/// compiled once.
pub type IntentFn<'a> = &'a (dyn Fn() -> Intent + Send + Sync + 'a);

/// How long an acquire may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitPolicy {
    /// Until the lock is acquired.
    Block,
    /// Not at all: the acquire fails if it would have to wait for an owner.
    Try,
    /// The acquire is cancelled: it ends as soon as it holds nothing that others wait for.
    Cancelled,
    /// The same, and its rank leaves the job: the acquire gives up its place in a queue, which it
    /// would keep until its turn otherwise.
    Leaving,
}

impl Intent {
    /// Waits until the lock is acquired. Does not recover.
    pub const LOCK: Self = Self { wanted: WaitPolicy::Block, recovers: false };
    /// Acquires the lock only if that needs no waiting. Does not recover.
    pub const TRY: Self = Self { wanted: WaitPolicy::Try, recovers: false };
    /// Cancels the acquire.
    pub const CANCELLED: Self = Self { wanted: WaitPolicy::Cancelled, recovers: false };
    /// The same for a rank that leaves.
    pub const LEAVING: Self = Self { wanted: WaitPolicy::Leaving, recovers: false };

    /// The same intent, and the acquire recovers the lock from dead owners.
    #[must_use]
    pub const fn recovering(self) -> Self {
        Self { recovers: true, ..self }
    }

    /// Whether the acquire is cancelled.
    #[must_use]
    pub const fn is_over(self) -> bool {
        matches!(self.wanted, WaitPolicy::Cancelled | WaitPolicy::Leaving)
    }

    /// Whether the acquire is cancelled because its rank leaves.
    #[must_use]
    pub const fn is_leaving(self) -> bool {
        matches!(self.wanted, WaitPolicy::Leaving)
    }

    /// The fault of an acquire that may not wait: `Closed` if it is cancelled, `TimedOut` if it is a
    /// try.
    #[must_use]
    pub const fn given_up(self) -> Fault {
        Fault::new(if self.is_over() { FaultKind::Closed } else { FaultKind::TimedOut })
    }

    /// Whether the acquire may wait for other owners.
    #[must_use]
    pub const fn is_patient(self) -> bool {
        matches!(self.wanted, WaitPolicy::Block)
    }
}

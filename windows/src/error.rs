//! What windows report.

use std::sync::Arc;

use onesided_fabric::remote_memory::{Fault, FaultKind};

/// What windows report: which operation, on whom, of which window, and why.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// This rank could not make its part of the window.
    #[error("create window \"{window}\": {source}")]
    Create {
        /// The window's name.
        window: Arc<str>,
        /// What failed.
        #[source]
        source: onesided_fabric::Error,
    },
    /// Memory could not be attached.
    #[error("attach memory to window \"{window}\": {source}")]
    Attach {
        /// The window's name.
        window: Arc<str>,
        /// What failed.
        #[source]
        source: onesided_fabric::Error,
    },
    /// Memory could not be lent.
    #[error("lend memory: {source}")]
    Lend {
        /// What failed.
        #[source]
        source: onesided_fabric::Error,
    },
    /// [`WindowMemory::take_back`](crate::WindowMemory::take_back): windows of this rank still lie over it.
    #[error("take lent memory back: {windows} windows of this rank lie over it")]
    StillLent {
        /// How many.
        windows: usize,
    },
    /// [`WindowMemory::take_back`](crate::WindowMemory::take_back): the memory could not be had.
    #[error("take lent memory back: {fault}")]
    TakeBack {
        /// Why.
        fault: Fault,
    },
    /// Another rank could not make its part of the window; every rank reports the first such rank.
    #[error("create window \"{window}\": rank {rank} could not: {fault}")]
    CreateElsewhere {
        /// The window's name.
        window: Arc<str>,
        /// Which rank.
        rank: u32,
        /// Why, in one word.
        fault: Fault,
    },
    /// The ranks do not agree on what window they create; every rank reports the first that differs from rank 0.
    #[error("create window \"{window}\": rank {rank} differs from rank 0 in {what}")]
    Mismatch {
        /// The window's name here.
        window: Arc<str>,
        /// Which rank.
        rank: u32,
        /// In what, with both values.
        what: String,
    },
    /// A lock could not be acquired.
    #[error("{operation} on rank {target} of window \"{window}\": {}", lock_reason(.fault))]
    Lock {
        /// `lock_exclusive`, `lock_shared`, `lock_all` (also where it locks a part on demand).
        operation: &'static str,
        /// Whose lock.
        target: u32,
        /// The window's name.
        window: Arc<str>,
        /// Why.
        fault: Fault,
    },
    /// A lock of a table could not be acquired.
    #[error("{operation} of lock {lock} of table \"{table}\", at rank {target}: {}", lock_reason(.fault))]
    TableLock {
        /// `lock_exclusive`, `lock_shared`.
        operation: &'static str,
        /// Its number.
        lock: u64,
        /// The rank that it lies at.
        target: u32,
        /// The table's name.
        table: Arc<str>,
        /// Why.
        fault: Fault,
    },
    /// An owner was late: its lease was over, and another has taken the lock. Nothing was committed, or released, and no
    /// token was given.
    #[error("{operation} on rank {target} of window \"{window}\": the lease was over, and another has taken the lock")]
    Late {
        /// `commit`, `unlock`, `unlock_all`, `fencing_token`.
        operation: &'static str,
        /// Whose lock.
        target: u32,
        /// The window's name.
        window: Arc<str>,
    },
    /// A policy for late owners that cannot be had.
    #[error("create window \"{window}\": {policy} is no policy for late owners of {design} locks here: {why}")]
    LeasePolicy {
        /// The window's name.
        window: Arc<str>,
        /// What was asked for.
        policy: crate::LeasePolicy,
        /// For which design.
        design: crate::LockDesign,
        /// Why not.
        why: &'static str,
    },
    /// The table has no such lock.
    #[error("{operation} of lock {lock} of table \"{table}\": it has {count} locks")]
    NoSuchLock {
        /// `lock_exclusive`, `lock_shared`.
        operation: &'static str,
        /// The number that was asked for.
        lock: u64,
        /// How many there are.
        count: u64,
        /// The table's name.
        table: Arc<str>,
    },
    /// An operation failed, or something that was posted before it.
    #[error("{operation} on rank {target} of window \"{window}\": {fault}")]
    Operation {
        /// `put`, `get`, `flush`, `unlock`, ...
        operation: &'static str,
        /// Whose memory.
        target: u32,
        /// The window's name.
        window: Arc<str>,
        /// Why.
        fault: Fault,
    },
    /// The elements do not all lie in the target's part of the window. Nothing was moved.
    #[error(
        "{operation} of {count} elements at {offset} on rank {target} of window \"{window}\": it has {len} elements there"
    )]
    Range {
        /// `put`, `get`, ...
        operation: &'static str,
        /// The first element.
        offset: usize,
        /// How many.
        count: usize,
        /// Whose memory.
        target: u32,
        /// How many elements there are.
        len: usize,
        /// The window's name.
        window: Arc<str>,
    },
    /// The world has no such rank.
    #[error("{operation} on rank {target} of window \"{window}\": the world has {size} ranks")]
    Rank {
        /// Which operation.
        operation: &'static str,
        /// The rank that was asked for.
        target: u32,
        /// How many there are.
        size: u32,
        /// The window's name.
        window: Arc<str>,
    },
    /// The slices do not have as many elements as the shape, or as one another. Nothing was moved.
    #[error("{operation} on window \"{window}\": {given} elements were given for {wanted}")]
    Lengths {
        /// `accumulate`, `put_shaped`, ...
        operation: &'static str,
        /// How many elements the shape, or the other slice, has.
        wanted: usize,
        /// How many the slice has.
        given: usize,
        /// The window's name.
        window: Arc<str>,
    },
    /// The operation is not for this type of element (see [`Op`](crate::Op)): bitwise operations on floats, say.
    #[error("{operation} on window \"{window}\": not for elements of type {element}")]
    Type {
        /// Which operation.
        operation: &'static str,
        /// The window's name.
        window: Arc<str>,
        /// The element's type.
        element: &'static str,
    },
    /// [`Epochs`](crate::Epochs): an operation on, or an unlock of, a target that is not locked.
    #[error("{operation} on rank {target} of window \"{window}\": no lock is held there")]
    NotLocked {
        /// Which operation.
        operation: &'static str,
        /// Whose memory.
        target: u32,
        /// The window's name.
        window: Arc<str>,
    },
    /// [`Epochs`](crate::Epochs): a lock of a target that is locked already.
    #[error("{operation} on rank {target} of window \"{window}\": it is locked already")]
    AlreadyLocked {
        /// Which operation.
        operation: &'static str,
        /// Whose memory.
        target: u32,
        /// The window's name.
        window: Arc<str>,
    },
    /// [`AccessEpoch`](crate::AccessEpoch): an operation on a target that was not started.
    #[error("access on rank {target} of window \"{window}\": it was not started")]
    NotStarted {
        /// Whose memory.
        target: u32,
        /// The window's name.
        window: Arc<str>,
    },
    /// [`Window::direct`](crate::Window::direct): the part is not mapped in this process.
    #[error(
        "direct access to rank {target} of window \"{window}\": it is not mapped in this process, or may be taken back; puts and gets go by the {path}"
    )]
    Direct {
        /// Whose memory.
        target: u32,
        /// The window's name.
        window: Arc<str>,
        /// How operations reach it.
        path: onesided_fabric::Path,
    },
    /// A collective step failed.
    #[error("{operation} window \"{window}\": {fault}")]
    Collective {
        /// `create`, `fence` or `close`.
        operation: &'static str,
        /// The window's name.
        window: Arc<str>,
        /// Why.
        fault: Fault,
    },
    /// `ONESIDED_LOCK_ALL` or a configuration names no design of `lock_all`.
    #[error("no design of lock_all is called \"{name}\"; there is: {known}")]
    LockAllDesign {
        /// What was asked for.
        name: String,
        /// What there is.
        known: &'static str,
    },
    /// `ONESIDED_LOCK` or a configuration names no lock.
    #[error("no lock design is called \"{name}\"; there is: {known}")]
    Design {
        /// What was asked for.
        name: String,
        /// What there is.
        known: &'static str,
    },
}

impl Error {
    /// The cause in one word, where a fabric or a peer is the cause.
    #[must_use]
    pub fn fault(&self) -> Option<Fault> {
        match self {
            Self::Create { source, .. } | Self::Attach { source, .. } | Self::Lend { source } => Some(source.fault()),
            Self::TakeBack { fault }
            | Self::CreateElsewhere { fault, .. }
            | Self::Lock { fault, .. }
            | Self::TableLock { fault, .. }
            | Self::Operation { fault, .. }
            | Self::Collective { fault, .. } => Some(*fault),
            Self::Late { .. } => Some(Fault::new(FaultKind::NotHeld)),
            _ => None,
        }
    }

    /// Whether a lock could not be had because a rank died that held it, or that may have, or was late:
    /// [`LockRequest::recover`](crate::LockRequest::recover) gets it, but not from a late one that
    /// [`LeasePolicy::Kill`](crate::LeasePolicy::Kill) could not kill.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        use FaultKind::{LeaseExpired, OwnerDied, ParticipantDied};
        self.fault().is_some_and(|fault| matches!(fault.kind(), OwnerDied | ParticipantDied | LeaseExpired))
    }

    /// Whether what was needed of a rank cannot be had any more because a lock was kept for longer than its lease, by this rank
    /// or by that one: [`LeasePolicy::Revoke`](crate::LeasePolicy::Revoke). [`fault`](Self::fault) names the other one.
    #[must_use]
    pub fn is_revoked(&self) -> bool {
        self.fault().is_some_and(|fault| fault.kind() == FaultKind::Revoked)
    }

    /// Whether a lock could not be had because the rank that holds it died; [`fault`](Self::fault) names it.
    #[must_use]
    pub fn is_owner_died(&self) -> bool {
        self.fault().is_some_and(|fault| fault.kind() == FaultKind::OwnerDied)
    }

    /// Whether a deadline passed.
    #[must_use]
    pub fn is_timed_out(&self) -> bool {
        self.fault().is_some_and(|fault| fault.kind() == FaultKind::TimedOut)
    }
}

fn lock_reason(fault: &Fault) -> String {
    match (fault.kind(), fault.rank()) {
        (FaultKind::OwnerDied, Some(owner)) => format!("{owner} died while it held the lock (`inherit` takes it over)"),
        (FaultKind::ParticipantDied, Some(dead)) => {
            format!("{dead} died, and may have held the lock (`inherit` takes it over)")
        }
        (FaultKind::LeaseExpired, Some(late)) => {
            format!("{late} kept the lock for longer than its lease (`inherit` takes it over where access is revoked)")
        }
        _ => fault.to_string(),
    }
}

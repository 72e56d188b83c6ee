//! The errors of windows.

use std::sync::Arc;

use onesided_fabric::remote_memory::{Fault, FaultKind, Rank};
use onesided_fabric::{debug, entries, explain, questions};

/// An error of a window: which operation, on which target, of which window, and why.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// This rank could not create its window memory.
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
    /// User memory could not be made available to windows.
    #[error("provide window memory: {source}")]
    Lend {
        /// What failed.
        #[source]
        source: onesided_fabric::Error,
    },
    /// [`WindowMemory::take_back`](crate::WindowMemory::take_back): windows of this rank still use
    /// the memory.
    #[error("take window memory back: {} of this rank use it", counted(*.windows as u64, "window"))]
    StillLent {
        /// The number of windows.
        windows: usize,
    },
    /// [`WindowMemory::take_back`](crate::WindowMemory::take_back): the memory could not be
    /// returned.
    #[error("take window memory back: {}", take_back_reason(.fault))]
    TakeBack {
        /// Why.
        fault: Fault,
    },
    /// Another rank could not create its window memory; every rank reports the first such rank.
    #[error("create window \"{window}\": rank {rank} failed: {}", reason(.fault))]
    CreateElsewhere {
        /// The window's name.
        window: Arc<str>,
        /// Which rank.
        rank: u32,
        /// The cause.
        fault: Fault,
    },
    /// The ranks disagree about the window that they create; every rank reports the first that
    /// differs from rank 0.
    #[error("create window \"{window}\": rank {rank} differs from rank 0 in {what}")]
    Mismatch {
        /// The window's name here.
        window: Arc<str>,
        /// Which rank.
        rank: u32,
        /// The property that differs, with both values.
        what: String,
    },
    /// A lock could not be acquired. The rank does not hold it and has nothing to release. That is
    /// so after `Unknown` and `ConnectionLost`, too: this rank has lost its connection to the
    /// lock's rank, which ends its access, and the others recover the lock as after a death. Do not
    /// ask again: there is no new connection. Locks of other ranks are not affected.
    #[error("{operation} on rank {target} of window \"{window}\": {}", lock_reason(.fault))]
    Lock {
        /// `lock_exclusive`, `lock_shared`, `lock_all` (also where it locks a target on demand); `locked get`,
        /// `locked put`, `locked update` of [`Locked`](crate::Locked); of a [`Mutex`](crate::Mutex) or an [`RwLock`](crate::RwLock) the call: `lock`, `read`, `try_write`.
        operation: &'static str,
        /// The lock's rank.
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
        /// The lock's number.
        lock: u64,
        /// The lock's rank.
        target: u32,
        /// The table's name.
        table: Arc<str>,
        /// Why.
        fault: Fault,
    },
    /// The lease of this owner expired, and another owner has taken the lock. Nothing was committed
    /// or released, and no fencing token was drawn.
    #[error(
        "{operation} on rank {target} of window \"{window}\": the lease expired, and another owner has taken the lock"
    )]
    Late {
        /// `commit`, `unlock`, `unlock_all`, `fencing_token`.
        operation: &'static str,
        /// The lock's rank.
        target: u32,
        /// The window's name.
        window: Arc<str>,
    },
    /// A lease policy that is not available.
    #[error("create window \"{window}\": lease policy {policy} is not available for {design} locks here: {why}")]
    LeasePolicy {
        /// The window's name.
        window: Arc<str>,
        /// The requested policy.
        policy: crate::LeasePolicy,
        /// The lock's design.
        design: crate::LockDesign,
        /// The reason.
        why: &'static str,
    },
    /// The table has no such lock.
    #[error("{operation} of lock {lock} of table \"{table}\": it has {count} locks")]
    NoSuchLock {
        /// `lock_exclusive`, `lock_shared`.
        operation: &'static str,
        /// The requested number.
        lock: u64,
        /// The number of locks.
        count: u64,
        /// The table's name.
        table: Arc<str>,
    },
    /// An operation failed, or one that was posted before it. After `Unknown` it may have taken
    /// effect, and the connection to the target is lost. Then every later operation on the target
    /// fails as `ConnectionLost`, and so does the unlock of its lock, which the others recover as
    /// after a death: drop what is held there, and go on with other targets or end.
    #[error("{operation} on rank {target} of window \"{window}\": {}", reason(.fault))]
    Operation {
        /// `put`, `get`, `flush`, `unlock`, ...
        operation: &'static str,
        /// The target's rank.
        target: u32,
        /// The window's name.
        window: Arc<str>,
        /// Why.
        fault: Fault,
    },
    /// The elements exceed the target's window memory. Nothing was transferred.
    #[error(
        "{operation} of {} at {offset} on rank {target} of window \"{window}\": it has {} there",
        counted(*.count as u64, "element"), counted(*.len as u64, "element")
    )]
    Range {
        /// `put`, `get`, ...
        operation: &'static str,
        /// The first element.
        offset: usize,
        /// The number of elements.
        count: usize,
        /// The target's rank.
        target: u32,
        /// The number of elements of its window memory.
        len: usize,
        /// The window's name.
        window: Arc<str>,
    },
    /// The world has no such rank.
    #[error("{operation} on rank {target} of window \"{window}\": the world has {}", counted(u64::from(*.size), "rank"))]
    Rank {
        /// Which operation.
        operation: &'static str,
        /// The requested rank.
        target: u32,
        /// The number of ranks.
        size: u32,
        /// The window's name.
        window: Arc<str>,
    },
    /// The slices do not have as many elements as the shape, or as each other. Nothing was
    /// transferred.
    #[error(
        "{operation} on rank {target} of window \"{window}\": {} given, {wanted} expected",
        counted(*.given as u64, "element")
    )]
    Lengths {
        /// `accumulate`, `put_shaped`, ...
        operation: &'static str,
        /// The number of elements of the shape, or of the other slice.
        wanted: usize,
        /// The number of elements of the slice.
        given: usize,
        /// The target's rank.
        target: u32,
        /// The window's name.
        window: Arc<str>,
    },
    /// The operation does not apply to this type of element (see [`Op`](crate::Op)): bitwise
    /// operations on floats, for example.
    #[error("{operation}{} on rank {target} of window \"{window}\": not for elements of type {element}", said(*.op))]
    Type {
        /// Which operation.
        operation: &'static str,
        /// The operation on an element and an operand, where it takes one.
        op: Option<crate::Op>,
        /// The target's rank.
        target: u32,
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
        /// The target's rank.
        target: u32,
        /// The window's name.
        window: Arc<str>,
    },
    /// [`Epochs`](crate::Epochs): a second lock of the same target.
    #[error("{operation} on rank {target} of window \"{window}\": this rank has locked it already")]
    AlreadyLocked {
        /// Which operation.
        operation: &'static str,
        /// The target's rank.
        target: u32,
        /// The window's name.
        window: Arc<str>,
    },
    /// [`AccessEpoch`](crate::AccessEpoch): an operation on a target that the epoch does not
    /// include.
    #[error("at on rank {target} of window \"{window}\": not a target of the access epoch")]
    NotStarted {
        /// The target's rank.
        target: u32,
        /// The window's name.
        window: Arc<str>,
    },
    /// [`Window::direct`](crate::Window::direct): the window memory is not mapped in this process.
    #[error(
        "direct access to rank {target} of window \"{window}\": it is not mapped in this process, or may be taken back; puts and gets go by the {path}"
    )]
    Direct {
        /// The target's rank.
        target: u32,
        /// The window's name.
        window: Arc<str>,
        /// The path that its operations take.
        path: onesided_fabric::Path,
    },
    /// A collective step failed.
    #[error("{operation} window \"{window}\": {}", reason(.fault))]
    Collective {
        /// `create`, `fence` or `close`.
        operation: &'static str,
        /// The window's name.
        window: Arc<str>,
        /// Why.
        fault: Fault,
    },
    /// `ONESIDED_LOCK`, `ONESIDED_LOCK_ALL` or a configuration names no design.
    #[error("{}unknown {what} design \"{name}\"; known: {known}", set_by(*.variable))]
    Design {
        /// `lock` or `lock_all`.
        what: &'static str,
        /// The environment variable that has the name, if it is one's.
        variable: Option<&'static str>,
        /// The requested name.
        name: String,
        /// The known names.
        known: &'static str,
    },
}

debug!([] Error, |this| "{}", explain(this));

questions!(Error);

impl Error {
    /// The kind of the underlying fault, where a fabric or a peer is the cause.
    #[must_use]
    pub fn kind(&self) -> Option<FaultKind> {
        self.fault().map(Fault::kind)
    }

    /// The underlying fault, where a fabric or a peer is the cause.
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

    /// The same, of a call that took the lock.
    #[cold]
    pub(crate) fn of_call(self, operation: &'static str) -> Self {
        match self {
            Self::Lock { target, window, fault, .. } => Self::Lock { operation, target, window, fault },
            Self::Rank { target, size, window, .. } => Self::Rank { operation, target, size, window },
            other => other,
        }
    }
}

fn take_back_reason(fault: &Fault) -> String {
    match fault.kind() {
        FaultKind::Closed => "it was taken back before".to_owned(),
        _ => fault.to_string(),
    }
}

/// How many of what.
pub(crate) fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn said(op: Option<crate::Op>) -> String {
    op.map_or(String::new(), |op| format!(" ({op:?})"))
}

fn set_by(variable: Option<&'static str>) -> String {
    variable.map_or_else(String::new, |variable| format!("{variable}: "))
}

/// The detail of an `Unsupported` whose signal is at another rank than its data: this bit, and that
/// rank.
pub(crate) const SIGNAL_AT: u32 = 1 << 31;

entries! {
    /// What a window lacks for a call: the detail of an `Unsupported`, which other ranks may be told.
    #[derive(Clone, Copy, Debug)]
    #[repr(u32)]
    pub(crate) enum Lack {
        AttachedMemory = 0x4000_0000 => "the window is not dynamic (`Window::dynamic` makes one that is)",
        GivenMemory => "its memory was not given by this rank as a value of this type (`close` ends any window)",
        Commits => "the window's leases do not end by commits (`LeasePolicy::VersionedCommit`)",
        LockOfTables => "a table takes test-and-set, mcs, ticket or fetch-add-queue",
        Lock => "its lock cannot be had (`ONESIDED_LOCK`, `ONESIDED_LOCK_ALL`, a lease policy): its own error says why",
    }
    const ALL;
    fn text;
}

impl Lack {
    pub(crate) const fn of(self, rank: Rank) -> Fault {
        Fault::of(FaultKind::Unsupported, rank).with_detail(self as u32)
    }
}

/// The detail of an acquire's `TimedOut` that names the rank that asked: another owner of it has the
/// lock. No number of ranks.
pub(crate) const ITSELF: u32 = u32::MAX;

/// The same for an acquire.
fn lock_reason(fault: &Fault) -> String {
    match (fault.kind(), fault.rank()) {
        (FaultKind::TimedOut, Some(rank)) if fault.detail() == ITSELF => {
            format!("the deadline passed; {rank} itself held the lock or waited for it, perhaps in another thread")
        }
        (FaultKind::TimedOut, Some(rank)) => format!("the deadline passed; {rank} held the lock or waited for it"),
        _ => reason(fault),
    }
}

/// The text of a fault, in the words of windows.
fn reason(fault: &Fault) -> String {
    match (fault.kind(), fault.rank()) {
        (FaultKind::LeaseExpired, _) => format!("{fault} (`recover` takes it over where access is revoked)"),
        _ if fault.is_poison() => format!("{fault} (`recover` takes it over)"),
        (FaultKind::Closed, Some(rank)) => format!("{rank} has closed the window"),
        (FaultKind::NoSuchRegion, Some(rank)) => {
            format!("{rank} has no such memory: it closed or dropped the window, or detached the memory")
        }
        (FaultKind::Unsupported, Some(_)) if fault.detail() & SIGNAL_AT != 0 => {
            let at = fault.detail() & !SIGNAL_AT;
            format!("the signal is at rank {at}; data and signal have to be at one rank")
        }
        (FaultKind::Unsupported, _) => {
            let lack = Lack::ALL.into_iter().find(|lack| *lack as u32 == fault.detail());
            lack.map_or_else(|| fault.to_string(), |lack| lack.to_string())
        }
        (FaultKind::Protocol, Some(rank)) => {
            format!("{rank} broke the protocol: does it run another version of the library?")
        }
        _ => fault.to_string(),
    }
}

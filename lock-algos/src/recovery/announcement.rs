//! The announcements of owners in their nodes.

use onesided_remote_memory::{Fault, RemoteMemory};

use crate::{LockContext, LockUse};

/// The word of a node that names the lock for which its owner is announced.
pub(crate) const ANNOUNCED: usize = 0;

/// The value of [`ANNOUNCED`] for a lock; 0 is none. The two highest bits are left to flags.
pub(crate) const fn announcement_of(lock: u64) -> u64 {
    lock + 1
}

/// Beside the lock in [`ANNOUNCED`]: the owner waits, and the word does not count it.
pub(super) const WAITS: u64 = 1 << 62;

/// Whether the first word of a node says that its owner is announced for the lock with this
/// [number](LockContext::lock), and does not only wait.
#[must_use]
pub const fn announces(node: u64, lock: u64) -> bool {
    const FLAGS: u64 = 0b11 << 62;
    node & WAITS == 0 && node & !FLAGS == announcement_of(lock)
}

/// Announces the owner.
#[inline(always)] // a call here is a tenth of an uncontended lock
pub(crate) fn announce<'m, P: LockContext<'m>>(memory: &P::Memory, context: P) -> Result<(), Fault> {
    memory.store(context.node(ANNOUNCED)?, announcement_of(context.lock()))
}

/// The same for an owner that waits without being counted in the word.
pub(crate) fn announce_waiting<'m, P: LockContext<'m>>(memory: &P::Memory, context: P) -> Result<(), Fault> {
    memory.store(context.node(ANNOUNCED)?, WAITS | announcement_of(context.lock()))
}

/// Retracts the owner.
#[inline(always)] // as `announce`
pub(crate) fn retract<'m, P: LockContext<'m>>(memory: &P::Memory, context: P) -> Result<(), Fault> {
    memory.store(context.node(ANNOUNCED)?, 0)
}

/// Whether the owner is announced.
#[inline(always)] // as `announce`
pub(crate) fn is_announced<'m, P: LockContext<'m>>(memory: &P::Memory, context: P) -> Result<bool, Fault> {
    Ok(memory.load(context.node(ANNOUNCED)?)? == announcement_of(context.lock()))
}

/// Whether an owner is announced, tracked during its acquire: announced once, and retracted if the
/// acquire fails.
pub(crate) struct Announcement {
    is_announced: bool,
    /// Whether the owner is to be announced at all.
    may: bool,
}

impl Announcement {
    /// For an owner that was announced when its acquire started, or that need not be.
    pub(crate) const fn of(is_announced: bool) -> Self {
        Self { is_announced, may: is_announced }
    }

    pub(crate) const fn is_announced(&self) -> bool {
        self.is_announced
    }

    /// Announces the owner, if it is not announced.
    pub(crate) fn announce<'m>(&mut self, lock: &LockUse<'m, impl LockContext<'m>>) -> Result<(), Fault> {
        if !std::mem::replace(&mut self.is_announced, self.may) && self.may {
            announce(lock.memory, lock.context)
        } else {
            Ok(())
        }
    }

    /// Retracts the owner, if it is announced.
    pub(crate) fn retract<'m>(&mut self, lock: &LockUse<'m, impl LockContext<'m>>) -> Result<(), Fault> {
        if std::mem::take(&mut self.is_announced) { retract(lock.memory, lock.context) } else { Ok(()) }
    }

    /// Ends an acquire: retracts the owner if it failed.
    pub(crate) fn end<'m, T>(
        &mut self,
        lock: &LockUse<'m, impl LockContext<'m>>,
        outcome: Result<T, Fault>,
    ) -> Result<T, Fault> {
        if outcome.is_err() {
            self.retract(lock)?;
        }
        outcome
    }
}

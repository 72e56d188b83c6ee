//! The words of an owner's node: in which queue it is, and how it holds the lock.

use onesided_remote_memory::{Fault, Rank, RemoteMemory};

use crate::cohort::{AT_HOST, CohortOwner};
use crate::owner::EXCLUSIVE;
use crate::{InMemory, LockContext, LockUse, Mode};

/// The word of a node that says how its owner holds the lock, or how far it is: 0 for its own word, the cohort's owner word, or
/// the queue in which it waits.
pub(super) const NOTE: usize = AT_HOST + 1;

/// The note of an owner that waits in the queue at a rank.
pub(super) const fn waits_at(leader: Rank) -> u64 {
    leader.0 as u64 + 1
}

/// An owner's note.
pub(super) enum Note {
    /// It uses its own word.
    Alone,
    /// It waits in the queue there.
    Waits(Rank),
    /// It holds the lock by this owner word of its cohort.
    Has(CohortOwner),
}

impl Note {
    pub(super) const fn of(word: u64) -> Self {
        match CohortOwner::of(word) {
            Some(owner_word) => Self::Has(owner_word),
            None if word == 0 => Self::Alone,
            None => Self::Waits(Rank(word as u32 - 1)),
        }
    }
}

/// Whether it is an owner that queues, or may have.
#[inline(always)] // as `TwoLevel::start`
pub(super) fn queues(lock: &LockUse<'_, impl InMemory>) -> bool {
    lock.mode == Mode::Exclusive && lock.owner & EXCLUSIVE == 0
}

/// The note of such an owner.
#[inline(always)] // as `TwoLevel::start`
pub(super) fn note<'m>(lock: &LockUse<'m, impl LockContext<'m>>) -> Result<Note, Fault> {
    if queues(lock) { Ok(Note::of(lock.memory.load(lock.node(NOTE)?)?)) } else { Ok(Note::Alone) }
}

/// Resets the node: this owner is in no queue, because it is gone.
pub(super) fn forget<'m, P: LockContext<'m>>(memory: &P::Memory, context: P) -> Result<(), Fault> {
    memory.store(context.node(AT_HOST)?, 0)?;
    memory.store(context.node(NOTE)?, 0)
}

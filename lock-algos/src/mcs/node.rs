//! The words of an owner's node in the queue.

use onesided_remote_memory::{Fault, RemoteMemory};

use crate::recovery::{ANNOUNCED, retract};
use crate::{LockContext, Mode, Owner};

/// The successor, which writes it: its owner's bits with [`LINKED`].
pub(super) const NEXT: usize = ANNOUNCED + 1;
/// Written by the predecessor: [`GRANTED`] with this owner's generation, and [`READING`] if the
/// predecessor is a reader. Later this owner's own note, [`HANDED`].
pub(super) const GRANT: usize = ANNOUNCED + 2;

pub(super) const LINKED: u64 = 1 << 63;
const GRANTED: u64 = 1 << 63;
const READING: u64 = 1 << 62;
pub(super) const HANDED: u64 = 1;

/// The grant to an owner.
pub(super) const fn grant_to(next: Owner, from: Mode) -> u64 {
    let reading = match from {
        Mode::Exclusive => 0,
        Mode::Shared => READING,
    };
    GRANTED | reading | next.generation as u64
}

/// The grant in the word of a node, if it is this owner's.
pub(super) fn granted_to(owner: Owner) -> impl Fn(u64) -> Option<Mode> + Copy + Send + Sync + Unpin {
    move |grant| match grant {
        _ if grant == grant_to(owner, Mode::Exclusive) => Some(Mode::Exclusive),
        _ if grant == grant_to(owner, Mode::Shared) => Some(Mode::Shared),
        _ => None,
    }
}

/// Resets the node to that of an owner that was never queued. No other rank writes to it any more.
#[inline(always)] // as `leave`
pub(super) fn clean<'m, P: LockContext<'m>>(memory: &P::Memory, context: P) -> Result<(), Fault> {
    memory.store(context.node(NEXT)?, 0)?;
    memory.store(context.node(GRANT)?, 0)
}

/// Resets the node and retracts the owner.
#[inline(always)] // by a call, a release without a successor passes the context through memory
pub(super) fn leave<'m, P: LockContext<'m>>(memory: &P::Memory, context: P) -> Result<(), Fault> {
    clean(memory, context)?;
    retract(memory, context)
}

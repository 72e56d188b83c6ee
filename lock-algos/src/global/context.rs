//! The lock-all word as a context.

use onesided_remote_memory::{Fault, Rank, RemoteMemory};

use crate::{LockContext, Owner};

/// The lock-all word as a context of its own: it is the home, and owners announce themselves in a
/// word of the node behind those of the target's lock.
#[derive(Clone, Copy)]
pub(super) struct AtLockAllWord<P> {
    pub(super) context: P,
    /// The index of that word in a node.
    pub(super) announced: usize,
}

impl<'m, M: RemoteMemory, P: LockContext<'m, M>> LockContext<'m, M> for AtLockAllWord<P> {
    fn home(&self, index: usize) -> Result<M::Word<'m>, Fault> {
        self.context.lock_all_word(index)
    }

    fn node_of(&self, rank: Rank, slot: u16, index: usize) -> Result<M::Word<'m>, Fault> {
        self.context.node_of(rank, slot, self.announced + index)
    }

    fn home_rank(&self) -> Rank {
        self.context.lock_all_rank()
    }

    fn slots(&self) -> u16 {
        self.context.slots()
    }

    fn owners(&self) -> u64 {
        self.context.owners()
    }

    fn is_counted(&self) -> bool {
        self.context.is_counted()
    }

    fn slots_in_use(&self, rank: Rank) -> Result<Option<M::Word<'m>>, Fault> {
        self.context.slots_in_use(rank)
    }

    /// The only lock of its word.
    fn lock(&self) -> u64 {
        0
    }

    fn owner(&self) -> Owner {
        self.context.owner()
    }
}

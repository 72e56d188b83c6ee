//! The context of a lock that is a part of another one.

use onesided_remote_memory::{Fault, Rank, delegate};

use crate::backoff::mixed;
use crate::cohort::{AT_HOST, QUEUE};
use crate::{InMemory, LockContext, Owner, Owners, Word, WordOf};

/// The context of a lock within another one, whose context this has: its home is elsewhere, and its
/// owners have words of their own in the same nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<P> {
    pub(crate) context: P,
    at: At,
}

/// Which part.
#[derive(Clone, Copy, Debug)]
enum At {
    /// The queue of a host, at this cohort home.
    Host(Rank),
    /// The lock-all word. Its words of a node are behind these.
    LockAll(u32),
}

impl<P> Part<P> {
    /// The queue of a host, at the cohort home `leader`.
    pub(crate) const fn of_host(context: P, leader: Rank) -> Self {
        Self { context, at: At::Host(leader) }
    }

    /// The lock-all word, over a lock with this many words of a node.
    pub(crate) const fn of_lock_all(context: P, node_words: usize) -> Self {
        Self { context, at: At::LockAll(node_words as u32) }
    }

    /// The index of a word of a node among all of that node.
    const fn in_node(&self, index: usize) -> usize {
        match self.at {
            At::Host(_) => AT_HOST + index,
            At::LockAll(others) => others as usize + index,
        }
    }
}

impl<P: InMemory> InMemory for Part<P> {
    type Memory = P::Memory;
}

impl<'m, P: LockContext<'m>> LockContext<'m> for Part<P> {
    fn home(&self, index: usize) -> Result<Word<'m, P>, Fault> {
        self.context.word(match self.at {
            At::Host(leader) => WordOf::Host(leader, QUEUE + index),
            At::LockAll(_) => WordOf::LockAll(index),
        })
    }

    fn home_rank(&self) -> Rank {
        match self.at {
            At::Host(leader) => leader,
            At::LockAll(_) => self.context.lock_all_rank(),
        }
    }

    fn node_of(&self, rank: Rank, slot: u16, index: usize) -> Result<Word<'m, P>, Fault> {
        self.context.node_of(rank, slot, self.in_node(index))
    }

    fn node(&self, index: usize) -> Result<Word<'m, P>, Fault> {
        self.context.node(self.in_node(index))
    }

    /// Queues of one lock at different ranks are different locks, with high probability; if two
    /// coincide, recovery waits for the owners of the other one as well. A lock-all word is the only
    /// lock of its word of the nodes.
    fn lock(&self) -> u64 {
        match self.at {
            At::Host(leader) => mixed(self.context.lock() ^ mixed(u64::from(leader.0) + 1)) >> 3,
            At::LockAll(_) => 0,
        }
    }

    delegate! {
        context:
        fn owner(&self) -> Owner;
        fn owners(&self) -> Owners;
        fn word(&self, of: WordOf) -> Result<Word<'m, P>, Fault>;
    }

    fn may_participate(&self, rank: Rank) -> bool {
        match self.at {
            At::Host(leader) => self.context.host_of(rank) == self.context.host_of(leader),
            At::LockAll(_) => self.context.may_participate(rank),
        }
    }
}

//! Where a lock's words lie.

use remote_memory::{Fault, FaultKind, Rank, RemoteMemory};

use crate::{Owner, Reach};

/// Where a lock's words lie and on whose behalf it is taken: what windows, lock tables and tests tell an algorithm.
///
/// A lock has a few words at its home, the target, and each owner has a queue node in its own rank's memory, which
/// everybody may reach: [`NODE_WORDS`](crate::LockAlgorithm::NODE_WORDS) words for each of the rank's slots. Many locks
/// share the nodes; an owner uses its node for one lock at a time.
pub trait Place<'m, M: RemoteMemory>: Copy + Send + Sync {
    /// Word `index` of the lock at its home.
    ///
    /// # Errors
    /// As [`RemoteMemory::word`].
    fn home(&self, index: usize) -> Result<M::Word<'m>, Fault>;

    /// Word `index` of the node of some rank's slot.
    ///
    /// # Errors
    /// As [`RemoteMemory::word`]; `Unsupported` where the place has no nodes.
    fn node_of(&self, rank: Rank, slot: u16, index: usize) -> Result<M::Word<'m>, Fault>;

    /// Slots of each rank that may be in use, below [`Owner::NO_SLOT`]; 0 where the place has no nodes.
    fn slots(&self) -> u16;

    /// How many owners that [count here](Self::is_counted) there may be at once, of all ranks, acquires that were given up
    /// and go on included: a lock whose words have no room for that many takes more care. Any number, unless the place knows
    /// better.
    fn owners(&self) -> u64 {
        u64::MAX
    }

    /// Whether this owner is one of [those](Self::owners). Who is not leaves room for them, so the place sees to it that
    /// there is some left: it counts none if it cannot, and then any number may come.
    fn is_counted(&self) -> bool {
        true
    }

    /// The word of the lock at some rank, of a lock that has [one at every rank](crate::LockAlgorithm::SPREAD).
    ///
    /// # Errors
    /// As [`RemoteMemory::word`]; `Unsupported` where the place has none.
    fn spread(&self, rank: Rank) -> Result<M::Word<'m>, Fault> {
        let _ = rank;
        Err(Fault::new(FaultKind::Unsupported))
    }

    /// Where a rank says how many of its slots may be in use, in the low 32 bits, and how many of its owners count
    /// without a slot, in the high 32. `None`: all may be in use, and no owner is without.
    ///
    /// # Errors
    /// As [`RemoteMemory::word`].
    fn tally(&self, rank: Rank) -> Result<Option<M::Word<'m>>, Fault> {
        let _ = rank;
        Ok(None)
    }

    /// Adds this owner, which is without a slot, to those of its rank that count, or takes it away: for all locks that
    /// share the nodes.
    ///
    /// # Errors
    /// `Unsupported` where every owner has a slot.
    fn count_without_slot(&self, counts: bool) -> Result<(), Fault> {
        let _ = counts;
        Err(Fault::new(FaultKind::Unsupported))
    }

    /// The rank at whose memory the home lies, for a lock that a thread there serves; `None` if it need not be known.
    fn home_rank(&self) -> Option<Rank> {
        None
    }

    /// How many lines each rank has at the home: words in which owners of that rank say what they want, one owner in each.
    /// At most 255. For locks that a thread at the home [serves](crate::LockAlgorithm::serve); by default one for each slot.
    fn lines(&self) -> u16 {
        self.slots()
    }

    /// A line of some rank at the home.
    ///
    /// # Errors
    /// As [`RemoteMemory::word`]; `Unsupported` where the place has no lines.
    fn line_of(&self, rank: Rank, line: u16) -> Result<M::Word<'m>, Fault> {
        let _ = line;
        Err(Fault::of(FaultKind::Unsupported, rank))
    }

    /// Takes one of this rank's lines for this owner, from its acquire until it [gives it back](Self::give_line_back);
    /// `None` if all are in use.
    fn take_line(&self) -> Option<u16> {
        Some(self.owner().slot).filter(|line| *line < self.lines())
    }

    /// Ends this owner's use of a line: it has said its last word there.
    fn give_line_back(&self, line: u16) {
        let _ = line;
    }

    /// How far this rank's pauses for locks grow now.
    fn reach(&self) -> Reach {
        Reach::ALL
    }

    /// Keeps what its last acquire, which had to contend, made of that.
    fn keep_reach(&self, reach: Reach) {
        let _ = reach;
    }

    /// Tells the lock from the others whose owners use the same nodes. Below 2<sup>63</sup>.
    fn lock(&self) -> u64;

    /// On whose behalf.
    fn owner(&self) -> Owner;

    /// Whether the owner has a node.
    #[inline]
    fn has_node(&self) -> bool {
        self.owner().slot < self.slots()
    }

    /// Word `index` of this owner's node.
    ///
    /// # Errors
    /// As [`node_of`](Self::node_of).
    #[inline]
    fn node(&self, index: usize) -> Result<M::Word<'m>, Fault> {
        let Owner { rank, slot, .. } = self.owner();
        self.node_of(rank, slot, index)
    }
}

//! Where a lock's words lie.

use onesided_remote_memory::{Fault, FaultKind, Rank, RemoteMemory};

use crate::{BackoffCap, Owner};

/// How many of a rank's owners count without a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WithoutSlot {
    /// For the place's lock.
    pub here: u32,
    /// For other locks.
    pub elsewhere: u32,
}

/// Where a lock's words lie and on whose behalf it is taken: what windows, lock tables and tests tell an algorithm.
///
/// A lock has a few words at its home, the target, and each owner has a queue node in its own rank's memory, which
/// everybody may reach: [`NODE_WORDS`](crate::LockAlgorithm::NODE_WORDS) words for each of the rank's slots. Many locks
/// share the nodes; an owner uses its node for one lock at a time.
pub trait LockContext<'m, M: RemoteMemory>: Copy + Send + Sync {
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

    /// The word of the lock at some rank, of a lock that has [one at every rank](crate::LockAlgorithm::PER_RANK_WORD).
    ///
    /// # Errors
    /// As [`RemoteMemory::word`]; `Unsupported` where the place has none.
    fn per_rank_word(&self, rank: Rank) -> Result<M::Word<'m>, Fault> {
        let _ = rank;
        Err(Fault::new(FaultKind::Unsupported))
    }

    /// Word `index` of those that the lock has at some rank for the ranks of its own [host](Self::host_of), of a lock that has
    /// [some](crate::LockAlgorithm::HOST_WORDS). Nobody else touches them: where others take a card, these are the CPU's.
    ///
    /// # Errors
    /// As [`RemoteMemory::word`]; `Unsupported` where the place has none, and for a rank of another host.
    fn host_word(&self, rank: Rank, index: usize) -> Result<M::Word<'m>, Fault> {
        let _ = index;
        Err(Fault::of(FaultKind::Unsupported, rank))
    }

    /// At which rank the ranks of this owner's host have their [words](Self::host_word): the lowest one that lives, as far as is
    /// known here. `None` where there are none.
    fn cohort_home(&self) -> Option<Rank> {
        None
    }

    /// On which host a rank is.
    fn host_of(&self, rank: Rank) -> u32 {
        rank.0
    }

    /// Whether owners of a rank may count for the lock at all: recovery does not ask the others.
    fn may_count(&self, rank: Rank) -> bool {
        let _ = rank;
        true
    }

    /// Whether owners without a node never count for the lock: recovery asks the others only.
    fn only_nodes_count(&self) -> bool {
        false
    }

    /// Where a rank says how many of its slots may be in use, in the low 32 bits, and how many of its owners count
    /// without a slot, in the high 32. `None`: all may be in use, and no owner is without.
    ///
    /// # Errors
    /// As [`RemoteMemory::word`].
    fn participant_count(&self, rank: Rank) -> Result<Option<M::Word<'m>>, Fault> {
        let _ = rank;
        Ok(None)
    }

    /// Adds this owner, which is without a slot, to those of its rank that count, or takes it away: for all locks that
    /// share the nodes.
    ///
    /// # Errors
    /// `Unsupported` where every owner has a slot.
    fn announce_without_slot(&self, announced: bool) -> Result<(), Fault> {
        let _ = announced;
        Err(Fault::new(FaultKind::Unsupported))
    }

    /// Which of this rank's owners count without a slot, as far as this rank itself knows; the [tally](Self::participant_count) does not
    /// tell the locks apart. `None`: what the tally says.
    fn without_slot(&self) -> Option<WithoutSlot> {
        None
    }

    /// The rank at whose memory the home lies, for a lock that a thread there serves; `None` if it need not be known.
    fn home_rank(&self) -> Option<Rank> {
        None
    }

    /// How many lines each rank has at the home: words in which owners of that rank say what they want, one owner in each.
    /// At most 255. For locks that a thread at the home [serves](crate::LockAlgorithm::serve); by default one for each slot.
    fn request_slots(&self) -> u16 {
        self.slots()
    }

    /// A line of some rank at the home.
    ///
    /// # Errors
    /// As [`RemoteMemory::word`]; `Unsupported` where the place has no lines.
    fn request_slot_of(&self, rank: Rank, line: u16) -> Result<M::Word<'m>, Fault> {
        let _ = line;
        Err(Fault::of(FaultKind::Unsupported, rank))
    }

    /// Takes one of this rank's lines for this owner, from its acquire until it [gives it back](Self::release_request_slot);
    /// `None` if all are in use.
    fn take_request_slot(&self) -> Option<u16> {
        Some(self.owner().slot).filter(|line| *line < self.request_slots())
    }

    /// Ends this owner's use of a line: it has said its last word there.
    fn release_request_slot(&self, slot: u16) {
        let _ = slot;
    }

    /// The word that the locks of all targets share, for a lock [with a room](crate::Global). All 0 at first.
    ///
    /// # Errors
    /// As [`RemoteMemory::word`]; `Unsupported` where the place has none.
    fn lock_all_word(&self) -> Result<M::Word<'m>, Fault> {
        Err(Fault::new(FaultKind::Unsupported))
    }

    /// Whether a shared lock that is asked for here is of all targets.
    fn is_of_all(&self) -> bool {
        false
    }

    /// Whether who asks has a lock here already, of this target or another one, for which somebody may wait: as far as it is
    /// known.
    fn is_inside(&self) -> bool {
        false
    }

    /// This owner has its lock, or gives it back.
    fn mark_inside(&self, inside: bool) {
        let _ = inside;
    }

    /// How far this rank's pauses for locks grow now.
    fn backoff_cap(&self) -> BackoffCap {
        BackoffCap::ALL
    }

    /// Keeps what its last acquire, which had to contend, made of that.
    fn keep_backoff_cap(&self, reach: BackoffCap) {
        let _ = reach;
    }

    /// How often in a row this owner's slot was used to pass a queue: what was [kept](Self::keep_bypasses) last, at first 0.
    fn bypasses(&self) -> u8 {
        0
    }

    /// Keeps it for the next owner with this slot, if that can be.
    fn keep_bypasses(&self, bypasses: u8) {
        let _ = bypasses;
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

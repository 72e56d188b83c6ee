//! The context of a lock: where its words lie, and which owner acquires it.

use onesided_remote_memory::{Fault, FaultKind, Rank, RemoteMemory};

use crate::{BackoffCap, Owner};

/// Where the words of a lock lie and which owner acquires it. Windows, lock tables and tests
/// implement it for the algorithms.
///
/// A context needs the first six functions; the others have defaults, which are those of a context
/// without the words or the memory in question. A lock that needs one of them says so: with [a word
/// at every rank](Self::per_rank_word), [on each host](Self::host_word), of [all
/// targets](Self::lock_all_word), or [served](Self::request_slot_of).
///
/// A lock has a few words at its home, the target. Each owner has a queue node in the memory of its
/// own rank, which every rank can access: [`NODE_WORDS`](crate::LockAlgorithm::NODE_WORDS) words
/// for each of the rank's slots. Many locks share the nodes; an owner uses its node for one lock at
/// a time.
pub trait LockContext<'m, M: RemoteMemory>: Copy + Send + Sync {
    // What every context has.

    /// Word `index` of the lock at its home.
    ///
    /// # Errors
    /// As [`RemoteMemory::word`].
    fn home(&self, index: usize) -> Result<M::Word<'m>, Fault>;

    /// The rank of the home.
    fn home_rank(&self) -> Rank;

    /// Word `index` of the node of a rank's slot.
    ///
    /// # Errors
    /// As [`RemoteMemory::word`].
    fn node_of(&self, rank: Rank, slot: u16, index: usize) -> Result<M::Word<'m>, Fault>;

    /// The slots of each rank, below [`Owner::NO_SLOT`].
    fn slots(&self) -> u16;

    /// An id of the lock, unique among the locks that share the nodes. Below 2<sup>61</sup>.
    fn lock(&self) -> u64;

    /// The owner that acquires the lock.
    fn owner(&self) -> Owner;

    /// Word `index` of this owner's node.
    ///
    /// # Errors
    /// As [`node_of`](Self::node_of).
    #[inline]
    fn node(&self, index: usize) -> Result<M::Word<'m>, Fault> {
        let Owner { rank, slot, .. } = self.owner();
        self.node_of(rank, slot, index)
    }

    /// The next operation that this owner posts, at once, is its arrival, for a check of the order in
    /// which owners enter. Without this call, the first operation of the acquire is. Does nothing
    /// elsewhere.
    fn arrives(&self) {}

    // How many owners there may be, and who they are: for counts in words, and for recovery.

    /// The most [counted](Self::is_counted) owners that there may be at once, of all ranks,
    /// including cancelled acquires that still run. A lock whose words have no room for that many
    /// takes more operations. Unbounded by default.
    fn owners(&self) -> u64 {
        u64::MAX
    }

    /// Whether this owner is among [those](Self::owners). An owner that is not leaves room for them
    /// in the words of the lock. A context that cannot bound the number of its owners counts none.
    fn is_counted(&self) -> bool {
        true
    }

    /// Whether owners of a rank can participate in the lock at all. The participant scan of a
    /// recovery skips the other ranks.
    fn may_participate(&self, rank: Rank) -> bool {
        let _ = rank;
        true
    }

    /// The word in which a rank keeps a bound on its slots in use. `None`: all slots may be in use.
    ///
    /// # Errors
    /// As [`RemoteMemory::word`].
    fn slots_in_use(&self, rank: Rank) -> Result<Option<M::Word<'m>>, Fault> {
        let _ = rank;
        Ok(None)
    }

    // For locks with a word at every rank.

    /// The lock's word at a rank, for a lock with a [word at every
    /// rank](crate::LockAlgorithm::PER_RANK_WORD).
    ///
    /// # Errors
    /// As [`RemoteMemory::word`]; `Unsupported` if the context has none.
    fn per_rank_word(&self, rank: Rank) -> Result<M::Word<'m>, Fault> {
        let _ = rank;
        Err(Fault::new(FaultKind::Unsupported))
    }

    // For locks with words on each host.

    /// The host of a rank.
    fn host_of(&self, rank: Rank) -> u32 {
        rank.0
    }

    /// The rank that holds the [host words](Self::host_word) of this owner's host: the lowest live
    /// rank, as far as this rank knows. `None` if there are none.
    fn cohort_home(&self) -> Option<Rank> {
        None
    }

    /// Word `index` of the words that a lock has at a rank for the ranks of its own
    /// [host](Self::host_of), for a lock with [host words](crate::LockAlgorithm::HOST_WORDS). Only
    /// ranks of that host access them, those that have resolved one also after the end of the rank. On
    /// a fabric with cards their atomics are the CPU's.
    ///
    /// # Errors
    /// As [`RemoteMemory::word`]; `Unsupported` if the context has none, and for a rank of another
    /// host.
    fn host_word(&self, rank: Rank, index: usize) -> Result<M::Word<'m>, Fault> {
        let _ = index;
        Err(Fault::of(FaultKind::Unsupported, rank))
    }

    // For served locks.

    /// The number of request slots of each rank at the home, at most 255. A request slot is a word
    /// in which one owner of the rank writes its request to the
    /// [server](crate::served::serve). One for each slot by default.
    fn request_slots(&self) -> u16 {
        self.slots()
    }

    /// A request slot of a rank, at the home.
    ///
    /// # Errors
    /// As [`RemoteMemory::word`]; `Unsupported` if the context has no request slots.
    fn request_slot_of(&self, rank: Rank, line: u16) -> Result<M::Word<'m>, Fault> {
        let _ = line;
        Err(Fault::of(FaultKind::Unsupported, rank))
    }

    /// Takes one of this rank's request slots for this owner, from its acquire until it [releases
    /// the slot](Self::release_request_slot); `None` if all are in use.
    fn take_request_slot(&self) -> Option<u16> {
        Some(self.owner().slot).filter(|line| *line < self.request_slots())
    }

    /// Releases a request slot. The owner writes nothing more to it.
    fn release_request_slot(&self, slot: u16) {
        let _ = slot;
    }

    // For locks of all targets.

    /// Word `index` of the two [lock-all words](crate::Global::LOCK_ALL_WORDS), which the locks of
    /// all targets share, for a lock with a lock-all operation. All 0 initially.
    ///
    /// # Errors
    /// As [`RemoteMemory::word`]; `Unsupported` if the context has none.
    fn lock_all_word(&self, index: usize) -> Result<M::Word<'m>, Fault> {
        let _ = index;
        Err(Fault::new(FaultKind::Unsupported))
    }

    /// The rank of the [lock-all words](Self::lock_all_word).
    fn lock_all_rank(&self) -> Rank {
        self.home_rank()
    }

    /// Whether a shared acquire here locks all targets.
    fn is_lock_all(&self) -> bool {
        false
    }

    /// Whether the caller's rank already holds a lock, of this or another target, that other ranks
    /// may wait for, as far as the context knows.
    fn is_inside(&self) -> bool {
        false
    }

    /// Records that this owner acquired its lock, or released it.
    fn mark_inside(&self, inside: bool) {
        let _ = inside;
    }

    // What a rank keeps from one acquire to the next.

    /// The current [`BackoffCap`] of this rank.
    fn backoff_cap(&self) -> BackoffCap {
        BackoffCap::ALL
    }

    /// Keeps the cap that a contended acquire arrived at.
    fn keep_backoff_cap(&self, cap: BackoffCap) {
        let _ = cap;
    }

    /// How often in a row this owner's slot has bypassed a queue, as it was
    /// [kept](Self::keep_bypasses) last; 0 initially.
    fn bypasses(&self) -> u8 {
        0
    }

    /// Keeps the number for the next owner with this slot. An implementation may discard it.
    fn keep_bypasses(&self, bypasses: u8) {
        let _ = bypasses;
    }
}

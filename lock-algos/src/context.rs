//! The context of a lock: where its words lie, and which owner acquires it.

use onesided_remote_memory::{Fault, FaultKind, Rank, RemoteMemory};

use crate::Owner;

/// The memory of a [`LockContext`]. Apart from that trait because it does not depend on a lifetime: the
/// compiler forgets lifetimes when it looks whether a future of a lock is `Send`.
pub trait InMemory {
    /// The memory that the lock is in.
    type Memory: RemoteMemory;
}

/// A word of the memory of a context.
pub type Word<'m, P> = <<P as InMemory>::Memory as RemoteMemory>::Word<'m>;

/// An operation posted in that memory.
pub type Op<P> = <<P as InMemory>::Memory as RemoteMemory>::Op;

/// Where the words of a lock lie and which owner acquires it. Windows, lock tables and tests
/// implement it for the algorithms.
///
/// The first six functions are what every lock needs. The others have defaults, which are those of a
/// context that has nothing of the kind; a lock that needs one of them says so.
///
/// A lock has a few words at its home, the target. Each owner has a queue node in the memory of its
/// own rank, which every rank can access: [`NODE_WORDS`](crate::LockAlgorithm::NODE_WORDS) words
/// for each of the rank's slots. Many locks share the nodes; an owner uses its node for one lock at
/// a time. Some locks have [other words](WordOf) besides.
pub trait LockContext<'m>: InMemory + Copy + Send + Sync + 'm {
    // Required: what every context has.

    /// Word `index` of the lock at its home.
    ///
    /// # Errors
    /// As [`RemoteMemory::word`].
    fn home(&self, index: usize) -> Result<Word<'m, Self>, Fault>;

    /// The rank of the home.
    fn home_rank(&self) -> Rank;

    /// Word `index` of the node of a rank's slot.
    ///
    /// # Errors
    /// As [`RemoteMemory::word`].
    fn node_of(&self, rank: Rank, slot: u16, index: usize) -> Result<Word<'m, Self>, Fault>;

    /// An id of the lock, unique among the locks that share the nodes. Below 2<sup>61</sup>.
    fn lock(&self) -> u64;

    /// The owner that acquires the lock.
    fn owner(&self) -> Owner;

    /// How many owners there may be.
    fn owners(&self) -> Owners;

    // Provided: of every lock.

    /// Word `index` of this owner's node.
    ///
    /// # Errors
    /// As [`node_of`](Self::node_of).
    #[inline]
    fn node(&self, index: usize) -> Result<Word<'m, Self>, Fault> {
        let Owner { rank, slot, .. } = self.owner();
        self.node_of(rank, slot, index)
    }

    /// The next operation that this owner posts, at once, is its arrival, for a check of the order in
    /// which owners enter. Without this call, the first operation of the acquire is. Does nothing
    /// elsewhere.
    fn arrives(&self) {}

    /// Whether owners of a rank can participate in the lock at all. The participant scan of a
    /// recovery skips the other ranks.
    fn may_participate(&self, rank: Rank) -> bool {
        let _ = rank;
        true
    }

    /// What this rank [kept](Self::keep) last; `None` if nothing, or where nothing is kept.
    fn kept(&self, what: Kept) -> Option<u8> {
        let _ = what;
        None
    }

    /// Keeps something for the next acquires of this rank. An implementation may discard it.
    fn keep(&self, what: Kept, value: u8) {
        let _ = (what, value);
    }

    // Provided: of locks with other words than those of the home and the nodes.

    /// One of these words.
    ///
    /// # Errors
    /// As [`RemoteMemory::word`]; `Unsupported` if the context has none.
    fn word(&self, of: WordOf) -> Result<Word<'m, Self>, Fault> {
        let _ = of;
        Err(Fault::new(FaultKind::Unsupported))
    }

    /// The host of a rank.
    fn host_of(&self, rank: Rank) -> u32 {
        rank.0
    }

    /// The rank that holds the [host words](WordOf::Host) of this owner's host: the lowest live
    /// rank, as far as this rank knows. `None` if there are none.
    fn cohort_home(&self) -> Option<Rank> {
        None
    }

    /// Takes one of this rank's [request slots](WordOf::Request) for this owner, from its acquire
    /// until it [releases the slot](Self::release_request_slot); `None` if all are in use.
    fn take_request_slot(&self) -> Option<u16> {
        Some(self.owner().slot)
    }

    /// Releases a request slot. The owner writes nothing more to it.
    fn release_request_slot(&self, slot: u16) {
        let _ = slot;
    }

    /// The rank of the [lock-all words](WordOf::LockAll).
    fn lock_all_rank(&self) -> Rank {
        self.home_rank()
    }

    /// Whether a shared acquire here locks all targets.
    fn is_lock_all(&self) -> bool {
        false
    }
}

/// How many owners there may be: for counts in words, and for recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owners {
    /// The slots of each rank, below [`Owner::NO_SLOT`].
    pub slots: u16,
    /// The most counted owners that there may be at once, of all ranks, including cancelled acquires
    /// that still run. A lock whose words have no room for that many takes more operations.
    pub counted: u64,
    /// Whether this owner is among them. One that is not leaves room for them in the words of the
    /// lock. A context that cannot bound the number of its owners counts none.
    pub is_counted: bool,
}

impl Owners {
    /// At most `most` owners, all of them counted.
    #[must_use]
    pub const fn all_counted(slots: u16, most: u64) -> Self {
        Self { slots, counted: most, is_counted: true }
    }

    /// Whether words with room for `room` owners have room for this one at any time.
    #[inline]
    pub(crate) const fn fit(self, room: u64) -> bool {
        self.is_counted && self.counted <= room
    }

    /// How many owners may be in words with room for `room` once this one is.
    pub(crate) const fn share(self, room: u64) -> u64 {
        if self.is_counted || self.counted > room { room } else { room - self.counted }
    }
}

/// A word that some locks have beside those at the home and in the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WordOf {
    /// The lock's word at a rank, for a lock with a [word at every
    /// rank](crate::LockAlgorithm::PER_RANK_WORD).
    Rank(Rank),
    /// A word, by its index, of those that a lock has at a rank for the ranks of its own
    /// [host](LockContext::host_of), for a lock with [host words](crate::LockAlgorithm::HOST_WORDS).
    /// `Unsupported` for a rank of another host. Only ranks of that host access them, those that have
    /// resolved one also after the end of the rank. On a fabric with cards their atomics are the
    /// CPU's.
    Host(Rank, usize),
    /// One of the two [lock-all words](crate::Global::LOCK_ALL_WORDS), which the locks of all targets
    /// share, for a lock with a lock-all operation. All 0 initially.
    LockAll(usize),
    /// One of a rank's request slots at the home, in which one owner of the rank writes its request
    /// to the [server](crate::served::serve). Each rank has as many, at most 255; an error beyond
    /// the last one.
    Request(Rank, u16),
    /// The word in which a rank keeps a bound on its slots in use. Without it all slots may be in
    /// use.
    SlotsInUse(Rank),
}

/// What a rank keeps from one acquire to the next. To lose it affects speed alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// The longest pause of a rank's acquires, as an index into the table of its
    /// [`Backoff`](crate::Backoff).
    BackoffCap,
    /// How often in a row this owner's slot has bypassed a queue.
    Bypasses,
    /// 1 while this owner holds its lock. [`kept`](LockContext::kept): whether the caller's rank
    /// holds a lock, of this or another target, that other ranks may wait for.
    Inside,
}

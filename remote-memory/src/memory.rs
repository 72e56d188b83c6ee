//! The trait [`RemoteMemory`].

use core::future::{Future, ready};

use crate::{At, Chain, Fault, Link, Liveness, Patience, Rank};

/// Whether a write also wakes a waiter at its target.
///
/// An RDMA write raises no event at its target and a store wakes no futex, so a rank that sleeps in
/// [`wait_until`](RemoteMemory::wait_until) on the written word needs [`Notify::Yes`]. A rank that
/// polls needs only the write, which is cheaper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notify {
    /// Only the write.
    No,
    /// The write, then a signal (shm: wakes a sleeping waiter; verbs: a solicited event).
    Yes,
}

/// The memory of many ranks, in 8-byte words, as one of them accesses it.
///
/// # Operations
///
/// [`read`](Self::read), [`write`](Self::write), [`compare_swap`](Self::compare_swap) and
/// [`fetch_add`](Self::fetch_add) access the memory of any rank, the caller's own included, without
/// action by its owner. An operation **is posted when the call returns**, not when its future is
/// first polled. Dropping the future detaches the operation: it is not cancelled, and it keeps its
/// place in the [order](crate#order). The driver owns the result slot, so no future borrows memory
/// that others write, and leaking a future is harmless.
///
/// The future of an operation fails with `PeerDied` or `PeerLeft`; with `NoSuchRegion` if the owner
/// has deregistered the region; with `Refused` if the operation did not leave; and with `Unknown`
/// if it left and may have taken effect. The error of a detached operation is deferred: the next
/// flush to that target reports it.
///
/// `Unknown` ends the connection between the two ranks, as it does on cards: later operations of
/// each on the other's memory fail with `ConnectionLost`, and each cuts the other
/// ([`has_failed`](Self::has_failed)).
///
/// # Waiting
///
/// Waiting is an operation, never a loop around `read`: [`wait_until`](Self::wait_until) for a word
/// of the caller's own, [`pause`](Self::pause) between attempts on a peer's. So a driver can sleep,
/// a simulator can skip the time, and a model checker can block a thread until the word changes.
///
/// # Atomicity
///
/// Words are single-copy atomic. A word that is a target of `compare_swap` or `fetch_add` is
/// changed only through these and `write`, by every rank, its owner included: the fabric sends them
/// all through the one agent (CPU or card) that the region belongs to. [`store`](Self::store) is
/// for words that no other rank may write at that time.
///
/// Memory order: the completion of an operation is an acquire; its effect is a release of
/// everything that the origin did before.
pub trait RemoteMemory: Send + Sync + 'static {
    /// An address that was resolved and checked once: range, alignment, path.
    type Word<'f>: Copy + Send + Sync;
    /// A posted operation. Its output is the value of the word before the operation (unspecified
    /// for a `write`).
    type Op: Future<Output = Result<u64, Fault>> + Unpin + Send + 'static;
    /// See [`wait_until`](Self::wait_until).
    type Wait<'f, P: Fn(u64) -> bool + Unpin + Send + 'f>: Future<Output = Result<u64, Fault>> + Unpin + Send;
    /// See [`pause`](Self::pause).
    type Pause<'f>: Future<Output = ()> + Unpin + Send;

    /// The rank that posts the operations.
    fn rank(&self) -> Rank;

    /// The number of ranks of the world.
    fn size(&self) -> u32;

    /// Resolves an address. Callers do this once, outside their loops.
    ///
    /// # Errors
    /// `NoSuchRank`, `NoSuchRegion`, `OutOfRange`, `Misaligned` (words lie at multiples of 8), and
    /// the errors of mapping a region for the first time (`NoDescriptors`, `NoMemory`, `PeerDied`).
    fn word(&self, at: At) -> Result<Self::Word<'_>, Fault>;

    /// Reads a word.
    #[inline(always)]
    fn read(&self, word: Self::Word<'_>) -> Self::Op {
        self.post_link(Link::Read { word, waited: true })
    }

    /// Writes a word.
    #[inline(always)]
    fn write(&self, word: Self::Word<'_>, value: u64, notify: Notify) -> Self::Op {
        self.post_link(Link::Write { word, value, notify, waited: true })
    }

    /// Stores `new` if the word is `expected`. The output is the value that was found; the swap
    /// succeeded if it equals `expected`.
    #[inline(always)]
    fn compare_swap(&self, word: Self::Word<'_>, expected: u64, new: u64) -> Self::Op {
        self.post_link(Link::CompareSwap { word, expected, new, waited: true })
    }

    /// Adds to a word, wrapping. The output is the value before the addition.
    #[inline(always)]
    fn fetch_add(&self, word: Self::Word<'_>, add: u64) -> Self::Op {
        self.post_link(Link::FetchAdd { word, add, waited: true })
    }

    /// Whether a [`write`](Self::write) is atomic with respect to compare-swaps and fetch-adds on
    /// the same word. If it is not, a concurrent write may be lost, and words that others may
    /// change at the time are changed by atomics alone.
    ///
    /// Writes are atomic on CPUs. Cards do not guarantee it (InfiniBand Architecture Specification,
    /// volume 1, 9.4.5), and a failing compare-swap of Soft-RoCE writes back the value that it
    /// found.
    fn write_is_atomic(&self) -> bool {
        true
    }

    /// Posts operations on words of **one** target as an ordered chain: each takes effect after the
    /// one before it. The future waits for the links that are [waited for](Link::waited); the
    /// others are detached.
    ///
    /// Links do not depend on each other's outcome: a compare-swap that finds another value does
    /// not stop the links behind it.
    fn post<const N: usize>(&self, links: [Link<Self::Word<'_>>; N]) -> Chain<Self::Op, N> {
        Chain::of(links.map(|link| {
            let waited = link.waited();
            let op = self.post_link(link);
            waited.then_some(op)
        }))
    }

    /// Posts the operation that a link describes, whether it is one of a chain or alone. Implementations
    /// for memory of this process say `inline(always)`: the caller mostly knows which operation it is.
    fn post_link(&self, link: Link<Self::Word<'_>>) -> Self::Op;

    /// Loads a word of the caller's own memory (acquire).
    ///
    /// # Errors
    /// `NotOwn` for a peer's word.
    fn load(&self, own: Self::Word<'_>) -> Result<u64, Fault>;

    /// Stores a word of the caller's own memory (release). Only for words that no other rank may
    /// write at this time.
    ///
    /// # Errors
    /// `NotOwn` for a peer's word.
    fn store(&self, own: Self::Word<'_>, value: u64) -> Result<(), Fault>;

    /// Passes on the values that a word of the caller's own memory was set to since the last call,
    /// in order. `false` if they are not known: in the first call, and always where memory does not
    /// record them, which only a simulation does. A hint for a task that would look at many words
    /// otherwise.
    #[inline(always)]
    fn take_values(&self, own: Self::Word<'_>, each: &mut dyn FnMut(u64)) -> bool {
        let _ = (own, each);
        false
    }

    /// Waits until a word of the caller's own memory satisfies `predicate`, and returns the value
    /// that did.
    ///
    /// Polls for a while, then sleeps until a write with [`Notify::Yes`]. The word is checked
    /// before `patience` is: a value that satisfies the predicate is returned even if a watched
    /// rank died.
    ///
    /// # Errors
    /// `NotOwn`; `TimedOut`, `PeerDied`, `PeerLeft` as [`Patience`] says.
    ///
    /// # Cancel safety
    /// Dropping the future stops the wait and has no other effect.
    fn wait_until<'f, P>(&'f self, own: Self::Word<'f>, predicate: P, patience: Patience) -> Self::Wait<'f, P>
    where
        P: Fn(u64) -> bool + Unpin + Send + 'f;

    /// Waits for `nanos` nanoseconds between two attempts on `word`, or less if the driver learns
    /// that `word` changed. One of 0 is pending once, so that other tasks of the thread run; one of less than 64
    /// need not be.
    ///
    /// # Cancel safety
    /// Dropping the future stops the wait and has no other effect.
    fn pause<'f>(&'f self, word: Self::Word<'f>, nanos: u64) -> Self::Pause<'f>;

    /// The driver's monotonic time in nanoseconds. Its origin is arbitrary.
    fn now(&self) -> u64;

    /// What this rank knows of a rank's state. Cheap enough for every iteration of a contended
    /// loop. A rank that is not in the world, as a damaged lock word may name, is `Left`.
    ///
    /// Ranks fail one memory at a time. A rank that learns of a failure first *cuts* the failed
    /// rank: it ends that rank's access to its own memory, for good. `Dead` means that this is
    /// done: no operation of the failed rank on the caller's memory takes effect any more. The
    /// failed rank may live on, because silence cannot be told from death; what it posts to memory
    /// that it is cut from fails. For the memory of a third rank see [`has_cut`](Self::has_cut).
    ///
    /// If some ranks of a host survive, they learn of a death on that host before any rank of
    /// another host does.
    fn liveness(&self, rank: Rank) -> Liveness;

    /// Whether `rank` has failed as a user of the memory of `home`: it is [`Dead`](Liveness::Dead),
    /// or the [connection](Self::lost_connection) between the two is lost, and `home` cuts it or
    /// will. It may live, and go on elsewhere. As cheap as [`liveness`](Self::liveness) while no
    /// connection is lost.
    fn has_failed(&self, home: Rank, rank: Rank) -> bool {
        self.liveness(rank) == Liveness::Dead || self.lost_connection(home, rank) == Some(rank)
    }

    /// Whether no operation of `rank` on the memory of `home` takes effect any more: `home` has cut
    /// it, or it has left. Also true if `home` itself has failed or left: this rank does not use
    /// its memory any more. Once true, it stays true.
    ///
    /// A lock word is taken from a failed owner only when this holds at the home of the word. It
    /// costs a read of `home`'s memory and needs no action by `home`'s program, but a process that
    /// is stopped cuts no rank: ask again after a pause, for a bounded time.
    ///
    /// The default is for memory that a failed rank cannot reach.
    ///
    /// # Errors
    /// `NoSuchRank` for `home`, and as for a [`read`](Self::read) of its memory. Nothing is known
    /// then.
    fn has_cut(&self, home: Rank, rank: Rank) -> impl Future<Output = Result<bool, Fault>> + Send {
        ready(Ok(self.liveness(rank) != Liveness::Alive || self.has_failed(home, rank)))
    }

    /// The failed rank of this index, in the order in which this rank learned of them; `None` if it has
    /// found fewer [`Dead`](Liveness::Dead). As cheap as [`liveness`](Self::liveness), and at least as up
    /// to date.
    ///
    /// The default asks every rank, in their order, which suits a world in which one rank fails.
    fn failure(&self, index: u32) -> Option<Rank> {
        let mut failed = (0..self.size()).map(Rank).filter(|rank| self.liveness(*rank) == Liveness::Dead);
        failed.nth(index as usize)
    }

    /// The lowest rank, from `from` on, whose connection to `home` is lost. As cheap as
    /// [`liveness`](Self::liveness) while `home` has lost none.
    ///
    /// Every rank of the world learns of a lost connection, as of a death; `home` itself once it
    /// has cut the other rank. It is lost for good.
    ///
    /// The default is for memory whose connections are not lost.
    fn lost_connection(&self, home: Rank, from: Rank) -> Option<Rank> {
        let _ = (home, from);
        None
    }

    /// A number that is 0 while this rank knows of no rank that has ended, in whatever way, and of no
    /// lost connection, and that is another one after it learns of the next. It may change at other
    /// times, too. As cheap as [`liveness`](Self::liveness).
    ///
    /// The default asks every rank, and is for memory whose connections are not lost.
    fn ends(&self) -> u32 {
        (0..self.size()).filter(|rank| self.liveness(Rank(*rank)) != Liveness::Alive).count() as u32
    }
}

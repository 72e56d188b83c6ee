//! The trait.

use core::future::Future;

use crate::{At, Chain, Fault, Link, Liveness, Patience, Rank};

/// Whether a write also rings its target's doorbell.
///
/// An RDMA write raises no event at its target and a store wakes no futex, so whoever sleeps in
/// [`wait_until`](RemoteMemory::wait_until) on the written word needs [`Notify::Yes`]. Whoever polls needs only the
/// write, and the write is cheaper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notify {
    /// Just the write.
    No,
    /// The write, then a signal (shm: wake the sleeper if there is one; verbs: a solicited event).
    Yes,
}

/// Memory of many ranks, in 8-byte words, seen from one of them.
///
/// # Operations
///
/// [`read`](Self::read), [`write`](Self::write), [`compare_swap`](Self::compare_swap) and
/// [`fetch_add`](Self::fetch_add) go to anybody's memory, one's own included, without any help from its owner. An
/// operation **is posted when the call returns**, not when its future is first polled. Dropping the future detaches
/// it: it is not cancelled, and it still takes its place in the [order](crate#order). The driver keeps the landing
/// slot, so no future borrows memory that others write, and leaking one is harmless.
///
/// An operation fails, from its future, with `PeerDied` or `PeerLeft`; with `NoSuchRegion` where the owner has taken the
/// region back; with `Refused` where it did not leave; and with `Unknown` where it did and may have taken effect. The
/// error of one that nobody awaits is not lost: it sticks to the connection to that target, and the next flush of it
/// reports it.
///
/// # Waiting
///
/// Waiting is an operation, never a loop around `read`: [`wait_until`](Self::wait_until) for one's own word,
/// [`pause`](Self::pause) between attempts on somebody else's. That is what lets a driver sleep, a simulator skip the
/// time, and a model checker block a thread until the word changes.
///
/// # Atomicity
///
/// Words are single-copy atomic. A word that is a target of `compare_swap` or `fetch_add` is changed through these
/// (and `write`) only, by everybody, its owner included: the fabric sends them all through the one agent (CPU or card)
/// that the region belongs to. [`store`](Self::store) is for words that nobody else may write at that time.
///
/// Order of memory: an operation's completion is an acquire, its effect a release, of everything the origin did before.
pub trait RemoteMemory: Send + Sync + 'static {
    /// A place that was resolved and checked once: range, alignment, path.
    type Word<'f>: Copy + Send + Sync;
    /// An operation under way. Its value is the word before the operation (of a `write`: nothing useful).
    type Op: Future<Output = Result<u64, Fault>> + Unpin + Send + 'static;
    /// See [`wait_until`](Self::wait_until).
    type Wait<'f, P: Fn(u64) -> bool + Unpin + Send + 'f>: Future<Output = Result<u64, Fault>> + Unpin + Send;
    /// See [`pause`](Self::pause).
    type Pause<'f>: Future<Output = ()> + Unpin + Send;

    /// The rank on whose behalf operations are posted.
    fn rank(&self) -> Rank;

    /// How many ranks the world has.
    fn size(&self) -> u32;

    /// Resolves a place. Do it once, outside the loop.
    ///
    /// # Errors
    /// `NoSuchRank`, `NoSuchRegion`, `OutOfRange`, `Misaligned` (words lie at multiples of 8), and what the fabric
    /// meets when it reaches a region for the first time (`NoDescriptors`, `NoMemory`, `PeerDied`).
    fn word(&self, at: At) -> Result<Self::Word<'_>, Fault>;

    /// Reads a word.
    fn read(&self, word: Self::Word<'_>) -> Self::Op;

    /// Writes a word.
    fn write(&self, word: Self::Word<'_>, value: u64, notify: Notify) -> Self::Op;

    /// If the word is `expected`, makes it `new`. The value is what was found: success is when it equals `expected`.
    fn compare_swap(&self, word: Self::Word<'_>, expected: u64, new: u64) -> Self::Op;

    /// Adds to a word, wrapping. The value is what was there before.
    fn fetch_add(&self, word: Self::Word<'_>, add: u64) -> Self::Op;

    /// Whether a [`write`](Self::write) is atomic against compare-swaps and fetch-adds on the same word. Where it is not,
    /// a write that meets one of them may be lost: what others may change at that time is changed by atomics alone.
    ///
    /// CPUs are; cards do not promise it (InfiniBand Architecture Specification, volume 1, 9.4.5), and Soft-RoCE's failing
    /// compare-swap writes back what it found.
    fn write_is_atomic(&self) -> bool {
        true
    }

    /// Posts operations on words of **one** target as an ordered chain: each takes effect after the one before it.
    /// The future waits for the links that are [waited for](Link::waited); the others are posted and let go.
    ///
    /// Links do not depend on each other's outcome: a compare-swap that finds another value stops nothing.
    fn post<const N: usize>(&self, links: [Link<Self::Word<'_>>; N]) -> Chain<Self::Op, N> {
        Chain::of(links.map(|link| {
            let waited = link.waited();
            let op = self.post_link(link);
            waited.then_some(op)
        }))
    }

    /// Posts one link of a chain as the operation that it is.
    #[inline(always)] // which operation it is is mostly known to the compiler
    fn post_link(&self, link: Link<Self::Word<'_>>) -> Self::Op {
        match link {
            Link::Read { word, .. } => self.read(word),
            Link::Write { word, value, notify, .. } => self.write(word, value, notify),
            Link::CompareSwap { word, expected, new, .. } => self.compare_swap(word, expected, new),
            Link::FetchAdd { word, add, .. } => self.fetch_add(word, add),
        }
    }

    /// Reads one's own word at once (acquire).
    ///
    /// # Errors
    /// `NotOwn` for a peer's word.
    fn load(&self, own: Self::Word<'_>) -> Result<u64, Fault>;

    /// Writes one's own word at once (release). For words that nobody else may write at this time.
    ///
    /// # Errors
    /// `NotOwn` for a peer's word.
    fn store(&self, own: Self::Word<'_>, value: u64) -> Result<(), Fault>;

    /// Waits until one's own word satisfies `predicate` and gives the value that did.
    ///
    /// Polls for a while, then sleeps until a write with [`Notify::Yes`]. The word is looked at before patience is: a
    /// value that is there is given, whoever died since.
    ///
    /// # Errors
    /// `NotOwn`; `TimedOut`, `PeerDied`, `PeerLeft` as [`Patience`] says.
    ///
    /// # Cancel safety
    /// Dropping the future stops the wait and nothing else.
    fn wait_until<'f, P>(&'f self, own: Self::Word<'f>, predicate: P, patience: Patience) -> Self::Wait<'f, P>
    where
        P: Fn(u64) -> bool + Unpin + Send + 'f;

    /// Waits for `nanos` nanoseconds, or less where it is known that `word` changed: between two attempts on it.
    ///
    /// # Cancel safety
    /// Dropping the future stops the wait and nothing else.
    fn pause<'f>(&'f self, word: Self::Word<'f>, nanos: u64) -> Self::Pause<'f>;

    /// The driver's time in nanoseconds; it never goes back, its zero means nothing.
    fn now(&self) -> u64;

    /// What is known here of a rank; cheap enough for every turn of a contended loop. A rank that the world does not
    /// have, as a damaged lock word may name, is `Left`.
    ///
    /// When a rank is called dead, its operations have taken effect or never will: what it held may be taken. (A process
    /// ends for its peers after the kernel has closed its queue pairs.) A rank that is only *suspected*, because its host
    /// fell silent, may still live: its operations can no longer be told from those of the dead.
    ///
    /// Where some of a host's ranks live on, they are told of a death there before any rank of another host is.
    fn liveness(&self, rank: Rank) -> Liveness;

    /// Some rank that died, if any did: as cheap as [`liveness`](Self::liveness), and told no later than that.
    fn failed_rank(&self) -> Option<Rank>;
}

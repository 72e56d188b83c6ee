//! Locks as two functions.

use std::fmt;
use std::future::Future;

use onesided_remote_memory::{Fault, FaultKind, Patience, RemoteMemory, debug};

use crate::backoff::Pauses;
use crate::recovery::POLL_INTERVAL;
use crate::{Backoff, Held, Intent, IntentFn, LockAlgorithm, LockContext, LockUse, Mode, Op, Owner, Word};

/// A lock as two functions over remote memory: the short way to write one. [`Simple`] makes a
/// [`LockAlgorithm`] of it, for the verification kit, windows and benchmarks.
///
/// It does not recover from a dead owner. An acquire and a release cost one read more than the
/// functions post: write a [`LockAlgorithm`] if that matters.
///
/// ```
/// use onesided_lock_algos::remote_memory::{Fault, RemoteMemory};
/// use onesided_lock_algos::{SimpleUse, SimpleLock};
///
/// #[derive(Clone, Copy, Debug)]
/// struct OneWord;
///
/// impl SimpleLock for OneWord {
///     const NAME: &'static str = "one-word";
///     const WORDS: usize = 1;
///
///     async fn acquire<M: RemoteMemory>(&self, lock: SimpleUse<'_, '_, M>) -> Result<(), Fault> {
///         let mut lock = lock;
///         while lock.memory.compare_swap(lock.word(0), 0, 1).await? != 0 {
///             lock.pause(0).await?;
///         }
///         Ok(())
///     }
///
///     async fn release<M: RemoteMemory>(&self, lock: SimpleUse<'_, '_, M>) -> Result<(), Fault> {
///         lock.memory.compare_swap(lock.word(0), 1, 0).await.map(drop)
///     }
/// }
/// ```
pub trait SimpleLock: fmt::Debug + Send + Sync + 'static {
    /// The name in benchmarks and reports.
    const NAME: &'static str;
    /// Words of the lock at its home, all 0 initially.
    const WORDS: usize;
    /// Words of each owner's node, in the memory of its own rank; in windows at most 8. All 0
    /// initially; a later owner with the same slot finds what an earlier one left there, possibly of
    /// another lock.
    const NODE_WORDS: usize = 0;
    /// Whether it has a shared mode ([`SimpleUse::mode`]). Otherwise readers hold it exclusively.
    const SHARED: bool = false;
    /// Whether a waiter can leave: [`pause`](SimpleUse::pause) and
    /// [`wait_until`](SimpleUse::wait_until) then fail when the acquire may not wait any longer.
    /// `false` for a queue as in its paper: a waiter whose acquire is cancelled keeps its place until
    /// its turn, and [`Simple`] releases the lock then. Such a lock asks
    /// [`may_wait`](SimpleUse::may_wait) before it queues.
    const LEAVES: bool = true;

    /// Whether the words show a lock without owners and waiters. Default: all are 0.
    #[must_use]
    fn is_free(home: &[u64]) -> bool {
        home.iter().all(|word| *word == 0)
    }

    /// Acquires the lock.
    ///
    /// # Errors
    /// Those of the operations, and those of [`SimpleUse::pause`] and [`SimpleUse::wait_until`]. When
    /// one of these fails, undo what others wait for by operations that do not wait, then return its
    /// error. A lock that cannot be left so says so ([`LEAVES`](Self::LEAVES)).
    fn acquire<M: RemoteMemory>(&self, lock: SimpleUse<'_, '_, M>) -> impl Future<Output = Result<(), Fault>> + Send;

    /// Releases it.
    ///
    /// # Errors
    /// Those of the operations.
    fn release<M: RemoteMemory>(&self, lock: SimpleUse<'_, '_, M>) -> impl Future<Output = Result<(), Fault>> + Send;
}

/// One owner's use of a [`SimpleLock`].
pub struct SimpleUse<'m, 'w, M: RemoteMemory> {
    /// The memory that the lock is in.
    pub memory: &'m M,
    /// The owner. Its [bits](Owner::to_bits) are unique among owners that use the lock at a time, and
    /// may be 0.
    pub owner: Owner,
    mode: Mode,
    places: &'w (dyn Places<'m, M> + 'w),
    intent: IntentFn<'w>,
    leaves: bool,
    pauses: Pauses<'m>,
}

/// The part of a context that a simple lock needs, as a trait object.
trait Places<'m, M: RemoteMemory>: Sync {
    fn home(&self, index: usize) -> Result<M::Word<'m>, Fault>;
    fn node_of(&self, owner: Owner, index: usize) -> Result<M::Word<'m>, Fault>;
    fn arrives(&self);
}

impl<'m, P: LockContext<'m>> Places<'m, P::Memory> for P {
    fn home(&self, index: usize) -> Result<Word<'m, P>, Fault> {
        LockContext::home(self, index)
    }

    fn node_of(&self, Owner { rank, slot, .. }: Owner, index: usize) -> Result<Word<'m, P>, Fault> {
        LockContext::node_of(self, rank, slot, index)
    }

    fn arrives(&self) {
        LockContext::arrives(self);
    }
}

impl<'m, 'w, M: RemoteMemory> SimpleUse<'m, 'w, M> {
    /// Fails if the last word of the lock or of its node cannot be resolved, so that none fails later:
    /// they lie in one region each.
    fn new<L: SimpleLock, P: LockContext<'m, Memory = M>>(
        lock: &'w LockUse<'m, P>,
        intent: IntentFn<'w>,
        pauses: Pauses<'m>,
    ) -> Result<Self, Fault> {
        const { assert!(L::WORDS > 0, "a lock has a word at its home") };
        lock.context.home(L::WORDS - 1)?;
        if L::NODE_WORDS > 0 {
            lock.context.node(L::NODE_WORDS - 1)?;
        }
        let LockUse { memory, ref context, mode, .. } = *lock;
        Ok(Self { memory, owner: lock.me(), mode, places: context, intent, leaves: L::LEAVES, pauses })
    }

    /// Word `index` of the lock.
    ///
    /// # Panics
    /// If the lock has no such word.
    #[must_use]
    #[track_caller]
    pub fn word(&self, index: usize) -> M::Word<'m> {
        self.places.home(index).expect("the lock has such a word")
    }

    /// Word `index` of this owner's node, in the memory of its rank.
    ///
    /// # Panics
    /// If the node has no such word.
    #[must_use]
    #[track_caller]
    pub fn node(&self, index: usize) -> M::Word<'m> {
        self.places.node_of(self.owner, index).expect("the node has such a word")
    }

    /// Word `index` of another owner's node.
    ///
    /// # Errors
    /// As [`RemoteMemory::word`].
    pub fn node_of(&self, owner: Owner, index: usize) -> Result<M::Word<'m>, Fault> {
        self.places.node_of(owner, index)
    }

    /// The mode that is requested, or held; of a lock without a [shared
    /// mode](SimpleLock::SHARED) it does not matter.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// Whether the acquire may wait for other owners.
    ///
    /// # Errors
    /// It may not: `Closed` if it is cancelled, `TimedOut` if it is a try.
    pub fn may_wait(&self) -> Result<(), Fault> {
        let intent = (self.intent)();
        if intent.is_patient() { Ok(()) } else { Err(intent.given_up()) }
    }

    /// The next operation, which has to follow at once, is the arrival of this owner, by which its
    /// place in a queue is judged; the last one so named. Without this call the acquire's first
    /// operation is.
    pub fn arrives(&self) {
        self.places.arrives();
    }

    /// Waits until word `index` of the lock may have changed, longer each time. The waiter looks by
    /// itself: [`Notify::No`](onesided_remote_memory::Notify) suffices.
    ///
    /// # Errors
    /// Those of [`may_wait`](Self::may_wait), if the lock can be [left](SimpleLock::LEAVES); see
    /// [`SimpleLock::acquire`].
    pub async fn pause(&mut self, index: usize) -> Result<(), Fault> {
        self.pause_on(self.word(index)).await
    }

    /// The same for any word, such as one of another owner's node.
    ///
    /// # Errors
    /// As [`pause`](Self::pause).
    pub async fn pause_on(&mut self, word: M::Word<'m>) -> Result<(), Fault> {
        self.go_on()?;
        self.memory.pause(word, self.pauses.next_nanos()).await;
        Ok(())
    }

    /// Waits until word `index` of this owner's node satisfies `predicate`, and returns its value.
    /// The waiter sleeps: only a write with [`Notify::Yes`](onesided_remote_memory::Notify) wakes it.
    /// A value that is there is returned, whether or not the acquire may wait.
    ///
    /// # Errors
    /// As [`pause`](Self::pause).
    pub async fn wait_until(
        &mut self,
        index: usize,
        predicate: impl Fn(u64) -> bool + Copy + Unpin + Send + 'm,
    ) -> Result<u64, Fault> {
        let own = self.node(index);
        loop {
            let value = self.memory.load(own)?;
            if predicate(value) {
                return Ok(value);
            }
            self.go_on()?;
            let patience = Patience::until(self.memory.now().saturating_add(POLL_INTERVAL));
            match self.memory.wait_until(own, predicate, patience).await {
                Err(fault) if fault.kind() == FaultKind::TimedOut => {}
                waited => return waited,
            }
        }
    }

    fn go_on(&self) -> Result<(), Fault> {
        if self.leaves || (self.intent)().is_leaving() { self.may_wait() } else { Ok(()) }
    }
}

debug!([M: RemoteMemory] SimpleUse<'_, '_, M>, |this| "SimpleUse {{ owner: {:?}, .. }}", this.owner);

/// A [`LockAlgorithm`] of a [`SimpleLock`].
#[derive(Clone, Copy, Debug)]
pub struct Simple<L> {
    lock: L,
    backoff: Backoff,
}

impl<L: SimpleLock> Simple<L> {
    /// Waiters pause by the default [`Backoff`].
    #[must_use]
    pub const fn new(lock: L) -> Self {
        Self { lock, backoff: Backoff::DEFAULT }
    }

    /// Waiters pause by this table.
    #[must_use]
    pub fn with_backoff(self, backoff: Backoff) -> Self {
        Self { backoff, ..self }
    }

    async fn release<'m, P: LockContext<'m>>(&'m self, lock: LockUse<'m, P>) -> Result<(), Fault> {
        self.lock.release(SimpleUse::new::<L, P>(&lock, &|| Intent::LOCK, self.backoff.pauses(lock.me()))?).await
    }
}

impl<L: SimpleLock> LockAlgorithm for Simple<L> {
    const NAME: &'static str = L::NAME;
    const HOME_WORDS: usize = L::WORDS;
    const NODE_WORDS: usize = L::NODE_WORDS;
    const RECOVERS: bool = false;

    fn is_free(home: &[u64]) -> bool {
        L::is_free(home)
    }

    /// What a lock leaves in its nodes is its own business.
    fn is_idle(_node: &[u64]) -> bool {
        true
    }

    fn uses_node(&self, _mode: Mode) -> bool {
        L::NODE_WORDS > 0
    }

    /// A read that decides nothing: the functions post the operations.
    fn start<'m, P: LockContext<'m>>(&self, lock: LockUse<'m, P>) -> Result<Op<P>, Fault> {
        Ok(lock.memory.read(lock.home))
    }

    fn holds(&self, _owner: u64, _mode: Mode, _first: u64) -> bool {
        false
    }

    async fn contend<'m, P: LockContext<'m>>(
        &'m self,
        lock: LockUse<'m, P>,
        first: Result<u64, Fault>,
        intent: IntentFn<'_>,
    ) -> Result<Held, Fault> {
        first?;
        if intent().is_over() {
            return Err(intent().given_up());
        }
        lock.context.arrives();
        self.lock.acquire(SimpleUse::new::<L, P>(&lock, intent, self.backoff.pauses(lock.me()))?).await?;
        if !L::LEAVES && intent().is_over() {
            self.release(lock).await?;
            return Err(intent().given_up());
        }
        Ok(Held::cleanly(if L::SHARED { lock.mode } else { Mode::Exclusive }))
    }

    fn start_release<'m, P: LockContext<'m>>(&self, lock: LockUse<'m, P>) -> Result<Op<P>, Fault> {
        Ok(lock.memory.read(lock.home))
    }

    async fn finish_release<'m, P: LockContext<'m>>(
        &'m self,
        lock: LockUse<'m, P>,
        found: Result<u64, Fault>,
    ) -> Result<(), Fault> {
        found?;
        self.release(lock).await
    }
}

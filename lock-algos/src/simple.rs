//! Locks as two functions.

use std::fmt;
use std::future::Future;

use onesided_remote_memory::{Fault, RemoteMemory};

use crate::backoff::Pauses;
use crate::{Backoff, Held, Intent, IntentFn, LockAlgorithm, LockContext, LockUse, Mode, Owner};

/// A lock as two functions over remote memory: the short way to write one. [`Simple`] makes a
/// [`LockAlgorithm`] of it, for the verification kit, windows and benchmarks.
///
/// Every owner holds it exclusively, and it does not recover from a dead owner. An acquire and a
/// release cost one read more than the functions post: write a [`LockAlgorithm`] if that matters.
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
    /// Words of the lock at its home, at most [`SimpleUse::MOST_WORDS`], all 0 initially.
    const WORDS: usize;

    /// Whether the words show a lock without owners and waiters. Default: all are 0.
    #[must_use]
    fn is_free(home: &[u64]) -> bool {
        home.iter().all(|word| *word == 0)
    }

    /// Acquires the lock.
    ///
    /// # Errors
    /// Those of the operations, and that of [`SimpleUse::pause`]. When `pause` fails, undo what others
    /// wait for by operations that do not wait, then return its error. A lock that cannot be left
    /// without waiting needs a [`LockAlgorithm`].
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
    words: [Option<M::Word<'m>>; MOST_WORDS],
    intent: IntentFn<'w>,
    pauses: Pauses<'m>,
}

const MOST_WORDS: usize = 8;

impl<'m, 'w, M: RemoteMemory> SimpleUse<'m, 'w, M> {
    /// The most words of a lock.
    pub const MOST_WORDS: usize = MOST_WORDS;

    fn new<L: SimpleLock>(
        lock: LockUse<'m, M, impl LockContext<'m, M>>,
        intent: IntentFn<'w>,
        pauses: Pauses<'m>,
    ) -> Result<Self, Fault> {
        const { assert!(L::WORDS <= MOST_WORDS) };
        let mut words = [None; MOST_WORDS];
        for (index, word) in words.iter_mut().enumerate().take(L::WORDS) {
            *word = Some(lock.context.home(index)?);
        }
        Ok(Self { memory: lock.memory, owner: lock.me(), words, intent, pauses })
    }

    /// Word `index` of the lock.
    ///
    /// # Panics
    /// If the lock has no such word.
    #[must_use]
    #[track_caller]
    pub fn word(&self, index: usize) -> M::Word<'m> {
        self.words.get(index).copied().flatten().expect("the lock has such a word")
    }

    /// Waits until word `index` may have changed, longer each time.
    ///
    /// # Errors
    /// The acquire may not wait, or not any longer: see [`SimpleLock::acquire`]. `Closed` if it is
    /// cancelled, `TimedOut` if it is a try.
    pub async fn pause(&mut self, index: usize) -> Result<(), Fault> {
        let intent = (self.intent)();
        if !intent.is_patient() {
            return Err(intent.given_up());
        }
        self.memory.pause(self.word(index), self.pauses.next_nanos()).await;
        Ok(())
    }
}

impl<M: RemoteMemory> fmt::Debug for SimpleUse<'_, '_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimpleUse").field("owner", &self.owner).finish_non_exhaustive()
    }
}

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
}

impl<L: SimpleLock> LockAlgorithm for Simple<L> {
    const NAME: &'static str = L::NAME;
    const HOME_WORDS: usize = L::WORDS;
    const NODE_WORDS: usize = 0;

    fn is_free(home: &[u64]) -> bool {
        L::is_free(home)
    }

    fn uses_node(&self, _mode: Mode) -> bool {
        false
    }

    /// A read that decides nothing: the functions post the operations.
    fn start<'m, M: RemoteMemory>(&self, lock: LockUse<'m, M, impl LockContext<'m, M>>) -> Result<M::Op, Fault> {
        Ok(lock.memory.read(lock.home))
    }

    fn holds(&self, _owner: u64, _mode: Mode, _first: u64) -> bool {
        false
    }

    async fn contend<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        lock: LockUse<'m, M, P>,
        first: Result<u64, Fault>,
        intent: IntentFn<'_>,
    ) -> Result<Held, Fault> {
        first?;
        if intent().is_over() {
            return Err(intent().given_up());
        }
        self.lock.acquire(SimpleUse::new::<L>(lock, intent, self.backoff.pauses(lock.me()))?).await?;
        Ok(Held::cleanly(Mode::Exclusive))
    }

    fn start_release<'m, M: RemoteMemory>(
        &self,
        lock: LockUse<'m, M, impl LockContext<'m, M>>,
    ) -> Result<M::Op, Fault> {
        Ok(lock.memory.read(lock.home))
    }

    async fn finish_release<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        lock: LockUse<'m, M, P>,
        found: Result<u64, Fault>,
    ) -> Result<(), Fault> {
        found?;
        self.lock.release(SimpleUse::new::<L>(lock, &|| Intent::LOCK, self.backoff.pauses(lock.me()))?).await
    }
}

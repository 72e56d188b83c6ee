//! The trait of a lock algorithm.

use std::fmt::Debug;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use onesided_remote_memory::{Fault, RemoteMemory, copied, debug};

use crate::recovery::{Participants, RecoverableWord};
use crate::{Held, InMemory, Intent, IntentFn, LockContext, Mode, Op, Owner, Word};

/// The resolved words of a lock: its first word at the home, and the owner's bits
/// ([`Owner::to_bits`](crate::Owner::to_bits)), of which the two highest are left to the algorithm.
/// A guard keeps the bits while it holds the lock.
pub type Words<'m, M> = (<M as RemoteMemory>::Word<'m>, u64);

/// One owner's use of one lock.
pub struct LockUse<'m, P: InMemory> {
    /// The memory that the lock is in.
    pub memory: &'m P::Memory,
    /// Where the words of the lock lie.
    pub context: P,
    /// The first word at the home.
    pub home: Word<'m, P>,
    /// The owner's bits, of which the two highest are the algorithm's.
    pub owner: u64,
    /// The mode in which the lock is requested, or held.
    pub mode: Mode,
}

copied!([P: InMemory + Copy] LockUse<'_, P>);
debug!([P: InMemory] LockUse<'_, P>, |this| "LockUse {{ owner: {:?}, mode: {:?}, .. }}", this.owner, this.mode);

impl<'m, P: LockContext<'m>> LockUse<'m, P> {
    /// The use of a lock by the owner of `context`. `words` are those of the acquire.
    #[inline(always)]
    pub const fn new(memory: &'m P::Memory, context: P, (home, owner): Words<'m, P::Memory>, mode: Mode) -> Self {
        Self { memory, context, home, owner, mode }
    }

    /// The same with other words' bits for the owner.
    #[inline(always)]
    pub(crate) fn with_owner(self, owner: u64) -> Self {
        Self { owner, ..self }
    }

    /// The owner.
    #[inline(always)]
    pub(crate) const fn me(&self) -> Owner {
        Owner::from_bits(self.owner)
    }

    /// Word `index` of the owner's node.
    #[inline(always)]
    pub(crate) fn node(&self, index: usize) -> Result<Word<'m, P>, Fault> {
        self.context.node(index)
    }

    /// The ranks that may participate in the lock.
    pub(crate) const fn participants(&self) -> Participants<'m, P> {
        Participants { memory: self.memory, context: self.context }
    }

    /// Reads the first word at the home.
    pub(crate) fn look<W: RecoverableWord>(&self) -> Found<Op<P>, W> {
        Found(self.memory.read(self.home), PhantomData)
    }

    /// Adds to that word. Returns the previous word.
    pub(crate) fn add<W: RecoverableWord>(&self, add: u64) -> Found<Op<P>, W> {
        Found(self.memory.fetch_add(self.home, add), PhantomData)
    }

    /// Swaps that word if it is `found`. Returns the previous word.
    pub(crate) fn swap<W: RecoverableWord>(&self, expected: W, new: W) -> Found<Op<P>, W> {
        Found(self.memory.compare_swap(self.home, expected.to_bits(), new.to_bits()), PhantomData)
    }

    /// The same if it does not matter which owner swapped the word: returns the current word.
    pub(crate) async fn change<W: RecoverableWord>(&self, found: W, new: W) -> Result<W, Fault> {
        let now = self.swap(found, new).await?;
        Ok(if now == found { new } else { now })
    }
}

/// The word that an operation finds. As small as the operation, which an `async` block would have
/// twice.
pub(crate) struct Found<O, W>(O, PhantomData<fn() -> W>);

impl<O: Future<Output = Result<u64, Fault>> + Unpin, W: RecoverableWord> Future for Found<O, W> {
    type Output = Result<W, Fault>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map_ok(W::from_bits)
    }
}

/// What a release has left to do after its first operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)] // a result is two registers
pub enum Rest {
    /// Nothing: the lock is released.
    Nothing,
    /// Operations of this owner alone: [`LockAlgorithm::finish_release`] is ready at its first poll on
    /// a fabric whose operations complete at post.
    Steps,
    /// It waits for a step of another owner, which is about to come.
    Waits,
    /// [`LockAlgorithm::finish_release`] has to tell.
    Unknown,
}

/// A lock algorithm, written once for every fabric, the simulator and the model checkers.
///
/// An acquire has two parts: a synchronous [`start`](Self::start), which posts the first operation,
/// and an `async` [`contend`](Self::contend), for when the first operation did not acquire the
/// lock. So the nonblocking lock of jiang-2004 (section 5.1) shares its code with the blocking one,
/// and no future is moved after it was polled. A release is split in the same way.
///
/// An algorithm has no state other than the words in remote memory: `&self` is its configuration.
///
/// # Death
///
/// The death of an owner does not block the others. An acquire that [recovers](Intent::recovers)
/// takes the lock from the dead owner, or restores it together with the other waiters, and learns
/// that an owner died in its critical section ([`Held::recovered`]). Other acquires fail with
/// `OwnerDied` or `ParticipantDied` until one has recovered the lock. This rests on one guarantee:
/// when [`liveness`](RemoteMemory::liveness) reports a rank dead, all its operations have taken
/// effect or never will.
///
/// A rank that left in order and holds the lock still is treated alike (`OwnerLeft`,
/// `ParticipantLeft`). An acquire that is cancelled because its rank [leaves](Intent::is_leaving)
/// gives up its place in a queue, instead of waiting for its turn.
pub trait LockAlgorithm: Debug + Send + Sync + 'static {
    /// The name in configuration, benchmarks and reports.
    const NAME: &'static str;
    /// Words of a lock at its home. A lock is free if all are 0, or if [`is_free`](Self::is_free)
    /// says so.
    const HOME_WORDS: usize;
    /// Words of the queue node of each slot. A node is idle if all are 0.
    const NODE_WORDS: usize;
    /// Whether the lock has a [word at every rank](crate::WordOf::Rank) in addition to those
    /// at its home; 0 is free.
    const PER_RANK_WORD: bool = false;
    /// Words of the lock on [each host](crate::WordOf::Host), for the ranks of that host; all 0
    /// is free.
    const HOST_WORDS: usize = 0;

    /// Whether only its own rank writes to an owner's node: other ranks read there whether the owner is
    /// announced. The node is then free once its owner has ended, in whatever way.
    const NODES_ARE_OWN: bool = false;

    /// Whether acquires recover the lock from owners that died. The waiters of a lock that does not
    /// wait until their deadline.
    const RECOVERS: bool = true;

    /// Whether the lock works only while its home [serves](crate::served::serve) it.
    const SERVED: bool = false;

    /// Whether that server polls, so that requests need not [notify](onesided_remote_memory::Notify)
    /// it: its executor never sleeps.
    const SERVER_POLLS: bool = false;

    /// Whether the words at the home show a lock without owners and waiters. Meaningful only while
    /// no operation is in flight.
    #[must_use]
    fn is_free(home: &[u64]) -> bool {
        home.iter().all(|word| *word == 0)
    }

    /// Whether a node's words show that no owner is announced in it. Default: its first word is 0.
    #[must_use]
    fn is_idle(node: &[u64]) -> bool {
        node.first().is_none_or(|word| *word == 0)
    }

    /// Whether an owner in this mode uses its queue node, from [`start`](Self::start) until the
    /// release is done. Its slot is then reserved for it. Other owners need no slot
    /// ([`Owner::NO_SLOT`](crate::Owner::NO_SLOT)).
    fn uses_node(&self, mode: Mode) -> bool {
        let _ = mode;
        true
    }

    /// Resolves the words of a lock for an acquire that starts with this intent. Called once for each
    /// acquire. Those of [`Intent::LOCK`] are correct for a [try](Intent::TRY) too, but it may take
    /// longer, because some first operations cannot be undone at once.
    ///
    /// # Errors
    /// As [`RemoteMemory::word`].
    #[inline(always)] // words that pass through memory cost a third of an uncontended lock
    fn words<'m, P: LockContext<'m>>(&self, context: P, intent: Intent) -> Result<Words<'m, P::Memory>, Fault> {
        let _ = intent;
        Ok((context.home(0)?, context.owner().to_bits()))
    }

    /// Posts the first operation of an acquire. From here on the owner may be announced, in its
    /// node, until it has released or [`contend`](Self::contend) has failed: unless `start` fails,
    /// the caller has to complete one of the two.
    ///
    /// # Errors
    /// `NotOwn` if the node is not in this rank's memory.
    fn start<'m, P: LockContext<'m>>(&self, lock: LockUse<'m, P>) -> Result<Op<P>, Fault>;

    /// Whether the first operation alone acquired the lock in this mode, for an owner with these
    /// bits. `first` is its result.
    fn holds(&self, owner: u64, mode: Mode, first: u64) -> bool;

    /// How many owners are ahead of one that waits since its first operation found `first`, where the
    /// first word at the home, `now`, tells; of 0, the owner holds the lock in the mode that it asked for. A
    /// caller that expects a short wait may look at the word by itself, before [`contend`](Self::contend).
    #[inline]
    fn ahead(&self, owner: u64, mode: Mode, first: u64, now: u64) -> Option<u64> {
        let _ = (owner, mode, first, now);
        None
    }

    /// The rest of an acquire whose first operation failed or did not acquire the lock. `first` is
    /// the outcome of that operation. The intent is read between two operations.
    ///
    /// # Errors
    /// After an error the owner is not announced, with a slot or without. `Closed` if the acquire
    /// was cancelled, `TimedOut` if a try would have had to wait, the fault of a poisoned lock
    /// ([`Fault::is_poison`]) if the acquire does not recover, and the errors of the operations.
    /// After an error the lock is not held. After `Unknown` and `ConnectionLost` the rank is cut
    /// off from the home, or from another participant: others may still write to the owner's node,
    /// so its slot must not be used again, for this or another lock.
    ///
    /// # Cancel safety
    /// Not cancel safe: a dropped acquire may come to hold the lock. To cancel, set the intent to
    /// [`Intent::CANCELLED`] and hand the future to `onesided_fabric::Fabric::spawn`, which
    /// completes it. If it acquired the lock all the same, it is released, or [released as
    /// poisoned](Self::release_poisoned) if the acquire recovered it.
    fn contend<'m, P: LockContext<'m>>(
        &'m self,
        lock: LockUse<'m, P>,
        first: Result<u64, Fault>,
        intent: IntentFn<'_>,
    ) -> impl Future<Output = Result<Held, Fault>> + Send;

    /// Completes an acquire: `started` is the operation that [`start`](Self::start) posted.
    ///
    /// # Errors
    /// As [`contend`](Self::contend).
    ///
    /// # Cancel safety
    /// As [`contend`](Self::contend).
    fn finish<'m, P: LockContext<'m>>(
        &'m self,
        lock: LockUse<'m, P>,
        started: Op<P>,
        intent: impl Fn() -> Intent + Send + Sync + 'm,
    ) -> impl Future<Output = Result<Held, Fault>> + Send + 'm {
        async move {
            let first = started.await;
            if first.is_ok_and(|first| self.holds(lock.owner, lock.mode, first)) {
                return Ok(Held::cleanly(lock.mode));
            }
            self.contend(lock, first, &intent).await
        }
    }

    /// Posts the first operation of a release. The caller has flushed the operations of its
    /// critical section. The mode is [`Held::mode`], here and in the other release methods; the
    /// words are those of the acquire.
    ///
    /// # Errors
    /// `NotHeld` if the node shows that the lock is not held: nothing is posted. `NotOwn` as
    /// [`start`](Self::start).
    fn start_release<'m, P: LockContext<'m>>(&self, lock: LockUse<'m, P>) -> Result<Op<P>, Fault>;

    /// The same for an owner that no other one waits for, as far as its node tells; `None` if one may:
    /// nothing is posted. Apart, so that an uncontended release keeps nothing ready for a hand-over.
    ///
    /// # Errors
    /// As [`start_release`](Self::start_release), which calls this first, if it is more.
    #[inline(always)]
    fn start_release_alone<'m, P: LockContext<'m>>(&self, lock: LockUse<'m, P>) -> Result<Option<Op<P>>, Fault> {
        self.start_release(lock).map(Some)
    }

    /// What the release has left to do after its first operation, for which `found` is the result;
    /// `None` before that is known. [`Rest::Nothing`] then says that the operation need not be waited
    /// for. May be asked again until it says that.
    ///
    /// # Errors
    /// As [`finish_release`](Self::finish_release); the release is over.
    fn released<'m, P: LockContext<'m>>(&self, lock: LockUse<'m, P>, found: Option<u64>) -> Result<Rest, Fault> {
        let _ = (lock, found);
        Ok(Rest::Unknown)
    }

    /// Completes a release. `found` is the outcome of the operation that
    /// [`start_release`](Self::start_release) posted.
    ///
    /// # Errors
    /// After an error the owner is not announced. `NotHeld` if the algorithm can detect it, and the
    /// errors of the operations.
    fn finish_release<'m, P: LockContext<'m>>(
        &'m self,
        lock: LockUse<'m, P>,
        found: Result<u64, Fault>,
    ) -> impl Future<Output = Result<(), Fault>> + Send + 'm;

    /// Releases the lock of an exclusive owner as poisoned: acquires that do not recover fail with
    /// the fault `why`, until one has recovered the lock and learns of it
    /// ([`Held::recovered`]). For an owner that panicked ([`OwnerPanicked`]), and for an acquire
    /// that recovered the lock after its caller had cancelled it: with what that was given. The
    /// default implementation is a plain release, after which the lock is not poisoned.
    ///
    /// # Errors
    /// As [`finish_release`](Self::finish_release).
    ///
    /// [`OwnerPanicked`]: onesided_remote_memory::FaultKind::OwnerPanicked
    fn release_poisoned<'m, P: LockContext<'m>>(
        &'m self,
        lock: LockUse<'m, P>,
        why: Fault,
    ) -> impl Future<Output = Result<(), Fault>> + Send + 'm {
        let _ = why;
        async move {
            let found = self.start_release(lock)?.await;
            self.finish_release(lock, found).await
        }
    }
}

//! Lock-all: one operation that locks all targets.
//!
//! ```text
//! all targets   enter(lock-all group), later fetch-add(word, -1 of that group)
//! one target    exclusive: enter(exclusive group), the target's own lock; release both
//!               shared: the target's own lock
//! enter(group)  if fetch-add(word, 1 of the group) finds none of the other group: inside
//!               else fetch-add(word, out again and waiting)
//!               until the word's phase of the group changes: pause, read it
//!               if the other group has left: compare-swap all waiters of a group in
//! ```

mod lock_all_word;
mod slow_path;

use std::future::Future;
use std::pin::Pin;

use onesided_remote_memory::{Fault, FaultKind, RemoteMemory};

use self::lock_all_word::LockAllWord;
use self::slow_path::{AtLockAllWord, SlowPath, announce, renew};
use crate::recovery::{self, ANNOUNCED, Announcement, POISON};
use crate::{Backoff, Held, Intent, IntentFn, LockAlgorithm, LockContext, Mode, Words};

/// Locks of many targets, and of all of them by one operation, after foMPI (Gerstenberger, Besta,
/// Hoefler, *Enabling Highly-Scalable Remote Memory Access Programming with MPI-3 One Sided*, SC
/// 2013, section 2.3). The protocol of the global level is ours; as in room synchronisation, two
/// groups exclude each other.
///
/// One word that all targets share, the [lock-all word](LockContext::lock_all_word) (foMPI's master
/// word), admits two groups in alternation: lock-all owners, which are shared, and exclusive owners
/// of one target. Owners of one group are admitted together. An exclusive lock of a target takes
/// the lock-all word for its group, and then the target's own lock, of the algorithm `A`. A shared
/// lock of a target is that of `A` and does not touch the lock-all word. A shared lock of [all
/// targets](LockContext::is_lock_all) takes the lock-all word alone, whatever the number of
/// targets.
///
/// | | uncontended acquire + release |
/// |---|---|
/// | all targets, shared | fetch-add + fetch-add |
/// | one, exclusive | fetch-add and that of `A` + that of `A` and fetch-add |
/// | one, shared | those of `A` |
///
/// An owner that finds the other group inside retracts itself by a second fetch-add, and waits: it
/// reads the word, and pauses in between, by its [`Backoff`].
///
/// # Fairness
///
/// While an owner of one group waits, no owner of the group inside is admitted, so that group
/// drains; then all waiters of the other group are admitted at once, by a compare-swap of any of
/// them, and the next turn is the first group's. So a waiter is bypassed by the owners inside, and
/// by at most one turn of the other group.
///
/// Two kinds of owners bypass waiters, because an owner inside may wait for a lock that they hold:
/// an owner whose rank [is inside](LockContext::is_inside) already, and a waiter that has seen no
/// owner of its own group leave for 100 ms. So no deadlock arises that would not arise if lock-all
/// took the locks of all targets one after the other. Exclusive locks that are held for longer than
/// 100 ms and overlap without a gap starve lock-all owners.
///
/// # Cancellation
///
/// An owner that waits for the lock-all word leaves it by a compare-swap. An owner that waits for
/// the target's lock is cancelled as `A` does it, and leaves the lock-all word. A try that finds
/// the other group inside retracts itself; an owner that arrives in that moment waits until its
/// next read.
///
/// # Overflow
///
/// The four counts have 15 bits. If there may be more [owners](LockContext::owners), an arriving
/// owner reads the word first, and is admitted by compare-swap once the count has room; so is an
/// owner that is [not counted](LockContext::is_counted), which leaves room for the counted ones.
///
/// # Death
///
/// Two words may show a death. The target's lock behaves as `A`. The lock-all word has counts, which
/// name no rank: a waiter suspects the owners inside when a rank has failed, none of them has left
/// for one second since, and fewer live ranks are announced than are counted. It then puts the word
/// under recovery. Waiters are out of it then; owners inside go on. When no live rank is announced,
/// only dead owners are left. If all of them had locked all targets, the next owner takes the word.
/// Otherwise acquires that do not recover fail with `ParticipantDied`, and the first recovering owner
/// acquires the lock of its target exclusively, whatever it asked for. So one death may be reported
/// twice, to the recovering owner of the target's lock and to that of the lock-all word.
///
/// Exclusive owners share the lock-all word with a dead one without noticing: the target's lock
/// reports the death to the owners concerned. A rank that died while it waited is treated as if it
/// may have been inside, once its turn has come.
#[derive(Clone, Copy, Debug)]
pub struct Global<A, const BITS: u32 = 15> {
    lock: A,
    backoff: Backoff,
}

/// The number of lock-all words: the word of all targets, and that of its poison.
pub(crate) const LOCK_ALL_WORDS: usize = POISON + 1;

impl<A> Global<A> {
    /// The number of [lock-all words](LockContext::lock_all_word).
    pub const LOCK_ALL_WORDS: usize = LOCK_ALL_WORDS;

    /// Lock-all over the locks `lock` of the targets. Waiters for the lock-all word pause by
    /// `backoff`.
    #[must_use]
    pub const fn new(lock: A, backoff: Backoff) -> Self {
        Self::with_bits(lock, backoff)
    }
}

impl<A, const BITS: u32> Global<A, BITS> {
    /// The same with room for 2<sup>`BITS`</sup> - 1 owners of each group, 1 to 15 bits. If there
    /// may be more [owners](LockContext::owners), arriving owners read the word first and are
    /// admitted by compare-swap.
    #[must_use]
    pub const fn with_bits(lock: A, backoff: Backoff) -> Self {
        Self { lock, backoff }
    }
}

type Boxed<'m, T> = Pin<Box<dyn Future<Output = T> + Send + 'm>>;

/// Boxed, because the compiler cannot prove that the futures of a generic algorithm are `Send`.
fn boxed<'m, T>(future: impl Future<Output = T> + Send + 'm) -> Boxed<'m, T> {
    Box::pin(future)
}

/// What an acquire locks.
enum Level {
    LockAll,
    Target,
    Both,
}

impl Level {
    fn of<'m, M: RemoteMemory>(context: impl LockContext<'m, M>, mode: Mode) -> Self {
        match mode {
            Mode::Exclusive => Self::Both,
            Mode::Shared if context.is_lock_all() => Self::LockAll,
            Mode::Shared => Self::Target,
        }
    }
}

impl<A: LockAlgorithm, const BITS: u32> Global<A, BITS> {
    const fn at_lock_all_word<P>(context: P) -> AtLockAllWord<P> {
        AtLockAllWord { context, announced: A::NODE_WORDS }
    }

    /// Posts the first operation on the lock-all word.
    fn start_lock_all<'m, M: RemoteMemory>(
        memory: &M,
        context: impl LockContext<'m, M>,
        mode: Mode,
    ) -> Result<M::Op, Fault> {
        let (at, word) = (Self::at_lock_all_word(context), context.lock_all_word(0)?);
        recovery::announce(memory, at)?;
        Ok(announce::<M, BITS>(memory, at, word, mode))
    }

    /// Enters the lock-all word, after a first operation with this outcome.
    async fn enter<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        context: P,
        mode: Mode,
        first: Result<u64, Fault>,
        intent: IntentFn<'_>,
    ) -> Result<Held, Fault> {
        let (word, pauses) = (context.lock_all_word(0)?, self.backoff.pauses(context.owner()));
        let (context, bypasses) = (Self::at_lock_all_word(context), context.is_inside());
        let announcement = Announcement::of(memory, context, true);
        let mut path = SlowPath::<_, _, BITS> { memory, context, word, mode, intent, pauses, bypasses, announcement };
        let entered = path.enter(first).await;
        path.announcement.end(entered)
    }

    /// Leaves the lock-all word, by one operation that took effect and found this.
    fn left<'m, M: RemoteMemory>(
        memory: &M,
        context: impl LockContext<'m, M>,
        mode: Mode,
        found: u64,
    ) -> Result<bool, Fault> {
        let found = LockAllWord::<BITS>(found);
        if found.inside(mode) == 0 || found.is_recovering() {
            return Ok(false); // to be undone, or not complete
        }
        recovery::retract(memory, Self::at_lock_all_word(context))?;
        Ok(true)
    }

    /// Completes leaving it.
    async fn finish_leaving<'m, M: RemoteMemory>(
        memory: &'m M,
        context: impl LockContext<'m, M>,
        mode: Mode,
        left: impl Future<Output = Result<u64, Fault>> + Send,
    ) -> Result<(), Fault> {
        let outcome = match left.await.map(LockAllWord::<BITS>) {
            Ok(found) => Self::retract_from(memory, context, mode, found).await,
            Err(fault) => Err(fault),
        };
        recovery::retract(memory, Self::at_lock_all_word(context))?;
        outcome
    }

    /// Ends what leaving found, or undoes it.
    async fn retract_from<'m, M: RemoteMemory>(
        memory: &'m M,
        context: impl LockContext<'m, M>,
        mode: Mode,
        found: LockAllWord<BITS>,
    ) -> Result<(), Fault> {
        let word = context.lock_all_word(0)?;
        if found.inside(mode) > 0 {
            let left = found.plus(LockAllWord::<BITS>::leaving(mode));
            return renew(memory, context.owner(), word, Some(left)).await;
        }
        memory.fetch_add(word, LockAllWord::<BITS>::entering(mode)).await?;
        Err(Fault::new(FaultKind::NotHeld))
    }

    async fn leave<'m, M: RemoteMemory>(
        memory: &'m M,
        context: impl LockContext<'m, M>,
        mode: Mode,
    ) -> Result<(), Fault> {
        let left = memory.fetch_add(context.lock_all_word(0)?, LockAllWord::<BITS>::leaving(mode));
        Self::finish_leaving(memory, context, mode, left).await
    }

    /// Leaves the lock-all word poisoned, as an exclusive owner.
    async fn leave_poisoned<'m, M: RemoteMemory>(
        memory: &'m M,
        context: impl LockContext<'m, M>,
        why: Fault,
    ) -> Result<(), Fault> {
        let (context, word) = (Self::at_lock_all_word(context), context.lock_all_word(0)?);
        let left = match recovery::note_poison(memory, context, why).await {
            Ok(()) => renew::<M, BITS>(memory, context.owner(), word, None).await,
            lost => lost,
        };
        recovery::retract(memory, context).and(left)
    }

    /// Acquires the target's lock exclusively, inside the lock-all word. `entered` is the result of
    /// entering.
    async fn lock_target<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        context: P,
        words: Words<'m, M>,
        entered: Held,
        intent: IntentFn<'_>,
    ) -> Result<Held, Fault> {
        let mode = Mode::Exclusive;
        let first = match self.lock.start(memory, context, words, mode) {
            Ok(started) => started.await,
            Err(fault) => Err(fault),
        };
        let held = match first {
            Ok(first) if self.lock.holds::<M>(words, mode, first) => Ok(Held::cleanly(mode)),
            first => boxed(self.lock.contend(memory, context, words, mode, first, intent)).await,
        };
        match (held, entered.recovered) {
            (Ok(held), recovered) => Ok(Held { recovered: held.recovered.or(recovered), ..held }),
            // What it recovered by the lock-all word is left to the next owner.
            (Err(fault), Some(why)) => Self::leave_poisoned(memory, context, why).await.and(Err(fault)),
            (Err(fault), None) => Self::leave(memory, context, mode).await.and(Err(fault)),
        }
    }

    async fn lock<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        context: P,
        words: Words<'m, M>,
        mode: Mode,
        first: Result<u64, Fault>,
        intent: IntentFn<'_>,
    ) -> Result<Held, Fault> {
        if let Level::Target = Level::of(context, mode) {
            if first.is_ok_and(|first| self.lock.holds::<M>(words, mode, first)) {
                return Ok(Held::cleanly(mode));
            }
            // A recovering owner holds the lock exclusively, and enters the lock-all word first.
            let reads: IntentFn<'_> = &|| Intent { recovers: false, ..intent() };
            return match boxed(self.lock.contend(memory, context, words, mode, first, reads)).await {
                Err(fault) if fault.is_poison() && intent().recovers => {
                    let first = Self::start_lock_all(memory, context, Mode::Exclusive)?.await;
                    let entered = self.enter(memory, context, Mode::Exclusive, first, intent).await?;
                    self.lock_target(memory, context, words, entered, intent).await
                }
                held => held,
            };
        }
        let entered = self.enter(memory, context, mode, first, intent).await?;
        match entered.mode {
            Mode::Shared => Ok(entered),
            Mode::Exclusive => self.lock_target(memory, context, words, entered, intent).await,
        }
    }
}

impl<A: LockAlgorithm, const BITS: u32> LockAlgorithm for Global<A, BITS> {
    const NAME: &'static str = "global";
    /// The last words are the lock-all words, at the rank of those.
    const HOME_WORDS: usize = A::HOME_WORDS + LOCK_ALL_WORDS;
    const NODE_WORDS: usize = A::NODE_WORDS + ANNOUNCED + 1;
    const PER_RANK_WORD: bool = A::PER_RANK_WORD;
    const HOST_WORDS: usize = A::HOST_WORDS;
    const SERVED: bool = A::SERVED;

    fn is_free(home: &[u64]) -> bool {
        let (home, all) = home.split_at(home.len().saturating_sub(LOCK_ALL_WORDS));
        A::is_free(home) && all.first().is_none_or(|word| LockAllWord::<BITS>(*word).is_free())
    }

    fn words<'m, M: RemoteMemory>(&self, context: impl LockContext<'m, M>) -> Result<Words<'m, M>, Fault> {
        self.lock.words(context)
    }

    fn words_to_try<'m, M: RemoteMemory>(&self, context: impl LockContext<'m, M>) -> Result<Words<'m, M>, Fault> {
        self.lock.words_to_try(context)
    }

    fn start<'m, M: RemoteMemory>(
        &self,
        memory: &M,
        context: impl LockContext<'m, M>,
        words: Words<'m, M>,
        mode: Mode,
    ) -> Result<M::Op, Fault> {
        match Level::of(context, mode) {
            Level::Target => self.lock.start(memory, context, words, mode),
            Level::LockAll | Level::Both => Self::start_lock_all(memory, context, mode),
        }
    }

    /// Always `false`: the context, which is not known here, tells what the first operation was on.
    fn holds<M: RemoteMemory>(&self, _words: Words<'_, M>, _mode: Mode, _first: u64) -> bool {
        false
    }

    async fn contend<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        context: P,
        words: Words<'m, M>,
        mode: Mode,
        first: Result<u64, Fault>,
        intent: IntentFn<'_>,
    ) -> Result<Held, Fault> {
        let held = self.lock(memory, context, words, mode, first, intent).await?;
        context.mark_inside(true);
        Ok(held)
    }

    fn releases_in_one_step<'m, M: RemoteMemory>(&self, _place: impl LockContext<'m, M>, _mode: Mode) -> bool {
        false
    }

    fn start_release<'m, M: RemoteMemory>(
        &self,
        memory: &M,
        context: impl LockContext<'m, M>,
        words: Words<'m, M>,
        mode: Mode,
    ) -> Result<M::Op, Fault> {
        let level = Level::of(context, mode);
        if !matches!(level, Level::Target) && !recovery::is_announced(memory, Self::at_lock_all_word(context))? {
            return Err(Fault::new(FaultKind::NotHeld));
        }
        match level {
            Level::LockAll => Ok(memory.fetch_add(context.lock_all_word(0)?, LockAllWord::<BITS>::leaving(mode))),
            Level::Target | Level::Both => self.lock.start_release(memory, context, words, mode),
        }
    }

    fn released<'m, M: RemoteMemory>(
        &self,
        memory: &M,
        context: impl LockContext<'m, M>,
        words: Words<'m, M>,
        mode: Mode,
        found: u64,
    ) -> Result<bool, Fault> {
        let released = match Level::of(context, mode) {
            Level::LockAll => Self::left(memory, context, mode, found)?,
            Level::Target => self.lock.released(memory, context, words, mode, found)?,
            Level::Both => false, // it is inside the lock-all word still
        };
        if released {
            context.mark_inside(false);
        }
        Ok(released)
    }

    async fn finish_release<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        context: P,
        words: Words<'m, M>,
        mode: Mode,
        started: impl Future<Output = Result<u64, Fault>> + Send + 'm,
    ) -> Result<(), Fault> {
        context.mark_inside(false);
        match Level::of(context, mode) {
            Level::LockAll => Self::finish_leaving(memory, context, mode, started).await,
            Level::Target => boxed(self.lock.finish_release(memory, context, words, mode, started)).await,
            Level::Both => {
                let released = boxed(self.lock.finish_release(memory, context, words, mode, started)).await;
                released.and(Self::leave(memory, context, mode).await)
            }
        }
    }

    async fn release_poisoned<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        context: P,
        words: Words<'m, M>,
        why: Fault,
    ) -> Result<(), Fault> {
        context.mark_inside(false);
        let target = boxed(self.lock.release_poisoned(memory, context, words, why)).await;
        target.and(Self::leave_poisoned(memory, context, why).await)
    }

    async fn serve<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        context: P,
        is_open: impl Fn() -> bool + Send + Sync + 'm,
    ) -> Result<(), Fault> {
        boxed(self.lock.serve(memory, context, is_open)).await
    }

    fn wake_server<'m, M: RemoteMemory>(
        &self,
        memory: &'m M,
        context: impl LockContext<'m, M>,
    ) -> impl Future<Output = Result<(), Fault>> + Send {
        self.lock.wake_server(memory, context)
    }
}

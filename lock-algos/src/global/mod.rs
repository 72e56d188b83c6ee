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

mod lock_all;
mod lock_all_word;

use std::future::Future;

use onesided_remote_memory::{Fault, FaultKind, RemoteMemory};

use self::lock_all::{Entering, announce};
use self::lock_all_word::LockAllWord;
use crate::part::Part;
use crate::recovery::{self, ANNOUNCED, Announcement, Boxed, POISON};
use crate::{
    Backoff, Held, Intent, IntentFn, Kept, LockAlgorithm, LockContext, LockUse, Mode, Op, Rest, WordOf, Words,
};

/// Locks of many targets, and of all of them by one operation, after foMPI (Gerstenberger, Besta,
/// Hoefler, *Enabling Highly-Scalable Remote Memory Access Programming with MPI-3 One Sided*, SC
/// 2013, section 2.3). The protocol of the global level is ours; as in room synchronisation, two
/// groups exclude each other.
///
/// One word that all targets share, the [lock-all word](WordOf::LockAll) (foMPI's master
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
/// an owner whose rank [is inside](Kept::Inside) already, and a waiter that has seen no
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
/// The four counts have 15 bits. If there may be more [owners](crate::Owners::counted), an arriving
/// owner reads the word first, and is admitted by compare-swap once the count has room; so is an
/// owner that is [not counted](crate::Owners::is_counted), which leaves room for the counted ones.
///
/// # Death
///
/// Two words may show a death. The target's lock behaves as `A`. The lock-all word has counts,
/// which name no rank: a waiter suspects the owners inside when a rank has died or left, none of them has
/// left for the [suspicion timeout](crate#suspicion-timeout) since, and fewer live ranks are
/// announced than are counted. It then puts the word under recovery. Waiters are out of it then;
/// owners inside go on. When no live rank is announced, only dead owners are left. If all of them
/// had locked all targets, the next owner takes the word. Otherwise acquires that do not recover
/// fail with `ParticipantDied`, and the first recovering owner acquires the lock of its target
/// exclusively, whatever it asked for. So one death may be reported twice, to the recovering owner
/// of the target's lock and to that of the lock-all word.
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
    /// The number of [lock-all words](WordOf::LockAll).
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
    /// may be more [owners](crate::Owners::counted), arriving owners read the word first and are
    /// admitted by compare-swap.
    #[must_use]
    pub const fn with_bits(lock: A, backoff: Backoff) -> Self {
        Self { lock, backoff }
    }
}

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
    fn of<'m>(lock: LockUse<'m, impl LockContext<'m>>) -> Self {
        match lock.mode {
            Mode::Exclusive => Self::Both,
            Mode::Shared if lock.context.is_lock_all() => Self::LockAll,
            Mode::Shared => Self::Target,
        }
    }
}

impl<A: LockAlgorithm, const BITS: u32> Global<A, BITS> {
    const fn at_lock_all_word<P>(context: P) -> Part<P> {
        Part::of_lock_all(context, A::NODE_WORDS)
    }

    /// The use of the lock-all word.
    fn all<'m, P: LockContext<'m>>(lock: LockUse<'m, P>) -> Result<LockUse<'m, Part<P>>, Fault> {
        let LockUse { memory, context, owner, mode, .. } = lock;
        let home = context.word(WordOf::LockAll(0))?;
        Ok(LockUse { memory, context: Self::at_lock_all_word(context), home, owner, mode })
    }

    /// Posts the first operation on the lock-all word.
    fn start_lock_all<'m, P: LockContext<'m>>(lock: LockUse<'m, P>) -> Result<Op<P>, Fault> {
        let all = Self::all(lock)?;
        recovery::announce(all.memory, all.context)?;
        Ok(announce::<_, BITS>(all))
    }

    /// Enters the lock-all word, after a first operation with this outcome.
    async fn enter<'m, P: LockContext<'m>>(
        &'m self,
        lock: LockUse<'m, P>,
        first: Result<u64, Fault>,
        intent: IntentFn<'_>,
    ) -> Result<Held, Fault> {
        let (all, pauses) = (Self::all(lock)?, self.backoff.pauses(lock.context.owner()));
        let announcement = Announcement::of(true);
        let bypasses = lock.context.kept(Kept::Inside).is_some_and(|inside| inside != 0);
        let mut entering = Entering::<_, BITS> { all, intent, pauses, bypasses, announcement };
        let entered = entering.enter(first).await;
        entering.announcement.end(&entering.all, entered)
    }

    async fn leave<'m, P: LockContext<'m>>(lock: LockUse<'m, P>) -> Result<(), Fault> {
        lock_all::leave::<_, BITS>(Self::all(lock)?).await
    }

    async fn leave_poisoned<'m, P: LockContext<'m>>(lock: LockUse<'m, P>, why: Fault) -> Result<(), Fault> {
        lock_all::leave_poisoned::<_, BITS>(Self::all(lock)?, why).await
    }

    /// Acquires the target's lock exclusively, inside the lock-all word. `entered` is the result of
    /// entering.
    async fn lock_target<'m, P: LockContext<'m>>(
        &'m self,
        lock: LockUse<'m, P>,
        entered: Held,
        intent: IntentFn<'_>,
    ) -> Result<Held, Fault> {
        let lock = LockUse { mode: Mode::Exclusive, ..lock };
        let first = match self.lock.start(lock) {
            Ok(started) => started.await,
            Err(fault) => Err(fault),
        };
        let held = match first {
            Ok(first) if self.lock.holds(lock.owner, lock.mode, first) => Ok(Held::cleanly(lock.mode)),
            first => boxed(self.lock.contend(lock, first, intent)).await,
        };
        match (held, entered.recovered) {
            (Ok(held), recovered) => Ok(Held { recovered: held.recovered.or(recovered), ..held }),
            // What it recovered by the lock-all word is left to the next owner.
            (Err(fault), Some(why)) => Self::leave_poisoned(lock, why).await.and(Err(fault)),
            (Err(fault), None) => Self::leave(lock).await.and(Err(fault)),
        }
    }

    async fn lock<'m, P: LockContext<'m>>(
        &'m self,
        lock: LockUse<'m, P>,
        first: Result<u64, Fault>,
        intent: IntentFn<'_>,
    ) -> Result<Held, Fault> {
        if let Level::Target = Level::of(lock) {
            if first.is_ok_and(|first| self.lock.holds(lock.owner, lock.mode, first)) {
                return Ok(Held::cleanly(lock.mode));
            }
            // A recovering owner holds the lock exclusively, and enters the lock-all word first.
            let reads: IntentFn<'_> = &|| Intent { recovers: false, ..intent() };
            return match boxed(self.lock.contend(lock, first, reads)).await {
                Err(fault) if fault.is_poison() && intent().recovers => {
                    let lock = LockUse { mode: Mode::Exclusive, ..lock };
                    let first = Self::start_lock_all(lock)?.await;
                    let entered = self.enter(lock, first, intent).await?;
                    self.lock_target(lock, entered, intent).await
                }
                held => held,
            };
        }
        let entered = self.enter(lock, first, intent).await?;
        match entered.mode {
            Mode::Shared => Ok(entered),
            Mode::Exclusive => self.lock_target(lock, entered, intent).await,
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
    const NODES_ARE_OWN: bool = A::NODES_ARE_OWN;
    const SERVED: bool = A::SERVED;
    const SERVER_POLLS: bool = A::SERVER_POLLS;

    fn is_free(home: &[u64]) -> bool {
        let (home, all) = home.split_at(home.len().saturating_sub(LOCK_ALL_WORDS));
        A::is_free(home) && all.first().is_none_or(|word| LockAllWord::<BITS>(*word).is_free())
    }

    fn words<'m, P: LockContext<'m>>(&self, context: P, intent: Intent) -> Result<Words<'m, P::Memory>, Fault> {
        self.lock.words(context, intent)
    }

    fn start<'m, P: LockContext<'m>>(&self, lock: LockUse<'m, P>) -> Result<Op<P>, Fault> {
        match Level::of(lock) {
            Level::Target => self.lock.start(lock),
            Level::LockAll | Level::Both => Self::start_lock_all(lock),
        }
    }

    /// Always `false`: the context, which is not known here, tells what the first operation was on.
    fn holds(&self, _owner: u64, _mode: Mode, _first: u64) -> bool {
        false
    }

    async fn contend<'m, P: LockContext<'m>>(
        &'m self,
        lock: LockUse<'m, P>,
        first: Result<u64, Fault>,
        intent: IntentFn<'_>,
    ) -> Result<Held, Fault> {
        let held = self.lock(lock, first, intent).await?;
        lock.context.keep(Kept::Inside, 1);
        Ok(held)
    }

    fn start_release<'m, P: LockContext<'m>>(&self, lock: LockUse<'m, P>) -> Result<Op<P>, Fault> {
        let level = Level::of(lock);
        if !matches!(level, Level::Target)
            && !recovery::is_announced(lock.memory, Self::at_lock_all_word(lock.context))?
        {
            return Err(Fault::new(FaultKind::NotHeld));
        }
        match level {
            Level::LockAll => Ok(lock
                .memory
                .fetch_add(lock.context.word(WordOf::LockAll(0))?, LockAllWord::<BITS>::leaving(lock.mode))),
            Level::Target | Level::Both => self.lock.start_release(lock),
        }
    }

    fn released<'m, P: LockContext<'m>>(&self, lock: LockUse<'m, P>, found: Option<u64>) -> Result<Rest, Fault> {
        let rest = match (Level::of(lock), found) {
            (Level::Target, _) => self.lock.released(lock, found)?,
            (Level::LockAll, Some(found)) => {
                let word = LockAllWord::<BITS>(found);
                let left = word.inside(lock.mode) > 0 && !word.is_recovering(); // else to be undone, or not complete
                if left {
                    recovery::retract(lock.memory, Self::at_lock_all_word(lock.context))?;
                }
                if left { Rest::Nothing } else { Rest::Unknown }
            }
            // It is inside the lock-all word still.
            (Level::Both, _) | (Level::LockAll, None) => Rest::Unknown,
        };
        if rest == Rest::Nothing {
            lock.context.keep(Kept::Inside, 0);
        }
        Ok(rest)
    }

    async fn finish_release<'m, P: LockContext<'m>>(
        &'m self,
        lock: LockUse<'m, P>,
        found: Result<u64, Fault>,
    ) -> Result<(), Fault> {
        lock.context.keep(Kept::Inside, 0);
        match Level::of(lock) {
            Level::LockAll => lock_all::finish_leaving::<BITS>(Self::all(lock)?, found).await,
            Level::Target => boxed(self.lock.finish_release(lock, found)).await,
            Level::Both => {
                let released = boxed(self.lock.finish_release(lock, found)).await;
                let left = match released {
                    // What this owner did at the target may be missing, which the word has to tell
                    // too.
                    Err(fault) if recovery::is_lost(fault) => {
                        Self::leave_poisoned(lock, Fault::of(FaultKind::ParticipantDied, lock.me().rank)).await
                    }
                    _ => Self::leave(lock).await,
                };
                released.and(left)
            }
        }
    }

    async fn release_poisoned<'m, P: LockContext<'m>>(&'m self, lock: LockUse<'m, P>, why: Fault) -> Result<(), Fault> {
        lock.context.keep(Kept::Inside, 0);
        // In this order: a rank that recovers the target's lock finds both poisoned.
        let left = Self::leave_poisoned(lock, why).await;
        boxed(self.lock.release_poisoned(lock, why)).await.and(left)
    }
}

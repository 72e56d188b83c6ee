//! The lock of a window: one of the library's, or the program's own.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;

use onesided_fabric::Fabric;
use onesided_fabric::remote_memory::{Fault, Rank};
use onesided_lock_algos::{
    AnyLock, Backoff, DistributedCounters, FetchAddQueue, Global, Held, Intent, IntentFn, LockAlgorithm, LockUse, Mcs,
    Mode, Owner, Rest, TestAndSet, Ticket, TwoLevel, WithLock, Words,
};

use crate::locks::context::WindowLockContext;
use crate::locks::slots;

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
pub(crate) type Used<'w, F> = LockUse<'w, F, WindowLockContext<'w, F>>;

/// The words that a lock has outside of the nodes, and who writes to the nodes.
#[derive(Clone, Copy)]
pub(crate) struct LockWords {
    pub(crate) home: usize,
    pub(crate) at_each_rank: bool,
    pub(crate) at_each_host: usize,
    pub(crate) has_requests: bool,
    /// See [`LockAlgorithm::NODES_ARE_OWN`].
    pub(crate) nodes_are_own: bool,
}

impl LockWords {
    pub(crate) const fn of<A: LockAlgorithm>(_: &A) -> Self {
        const { assert!(A::NODE_WORDS <= slots::NODE_WORDS, "a node has at most 8 words") };
        Self {
            home: A::HOME_WORDS,
            at_each_rank: A::PER_RANK_WORD,
            at_each_host: A::HOST_WORDS,
            has_requests: A::SERVED,
            nodes_are_own: A::NODES_ARE_OWN,
        }
    }
}

/// The lock of a window. Those whose uncontended acquire and release take a few instructions have
/// their own type here; an owner of one of the others always has a slot.
#[derive(Debug)]
#[repr(u8)] // a tag in a niche has to be computed at each use
pub(crate) enum WindowLock<F: Fabric> {
    /// Without a lease.
    TestAndSet(TestAndSet),
    Mcs(Mcs),
    Ticket(Ticket),
    FetchAddQueue(FetchAddQueue),
    DistributedCounters(DistributedCounters),
    TwoLevel(TwoLevel),
    Other(Arc<dyn OtherLock<F>>),
}

/// [`LockAlgorithm`] for one fabric, so that the window's type does not name the lock.
pub(crate) trait OtherLock<F: Fabric>: fmt::Debug + Send + Sync {
    fn name(&self) -> &'static str;
    fn lock_words(&self) -> LockWords;
    fn words<'w>(&self, context: WindowLockContext<'w, F>, intent: Intent) -> Result<Words<'w, F>, Fault>;
    fn start(&self, used: Used<'_, F>) -> Result<F::Op, Fault>;
    fn holds(&self, owner: u64, mode: Mode, first: u64) -> bool;
    fn contend<'a, 'w: 'a>(
        &'w self,
        used: Used<'w, F>,
        first: Result<u64, Fault>,
        intent: IntentFn<'a>,
    ) -> Boxed<'a, Result<Held, Fault>>;
    fn start_release(&self, used: Used<'_, F>) -> Result<F::Op, Fault>;
    fn released(&self, used: Used<'_, F>, found: Option<u64>) -> Result<Rest, Fault>;
    fn finish_release<'w>(&'w self, used: Used<'w, F>, found: Result<u64, Fault>) -> Boxed<'w, Result<(), Fault>>;
    fn release_poisoned<'w>(&'w self, used: Used<'w, F>, why: Fault) -> Boxed<'w, Result<(), Fault>>;
}

/// A lock as an [`OtherLock`].
#[derive(Debug)]
pub(crate) struct Erased<A>(pub(crate) A);

impl<F: Fabric, A: LockAlgorithm> OtherLock<F> for Erased<A> {
    fn name(&self) -> &'static str {
        A::NAME
    }

    fn lock_words(&self) -> LockWords {
        LockWords::of(&self.0)
    }

    fn words<'w>(&self, context: WindowLockContext<'w, F>, intent: Intent) -> Result<Words<'w, F>, Fault> {
        self.0.words(context, intent)
    }

    fn start(&self, used: Used<'_, F>) -> Result<F::Op, Fault> {
        self.0.start(used)
    }

    fn holds(&self, owner: u64, mode: Mode, first: u64) -> bool {
        self.0.holds(owner, mode, first)
    }

    fn contend<'a, 'w: 'a>(
        &'w self,
        used: Used<'w, F>,
        first: Result<u64, Fault>,
        intent: IntentFn<'a>,
    ) -> Boxed<'a, Result<Held, Fault>> {
        Box::pin(self.0.contend(used, first, intent))
    }

    fn start_release(&self, used: Used<'_, F>) -> Result<F::Op, Fault> {
        self.0.start_release(used)
    }

    fn released(&self, used: Used<'_, F>, found: Option<u64>) -> Result<Rest, Fault> {
        self.0.released(used, found)
    }

    fn finish_release<'w>(&'w self, used: Used<'w, F>, found: Result<u64, Fault>) -> Boxed<'w, Result<(), Fault>> {
        Box::pin(self.0.finish_release(used, found))
    }

    fn release_poisoned<'w>(&'w self, used: Used<'w, F>, why: Fault) -> Boxed<'w, Result<(), Fault>> {
        Box::pin(self.0.release_poisoned(used, why))
    }
}

/// Runs an expression with the lock of its own type, and `run_other` with [`WindowLock::Other`].
macro_rules! by_design {
    ($chosen:expr, $lock:ident => $run:expr) => {
        $crate::locks::window_lock::by_design!($chosen, $lock => $run, $lock => $run)
    };
    ($chosen:expr, $lock:ident => $run:expr, $other:ident => $run_other:expr) => {
        match $chosen {
            $crate::locks::window_lock::WindowLock::TestAndSet($lock) => $run,
            $crate::locks::window_lock::WindowLock::Mcs($lock) => $run,
            $crate::locks::window_lock::WindowLock::Ticket($lock) => $run,
            $crate::locks::window_lock::WindowLock::FetchAddQueue($lock) => $run,
            $crate::locks::window_lock::WindowLock::DistributedCounters($lock) => $run,
            $crate::locks::window_lock::WindowLock::TwoLevel($lock) => $run,
            $crate::locks::window_lock::WindowLock::Other($other) => $run_other,
        }
    };
}

pub(crate) use by_design;

/// Puts a lock under a lock-all word, whose waiters pause by this table.
struct Globally<F>(Backoff, PhantomData<F>);

impl<F: Fabric> WithLock for Globally<F> {
    type Output = WindowLock<F>;

    fn with<A: LockAlgorithm + Copy>(self, lock: A) -> WindowLock<F> {
        WindowLock::other(Global::new(lock, self.0))
    }
}

impl<F: Fabric> From<AnyLock> for WindowLock<F> {
    fn from(lock: AnyLock) -> Self {
        match lock {
            AnyLock::TestAndSet(lock) => Self::TestAndSet(lock),
            AnyLock::Mcs(lock) => Self::Mcs(lock),
            AnyLock::Ticket(lock) => Self::Ticket(lock),
            AnyLock::FetchAddQueue(lock) => Self::FetchAddQueue(lock),
            AnyLock::DistributedCounters(lock) => Self::DistributedCounters(lock),
            AnyLock::TwoLevel(lock) => Self::TwoLevel(lock),
            AnyLock::DedicatedThread(lock) => Self::other(lock),
            AnyLock::EventThread(lock) => Self::other(lock),
        }
    }
}

impl<F: Fabric> WindowLock<F> {
    pub(crate) fn other<A: LockAlgorithm>(lock: A) -> Self {
        Self::Other(Arc::new(Erased(lock)))
    }

    /// The lock of each target, under a lock-all word.
    pub(crate) fn global(lock: AnyLock, backoff: Backoff) -> Self {
        lock.with(Globally(backoff, PhantomData))
    }

    /// The lock, if an owner in this mode needs its word alone: no node, and no second step to
    /// release it. Checked first, so that the fast path has one branch.
    #[inline]
    pub(crate) const fn only_word(&self, mode: Mode) -> Option<&TestAndSet> {
        match (self, mode) {
            (Self::TestAndSet(lock), Mode::Exclusive) => Some(lock),
            _ => None,
        }
    }

    /// The exclusive owner that the lock's first word at its home names, where it does.
    pub(crate) const fn owner_in(&self, home: u64) -> Option<Owner> {
        match self {
            Self::TestAndSet(_) => TestAndSet::owner(home),
            Self::TwoLevel(_) => TwoLevel::owner(home),
            _ => None,
        }
    }

    /// The rank that had the lock exclusively, or the last place of its queue, by the word that the
    /// first operation of a failed acquire returned; where it tells.
    pub(crate) fn rank_found(&self, first: u64) -> Option<Rank> {
        match self {
            Self::TestAndSet(_) => TestAndSet::owner(first).map(|owner| owner.rank),
            Self::Mcs(_) => Mcs::last_in(first),
            _ => None,
        }
    }

    pub(crate) fn lock_words(&self) -> LockWords {
        by_design!(self, lock => LockWords::of(lock), other => other.lock_words())
    }

    #[inline]
    pub(crate) fn uses_node(&self, mode: Mode) -> bool {
        by_design!(self, lock => lock.uses_node(mode), _other => true)
    }

    pub(crate) fn words<'w>(&self, context: WindowLockContext<'w, F>, intent: Intent) -> Result<Words<'w, F>, Fault> {
        by_design!(self, lock => lock.words(context, intent))
    }

    pub(crate) fn start(&self, used: Used<'_, F>) -> Result<F::Op, Fault> {
        by_design!(self, lock => lock.start(used))
    }

    /// Apart: where operations complete at post, an acquire that took the lock was not asked this.
    #[inline(never)]
    pub(crate) fn holds(&self, owner: u64, mode: Mode, first: u64) -> bool {
        by_design!(self, lock => lock.holds(owner, mode, first))
    }

    pub(crate) async fn contend<'w>(
        &'w self,
        used: Used<'w, F>,
        first: Result<u64, Fault>,
        intent: IntentFn<'_>,
    ) -> Result<Held, Fault> {
        by_design!(self, lock => lock.contend(used, first, intent).await)
    }

    pub(crate) fn start_release(&self, used: Used<'_, F>) -> Result<F::Op, Fault> {
        by_design!(self, lock => lock.start_release(used))
    }

    pub(crate) fn released(&self, used: Used<'_, F>, found: Option<u64>) -> Result<Rest, Fault> {
        by_design!(self, lock => lock.released(used, found))
    }

    pub(crate) async fn finish_release<'w>(
        &'w self,
        used: Used<'w, F>,
        found: Result<u64, Fault>,
    ) -> Result<(), Fault> {
        by_design!(self, lock => lock.finish_release(used, found).await)
    }

    pub(crate) async fn release_poisoned<'w>(&'w self, used: Used<'w, F>, why: Fault) -> Result<(), Fault> {
        by_design!(self, lock => lock.release_poisoned(used, why).await)
    }
}

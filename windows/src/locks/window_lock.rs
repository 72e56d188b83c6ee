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
pub(crate) type Used<'w, F> = LockUse<'w, WindowLockContext<'w, F>>;

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

/// A lock as an [`OtherLock`].
#[derive(Debug)]
pub(crate) struct Erased<A>(pub(crate) A);

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
}

/// The calls of a lock: of a [`WindowLock`] they go to the lock of its own type, or through [`OtherLock`]. After each
/// asynchronous one stand its lifetimes, and that of its future.
macro_rules! calls {
    (
        $($(#[$apart:meta])* fn $call:ident $(<$life:lifetime>)? (&self $(, $arg:ident: $type:ty)*) -> $found:ty;)*
        $(async fn $awaited:ident [$($lives:tt)*] $future:lifetime ($($of:ident: $of_type:ty),*) -> $outcome:ty;)*
    ) => {
        /// [`LockAlgorithm`] for one fabric, so that the window's type does not name the lock.
        pub(crate) trait OtherLock<F: Fabric>: fmt::Debug + Send + Sync {
            fn name(&self) -> &'static str;
            fn lock_words(&self) -> LockWords;
            $(fn $call $(<$life>)? (&self $(, $arg: $type)*) -> $found;)*
            $(fn $awaited<$($lives)*>(&'w self $(, $of: $of_type)*) -> Boxed<$future, $outcome>;)*
        }

        impl<F: Fabric, A: LockAlgorithm> OtherLock<F> for Erased<A> {
            fn name(&self) -> &'static str {
                A::NAME
            }

            fn lock_words(&self) -> LockWords {
                LockWords::of(&self.0)
            }

            $(fn $call $(<$life>)? (&self $(, $arg: $type)*) -> $found {
                self.0.$call($($arg),*)
            })*

            $(fn $awaited<$($lives)*>(&'w self $(, $of: $of_type)*) -> Boxed<$future, $outcome> {
                Box::pin(self.0.$awaited($($of),*))
            })*
        }

        impl<F: Fabric> WindowLock<F> {
            $($(#[$apart])*
            pub(crate) fn $call $(<$life>)? (&self $(, $arg: $type)*) -> $found {
                by_design!(self, lock => lock.$call($($arg),*))
            })*

            $(pub(crate) async fn $awaited<$($lives)*>(&'w self $(, $of: $of_type)*) -> $outcome {
                by_design!(self, lock => lock.$awaited($($of),*).await)
            })*
        }
    };
}

calls! {
    fn words<'w>(&self, context: WindowLockContext<'w, F>, intent: Intent) -> Result<Words<'w, F>, Fault>;
    fn start(&self, used: Used<'_, F>) -> Result<F::Op, Fault>;
    /// Apart: where operations complete at post, an acquire that took the lock was not asked this.
    #[inline(never)]
    fn holds(&self, owner: u64, mode: Mode, first: u64) -> bool;
    fn ahead(&self, owner: u64, mode: Mode, first: u64, now: u64) -> Option<u64>;
    fn start_release(&self, used: Used<'_, F>) -> Result<F::Op, Fault>;
    fn released(&self, used: Used<'_, F>, found: Option<u64>) -> Result<Rest, Fault>;
    async fn contend['a, 'w: 'a] 'a (
        used: Used<'w, F>, first: Result<u64, Fault>, intent: IntentFn<'a>
    ) -> Result<Held, Fault>;
    async fn finish_release['w] 'w (used: Used<'w, F>, found: Result<u64, Fault>) -> Result<(), Fault>;
    async fn release_poisoned['w] 'w (used: Used<'w, F>, why: Fault) -> Result<(), Fault>;
}

//! The lock of a window: one of the library's, or the program's own.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use onesided_fabric::Fabric;
use onesided_fabric::remote_memory::{Fault, Link, Rank};
use onesided_lock_algos::{AnyLock, Held, IntentFn, LockAlgorithm, LockUse, Mode, TestAndSet, Words};

use crate::locks::context::WindowLockContext;

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
pub(crate) type Used<'w, F> = LockUse<'w, F, WindowLockContext<'w, F>>;

/// The words that a lock has outside of the nodes.
#[derive(Clone, Copy)]
pub(crate) struct LockWords {
    pub(crate) home: usize,
    pub(crate) at_each_rank: bool,
    pub(crate) at_each_host: usize,
    pub(crate) has_requests: bool,
}

impl LockWords {
    const fn of<A: LockAlgorithm>() -> Self {
        Self {
            home: A::HOME_WORDS,
            at_each_rank: A::PER_RANK_WORD,
            at_each_host: A::HOST_WORDS,
            has_requests: A::SERVED,
        }
    }
}

impl From<&AnyLock> for LockWords {
    fn from(lock: &AnyLock) -> Self {
        Self {
            home: lock.home_words(),
            at_each_rank: lock.has_per_rank_word(),
            at_each_host: lock.host_words(),
            has_requests: lock.is_served(),
        }
    }
}

/// The lock of a window.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one a window, and the path of the library's locks is the shortest")]
pub(crate) enum WindowLock<F: Fabric> {
    Library(AnyLock),
    Own(Arc<dyn OwnLock<F>>),
}

impl<F: Fabric> Clone for WindowLock<F> {
    fn clone(&self) -> Self {
        match self {
            Self::Library(lock) => Self::Library(*lock),
            Self::Own(lock) => Self::Own(Arc::clone(lock)),
        }
    }
}

/// The methods of [`LockAlgorithm`] that windows use, for one fabric, so that the window's type
/// does not name the lock.
pub(crate) trait OwnLock<F: Fabric>: fmt::Debug + Send + Sync {
    fn name(&self) -> &'static str;
    fn lock_words(&self) -> LockWords;
    fn words<'w>(&self, context: WindowLockContext<'w, F>) -> Result<Words<'w, F>, Fault>;
    fn words_to_try<'w>(&self, context: WindowLockContext<'w, F>) -> Result<Words<'w, F>, Fault>;
    fn start(&self, used: Used<'_, F>) -> Result<F::Op, Fault>;
    fn holds(&self, owner: u64, mode: Mode, first: u64) -> bool;
    fn contend<'a, 'w: 'a>(
        &'w self,
        used: Used<'w, F>,
        first: Result<u64, Fault>,
        intent: IntentFn<'a>,
    ) -> Boxed<'a, Result<Held, Fault>>;
    fn releases_in_one_step(&self, mode: Mode) -> bool;
    fn start_release(&self, used: Used<'_, F>) -> Result<F::Op, Fault>;
    fn release_link<'w>(&self, fabric: &F, words: Words<'w, F>, mode: Mode) -> Option<Link<F::Word<'w>>>;
    fn released(&self, used: Used<'_, F>, found: u64) -> Result<bool, Fault>;
    fn finish_release<'w>(&'w self, used: Used<'w, F>, found: Result<u64, Fault>) -> Boxed<'w, Result<(), Fault>>;
    fn release_waits(&self, used: Used<'_, F>) -> Option<bool>;
    fn release_poisoned<'w>(&'w self, used: Used<'w, F>, why: Fault) -> Boxed<'w, Result<(), Fault>>;
}

/// A lock of the program's own.
#[derive(Debug)]
pub(crate) struct Erased<A>(pub(crate) A);

impl<F: Fabric, A: LockAlgorithm> OwnLock<F> for Erased<A> {
    fn name(&self) -> &'static str {
        A::NAME
    }

    fn lock_words(&self) -> LockWords {
        LockWords::of::<A>()
    }

    fn words<'w>(&self, context: WindowLockContext<'w, F>) -> Result<Words<'w, F>, Fault> {
        self.0.words(context)
    }

    fn words_to_try<'w>(&self, context: WindowLockContext<'w, F>) -> Result<Words<'w, F>, Fault> {
        self.0.words_to_try(context)
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

    fn releases_in_one_step(&self, mode: Mode) -> bool {
        self.0.releases_in_one_step(mode)
    }

    fn start_release(&self, used: Used<'_, F>) -> Result<F::Op, Fault> {
        self.0.start_release(used)
    }

    fn release_link<'w>(&self, fabric: &F, words: Words<'w, F>, mode: Mode) -> Option<Link<F::Word<'w>>> {
        self.0.release_link(fabric, words, mode)
    }

    fn released(&self, used: Used<'_, F>, found: u64) -> Result<bool, Fault> {
        self.0.released(used, found)
    }

    fn finish_release<'w>(&'w self, used: Used<'w, F>, found: Result<u64, Fault>) -> Boxed<'w, Result<(), Fault>> {
        Box::pin(self.0.finish_release(used, found))
    }

    fn release_waits(&self, used: Used<'_, F>) -> Option<bool> {
        self.0.release_waits(used)
    }

    fn release_poisoned<'w>(&'w self, used: Used<'w, F>, why: Fault) -> Boxed<'w, Result<(), Fault>> {
        Box::pin(self.0.release_poisoned(used, why))
    }
}

/// Runs an expression with either lock.
macro_rules! either {
    ($window_lock:expr, $lock:ident => $run:expr) => {
        match $window_lock {
            WindowLock::Library($lock) => $run,
            WindowLock::Own($lock) => $run,
        }
    };
}

impl<F: Fabric> WindowLock<F> {
    /// See [`AnyLock::only_word`].
    #[inline]
    pub(crate) const fn only_word(&self, mode: Mode) -> Option<&TestAndSet> {
        match self {
            Self::Library(lock) => lock.only_word(mode),
            Self::Own(_) => None,
        }
    }

    /// See [`AnyLock::rank_found`].
    pub(crate) fn rank_found(&self, first: u64) -> Option<Rank> {
        self.library()?.rank_found(first)
    }

    /// The lock of the library; `None` for the program's own.
    #[inline]
    pub(crate) const fn library(&self) -> Option<&AnyLock> {
        match self {
            Self::Library(lock) => Some(lock),
            Self::Own(_) => None,
        }
    }

    /// See [`AnyLock::nodes_are_own`].
    pub(crate) const fn nodes_are_own(&self) -> bool {
        match self {
            Self::Library(lock) => lock.nodes_are_own(),
            Self::Own(_) => false,
        }
    }

    pub(crate) fn lock_words(&self) -> LockWords {
        match self {
            Self::Library(lock) => lock.into(),
            Self::Own(lock) => lock.lock_words(),
        }
    }

    /// Owners of the program's own locks have a slot each, so that their bits are unique.
    #[inline]
    pub(crate) fn uses_node(&self, mode: Mode) -> bool {
        match self {
            Self::Library(lock) => lock.uses_node(mode),
            Self::Own(_) => true,
        }
    }

    pub(crate) fn words<'w>(&self, context: WindowLockContext<'w, F>) -> Result<Words<'w, F>, Fault> {
        either!(self, lock => lock.words(context))
    }

    pub(crate) fn words_to_try<'w>(&self, context: WindowLockContext<'w, F>) -> Result<Words<'w, F>, Fault> {
        either!(self, lock => lock.words_to_try(context))
    }

    pub(crate) fn start(&self, used: Used<'_, F>) -> Result<F::Op, Fault> {
        either!(self, lock => lock.start(used))
    }

    #[inline]
    pub(crate) fn holds(&self, owner: u64, mode: Mode, first: u64) -> bool {
        either!(self, lock => lock.holds(owner, mode, first))
    }

    pub(crate) async fn contend<'w>(
        &'w self,
        used: Used<'w, F>,
        first: Result<u64, Fault>,
        intent: IntentFn<'_>,
    ) -> Result<Held, Fault> {
        either!(self, lock => lock.contend(used, first, intent).await)
    }

    pub(crate) fn releases_in_one_step(&self, mode: Mode) -> bool {
        either!(self, lock => lock.releases_in_one_step(mode))
    }

    pub(crate) fn start_release(&self, used: Used<'_, F>) -> Result<F::Op, Fault> {
        either!(self, lock => lock.start_release(used))
    }

    pub(crate) fn release_link<'w>(&self, fabric: &F, words: Words<'w, F>, mode: Mode) -> Option<Link<F::Word<'w>>> {
        either!(self, lock => lock.release_link(fabric, words, mode))
    }

    pub(crate) fn released(&self, used: Used<'_, F>, found: u64) -> Result<bool, Fault> {
        either!(self, lock => lock.released(used, found))
    }

    pub(crate) async fn finish_release<'w>(
        &'w self,
        used: Used<'w, F>,
        found: Result<u64, Fault>,
    ) -> Result<(), Fault> {
        either!(self, lock => lock.finish_release(used, found).await)
    }

    pub(crate) fn release_waits(&self, used: Used<'_, F>) -> Option<bool> {
        either!(self, lock => lock.release_waits(used))
    }

    pub(crate) async fn release_poisoned<'w>(&'w self, used: Used<'w, F>, why: Fault) -> Result<(), Fault> {
        either!(self, lock => lock.release_poisoned(used, why).await)
    }
}

//! The acquire of a lock: its first operation, and the contended rest.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_fabric::{Drive, Fabric, block_on, telling};
use onesided_lock_algos::{Intent, IntentFn, LockAlgorithm, LockUse, Mode, Words};

use crate::locks::layout::LockId;
use crate::locks::window_lock::by_design;
use crate::passive::previous_owner::Holding;
use crate::window::inner::Inner;
use crate::window::retry::poll_once;
use crate::window::target::Target;

/// An acquire whose first operation has left.
pub(super) struct Started<'w, F: Fabric> {
    pub(super) target: &'w Target<F>,
    pub(super) words: Words<'w, F>,
    pub(super) op: First<F>,
}

/// The first operation of an acquire.
pub(super) enum First<F: Fabric> {
    /// It took the lock, and found this.
    Held(Holding, u64),
    Done(Result<u64, Fault>),
    Posted(F::Op),
}

impl<F: Fabric> First<F> {
    /// One that has completed.
    #[inline(always)] // see `LockRequest::wait`
    fn now(lock: &impl LockAlgorithm, owner: u64, holding: Holding, outcome: Result<u64, Fault>) -> Self {
        match outcome {
            Ok(first) if lock.holds(owner, holding.mode(), first) => Self::Held(holding, first),
            outcome => Self::Done(outcome),
        }
    }
}

impl<F: Fabric> Future for First<F> {
    type Output = Result<u64, Fault>;

    #[inline(always)] // see `LockRequest::wait`
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Held(_, first) => Poll::Ready(Ok(*first)),
            Self::Done(outcome) => Poll::Ready(*outcome),
            Self::Posted(op) => Pin::new(op).poll(cx),
        }
    }
}

impl<'w, F: Fabric> Started<'w, F> {
    #[inline(always)] // see `LockRequest::wait`
    pub(super) fn new(
        inner: &'w Inner<F>,
        (rank, id): (u32, LockId),
        mode: Mode,
        intent: Intent,
    ) -> Result<Self, Fault> {
        let target = inner.begin(rank)?;
        if let Some(lock) = inner.locks.algorithm.only_word(mode) {
            let context = inner.lock_context(target, id, inner.slotless());
            let words = lock.words(context, Intent::LOCK)?;
            let op = lock.start(LockUse::new(inner.fabric(), context, words, mode))?;
            let op = match inner.completes_at_post {
                true => First::now(lock, words.1, Holding::cleanly(mode), done(op)),
                false => First::Posted(op),
            };
            return Ok(Self { target, words, op });
        }
        let leads = id.is_window_lock() && intent.is_patient();
        if let Some(owner) = leads.then(|| inner.biased_owner(mode)).flatten() {
            let (words, op) = start_biased(inner, target, owner, mode)?;
            return Ok(Self { target, words, op });
        }
        // Destructured: a returned struct lies in memory, and its fields would stay there.
        let (word, owner, op) = Self::with_node(inner, (target, id), mode, intent)?;
        Ok(Self { target, words: (word, owner), op: First::Posted(op) })
    }

    /// The same with any node that is available.
    #[cold]
    #[inline(never)]
    fn with_node(
        inner: &'w Inner<F>,
        (target, id): (&'w Target<F>, LockId),
        mode: Mode,
        intent: Intent,
    ) -> Result<(F::Word<'w>, u64, F::Op), Fault> {
        let context = inner.lock_context(target, id, inner.owner(mode)?);
        let words = inner.locks.algorithm.words(context, intent);
        let words = words.inspect_err(|_| inner.give_back(context.owner))?;
        let op = inner.locks.algorithm.start(LockUse::new(inner.fabric(), context, words, mode));
        Ok((words.0, words.1, op.inspect_err(|_| inner.give_back(words.1))?))
    }
}

/// The first operation of the owner in the biased slot, where operations complete at post.
#[inline(always)]
fn start_biased<'w, F: Fabric>(
    inner: &'w Inner<F>,
    target: &'w Target<F>,
    owner: u64,
    mode: Mode,
) -> Result<(Words<'w, F>, First<F>), Fault> {
    by_design!(
        &inner.locks.algorithm,
        lock => {
            let words = lock.words(inner.lock_context(target, LockId::WINDOW, owner), Intent::LOCK);
            let words = words.inspect_err(|_| inner.give_back(owner))?;
            let first = match mode {
                Mode::Exclusive => start_now::<_, _, true>(lock, inner, target, words.0, words.1),
                Mode::Shared => start_now::<_, _, false>(lock, inner, target, words.0, words.1),
            };
            Ok((words, First::now(lock, words.1, Holding::cleanly(mode).biased(true), first)))
        },
        _other => Err(Fault::new(FaultKind::Protocol)) // it has no biased slot
    )
}

/// A separate function, so that it is small and its result stays in registers. An acquire that could
/// not start goes on as one whose first operation failed.
#[inline(never)]
fn start_now<'w, F: Fabric, A: LockAlgorithm, const EXCLUSIVE: bool>(
    lock: &'w A,
    inner: &'w Inner<F>,
    target: &'w Target<F>,
    word: F::Word<'w>,
    owner: u64,
) -> Result<u64, Fault> {
    let mode = if EXCLUSIVE { Mode::Exclusive } else { Mode::Shared };
    let context = inner.lock_context(target, LockId::WINDOW, owner).with_cached_node()?;
    done(lock.start(LockUse::new(inner.fabric(), context, (word, owner), mode))?)
}

/// The outcome of an operation that completes at post.
#[inline(always)]
pub(super) fn done(op: impl Future<Output = Result<u64, Fault>>) -> Result<u64, Fault> {
    match poll_once(op) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => Err(Fault::new(FaultKind::Protocol)), // a fabric that claims to complete at post and does not
    }
}

/// The contended rest of an acquire, separate so that the uncontended path stays small. The word at
/// the home is looked up again: passed here, it would lie in memory on the uncontended path, too.
#[cold]
#[inline(never)]
pub(super) fn contend<'w, F: Drive>(
    inner: &'w Inner<F>,
    (target, id): (&'w Target<F>, LockId),
    owner: u64,
    (mode, intent): (Mode, Intent),
    first: Result<u64, Fault>,
) -> Result<Holding, Fault> {
    let what = || {
        let found = first.ok().and_then(|first| inner.locks.algorithm.rank_found(first));
        inner.lock_wait((target.rank, id), mode, (owner, found))
    };
    let intent = || intent;
    let contended = pin!(inner.contend((target, id), owner, mode, first, &intent));
    block_on(inner.fabric(), telling(contended, what))
}

impl<F: Fabric> Inner<F> {
    /// The same, as a future.
    pub(crate) async fn contend<'w>(
        &'w self,
        target_lock: (&'w Target<F>, LockId),
        owner: u64,
        mode: Mode,
        first: Result<u64, Fault>,
        intent: IntentFn<'_>,
    ) -> Result<Holding, Fault> {
        let held = self.contend_leased(self.lock_use(target_lock, owner, mode)?, first, intent).await;
        let is_biased = self.has_biased_slot(target_lock.1, owner);
        held.map(|held| Holding::of(held).biased(is_biased))
            .inspect_err(|fault| self.end_failed_acquire(owner, first, *fault))
    }

    /// Frees the slot of an owner whose acquire failed, given the result of its first operation.
    fn end_failed_acquire(&self, owner: u64, first: Result<u64, Fault>, fault: Fault) {
        // After an unknown outcome the lock may refer to the node, until others recover it.
        let never_began = first.is_err_and(|fault| !fault.is_unknown());
        // A node whose queue failed may still be written to: it is never reused.
        let is_free = never_began || self.locks.algorithm.lock_words().nodes_are_own;
        if is_free || fault.is_poison() || matches!(fault.kind(), FaultKind::Closed | FaultKind::TimedOut) {
            self.give_back(owner);
        }
    }
}

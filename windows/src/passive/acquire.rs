//! The acquire of a lock: its first operation, and the contended rest.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use onesided_fabric::remote_memory::{Fault, FaultKind, RemoteMemory};
use onesided_fabric::{Drive, Fabric, block_on, telling};
use onesided_lock_algos::{Intent, IntentFn, LockAlgorithm, LockContext, LockUse, Mode};

use crate::locks::layout::LockId;
use crate::passive::biased::BiasedSteps;
use crate::passive::claim::Claim;
use crate::passive::previous_owner::Holding;
use crate::window::inner::Inner;
use crate::window::retry::poll_once;
use crate::window::target::Target;

/// An acquire whose first operation has left.
pub(super) struct Started<'w, F: Fabric> {
    pub(super) target: &'w Target<F>,
    pub(super) owner: u64,
    pub(super) first: First<F>,
}

/// The first operation of an acquire.
pub(super) enum First<F: Fabric> {
    /// It took the lock.
    Held(Holding),
    Under(FirstOp<F>),
}

/// One of which it is not known whether it took the lock.
pub(super) enum FirstOp<F: Fabric> {
    Done(Result<u64, Fault>),
    Posted(F::Op),
}

impl<F: Fabric> Future for FirstOp<F> {
    type Output = Result<u64, Fault>;

    #[inline(always)] // see `LockRequest::wait`
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
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
        let target = match inner.ready(rank) {
            Some(target) => target,
            None => inner.resolve(rank)?,
        };
        if let (Some(lock), Some(owner)) = (inner.locks.algorithm.only_word(mode), inner.locks.slotless_owner)
            && let Some((memory, context)) = inner.shm_context(target, id, owner)
        {
            let (word, owner) = lock.words(context, Intent::LOCK)?;
            let outcome = done(lock.start(LockUse::new(memory, context, (word, owner), mode))?);
            let first = match outcome {
                Ok(first) if lock.holds(owner, mode, first) => First::Held(Holding::cleanly(mode)),
                outcome => First::Under(FirstOp::Done(outcome)),
            };
            return Ok(Self { target, owner, first });
        }
        if id.is_window_lock()
            && intent.is_patient()
            && let Some((owner, steps)) = &inner.locks.biased
            && inner.locks.algorithm.uses_node(mode)
            && let Some(owner) = inner.biased_owner(*owner)
        {
            let (owner, first) = start_biased(inner, target, (owner, steps), mode);
            return Ok(Self { target, owner, first });
        }
        // Destructured: a returned struct lies in memory, and its fields would stay there.
        let (owner, op) = Self::start_any(inner, (target, id), mode, intent)?;
        Ok(Self { target, owner, first: First::Under(FirstOp::Posted(op)) })
    }

    /// The same for any owner, with a node if it needs one.
    #[cold]
    #[inline(never)]
    fn start_any(
        inner: &'w Inner<F>,
        (target, id): (&'w Target<F>, LockId),
        mode: Mode,
        intent: Intent,
    ) -> Result<(u64, F::Op), Fault> {
        let context = inner.lock_context(target, id, inner.owner(mode)?);
        let words = inner.locks.algorithm.words(context, intent);
        let words = words.inspect_err(|_| inner.give_back(context.owner))?;
        let op = inner.locks.algorithm.start(LockUse::new(inner.fabric(), context, words, mode));
        Ok((words.1, op.inspect_err(|_| inner.give_back(words.1))?))
    }
}

/// The first operation of the owner in the biased slot.
#[inline(always)]
fn start_biased<F: Fabric>(
    inner: &Inner<F>,
    target: &Target<F>,
    (owner, steps): (u64, &BiasedSteps<F>),
    mode: Mode,
) -> (u64, First<F>) {
    let mut outcome = None;
    let (owner, is_held) = steps[mode as usize].start(inner, target, owner, &mut outcome);
    let first = if is_held {
        First::Held(Holding::cleanly(mode).biased(true))
    } else {
        First::Under(FirstOp::Done(outcome.unwrap_or(Err(Fault::new(FaultKind::Protocol)))))
    };
    (owner, first)
}

/// The outcome of an operation that completes at post.
#[inline(always)]
pub(super) fn done(op: impl Future<Output = Result<u64, Fault>>) -> Result<u64, Fault> {
    match poll_once(op) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => Err(Fault::new(FaultKind::Protocol)), // a fabric that claims to complete at post and does not
    }
}

impl<F: Fabric> Claim<'_, F> {
    /// The contended rest of an acquire, separate so that the uncontended path stays small. The word at
    /// the home is looked up again: passed here, it would lie in memory on the uncontended path, too.
    #[cold]
    #[inline(never)]
    pub(super) fn contend(self, intent: Intent, first: Result<u64, Fault>) -> Result<Holding, Fault>
    where
        F: Drive,
    {
        let Self { inner, target, id, owner, mode } = self;
        if first.is_ok_and(|first| self.comes_soon(first)) {
            return Ok(Holding::cleanly(mode).biased(self.is_biased()));
        }
        let what = || {
            let found = first.ok().and_then(|first| inner.locks.algorithm.rank_found(first));
            inner.lock_wait((target.rank, id), mode, (owner, found))
        };
        let intent = || intent;
        let contended = pin!(self.contended(first, &intent));
        block_on(inner.fabric(), telling(contended, what))
    }

    /// Looks at the word of a lock in mapped memory for as long as a hand-over takes, while at most one owner is ahead.
    /// Returns whether the lock is held.
    fn comes_soon(self, first: u64) -> bool
    where
        F: Drive,
    {
        let Self { inner, target, id, owner, mode } = self;
        let looks = if inner.locks.leases.is_some() { 0 } else { inner.fabric().polls().looks };
        let Some((memory, context)) = inner.shm_context(target, id, owner) else { return false };
        let Ok(home) = context.home(0) else { return false };
        for _ in 0..looks {
            match done(memory.read(home)).map(|now| inner.locks.algorithm.ahead(owner, mode, first, now)) {
                Ok(Some(0)) => return true,
                Ok(Some(1)) => std::hint::spin_loop(),
                _ => return false,
            }
        }
        false
    }

    /// The contended rest, as a future.
    pub(super) async fn contended(self, first: Result<u64, Fault>, intent: IntentFn<'_>) -> Result<Holding, Fault> {
        let held = match self.used() {
            Ok(used) => self.inner.contend_leased(used, first, intent).await,
            Err(fault) => Err(fault),
        };
        held.map(|held| Holding::of(held).biased(self.is_biased()))
            .inspect_err(|fault| self.inner.end_failed_acquire(self.owner, first, *fault))
    }
}

impl<F: Fabric> Inner<F> {
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

//! The steps of the owner in the biased slot, for one design: in shared memory, a lock
//! without contention calls one of them to acquire and one to release.
//!
//! Each is small and keeps what it has in registers: what may follow is another function, called last.

use std::sync::Arc;

use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_fabric::shm::{OwnWords, Shm};
use onesided_fabric::{Fabric, Segment};
use onesided_lock_algos::{Intent, LockAlgorithm, LockContext, LockUse, Mode, Rest};

use crate::locks::context::{BIASED_WORDS, BiasedContext};
use crate::locks::layout::LockId;
use crate::passive::acquire::done;
use crate::passive::claim::Claim;
use crate::passive::release::defer_error;
use crate::window::inner::Inner;
use crate::window::target::Target;

/// The outcome of an acquire's first operation that did not take the lock.
pub(super) type Outcome = Option<Result<u64, Fault>>;

/// The steps in one mode.
pub(crate) trait Biased<F: Fabric>: Send + Sync {
    /// Posts the first operation of an acquire. Returns the owner's bits, and whether it holds the lock;
    /// otherwise there is an outcome. An acquire that cannot start goes on as one whose first operation
    /// failed.
    fn start(&self, inner: &Inner<F>, target: &Target<F>, owner: u64, outcome: &mut Outcome) -> (u64, bool);
    /// Releases; the endpoint finishes what is left of it.
    fn release(&self, inner: &Arc<Inner<F>>, target: &Target<F>, owner: u64);
}

/// The steps of each mode.
pub(crate) type BiasedSteps<F> = [Box<dyn Biased<F>>; 2];

/// Those of one design. `None` if the window is not in shared memory. `node`: where the node lies in this rank's hidden
/// region.
pub(crate) fn steps<A: LockAlgorithm + Copy, F: Fabric>(
    lock: A,
    fabric: &F,
    hidden: &F::Segment,
    node: u64,
) -> Option<BiasedSteps<F>> {
    let (shm, node) = (fabric.as_shm()?.clone(), hidden.as_shm()?.own_words(node)?);
    let shared = Steps::<A, false> { lock, shm: shm.clone(), node: node.clone() };
    Some([Box::new(Steps::<A, true> { lock, shm, node }), Box::new(shared)])
}

/// The steps of one design and mode in shared memory, with what does not change.
struct Steps<A, const EXCLUSIVE: bool> {
    lock: A,
    shm: Shm,
    node: OwnWords<BIASED_WORDS>,
}

const fn mode(is_exclusive: bool) -> Mode {
    if is_exclusive { Mode::Exclusive } else { Mode::Shared }
}

impl<A: LockAlgorithm, const EXCLUSIVE: bool> Steps<A, EXCLUSIVE> {
    #[inline(always)] // for each step
    fn used<'w, F: Fabric>(
        &'w self,
        inner: &'w Inner<F>,
        target: &'w Target<F>,
        owner: u64,
    ) -> Option<LockUse<'w, BiasedContext<'w, F>>> {
        let context = inner.biased_context(target, owner, (&self.shm, &self.node))?;
        Some(LockUse::new(&self.shm, context, (context.home(0).ok()?, owner), mode(EXCLUSIVE)))
    }

    /// `ALONE`: if no other owner is known to wait.
    #[inline(always)] // for each
    fn release_as<F: Fabric, const ALONE: bool>(&self, inner: &Arc<Inner<F>>, target: &Target<F>, owner: u64) {
        let Some(used) = self.used(inner, target, owner) else {
            let nowhere = Fault::of(FaultKind::OutOfRange, target.fabric_rank());
            return finish::<F, EXCLUSIVE>(inner, target, owner, Err(nowhere));
        };
        let started = if ALONE { self.lock.start_release_alone(used) } else { self.lock.start_release(used).map(Some) };
        let found = match started {
            Ok(Some(op)) => done(op),
            Ok(None) => return self.release_before_others(inner, target, owner),
            Err(fault) => return defer_error(inner, target.rank, fault),
        };
        match found {
            Ok(found) if self.lock.released(used, Some(found)) == Ok(Rest::Nothing) => inner.locks.slots.free_biased(),
            found => finish::<F, EXCLUSIVE>(inner, target, owner, found),
        }
    }

    #[inline(never)]
    fn release_before_others<F: Fabric>(&self, inner: &Arc<Inner<F>>, target: &Target<F>, owner: u64) {
        self.release_as::<F, false>(inner, target, owner);
    }
}

impl<F: Fabric, A: LockAlgorithm, const EXCLUSIVE: bool> Biased<F> for Steps<A, EXCLUSIVE> {
    fn start(&self, inner: &Inner<F>, target: &Target<F>, owner: u64, outcome: &mut Outcome) -> (u64, bool) {
        let Some(used) = self.used(inner, target, owner) else {
            *outcome = Some(Err(Fault::of(FaultKind::OutOfRange, target.fabric_rank())));
            return (owner, false);
        };
        let words = match self.lock.words(used.context, Intent::LOCK) {
            Ok(words) => words,
            Err(fault) => {
                *outcome = Some(Err(fault));
                return (owner, false);
            }
        };
        match self.lock.start(LockUse::new(&self.shm, used.context, words, used.mode)).and_then(done) {
            Ok(found) if self.lock.holds(words.1, used.mode, found) => (words.1, true),
            first => {
                *outcome = Some(first);
                (words.1, false)
            }
        }
    }

    fn release(&self, inner: &Arc<Inner<F>>, target: &Target<F>, owner: u64) {
        self.release_as::<F, true>(inner, target, owner);
    }
}

/// With few arguments, so that they need no memory.
#[inline(never)]
fn finish<F: Fabric, const EXCLUSIVE: bool>(
    inner: &Arc<Inner<F>>,
    target: &Target<F>,
    owner: u64,
    found: Result<u64, Fault>,
) {
    Claim { inner, target, id: LockId::WINDOW, owner, mode: mode(EXCLUSIVE) }.finish_now(found);
}

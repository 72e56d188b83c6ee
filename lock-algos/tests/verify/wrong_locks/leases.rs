//! The leased test-and-set of the kit's example with a release that is wrong once the lease is over.

use onesided_lock_kit::lock_algos::{Held, IntentFn, LockAlgorithm, LockContext, LockUse, Mode, Op};
use onesided_lock_kit::remote_memory::{Fault, FaultKind, RemoteMemory};

use super::locks::Leased;

/// `FREES`: its release frees the word, whoever holds it. Otherwise a late one says that all is well.
#[derive(Clone, Copy, Debug)]
pub(super) struct Late<const FREES: bool>;

impl<const FREES: bool> LockAlgorithm for Late<FREES> {
    const NAME: &'static str = "late";
    const HOME_WORDS: usize = 1;
    const NODE_WORDS: usize = 0;

    fn is_free(home: &[u64]) -> bool {
        Leased::is_free(home)
    }

    fn uses_node(&self, mode: Mode) -> bool {
        Leased::USUAL.uses_node(mode)
    }

    fn start<'m, P: LockContext<'m>>(&self, lock: LockUse<'m, P>) -> Result<Op<P>, Fault> {
        Leased::USUAL.start(lock)
    }

    fn holds(&self, owner: u64, mode: Mode, first: u64) -> bool {
        Leased::USUAL.holds(owner, mode, first)
    }

    async fn contend<'m, P: LockContext<'m>>(
        &'m self,
        lock: LockUse<'m, P>,
        first: Result<u64, Fault>,
        intent: IntentFn<'_>,
    ) -> Result<Held, Fault> {
        const { &Leased::USUAL }.contend(lock, first, intent).await
    }

    fn start_release<'m, P: LockContext<'m>>(&self, lock: LockUse<'m, P>) -> Result<Op<P>, Fault> {
        if FREES { Ok(lock.memory.read(lock.home)) } else { Leased::USUAL.start_release(lock) }
    }

    async fn finish_release<'m, P: LockContext<'m>>(
        &'m self,
        lock: LockUse<'m, P>,
        found: Result<u64, Fault>,
    ) -> Result<(), Fault> {
        if FREES {
            return lock.memory.compare_swap(lock.home, found?, 0).await.map(drop);
        }
        match const { &Leased::USUAL }.finish_release(lock, found).await {
            Err(fault) if fault.kind() == FaultKind::NotHeld => Ok(()),
            done => done,
        }
    }
}

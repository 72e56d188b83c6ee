//! Test-and-set that recovers from dead owners, as five functions: Jiang et al., *Efficient
//! implementation of MPI-2 passive one-sided communication on InfiniBand clusters*, EuroPVM/MPI 2004,
//! section 5.1; the recovery is that of robust mutexes (POSIX, `pthread_mutex_consistent`).

use onesided_lock_kit::lock_algos::{Held, IntentFn, LockAlgorithm, LockContext, LockUse, Mode, Op, Owner};
use onesided_lock_kit::remote_memory::{Fault, FaultKind, Liveness, Notify, RemoteMemory};

/// Words: 0, or the owner; and why it left the lock poisoned, if its word says that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recovering;

const HELD: u64 = 1 << 62;
const POISONED: u64 = 1 << 63;

/// Why the owner of this word releases no more.
async fn ended<'m, P: LockContext<'m>>(lock: &LockUse<'m, P>, word: u64) -> Result<Option<Fault>, Fault> {
    let (home, rank) = (lock.context.home_rank(), Owner::from_bits(word).rank);
    if word & POISONED != 0 {
        return Ok(Fault::from_bits(lock.memory.read(lock.context.home(1)?).await?));
    }
    let left = lock.memory.liveness(rank) == Liveness::Left;
    // Its operations take effect no more: neither a late release, nor writes to the data.
    let gone = word != 0 && (left || lock.memory.has_failed(home, rank)) && lock.memory.has_cut(home, rank).await?;
    Ok(gone.then(|| Fault::of(if left { FaultKind::OwnerLeft } else { FaultKind::OwnerDied }, rank)))
}

impl LockAlgorithm for Recovering {
    const NAME: &'static str = "recovering test-and-set";
    const HOME_WORDS: usize = 2;
    const NODE_WORDS: usize = 0;

    fn is_free(home: &[u64]) -> bool {
        home[0] == 0
    }

    fn uses_node(&self, _mode: Mode) -> bool {
        false
    }

    fn start<'m, P: LockContext<'m>>(&self, lock: LockUse<'m, P>) -> Result<Op<P>, Fault> {
        Ok(lock.memory.compare_swap(lock.home, 0, HELD | lock.owner))
    }

    /// Readers hold it exclusively: `contend` says so.
    fn holds(&self, _owner: u64, mode: Mode, first: u64) -> bool {
        mode == Mode::Exclusive && first == 0
    }

    async fn contend<'m, P: LockContext<'m>>(
        &'m self,
        lock: LockUse<'m, P>,
        first: Result<u64, Fault>,
        intent: IntentFn<'_>,
    ) -> Result<Held, Fault> {
        let (memory, me, mut found) = (lock.memory, HELD | lock.owner, first?);
        if found == 0 {
            return Ok(Held::cleanly(Mode::Exclusive));
        }
        loop {
            let ended = ended(&lock, found).await?;
            let (intent, expected) = (intent(), if ended.is_some() { found } else { 0 });
            match ended {
                _ if intent.is_over() => return Err(intent.given_up()),
                // It may have released before it died.
                Some(why) if !intent.recovers && memory.read(lock.home).await? == found => return Err(why),
                None if found != 0 && !intent.is_patient() => return Err(intent.given_up()),
                None if found != 0 => memory.pause(lock.home, 10_000).await,
                _ => {}
            }
            let now = memory.compare_swap(lock.home, expected, me).await?;
            if now == expected {
                return Ok(Held { mode: Mode::Exclusive, recovered: ended });
            }
            found = now;
        }
    }

    fn start_release<'m, P: LockContext<'m>>(&self, lock: LockUse<'m, P>) -> Result<Op<P>, Fault> {
        Ok(lock.memory.compare_swap(lock.home, HELD | lock.owner, 0))
    }

    async fn finish_release<'m, P: LockContext<'m>>(
        &'m self,
        _lock: LockUse<'m, P>,
        found: Result<u64, Fault>,
    ) -> Result<(), Fault> {
        found.map(drop)
    }

    async fn release_poisoned<'m, P: LockContext<'m>>(&'m self, lock: LockUse<'m, P>, why: Fault) -> Result<(), Fault> {
        let me = HELD | lock.owner;
        lock.memory.write(lock.context.home(1)?, why.to_bits(), Notify::No).await?;
        lock.memory.compare_swap(lock.home, me, POISONED | me).await.map(drop)
    }
}

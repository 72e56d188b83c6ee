//! Test-and-set with leases, as five functions: Gray and Cheriton, *Leases: an efficient fault-tolerant
//! mechanism for distributed file cache consistency*, SOSP 1989. A waiter measures the lease from when it
//! first saw the owner, so that clocks need not agree. What a late owner writes to the data is not
//! fenced: it looks at its clock before, or commits.

use std::time::Duration;

use onesided_lock_kit::lock_algos::{Held, IntentFn, LockAlgorithm, LockContext, LockUse, Mode, Op, Owner};
use onesided_lock_kit::remote_memory::{Fault, FaultKind, RemoteMemory};

/// A word: 0, or the owner. With its lease in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leased(pub(crate) u64);

const HELD: u64 = 1 << 62;

impl Leased {
    pub(crate) const LEASE: Duration = Duration::from_millis(1);
    pub(crate) const USUAL: Self = Self(Self::LEASE.as_nanos() as u64);
}

impl LockAlgorithm for Leased {
    const NAME: &'static str = "leased test-and-set";
    const HOME_WORDS: usize = 1;
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
        let (memory, mode, mut found) = (lock.memory, Mode::Exclusive, first?);
        if found == 0 {
            return Ok(Held::cleanly(mode));
        }
        let mut since = memory.now();
        loop {
            let late = found != 0 && memory.now() - since >= self.0;
            let (intent, expected) = (intent(), if late { found } else { 0 });
            let why = Fault::of(FaultKind::LeaseExpired, Owner::from_bits(found).rank);
            match found {
                _ if intent.is_over() => return Err(intent.given_up()),
                _ if late && !intent.recovers && memory.read(lock.home).await? == found => return Err(why),
                1.. if !late && !intent.is_patient() => return Err(intent.given_up()),
                1.. if !late => memory.pause(lock.home, 10_000).await,
                _ => {}
            }
            let now = memory.compare_swap(lock.home, expected, HELD | lock.owner).await?;
            if now == expected {
                return Ok(Held { mode, recovered: late.then_some(why) });
            }
            if now != found {
                (found, since) = (now, memory.now()); // a lease is of one acquire
            }
        }
    }

    fn start_release<'m, P: LockContext<'m>>(&self, lock: LockUse<'m, P>) -> Result<Op<P>, Fault> {
        Ok(lock.memory.compare_swap(lock.home, HELD | lock.owner, 0))
    }

    async fn finish_release<'m, P: LockContext<'m>>(
        &'m self,
        lock: LockUse<'m, P>,
        found: Result<u64, Fault>,
    ) -> Result<(), Fault> {
        if found? == HELD | lock.owner { Ok(()) } else { Err(Fault::new(FaultKind::NotHeld)) }
    }
}

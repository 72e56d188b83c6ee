//! The suspicion of owners that may be dead: a count names no rank.

use onesided_remote_memory::RemoteMemory;

use super::scan::{announced, failed_and_announced};
use crate::LockContext;

/// The suspicion timeout: how long a waiter expects participants to release after it saw that a
/// rank had failed, in nanoseconds, if the memory of a failed rank shows that it is announced for
/// the lock. It doubles while live owners explain the word.
const FIRST_PATIENCE: u64 = 10_000_000;
/// The same if none shows it: a scan is many reads, and the memory of the dead may be gone.
const BLIND_PATIENCE: u64 = 1_000_000_000;
const MOST_PATIENCE: u64 = 8_000_000_000;

#[derive(Debug)]
pub(crate) struct Suspicion {
    since: Option<u64>,
    patience: u64,
    members: u64,
    /// The failed ranks that the timeout takes into account.
    failures: u32,
}

impl Default for Suspicion {
    fn default() -> Self {
        Self { since: None, patience: FIRST_PATIENCE, members: 0, failures: 0 }
    }
}

impl Suspicion {
    /// Records the current number of participants. If it fell, the timeout starts again.
    pub(crate) const fn seen(&mut self, members: u64) {
        if members < self.members {
            self.since = None;
            self.patience = FIRST_PATIENCE;
        }
        self.members = members;
    }

    /// Whether a rank has failed, the timeout has passed since, and fewer live owners are announced
    /// than the lock's word has `counted`, this owner aside. Only for a word that has not changed
    /// since before the call: an owner that arrives meanwhile changes it.
    pub(crate) async fn suspects<'m, M: RemoteMemory>(
        &mut self,
        memory: &M,
        context: impl LockContext<'m, M>,
        counted: u64,
    ) -> bool {
        if memory.failed_at(context.home_rank()).is_none() {
            return false;
        }
        let failures = memory.failures();
        if failures != self.failures {
            (self.since, self.patience, self.failures) = (None, FIRST_PATIENCE, failures);
        }
        if !self.lasts(memory) {
            return false;
        }
        if self.patience < BLIND_PATIENCE && failed_and_announced(memory, context).await.is_none() {
            self.patience = BLIND_PATIENCE;
            return false;
        }
        if announced(memory, context).await.is_some_and(|announced| announced < counted) {
            return true;
        }
        self.since = Some(memory.now());
        self.patience = MOST_PATIENCE.min(2 * self.patience);
        false
    }

    /// Whether the timeout has passed since the first call.
    fn lasts<M: RemoteMemory>(&mut self, memory: &M) -> bool {
        let now = memory.now();
        now.saturating_sub(*self.since.get_or_insert(now)) >= self.patience
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_restarts_the_suspicion_timeout() {
        let mut suspicion = Suspicion::default();
        suspicion.seen(2);
        suspicion.since = Some(5);
        for (members, since) in [(2, Some(5)), (3, Some(5)), (2, None)] {
            suspicion.seen(members);
            assert_eq!(suspicion.since, since, "{members}");
        }
        suspicion.since = Some(7);
        suspicion.seen(2);
        assert_eq!(suspicion.since, Some(7));
    }
}

//! The suspicion of owners that may have ended: a count names no rank.

use onesided_remote_memory::{Fault, RemoteMemory};

use super::Boxed;
use super::scan::{Trace, ended_participant, fewer_announced};
use crate::{LockContext, LockUse};

/// The suspicion timeout: how long a waiter expects participants to release after it saw that a
/// rank had ended, in nanoseconds, if the memory of an ended rank shows that it is announced for
/// the lock. It doubles while live owners explain the word.
const FIRST_PATIENCE: u64 = 10_000_000;
/// The same if none shows it: a scan is many reads, and the memory of the dead may be gone. Most
/// ranks that leave use no lock then, and delay nobody.
const BLIND_PATIENCE: u64 = 1_000_000_000;
const MOST_PATIENCE: u64 = 8_000_000_000;

/// The suspicion of one waiter. There may be very many, and while no rank has ended nothing is
/// suspected: small.
#[derive(Debug, Default)]
pub(crate) struct Suspicion(Option<Box<Suspects>>);

#[derive(Debug)]
struct Suspects {
    /// When the timeout started, or [`NEVER`].
    since: u64,
    /// The timeout; at most [`MOST_PATIENCE`], in microseconds.
    micros: u32,
    members: u32,
    /// The [ends](RemoteMemory::ends) that the timeout takes into account.
    ends: u32,
}

const NEVER: u64 = u64::MAX;

impl Default for Suspects {
    fn default() -> Self {
        let mut suspects = Self { since: NEVER, micros: 0, members: 0, ends: 0 };
        suspects.restart();
        suspects
    }
}

impl Suspicion {
    /// Records the current number of participants. If it fell, the timeout starts again.
    pub(crate) fn seen(&mut self, members: u64) {
        if let Some(suspects) = &mut self.0 {
            suspects.seen(members);
        }
    }

    /// Whether a rank has ended, and the timeout has passed since: now the owners are to be
    /// [scanned](Self::suspects).
    pub(crate) fn is_due<M: RemoteMemory>(&mut self, memory: &M) -> bool {
        memory.ends() != 0 && self.0.get_or_insert_default().is_due(memory)
    }

    /// Of a suspicion that [is due](Self::is_due): whether fewer live owners are announced than the
    /// lock's word has `counted`, this owner aside. Only for a word that has not changed since
    /// before the call: an owner that arrives meanwhile changes it.
    ///
    /// # Errors
    /// The connection to a participant is lost: this rank cannot tell, and would wait without end.
    pub(crate) fn suspects<'a, 'm: 'a, M: RemoteMemory>(
        &'a mut self,
        lock: &'a LockUse<'m, M, impl LockContext<'m, M>>,
        counted: u64,
    ) -> Boxed<'a, Result<bool, Fault>> {
        Box::pin(self.0.get_or_insert_default().scan(lock.memory, lock.context, counted))
    }
}

impl Suspects {
    fn seen(&mut self, members: u64) {
        let members = u32::try_from(members).unwrap_or(u32::MAX);
        if members < self.members {
            self.restart();
        }
        self.members = members;
    }

    const fn restart(&mut self) {
        self.since = NEVER;
        self.set_patience(FIRST_PATIENCE);
    }

    const fn set_patience(&mut self, nanos: u64) {
        self.micros = (nanos / 1000) as u32;
    }

    /// In nanoseconds.
    const fn patience(&self) -> u64 {
        self.micros as u64 * 1000
    }

    fn is_due<M: RemoteMemory>(&mut self, memory: &M) -> bool {
        let ends = memory.ends();
        if ends != self.ends {
            self.restart();
            self.ends = ends;
        }
        self.lasts(memory)
    }

    async fn scan<'m, M: RemoteMemory>(
        &mut self,
        memory: &M,
        context: impl LockContext<'m, M>,
        counted: u64,
    ) -> Result<bool, Fault> {
        if self.patience() < BLIND_PATIENCE {
            let ended = ended_participant(memory, context).await;
            if ended.is_none_or(|ended| ended.trace != Trace::Announced) {
                self.set_patience(BLIND_PATIENCE);
                return Ok(false);
            }
        }
        if fewer_announced(memory, context, counted).await? {
            return Ok(true);
        }
        self.since = memory.now();
        self.set_patience(MOST_PATIENCE.min(2 * self.patience()));
        Ok(false)
    }

    /// Whether the timeout has passed since the first call.
    fn lasts<M: RemoteMemory>(&mut self, memory: &M) -> bool {
        let now = memory.now();
        if self.since == NEVER {
            self.since = now;
        }
        now.saturating_sub(self.since) >= self.patience()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_restarts_the_suspicion_timeout() {
        let mut suspicion = Suspects::default();
        suspicion.seen(2);
        suspicion.since = 5;
        for (members, since) in [(2, 5), (3, 5), (2, NEVER)] {
            suspicion.seen(members);
            assert_eq!(suspicion.since, since, "{members}");
        }
        suspicion.since = 7;
        suspicion.seen(2);
        assert_eq!(suspicion.since, 7);
    }
}

//! The suspicion of owners that may have ended: a count names no rank.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use onesided_remote_memory::{Fault, RemoteMemory};

use super::scan::Trace;
use super::{Boxed, RecoverableWord, nonce};
use crate::{LockContext, LockUse};

/// The suspicion timeout, in milliseconds: how long a waiter expects participants to release after
/// it saw that a rank had ended. It starts with the first, if the memory of an ended rank shows that
/// it is announced for the lock, and otherwise with [`BLIND`]. The next one follows while live
/// owners explain the word.
const TIMEOUTS: [u32; 10] = [10, 20, 40, 80, 160, 320, 1_000, 2_000, 4_000, 8_000];
/// If no memory shows it: a scan is many reads, and the memory of the dead may be gone. Most ranks
/// that leave use no lock then, and delay nobody.
const BLIND: u8 = 6;

/// The suspicion of one waiter. There may be very many: small.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Suspicion {
    /// When the timeout started, in milliseconds, wrapping.
    since: u32,
    /// The last number of participants, as far as it fits.
    members: u16,
    /// The [ends](RemoteMemory::ends) that the timeout takes into account, wrapping.
    ends: u8,
    /// The timeout: 0 if it has not started, or its place in [`TIMEOUTS`] from 1.
    timeout: u8,
}

/// A scan that may not be due. Awaited as it is made, one that is due lies in a waiter's future once: taken
/// out of an option first, twice.
pub(crate) struct Scan<'a, W>(Option<Boxed<'a, Result<Option<W>, Fault>>>);

impl<W> Future for Scan<'_, W> {
    type Output = Result<Option<W>, Fault>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().map_or(Poll::Ready(Ok(None)), |scan| scan.as_mut().poll(cx))
    }
}

fn millis<M: RemoteMemory>(memory: &M) -> u32 {
    (memory.now() / 1_000_000) as u32
}

impl Suspicion {
    /// Records the current number of participants, and whether it fell: the timeout starts again then.
    pub(crate) fn seen(&mut self, members: u64) -> bool {
        let members = u16::try_from(members).unwrap_or(u16::MAX);
        let fell = members < self.members;
        if fell {
            self.timeout = 0;
        }
        self.members = members;
        fell
    }

    fn has_passed(&mut self, ends: u32, now: u32) -> bool {
        if self.timeout == 0 || self.ends != ends as u8 {
            (self.since, self.ends, self.timeout) = (now, ends as u8, 1);
        }
        now.wrapping_sub(self.since) >= TIMEOUTS[usize::from(self.timeout) - 1]
    }

    /// Scans the owners, if a rank has ended and the timeout has passed since. If fewer live owners are
    /// announced than the lock's word has `counted`, this owner aside, puts the word under recovery, and
    /// returns the current one.
    ///
    /// # Errors
    /// The connection to a participant is lost: this rank cannot tell, and would wait without end.
    pub(crate) fn check<'a, 'm: 'a, W: RecoverableWord + 'a>(
        &'a mut self,
        lock: &'a LockUse<'m, impl LockContext<'m>>,
        word: W,
        counted: u64,
    ) -> Scan<'a, W> {
        let ends = lock.memory.ends();
        Scan((ends != 0 && self.has_passed(ends, millis(lock.memory))).then(|| -> Boxed<'a, _> {
            Box::pin(async move {
                let participants = lock.participants();
                if self.timeout <= BLIND {
                    let ended = participants.ended().await;
                    if ended.is_none_or(|ended| ended.trace != Trace::Announced) {
                        self.timeout = BLIND + 1;
                        return Ok(None);
                    }
                }
                if participants.fewer_announced(counted).await? {
                    // If it has not changed: an owner that arrives meanwhile changes it.
                    return lock.change(word, word.recovering(nonce(lock.memory, lock.me()))).await.map(Some);
                }
                let next = usize::from(self.timeout) + 1;
                (self.since, self.timeout) = (millis(lock.memory), TIMEOUTS.len().min(next) as u8);
                Ok(None)
            })
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_and_another_end_restart_the_suspicion_timeout() {
        let mut suspicion = Suspicion::default();
        let mut passed = |members, ends, now| {
            suspicion.seen(members);
            suspicion.has_passed(ends, now)
        };
        for (members, ends, now, has) in [
            (2, 1, u32::MAX, false),
            (2, 1, 8, false),
            (3, 1, 9, true),
            (2, 1, 10, false),
            (2, 1, 20, true),
            (2, 2, 21, false),
            (2, 2, 31, true),
            (u64::MAX, 2, 32, true),
        ] {
            assert_eq!(passed(members, ends, now), has, "{members} {ends} {now}");
        }
    }

    #[test]
    fn a_suspicion_is_a_word() {
        assert_eq!(size_of::<Suspicion>(), 8);
    }
}

//! Bounded admission: there may be more owners than a lock's word has room for.

use std::future::Future;

use onesided_remote_memory::{Fault, RemoteMemory};

use super::{RecoverableWord, Suspicion, announce, announce_waiting};
use crate::backoff::Pauses;
use crate::{IntentFn, LockContext, LockUse, Mode};

/// How many swaps may be lost in a row without a pause.
const RACES: u32 = 8;

/// A word that counts owners and waiters.
pub(crate) trait CountingWord: RecoverableWord {
    /// The most of one mode.
    const ROOM: u64;

    /// Those of a mode.
    fn of_mode(self, mode: Mode) -> u64;

    /// All of them, unless the word is under recovery.
    fn owners(self) -> u64;
}

/// Joins the owners of a word by compare-swap, once there is room; with a try only if the lock
/// `is_open`. Returns the word before that, or `None` if the word is under recovery and this owner is
/// not in it. `found` is the word as it was read; this owner is announced already.
pub(crate) fn join<'a, 'm: 'a, W: CountingWord + 'a>(
    lock: &'a LockUse<'m, impl LockContext<'m>>,
    mut found: W,
    (intent, pauses): (&'a IntentFn<'_>, &'a mut Pauses<'_>),
    is_open: impl Fn(W) -> bool + Send + 'a,
    joined: impl Fn(W) -> W + Send + 'a,
) -> impl Future<Output = Result<Option<W>, Fault>> + Send {
    async move {
        let mut suspicion = Suspicion::default();
        let mut lost = 0_u32;
        loop {
            let intent = intent();
            let (is_open, count) = (is_open(found), found.of_mode(lock.mode));
            let is_full = count >= lock.context.owners().share(W::ROOM);
            if found.is_recovering() && !is_open && !intent.is_over() {
                return Ok(None);
            }
            if intent.is_over() || !intent.is_patient() && (is_full || !is_open) {
                return Err(intent.given_up());
            }
            if is_full {
                announce_waiting(lock.memory, lock.context)?;
                if suspicion.seen(count) {
                    pauses.restart();
                }
                if let Some(recovering) = suspicion.check(lock, found, found.owners()).await? {
                    found = recovering;
                    continue;
                }
            } else {
                announce(lock.memory, lock.context)?;
                let now = lock.swap(found, joined(found)).await?;
                if now == found {
                    return Ok(Some(found));
                }
                found = now;
                lost += 1;
                if !lost.is_multiple_of(RACES) {
                    continue;
                }
            }
            lock.memory.pause(lock.home, pauses.next_nanos()).await;
            found = lock.look().await?;
        }
    }
}

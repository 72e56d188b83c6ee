//! Bounded admission: there may be more owners than tickets.

use std::future::Future;

use onesided_remote_memory::{Fault, RemoteMemory};

use super::Waiter;
use super::counters::Counters;
use super::recovery::Waiting;
use crate::fetch_add_queue::InRing;
use crate::{LockContext, recovery};

/// How many swaps for a ticket may be lost in a row without a pause.
const RACES: u32 = 8;

impl<'m, M: RemoteMemory, P: LockContext<'m, M>, R: InRing, const BITS: u32> Waiter<'m, '_, M, P, R, BITS> {
    /// Takes a ticket by bounded admission, or for a try only if it is served at once. Returns the
    /// word before it, or `None` if the word is under recovery and there is no ticket. This owner
    /// is announced already.
    pub(super) fn take_bounded(
        &mut self,
        mut found: Counters<BITS>,
    ) -> impl Future<Output = Result<Option<Counters<BITS>>, Fault>> + Send {
        async move {
            let mut waiting = Waiting::new(found);
            let mut lost = 0_u32;
            loop {
                let intent = (self.intent)();
                if found.is_recovering() && !intent.is_over() {
                    return Ok(None);
                }
                let is_full = found.out(self.lock.mode) >= self.lock.context.owners().share(Counters::<BITS>::ROOM);
                if intent.is_over() || !intent.is_patient() && (is_full || found.ahead(found, self.lock.mode) > 0) {
                    return Err(intent.given_up());
                }
                if is_full {
                    recovery::announce_waiting(self.lock.memory, self.lock.context)?;
                    let due = self.is_due(&mut waiting, found);
                    let suspected = if due { self.suspect(&mut waiting, found, 0).await? } else { None };
                    found = match suspected {
                        Some(recovering) => recovering,
                        None => {
                            self.lock.memory.pause(self.lock.home, self.pauses.next_behind(1)).await;
                            self.lock.look().await?
                        }
                    };
                    continue;
                }
                recovery::announce(self.lock.memory, self.lock.context)?;
                let now = self.lock.swap(found, found.unguarded().joined(self.lock.mode)).await?;
                if now == found {
                    return Ok(Some(found));
                }
                found = now;
                lost += 1;
                if lost.is_multiple_of(RACES) {
                    self.lock.memory.pause(self.lock.home, self.pauses.next_nanos()).await;
                    found = self.lock.look().await?;
                }
            }
        }
    }
}

//! What the recovery of a ticket lock asks of it: suspected tickets, and tickets without an owner. The takeover itself is
//! that of all locks that count their owners (`recovery`).

use onesided_remote_memory::{Fault, FaultKind};

use super::counters::Counters;
use super::{Turn, Waiter};
use crate::fetch_add_queue::InRing;
use crate::recovery::{Boxed, CountingWord, RecoverableWord};
use crate::{LockContext, LockUse, Mode};

impl<const BITS: u32> RecoverableWord for Counters<BITS> {
    fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    fn to_bits(self) -> u64 {
        self.0
    }

    fn is_recovering(self) -> bool {
        Self::is_recovering(self)
    }

    /// The counters tell one recovery from another.
    fn recovering(self, _nonce: u64) -> Self {
        Self::recovering(self)
    }

    /// A waiter's ticket is not told from an owner's.
    fn may_be_poisoned(self) -> bool {
        self.out(Mode::Exclusive) > 0
    }
}

impl<const BITS: u32> CountingWord for Counters<BITS> {
    const ROOM: u64 = Self::ROOM;

    fn of_mode(self, mode: Mode) -> u64 {
        self.out(mode)
    }

    fn owners(self) -> u64 {
        self.out(Mode::Exclusive) + self.out(Mode::Shared)
    }
}

impl<'m, P: LockContext<'m>, R: InRing, const BITS: u32> Waiter<'m, '_, P, R, BITS> {
    /// Ends without a turn, while `word` counts this owner's ticket: all waiters start over, without
    /// a fault.
    pub(super) fn give_up(&self, word: Counters<BITS>, why: Fault) -> Boxed<'_, Result<Turn, Fault>> {
        Box::pin(async move {
            let mut word = word;
            while !word.is_recovering() {
                word = self.lock.change(word, word.recovering()).await?;
            }
            self.lock.add::<Counters<BITS>>(Counters::<BITS>::returning(self.lock.mode)).await?;
            Ok(Turn::Withdrawn(why))
        })
    }
}

/// Puts the word under recovery if a ticket is out: it may be without an owner.
pub(super) async fn leave_out<'m, const BITS: u32>(lock: LockUse<'m, impl LockContext<'m>>) -> Result<(), Fault> {
    let mut found: Counters<BITS> = lock.look().await?;
    // With none out, none is without an owner.
    while !found.is_recovering() && !found.nothing_out() {
        found = lock.change(found, found.recovering()).await?;
    }
    Ok(())
}

/// Undoes a release by a rank that did not hold the lock.
#[cold]
pub(super) fn not_held<'m, const BITS: u32>(lock: LockUse<'m, impl LockContext<'m>>) -> Boxed<'m, Result<(), Fault>> {
    Box::pin(async move {
        let mut found: Counters<BITS> = lock.look().await?;
        loop {
            let now = lock.swap(found, found.unreturned(lock.mode).unguarded()).await?;
            if now == found {
                return Err(Fault::new(FaultKind::NotHeld));
            }
            found = now;
        }
    })
}

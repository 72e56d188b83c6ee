//! The recovery of a ticket lock: suspected tickets, and tickets without an owner.

use onesided_remote_memory::{Fault, FaultKind, RemoteMemory};

use super::counters::Counters;
use super::{Turn, Waiter};
use crate::fetch_add_queue::InRing;
use crate::recovery::{Boxed, RecoverableWord, Suspicion};
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

    /// A waiter's ticket is not told from an owner's.
    fn may_be_poisoned(self) -> bool {
        self.out(Mode::Exclusive) > 0
    }
}

/// A wait for tickets to return.
pub(super) struct Waiting<const BITS: u32> {
    /// The word when a ticket was last returned.
    since: Counters<BITS>,
    /// The suspicion since then.
    suspicion: Suspicion,
}

impl<const BITS: u32> Waiting<BITS> {
    pub(super) fn new(word: Counters<BITS>) -> Self {
        Self { since: word, suspicion: Suspicion::default() }
    }
}

impl<'m, M: RemoteMemory, P: LockContext<'m, M>, R: InRing, const BITS: u32> Waiter<'m, '_, M, P, R, BITS> {
    /// Whether the holders of this word are to be [suspected](Self::suspect).
    pub(super) fn is_due(&mut self, waiting: &mut Waiting<BITS>, word: Counters<BITS>) -> bool {
        if word.returned() != waiting.since.returned() {
            *waiting = Waiting::new(word);
            self.pauses.restart();
        }
        waiting.suspicion.is_due(self.lock.memory)
    }

    /// Puts the word under recovery if its holders are suspected, and returns it. `mine`: how many
    /// of the tickets that are out are this owner's.
    pub(super) fn suspect<'a>(
        &'a self,
        waiting: &'a mut Waiting<BITS>,
        word: Counters<BITS>,
        mine: u64,
    ) -> Boxed<'a, Result<Option<Counters<BITS>>, Fault>> {
        let others = (word.out(Mode::Exclusive) + word.out(Mode::Shared)).saturating_sub(mine);
        Box::pin(async move {
            match waiting.suspicion.suspects(&self.lock, others).await? {
                true => self.lock.change(word, word.recovering()).await.map(Some),
                false => Ok(None),
            }
        })
    }

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
pub(super) async fn leave_out<'m, M: RemoteMemory, const BITS: u32>(
    lock: LockUse<'m, M, impl LockContext<'m, M>>,
) -> Result<(), Fault> {
    let mut found: Counters<BITS> = lock.look().await?;
    // With none out, none is without an owner.
    while !found.is_recovering() && !found.nothing_out() {
        found = lock.change(found, found.recovering()).await?;
    }
    Ok(())
}

/// Undoes a release by a rank that did not hold the lock.
#[cold]
pub(super) fn not_held<'m, M: RemoteMemory, const BITS: u32>(
    lock: LockUse<'m, M, impl LockContext<'m, M> + 'm>,
) -> Boxed<'m, Result<(), Fault>> {
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

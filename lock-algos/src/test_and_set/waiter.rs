//! What a waiter does about the word that it found.

use onesided_remote_memory::{Fault, FaultKind, RemoteMemory};

use super::lease::Lease;
use super::word::{FREE, Holder, READERS, holder, taken};
use crate::backoff::Pauses;
use crate::recovery::Suspicion;
use crate::{Held, Mode, Owner};

/// How often a reader that lost only against other readers retries without a pause.
const READER_RACES: u32 = 8;

/// The next step for a word.
pub(super) enum Step {
    /// Swap the word for this one, which acquires the lock.
    Take(u64, Held),
    /// Wait for readers, or put the word under recovery if one is suspected to be dead.
    Suspicion,
    /// Put the word under recovery.
    Recover,
    /// Retry once, because the last holder may have released before it died, and then fail.
    Report(Fault),
    /// Pause, and try to swap a free word.
    Wait,
}

/// The state of a waiter.
pub(super) struct Waiter<'b> {
    pub(super) mode: Mode,
    pub(super) pauses: Pauses<'b>,
    /// Races against readers that were lost in a row.
    races: u32,
    pub(super) suspicion: Suspicion,
    lease: Option<Lease>,
    /// An owner's word, and when it was first seen.
    seen: (u64, u64),
}

impl<'b> Waiter<'b> {
    pub(super) fn new(mode: Mode, pauses: Pauses<'b>, lease: Option<Lease>) -> Self {
        Self { mode, pauses, races: 0, suspicion: Suspicion::default(), lease, seen: (FREE, 0) }
    }

    /// The next step for a live owner.
    fn late<M: RemoteMemory>(&mut self, memory: &M, owner: u64, found: u64) -> Step {
        let Some(Lease { nanos, takes }) = self.lease else { return Step::Wait };
        let now = memory.now();
        if self.seen.0 != found {
            self.seen = (found, now);
        }
        if now.saturating_sub(self.seen.1) <= nanos {
            return Step::Wait;
        }
        let late = Fault::of(FaultKind::LeaseExpired, Owner::from_bits(found).rank);
        if takes { Step::Take(owner, Held::after(late, Mode::Exclusive)) } else { Step::Report(late) }
    }

    /// `ended` is the fault of an exclusive owner that ended.
    pub(super) fn step<M: RemoteMemory>(
        &mut self,
        memory: &M,
        owner: u64,
        found: u64,
        ended: Option<Fault>,
        recovers: bool,
    ) -> Step {
        let Holder::Readers = holder(found) else {
            (self.races, self.suspicion) = (0, Suspicion::default());
            return match (holder(found), ended) {
                (Holder::Nobody, _) => Step::Take(taken(FREE, self.mode, owner), Held::cleanly(self.mode)),
                (_, Some(died)) if recovers => Step::Take(owner, Held::after(died, Mode::Exclusive)),
                (_, Some(died)) => Step::Report(died),
                (_, None) => self.late(memory, owner, found),
            };
        };
        if self.mode == Mode::Exclusive {
            self.suspicion.seen(found & READERS);
            return Step::Suspicion;
        }
        self.races = (self.races + 1) % READER_RACES;
        if self.races == 0 { Step::Wait } else { Step::Take(taken(found, self.mode, owner), Held::cleanly(self.mode)) }
    }
}

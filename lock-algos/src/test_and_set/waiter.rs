//! The waiter: what it does about the word that it found.

use std::future::Future;

use onesided_remote_memory::{Fault, FaultKind, RemoteMemory};

use super::lease::Lease;
use super::word::{FREE, Holder, READERS, Readers, ended_owner, holder, may_have_ended, taken};
use crate::backoff::Pauses;
use crate::cohort::{cohort_ended, cohort_may_have_ended, is_cohort};
use crate::recovery::{Announcement, Boxed, Reopened, Suspicion};
use crate::{Held, InMemory, IntentFn, Kept, LockContext, LockUse, Mode, Owner, WaitPolicy};

/// How often a reader that lost only against other readers retries without a pause.
const READER_RACES: u32 = 8;

/// The next step for a word.
enum Step {
    /// Swap the word for this one, which acquires the lock.
    Take(u64, Held),
    /// Wait for readers, or put the word under recovery if one is suspected to be dead.
    Suspicion,
    /// Retry once, because the last holder may have released before it died, and then fail.
    Report(Fault),
    /// Pause, and try to swap a free word.
    Wait,
}

/// An acquire that did not end with its first operation. One for each waiting rank: small.
pub(super) struct Waiter<'m, 'w, P: InMemory> {
    pub(super) lock: LockUse<'m, P>,
    /// What the last operation found.
    found: Result<u64, Fault>,
    intent: IntentFn<'w>,
    pauses: Pauses<'m>,
    lease: Option<&'m Lease>,
    suspicion: Suspicion,
    /// An owner's word, or a cohort's, and when it was first seen.
    seen: (u64, u64),
    /// Races against readers that were lost in a row.
    races: u32,
    /// Whether this owner is announced, at the end as well.
    pub(super) announcement: Announcement,
}

impl<'m, 'w, P: LockContext<'m>> Waiter<'m, 'w, P> {
    pub(super) fn new(
        lock: LockUse<'m, P>,
        found: Result<u64, Fault>,
        intent: IntentFn<'w>,
        pauses: Pauses<'m>,
        lease: Option<&'m Lease>,
    ) -> Self {
        let (suspicion, announcement) = (Suspicion::default(), Announcement::of(lock.mode == Mode::Shared));
        Self { lock, found, intent, pauses, lease, suspicion, seen: (FREE, 0), races: 0, announcement }
    }

    /// Acquires the lock after its first operation.
    pub(super) fn acquire(&mut self) -> impl Future<Output = Result<Held, Fault>> + Send {
        async move {
            loop {
                let found = self.found?;
                if let Holder::Recovering = holder(found) {
                    let Self { lock, intent, pauses, announcement, .. } = self;
                    let owner = lock.owner;
                    let taken = move |_, mode| Readers(taken(FREE, mode, owner));
                    match announcement.await_reopening(lock, *intent, pauses, taken).await? {
                        Reopened::Taken(held) => return Ok(held),
                        Reopened::Open(Readers(now)) => self.found = Ok(now),
                    }
                    continue;
                }
                let ended = if self.may_have_ended(found) { self.ended(found).await? } else { None };
                let mut step = self.step(found, ended);
                if let Step::Suspicion = step {
                    if let Some(Readers(now)) =
                        self.suspicion.check(&self.lock, Readers(found), found & READERS).await?
                    {
                        self.found = Ok(now);
                        continue;
                    }
                    step = Step::Wait;
                }
                if let Step::Wait = step {
                    let races = self.lock.mode == Mode::Shared && matches!(holder(found), Holder::Readers);
                    if (self.intent)().wanted == WaitPolicy::Try && !races {
                        return Err(Fault::new(FaultKind::TimedOut));
                    }
                    self.lock.memory.pause(self.lock.home, self.pauses.next_nanos()).await;
                }
                if (self.intent)().is_over() {
                    return Err(Fault::new(FaultKind::Closed)); // it holds nothing between two attempts
                }
                let (expected, new) = match step {
                    Step::Take(new, _) => (found, new),
                    Step::Suspicion | Step::Report(_) | Step::Wait => {
                        (FREE, taken(FREE, self.lock.mode, self.lock.owner))
                    }
                };
                self.announcement.announce(&self.lock)?;
                let now = self.lock.memory.compare_swap(self.lock.home, expected, new).await?;
                match step {
                    Step::Take(_, held) if now == expected => return self.acquired(held),
                    _ if now == expected => return self.acquired(Held::cleanly(self.lock.mode)),
                    Step::Report(fault) if now == found => return Err(fault),
                    _ => self.found = Ok(now),
                }
            }
        }
    }

    /// Whether the exclusive owner of this word may have ended, so that this is to be
    /// [found out](Self::ended).
    fn may_have_ended(&mut self, found: u64) -> bool {
        match holder(found) {
            Holder::Owner if is_cohort(found) => {
                cohort_may_have_ended(&self.lock, &mut self.seen, found, (self.intent)().is_patient())
            }
            Holder::Owner => may_have_ended(&self.lock, found),
            Holder::Nobody | Holder::Readers | Holder::Recovering => false,
        }
    }

    /// The fault of the exclusive owner of this word, if it has ended.
    fn ended(&mut self, found: u64) -> Boxed<'_, Result<Option<Fault>, Fault>> {
        let Self { lock, seen, .. } = self;
        match is_cohort(found) {
            true => Box::pin(cohort_ended(lock, seen, found)),
            false => Box::pin(ended_owner(lock, found)),
        }
    }

    /// The next step for a word. `ended` is the fault of an exclusive owner that ended.
    fn step(&mut self, found: u64, ended: Option<Fault>) -> Step {
        let LockUse { mode, owner, .. } = self.lock;
        let Holder::Readers = holder(found) else {
            (self.races, self.suspicion) = (0, Suspicion::default());
            return match (holder(found), ended) {
                (Holder::Nobody, _) => Step::Take(taken(FREE, mode, owner), Held::cleanly(mode)),
                (_, Some(died)) if (self.intent)().recovers => Step::Take(owner, Held::after(died, Mode::Exclusive)),
                (_, Some(died)) => Step::Report(died),
                (_, None) => self.late(found),
            };
        };
        if mode == Mode::Exclusive {
            self.suspicion.seen(found & READERS);
            return Step::Suspicion;
        }
        self.races = (self.races + 1) % READER_RACES;
        if self.races == 0 { Step::Wait } else { Step::Take(taken(found, mode, owner), Held::cleanly(mode)) }
    }

    /// The next step for a live owner.
    fn late(&mut self, found: u64) -> Step {
        let Some(&Lease { nanos, takes }) = self.lease else { return Step::Wait };
        let now = self.lock.memory.now();
        if self.seen.0 != found {
            self.seen = (found, now);
        }
        if now.saturating_sub(self.seen.1) <= nanos {
            return Step::Wait;
        }
        let late = Fault::of(FaultKind::LeaseExpired, Owner::from_bits(found).rank);
        if takes { Step::Take(self.lock.owner, Held::after(late, Mode::Exclusive)) } else { Step::Report(late) }
    }

    fn acquired(&mut self, held: Held) -> Result<Held, Fault> {
        self.lock.context.keep(Kept::BackoffCap, self.pauses.backoff_cap().0);
        if held.mode == Mode::Exclusive {
            self.announcement.retract(&self.lock)?; // the word names the owner
        }
        Ok(held)
    }
}

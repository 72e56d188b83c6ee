//! The slow path of test-and-set.

use onesided_remote_memory::{Fault, FaultKind, RemoteMemory};

use super::word::{FREE, Holder, READERS, Readers, ended_owner, holder, recovering, taken};
use super::{Lease, TestAndSet};
use crate::backoff::Pauses;
use crate::recovery::{Announcement, Reopened, Suspicion, nonce};
use crate::two_level::ByHost;
use crate::{Held, Intent, IntentFn, LockContext, LockUse, Mode, Owner, WaitPolicy};

/// How often a reader that lost only against other readers retries without a pause.
const READER_RACES: u32 = 8;

/// The next step for a word.
enum Step {
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
struct Waiter<'b> {
    mode: Mode,
    pauses: Pauses<'b>,
    /// Races against readers that were lost in a row.
    races: u32,
    suspicion: Suspicion,
    lease: Option<Lease>,
    /// An owner's word, and when it was first seen.
    seen: (u64, u64),
}

impl TestAndSet {
    /// [`LockAlgorithm::contend`](crate::LockAlgorithm::contend), with `hosts` if a host may hold the
    /// lock as well.
    pub(crate) async fn contend_judged<'m, M: RemoteMemory, P: LockContext<'m, M>>(
        &self,
        lock: LockUse<'m, M, P>,
        first: Result<u64, Fault>,
        intent: IntentFn<'_>,
        hosts: Option<ByHost>,
    ) -> Result<Held, Fault> {
        let LockUse { memory, context, mode, .. } = lock;
        let pauses = self.backoff.pauses(context.owner()).within(context.backoff_cap());
        let waiter =
            Waiter { mode, pauses, races: 0, suspicion: Suspicion::default(), lease: self.lease, seen: (FREE, 0) };
        let mut announcement = Announcement::of(memory, context, mode == Mode::Shared);
        let held = waiter.acquire(lock, first, intent, &mut announcement, hosts).await;
        announcement.end(held)
    }
}

impl Waiter<'_> {
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
    fn step<M: RemoteMemory>(
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

    /// Acquires the lock after its first operation. `announcement`: whether this owner is
    /// announced, at the end as well.
    async fn acquire<'m, M: RemoteMemory, P: LockContext<'m, M>>(
        mut self,
        lock: LockUse<'m, M, P>,
        first: Result<u64, Fault>,
        intent: IntentFn<'_>,
        announcement: &mut Announcement<'m, M, P>,
        mut hosts: Option<ByHost>,
    ) -> Result<Held, Fault> {
        let LockUse { memory, context, home: word, owner, mode } = lock;
        let mut found = first?;
        loop {
            let Intent { wanted, recovers } = intent();
            if let Holder::Recovering = holder(found) {
                let taken = |_, mode| Readers(taken(FREE, mode, owner));
                match announcement.await_reopening(word, mode, intent, &mut self.pauses, taken).await? {
                    Reopened::Taken(held) => return Ok(held),
                    Reopened::Open(Readers(now)) => found = now,
                }
                continue;
            }
            let ended = match (holder(found), &mut hosts) {
                (Holder::Owner, Some(hosts)) => {
                    hosts.ended(memory, context, found, wanted == WaitPolicy::Block).await?
                }
                (Holder::Owner, None) => ended_owner(memory, context, found).await?,
                _ => None,
            };
            let mut step = self.step(memory, owner, found, ended, recovers);
            if let Step::Suspicion = step {
                let suspects = self.suspicion.suspects(memory, context, found & READERS).await;
                step = if suspects { Step::Recover } else { Step::Wait };
            }
            if let Step::Wait = step {
                let races = mode == Mode::Shared && matches!(holder(found), Holder::Readers);
                if wanted == WaitPolicy::Try && !races {
                    return Err(Fault::new(FaultKind::TimedOut));
                }
                memory.pause(word, self.pauses.next_nanos()).await;
            }
            if intent().is_over() {
                return Err(Fault::new(FaultKind::Closed)); // it holds nothing between two attempts
            }
            let (expected, new, held) = match step {
                Step::Take(new, held) => (found, new, held),
                Step::Recover => (found, recovering(found, nonce(memory, context.owner())), Held::cleanly(mode)),
                Step::Suspicion | Step::Report(_) | Step::Wait => (FREE, taken(FREE, mode, owner), Held::cleanly(mode)),
            };
            announcement.announce()?;
            let now = memory.compare_swap(word, expected, new).await?;
            match step {
                Step::Recover if now == expected => found = new,
                _ if now == expected => {
                    context.keep_backoff_cap(self.pauses.backoff_cap());
                    if held.mode == Mode::Exclusive {
                        announcement.retract()?; // the word names the owner
                    }
                    return Ok(held);
                }
                Step::Report(fault) if now == found => return Err(fault),
                _ => found = now,
            }
        }
    }
}

//! The two-level lock: among the ranks of a host, and among hosts.
//!
//! ```text
//! acquire    if compare-swap(home, 0, me) finds 0: the lock is held, past the queue
//!            take a ticket in the queue of my host, wait for my turn
//!            if the host has kept the lock: it is held
//!            until compare-swap(home, 0, my host) finds 0: pause
//! release    if others wait in the queue, and at most n times in a row: keep the lock, serve the next
//!            else compare-swap(home, my host, 0), serve the next
//! ```
//!
//! Here is the way past the queue; the way by the queue is in [`queue`], what a death changes in
//! [`recovery`].

mod note;
mod queue;
mod recovery;

use std::future::Future;

use onesided_remote_memory::{Fault, FaultKind, RemoteMemory};

use self::note::{NOTE, Note, forget, note};
use self::queue::{Global, InQueue};
use self::recovery::is_gone;
use crate::cohort::{AT_HOST, GlobalState, STATE, State, is_cohort};
use crate::owner::EXCLUSIVE;
use crate::recovery::{is_announced, is_lost};
use crate::test_and_set::{hand_back, poisoned_word};
use crate::{
    Backoff, Held, Intent, IntentFn, Kept, LockAlgorithm, LockContext, LockUse, Mode, Op, Owner, Rest, TestAndSet,
    Ticket, WordOf, Words,
};

/// A lock that the ranks of a host hand over among themselves, after HOCL (Wang, Lu, Shu, *Sherman:
/// A Write-Optimized Distributed B+Tree Index on Disaggregated Memory*, SIGMOD 2022) and ALock
/// (Baran, Nelson-Slivon, Tseng, Palmieri, SPAA 2024, arXiv 2404.17980): lock cohorting (Dice,
/// Marathe, Shavit, PPoPP 2012) over remote memory.
///
/// An exclusive owner takes a [`Ticket`] in the queue of its host, its cohort. The owner whose
/// ticket is served sets the cohort's owner word at the home by compare-swap, as in [`TestAndSet`].
/// A release hands the lock over to the next owner in the queue without an operation at the home,
/// at most [`HANDOVERS`](Self::HANDOVERS) times in a row; otherwise it clears the home's word.
///
/// Before it queues, an owner tries once to swap its own word into the home's, as in Fissile locks
/// (Dice, Kogan, NETYS 2020): uncontended, the lock costs what test-and-set does. After a failed
/// try it queues until it finds the queue empty, and it bypasses the queue at most
/// [`BYPASSES`](Self::BYPASSES) times in a row.
///
/// The two levels have separate words. The queue lies in the memory of a rank of the host, and only
/// the host's ranks access it ([`WordOf::Host`]): its atomics are the CPU's. All ranks
/// access the home's word: its atomics are the card's. So the two kinds of atomics, which are not
/// atomic with one another, never meet on a word, and no rank uses the card to reach its own host.
///
/// Readers count in the home's word, as in [`TestAndSet`]. [Tries](crate::Intent::TRY),
/// and all owners if the context has no host words, swap their own word into the home's, without a
/// queue.
///
/// Words: one at the home, three at a rank of each host, three a node.
///
/// | | at the home | on the host |
/// |---|---|---|
/// | acquire, release | compare-swap + compare-swap | none |
/// | by the queue | the same | fetch-add, read, write + read, read, fetch-add |
/// | handed over on the host | none | the same, and a read until the ticket is served |
/// | shared | compare-swap + fetch-add | none |
///
/// # Fairness
///
/// First come, first served, in the queue of a host, which a slot of a rank bypasses at most
/// [`BYPASSES`](Self::BYPASSES) times in a row. Between hosts, and between hosts and readers, the
/// first to try wins: after the most hand-overs in a row the host's next owner pauses before it
/// tries again.
///
/// # Cancellation
///
/// In the queue as in [`Ticket`]; at the home a cancelled owner ends between two attempts, and the
/// next one of the host may try.
///
/// # Death
///
/// The queue tells its next owner that a rank died in it, and that owner checks the home: if the
/// cohort's owner word is there, an owner of this host died inside its section, or left the queue
/// before it had completed its release. The next owner replaces the word by one of a new
/// generation, and recovers the lock; if it does not recover, it notes that beside the queue for
/// the next one. Owners of other hosts that see an owner word unchanged for a while although a rank
/// of that host has died scan the host's nodes: if no owner is announced there, they may recover
/// the lock. They scan one node after the other, and meanwhile an owner may join the queue and be
/// handed the lock: so if a rank of the host has died, the owner whose turn it is changes the owner
/// word as well, and one of the two compare-swaps fails. This is why a rank's death has to be known
/// on its own host first.
///
/// The queue outlives its rank, because the host's ranks have its memory mapped: its waiters go on
/// there, and later owners queue at another rank of the host. That queue has another owner word, so
/// the two are two hosts to the home. Which rank an owner takes for the lowest live one affects
/// speed, not safety. An owner that has lost the connection to the queue's rank goes on without a
/// queue.
///
/// A death is reported as `ParticipantDied`, because the owner word names a host; the death of an
/// owner that bypassed the queue is reported as `OwnerDied`, with its rank. Otherwise as
/// [`TestAndSet`].
#[derive(Clone, Copy, Debug)]
pub struct TwoLevel {
    queue: Ticket,
    home: TestAndSet,
    handovers: u16,
    passes: u8,
}

/// Set in an owner's words if it tries once at the home before it queues.
const PASSES: u64 = 1 << Owner::BITS;

impl TwoLevel {
    /// The default of [`handovers`](Self::handovers).
    pub const HANDOVERS: u16 = 8;
    /// The default of [`bypasses`](Self::bypasses).
    pub const BYPASSES: u8 = 128;

    /// A lock whose waiters pause by the first table in the queue of their host, and by the second
    /// one at the home.
    #[must_use]
    pub const fn new(queue: Backoff, home: Backoff) -> Self {
        Self {
            queue: Ticket::new(queue),
            home: TestAndSet::new(home).checked(),
            handovers: Self::HANDOVERS,
            passes: Self::BYPASSES,
        }
    }

    /// Sets how often in a row a host hands the lock over among its ranks.
    #[must_use]
    pub const fn handovers(self, handovers: u16) -> Self {
        Self { handovers, ..self }
    }

    /// Sets how often in a row an owner bypasses the queue of its host.
    #[must_use]
    pub const fn bypasses(self, bypasses: u8) -> Self {
        Self { passes: bypasses, ..self }
    }

    /// The bits of an owner that does not queue.
    const fn alone(owner: u64) -> u64 {
        EXCLUSIVE | owner & !PASSES
    }
}

impl Default for TwoLevel {
    fn default() -> Self {
        Self::new(Backoff::default(), Backoff::default())
    }
}

impl TwoLevel {
    /// The exclusive owner that the word of the home names, if it names one and no host.
    #[must_use]
    pub const fn owner(home: u64) -> Option<Owner> {
        if is_cohort(home) { None } else { TestAndSet::owner(home) }
    }
}

impl LockAlgorithm for TwoLevel {
    const NAME: &'static str = "two-level";
    const HOME_WORDS: usize = 1;
    const NODE_WORDS: usize = NOTE + 1;
    const HOST_WORDS: usize = STATE + 1;

    #[inline(always)] // as `start`
    fn words<'m, P: LockContext<'m>>(&self, context: P, intent: Intent) -> Result<Words<'m, P::Memory>, Fault> {
        let bypasses = if context.kept(Kept::Bypasses).unwrap_or(0) < self.passes { PASSES } else { 0 };
        // A try does not queue.
        let flag = if intent.is_patient() { bypasses } else { EXCLUSIVE };
        Ok((context.home(0)?, flag | context.owner().to_bits()))
    }

    #[inline(always)] // a lock's words that pass through memory cost a third of the lock
    fn start<'m, P: LockContext<'m>>(&self, lock: LockUse<'m, P>) -> Result<Op<P>, Fault> {
        crate::starts::count(Self::NAME);
        if lock.mode == Mode::Exclusive {
            if lock.owner & PASSES != 0 {
                let bypasses = lock.context.kept(Kept::Bypasses).unwrap_or(0);
                lock.context.keep(Kept::Bypasses, bypasses.saturating_add(1));
            } else if lock.owner & EXCLUSIVE == 0
                && let Some(queued) = self.queue_up(lock.memory, lock.context)?
            {
                return Ok(queued);
            }
        }
        self.home.start_as(&lock, Self::alone(lock.owner))
    }

    #[inline]
    fn holds(&self, owner: u64, mode: Mode, first: u64) -> bool {
        first == 0 && (mode == Mode::Shared || owner & (EXCLUSIVE | PASSES) != 0)
    }

    fn contend<'m, P: LockContext<'m>>(
        &'m self,
        lock: LockUse<'m, P>,
        mut first: Result<u64, Fault>,
        intent: IntentFn<'_>,
    ) -> impl Future<Output = Result<Held, Fault>> + Send {
        async move {
            if lock.mode == Mode::Exclusive && lock.owner & EXCLUSIVE == 0 {
                if lock.owner & PASSES != 0 && first.is_ok() && !intent().is_over() {
                    lock.context.keep(Kept::Bypasses, self.passes); // by the queue from now on, until it is empty
                    if let Some(queued) = self.queue_up(lock.memory, lock.context)? {
                        first = queued.await;
                    }
                }
                if let Note::Waits(leader) = note(&lock)? {
                    let queued = InQueue { lock: self, used: &lock, leader };
                    // All steps from here, so that none waits inside another one's future.
                    let turn = match queued.waits(first) {
                        Err(fault) => Err(fault),
                        Ok(None) => Ok(Held::cleanly(lock.mode)),
                        Ok(Some(queue)) => {
                            // A rank that died in the queue may not have held the lock: the home's
                            // word tells.
                            let intent = || intent().recovering();
                            self.queue.contend(queue, first, &intent).await
                        }
                    };
                    let held = match turn {
                        Err(fault) => Err(queued.not_queued(fault)),
                        Ok(turn) => match queued.with_turn(turn.recovered.and_then(Fault::rank), intent).await {
                            Ok(Global::Held(owner_word, held)) => queued.end(None, Ok((owner_word, held))).await,
                            Ok(Global::Contended(state, found)) => {
                                let held = self.home.contend(queued.as_cohort(state), found, intent).await;
                                queued.end(Some(state), held.map(|held| (queued.owner_word(state), held))).await
                            }
                            Ok(Global::Cancelled) => Err(Fault::new(FaultKind::Closed)),
                            Err(fault) => queued.end(None, Err(fault)).await,
                        },
                    };
                    match held {
                        Err(fault) if is_gone(leader, fault) => {}
                        held => return held,
                    }
                    forget(lock.memory, lock.context)?;
                    first = lock.memory.compare_swap(lock.home, 0, Self::alone(lock.owner)).await;
                }
                if first == Ok(0) {
                    return Ok(Held::cleanly(lock.mode));
                }
            }
            self.home.contend(lock.with_owner(Self::alone(lock.owner)), first, intent).await
        }
    }

    #[inline(always)] // as `start`
    fn start_release<'m, P: LockContext<'m>>(&self, lock: LockUse<'m, P>) -> Result<Op<P>, Fault> {
        if let Some(posted) = self.start_release_alone(lock)? {
            return Ok(posted);
        }
        let Note::Has(owner_word) = note(&lock)? else { return Err(Fault::new(FaultKind::NotHeld)) };
        if let Ok(state) = lock.context.word(WordOf::Host(owner_word.leader(), STATE)) {
            return Ok(lock.memory.read(state));
        }
        // The queue is gone: the retracted announcement tells what was posted.
        lock.memory.store(lock.node(AT_HOST)?, 0)?;
        Ok(lock.memory.compare_swap(lock.home, owner_word.0, 0))
    }

    #[inline(always)] // as `start`
    fn start_release_alone<'m, P: LockContext<'m>>(&self, lock: LockUse<'m, P>) -> Result<Option<Op<P>>, Fault> {
        match note(&lock)? {
            Note::Alone => self.home.start_release_as(&lock, Self::alone(lock.owner)).map(Some),
            _ => Ok(None),
        }
    }

    #[inline(always)] // as `start`
    fn released<'m, P: LockContext<'m>>(&self, lock: LockUse<'m, P>, found: Option<u64>) -> Result<Rest, Fault> {
        if let Note::Has(_) = note(&lock)? {
            return Ok(if found.is_some() { Rest::Steps } else { Rest::Unknown });
        }
        self.home.released_as(&lock, Self::alone(lock.owner), found)
    }

    /// The next owner waits for what has been written.
    fn finish_release<'m, P: LockContext<'m>>(
        &'m self,
        lock: LockUse<'m, P>,
        found: Result<u64, Fault>,
    ) -> impl Future<Output = Result<(), Fault>> + Send + 'm {
        async move {
            let Note::Has(owner_word) = note(&lock)? else {
                return self.home.finish_release(lock.with_owner(Self::alone(lock.owner)), found).await;
            };
            let queued = InQueue { lock: self, used: &lock, leader: owner_word.leader() };
            if !is_announced(lock.memory, queued.host())? {
                return forget(lock.memory, lock.context).and(found.map(drop));
            }
            let passed = match found.map(State::of) {
                Ok(state) => queued.hand_over(state).await,
                Err(fault) => Err(fault),
            };
            match passed {
                Err(fault) if is_gone(owner_word.leader(), fault) => {
                    let released = lock.memory.compare_swap(lock.home, owner_word.0, 0).await;
                    forget(lock.memory, lock.context).and(released.map(drop))
                }
                passed => passed,
            }
        }
    }

    /// A word that names the dead, or this owner, replaces this owner's, or its cohort's: that
    /// keeps readers out as well.
    async fn release_poisoned<'m, P: LockContext<'m>>(&'m self, lock: LockUse<'m, P>, why: Fault) -> Result<(), Fault> {
        let LockUse { memory, context, .. } = lock;
        let (alone, note) = (Self::alone(lock.owner), note(&lock)?);
        let mine = if let Note::Has(owner_word) = note { owner_word.0 } else { alone };
        let handed = hand_back(&lock, mine, poisoned_word(alone, why)).await;
        if let Note::Has(owner_word) = note {
            let leader = owner_word.leader();
            let queued = InQueue { lock: self, used: &lock, leader };
            let left = match is_announced(memory, queued.host())? {
                // The cohort's word is still there: the next owner recovers the lock.
                true if handed.is_err_and(is_lost) => queued.leave_as(GlobalState::Uncertain).await,
                true => queued.leave_as(GlobalState::Away { yields: false }).await,
                false => forget(memory, context),
            };
            match left {
                Err(fault) if is_gone(leader, fault) => forget(memory, context)?,
                left => left?,
            }
        }
        handed
    }
}

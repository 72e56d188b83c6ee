//! The fetch-add queue lock.
//!
//! ```text
//! acquire    before = fetch-add(home.given[mode], 1)                 as the ticket lock
//!            write(home.ring[mode][before.given[mode]], me), read home
//!            until it is my turn: wait until my GRANT is written, read home
//! release    found = fetch-add(home.returned[mode], 1)
//!            if that lets waiters in: read their entries in the ring, write the GRANT of each
//! ```

mod ring;

use std::future::Future;

use onesided_remote_memory::{Fault, RemoteMemory};

use self::ring::RingSlot;
pub(crate) use self::ring::{InRing, Waited};
use crate::recovery::retract;
use crate::ticket::counters::Counters;
use crate::ticket::not_held;
use crate::{Backoff, Held, Intent, IntentFn, LockAlgorithm, LockContext, LockUse, Mode, Rest, Ticket, Words};

/// A queue reader-writer lock by fetch-add, after DecLock (*DecLock: A Case of Decoupled Locking
/// for Disaggregated Memory*, arXiv 2505.17641): the tickets of [`Ticket`] define the order, and a
/// waiter is notified instead of polling.
///
/// An arriving owner takes a ticket by one fetch-add; uncontended that is all. A waiter writes its
/// identity into the entry of its ticket in a ring beside the counters, by one write, reads the
/// counters once more in the same chain, and sleeps on a word of its own node. A release is one
/// fetch-add. If that lets waiters in, the releasing owner reads their entries and notifies each of
/// them, one exclusive owner or all the readers, by one write. No rank polls over the network.
///
/// Words at the home: those of [`Ticket`], and two rings of `RING` entries, for exclusive owners
/// and for readers: 34, with the default of 16. A node has two words.
///
/// # The ring
///
/// The counters define whose turn it is; the ring only tells how to notify that owner. So no rank
/// waits for an entry. An owner that writes its entry too late, between the fetch-add of a release
/// and the read of the ring, sees in the counters that it is served. An owner without an entry,
/// because more than `RING` owners of its mode are ahead or because it has no node, reads the
/// counters with pauses, as in [`Ticket`], until it has an entry or is served: the order is the
/// same. A waiter whose notification was lost with its sender reads the counters after 10 ms, then
/// after twice that, and at least three times a second.
///
/// Exclusive tickets return in order, so the previous user of an exclusive entry has left when the
/// entry is written. Readers return in any order: a reader's entry is read first and taken by
/// compare-swap, and an owner that takes it from a reader whose turn has come, but that may not
/// know yet, notifies that reader.
///
/// A notification names the lock, the number of the ticket and the use of the slot. One that does
/// not match, because it is late, is taken as a hint to read the counters.
///
/// # Fairness
///
/// First come, first served, in both modes, as in [`Ticket`]: no owner enters before one whose
/// fetch-add took effect earlier, except that readers share the lock. A death and [bounded
/// admission](Ticket#bounded-admission) end that order.
///
/// # Overflow, cancellation, death
///
/// As in [`Ticket`]. The counters are the same, the numbers in the ring wrap with them, and entries
/// of dead owners are overwritten in time.
#[derive(Clone, Copy, Debug)]
pub struct FetchAddQueue<const BITS: u32 = 15, const RING: usize = 16> {
    tickets: Ticket<BITS>,
}

impl FetchAddQueue {
    /// A lock whose owners pause by this table when they poll the home: owners without an entry in
    /// the ring, under bounded admission, and after a death.
    #[must_use]
    pub const fn new(backoff: Backoff) -> Self {
        Self::with_bits(backoff)
    }
}

impl Default for FetchAddQueue {
    fn default() -> Self {
        Self::new(Backoff::default())
    }
}

impl<const BITS: u32, const RING: usize> FetchAddQueue<BITS, RING> {
    /// The same with counters of `BITS` bits, 1 to 15, and rings of `RING` entries, a power of two
    /// and at most the number of tickets. Small values are for tests that fill the ring.
    #[must_use]
    pub const fn with_bits(backoff: Backoff) -> Self {
        const { assert!(RING.is_power_of_two() && RING <= 1 << BITS) };
        Self { tickets: Ticket::with_bits(backoff) }
    }
}

/// The counters after a release in this mode, if they may let a waiter in.
#[inline]
fn left_to_others<const BITS: u32>(found: u64, mode: Mode) -> Option<Counters<BITS>> {
    let left = Counters::<BITS>(found.wrapping_add(Counters::<BITS>::returning(mode)));
    let waits = left.out(Mode::Exclusive) > 0 || mode == Mode::Exclusive && left.out(Mode::Shared) > 0;
    (waits && !left.is_recovering()).then_some(left)
}

impl<const BITS: u32, const RING: usize> LockAlgorithm for FetchAddQueue<BITS, RING> {
    const NAME: &'static str = "fetch-add-queue";
    const HOME_WORDS: usize = ring::FIRST + 2 * RING;
    const NODE_WORDS: usize = ring::GRANT + 1;

    /// The ring does not matter.
    fn is_free(home: &[u64]) -> bool {
        Ticket::<BITS>::is_free(home)
    }

    #[inline(always)] // as `start`
    fn words<'m, M: RemoteMemory>(
        &self,
        context: impl LockContext<'m, M>,
        intent: Intent,
    ) -> Result<Words<'m, M>, Fault> {
        self.tickets.words(context, intent)
    }

    #[inline(always)] // a lock's words that pass through memory cost a third of the lock
    fn start<'m, M: RemoteMemory>(&self, lock: LockUse<'m, M, impl LockContext<'m, M>>) -> Result<M::Op, Fault> {
        crate::starts::count(Self::NAME);
        self.tickets.start(lock)
    }

    #[inline]
    fn holds(&self, owner: u64, mode: Mode, first: u64) -> bool {
        self.tickets.holds(owner, mode, first)
    }

    fn contend<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        lock: LockUse<'m, M, P>,
        first: Result<u64, Fault>,
        intent: IntentFn<'_>,
    ) -> impl Future<Output = Result<Held, Fault>> + Send {
        self.tickets.contend_in(lock, first, intent, RingSlot::new(RING as u16))
    }

    #[inline(always)] // as `start`
    fn start_release<'m, M: RemoteMemory>(
        &self,
        lock: LockUse<'m, M, impl LockContext<'m, M>>,
    ) -> Result<M::Op, Fault> {
        self.tickets.start_release(lock)
    }

    #[inline(always)] // as `start`
    fn released<'m, M: RemoteMemory>(
        &self,
        lock: LockUse<'m, M, impl LockContext<'m, M>>,
        found: Option<u64>,
    ) -> Result<Rest, Fault> {
        if found.is_some_and(|found| left_to_others::<BITS>(found, lock.mode).is_some()) {
            return Ok(Rest::Unknown);
        }
        self.tickets.released(lock, found)
    }

    fn finish_release<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        lock: LockUse<'m, M, P>,
        found: Result<u64, Fault>,
    ) -> impl Future<Output = Result<(), Fault>> + Send + 'm {
        async move {
            let Some((found, left)) =
                found.ok().and_then(|found| Some((found, left_to_others::<BITS>(found, lock.mode)?)))
            else {
                return self.tickets.finish_release(lock, found).await;
            };
            let outcome = match Counters::<BITS>(found).out(lock.mode) {
                0 => not_held::<M, BITS>(lock).await,
                _ => ring::hand_over::<_, BITS, RING>(lock, left).await,
            };
            retract(lock.memory, lock.context)?;
            outcome
        }
    }

    async fn release_poisoned<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        lock: LockUse<'m, M, P>,
        why: Fault,
    ) -> Result<(), Fault> {
        self.tickets.release_poisoned(lock, why).await
    }
}

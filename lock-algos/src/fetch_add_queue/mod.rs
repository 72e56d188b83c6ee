//! The queue lock by fetch-add.

mod ring;

use onesided_remote_memory::{Fault, Link, RemoteMemory};

pub(crate) use self::ring::{Seat, Waited};
use crate::recovery::discount;
use crate::ticket::counters::Counters;
use crate::ticket::not_held;
use crate::{Backoff, Held, IntentFn, LockAlgorithm, LockContext, Mode, Ticket};

/// A queue reader-writer lock by fetch-add, after DecLock (*DecLock: A Case of Decoupled Locking for Disaggregated Memory*,
/// arXiv 2505.17641): the ticket of [`Ticket`] tells whose turn it is, and who waits is told instead of asking.
///
/// Who comes takes a ticket by one fetch-add; uncontended that is all. Who has to wait writes who it is to the place of its
/// ticket in a ring beside the counters, by one write, reads the counters once more in the same post, and sleeps on a word of
/// its own node. A release is one fetch-add; where that leaves somebody his turn, the entries are read, and each of those
/// whose turn has come, one owner or all the readers, is told by one write: nobody polls over the network.
///
/// Words at the home: the counters, and two rings of `RING` entries, for those who want it alone and for readers: 33, with
/// the usual 16. A node has two words.
///
/// # The ring
///
/// The counters say whose turn it is, the ring says only how to reach him: so nobody ever waits for an entry. Whoever makes
/// his too late, between the fetch-add of a release and the look at the ring, sees in the counters that the turn is his. And
/// whoever has no place, because more than `RING` of his mode are before him, or no node, reads the counters with pauses, as
/// with [`Ticket`], until he has one or his turn has come: the order is the same. So is what a waiter does who was told
/// nothing, because a message was lost with whoever should have sent it: it looks after 10 ms, then
/// after twice that, and at least three times a second.
///
/// Exclusive tickets come back in their order, so whoever had a place in their ring before has gone when it is written to.
/// Readers return in any order: their place is taken by a compare-swap, after a look at it, and whoever takes it from a
/// reader who has his turn, and may not know yet, tells him.
///
/// A message names the lock, the ticket's number and the use of the slot. One that does not fit, because it comes late, is
/// taken for a hint to look at the counters.
///
/// # Fairness
///
/// First come, first served, in both modes, as [`Ticket`] says: nobody enters before an owner whose fetch-add took effect
/// before his, but for readers who read together. A death ends that order, and so do crowds.
///
/// # Overflow, crowds, giving up, death, operations of which nobody knows
///
/// As with [`Ticket`]. The counters are the same, the numbers in the ring wrap with them, and what the dead left in the ring
/// is overwritten in time. Places without nodes have nobody to tell: there the lock is [`Ticket`].
#[derive(Clone, Copy, Debug)]
pub struct FetchAddQueue<const BITS: u32 = 15, const RING: usize = 16> {
    tickets: Ticket<BITS>,
}

impl FetchAddQueue {
    /// A lock whose owners pause by this table where they have to ask at its home: those without a place in the ring, in
    /// crowds, and after a death.
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
    /// The same with counters of `BITS` bits, 1 to 15, and rings of `RING` entries, a power of two and not more than there
    /// are numbers: short ones are full while somebody watches.
    #[must_use]
    pub const fn with_bits(backoff: Backoff) -> Self {
        const { assert!(RING.is_power_of_two() && RING <= 1 << BITS) };
        Self { tickets: Ticket::with_bits(backoff) }
    }
}

/// What a release in this mode left of the counters, if somebody may have his turn now.
#[inline]
fn left_to_others<const BITS: u32>(found: u64, mode: Mode) -> Option<Counters<BITS>> {
    let left = Counters::<BITS>(found.wrapping_add(Counters::<BITS>::returning(mode)));
    let waits = left.out(Mode::Exclusive) > 0 || mode == Mode::Exclusive && left.out(Mode::Shared) > 0;
    (waits && !left.is_frozen()).then_some(left)
}

impl<const BITS: u32, const RING: usize> LockAlgorithm for FetchAddQueue<BITS, RING> {
    const NAME: &'static str = "fetch-add-queue";
    const HOME_WORDS: usize = 1 + 2 * RING;
    const NODE_WORDS: usize = ring::GRANT + 1;

    /// The first word at the home, and the owner's bits.
    type Words<'m, M: RemoteMemory> = (M::Word<'m>, u64);

    /// The ring says nothing.
    fn is_free(home: &[u64]) -> bool {
        Ticket::<BITS>::is_free(&home[..1])
    }

    #[inline]
    fn uses_node(&self, mode: Mode) -> bool {
        self.tickets.uses_node(mode)
    }

    #[inline(always)] // as `start`
    fn words<'m, M: RemoteMemory>(&self, place: impl LockContext<'m, M>) -> Result<Self::Words<'m, M>, Fault> {
        self.tickets.words(place)
    }

    fn words_to_try<'m, M: RemoteMemory>(&self, place: impl LockContext<'m, M>) -> Result<Self::Words<'m, M>, Fault> {
        self.tickets.words_to_try(place)
    }

    #[inline(always)] // a lock's words that pass through memory cost a third of the lock
    fn start<'m, M: RemoteMemory>(
        &self,
        memory: &M,
        place: impl LockContext<'m, M>,
        words: Self::Words<'m, M>,
        mode: Mode,
    ) -> Result<M::Op, Fault> {
        self.tickets.start(memory, place, words, mode)
    }

    #[inline]
    fn holds<M: RemoteMemory>(&self, words: Self::Words<'_, M>, mode: Mode, first: u64) -> bool {
        self.tickets.holds::<M>(words, mode, first)
    }

    async fn contend<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        place: P,
        words: Self::Words<'m, M>,
        mode: Mode,
        first: Result<u64, Fault>,
        wish: IntentFn<'_>,
    ) -> Result<Held, Fault> {
        let seat = Some(Seat::new(place, mode, RING));
        self.tickets.contend_in(memory, place, words, mode, first, wish, seat).await
    }

    #[inline]
    fn releases_in_one_step<'m, M: RemoteMemory>(&self, place: impl LockContext<'m, M>, mode: Mode) -> bool {
        self.tickets.releases_in_one_step(place, mode)
    }

    #[inline(always)] // as `start`
    fn start_release<'m, M: RemoteMemory>(
        &self,
        memory: &M,
        place: impl LockContext<'m, M>,
        words: Self::Words<'m, M>,
        mode: Mode,
    ) -> Result<M::Op, Fault> {
        self.tickets.start_release(memory, place, words, mode)
    }

    fn release_link<'m, M: RemoteMemory>(
        &self,
        memory: &M,
        words: Self::Words<'m, M>,
        mode: Mode,
    ) -> Option<Link<M::Word<'m>>> {
        self.tickets.release_link(memory, words, mode)
    }

    #[inline(always)] // as `start`
    fn released<'m, M: RemoteMemory>(
        &self,
        memory: &M,
        place: impl LockContext<'m, M>,
        words: Self::Words<'m, M>,
        mode: Mode,
        found: u64,
    ) -> Result<bool, Fault> {
        if place.slots() > 0 && left_to_others::<BITS>(found, mode).is_some() {
            return Ok(false);
        }
        self.tickets.released(memory, place, words, mode, found)
    }

    async fn finish_release<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        place: P,
        words: Self::Words<'m, M>,
        mode: Mode,
        started: impl Future<Output = Result<u64, Fault>> + Send + 'm,
    ) -> Result<(), Fault> {
        let found = match started.await {
            Ok(found) => found,
            lost => {
                return self.tickets.finish_release(memory, place, words, mode, std::future::ready(lost)).await;
            }
        };
        if self.released(memory, place, words, mode, found)? {
            return Ok(());
        }
        let outcome = match left_to_others::<BITS>(found, mode) {
            Some(left) if Counters::<BITS>(found).out(mode) > 0 => {
                match ring::hand_over::<_, BITS, RING>(memory, place, mode, left).await {
                    Err(fault) if fault.is_unknown() => Ok(()), // who is not told looks
                    handed => handed,
                }
            }
            _ => not_held::<M, BITS>(memory, words.0, mode).await,
        };
        discount(memory, place)?;
        outcome
    }

    async fn release_poisoned<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        place: P,
        words: Self::Words<'m, M>,
        held: Held,
    ) -> Result<(), Fault> {
        self.tickets.release_poisoned(memory, place, words, held).await
    }
}

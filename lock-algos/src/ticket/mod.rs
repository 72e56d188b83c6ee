//! The ticket lock.

pub(crate) mod counters;
pub(crate) mod way;

use onesided_remote_memory::{Fault, FaultKind, Link, RemoteMemory};

use self::counters::Counters;
use self::way::{Way, leave_out, lose};
use crate::backoff::Pauses;
use crate::fetch_add_queue::Seat;
use crate::recovery::{self, COUNTS, Count};
use crate::{Backoff, Held, IntentFn, LockAlgorithm, LockContext, Mode, Owner};

/// A ticket reader-writer lock by fetch-add, after DSLR (Yoon, Chowdhury, Mozafari, *Distributed Lock Management with
/// RDMA: Decentralization without Starvation*, SIGMOD 2018, section 4).
///
/// One word of 8 bytes: how many exclusive and how many shared tickets were given out, and how many of each came back.
/// Who comes takes a ticket by one fetch-add, which also tells what was given out before it: an exclusive owner waits
/// until all of that is back, a reader until the exclusive tickets among it are. A release gives the ticket back, by one
/// fetch-add that nobody need wait for. Uncontended that is all. A waiter reads the word, and pauses in between: the first
/// interval of its [`Backoff`] for each ticket ahead of its own but one, and for that one the next interval, from the first
/// again when a ticket has come back. So the first interval should be what a hand-over takes.
///
/// # Fairness
///
/// First come, first served, in both modes: nobody enters before an owner whose fetch-add took effect before his, but for
/// readers who read together. Two things end that order: a death (below), and [crowds](#crowds).
///
/// # Overflow
///
/// The counters have `BITS` bits (15, unless somebody wants to see them wrap) and wrap; only their differences count. A
/// fetch-add that wraps a counter carries into a guard bit above it. Whoever takes a ticket and sees a guard clears it
/// before anything else. In time: of 2<sup>BITS</sup> tickets in a row one has come back before the last one is given
/// out, and was cleared for.
///
/// ## Crowds
///
/// At most 2<sup>BITS</sup> - 1 tickets of a mode can be out. Where there may be more [owners](LockContext::owners) than that,
/// who comes reads the word and takes its ticket by compare-swap, once there is room: two round trips at least, and the
/// order is that of the tickets, not that of coming. So does an owner that is [not counted](LockContext::is_counted) among them, and
/// leaves room for those.
///
/// # Giving up
///
/// A ticket cannot be thrown away: who gives up takes it back by compare-swap if nobody came since, else it waits for its
/// turn, and passes it on by its release. (To pass an exclusive one on early, where only readers are ahead, would overtake a
/// reader that has its turn and has not looked yet: the counters cannot tell that from a turn to come.) Who only tries, with [words to try](LockAlgorithm::words_to_try), takes none unless
/// it leads inside: it reads the word, and takes a ticket by compare-swap. With the usual words, a try that fails gives up.
///
/// # Death
///
/// The word names nobody. A waiter doubts it when some rank has died and no ticket has come back for a second since: then
/// it freezes the word. Tickets mean nothing in a frozen word: all who wait give theirs back at once, those who hold the
/// lock do when they release. A frozen word with no ticket out is free: nobody was dead there. If tickets are out and no
/// living rank counts, which the nodes tell, they are of the dead: those who inherit nothing are told that a member died, the
/// word stays frozen, and the first one to inherit has the lock, alone. The order of those who waited starts anew.
///
/// An owner without a node, of a place that has some, counts for its rank: a frozen word waits for it while it waits or holds,
/// whatever lock that is.
///
/// Where the place has no nodes, nobody can tell whether who holds a ticket lives: who waits for a frozen word for another
/// second gets `ParticipantDied`. If all tickets come back after all, the lock works again.
///
/// # Operations of which nobody knows
///
/// What became of a fetch-add that is not answered cannot be settled: a ticket does not say whose it is. So the word is
/// frozen, as after a death: all who wait give their tickets back, and when nobody counts any more, the ticket that is out, if
/// one is, is nobody's. Nobody is told of that, unless some rank had died: then it may have been its ticket. The order of those
/// who waited starts anew. Where the place has no nodes, such a ticket is lost for good, `Unknown` says so, and with it the
/// lock, if it was taken.
#[derive(Clone, Copy, Debug)]
pub struct Ticket<const BITS: u32 = 15> {
    backoff: Backoff,
}

impl Ticket {
    /// A lock whose waiters pause by this table.
    #[must_use]
    pub const fn new(backoff: Backoff) -> Self {
        Self::with_bits(backoff)
    }
}

impl Default for Ticket {
    fn default() -> Self {
        Self::new(Backoff::default())
    }
}

impl<const BITS: u32> Ticket<BITS> {
    /// The same with counters of `BITS` bits, 1 to 15: narrow ones wrap while somebody watches.
    #[must_use]
    pub const fn with_bits(backoff: Backoff) -> Self {
        Self { backoff }
    }
}

impl<const BITS: u32> Ticket<BITS> {
    pub(crate) const fn pauses(&self, owner: Owner) -> Pauses<'_> {
        self.backoff.pauses(owner)
    }

    /// [`LockAlgorithm::contend`], by who may have a seat.
    #[expect(clippy::too_many_arguments, reason = "one more than `contend` has")]
    pub(crate) async fn contend_in<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        place: P,
        words: (M::Word<'m>, u64),
        mode: Mode,
        first: Result<u64, Fault>,
        wish: IntentFn<'_>,
        seat: Option<Seat<P>>,
    ) -> Result<Held, Fault> {
        let (pauses, counts) = (self.pauses(place.owner()), Count::of(memory, place, true));
        let mut way = Way::<_, _, BITS> { memory, place, words, mode, wish, pauses, counts, seat };
        let held = way.begun(first).await;
        way.counts.after(held)
    }
}

/// Set beside the owner's bits if the word is read before a ticket is taken: there may be more owners than tickets, or it
/// is only tried.
const LOOKS: u64 = 1 << Owner::BITS;

/// Whether these are the words of an owner that looks first.
const fn looks<W: Copy>(words: (W, u64)) -> bool {
    words.1 & LOOKS != 0
}

/// The one operation of a release.
#[inline]
fn release<W, const BITS: u32>(home: W, mode: Mode) -> Link<W> {
    Link::FetchAdd { word: home, add: Counters::<BITS>::returning(mode), waited: false }
}

impl<const BITS: u32> LockAlgorithm for Ticket<BITS> {
    const NAME: &'static str = "ticket";
    const HOME_WORDS: usize = 1;
    const NODE_WORDS: usize = COUNTS + 1;

    /// The home's word, and the owner's bits.
    type Words<'m, M: RemoteMemory> = (M::Word<'m>, u64);

    fn is_free(home: &[u64]) -> bool {
        home.iter().all(|word| !Counters::<BITS>(*word).is_frozen() && Counters::<BITS>(*word).nothing_out())
    }

    #[inline]
    fn uses_node(&self, _mode: Mode) -> bool {
        true
    }

    #[inline(always)] // as `start`
    fn words<'m, M: RemoteMemory>(&self, place: impl LockContext<'m, M>) -> Result<Self::Words<'m, M>, Fault> {
        let looks = if place.owners() > Counters::<BITS>::ROOM || !place.is_counted() { LOOKS } else { 0 };
        Ok((place.home(0)?, place.owner().to_bits() | looks))
    }

    fn words_to_try<'m, M: RemoteMemory>(&self, place: impl LockContext<'m, M>) -> Result<Self::Words<'m, M>, Fault> {
        Ok((place.home(0)?, place.owner().to_bits() | LOOKS))
    }

    #[inline(always)] // a lock's words that pass through memory cost a third of the lock
    fn start<'m, M: RemoteMemory>(
        &self,
        memory: &M,
        place: impl LockContext<'m, M>,
        words: Self::Words<'m, M>,
        mode: Mode,
    ) -> Result<M::Op, Fault> {
        recovery::count(memory, place)?;
        if looks(words) {
            return Ok(memory.read(words.0));
        }
        Ok(memory.fetch_add(words.0, Counters::<BITS>::taking(mode)))
    }

    #[inline]
    fn holds<M: RemoteMemory>(&self, words: Self::Words<'_, M>, mode: Mode, first: u64) -> bool {
        !looks(words) && Counters::<BITS>(first).is_open(mode)
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
        self.contend_in(memory, place, words, mode, first, wish, None).await
    }

    #[inline]
    fn releases_in_one_step<'m, M: RemoteMemory>(&self, place: impl LockContext<'m, M>, _mode: Mode) -> bool {
        place.slots() == 0
    }

    #[inline(always)] // as `start`
    fn start_release<'m, M: RemoteMemory>(
        &self,
        memory: &M,
        place: impl LockContext<'m, M>,
        words: Self::Words<'m, M>,
        mode: Mode,
    ) -> Result<M::Op, Fault> {
        if !recovery::counts(memory, place)? {
            return Err(Fault::new(FaultKind::NotHeld));
        }
        Ok(memory.post_link(release::<_, BITS>(words.0, mode)))
    }

    fn release_link<'m, M: RemoteMemory>(
        &self,
        _memory: &M,
        words: Self::Words<'m, M>,
        mode: Mode,
    ) -> Option<Link<M::Word<'m>>> {
        Some(release::<_, BITS>(words.0, mode))
    }

    #[inline(always)] // as `start`
    fn released<'m, M: RemoteMemory>(
        &self,
        memory: &M,
        place: impl LockContext<'m, M>,
        _words: Self::Words<'m, M>,
        mode: Mode,
        found: u64,
    ) -> Result<bool, Fault> {
        if Counters::<BITS>(found).out(mode) == 0 {
            return Ok(false); // it is to be undone
        }
        recovery::discount(memory, place)?;
        Ok(true)
    }

    #[inline]
    async fn finish_release<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        place: P,
        words: Self::Words<'m, M>,
        mode: Mode,
        started: impl Future<Output = Result<u64, Fault>> + Send + 'm,
    ) -> Result<(), Fault> {
        let outcome = match started.await {
            Ok(found) if self.released(memory, place, words, mode, found)? => return Ok(()),
            Ok(_) => not_held::<M, BITS>(memory, words.0, mode).await,
            Err(fault) => lose::<M, BITS>(memory, place, words.0, fault).await,
        };
        recovery::discount(memory, place)?;
        outcome
    }

    /// The ticket stays out, and is nobody's.
    async fn release_poisoned<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        place: P,
        words: Self::Words<'m, M>,
        _held: Held,
    ) -> Result<(), Fault> {
        let left = leave_out::<M, BITS>(memory, words.0).await;
        recovery::discount(memory, place)?;
        left
    }
}

/// Undoes a release of what nobody held. Who has no node cannot tell before, and not at all if others hold it.
#[cold]
pub(crate) async fn not_held<M: RemoteMemory, const BITS: u32>(
    memory: &M,
    word: M::Word<'_>,
    mode: Mode,
) -> Result<(), Fault> {
    let mut found = memory.read(word).await?;
    loop {
        let now = memory.compare_swap(word, found, Counters::<BITS>(found).unreturned(mode).unguarded().0).await?;
        if now == found {
            return Err(Fault::new(FaultKind::NotHeld));
        }
        found = now;
    }
}

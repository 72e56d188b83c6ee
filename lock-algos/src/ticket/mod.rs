//! The ticket lock.
//!
//! ```text
//! acquire    before = fetch-add(home.given[mode], 1)
//!            exclusive: until home.returned is before.given, in both modes: pause, read home
//!            shared:    until home.returned[exclusive] is before.given[exclusive]: the same
//! release    fetch-add(home.returned[mode], 1)
//! ```
//!
//! `before` is the word as it was when the ticket was taken.

pub(crate) mod counters;
mod recovery;

use std::future::Future;
use std::marker::PhantomData;

use onesided_remote_memory::{Fault, FaultKind, Link, RemoteMemory};

use self::counters::Counters;
use self::recovery::{leave_out, not_held};
use crate::backoff::Pauses;
use crate::fetch_add_queue::{GRANT, InRing, Waited};
use crate::recovery::{
    ANNOUNCED, Announcement, CountingWord, POISON, Reopened, Suspicion, announce, is_announced, join, note_poison,
    retract,
};
use crate::{
    Backoff, Held, InMemory, Intent, IntentFn, LockAlgorithm, LockContext, LockUse, Mode, Op, Owner, Rest, Words,
};

/// A ticket reader-writer lock by fetch-add, after DSLR (Yoon, Chowdhury, Mozafari, *Distributed
/// Lock Management with RDMA: Decentralization without Starvation*, SIGMOD 2018, section 4).
///
/// A word of 8 bytes counts the exclusive and the shared tickets that were given out, and those
/// that were returned. An arriving owner takes a ticket by one fetch-add, whose result tells what
/// was given out before it: an exclusive owner waits until all of these tickets are returned, a
/// reader until the exclusive ones among them are. A release returns the ticket by one fetch-add,
/// which need not be waited for. Uncontended that is all. A waiter reads the word, and pauses in
/// between: by the first interval of its [`Backoff`] for each ticket ahead of its own but one, and
/// for that one by the first interval 32 times, then by the next (by a first interval below a microsecond that is repeated),
/// starting over when a ticket was returned. So the first interval should be the duration of a hand-over.
///
/// # Fairness
///
/// First come, first served, in both modes: no owner enters before one whose fetch-add took effect
/// earlier, except that readers share the lock. A death (below) and [bounded
/// admission](#bounded-admission) end that order.
///
/// # Overflow
///
/// The counters have `BITS` bits (15, unless a test makes them wrap earlier) and wrap; only their
/// differences matter. A fetch-add that wraps a counter carries into a guard bit above it. An owner
/// that takes a ticket and sees a guard set clears it first. That is in time: of 2<sup>BITS</sup>
/// consecutive tickets one was returned, and its owner had cleared the guard, before the last one
/// is given out.
///
/// ## Bounded admission
///
/// At most 2<sup>BITS</sup> - 1 tickets of a mode can be out. If there may be more
/// [owners](crate::Owners::counted), an arriving owner reads the word and takes its ticket by
/// compare-swap, once there is room: two round trips at least, and the order is that of the
/// tickets, not that of arrival. An owner that is [not counted](crate::Owners::is_counted) among them
/// does the same, and leaves room for the counted ones.
///
/// # Cancellation
///
/// A ticket cannot be discarded: a cancelled owner withdraws it by compare-swap if no other ticket
/// was given out since. Otherwise it waits until the ticket is served, and returns it by a release.
/// (To return an exclusive ticket early, when only readers are ahead, would bypass a reader that is
/// served and has not read the word yet: the counters do not distinguish that from a later turn.) A
/// try with [its words](LockAlgorithm::words) reads the word first, and takes a ticket,
/// by compare-swap, only if it is served at once. With the words of another acquire, a try that fails
/// is cancelled. The owner of a rank that leaves, and one that cannot ask a suspected rank, does not
/// wait for its turn: it puts the word under recovery, and returns its ticket.
///
/// # Death
///
/// The word names no rank. A waiter suspects that tickets are of dead owners when a rank has
/// died or left, no ticket was returned for the [suspicion timeout](crate#suspicion-timeout) since, and
/// fewer live owners are announced than tickets are out. It then puts the word under recovery.
/// Tickets mean nothing then: all waiters return theirs at once, and holders do when they release.
/// When no live rank is announced, which the nodes tell, the tickets that are out are of dead
/// owners. If only readers' are, the next owner takes the lock. If exclusive ones are, acquires
/// that do not recover fail with `ParticipantDied`, the word stays under recovery, and the first
/// recovering owner holds the lock exclusively. The order of the waiters starts over.
///
/// `R`: how waiters are notified; with rings it is a [`FetchAddQueue`](crate::FetchAddQueue).
#[derive(Clone, Copy, Debug)]
pub struct Ticket<const BITS: u32 = 15, R = ()> {
    backoff: Backoff,
    ring: PhantomData<R>,
}

impl<R: InRing> Ticket<15, R> {
    /// A lock whose waiters pause by this table. With rings only those without an entry do, those
    /// under bounded admission, and all after a death.
    #[must_use]
    pub const fn new(backoff: Backoff) -> Self {
        Self::with_bits(backoff)
    }
}

impl<R: InRing> Default for Ticket<15, R> {
    fn default() -> Self {
        Self::new(Backoff::default())
    }
}

impl<const BITS: u32, R: InRing> Ticket<BITS, R> {
    /// The same with counters of `BITS` bits, 1 to 15. Narrow ones are for tests of the
    /// wrap-around.
    #[must_use]
    pub const fn with_bits(backoff: Backoff) -> Self {
        const { assert!(R::ENTRIES <= 1 << BITS) };
        Self { backoff, ring: PhantomData }
    }

    pub(crate) const fn pauses(&self, owner: Owner) -> Pauses<'_> {
        self.backoff.pauses(owner)
    }

    /// An acquire that did not end with its first operation.
    pub(crate) fn waiter<'m, 'w, P: LockContext<'m>>(
        &'m self,
        lock: LockUse<'m, P>,
        found: Result<u64, Fault>,
        intent: IntentFn<'w>,
    ) -> Waiter<'m, 'w, P, R, BITS> {
        let (announcement, pauses) = (Announcement::of(true), self.pauses(lock.context.owner()));
        Waiter { lock, found, intent, pauses, announcement, ring_slot: R::default() }
    }
}

/// The counters after a release in this mode, if they may let in a waiter that is to be notified.
#[inline]
fn left_to_others<R: InRing, const BITS: u32>(found: u64, mode: Mode) -> Option<Counters<BITS>> {
    let left = Counters::<BITS>(found.wrapping_add(Counters::<BITS>::returning(mode)));
    let waits = left.out(Mode::Exclusive) > 0 || mode == Mode::Exclusive && left.out(Mode::Shared) > 0;
    (R::ENTRIES > 0 && waits && !left.is_recovering()).then_some(left)
}

/// Set in the owner's bits if the word is read before a ticket is taken: there may be more owners
/// than tickets, or the acquire is a try.
const READS_FIRST: u64 = 1 << Owner::BITS;

const fn reads_first(owner: u64) -> bool {
    owner & READS_FIRST != 0
}

/// The single operation of a release.
#[inline]
fn release<W, const BITS: u32>(home: W, mode: Mode) -> Link<W> {
    Link::FetchAdd { word: home, add: Counters::<BITS>::returning(mode), waited: false }
}

impl<const BITS: u32, R: InRing> LockAlgorithm for Ticket<BITS, R> {
    const NAME: &'static str = R::NAME;
    const HOME_WORDS: usize = POISON + 1 + 2 * R::ENTRIES;
    const NODE_WORDS: usize = if R::ENTRIES > 0 { GRANT + 1 } else { ANNOUNCED + 1 };
    const NODES_ARE_OWN: bool = R::ENTRIES == 0;

    /// The rings do not matter.
    fn is_free(home: &[u64]) -> bool {
        home.first().map(|word| Counters::<BITS>(*word)).is_none_or(|word| !word.is_recovering() && word.nothing_out())
    }

    #[inline(always)] // as `start`
    fn words<'m, P: LockContext<'m>>(&self, context: P, intent: Intent) -> Result<Words<'m, P::Memory>, Fault> {
        let has_room = context.owners().fit(Counters::<BITS>::ROOM);
        let reads_first = if has_room && intent.is_patient() { 0 } else { READS_FIRST };
        Ok((context.home(0)?, context.owner().to_bits() | reads_first))
    }

    #[inline(always)] // a lock's words that pass through memory cost a third of the lock
    fn start<'m, P: LockContext<'m>>(&self, lock: LockUse<'m, P>) -> Result<Op<P>, Fault> {
        crate::starts::count(Self::NAME);
        announce(lock.memory, lock.context)?;
        if reads_first(lock.owner) {
            return Ok(lock.memory.read(lock.home));
        }
        Ok(lock.memory.fetch_add(lock.home, Counters::<BITS>::taking(lock.mode)))
    }

    #[inline]
    fn holds(&self, owner: u64, mode: Mode, first: u64) -> bool {
        !reads_first(owner) && Counters::<BITS>(first).is_open(mode)
    }

    #[inline]
    fn ahead(&self, owner: u64, mode: Mode, first: u64, now: u64) -> Option<u64> {
        let (before, now) = (Counters::<BITS>(first), Counters::<BITS>(now));
        let waits = !reads_first(owner) && !before.taken(mode).has_guards() && !now.is_recovering();
        waits.then(|| now.ahead(before, mode))
    }

    fn contend<'m, P: LockContext<'m>>(
        &'m self,
        lock: LockUse<'m, P>,
        first: Result<u64, Fault>,
        intent: IntentFn<'_>,
    ) -> impl Future<Output = Result<Held, Fault>> + Send {
        let mut waiter = self.waiter(lock, first, intent);
        async move {
            let held = waiter.acquire().await;
            waiter.announcement.end(&waiter.lock, held)
        }
    }

    #[inline(always)] // as `start`
    fn start_release<'m, P: LockContext<'m>>(&self, lock: LockUse<'m, P>) -> Result<Op<P>, Fault> {
        if !is_announced(lock.memory, lock.context)? {
            return Err(Fault::new(FaultKind::NotHeld));
        }
        Ok(lock.memory.post_link(release::<_, BITS>(lock.home, lock.mode)))
    }

    #[inline(always)] // as `start`
    fn released<'m, P: LockContext<'m>>(&self, lock: LockUse<'m, P>, found: Option<u64>) -> Result<Rest, Fault> {
        match found {
            Some(found) if left_to_others::<R, BITS>(found, lock.mode).is_some() => Ok(Rest::Unknown),
            Some(found) if Counters::<BITS>(found).out(lock.mode) > 0 => {
                retract(lock.memory, lock.context).map(|()| Rest::Nothing)
            }
            _ => Ok(Rest::Unknown), // to be undone
        }
    }

    #[inline]
    fn finish_release<'m, P: LockContext<'m>>(
        &'m self,
        lock: LockUse<'m, P>,
        found: Result<u64, Fault>,
    ) -> impl Future<Output = Result<(), Fault>> + Send + 'm {
        async move {
            let outcome = match found {
                Ok(found) if Counters::<BITS>(found).out(lock.mode) == 0 => not_held::<BITS>(lock).await,
                Ok(found) => match left_to_others::<R, BITS>(found, lock.mode) {
                    Some(left) => R::hand_over(lock, left).await,
                    None => Ok(()),
                },
                Err(fault) => Err(fault),
            };
            retract(lock.memory, lock.context)?;
            outcome
        }
    }

    /// The ticket stays out, without an owner.
    async fn release_poisoned<'m, P: LockContext<'m>>(&'m self, lock: LockUse<'m, P>, why: Fault) -> Result<(), Fault> {
        let left = match note_poison(&lock, why).await {
            Ok(()) => leave_out::<BITS>(lock).await,
            lost => lost,
        };
        retract(lock.memory, lock.context)?;
        left
    }
}

/// An acquire that did not end with its first operation. One for each waiting rank: small.
pub(crate) struct Waiter<'m, 'w, P: InMemory, R, const BITS: u32> {
    pub(crate) lock: LockUse<'m, P>,
    /// What the last operation found.
    pub(crate) found: Result<u64, Fault>,
    pub(crate) intent: IntentFn<'w>,
    pauses: Pauses<'m>,
    /// Whether this owner is announced.
    pub(crate) announcement: Announcement,
    /// Where it waits for a notification. Without one, it reads the word, and pauses in between.
    ring_slot: R,
}

/// The result of the wait with a ticket.
enum Turn {
    /// The lock is held.
    Mine,
    /// The ticket was withdrawn, or given up: the acquire is cancelled, may not wait, or fails.
    Withdrawn(Fault),
    /// The word is under recovery: the ticket means nothing.
    Void,
}

impl<'m, P: LockContext<'m>, R: InRing, const BITS: u32> Waiter<'m, '_, P, R, BITS> {
    /// Acquires the lock after its first operation.
    pub(crate) fn acquire(&mut self) -> impl Future<Output = Result<Held, Fault>> + Send {
        async move {
            loop {
                let found = Counters(self.found?);
                let before = if self.reads_first() { self.take_bounded(found).await? } else { Some(found) };
                if let Some(before) = before {
                    match self.turn(before).await? {
                        Turn::Mine => return Ok(Held::cleanly(self.lock.mode)),
                        Turn::Withdrawn(why) => return Err(why),
                        Turn::Void => {
                            self.lock.add::<Counters<BITS>>(Counters::<BITS>::returning(self.lock.mode)).await?
                        }
                    };
                }
                let taken = Counters::<BITS>::taken_over;
                let waited = self.announcement.await_reopening(&self.lock, self.intent, &mut self.pauses, taken);
                let open = match waited.await? {
                    Reopened::Taken(held) => return Ok(held),
                    Reopened::Open(open) => open,
                };
                self.announcement.announce(&self.lock)?;
                self.found = match self.reads_first() {
                    true => Ok(open.0),
                    false => self.lock.memory.fetch_add(self.lock.home, Counters::<BITS>::taking(self.lock.mode)).await,
                };
            }
        }
    }

    const fn reads_first(&self) -> bool {
        reads_first(self.lock.owner)
    }

    /// Takes a ticket by [bounded admission](join).
    fn take_bounded(
        &mut self,
        found: Counters<BITS>,
    ) -> impl Future<Output = Result<Option<Counters<BITS>>, Fault>> + Send {
        let mode = self.lock.mode;
        let is_open = move |word: Counters<BITS>| !word.is_recovering() && word.ahead(word, mode) == 0;
        let joined = move |word: Counters<BITS>| word.unguarded().joined(mode);
        join(&self.lock, found, (&self.intent, &mut self.pauses), is_open, joined)
    }

    /// Waits with the ticket that was taken from the word `before`. What can be computed again is
    /// not kept during a wait.
    fn turn(&mut self, before: Counters<BITS>) -> impl Future<Output = Result<Turn, Fault>> + Send {
        async move {
            let mut word = if self.reads_first() { self.given(before) } else { before.taken(self.lock.mode) };
            while word.has_guards() {
                let now = self.lock.swap(word, word.unguarded()).await?;
                word = if now == word { word.unguarded() } else { now };
            }
            self.ring_slot.begin();
            let mut suspicion = Suspicion::default();
            loop {
                if word.is_recovering() {
                    return Ok(Turn::Void);
                }
                if word.ahead(before, self.lock.mode) == 0 {
                    return Ok(Turn::Mine);
                }
                let intent = (self.intent)();
                if word.gave_as(self.given(before)) && !intent.is_patient() {
                    let now = self.lock.swap(word, word.withdrawn(self.lock.mode)).await?;
                    if now == word {
                        return Ok(Turn::Withdrawn(intent.given_up()));
                    }
                    word = now;
                    continue;
                }
                if intent.is_leaving() {
                    return self.give_up(word, intent.given_up()).await;
                }
                if suspicion.seen(word.ahead(before, Mode::Exclusive)) {
                    self.pauses.restart();
                }
                match suspicion.check(&self.lock, word, word.owners().saturating_sub(1)).await {
                    Ok(Some(recovering)) => {
                        word = recovering;
                        continue;
                    }
                    Ok(None) => {}
                    // Unless it has lost the home itself.
                    Err(fault) => return self.give_up(word, fault).await,
                }
                // An entry does not affect whose turn it is.
                word = match self.ring_slot.wait(&self.lock, before, word).await? {
                    Waited::Granted => return Ok(Turn::Mine),
                    Waited::Seen(word) => word,
                    Waited::Standing => {
                        let nanos = self.pauses.next_behind(word.ahead(before, self.lock.mode));
                        self.lock.memory.pause(self.lock.home, nanos).await;
                        self.lock.look().await?
                    }
                };
            }
        }
    }

    /// The word after this owner has taken its ticket from `before`.
    const fn given(&self, before: Counters<BITS>) -> Counters<BITS> {
        before.unguarded().joined(self.lock.mode)
    }
}

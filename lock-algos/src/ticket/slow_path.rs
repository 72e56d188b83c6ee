//! The slow path of the ticket lock.

use onesided_remote_memory::{Fault, FaultKind, RemoteMemory};

use super::counters::Counters;
use super::reads_first;
use crate::backoff::Pauses;
use crate::fetch_add_queue::{RingSlot, Waited};
use crate::recovery::{self, Announcement, RecoverableWord, Reopened, Suspicion};
use crate::{Held, IntentFn, LockContext, LockUse, Mode};

/// How many swaps for a ticket may be lost in a row without a pause.
const RACES: u32 = 8;

/// An acquire that did not end with its first operation.
pub(super) struct SlowPath<'m, 'w, M: RemoteMemory, P, const BITS: u32> {
    pub(super) lock: LockUse<'m, M, P>,
    pub(super) intent: IntentFn<'w>,
    pub(super) pauses: Pauses<'m>,
    /// Whether this owner is announced.
    pub(super) announcement: Announcement<'m, M, P>,
    /// Where it waits for a notification. Without one, it reads the word, and pauses in between.
    pub(super) ring_slot: Option<RingSlot<P>>,
}

/// A wait for tickets to return.
struct Waiting<const BITS: u32> {
    /// The returned tickets when the word was last read.
    returned: (u64, u64),
    /// The suspicion since then.
    suspicion: Suspicion,
}

impl<const BITS: u32> Waiting<BITS> {
    fn new(word: Counters<BITS>) -> Self {
        Self { returned: word.returned(), suspicion: Suspicion::default() }
    }
}

/// The result of the wait with a ticket.
enum Turn {
    /// The lock is held.
    Mine,
    /// The ticket was withdrawn: the acquire is cancelled, or may not wait.
    Withdrawn(Fault),
    /// The word is under recovery: the ticket means nothing.
    Void,
}

/// Puts the word under recovery if a ticket is out: it may be without an owner.
pub(super) async fn leave_out<'m, M: RemoteMemory, const BITS: u32>(
    memory: &'m M,
    word: M::Word<'m>,
) -> Result<(), Fault> {
    let mut found = Counters::<BITS>(memory.read(word).await?);
    // With none out, none is without an owner.
    while !found.is_recovering() && !found.nothing_out() {
        let now = Counters(memory.compare_swap(word, found.0, found.recovering().0).await?);
        found = if now == found { found.recovering() } else { now };
    }
    Ok(())
}

/// Undoes a release by a rank that did not hold the lock.
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

impl<'m, M: RemoteMemory, P: LockContext<'m, M>, const BITS: u32> SlowPath<'m, '_, M, P, BITS> {
    async fn look(&self) -> Result<Counters<BITS>, Fault> {
        self.lock.memory.read(self.lock.home).await.map(Counters)
    }

    /// Swaps the word if it is `found`. Returns the previous value.
    async fn swap(&self, found: Counters<BITS>, new: Counters<BITS>) -> Result<Counters<BITS>, Fault> {
        self.lock.memory.compare_swap(self.lock.home, found.0, new.0).await.map(Counters)
    }

    /// The same if it does not matter which owner swapped the word: returns the current value.
    async fn change(&self, found: Counters<BITS>, new: Counters<BITS>) -> Result<Counters<BITS>, Fault> {
        let now = self.swap(found, new).await?;
        Ok(if now == found { new } else { now })
    }

    /// Adds to the word. Returns the previous value.
    async fn add(&self, what: u64) -> Result<Counters<BITS>, Fault> {
        self.lock.memory.fetch_add(self.lock.home, what).await.map(Counters)
    }

    /// How many tickets of a mode may be out after this owner has taken one by bounded admission.
    fn room(&self) -> u64 {
        let all = Counters::<BITS>::ROOM;
        match self.lock.context.owners() {
            counted if counted > all || self.lock.context.is_counted() => all,
            counted => all - counted,
        }
    }

    /// Takes a ticket by bounded admission, or for a try only if it is served at once. Returns the
    /// word before it, or `None` if the word is under recovery and there is no ticket. This owner is
    /// announced already.
    async fn take_bounded(&mut self, mut found: Counters<BITS>) -> Result<Option<Counters<BITS>>, Fault> {
        let mut waiting = Waiting::new(found);
        let mut lost = 0_u32;
        loop {
            let intent = (self.intent)();
            if found.is_recovering() && !intent.is_over() {
                return Ok(None);
            }
            let is_full = found.out(self.lock.mode) >= self.room();
            if intent.is_over() || !intent.is_patient() && (is_full || found.ahead(found, self.lock.mode) > 0) {
                return Err(intent.given_up());
            }
            if is_full {
                recovery::announce_waiting(self.lock.memory, self.lock.context)?;
                found = match self.suspect(&mut waiting, found, 0).await? {
                    Some(recovering) => recovering,
                    None => self.pause(1).await?,
                };
                continue;
            }
            recovery::announce(self.lock.memory, self.lock.context)?;
            let now = self.swap(found, found.unguarded().joined(self.lock.mode)).await?;
            if now == found {
                return Ok(Some(found));
            }
            found = now;
            lost += 1;
            if lost.is_multiple_of(RACES) {
                self.lock.memory.pause(self.lock.home, self.pauses.next_nanos()).await;
                found = self.look().await?;
            }
        }
    }

    /// Waits with the ticket that was taken from the word `before`.
    async fn turn(&mut self, before: Counters<BITS>) -> Result<Turn, Fault> {
        let given = before.unguarded().joined(self.lock.mode);
        let mut word = if reads_first(self.lock.owner) { given } else { before.taken(self.lock.mode) };
        while word.has_guards() {
            word = self.change(word, word.unguarded()).await?;
        }
        if let Some(ring_slot) = &mut self.ring_slot {
            ring_slot.begin();
        }
        let mut waiting = Waiting::new(word);
        loop {
            if word.is_recovering() {
                return Ok(Turn::Void);
            }
            let ahead = word.ahead(before, self.lock.mode);
            if ahead == 0 {
                return Ok(Turn::Mine);
            }
            let intent = (self.intent)();
            if word.gave_as(given) && !intent.is_patient() {
                let now = self.swap(word, word.withdrawn(self.lock.mode)).await?;
                if now == word {
                    return Ok(Turn::Withdrawn(intent.given_up()));
                }
                word = now;
                continue;
            }
            if let Some(recovering) = self.suspect(&mut waiting, word, 1).await? {
                word = recovering;
                continue;
            }
            let waited = match &mut self.ring_slot {
                // An entry does not affect whose turn it is.
                Some(ring_slot) => ring_slot.wait(self.lock.memory, before, word).await?,
                None => Waited::Standing,
            };
            word = match waited {
                Waited::Granted => return Ok(Turn::Mine),
                Waited::Seen(word) => word,
                Waited::Standing => self.pause(ahead).await?,
            };
        }
    }

    /// Pauses behind this many tickets. Returns the current word.
    async fn pause(&mut self, ahead: u64) -> Result<Counters<BITS>, Fault> {
        self.lock.memory.pause(self.lock.home, self.pauses.next_behind(ahead)).await;
        self.look().await
    }

    /// Puts the word under recovery if its holders are suspected, and returns it. `mine`: how many of
    /// the tickets that are out are this owner's.
    async fn suspect(
        &mut self,
        waiting: &mut Waiting<BITS>,
        word: Counters<BITS>,
        mine: u64,
    ) -> Result<Option<Counters<BITS>>, Fault> {
        if word.returned() != waiting.returned {
            *waiting = Waiting::new(word);
            self.pauses.restart();
        }
        let others = (word.out(Mode::Exclusive) + word.out(Mode::Shared)).saturating_sub(mine);
        match waiting.suspicion.suspects(self.lock.memory, self.lock.context, others).await {
            true => self.change(word, word.recovering()).await.map(Some),
            false => Ok(None),
        }
    }

    /// Acquires the lock after its first operation.
    pub(super) async fn begun(&mut self, first: Result<u64, Fault>) -> Result<Held, Fault> {
        let first = Counters(first?);
        let first = if reads_first(self.lock.owner) { self.take_bounded(first).await? } else { Some(first) };
        self.acquire(first).await
    }

    /// Acquires with the ticket that was taken from this word, or with a new one.
    async fn acquire(&mut self, mut ticket: Option<Counters<BITS>>) -> Result<Held, Fault> {
        loop {
            if let Some(before) = ticket {
                match self.turn(before).await? {
                    Turn::Mine => return Ok(Held::cleanly(self.lock.mode)),
                    Turn::Withdrawn(why) => return Err(why),
                    Turn::Void => drop(self.add(Counters::<BITS>::returning(self.lock.mode)).await?),
                }
            }
            let (word, taken) = (self.lock.home, Counters::<BITS>::taken_over);
            let waited = self.announcement.await_reopening(word, self.lock.mode, self.intent, &mut self.pauses, taken);
            let found = match waited.await? {
                Reopened::Taken(held) => return Ok(held),
                Reopened::Open(found) => found,
            };
            self.announcement.announce()?;
            ticket = if reads_first(self.lock.owner) {
                self.take_bounded(found).await?
            } else {
                Some(self.add(Counters::<BITS>::taking(self.lock.mode)).await?)
            };
        }
    }
}

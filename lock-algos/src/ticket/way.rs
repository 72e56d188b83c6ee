//! The slow path of the ticket lock.

use onesided_remote_memory::{Fault, FaultKind, RemoteMemory};

use super::counters::Counters;
use super::looks;
use crate::backoff::Pauses;
use crate::fetch_add_queue::{Seat, Waited};
use crate::recovery::{self, Count, Doubt, failed_holder, nobody_counts};
use crate::{Held, Intent, IntentFn, LockContext, Mode};

/// How many swaps for a ticket may be lost in a row without a pause.
const RACES: u32 = 8;

/// An acquire that did not end with its first operation.
pub(crate) struct Way<'m, 'w, M: RemoteMemory, P, const BITS: u32> {
    pub(crate) memory: &'m M,
    pub(crate) context: P,
    pub(crate) words: (M::Word<'m>, u64),
    pub(crate) mode: Mode,
    pub(crate) intent: IntentFn<'w>,
    pub(crate) pauses: Pauses<'m>,
    /// Whether this owner is announced.
    pub(crate) counts: Count<'m, M, P>,
    /// Where it waits for a notification. Without one, it reads the word, and pauses in between.
    pub(crate) seat: Option<Seat<P>>,
}

/// A wait for tickets to return.
struct Waiting<const BITS: u32> {
    /// The returned tickets when the word was last read.
    returned: (u64, u64),
    /// The suspicion since then.
    doubt: Doubt,
}

impl<const BITS: u32> Waiting<BITS> {
    fn new(word: Counters<BITS>) -> Self {
        Self { returned: word.returned(), doubt: Doubt::default() }
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
    while !found.is_frozen() && !found.nothing_out() {
        let now = Counters(memory.compare_swap(word, found.0, found.frozen().0).await?);
        found = if now == found { found.frozen() } else { now };
    }
    Ok(())
}

/// The fault of an acquire that may not wait.
const fn given_up(intent: Intent) -> Fault {
    Fault::new(if intent.is_over() { FaultKind::Closed } else { FaultKind::TimedOut })
}

impl<'m, M: RemoteMemory, P: LockContext<'m, M>, const BITS: u32> Way<'m, '_, M, P, BITS> {
    async fn look(&self) -> Result<Counters<BITS>, Fault> {
        self.memory.read(self.words.0).await.map(Counters)
    }

    /// Swaps the word if it is `found`. Returns the previous value.
    async fn swap(&self, found: Counters<BITS>, new: Counters<BITS>) -> Result<Counters<BITS>, Fault> {
        self.memory.compare_swap(self.words.0, found.0, new.0).await.map(Counters)
    }

    /// The same if it does not matter which owner swapped the word: returns the current value.
    async fn change(&self, found: Counters<BITS>, new: Counters<BITS>) -> Result<Counters<BITS>, Fault> {
        let now = self.swap(found, new).await?;
        Ok(if now == found { new } else { now })
    }

    /// Adds to the word. Returns the previous value.
    async fn add(&self, what: u64) -> Result<Counters<BITS>, Fault> {
        self.memory.fetch_add(self.words.0, what).await.map(Counters)
    }

    /// How many tickets of a mode may be out after this owner has taken one by bounded admission.
    fn room(&self) -> u64 {
        let all = Counters::<BITS>::ROOM;
        match self.context.owners() {
            counted if counted > all || self.context.is_counted() => all,
            counted => all - counted,
        }
    }

    /// Takes a ticket by bounded admission, or for a try only if it is served at once. Returns the
    /// word before it, or `None` if the word is under recovery and there is no ticket. This owner is
    /// announced already.
    async fn squeeze_in(&mut self, mut found: Counters<BITS>) -> Result<Option<Counters<BITS>>, Fault> {
        let mut waiting = Waiting::new(found);
        let mut lost = 0_u32;
        loop {
            let intent = (self.intent)();
            if found.is_frozen() && !intent.is_over() {
                return Ok(None);
            }
            let is_full = found.out(self.mode) >= self.room();
            if intent.is_over() || !intent.is_patient() && (is_full || found.ahead(found, self.mode) > 0) {
                return Err(given_up(intent));
            }
            if is_full {
                recovery::wait_uncounted(self.memory, self.context)?;
                found = match self.freeze_if_doubted(&mut waiting, found, 0).await? {
                    Some(frozen) => frozen,
                    None => self.pause(1).await?,
                };
                continue;
            }
            recovery::count(self.memory, self.context)?;
            let now = self.swap(found, found.unguarded().joined(self.mode)).await?;
            if now == found {
                return Ok(Some(found));
            }
            found = now;
            lost += 1;
            if lost.is_multiple_of(RACES) {
                self.memory.pause(self.words.0, self.pauses.next_nanos()).await;
                found = self.look().await?;
            }
        }
    }

    /// Waits with the ticket that was taken from the word `before`.
    async fn turn(&mut self, before: Counters<BITS>) -> Result<Turn, Fault> {
        let given = before.unguarded().joined(self.mode);
        let mut word = if looks(self.words) { given } else { before.taken(self.mode) };
        while word.has_guards() {
            word = self.change(word, word.unguarded()).await?;
        }
        if let Some(seat) = &mut self.seat {
            seat.begin();
        }
        let mut waiting = Waiting::new(word);
        loop {
            if word.is_frozen() {
                return Ok(Turn::Void);
            }
            let ahead = word.ahead(before, self.mode);
            if ahead == 0 {
                return Ok(Turn::Mine);
            }
            let intent = (self.intent)();
            if word.gave_as(given) && !intent.is_patient() {
                let now = self.swap(word, word.withdrawn(self.mode)).await?;
                if now == word {
                    return Ok(Turn::Withdrawn(given_up(intent)));
                }
                word = now;
                continue;
            }
            if let Some(frozen) = self.freeze_if_doubted(&mut waiting, word, 1).await? {
                word = frozen;
                continue;
            }
            let seated = match &mut self.seat {
                // An entry does not affect whose turn it is.
                Some(seat) => seat.wait(self.memory, before, word).await?,
                None => Waited::Standing,
            };
            word = match seated {
                Waited::Granted => return Ok(Turn::Mine),
                Waited::Seen(word) => word,
                Waited::Standing => self.pause(ahead).await?,
            };
        }
    }

    /// Pauses behind this many tickets. Returns the current word.
    async fn pause(&mut self, ahead: u64) -> Result<Counters<BITS>, Fault> {
        self.memory.pause(self.words.0, self.pauses.next_behind(ahead)).await;
        self.look().await
    }

    /// Puts the word under recovery if its holders are suspected, and returns it. `mine`: how many of
    /// the tickets that are out are this owner's.
    async fn freeze_if_doubted(
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
        match waiting.doubt.suspects(self.memory, self.context, others).await {
            true => self.change(word, word.frozen()).await.map(Some),
            false => Ok(None),
        }
    }

    /// Waits until the word is reopened, or takes the lock from it. This owner has no ticket and is
    /// not announced.
    async fn thaw(&mut self) -> Result<Option<Held>, Fault> {
        self.pauses.restart();
        loop {
            let word = self.look().await?;
            if !word.is_frozen() {
                return Ok(None);
            }
            let intent = (self.intent)();
            if intent.is_over() {
                return Err(given_up(intent));
            }
            // An owner that is announced after the scan has taken a ticket, and the word has
            // changed then.
            let dead = if word.nothing_out() {
                None
            } else if nobody_counts(self.memory, self.context).await? {
                failed_holder(self.memory, self.context).await
            } else {
                if !intent.is_patient() {
                    return Err(given_up(intent));
                }
                self.memory.pause(self.words.0, self.pauses.next_nanos()).await;
                continue;
            };
            let held = match dead.map(|dead| Fault::of(FaultKind::ParticipantDied, dead)) {
                Some(died) if !intent.recovers => {
                    // Another owner may have recovered it meanwhile.
                    if self.look().await? == word {
                        return Err(died);
                    }
                    continue;
                }
                Some(died) => Held::after(died, Mode::Exclusive),
                None => Held::cleanly(self.mode),
            };
            self.counts.begin()?;
            if self.swap(word, word.taken_over(held.mode)).await? == word {
                return Ok(Some(held));
            }
            self.counts.end()?;
        }
    }

    /// Acquires the lock after its first operation.
    pub(crate) async fn begun(&mut self, first: Result<u64, Fault>) -> Result<Held, Fault> {
        let first = Counters(first?);
        let first = if looks(self.words) { self.squeeze_in(first).await? } else { Some(first) };
        self.acquire(first).await
    }

    /// Acquires with the ticket that was taken from this word, or with a new one.
    async fn acquire(&mut self, mut ticket: Option<Counters<BITS>>) -> Result<Held, Fault> {
        loop {
            if let Some(before) = ticket {
                match self.turn(before).await? {
                    Turn::Mine => return Ok(Held::cleanly(self.mode)),
                    Turn::Withdrawn(why) => return Err(why),
                    Turn::Void => drop(self.add(Counters::<BITS>::returning(self.mode)).await?),
                }
            }
            self.counts.end()?;
            if let Some(held) = self.thaw().await? {
                return Ok(held);
            }
            self.counts.begin()?;
            ticket = if looks(self.words) {
                let found = self.look().await?;
                self.squeeze_in(found).await?
            } else {
                Some(self.add(Counters::<BITS>::taking(self.mode)).await?)
            };
        }
    }
}

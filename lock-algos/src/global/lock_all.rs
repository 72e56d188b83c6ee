//! The lock-all word: entering it, then leaving it.

use onesided_remote_memory::{Fault, FaultKind, RemoteMemory};

use super::lock_all_word::LockAllWord;
use crate::backoff::{Pauses, mixed};
use crate::recovery::{self, Announcement, CountingWord, RecoverableWord, Reopened, Suspicion, join, nonce};
use crate::{Held, InMemory, IntentFn, LockContext, LockUse, Mode, Op};

/// How long a waiter lets waiters of the other group go first, in nanoseconds from when it saw an
/// owner of its own group leave. After that they may be waiting for a lock that it holds itself.
const DOOR_PATIENCE: u64 = 100_000_000;

/// The result of a wait.
enum Entry {
    /// The owner is inside.
    Inside,
    /// The word is under recovery, and the owner is not in it.
    Void,
}

/// An owner that enters.
pub(super) struct Entering<'m, 'w, P: InMemory, const BITS: u32> {
    /// The use of the lock-all word.
    pub(super) all: LockUse<'m, P>,
    pub(super) intent: IntentFn<'w>,
    pub(super) pauses: Pauses<'m>,
    /// Whether it bypasses waiters, because they may wait for a lock that it holds.
    pub(super) bypasses: bool,
    pub(super) announcement: Announcement,
}

/// Whether the word is read before anything is added to it: there may be more owners than it has
/// room for.
pub(super) fn reads_first<'m, const BITS: u32>(context: impl LockContext<'m>) -> bool {
    !context.owners().fit(LockAllWord::<BITS>::MOST)
}

/// Posts the first operation, for an announced owner.
pub(super) fn announce<'m, P: LockContext<'m>, const BITS: u32>(all: LockUse<'m, P>) -> Op<P> {
    match reads_first::<BITS>(all.context) {
        true => all.memory.read(all.home),
        false => all.memory.fetch_add(all.home, LockAllWord::<BITS>::entering(all.mode)),
    }
}

impl<const BITS: u32> RecoverableWord for LockAllWord<BITS> {
    fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    fn to_bits(self) -> u64 {
        self.0
    }

    fn is_recovering(self) -> bool {
        Self::is_recovering(self)
    }

    fn recovering(self, nonce: u64) -> Self {
        Self::recovering(self, nonce)
    }

    /// A waiter is not told from an owner that retracts itself.
    fn may_be_poisoned(self) -> bool {
        self.inside(Mode::Exclusive) > 0
    }
}

impl<const BITS: u32> CountingWord for LockAllWord<BITS> {
    const ROOM: u64 = Self::MOST;

    fn of_mode(self, mode: Mode) -> u64 {
        self.inside(mode) + if self.is_recovering() { 0 } else { self.waiting(mode) }
    }

    fn owners(self) -> u64 {
        Self::owners(self)
    }
}

impl<'m, P: LockContext<'m>, const BITS: u32> Entering<'m, '_, P, BITS> {
    /// Adds to the word, and returns the new value.
    async fn add(&self, add: u64) -> Result<LockAllWord<BITS>, Fault> {
        Ok(self.all.add::<LockAllWord<BITS>>(add).await?.plus(add))
    }

    async fn pause(&mut self) -> Result<LockAllWord<BITS>, Fault> {
        self.all.memory.pause(self.all.home, self.pauses.next_nanos()).await;
        self.all.look().await
    }

    async fn leave_trace(&self, found: LockAllWord<BITS>) -> Result<(), Fault> {
        renew(self.all, Some(found)).await
    }

    /// Enters, after a first operation with this outcome. An owner that recovers is then among the
    /// exclusive owners.
    pub(super) async fn enter(&mut self, first: Result<u64, Fault>) -> Result<Held, Fault> {
        let mut found = LockAllWord(first?);
        loop {
            let entry = match reads_first::<BITS>(self.all.context) {
                true => self.enter_bounded(found).await?,
                false => self.announced(found).await?,
            };
            if let Entry::Inside = entry {
                return Ok(Held::cleanly(self.all.mode));
            }
            let taken = |_, mode| LockAllWord::<BITS>::of_one(mode);
            let waited = self.announcement.await_reopening(&self.all, self.intent, &mut self.pauses, taken);
            if let Reopened::Taken(held) = waited.await? {
                return Ok(held);
            }
            self.announcement.announce(&self.all)?;
            found = LockAllWord(announce::<_, BITS>(self.all).await?);
        }
    }

    /// It has added itself to the owners inside of this word.
    async fn announced(&mut self, found: LockAllWord<BITS>) -> Result<Entry, Fault> {
        if found.is_open(self.all.mode, self.bypasses) {
            return Ok(Entry::Inside);
        }
        if found.is_recovering() {
            let word = self.add(LockAllWord::<BITS>::leaving(self.all.mode)).await?;
            self.leave_trace(word).await?;
            return Ok(Entry::Void);
        }
        let intent = (self.intent)();
        if !intent.is_patient() {
            let mut found = self.add(LockAllWord::<BITS>::leaving(self.all.mode)).await?;
            // Other owners that retract themselves may have been in the way.
            while !intent.is_over() && found.is_open(self.all.mode, self.bypasses) {
                let now = self.all.swap(found, found.plus(LockAllWord::<BITS>::entering(self.all.mode))).await?;
                if now == found {
                    return Ok(Entry::Inside);
                }
                found = now;
            }
            self.leave_trace(found).await?;
            return if found.is_recovering() { Ok(Entry::Void) } else { Err(intent.given_up()) };
        }
        let word = self.add(LockAllWord::<BITS>::stepping_back(self.all.mode)).await?;
        if word.is_recovering() {
            self.leave_trace(word).await?;
            return Ok(Entry::Void);
        }
        self.wait(word).await
    }

    /// Enters, or waits, by [bounded admission](join): there may be too many owners.
    async fn enter_bounded(&mut self, found: LockAllWord<BITS>) -> Result<Entry, Fault> {
        let (mode, bypasses) = (self.all.mode, self.bypasses);
        let is_open = move |word: LockAllWord<BITS>| word.is_open(mode, bypasses);
        let joined = move |word: LockAllWord<BITS>| {
            word.plus(match is_open(word) {
                true => LockAllWord::<BITS>::entering(mode),
                false => LockAllWord::<BITS>::waiting_on(mode),
            })
        };
        match join(&self.all, found, (&self.intent, &mut self.pauses), is_open, joined).await? {
            Some(before) if is_open(before) => Ok(Entry::Inside),
            Some(before) => self.wait(joined(before)).await,
            None => Ok(Entry::Void),
        }
    }

    /// Waits, as one of the waiters of this word.
    async fn wait(&mut self, mut word: LockAllWord<BITS>) -> Result<Entry, Fault> {
        let phase = word.phase(self.all.mode);
        let mut before = word;
        let mut suspicion = Suspicion::default();
        let mut door = self.all.memory.now();
        let mut failed = None;
        loop {
            if word.phase(self.all.mode) != phase {
                return Ok(Entry::Inside); // admitted with the others
            }
            if word.is_recovering() {
                return Ok(Entry::Void);
            }
            let intent = (self.intent)();
            if let Some(why) = failed.or_else(|| (!intent.is_patient()).then(|| intent.given_up())) {
                match self.withdraw(word).await? {
                    now if now == word => return Err(why),
                    now => word = now,
                }
                continue;
            }
            if let Some(next) = word.next(self.all.mode, self.bypasses) {
                let now = self.all.swap(word, next.to).await?;
                if now == word && next.admits {
                    return Ok(Entry::Inside);
                }
                word = if now == word { next.to } else { now };
                continue;
            }
            let others = word.inside(self.all.mode.other());
            if others > 0 {
                suspicion.seen(others);
                match suspicion.check(&self.all, word, word.owners().saturating_sub(1)).await {
                    Ok(None) => {}
                    Ok(Some(now)) => {
                        word = now;
                        continue;
                    }
                    Err(fault) => {
                        failed = Some(fault);
                        continue;
                    }
                }
            } else if self.all.memory.now().saturating_sub(door) >= DOOR_PATIENCE {
                self.bypasses = true;
                continue;
            }
            if others < before.inside(self.all.mode.other()) {
                self.pauses.restart();
            }
            if others > 0 || word.inside(self.all.mode) < before.inside(self.all.mode) {
                door = self.all.memory.now();
            }
            before = word;
            word = self.pause().await?;
        }
    }

    /// Leaves the waiters. Returns the previous word.
    async fn withdraw(&self, word: LockAllWord<BITS>) -> Result<LockAllWord<BITS>, Fault> {
        self.all.swap(word, word.plus(LockAllWord::<BITS>::waiting_on(self.all.mode).wrapping_neg())).await
    }
}

/// Makes the word unlike every earlier one under recovery. `found`: the word as it was when this
/// owner, which is still announced, retracted itself from it; the word is then changed only if it
/// is under recovery. A concurrent participant scan may have seen this owner inside: if another one
/// arrives, the word would be the same again without an announced owner.
pub(super) async fn renew<'m, const BITS: u32>(
    all: LockUse<'m, impl LockContext<'m>>,
    found: Option<LockAllWord<BITS>>,
) -> Result<(), Fault> {
    let starts = found.is_none();
    let mut found = match found {
        Some(found) => found,
        None => all.look().await?,
    };
    while starts || found.is_recovering() {
        let another = nonce(all.memory, all.context.owner()) ^ mixed(found.0);
        let now = all.swap(found, found.recovering(another)).await?;
        if now == found {
            break;
        }
        found = now;
    }
    Ok(())
}

/// Leaves the lock-all word.
pub(super) async fn leave<'m, P: LockContext<'m>, const BITS: u32>(all: LockUse<'m, P>) -> Result<(), Fault> {
    let found = all.memory.fetch_add(all.home, LockAllWord::<BITS>::leaving(all.mode)).await;
    finish_leaving::<BITS>(all, found).await
}

/// Completes that, after the fetch-add.
pub(super) async fn finish_leaving<'m, const BITS: u32>(
    all: LockUse<'m, impl LockContext<'m>>,
    found: Result<u64, Fault>,
) -> Result<(), Fault> {
    let outcome = match found.map(LockAllWord::<BITS>) {
        Err(fault) => Err(fault),
        Ok(found) if found.inside(all.mode) > 0 => {
            renew(all, Some(found.plus(LockAllWord::<BITS>::leaving(all.mode)))).await
        }
        Ok(_) => {
            let undone = all.memory.fetch_add(all.home, LockAllWord::<BITS>::entering(all.mode)).await;
            undone.and(Err(Fault::new(FaultKind::NotHeld)))
        }
    };
    recovery::retract(all.memory, all.context)?;
    outcome
}

/// Leaves the lock-all word poisoned, as an exclusive owner.
pub(super) async fn leave_poisoned<'m, P: LockContext<'m>, const BITS: u32>(
    all: LockUse<'m, P>,
    why: Fault,
) -> Result<(), Fault> {
    let left = match recovery::note_poison(&all, why).await {
        Ok(()) => renew::<BITS>(all, None).await,
        lost => lost,
    };
    recovery::retract(all.memory, all.context).and(left)
}

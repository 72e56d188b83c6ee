//! The test-and-set lock.
//!
//! ```text
//! acquire    until compare-swap(home, 0, me) finds 0: pause, twice as long each time
//! release    write(home, 0)                 on cards: compare-swap(home, me, 0)
//!
//! shared     until compare-swap(home, n readers, n + 1 readers) succeeds: pause if an owner is there
//!            fetch-add(home, -1 reader)
//! ```

use onesided_remote_memory::{Fault, FaultKind, Link, Notify, RemoteMemory};

use crate::backoff::Pauses;
use crate::recovery::{self, ANNOUNCED, Announcement, RecoverableWord, Reopened, Suspicion, has_ended, is_cut, nonce};
use crate::two_level::ByHost;
use crate::{Backoff, Held, Intent, IntentFn, LockAlgorithm, LockContext, Mode, Owner, WaitPolicy, Words};

/// The lock of jiang-2004, section 5.1: compare-swap until the word was free, with exponential
/// backoff. The shared mode is ours.
///
/// One word: 0 is free; with bit 63 set, the lower 62 bits name the exclusive [`Owner`]; otherwise
/// it counts readers. Uncontended, an acquire is one compare-swap and a release is one write
/// (shared: one fetch-add) that need not be waited for. The lock is not fair: the next owner is the
/// first to try after the release. If the [`LockContext`] keeps a
/// [`BackoffCap`](crate::BackoffCap), the longest pause follows what the rank's last acquires
/// needed.
///
/// The exclusive release is the paper's plain write if writes are atomic with compare-swaps: while
/// the word names a live owner, every compare-swap on it fails, also a reader's, so the write loses
/// no update. If they are not ([`RemoteMemory::write_is_atomic`]: on cards), a failing compare-swap
/// may undo the write, and the release is a compare-swap from the owner to 0.
///
/// # Death
///
/// A recovering owner swaps a dead owner's word for its own. A count names no rank: a dead reader
/// is suspected when a rank has failed, no reader has released for one second since, and fewer live
/// ones are announced than the word counts; then the word is put under recovery (bit 62) until no
/// live rank reads, which the nodes tell, and taken as a free one. Only readers use their nodes.
#[derive(Clone, Copy, Debug, Default)]
pub struct TestAndSet {
    backoff: Backoff,
    checked: bool,
    lease: Option<Lease>,
}

/// The lease of an exclusive owner.
#[derive(Clone, Copy, Debug)]
struct Lease {
    nanos: u64,
    /// Whether a waiter takes the lock when the lease expires; otherwise it fails.
    takes: bool,
}

const FREE: u64 = 0;
pub(crate) const EXCLUSIVE: u64 = 1 << 63;
const RECOVERING: u64 = 1 << 62;
/// The number of readers.
const READERS: u64 = (1 << 36) - 1;
/// The nonce of a word under recovery.
const NONCE: u64 = RECOVERING - 1 - READERS;

/// How often a reader that lost only against other readers retries without a pause.
const READER_RACES: u32 = 8;

// A reader is an owner, of 24 bits of rank and 12 of slot, so the count cannot reach the bits
// above.
const _: () = assert!(Owner::BITS < 63 && READERS.count_ones() == 24 + 12);

impl TestAndSet {
    /// A lock whose waiters pause by this table.
    #[must_use]
    pub const fn new(backoff: Backoff) -> Self {
        Self { backoff, checked: false, lease: None }
    }

    /// The same lock, checked: exclusive owners release by compare-swap everywhere, and use their
    /// slots, so that no two acquires have the same owner. A release by a rank that does not hold
    /// the lock, or no longer does, fails with `NotHeld` and changes nothing. An unchecked lock
    /// relies on its guards for that.
    #[must_use]
    pub const fn checked(self) -> Self {
        Self { checked: true, ..self }
    }

    /// The same lock, [checked](Self::checked), with a lease of `nanos` nanoseconds. A waiter that
    /// has seen the same exclusive owner for longer takes the lock from it if `takes`
    /// ([`Held::recovered`] is `LeaseExpired` then), and otherwise fails with `LeaseExpired`.
    /// Readers have no lease: a count does not tell how long a reader has held the lock.
    ///
    /// The previous owner is not notified: fencing or revoked access has to keep its operations
    /// from doing harm. Its release fails.
    #[must_use]
    pub const fn leased(self, nanos: u64, takes: bool) -> Self {
        Self { checked: true, lease: Some(Lease { nanos, takes }), ..self }
    }

    /// The exclusive owner that a lock word names, if it names one.
    #[must_use]
    pub const fn owner(word: u64) -> Option<Owner> {
        if word & EXCLUSIVE == 0 { None } else { Some(Owner::from_bits(word)) }
    }

    /// Whether releases are writes here.
    #[inline(always)]
    fn writes<M: RemoteMemory>(self, memory: &M) -> bool {
        !self.checked && memory.write_is_atomic()
    }

    pub(crate) const fn pauses(&self, owner: Owner) -> Pauses<'_> {
        self.backoff.pauses(owner)
    }

    /// [`LockAlgorithm::contend`], with `hosts` if a host may hold the lock as well.
    pub(crate) async fn contend_judged<'m, M: RemoteMemory, P: LockContext<'m, M>>(
        &self,
        memory: &'m M,
        context: P,
        (word, owner): (M::Word<'m>, u64),
        (mode, first): (Mode, Result<u64, Fault>),
        intent: IntentFn<'_>,
        hosts: Option<ByHost>,
    ) -> Result<Held, Fault> {
        let pauses = self.backoff.pauses(context.owner()).within(context.backoff_cap());
        let waiter =
            Waiter { mode, pauses, races: 0, suspicion: Suspicion::default(), lease: self.lease, seen: (FREE, 0) };
        let mut announcement = Announcement::of(memory, context, mode == Mode::Shared);
        let held = waiter.acquire((memory, context, word), owner, first, intent, &mut announcement, hosts).await;
        announcement.end(held)
    }

    /// Posts the release of an exclusive owner.
    #[inline]
    pub fn release_word<'m, M: RemoteMemory>(memory: &M, words: (M::Word<'m>, u64)) -> M::Op {
        memory.post_link(release::<M>(words, Mode::Exclusive, memory.write_is_atomic()))
    }
}

/// The word after an acquire by an owner whose exclusive word is `owner`.
#[inline]
const fn taken(word: u64, mode: Mode, owner: u64) -> u64 {
    match mode {
        Mode::Exclusive => owner,
        Mode::Shared => word + 1,
    }
}

/// Announces the owner, if it is a reader.
#[inline(always)]
fn announce<'m, M: RemoteMemory>(memory: &M, context: impl LockContext<'m, M>, mode: Mode) -> Result<(), Fault> {
    if mode == Mode::Shared { recovery::announce(memory, context) } else { Ok(()) }
}

/// Retracts it.
#[inline(always)]
fn retract<'m, M: RemoteMemory>(memory: &M, context: impl LockContext<'m, M>, mode: Mode) -> Result<(), Fault> {
    if mode == Mode::Shared { recovery::retract(memory, context) } else { Ok(()) }
}

/// The slot in the word of an owner that left the lock poisoned. No owner has it.
const PANICKED: u16 = Owner::NO_SLOT - 1;

/// The word of a lock that an exclusive owner, whose own word this is, leaves poisoned.
pub(crate) fn poisoned_word(mine: u64, why: Fault) -> u64 {
    match why.rank() {
        Some(rank) if why.kind() != FaultKind::OwnerPanicked => {
            EXCLUSIVE | Owner { rank, slot: Owner::NO_SLOT, generation: 0 }.to_bits()
        }
        _ => EXCLUSIVE | Owner { slot: PANICKED, ..Owner::from_bits(mine) }.to_bits(),
    }
}

/// Swaps an owner's own word, which no other rank removes, for another one.
///
/// # Errors
/// `NotHeld` if the word was not there any more.
pub(crate) async fn hand_back<'m, M: RemoteMemory>(
    memory: &'m M,
    word: M::Word<'m>,
    mine: u64,
    new: u64,
) -> Result<(), Fault> {
    match memory.compare_swap(word, mine, new).await? {
        found if found == mine => Ok(()),
        _ => Err(Fault::new(FaultKind::NotHeld)),
    }
}

/// The fault of the owner that a word names, if it panicked, or if it died and its operations take
/// effect no more.
pub(crate) async fn ended_owner<'m, M: RemoteMemory>(
    memory: &M,
    context: impl LockContext<'m, M>,
    found: u64,
) -> Result<Option<Fault>, Fault> {
    let Owner { rank, slot, .. } = Owner::from_bits(found);
    if slot == PANICKED {
        return Ok(Some(Fault::of(FaultKind::OwnerPanicked, rank)));
    }
    let ended = has_ended(memory, context, rank) && is_cut(memory, context, rank).await?;
    Ok(ended.then(|| Fault::of(FaultKind::OwnerDied, rank)))
}

/// A word without an exclusive owner.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Readers(u64);

impl RecoverableWord for Readers {
    fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    fn to_bits(self) -> u64 {
        self.0
    }

    fn is_recovering(self) -> bool {
        self.0 & (EXCLUSIVE | RECOVERING) == RECOVERING
    }

    fn may_be_poisoned(self) -> bool {
        false
    }
}

/// The holder of a lock.
enum Holder {
    Nobody,
    Owner,
    Readers,
    /// Suspected readers; arrivals are rejected.
    Recovering,
}

const fn holder(word: u64) -> Holder {
    match word {
        FREE => Holder::Nobody,
        word if word & EXCLUSIVE != 0 => Holder::Owner,
        word if word & RECOVERING != 0 => Holder::Recovering,
        _ => Holder::Readers,
    }
}

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
            return match holder(found) {
                Holder::Nobody => Step::Take(taken(FREE, self.mode, owner), Held::cleanly(self.mode)),
                Holder::Owner => match ended {
                    Some(died) if recovers => Step::Take(owner, Held::after(died, Mode::Exclusive)),
                    Some(died) => Step::Report(died),
                    None => self.late(memory, owner, found),
                },
                Holder::Recovering | Holder::Readers => Step::Wait,
            };
        };
        if self.mode == Mode::Exclusive {
            self.suspicion.seen(found & READERS);
            return Step::Suspicion;
        }
        self.races = (self.races + 1) % READER_RACES;
        if self.races == 0 { Step::Wait } else { Step::Take(taken(found, self.mode, owner), Held::cleanly(self.mode)) }
    }
}

impl Waiter<'_> {
    /// Acquires the lock after its first operation. `announcement`: whether this owner is
    /// announced, at the end as well.
    async fn acquire<'m, M: RemoteMemory, P: LockContext<'m, M>>(
        mut self,
        (memory, context, word): (&'m M, P, M::Word<'m>),
        owner: u64,
        first: Result<u64, Fault>,
        intent: IntentFn<'_>,
        announcement: &mut Announcement<'m, M, P>,
        mut hosts: Option<ByHost>,
    ) -> Result<Held, Fault> {
        let (mode, me) = (self.mode, context.owner());
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
            let ended = match holder(found) {
                Holder::Owner => match &mut hosts {
                    Some(hosts) => hosts.ended(memory, context, found, wanted == WaitPolicy::Block).await?,
                    None => ended_owner(memory, context, found).await?,
                },
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
                Step::Recover => (found, found | RECOVERING | nonce(memory, me) & NONCE, Held::cleanly(mode)),
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

/// The single operation of a release.
#[inline(always)] // as `start_release`
fn release<'m, M: RemoteMemory>((word, owner): (M::Word<'m>, u64), mode: Mode, writes: bool) -> Link<M::Word<'m>> {
    let waited = false;
    match mode {
        Mode::Exclusive if writes => Link::Write { word, value: FREE, notify: Notify::No, waited },
        Mode::Exclusive => Link::CompareSwap { word, expected: owner, new: FREE, waited },
        Mode::Shared => Link::FetchAdd { word, add: 1_u64.wrapping_neg(), waited },
    }
}

impl LockAlgorithm for TestAndSet {
    const NAME: &'static str = "test-and-set";
    const HOME_WORDS: usize = 1;
    const NODE_WORDS: usize = ANNOUNCED + 1;

    #[inline]
    fn uses_node(&self, mode: Mode) -> bool {
        mode == Mode::Shared || self.checked
    }

    #[inline(always)] // as `start`
    fn words<'m, M: RemoteMemory>(&self, context: impl LockContext<'m, M>) -> Result<Words<'m, M>, Fault> {
        Ok((context.home(0)?, EXCLUSIVE | context.owner().to_bits()))
    }

    #[inline(always)] // a lock's words that pass through memory cost more than the lock
    fn start<'m, M: RemoteMemory>(
        &self,
        memory: &M,
        context: impl LockContext<'m, M>,
        (word, owner): Words<'m, M>,
        mode: Mode,
    ) -> Result<M::Op, Fault> {
        announce(memory, context, mode)?;
        Ok(memory.compare_swap(word, FREE, taken(FREE, mode, owner)))
    }

    #[inline]
    fn holds<M: RemoteMemory>(&self, _words: Words<'_, M>, _mode: Mode, first: u64) -> bool {
        first == FREE
    }

    async fn contend<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        context: P,
        words: Words<'m, M>,
        mode: Mode,
        first: Result<u64, Fault>,
        intent: IntentFn<'_>,
    ) -> Result<Held, Fault> {
        self.contend_judged(memory, context, words, (mode, first), intent, None).await
    }

    #[inline]
    fn releases_in_one_step<'m, M: RemoteMemory>(&self, _context: impl LockContext<'m, M>, mode: Mode) -> bool {
        mode == Mode::Exclusive && !self.checked
    }

    #[inline(always)] // a lock's words that pass through memory cost more than the lock
    fn start_release<'m, M: RemoteMemory>(
        &self,
        memory: &M,
        context: impl LockContext<'m, M>,
        words: Words<'m, M>,
        mode: Mode,
    ) -> Result<M::Op, Fault> {
        if mode == Mode::Shared && !recovery::is_announced(memory, context)? {
            return Err(Fault::new(FaultKind::NotHeld));
        }
        Ok(memory.post_link(release::<M>(words, mode, self.writes(memory))))
    }

    fn release_link<'m, M: RemoteMemory>(
        &self,
        memory: &M,
        words: Words<'m, M>,
        mode: Mode,
    ) -> Option<Link<M::Word<'m>>> {
        Some(release::<M>(words, mode, self.writes(memory)))
    }

    #[inline]
    fn released<'m, M: RemoteMemory>(
        &self,
        memory: &M,
        context: impl LockContext<'m, M>,
        (_, owner): Words<'m, M>,
        mode: Mode,
        found: u64,
    ) -> Result<bool, Fault> {
        retract(memory, context, mode)?;
        let held = match mode {
            Mode::Exclusive => self.writes(memory) || found == owner,
            Mode::Shared => matches!(holder(found), Holder::Readers | Holder::Recovering),
        };
        if held { Ok(true) } else { Err(Fault::new(FaultKind::NotHeld)) }
    }

    async fn finish_release<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        context: P,
        words: Words<'m, M>,
        mode: Mode,
        started: impl Future<Output = Result<u64, Fault>> + Send + 'm,
    ) -> Result<(), Fault> {
        match started.await {
            Ok(found) => self.released(memory, context, words, mode, found).map(|_| ()),
            Err(fault) => retract(memory, context, mode).and(Err(fault)),
        }
    }

    async fn release_poisoned<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        _place: P,
        (word, owner): Words<'m, M>,
        why: Fault,
    ) -> Result<(), Fault> {
        hand_back(memory, word, owner, poisoned_word(owner, why)).await
    }
}

//! The test-and-set lock.
//!
//! ```text
//! acquire    until compare-swap(home, 0, me) finds 0: pause, twice as long each time
//! release    write(home, 0)                 on cards: compare-swap(home, me, 0)
//!
//! shared     until compare-swap(home, n readers, n + 1 readers) succeeds: pause if an owner is there
//!            fetch-add(home, -1 reader)
//! ```
//!
//! `FREE` is 0; what a waiter makes of any other word is a [`Step`](waiter::Step).

mod lease;
mod waiter;
mod word;

use std::future::Future;

use onesided_remote_memory::{Fault, FaultKind, Link, Notify, RemoteMemory};

use self::lease::Lease;
use self::waiter::Waiter;
use self::word::{FREE, Holder, holder, taken};
pub(crate) use self::word::{hand_back, poisoned_word};
use crate::backoff::{BackoffCap, Pauses};
use crate::owner::EXCLUSIVE;
use crate::recovery::{self, ANNOUNCED};
use crate::{Backoff, Held, Intent, IntentFn, LockAlgorithm, LockContext, LockUse, Mode, Op, Owner, Rest, Words};

/// The lock of jiang-2004, section 5.1: compare-swap until the word was free, with exponential
/// backoff. The shared mode is ours.
///
/// One word: 0 is free; with bit 63 set, the lower 62 bits name the exclusive [`Owner`]; otherwise
/// it counts readers. Uncontended, an acquire is one compare-swap and a release is one write
/// (shared: one fetch-add) that need not be waited for. The lock is not fair: the next owner is the
/// first to try after the release. If the [`LockContext`] keeps a
/// [cap](crate::Kept::BackoffCap), the longest pause follows what the rank's last acquires
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
/// is suspected when a rank has died or left, no reader has released for the [suspicion
/// timeout](crate#suspicion-timeout) since, and fewer live ones are announced than the word counts;
/// then the word is put under recovery (bit 62) until no live rank reads, which the nodes tell, and
/// taken as a free one. Only readers use their nodes.
#[derive(Clone, Copy, Debug, Default)]
pub struct TestAndSet {
    backoff: Backoff,
    checked: bool,
    lease: Option<Lease>,
}

impl TestAndSet {
    /// A lock whose waiters pause by this table.
    #[must_use]
    pub const fn new(backoff: Backoff) -> Self {
        Self { backoff, checked: false, lease: None }
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

    // The functions of `LockAlgorithm` for an owner with other bits, without a copy of the use.

    #[inline(always)] // a lock's words that pass through memory cost more than the lock
    pub(crate) fn start_as<'m, P: LockContext<'m>>(&self, lock: &LockUse<'m, P>, owner: u64) -> Result<Op<P>, Fault> {
        if lock.mode == Mode::Shared {
            recovery::announce(lock.memory, lock.context)?;
        }
        Ok(lock.memory.compare_swap(lock.home, FREE, taken(FREE, lock.mode, owner)))
    }

    #[inline(always)] // as `start_as`
    pub(crate) fn start_release_as<'m, P: LockContext<'m>>(
        &self,
        lock: &LockUse<'m, P>,
        owner: u64,
    ) -> Result<Op<P>, Fault> {
        if lock.mode == Mode::Shared && !recovery::is_announced(lock.memory, lock.context)? {
            return Err(Fault::new(FaultKind::NotHeld));
        }
        Ok(lock.memory.post_link(release::<P::Memory>((lock.home, owner), lock.mode, self.writes(lock.memory))))
    }

    #[inline(always)] // as `start_as`
    pub(crate) fn released_as<'m>(
        &self,
        lock: &LockUse<'m, impl LockContext<'m>>,
        owner: u64,
        found: Option<u64>,
    ) -> Result<Rest, Fault> {
        let held = match (lock.mode, found) {
            (Mode::Exclusive, None) if !self.checked => true,
            (_, None) => return Ok(Rest::Unknown),
            (Mode::Exclusive, Some(found)) => self.writes(lock.memory) || found == owner,
            (Mode::Shared, Some(found)) => {
                recovery::retract(lock.memory, lock.context)?;
                matches!(holder(found), Holder::Readers | Holder::Recovering)
            }
        };
        if held { Ok(Rest::Nothing) } else { Err(Fault::new(FaultKind::NotHeld)) }
    }

    /// The release of an exclusive owner, which is this operation alone.
    #[inline]
    pub fn release_link<'m, M: RemoteMemory>(memory: &M, words: Words<'m, M>) -> Link<M::Word<'m>> {
        release::<M>(words, Mode::Exclusive, memory.write_is_atomic())
    }
}

/// The single operation of a release.
#[inline(always)] // as `start_release`
fn release<'m, M: RemoteMemory>((word, owner): Words<'m, M>, mode: Mode, writes: bool) -> Link<M::Word<'m>> {
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
    const NODES_ARE_OWN: bool = true;

    #[inline]
    fn uses_node(&self, mode: Mode) -> bool {
        mode == Mode::Shared || self.checked
    }

    /// The owner's bits are the word while it holds the lock exclusively.
    #[inline(always)] // as `start_as`
    fn words<'m, P: LockContext<'m>>(&self, context: P, _: Intent) -> Result<Words<'m, P::Memory>, Fault> {
        Ok((context.home(0)?, EXCLUSIVE | context.owner().to_bits()))
    }

    #[inline(always)] // as `start_as`
    fn start<'m, P: LockContext<'m>>(&self, lock: LockUse<'m, P>) -> Result<Op<P>, Fault> {
        crate::starts::count(Self::NAME);
        self.start_as(&lock, lock.owner)
    }

    #[inline]
    fn holds(&self, _owner: u64, _mode: Mode, first: u64) -> bool {
        first == FREE
    }

    fn contend<'m, P: LockContext<'m>>(
        &'m self,
        lock: LockUse<'m, P>,
        first: Result<u64, Fault>,
        intent: IntentFn<'_>,
    ) -> impl Future<Output = Result<Held, Fault>> + Send {
        let pauses = self.backoff.pauses(lock.context.owner()).within(BackoffCap::of(lock.context));
        let mut waiter = Waiter::new(lock, first, intent, pauses, self.lease.as_ref());
        async move {
            let held = waiter.acquire().await;
            waiter.announcement.end(&waiter.lock, held)
        }
    }

    #[inline(always)] // as `start_as`
    fn start_release<'m, P: LockContext<'m>>(&self, lock: LockUse<'m, P>) -> Result<Op<P>, Fault> {
        self.start_release_as(&lock, lock.owner)
    }

    #[inline(always)] // as `start_as`
    fn released<'m, P: LockContext<'m>>(&self, lock: LockUse<'m, P>, found: Option<u64>) -> Result<Rest, Fault> {
        self.released_as(&lock, lock.owner, found)
    }

    async fn finish_release<'m, P: LockContext<'m>>(
        &'m self,
        lock: LockUse<'m, P>,
        found: Result<u64, Fault>,
    ) -> Result<(), Fault> {
        match found {
            Ok(found) => self.released(lock, Some(found)).map(drop),
            Err(fault) if lock.mode == Mode::Shared => recovery::retract(lock.memory, lock.context).and(Err(fault)),
            Err(fault) => Err(fault),
        }
    }

    async fn release_poisoned<'m, P: LockContext<'m>>(&'m self, lock: LockUse<'m, P>, why: Fault) -> Result<(), Fault> {
        hand_back(&lock, lock.owner, poisoned_word(lock.owner, why)).await
    }
}

//! The MCS queue lock.
//!
//! ```text
//! acquire    before = swap(home.tail, me)          by compare-swaps: cards have no swap
//!            if before is somebody: write(before.NEXT, me), wait until my GRANT is written
//!            exclusive: wait until home.readers is 0
//!            shared:    fetch-add(home.readers, 1), release the queue at once
//! release    if my NEXT is set: write(NEXT.GRANT)
//!            else if compare-swap(home.tail, me, nobody) fails: wait until my NEXT is set, then write
//!            shared:    fetch-add(home.readers, -1)
//! ```
//!
//! `home` is the word at the home, and `NEXT` and `GRANT` are words of an owner's node. Acquire and
//! release begin in this file and end in `slow_path`.

mod home;
mod slow_path;

use onesided_remote_memory::{Fault, FaultKind, Notify, RemoteMemory};

use self::home::Home;
use self::slow_path::SlowPath;
use crate::recovery::{self, ANNOUNCED, Announcement, POISON};
use crate::{Backoff, Held, IntentFn, LockAlgorithm, LockContext, LockUse, Mode, Owner};

/// The queue lock of Mellor-Crummey and Scott (ACM TOCS 9(1), 1991) over remote memory: jiang-2004,
/// section 5.2. The shared mode is ours, in the manner of Mellor-Crummey and Scott's fair
/// reader-writer lock (PPoPP 1991).
///
/// An arriving owner swaps itself into the tail of the queue, by compare-swaps as in the paper,
/// links itself behind its predecessor, and waits on a word of its own node until the predecessor
/// writes to it: no rank polls over the network, and owners acquire the lock in the order of
/// arrival. A reader that finds the queue empty adds itself to the reader count. Otherwise it
/// queues; once it is first, it adds itself to the count and hands over immediately, so that
/// consecutive readers share the lock.
///
/// A word at the home: the tail of the queue (rank and slot) and the reader count. Three words in
/// each node. Uncontended, an acquire is one compare-swap and a release is one that need not be
/// waited for; a hand-over is one write.
///
/// A try does not queue: it succeeds only if the queue is empty.
///
/// # Death
///
/// A waiter behind a dead rank, and an owner that hands over to one, put the word under recovery.
/// So does a waiter for readers, if a rank has failed, no reader has left for one second since, and
/// fewer live readers are announced than the word counts.
/// All waiters leave then. When no live rank is announced, the next owner takes the lock if only
/// readers had died. If a rank had died in the queue, acquires that do not recover fail, the word
/// stays under recovery, and the first recovering owner holds the lock exclusively. The order starts
/// over. The same happens, without a fault, if two neighbours in the queue lose the connection to
/// each other.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mcs {
    backoff: Backoff,
}

impl Mcs {
    /// A lock whose owners pause by this table when they poll the home: between lost compare-swaps,
    /// for readers, and after a death.
    #[must_use]
    pub const fn new(backoff: Backoff) -> Self {
        Self { backoff }
    }
}

// Words of a node, beside `ANNOUNCED`.
/// The successor, which writes it: its owner's bits with [`LINKED`].
const NEXT: usize = ANNOUNCED + 1;
/// Written by the predecessor: [`GRANTED`] with this owner's generation, and [`READING`] if the
/// predecessor is a reader. Later this owner's own note, [`HANDED`].
const GRANT: usize = ANNOUNCED + 2;

const LINKED: u64 = 1 << 63;
const GRANTED: u64 = 1 << 63;
const READING: u64 = 1 << 62;
const HANDED: u64 = 1;

/// The grant to an owner.
const fn grant_to(next: Owner, from: Mode) -> u64 {
    let reading = match from {
        Mode::Exclusive => 0,
        Mode::Shared => READING,
    };
    GRANTED | reading | next.generation as u64
}

/// Resets the node to that of an owner that was never queued. No other rank writes to it any more.
fn clean<'m, M: RemoteMemory>(memory: &M, context: impl LockContext<'m, M>) -> Result<(), Fault> {
    memory.store(context.node(NEXT)?, 0)?;
    memory.store(context.node(GRANT)?, 0)
}

/// Resets the node and retracts the owner.
#[inline(never)] // as `hand_over_at_once`
fn leave<'m, M: RemoteMemory>(memory: &M, context: impl LockContext<'m, M>) -> Result<(), Fault> {
    clean(memory, context)?;
    recovery::retract(memory, context)
}

/// Posts the write that hands the lock over to the successor of an exclusive owner, if its node can
/// be reached.
#[inline(never)] // keeps a release without a successor small
fn hand_over_at_once<'m, M: RemoteMemory>(
    memory: &M,
    context: impl LockContext<'m, M>,
    next: Owner,
) -> Result<Option<M::Op>, Fault> {
    let Ok(grant) = context.node_of(next.rank, next.slot, GRANT) else { return Ok(None) };
    let handed = memory.write(grant, grant_to(next, Mode::Exclusive), Notify::Yes);
    memory.store(context.node(GRANT)?, HANDED)?; // behind the word that the next owner waits for
    Ok(Some(handed))
}

impl LockAlgorithm for Mcs {
    const NAME: &'static str = "mcs";
    const HOME_WORDS: usize = POISON + 1;
    const NODE_WORDS: usize = GRANT + 1;

    #[inline(always)] // a lock's words that pass through memory cost a third of the lock
    fn start<'m, M: RemoteMemory>(&self, lock: LockUse<'m, M, impl LockContext<'m, M>>) -> Result<M::Op, Fault> {
        recovery::announce(lock.memory, lock.context)?;
        Ok(lock.memory.compare_swap(lock.home, Home::FREE.0, Home::taken(lock.me(), lock.mode).0))
    }

    #[inline]
    fn holds(&self, _owner: u64, _mode: Mode, first: u64) -> bool {
        first == Home::FREE.0
    }

    async fn contend<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        lock: LockUse<'m, M, P>,
        first: Result<u64, Fault>,
        intent: IntentFn<'_>,
    ) -> Result<Held, Fault> {
        let mut announcement = Announcement::of(lock.memory, lock.context, true);
        let held = SlowPath(lock).acquire(first, self.backoff.pauses(lock.me()), intent, &mut announcement).await;
        announcement.end(held)
    }

    #[inline(always)] // a call, for which the context goes through memory, is a tenth of an uncontended lock
    fn start_release<'m, M: RemoteMemory>(
        &self,
        lock: LockUse<'m, M, impl LockContext<'m, M>>,
    ) -> Result<M::Op, Fault> {
        let LockUse { memory, context, home, .. } = lock;
        if !recovery::is_announced(memory, context)? {
            return Err(Fault::new(FaultKind::NotHeld));
        }
        if lock.mode == Mode::Shared {
            return Ok(memory.fetch_add(home, Home::READER.wrapping_neg()));
        }
        let next = memory.load(lock.node(NEXT)?)?;
        // An owner that has lost the home hands nothing over: what it did there may be missing.
        if next != 0
            && !memory.has_failed(context.home_rank(), lock.me().rank)
            && let Some(handed) = hand_over_at_once(memory, context, Owner::from_bits(next))?
        {
            return Ok(handed);
        }
        Ok(memory.compare_swap(home, Home::FREE.behind(lock.me()).0, Home::FREE.0))
    }

    #[inline(always)] // as `start_release`
    fn released<'m, M: RemoteMemory>(
        &self,
        lock: LockUse<'m, M, impl LockContext<'m, M>>,
        found: u64,
    ) -> Result<bool, Fault> {
        let LockUse { memory, context, mode, .. } = lock;
        if mode == Mode::Exclusive {
            let granted = memory.load(lock.node(GRANT)?)?;
            if granted != HANDED && Home(found) != Home::FREE.behind(lock.me()) {
                return Ok(false);
            }
            if granted != 0 {
                return leave(memory, context).map(|()| true);
            }
        }
        recovery::retract(memory, context)?;
        if mode == Mode::Exclusive || Home(found).has_readers() {
            Ok(true)
        } else {
            Err(Fault::new(FaultKind::NotHeld))
        }
    }

    async fn finish_release<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        lock: LockUse<'m, M, P>,
        found: Result<u64, Fault>,
    ) -> Result<(), Fault> {
        let LockUse { memory, context, mode, .. } = lock;
        let left = match found {
            Ok(found) if self.released(lock, found)? => return Ok(()),
            Ok(found) => SlowPath(lock).hand_over(Home(found), mode, true).await,
            Err(fault) if mode == Mode::Exclusive && memory.load(lock.node(GRANT)?)? == HANDED => {
                let next = Owner::from_bits(memory.load(lock.node(NEXT)?)?);
                SlowPath(lock).handed(next, Err(fault)).await
            }
            Err(fault) => return recovery::retract(memory, context).and(Err(fault)),
        };
        leave(memory, context).and(left)
    }

    /// All owners in the queue leave, as if this owner had died there.
    async fn release_poisoned<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        lock: LockUse<'m, M, P>,
        why: Fault,
    ) -> Result<(), Fault> {
        let left = match recovery::note_poison(lock.memory, lock.context, why).await {
            Ok(()) => SlowPath(lock).give_up_queue().await,
            lost => lost,
        };
        leave(lock.memory, lock.context).and(left)
    }

    /// For the release that finds a successor.
    #[inline]
    fn release_waits<'m, M: RemoteMemory>(&self, lock: LockUse<'m, M, impl LockContext<'m, M>>) -> Option<bool> {
        if lock.mode == Mode::Shared {
            return None;
        }
        lock.memory.load(lock.node(NEXT).ok()?).ok().map(|next| next == 0)
    }
}

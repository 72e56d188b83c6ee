//! Recovery: how a lock is restored after a death that its words do not show.
//!
//! Each owner announces itself: its node names the lock from before its first operation until its
//! last one is complete. A waiter that suspects a dead holder puts the lock *under recovery*: a bit
//! in its word, which rejects new arrivals. Live holders go on and release, waiters leave. When no
//! live rank is announced, only dead owners are left in the word, and the first rank that swaps its
//! own word for the word under recovery holds the lock. No rank leads a recovery, so the death of a
//! recovering rank does not matter.
//!
//! An owner without a node is announced in the [participant count](LockContext::participant_count)
//! of its rank, for every lock at once: recovery waits for it even if it holds another lock. Its
//! own rank [can tell the locks apart](LockContext::without_slot), and does not wait for itself.
//! Two ranks that hold locks without a slot and wait for one under recovery may wait for each
//! other; both fail with `Deadlock`.
//!
//! A rank that scanned the participants, was stopped, and swaps late must fail: meanwhile the lock
//! may have been taken, released, and put under recovery again. So no two recoveries may use the
//! same word: a nonce ([`stamp`]) or the counts in the word distinguish them.

use onesided_remote_memory::{Fault, FaultKind, Liveness, Rank, RemoteMemory};

use crate::backoff::mixed;
use crate::{LockContext, Owner};

/// The word of a node that names the lock for which its owner is announced.
pub(crate) const COUNTS: usize = 0;

/// The value of [`COUNTS`] for a lock; 0 is none.
pub(crate) const fn counts_for(lock: u64) -> u64 {
    lock + 1
}

/// Announces the owner.
#[inline(always)] // a call here is a tenth of an uncontended lock
pub(crate) fn count<'m, M: RemoteMemory>(memory: &M, context: impl LockContext<'m, M>) -> Result<(), Fault> {
    match context.has_node() {
        true => memory.store(context.node(COUNTS)?, counts_for(context.lock())),
        false => count_without_node(context, true),
    }
}

/// Retracts the owner.
#[inline(always)] // as `count`
pub(crate) fn discount<'m, M: RemoteMemory>(memory: &M, context: impl LockContext<'m, M>) -> Result<(), Fault> {
    match context.has_node() {
        true => memory.store(context.node(COUNTS)?, 0),
        false => count_without_node(context, false),
    }
}

#[inline(never)]
fn count_without_node<'m, M: RemoteMemory>(context: impl LockContext<'m, M>, counts: bool) -> Result<(), Fault> {
    if context.slots() == 0 { Ok(()) } else { context.announce_without_slot(counts) }
}

/// Whether the owner is announced. Assumed of an owner without a node.
#[inline(always)] // as `count`
pub(crate) fn counts<'m, M: RemoteMemory>(memory: &M, context: impl LockContext<'m, M>) -> Result<bool, Fault> {
    Ok(!context.has_node() || memory.load(context.node(COUNTS)?)? == counts_for(context.lock()))
}

/// Whether an owner is announced, tracked during its acquire: announced once, and retracted if the
/// acquire fails.
pub(crate) struct Count<'m, M, P> {
    memory: &'m M,
    context: P,
    counts: bool,
    /// Whether the owner is to be announced at all.
    may: bool,
}

impl<'m, M: RemoteMemory, P: LockContext<'m, M>> Count<'m, M, P> {
    /// For an owner that was announced when its acquire started, or that need not be.
    pub(crate) const fn of(memory: &'m M, context: P, counts: bool) -> Self {
        Self { memory, context, counts, may: counts }
    }

    pub(crate) const fn counts(&self) -> bool {
        self.counts
    }

    /// Announces the owner, if it is not announced.
    pub(crate) fn begin(&mut self) -> Result<(), Fault> {
        if !std::mem::replace(&mut self.counts, self.may) && self.may {
            count(self.memory, self.context)
        } else {
            Ok(())
        }
    }

    /// Retracts the owner, if it is announced.
    pub(crate) fn end(&mut self) -> Result<(), Fault> {
        if std::mem::take(&mut self.counts) { discount(self.memory, self.context) } else { Ok(()) }
    }

    /// Ends an acquire: retracts the owner if it failed.
    pub(crate) fn after<T>(mut self, outcome: Result<T, Fault>) -> Result<T, Fault> {
        if outcome.is_err() {
            self.end()?;
        }
        outcome
    }
}

/// The suspicion timeout: how long a waiter expects participants to release after it saw that a
/// rank had died, in nanoseconds.
const MEMBERS_PATIENCE: u64 = 1_000_000_000;

/// The suspicion of participants, readers mostly, that may be dead: a count names no rank.
#[derive(Debug, Default)]
pub(crate) struct Doubt {
    since: Option<u64>,
    members: u64,
}

impl Doubt {
    /// Records the current number of participants. If it fell, the timeout starts again.
    pub(crate) const fn seen(&mut self, members: u64) {
        if members < self.members {
            self.since = None;
        }
        self.members = members;
    }

    /// A rank that died, if the timeout has passed since.
    pub(crate) fn of_members<M: RemoteMemory>(&mut self, memory: &M) -> Option<Rank> {
        let dead = memory.failed_rank()?;
        self.lasts(memory).then_some(dead)
    }

    /// Whether the timeout has passed since the first call.
    pub(crate) fn lasts<M: RemoteMemory>(&mut self, memory: &M) -> bool {
        let now = memory.now();
        now.saturating_sub(*self.since.get_or_insert(now)) >= MEMBERS_PATIENCE
    }
}

/// A nonce that distinguishes a recovery of a word from every other one, with high probability. An
/// algorithm takes as many bits as fit.
pub(crate) fn stamp<M: RemoteMemory>(memory: &M, owner: Owner) -> u64 {
    mixed(owner.to_bits() ^ memory.now().rotate_left(Owner::BITS))
}

/// Whether no live rank is announced for the lock, this owner aside. The answer holds for a lock
/// under recovery whose word has not changed since before the scan: an owner that is announced
/// later has changed it.
pub(crate) async fn nobody_counts<'m, M: RemoteMemory>(memory: &M, context: impl LockContext<'m, M>) -> bool {
    matches!(census(memory, context).await, Census::Nobody)
}

/// Whether no live rank's owner is announced in a node for the lock, this one aside. Then no rank
/// writes to this owner's node any more. Owners without a node do not matter, because they link
/// themselves behind no one.
pub(crate) async fn no_node_counts<'m, M: RemoteMemory>(memory: &M, context: impl LockContext<'m, M>) -> bool {
    matches!(census(memory, context).await, Census::Nobody | Census::Tallied(_))
}

/// The participant scan of a waiter of a lock under recovery, which is not announced itself.
#[derive(Debug, Default)]
pub(crate) struct Asks {
    /// Since when only owners without a slot, which may be of other locks, block the recovery,
    /// while this rank has such owners too.
    entangled: Option<u64>,
}

impl Asks {
    /// As [`nobody_counts`].
    ///
    /// # Errors
    /// `Deadlock` with a rank that has had owners without a slot for one second, as this rank has
    /// for other locks: each may wait for the other.
    pub(crate) async fn nobody_counts<'m, M: RemoteMemory>(
        &mut self,
        memory: &M,
        context: impl LockContext<'m, M>,
    ) -> Result<bool, Fault> {
        let entangled = match census(memory, context).await {
            Census::Nobody => return Ok(true),
            Census::Tallied(rank) if context.without_slot().is_some_and(|own| own.elsewhere > 0) => Some(rank),
            Census::Tallied(_) | Census::Somebody => None,
        };
        let Some(rank) = entangled else {
            self.entangled = None;
            return Ok(false);
        };
        let now = memory.now();
        match now.saturating_sub(*self.entangled.get_or_insert(now)) >= MEMBERS_PATIENCE {
            true => Err(Fault::of(FaultKind::Deadlock, rank)),
            false => Ok(false),
        }
    }
}

/// The result of a participant scan.
enum Census {
    Nobody,
    /// None with a slot, but the named rank has owners without one.
    Tallied(Rank),
    Somebody,
}

async fn census<'m, M: RemoteMemory>(memory: &M, context: impl LockContext<'m, M>) -> Census {
    let Owner { rank: me, slot: mine, .. } = context.owner();
    let mut tallied = None;
    for rank in (0..memory.size()).map(Rank).filter(|rank| context.may_participate(*rank)) {
        let slots = match in_use(memory, context, rank).await {
            Ok((slots, 0)) => slots,
            Ok((slots, _)) => {
                tallied = Some(rank);
                slots
            }
            Err(End::HasNone) => continue,
            Err(End::Counts) => return Census::Somebody,
        };
        for slot in (0..slots).filter(|slot| (rank, *slot) != (me, mine)) {
            match look(memory, rank, context.node_of(rank, slot, COUNTS)).await {
                Ok(found) if found == counts_for(context.lock()) => return Census::Somebody,
                Ok(_) => {}
                Err(End::HasNone) => break,
                Err(End::Counts) => return Census::Somebody,
            }
        }
    }
    tallied.map_or(Census::Nobody, Census::Tallied)
}

/// Whether a rank is alive and none of its nodes has this value.
pub(crate) async fn nobody_says<'m, M: RemoteMemory>(
    memory: &M,
    context: impl LockContext<'m, M>,
    rank: Rank,
    what: u64,
) -> bool {
    let slots = match in_use(memory, context, rank).await {
        Ok((slots, _)) => slots,
        Err(_) => return false,
    };
    for slot in 0..slots {
        match look(memory, rank, context.node_of(rank, slot, COUNTS)).await {
            Ok(found) if found == what => return false,
            Ok(_) => {}
            Err(_) => return false,
        }
    }
    true
}

/// Whether a rank is not alive, or its nodes are gone.
pub(crate) async fn has_gone<'m, M: RemoteMemory>(memory: &M, context: impl LockContext<'m, M>, rank: Rank) -> bool {
    matches!(look(memory, rank, context.node_of(rank, 0, COUNTS)).await, Err(End::HasNone))
}

/// Why the scan of a rank's nodes ends.
enum End {
    /// The rank is not alive, or has freed the nodes.
    HasNone,
    /// It may be announced.
    Counts,
}

/// A bound on the slots of a rank in use, and the number of its announced owners without one, of
/// any lock.
async fn in_use<'m, M: RemoteMemory>(
    memory: &M,
    context: impl LockContext<'m, M>,
    rank: Rank,
) -> Result<(u16, u64), End> {
    if memory.liveness(rank) != Liveness::Alive {
        return Err(End::HasNone);
    }
    let tally = match context.participant_count(rank) {
        Ok(None) => return Ok((context.slots(), 0)),
        Ok(Some(tally)) => look(memory, rank, Ok(tally)).await?,
        Err(fault) => look(memory, rank, Err(fault)).await?,
    };
    let without = match context.without_slot() {
        _ if context.only_nodes_participate() => 0,
        Some(own) if rank == memory.rank() => own.here.into(),
        _ => tally >> 32,
    };
    Ok((context.slots().min(tally as u16), without))
}

async fn look<'m, M: RemoteMemory>(memory: &M, rank: Rank, word: Result<M::Word<'m>, Fault>) -> Result<u64, End> {
    if memory.liveness(rank) != Liveness::Alive {
        return Err(End::HasNone);
    }
    let found = match word {
        Ok(word) => memory.read(word).await,
        Err(fault) => Err(fault),
    };
    found.map_err(|fault| match fault.kind() {
        FaultKind::NoSuchRegion => End::HasNone,
        _ if memory.liveness(rank) != Liveness::Alive => End::HasNone,
        _ => End::Counts, // its end is not known here yet
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announcements_of_locks_differ_from_idle() {
        assert_eq!([0, 1, 7, (1 << 63) - 1].map(counts_for), [1, 2, 8, 1 << 63]);
    }

    #[test]
    fn a_release_restarts_the_suspicion_timeout() {
        let mut doubt = Doubt::default();
        doubt.seen(2);
        doubt.since = Some(5);
        for (members, since) in [(2, Some(5)), (3, Some(5)), (2, None)] {
            doubt.seen(members);
            assert_eq!(doubt.since, since, "{members}");
        }
        doubt.since = Some(7);
        doubt.seen(2);
        assert_eq!(doubt.since, Some(7));
    }
}

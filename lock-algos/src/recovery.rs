//! Recovery: how a lock is restored after a death that its words do not show.
//!
//! Each owner announces itself: its node names the lock from before its first operation until its
//! last one is complete. A word that counts its holders names none of them. So a waiter that has
//! waited for long since a rank failed counts the live owners that are announced, and *suspects* a
//! dead holder if these are fewer than the word counts ([`Suspicion`]). Then it puts the lock
//! *under recovery*: a bit in its word, which rejects new arrivals. Live holders go on and release,
//! waiters leave. When no live rank is announced, only dead owners are left in the word, and the
//! first rank that swaps its own word for the word under recovery holds the lock. No rank leads a
//! recovery, so the death of a recovering rank does not matter.
//!
//! # Ranks that are believed dead
//!
//! A rank whose host falls silent counts as dead, and may live on; a rank whose connection to the
//! home is lost does live. Each live rank cuts it, which ends its access to that rank's memory, but
//! not all at the same time. So a lock is taken from a failed rank only when the home has cut it,
//! and, where nodes are written by others or counts name no rank, every live rank that may
//! participate.
//!
//! # Operations that fail
//!
//! An operation whose outcome is unknown costs its rank the connection to the memory concerned
//! ([`RemoteMemory`]). If that is the home, the rank has failed there: its acquire or release ends
//! with the fault, and the others recover the lock as after its death. If it is another rank's node
//! or counter, the rank puts the lock under recovery where the others might wait for it.
//!
//! # Late ranks
//!
//! A rank that scanned the participants, was stopped, and swaps late must fail: meanwhile the lock
//! may have been taken, released, and put under recovery again. So no two recoveries may use the
//! same word: a nonce ([`nonce`]) or the counts in the word distinguish them.

use onesided_remote_memory::{Fault, FaultKind, Liveness, Rank, RemoteMemory};

use crate::backoff::mixed;
use crate::{LockContext, Owner};

/// The word of a node that names the lock for which its owner is announced.
pub(crate) const ANNOUNCED: usize = 0;

/// The value of [`ANNOUNCED`] for a lock; 0 is none. The two highest bits are left to flags.
pub(crate) const fn announcement_of(lock: u64) -> u64 {
    lock + 1
}

/// Beside the lock in [`ANNOUNCED`]: the owner waits, and the word does not count it.
const WAITS: u64 = 1 << 62;

/// Announces the owner.
#[inline(always)] // a call here is a tenth of an uncontended lock
pub(crate) fn announce<'m, M: RemoteMemory>(memory: &M, context: impl LockContext<'m, M>) -> Result<(), Fault> {
    memory.store(context.node(ANNOUNCED)?, announcement_of(context.lock()))
}

/// The same for an owner that waits without being counted in the word.
pub(crate) fn announce_waiting<'m, M: RemoteMemory>(memory: &M, context: impl LockContext<'m, M>) -> Result<(), Fault> {
    memory.store(context.node(ANNOUNCED)?, WAITS | announcement_of(context.lock()))
}

/// Retracts the owner.
#[inline(always)] // as `announce`
pub(crate) fn retract<'m, M: RemoteMemory>(memory: &M, context: impl LockContext<'m, M>) -> Result<(), Fault> {
    memory.store(context.node(ANNOUNCED)?, 0)
}

/// Whether the owner is announced.
#[inline(always)] // as `announce`
pub(crate) fn is_announced<'m, M: RemoteMemory>(memory: &M, context: impl LockContext<'m, M>) -> Result<bool, Fault> {
    Ok(memory.load(context.node(ANNOUNCED)?)? == announcement_of(context.lock()))
}

/// Whether an owner is announced, tracked during its acquire: announced once, and retracted if the
/// acquire fails.
pub(crate) struct Announcement<'m, M, P> {
    memory: &'m M,
    context: P,
    is_announced: bool,
    /// Whether the owner is to be announced at all.
    may: bool,
}

impl<'m, M: RemoteMemory, P: LockContext<'m, M>> Announcement<'m, M, P> {
    /// For an owner that was announced when its acquire started, or that need not be.
    pub(crate) const fn of(memory: &'m M, context: P, is_announced: bool) -> Self {
        Self { memory, context, is_announced, may: is_announced }
    }

    pub(crate) const fn is_announced(&self) -> bool {
        self.is_announced
    }

    /// Announces the owner, if it is not announced.
    pub(crate) fn announce(&mut self) -> Result<(), Fault> {
        if !std::mem::replace(&mut self.is_announced, self.may) && self.may {
            announce(self.memory, self.context)
        } else {
            Ok(())
        }
    }

    /// Retracts the owner, if it is announced.
    pub(crate) fn retract(&mut self) -> Result<(), Fault> {
        if std::mem::take(&mut self.is_announced) { retract(self.memory, self.context) } else { Ok(()) }
    }

    /// Ends an acquire: retracts the owner if it failed.
    pub(crate) fn end<T>(mut self, outcome: Result<T, Fault>) -> Result<T, Fault> {
        if outcome.is_err() {
            self.retract()?;
        }
        outcome
    }
}

/// The poll interval of a waiter, in nanoseconds.
pub(crate) const POLL_INTERVAL: u64 = 10_000_000;

/// The suspicion timeout: how long a waiter expects participants to release after it saw that a
/// rank had failed, in nanoseconds. It doubles while live owners explain the word.
const MEMBERS_PATIENCE: u64 = 1_000_000_000;
const MOST_PATIENCE: u64 = 8_000_000_000;

/// The suspicion of participants that may be dead: a count names no rank.
#[derive(Debug)]
pub(crate) struct Suspicion {
    since: Option<u64>,
    patience: u64,
    members: u64,
}

impl Default for Suspicion {
    fn default() -> Self {
        Self { since: None, patience: MEMBERS_PATIENCE, members: 0 }
    }
}

impl Suspicion {
    /// Records the current number of participants. If it fell, the timeout starts again.
    pub(crate) const fn seen(&mut self, members: u64) {
        if members < self.members {
            self.since = None;
            self.patience = MEMBERS_PATIENCE;
        }
        self.members = members;
    }

    /// Whether a rank has failed, the timeout has passed since, and fewer live owners are announced
    /// than the lock's word has `counted`, this owner aside. Only for a word that has not changed
    /// since before the call: an owner that arrives meanwhile changes it.
    pub(crate) async fn suspects<'m, M: RemoteMemory>(
        &mut self,
        memory: &M,
        context: impl LockContext<'m, M>,
        counted: u64,
    ) -> bool {
        if memory.failed_at(context.home_rank()).is_none() || !self.lasts(memory) {
            return false;
        }
        if announced(memory, context).await.is_some_and(|announced| announced < counted) {
            return true;
        }
        self.since = Some(memory.now());
        self.patience = MOST_PATIENCE.min(2 * self.patience);
        false
    }

    /// Whether the timeout has passed since the first call.
    fn lasts<M: RemoteMemory>(&mut self, memory: &M) -> bool {
        let now = memory.now();
        now.saturating_sub(*self.since.get_or_insert(now)) >= self.patience
    }
}

/// A nonce that distinguishes a recovery of a word from every other one, with high probability. An
/// algorithm takes as many bits as fit.
pub(crate) fn nonce<M: RemoteMemory>(memory: &M, owner: Owner) -> u64 {
    mixed(owner.to_bits() ^ memory.now().rotate_left(Owner::BITS))
}

/// Whether a rank has ended as a user of the lock's home: it is dead, has left, or its connection
/// to the home is lost.
pub(crate) fn has_ended<'m, M: RemoteMemory>(memory: &M, context: impl LockContext<'m, M>, rank: Rank) -> bool {
    memory.liveness(rank) != Liveness::Alive || memory.has_failed(context.home_rank(), rank)
}

/// Fails, and retracts the owner, if this rank has lost the connection to the lock's home: what it
/// did under the lock may be missing there, so it must not hand the lock over.
#[inline]
pub(crate) fn check_home<'m, M: RemoteMemory>(memory: &M, context: impl LockContext<'m, M>) -> Result<(), Fault> {
    let home = context.home_rank();
    if !memory.has_failed(home, context.owner().rank) {
        return Ok(());
    }
    retract(memory, context).and(Err(Fault::of(FaultKind::ConnectionLost, home)))
}

/// Whether this fault says that the connection to the target is lost.
pub(crate) const fn is_lost(fault: Fault) -> bool {
    matches!(fault.kind(), FaultKind::Unknown | FaultKind::ConnectionLost)
}

/// Whether the lock's home has cut a failed rank: none of its operations there takes effect any
/// more.
pub(crate) async fn is_cut<'m, M: RemoteMemory>(memory: &M, context: impl LockContext<'m, M>, rank: Rank) -> bool {
    memory.has_cut(context.home_rank(), rank).await == Ok(true)
}

/// The same of all ranks that failed at the home, of those that it `concerns`.
pub(crate) async fn are_cut<'m, M: RemoteMemory>(
    memory: &M,
    context: impl LockContext<'m, M>,
    concerns: impl Fn(Rank) -> bool + Send,
) -> bool {
    for rank in failed_at_home(memory, context).filter(|rank| concerns(*rank)) {
        if !is_cut(memory, context, rank).await {
            return false;
        }
    }
    true
}

/// Whether every live rank that may participate has cut every one that died, and the ranks of lost
/// connections have cut each other.
async fn all_have_cut<'m, M: RemoteMemory>(memory: &M, context: impl LockContext<'m, M>) -> bool {
    let participate = |rank: &Rank| context.may_participate(*rank);
    for dead in dead_ranks(memory).filter(participate) {
        for rank in (0..memory.size()).map(Rank).filter(participate) {
            if memory.liveness(rank) == Liveness::Alive && memory.has_cut(rank, dead).await != Ok(true) {
                return false;
            }
        }
    }
    for rank in (0..memory.size()).map(Rank).filter(participate) {
        // This rank cannot ask one that it has lost.
        for lost in lost_by(memory, rank).filter(|lost| *lost != memory.rank()) {
            if memory.has_cut(rank, lost).await != Ok(true) {
                return false;
            }
        }
    }
    true
}

/// The ranks that died, and those that lost the connection to the lock's home.
fn failed_at_home<'a, 'm, M: RemoteMemory>(
    memory: &'a M,
    context: impl LockContext<'m, M> + 'a,
) -> impl Iterator<Item = Rank> + 'a {
    dead_ranks(memory).chain(lost_by(memory, context.home_rank()))
}

fn dead_ranks<M: RemoteMemory>(memory: &M) -> impl Iterator<Item = Rank> + '_ {
    (0..memory.failures()).filter_map(|index| memory.failure(index))
}

/// The ranks whose connection to this one is lost.
fn lost_by<M: RemoteMemory>(memory: &M, rank: Rank) -> impl Iterator<Item = Rank> + '_ {
    let next = move |lost: &Rank| memory.lost_connection(rank, Rank(lost.0 + 1));
    std::iter::successors(memory.lost_connection(rank, Rank(0)), next)
}

/// Whether no live rank is announced for the lock, this owner aside, and no failed one can change
/// its words any more. The answer holds for a lock under recovery whose word has not changed since
/// before the scan: an owner that is announced later has changed it.
///
/// # Errors
/// The connection to a participant is lost: this rank cannot tell.
pub(crate) async fn none_announced<'m, M: RemoteMemory>(
    memory: &M,
    context: impl LockContext<'m, M>,
) -> Result<bool, Fault> {
    let is_announced = |found: u64| found & !WAITS == announcement_of(context.lock());
    for rank in (0..memory.size()).map(Rank).filter(|rank| context.may_participate(*rank)) {
        match announced_at(memory, context, rank, is_announced, 1).await {
            Ok(0) | Err(End::HasNone) => {}
            Ok(_) | Err(End::MayBe) => return Ok(false),
            Err(End::Lost(fault)) => return Err(fault),
        }
    }
    Ok(all_have_cut(memory, context).await)
}

/// How many live owners are announced that the lock's word may count, this owner aside. `None` if a
/// rank does not tell.
async fn announced<'m, M: RemoteMemory>(memory: &M, context: impl LockContext<'m, M>) -> Option<u64> {
    let mut all = 0;
    for rank in (0..memory.size()).map(Rank).filter(|rank| context.may_participate(*rank)) {
        match announced_at(memory, context, rank, |found| found == announcement_of(context.lock()), u64::MAX).await {
            Ok(there) => all += there,
            Err(End::HasNone) => {}
            Err(_) => return None,
        }
    }
    Some(all)
}

/// How many nodes of a rank have such a value, at most `enough`, this owner's aside.
async fn announced_at<'m, M: RemoteMemory>(
    memory: &M,
    context: impl LockContext<'m, M>,
    rank: Rank,
    is_announced: impl Fn(u64) -> bool + Send,
    enough: u64,
) -> Result<u64, End> {
    let Owner { rank: me, slot: mine, .. } = context.owner();
    let mut all = 0;
    for slot in (0..in_use(memory, context, rank).await?).filter(|slot| (rank, *slot) != (me, mine)) {
        all += u64::from(is_announced(look(memory, rank, context.node_of(rank, slot, ANNOUNCED)).await?));
        if all >= enough {
            break;
        }
    }
    Ok(all)
}

/// A rank that failed at the home and is announced for the lock, or else the first that failed
/// there: the memory of the dead may be gone.
pub(crate) async fn failed_holder<'m, M: RemoteMemory>(memory: &M, context: impl LockContext<'m, M>) -> Option<Rank> {
    let first = memory.failed_at(context.home_rank())?;
    for rank in failed_at_home(memory, context).filter(|rank| context.may_participate(*rank)) {
        for slot in 0..context.slots() {
            let Ok(node) = context.node_of(rank, slot, ANNOUNCED) else { break };
            match memory.read(node).await {
                Ok(found) if found == announcement_of(context.lock()) => return Some(rank),
                Ok(_) => {}
                Err(_) => break,
            }
        }
    }
    Some(first)
}

/// Whether a rank is not alive, or its nodes are gone.
pub(crate) async fn has_gone<'m, M: RemoteMemory>(memory: &M, context: impl LockContext<'m, M>, rank: Rank) -> bool {
    matches!(look(memory, rank, context.node_of(rank, 0, ANNOUNCED)).await, Err(End::HasNone))
}

/// Why the scan of a rank's nodes ends.
enum End {
    /// The rank is not alive, or has freed the nodes.
    HasNone,
    /// It may be announced.
    MayBe,
    /// The connection to it is lost.
    Lost(Fault),
}

/// A bound on the slots of a rank in use.
async fn in_use<'m, M: RemoteMemory>(memory: &M, context: impl LockContext<'m, M>, rank: Rank) -> Result<u16, End> {
    if memory.liveness(rank) != Liveness::Alive {
        return Err(End::HasNone);
    }
    let in_use = match context.slots_in_use(rank) {
        Ok(None) => return Ok(context.slots()),
        Ok(Some(in_use)) => look(memory, rank, Ok(in_use)).await?,
        Err(fault) => look(memory, rank, Err(fault)).await?,
    };
    Ok(context.slots().min(in_use as u16))
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
        _ if is_lost(fault) => End::Lost(fault),
        _ if memory.liveness(rank) != Liveness::Alive => End::HasNone,
        _ => End::MayBe, // its end is not known here yet
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announcements_of_locks_differ_from_idle() {
        assert_eq!([0, 1, 7, (1 << 62) - 2].map(announcement_of), [1, 2, 8, WAITS - 1]);
    }

    #[test]
    fn a_release_restarts_the_suspicion_timeout() {
        let mut suspicion = Suspicion::default();
        suspicion.seen(2);
        suspicion.since = Some(5);
        for (members, since) in [(2, Some(5)), (3, Some(5)), (2, None)] {
            suspicion.seen(members);
            assert_eq!(suspicion.since, since, "{members}");
        }
        suspicion.since = Some(7);
        suspicion.seen(2);
        assert_eq!(suspicion.since, Some(7));
    }
}

//! The scan of the participants: who is announced for a lock, who has failed, and who is cut.

use onesided_remote_memory::{Fault, FaultKind, Liveness, Rank, RemoteMemory};

use super::Boxed;
use super::announcement::{ANNOUNCED, WAITS, announcement_of};
use crate::{LockContext, Owner};

/// Whether a rank has ended as a user of the lock's home: it is dead, has left, or its connection
/// to the home is lost.
pub(crate) fn has_ended<'m, M: RemoteMemory>(memory: &M, context: impl LockContext<'m, M>, rank: Rank) -> bool {
    memory.liveness(rank) != Liveness::Alive || memory.has_failed(context.home_rank(), rank)
}

/// Whether this fault says that the connection to the target is lost.
pub(crate) const fn is_lost(fault: Fault) -> bool {
    matches!(fault.kind(), FaultKind::Unknown | FaultKind::ConnectionLost)
}

/// Whether `home` has cut a failed rank. Fails only if this rank has lost `home`.
async fn has_cut<M: RemoteMemory>(memory: &M, home: Rank, failed: Rank) -> Result<bool, Fault> {
    match memory.has_cut(home, failed).await {
        Err(fault) if !is_lost(fault) => Ok(false),
        known => known,
    }
}

/// Whether the lock's home has cut a failed rank: none of its operations there takes effect any
/// more.
pub(crate) async fn is_cut<'m, M: RemoteMemory>(
    memory: &M,
    context: impl LockContext<'m, M>,
    rank: Rank,
) -> Result<bool, Fault> {
    has_cut(memory, context.home_rank(), rank).await
}

/// The same of all ranks that failed at the home, of those that it `concerns`.
pub(crate) async fn are_cut<'m, M: RemoteMemory>(
    memory: &M,
    context: impl LockContext<'m, M>,
    concerns: impl Fn(Rank) -> bool + Send,
) -> Result<bool, Fault> {
    for rank in failed_at_home(memory, context).filter(|rank| concerns(*rank)) {
        if !is_cut(memory, context, rank).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether every live rank that may participate has cut every one that died, and the ranks of lost
/// connections have cut each other. Ranks that have failed at the home do not matter.
pub(crate) async fn all_are_cut<'m, M: RemoteMemory>(
    memory: &M,
    context: impl LockContext<'m, M>,
) -> Result<bool, Fault> {
    let participants = || (0..memory.size()).map(Rank).filter(move |rank| context.may_participate(*rank));
    for rank in participants().filter(|rank| !has_ended(memory, context, *rank)) {
        let dead = dead_ranks(memory).filter(|dead| context.may_participate(*dead));
        // A rank that has lost this one cannot be asked by it.
        for failed in dead.chain(lost_by(memory, rank).filter(|lost| *lost != memory.rank())) {
            if !has_cut(memory, rank, failed).await? {
                return Ok(false);
            }
        }
    }
    are_cut(memory, context, |_| true).await
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
pub(crate) fn none_announced<'a, 'm: 'a, M: RemoteMemory>(
    memory: &'a M,
    context: impl LockContext<'m, M> + 'a,
) -> Boxed<'a, Result<bool, Fault>> {
    Box::pin(scan(memory, context))
}

async fn scan<'m, M: RemoteMemory>(memory: &M, context: impl LockContext<'m, M>) -> Result<bool, Fault> {
    let is_announced = |found: u64| found & !WAITS == announcement_of(context.lock());
    for rank in (0..memory.size()).map(Rank).filter(|rank| context.may_participate(*rank)) {
        match announced_at(memory, context, rank, is_announced, 1).await {
            Ok(0) | Err(End::HasNone) => {}
            Ok(_) | Err(End::MayBe) => return Ok(false),
            Err(End::Lost(_)) if memory.has_failed(context.home_rank(), rank) => {}
            Err(End::Lost(fault)) => return Err(fault),
        }
    }
    all_are_cut(memory, context).await
}

/// How many live owners are announced that the lock's word may count, this owner aside. `None` if a
/// rank cannot be asked.
pub(super) async fn announced<'m, M: RemoteMemory>(memory: &M, context: impl LockContext<'m, M>) -> Option<u64> {
    let mut all = 0;
    for rank in (0..memory.size()).map(Rank).filter(|rank| context.may_participate(*rank)) {
        match announced_at(memory, context, rank, |found| found == announcement_of(context.lock()), u64::MAX).await {
            Ok(there) => all += there,
            Err(End::HasNone) => {}
            Err(End::Lost(_)) if memory.has_failed(context.home_rank(), rank) => {}
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
    failed_and_announced(memory, context).await.or_else(|| memory.failed_at(context.home_rank()))
}

/// A rank that failed at the home and whose memory shows that it is announced for the lock.
pub(super) async fn failed_and_announced<'m, M: RemoteMemory>(
    memory: &M,
    context: impl LockContext<'m, M>,
) -> Option<Rank> {
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
    None
}

/// Whether a rank is not alive, or its nodes are gone.
pub(super) async fn has_gone<'m, M: RemoteMemory>(memory: &M, context: impl LockContext<'m, M>, rank: Rank) -> bool {
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

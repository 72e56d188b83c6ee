//! How a lock is set right after a death that its words cannot tell of.
//!
//! Each owner says in its node for which lock it counts, from before its first operation until its last one is complete.
//! Who doubts a lock *freezes* it: a bit in its word, which turns away everybody who comes. Those who hold it go on and
//! release, those who wait give up. When no living rank counts any more, what the words still say is of the dead alone,
//! and whoever swaps the frozen word for his own first has the lock. Nobody leads, so nobody's death in between matters.
//!
//! An owner without a node counts in its rank's [tally](LockContext::participant_count), for every lock at once: recovery waits for it even
//! where it holds another lock. Its own rank [knows better](LockContext::without_slot), and does not wait for itself. Two ranks that
//! hold locks without a slot and wait for a frozen one may wait for each other: so they end, with `Deadlock`.
//!
//! Whoever asked, was stopped, and swaps late must fail: meanwhile the lock may have been taken, released, and frozen once
//! more. So no two freezes may make the same word: each is told from the others by a [`stamp`], or by what the word counts.

use onesided_remote_memory::{Fault, FaultKind, Liveness, Rank, RemoteMemory};

use crate::backoff::mixed;
use crate::{LockContext, Owner};

/// The word of a node that names the lock for which its owner counts.
pub(crate) const COUNTS: usize = 0;

/// What [`COUNTS`] says of a lock; 0 is none.
pub(crate) const fn counts_for(lock: u64) -> u64 {
    lock + 1
}

/// Says that the owner counts from now on.
#[inline(always)] // a call here is a tenth of an uncontended lock
pub(crate) fn count<'m, M: RemoteMemory>(memory: &M, place: impl LockContext<'m, M>) -> Result<(), Fault> {
    match place.has_node() {
        true => memory.store(place.node(COUNTS)?, counts_for(place.lock())),
        false => count_without_node(place, true),
    }
}

/// Says that it does not count any more.
#[inline(always)] // as `count`
pub(crate) fn discount<'m, M: RemoteMemory>(memory: &M, place: impl LockContext<'m, M>) -> Result<(), Fault> {
    match place.has_node() {
        true => memory.store(place.node(COUNTS)?, 0),
        false => count_without_node(place, false),
    }
}

#[inline(never)]
fn count_without_node<'m, M: RemoteMemory>(place: impl LockContext<'m, M>, counts: bool) -> Result<(), Fault> {
    if place.slots() == 0 { Ok(()) } else { place.announce_without_slot(counts) }
}

/// Whether the owner counts, as far as that can be told: one without a node is believed.
#[inline(always)] // as `count`
pub(crate) fn counts<'m, M: RemoteMemory>(memory: &M, place: impl LockContext<'m, M>) -> Result<bool, Fault> {
    Ok(!place.has_node() || memory.load(place.node(COUNTS)?)? == counts_for(place.lock()))
}

/// Whether an owner counts, kept while it acquires: so that it does once, and not any more once that has failed.
pub(crate) struct Count<'m, M, P> {
    memory: &'m M,
    place: P,
    counts: bool,
    /// Whether it does at all.
    may: bool,
}

impl<'m, M: RemoteMemory, P: LockContext<'m, M>> Count<'m, M, P> {
    /// Of an owner that counts since its acquire was started; or that needs not.
    pub(crate) const fn of(memory: &'m M, place: P, counts: bool) -> Self {
        Self { memory, place, counts, may: counts }
    }

    pub(crate) const fn counts(&self) -> bool {
        self.counts
    }

    /// Says that it counts from now on, if it does not.
    pub(crate) fn begin(&mut self) -> Result<(), Fault> {
        if !std::mem::replace(&mut self.counts, self.may) && self.may { count(self.memory, self.place) } else { Ok(()) }
    }

    /// Says that it does not any more, if it does.
    pub(crate) fn end(&mut self) -> Result<(), Fault> {
        if std::mem::take(&mut self.counts) { discount(self.memory, self.place) } else { Ok(()) }
    }

    /// The end of an acquire.
    pub(crate) fn after<T>(mut self, outcome: Result<T, Fault>) -> Result<T, Fault> {
        if outcome.is_err() {
            self.end()?;
        }
        outcome
    }
}

/// For how long a waiter believes that members will release, in nanoseconds from when it saw that some rank had died.
const MEMBERS_PATIENCE: u64 = 1_000_000_000;

/// Members, readers mostly, who may be dead: a count names nobody.
#[derive(Debug, Default)]
pub(crate) struct Doubt {
    since: Option<u64>,
    members: u64,
}

impl Doubt {
    /// How many members there are now: where some have released, the others have their time anew.
    pub(crate) const fn seen(&mut self, members: u64) {
        if members < self.members {
            self.since = None;
        }
        self.members = members;
    }

    /// Who died, if the members had their time since.
    pub(crate) fn of_members<M: RemoteMemory>(&mut self, memory: &M) -> Option<Rank> {
        let dead = memory.failed_rank()?;
        self.lasts(memory).then_some(dead)
    }

    /// Whether they had it since this was asked first, whoever died.
    pub(crate) fn lasts<M: RemoteMemory>(&mut self, memory: &M) -> bool {
        let now = memory.now();
        now.saturating_sub(*self.since.get_or_insert(now)) >= MEMBERS_PATIENCE
    }
}

/// Tells a freeze of a word from every other one, but for chance. An algorithm takes as many bits as it has room for.
pub(crate) fn stamp<M: RemoteMemory>(memory: &M, owner: Owner) -> u64 {
    mixed(owner.to_bits() ^ memory.now().rotate_left(Owner::BITS))
}

/// Whether no living rank counts for the lock, this owner aside. The answer holds for a frozen lock whose word is what it
/// was before the question: who counts later has changed it.
pub(crate) async fn nobody_counts<'m, M: RemoteMemory>(memory: &M, place: impl LockContext<'m, M>) -> bool {
    matches!(census(memory, place).await, Census::Nobody)
}

/// Whether no living rank's owner counts for the lock with a node, this one aside: then nobody writes to its node any more, as
/// owners without one link themselves behind nobody. It need not wait for those, who may count for any lock.
pub(crate) async fn no_node_counts<'m, M: RemoteMemory>(memory: &M, place: impl LockContext<'m, M>) -> bool {
    matches!(census(memory, place).await, Census::Nobody | Census::Tallied(_))
}

/// The question of who waits for a frozen lock, who does not count for it himself.
#[derive(Debug, Default)]
pub(crate) struct Asks {
    /// Since when nothing but owners without a slot, who may count for other locks, keep him waiting, and he such owners.
    entangled: Option<u64>,
}

impl Asks {
    /// As [`nobody_counts`].
    ///
    /// # Errors
    /// `Deadlock` with a rank that has had owners without a slot for a second, as has this one for other locks: each may wait for
    /// the other.
    pub(crate) async fn nobody_counts<'m, M: RemoteMemory>(
        &mut self,
        memory: &M,
        place: impl LockContext<'m, M>,
    ) -> Result<bool, Fault> {
        let entangled = match census(memory, place).await {
            Census::Nobody => return Ok(true),
            Census::Tallied(rank) if place.without_slot().is_some_and(|own| own.elsewhere > 0) => Some(rank),
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

/// Who counts for a lock.
enum Census {
    Nobody,
    /// Nobody with a slot, and this rank has owners without.
    Tallied(Rank),
    Somebody,
}

async fn census<'m, M: RemoteMemory>(memory: &M, place: impl LockContext<'m, M>) -> Census {
    let Owner { rank: me, slot: mine, .. } = place.owner();
    let mut tallied = None;
    for rank in (0..memory.size()).map(Rank).filter(|rank| place.may_count(*rank)) {
        let slots = match in_use(memory, place, rank).await {
            Ok((slots, 0)) => slots,
            Ok((slots, _)) => {
                tallied = Some(rank);
                slots
            }
            Err(End::HasNone) => continue,
            Err(End::Counts) => return Census::Somebody,
        };
        for slot in (0..slots).filter(|slot| (rank, *slot) != (me, mine)) {
            match look(memory, rank, place.node_of(rank, slot, COUNTS)).await {
                Ok(found) if found == counts_for(place.lock()) => return Census::Somebody,
                Ok(_) => {}
                Err(End::HasNone) => break,
                Err(End::Counts) => return Census::Somebody,
            }
        }
    }
    tallied.map_or(Census::Nobody, Census::Tallied)
}

/// Whether a rank lives, and none of its nodes says this of its owner.
pub(crate) async fn nobody_says<'m, M: RemoteMemory>(
    memory: &M,
    place: impl LockContext<'m, M>,
    rank: Rank,
    what: u64,
) -> bool {
    let slots = match in_use(memory, place, rank).await {
        Ok((slots, _)) => slots,
        Err(_) => return false,
    };
    for slot in 0..slots {
        match look(memory, rank, place.node_of(rank, slot, COUNTS)).await {
            Ok(found) if found == what => return false,
            Ok(_) => {}
            Err(_) => return false,
        }
    }
    true
}

/// Whether a rank lives no more, or its nodes are gone.
pub(crate) async fn has_gone<'m, M: RemoteMemory>(memory: &M, place: impl LockContext<'m, M>, rank: Rank) -> bool {
    matches!(look(memory, rank, place.node_of(rank, 0, COUNTS)).await, Err(End::HasNone))
}

/// Why a rank's nodes need not be looked at.
enum End {
    /// It lives no more, or has given up the nodes.
    HasNone,
    /// It may count.
    Counts,
}

/// How many of a rank's slots may be in use, and how many of its owners count without, for whatever lock.
async fn in_use<'m, M: RemoteMemory>(
    memory: &M,
    place: impl LockContext<'m, M>,
    rank: Rank,
) -> Result<(u16, u64), End> {
    if memory.liveness(rank) != Liveness::Alive {
        return Err(End::HasNone);
    }
    let tally = match place.participant_count(rank) {
        Ok(None) => return Ok((place.slots(), 0)),
        Ok(Some(tally)) => look(memory, rank, Ok(tally)).await?,
        Err(fault) => look(memory, rank, Err(fault)).await?,
    };
    let without = match place.without_slot() {
        _ if place.only_nodes_count() => 0,
        Some(own) if rank == memory.rank() => own.here.into(),
        _ => tally >> 32,
    };
    Ok((place.slots().min(tally as u16), without))
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
    fn every_lock_is_told_from_none() {
        assert_eq!([0, 1, 7, (1 << 63) - 1].map(counts_for), [1, 2, 8, 1 << 63]);
    }

    #[test]
    fn who_releases_gives_the_others_their_time_anew() {
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

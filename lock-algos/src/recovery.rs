//! How a lock is set right after a death that its words cannot tell of.
//!
//! Each owner says in its node for which lock it counts, from before its first operation until its last one is complete.
//! Who doubts a lock *freezes* it: a bit in its word, which turns away everybody who comes. Those who hold it go on and
//! release, those who wait give up. When no living rank counts any more, what the words still say is of the dead alone,
//! and whoever swaps the frozen word for his own first has the lock. Nobody leads, so nobody's death in between matters.
//!
//! Whoever asked, was stopped, and swaps late must fail: meanwhile the lock may have been taken, released, and frozen once
//! more. So no two freezes may make the same word: each is told from the others by a [`stamp`], or by what the word counts.

use remote_memory::{FaultKind, Liveness, Rank, RemoteMemory};

use crate::backoff::mixed;
use crate::{Owner, Place};

/// The word of a node that names the lock for which its owner counts.
pub(crate) const COUNTS: usize = 0;

/// What [`COUNTS`] says of a lock; 0 is none.
pub(crate) const fn counts_for(lock: u64) -> u64 {
    lock + 1
}

/// For how long a waiter believes that members will release, in nanoseconds from when it saw that some rank had died.
const MEMBERS_PATIENCE: u64 = 1_000_000_000;

/// Members, readers mostly, who may be dead: a count names nobody.
#[derive(Debug, Default)]
pub(crate) struct Doubt {
    since: Option<u64>,
}

impl Doubt {
    /// Who died, if the members had their time since.
    pub(crate) fn of_members<M: RemoteMemory>(&mut self, memory: &M) -> Option<Rank> {
        let dead = memory.casualty()?;
        let now = memory.now();
        (now.saturating_sub(*self.since.get_or_insert(now)) >= MEMBERS_PATIENCE).then_some(dead)
    }
}

/// Tells a freeze of a word from every other one, but for chance. An algorithm takes as many bits as it has room for.
pub(crate) fn stamp<M: RemoteMemory>(memory: &M, owner: Owner) -> u64 {
    mixed(owner.to_bits() ^ memory.now().rotate_left(Owner::BITS))
}

/// Whether no living rank counts for the lock, this owner aside. The answer holds for a frozen lock whose word is what it
/// was before the question: who counts later has changed it.
pub(crate) async fn nobody_counts<'m, M: RemoteMemory>(memory: &M, place: impl Place<'m, M>) -> bool {
    let Owner { rank: me, slot: mine, .. } = place.owner();
    for rank in (0..memory.size()).map(Rank) {
        for slot in (0..place.slots()).filter(|slot| (rank, *slot) != (me, mine)) {
            if memory.liveness(rank) != Liveness::Alive {
                break;
            }
            let found = match place.node_of(rank, slot, COUNTS) {
                Ok(word) => memory.read(word).await,
                Err(fault) => Err(fault),
            };
            match found {
                Ok(found) if found == counts_for(place.lock()) => return false,
                Ok(_) => {}
                Err(fault) if fault.kind() == FaultKind::NoSuchRegion => break, // has given up the nodes
                Err(_) if memory.liveness(rank) != Liveness::Alive => break,
                Err(_) => return false, // its end is not known here yet
            }
        }
    }
    true
}

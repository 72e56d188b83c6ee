//! The watch over connections, without which some waits would have no end.
//!
//! A card ends what it was told to do: by the peer's answer, or by its silence. Three things are left to this watch:
//!
//! - *Nobody asks.* Whoever waits for what comes from a peer has nothing under way to it, so that no card notices that the
//!   peer cannot be reached. Then the peer is asked for a sign of life, by a read that needs no help of it.
//! - *A driver forgets* that it may go on with the next request, until another is posted. So another is posted.
//! - *A card says nothing at all*, neither that a request went well nor that it failed: the connection is given up.
//!
//! A look is taken by threads that wait, a few times a second; operations pay nothing for it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, TryLockError};

use onesided_remote_memory::{Fault, Liveness, Patience, Rank, RemoteMemory, Watch};

use crate::drive::now;
use crate::ends::Ends;
use crate::verbs::peer::{Peer, REFUSED};
use crate::verbs::queue::{Kept, Order};
use crate::verbs::raw::Verb;
use crate::verbs::{Inner, Verbs};

/// How often to look, in nanoseconds.
const LOOK: u64 = 250_000_000;
/// After so long without a completion something is posted.
const QUIET: u64 = 2_000_000_000;
/// After so long without one the connection is given up, whatever its card may still be waiting for: some ten times what
/// [the card](crate::verbs::raw) is told to wait. A request that moves bytes has more time.
const SILENT: u64 = 30_000_000_000;
/// Nanoseconds that a byte may take: 1 MB/s.
const SLOWEST: u64 = 1_000;
/// How long the news of a death may take that broke a connection. The memory of a process that is killed is gone before
/// anybody is told: until then what its card says sounds like a peer that lives.
const NEWS: u64 = 1_000_000_000;
/// A thread that spins looks at the clock every so many turns.
const TURNS: u32 = 1 << 12;

#[derive(Debug)]
pub(super) struct Vigil {
    /// When to look next.
    due: AtomicU64,
    turns: AtomicU32,
    /// [`SILENT`], but in tests.
    silent: AtomicU64,
    looks: Mutex<Box<[Look]>>,
}

/// What was seen of a connection.
#[derive(Clone, Debug, Default)]
struct Look {
    completed: u64,
    /// Since when there are no more, while some are under way or somebody waits.
    since: u64,
    /// Whether something was posted since then.
    probed: bool,
    /// The slot of what was posted, until it is done.
    probe: Option<u32>,
}

impl Vigil {
    pub(super) fn new(size: u32) -> Self {
        let looks = vec![Look::default(); size as usize].into();
        let (due, turns, silent) = (AtomicU64::new(0), AtomicU32::new(0), AtomicU64::new(SILENT));
        Self { due, turns, silent, looks: Mutex::new(looks) }
    }

    /// For tests, which do not wait so long.
    pub(super) fn set_silent(&self, nanos: u64) {
        self.silent.store(nanos, Ordering::Relaxed);
    }
}

impl Inner {
    /// For threads that spin: now and then a [`patrol`](Self::patrol).
    #[inline]
    pub(super) fn turn(&self) {
        // Two threads may count as one: nothing depends on it.
        let turn = self.vigil.turns.load(Ordering::Relaxed).wrapping_add(1);
        self.vigil.turns.store(turn, Ordering::Relaxed);
        if turn.is_multiple_of(TURNS) {
            self.patrol();
        }
    }

    /// Looks at all connections, if it is time to.
    #[cold]
    pub(super) fn patrol(&self) {
        if now() < self.vigil.due.load(Ordering::Relaxed) {
            return;
        }
        let mut looks = match self.vigil.looks.try_lock() {
            Ok(looks) => looks,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        // Only now: another thread may have looked since, with a later clock.
        let (now, due) = (now(), self.vigil.due.load(Ordering::Relaxed));
        if now < due {
            return;
        }
        self.vigil.due.store(now + LOOK, Ordering::Relaxed);
        // Nobody has waited meanwhile, so nobody has seen since when it is quiet.
        let anew = now > due + 4 * LOOK;
        for ((rank, peer), look) in (0..).map(Rank).zip(&self.peers).zip(looks.iter_mut()) {
            if let Some(slot) = look.probe.filter(|slot| self.slots.status(*slot).is_some()) {
                self.slots.free(slot);
                look.probe = None;
            }
            if self.board.liveness(rank) == Liveness::Alive {
                if self.is_revoked(rank) {
                    peer.close();
                }
                self.look_at((rank, peer), look, (now, anew));
            }
        }
    }

    /// Until when the reason why a connection works no more may still come as news: the peer's end says more than any status.
    /// `None`: it works, or there is nothing to wait for.
    #[cold]
    pub(super) fn news_until(&self, rank: Rank) -> Option<u64> {
        let peer = self.peer(rank).ok().filter(|peer| peer.is_broken() && !self.is_revoked(rank))?;
        let now = now();
        let until = peer.noticed_broken(now) + NEWS;
        (now < until && self.board.liveness(rank) == Liveness::Alive).then_some(until)
    }

    fn look_at(&self, (rank, peer): (Rank, &Peer), look: &mut Look, (now, anew): (u64, bool)) {
        // Both are asked, whatever the first says.
        let (busy, waited_on) = (peer.is_busy(), peer.was_waited_on() && rank != self.rank);
        let completed = peer.completed();
        if anew || completed != look.completed || !(busy || waited_on) {
            *look = Look { completed, since: now, probed: false, probe: look.probe };
            return;
        }
        let quiet = now.saturating_sub(look.since);
        if peer.is_broken() {
            // What is under way should have ended with it: the driver is told once more.
            if quiet >= QUIET {
                look.since = now;
                peer.fail_again();
            }
            return;
        }
        if quiet >= QUIET && !look.probed && look.probe.is_none() {
            look.probed = true;
            look.probe = self.probe(rank, peer);
        }
        // What takes a receive waits for the peer to make progress, which may be far away; but not for ever, and neither does
        // what was posted behind it.
        let silent = self.vigil.silent.load(Ordering::Relaxed);
        let patience =
            if peer.needs_receive() { self.full_after.nanos().saturating_mul(2).max(silent) } else { silent };
        if busy && quiet >= patience && quiet - patience >= self.time_for_bytes(peer) {
            peer.fail();
        }
    }

    /// Posts a read, if that can be done at once. Its slot is kept, so that its failure is nobody's news: it is the
    /// connection's.
    fn probe(&self, rank: Rank, peer: &Peer) -> Option<u32> {
        let room = self.slots.take(8)?;
        if self.try_post(rank, Order::new(Verb::Read { from: peer.home }, &room, 8)) {
            return Some(room.slot);
        }
        self.slots.free(room.slot);
        None
    }

    /// How long the oldest request under way may take for its bytes alone.
    pub(super) fn time_for_bytes(&self, peer: &Peer) -> u64 {
        peer.oldest_kept().and_then(|slot| self.kept().get(&slot).map(Kept::time)).unwrap_or(0)
    }
}

impl Kept {
    /// How long it may take for its bytes alone, whatever else the segments hold.
    const fn time(&self) -> u64 {
        self.len.saturating_mul(SLOWEST)
    }
}

impl Verbs {
    /// What a wait reports that is not satisfied: the deadline, somebody's end, a connection that nothing comes by any more,
    /// or nothing yet.
    pub(super) fn wait_on(&self, patience: Patience) -> Result<(), Fault> {
        self.out_of_patience(patience)?;
        let rank = match patience.watch {
            Watch::NoRank => return Ok(()),
            Watch::Rank(rank) | Watch::RankAndFailures(rank) => rank,
        };
        if rank == self.rank() {
            return Ok(()); // what others write comes by their connections
        }
        let peer = self.0.peer(rank)?;
        if peer.is_broken() && self.0.news_until(rank).is_none() {
            return Err(self.0.fault(rank, REFUSED));
        }
        peer.wait_on();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use onesided_remote_memory::RegionId;

    use super::*;
    use crate::SegmentKey;
    use crate::verbs::VerbsSegment;

    #[test]
    fn a_request_has_time_for_its_own_bytes_and_not_for_those_of_its_segments() {
        let key = SegmentKey { rank: Rank(1), region: RegionId(1), len: 1 << 40, address: 0, rkey: 1 };
        let kept = |len| Kept { segments: (VerbsSegment::of_peer(key), VerbsSegment::of_peer(key)), len };
        assert_eq!(kept(8).time(), 8_000);
        assert_eq!(kept(1 << 30).time(), 1_000 << 30);
    }
}

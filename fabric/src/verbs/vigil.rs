//! Keepalive of connections, without which some waits would not end.
//!
//! A card ends a request by the peer's answer, or by its silence. Three cases are left to the
//! keepalive:
//!
//! - *No request in flight.* A thread that waits for a peer's write has none, so no card notices
//!   that the peer is unreachable. The keepalive reads from the peer, which needs no action of the
//!   peer.
//! - *A stalled driver* does not continue with the next request until another one is posted. So
//!   another one is posted.
//! - *A silent card* reports neither success nor failure: the connection is abandoned.
//!
//! Waiting threads check several times a second; operations pay nothing.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, TryLockError};

use onesided_remote_memory::{Fault, Liveness, Patience, Rank, RemoteMemory, Watch};

use crate::drive::now;
use crate::ends::Ends;
use crate::verbs::queue::{Kept, Order, Peer, REFUSED};
use crate::verbs::raw::Verb;
use crate::verbs::{Inner, Verbs};

/// The poll interval, in nanoseconds.
const LOOK: u64 = 250_000_000;
/// After this time without a completion a request is posted.
const QUIET: u64 = 2_000_000_000;
/// After this time without a completion the connection is abandoned: about ten times the timeout of
/// [the card](crate::verbs::raw). A request that moves bytes gets more time.
const SILENT: u64 = 30_000_000_000;
/// The maximum nanoseconds a byte: 1 MB/s.
const SLOWEST: u64 = 1_000;
/// The failure-detection timeout of a death that broke a connection. A killed process loses its
/// memory before its death is declared; until then the card's status looks like that of a living
/// peer.
const NEWS: u64 = 1_000_000_000;
/// A spinning thread reads the clock once in this many polls.
const TURNS: u32 = 1 << 12;

#[derive(Debug)]
pub(super) struct Vigil {
    /// The time of the next check.
    due: AtomicU64,
    turns: AtomicU32,
    /// [`SILENT`], except in tests.
    silent: AtomicU64,
    looks: Mutex<Box<[Look]>>,
}

/// The state of a connection at the last check.
#[derive(Clone, Debug, Default)]
struct Look {
    completed: u64,
    /// Since when there were no completions, with requests in flight or a waiting thread.
    since: u64,
    /// Whether a probe was posted since then.
    probed: bool,
    /// The slot of the probe, until it is done.
    probe: Option<u32>,
}

impl Vigil {
    pub(super) fn new(size: u32) -> Self {
        let looks = vec![Look::default(); size as usize].into();
        let (due, turns, silent) = (AtomicU64::new(0), AtomicU32::new(0), AtomicU64::new(SILENT));
        Self { due, turns, silent, looks: Mutex::new(looks) }
    }

    /// For tests.
    pub(super) fn set_silent(&self, nanos: u64) {
        self.silent.store(nanos, Ordering::Relaxed);
    }
}

impl Inner {
    /// For spinning threads: occasionally runs a [check](Self::patrol).
    #[inline]
    pub(super) fn turn(&self) {
        // Concurrent increments may be lost, which is harmless.
        let turn = self.vigil.turns.load(Ordering::Relaxed).wrapping_add(1);
        self.vigil.turns.store(turn, Ordering::Relaxed);
        if turn.is_multiple_of(TURNS) {
            self.patrol();
        }
    }

    /// Checks all connections, if it is time.
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
        // Read under the lock: another thread may have checked since, with a later clock.
        let (now, due) = (now(), self.vigil.due.load(Ordering::Relaxed));
        if now < due {
            return;
        }
        self.vigil.due.store(now + LOOK, Ordering::Relaxed);
        // No thread has waited meanwhile, so the start of the silence is unknown.
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

    /// Until when a death may still be declared as the cause of a broken connection, which says
    /// more than any status. `None`: the connection works, or nothing is expected.
    #[cold]
    pub(super) fn news_until(&self, rank: Rank) -> Option<u64> {
        let peer = self.peer(rank).ok().filter(|peer| peer.is_broken() && !self.is_revoked(rank))?;
        let now = now();
        let until = peer.noticed_broken(now) + NEWS;
        (now < until && self.board.liveness(rank) == Liveness::Alive).then_some(until)
    }

    fn look_at(&self, (rank, peer): (Rank, &Peer), look: &mut Look, (now, anew): (u64, bool)) {
        // Both are evaluated: the second one resets its flag.
        let (busy, waited_on) = (peer.is_busy(), peer.was_waited_on() && rank != self.rank);
        let completed = peer.completed();
        if anew || completed != look.completed || !(busy || waited_on) {
            *look = Look { completed, since: now, probed: false, probe: look.probe };
            return;
        }
        let quiet = now.saturating_sub(look.since);
        if peer.is_broken() {
            // Requests in flight should have ended with it: fail the queue pair once more.
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
        // A request that takes a receive waits for the peer's progress, which may take long; but
        // not without bound, and neither do the requests after it.
        let silent = self.vigil.silent.load(Ordering::Relaxed);
        let patience =
            if peer.needs_receive() { self.full_after.nanos().saturating_mul(2).max(silent) } else { silent };
        if busy && quiet >= patience && quiet - patience >= self.time_for_bytes(peer) {
            peer.fail();
        }
    }

    /// Posts a read, if it can be posted now. Its slot is kept, so that a failure is reported by
    /// the connection alone.
    fn probe(&self, rank: Rank, peer: &Peer) -> Option<u32> {
        let room = self.slots.take(8)?;
        if self.try_post(rank, Order::new(Verb::Read { from: peer.home }, &room, 8)) {
            return Some(room.slot);
        }
        self.slots.free(room.slot);
        None
    }

    /// The time that the oldest request in flight may take for its bytes alone.
    pub(super) fn time_for_bytes(&self, peer: &Peer) -> u64 {
        peer.oldest_kept().and_then(|slot| self.kept().get(&slot).map(Kept::time)).unwrap_or(0)
    }
}

impl Kept {
    /// The time that it may take for its bytes alone, whatever else the segments contain.
    const fn time(&self) -> u64 {
        self.len.saturating_mul(SLOWEST)
    }
}

impl Verbs {
    /// The state of an unsatisfied wait: past its deadline, ended by a peer's status, on a broken
    /// connection, or pending.
    pub(super) fn wait_on(&self, patience: Patience) -> Result<(), Fault> {
        self.out_of_patience(patience)?;
        let rank = match patience.watch {
            Watch::NoRank => return Ok(()),
            Watch::Rank(rank) | Watch::RankAndFailures(rank) => rank,
        };
        if rank == self.rank() {
            return Ok(()); // other ranks' writes arrive on their own connections
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

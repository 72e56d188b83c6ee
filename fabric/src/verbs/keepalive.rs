//! Keepalive of connections, without which some waits would not end.
//!
//! A card ends a request by the peer's answer, or by its silence. Four cases are left to the
//! keepalive:
//!
//! - *No request in flight.* A thread that waits for a peer's write has none, so no card notices
//!   that the peer is unreachable. The keepalive reads from the peer, which needs no action of the
//!   peer.
//! - *A stalled driver* does not continue with the next request until another one is posted. So
//!   another one is posted.
//! - *Packets that no completion reports* count as requests in flight. That same read reports them,
//!   so that a connection with few packets does not pass for a silent one.
//! - *A silent card* reports neither success nor failure: the connection is given up.
//!
//! Waiting threads check several times a second; operations pay nothing.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, TryLockError};
use std::time::Duration;

use onesided_job::{Process, lock, setting};
use onesided_remote_memory::{Fault, Liveness, Patience, Rank, RemoteMemory, Watch};

use crate::Error;
use crate::verbs::peer::{Peer, REFUSED};
use crate::verbs::queue::InFlight;
use crate::verbs::traffic::{ConnectionId, Traffic};
use crate::verbs::{Inner, Verbs};
use crate::waiting::drive::now;
use crate::waiting::peer_status::PeerStatus;

/// After how many seconds a post fails while its target accepts nothing; 60 without a setting.
pub const FULL_AFTER: &str = "ONESIDED_FULL_AFTER";
const MINUTE: f64 = 60.0;

/// The poll interval, in nanoseconds.
const POLL_INTERVAL: u64 = 250_000_000;
/// After this time without a completion a request is posted.
const PROBE_AFTER: u64 = 2_000_000_000;
/// After this time without a completion the connection is given up: about ten times the timeout of
/// [the card](crate::verbs::raw). A request that moves bytes gets more time.
const GIVE_UP_AFTER: u64 = 30_000_000_000;
/// The maximum nanoseconds a byte: 1 MB/s.
const SLOWEST: u64 = 1_000;
/// The failure-detection timeout of a death that broke a connection, within a host. A killed
/// process loses its memory before its death is declared; until then the card's status looks like
/// that of a living peer. On another host it may be the host that died: the time until its silence
/// counts as a death comes on top; on this one the time until somebody takes note of the process's
/// end does.
const DETECTION_TIMEOUT: u64 = 1_000_000_000;
/// A spinning thread reads the clock once in this many polls.
const TURNS: u32 = 1 << 12;

#[derive(Debug)]
pub(super) struct Keepalive {
    /// The time of the next check.
    due: AtomicU64,
    turns: AtomicU32,
    /// [`GIVE_UP_AFTER`], except in tests.
    silent: AtomicU64,
    /// The nanoseconds of [`FULL_AFTER`].
    full_after: AtomicU64,
    /// Held by the thread that checks.
    checks: Mutex<()>,
}

/// The state of a connection at the last check.
#[derive(Clone, Debug)]
pub(super) struct Observation {
    completed: u64,
    /// Since when there were no completions, with requests in flight or a waiting thread.
    since: u64,
    /// Whether a probe was posted since then.
    probed: bool,
}

impl Default for Observation {
    /// Of a connection that is new.
    fn default() -> Self {
        Self { completed: 0, since: now(), probed: false }
    }
}

impl Keepalive {
    /// Reads the environment.
    pub(super) fn new() -> Result<Self, Error> {
        let seconds = setting::number(FULL_AFTER, 0.1..=1e6, "of seconds, 0.1 to 1000000")?;
        let full_after = Duration::from_secs_f64(seconds.unwrap_or(MINUTE));
        let full_after = AtomicU64::new(full_after.as_nanos() as u64);
        let (due, turns, silent) = (AtomicU64::new(0), AtomicU32::new(0), AtomicU64::new(GIVE_UP_AFTER));
        Ok(Self { due, turns, silent, full_after, checks: Mutex::new(()) })
    }

    /// How long a post waits for space, in nanoseconds.
    pub(super) fn full_after(&self) -> u64 {
        self.full_after.load(Ordering::Relaxed)
    }

    /// For tests.
    pub(super) fn set_full_after(&self, after: Duration) {
        let nanos = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX);
        self.full_after.store(nanos, Ordering::Relaxed);
        self.silent.store(nanos.saturating_mul(2), Ordering::Relaxed);
    }
}

impl Inner {
    /// For spinning threads: occasionally runs a [check](Self::check_connections).
    #[inline]
    pub(super) fn turn(&self) {
        // Concurrent increments may be lost, which is harmless.
        let turn = self.keepalive.turns.load(Ordering::Relaxed).wrapping_add(1);
        self.keepalive.turns.store(turn, Ordering::Relaxed);
        if turn.is_multiple_of(TURNS) {
            self.check_connections();
        }
    }

    /// Checks all connections, if it is time.
    #[cold]
    pub(super) fn check_connections(&self) {
        if now() < self.keepalive.due.load(Ordering::Relaxed) {
            return;
        }
        let _checks = match self.keepalive.checks.try_lock() {
            Ok(checks) => checks,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        // Read under the lock: another thread may have checked since, with a later clock.
        let (now, due) = (now(), self.keepalive.due.load(Ordering::Relaxed));
        if now < due {
            return;
        }
        self.keepalive.due.store(now + POLL_INTERVAL, Ordering::Relaxed);
        // No thread has waited meanwhile, so the start of the silence is unknown.
        let anew = now > due + 4 * POLL_INTERVAL;
        for peer in self.known_peers() {
            let (rank, mut seen) = (peer.id.rank, lock(&peer.observation));
            if self.job_segment.liveness(rank) == Liveness::Alive {
                if self.is_revoked(rank) {
                    peer.close(true);
                }
                let is_over = self.detection_until(peer.id).is_none(); // records a loss that no operation reports
                if is_over && peer.connection.is_broken() && self.may_renew(peer.id) {
                    self.offer_renewal();
                }
                self.check(peer, &mut seen, (now, anew));
            }
        }
    }

    /// Until when the cause of a failed operation may still become known: the rank is being cut, or
    /// a death may be declared as the cause of a broken connection. It says more than any status.
    /// `None`: the connection works, or nothing is expected. Then a broken connection to the memory of
    /// a rank that counts as alive is recorded as lost: nothing reports it before all ranks can learn
    /// it.
    #[cold]
    pub(super) fn detection_until(&self, to: ConnectionId) -> Option<u64> {
        let (rank, now) = (to.rank, now());
        // Read before: a death between the two would be neither awaited nor told.
        let is_alive = self.job_segment.liveness(rank) == Liveness::Alive;
        if self.is_cutting(rank) {
            return Some(now + POLL_INTERVAL); // the end of the cut wakes the waiting thread
        }
        let peer = self.peer(to).ok().filter(|peer| peer.connection.is_broken() && !self.is_revoked(rank))?;
        if !is_alive || self.job_segment.is_lost(self.rank, rank) {
            return None;
        }
        let suspect_after = self.job_segment.suspect_after(rank, self.rank).as_nanos() as u64;
        let until = peer.connection.noticed_broken(now) + suspect_after + DETECTION_TIMEOUT;
        if now < until {
            return Some(until);
        }
        // The host daemon may need longer on a busy host, and the kernel where there is much
        // memory.
        let is_here = self.job_segment.host_of(rank) == self.job_segment.host_of(self.rank);
        if is_here && self.job_segment.process(rank).is_some_and(Process::is_ending) {
            peer.connection.notice_again(now);
            return Some(now + DETECTION_TIMEOUT);
        }
        if to.traffic == Traffic::Memory {
            self.job_segment.lose_connection(self.rank, rank);
        }
        None
    }

    fn check(&self, peer: &Peer, seen: &mut Observation, (now, anew): (u64, bool)) {
        // Both are evaluated: the second one resets its flag.
        let (busy, waited_on) = (peer.queue.is_busy(), peer.was_waited_on() && peer.id.rank != self.rank);
        let completed = peer.queue.completed();
        if anew || completed != seen.completed || !(busy || waited_on) {
            *seen = Observation { completed, since: now, probed: false };
            return;
        }
        let idle = now.saturating_sub(seen.since);
        if peer.connection.is_broken() {
            // Requests in flight should have ended with it: fail the queue pair once more.
            if idle >= PROBE_AFTER {
                seen.since = now;
                peer.fail_again();
                self.report_packets(peer);
            }
            return;
        }
        if idle >= PROBE_AFTER && !seen.probed {
            seen.probed = self.probe(peer); // on a new connection it may have to wait
        }
        // A request that takes a receive waits for the peer's progress, which may take long; but
        // not without bound, and neither do the requests after it.
        let silent = self.keepalive.silent.load(Ordering::Relaxed);
        let patience =
            if peer.queue.needs_receive() { self.keepalive.full_after().saturating_mul(2).max(silent) } else { silent };
        if busy && idle >= patience && idle - patience >= self.time_for_bytes(peer) {
            peer.fail();
        }
    }

    /// Posts a read, if it can be posted now.
    pub(super) fn probe(&self, peer: &Peer) -> bool {
        self.ignored_read(peer).is_some_and(|read| self.try_post(peer, read))
    }

    /// The time that the oldest request in flight may take for its bytes alone.
    pub(super) fn time_for_bytes(&self, peer: &Peer) -> u64 {
        peer.queue.oldest_in_flight().and_then(|slot| lock(&self.in_flight).get(&slot).map(InFlight::time)).unwrap_or(0)
    }
}

impl InFlight {
    /// The time that it may take for its bytes alone, whatever else the segments contain.
    const fn time(&self) -> u64 {
        self.len.saturating_mul(SLOWEST)
    }
}

impl Inner {
    /// The connection that shows whether a rank can be reached: that of such traffic, or the one for memory if
    /// that is not to be made for it.
    pub(super) fn shows(&self, rank: Rank, traffic: Traffic) -> Result<&Peer, Fault> {
        let peer = self.peer(ConnectionId { rank, traffic })?;
        let is_of_use = || peer.connection.is_ready() && !(peer.connection.is_broken() && self.may_renew(peer.id));
        match self.is_limited(peer.id) && !is_of_use() {
            true => self.peer(ConnectionId { rank, traffic: Traffic::Memory }),
            false => Ok(peer),
        }
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
        let peer = self.0.shows(rank, self.1)?;
        if peer.connection.is_broken() && self.0.detection_until(peer.id).is_none() && !self.0.may_renew(peer.id) {
            return Err(self.0.fault(peer.id, REFUSED));
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
        let in_flight = |len| InFlight { segments: (VerbsSegment::of_peer(key), VerbsSegment::of_peer(key)), len };
        assert_eq!(in_flight(8).time(), 8_000);
        assert_eq!(in_flight(1 << 30).time(), 1_000 << 30);
    }
}

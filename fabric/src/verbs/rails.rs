//! Rails: long transfers of messages between two ranks, over several connections at once
//! (Yu et al., 2004; the schedule by cost after Open MPI's TEG, Woodall et al., 2004).
//!
//! The first rail is the connection of messages, which also has the packets and all that is short. With
//! [`RAILS`] there are further ones, for the data of messages alone. A long transfer is cut into chunks,
//! all of which are posted at its start, so that they move while the rank computes. Each goes over the
//! rail that will have moved it first, as it has measured.
//!
//! A rail goes over the first card, or a [further one](super::cards).
//!
//! - *Connection*: a rail that is not connected yet is asked for. It takes part in later transfers, once a
//!   read over it has come back: one whose card or network is dead holds nothing up.
//! - *Order*: there is none between rails. A packet is sent when the transfer is complete. Behind a write
//!   over a further rail comes a read, so that its bytes are placed then.
//! - *A further rail fails*: its chunks are posted again over the others. A late packet of a failed write
//!   must not change memory that the receiver has back, so the transfer ends when the peer has
//!   [ended](super::renewal) its side: its old queue pair takes nothing any more. It says so over the
//!   first card. If that takes too long, the first rail is given up as well.
//! - *The first rail fails*: the transfer fails. Its further rails end with it, on both sides before
//!   either reports the loss, and those of the next connection carry nothing of this transfer.

use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use onesided_job::lock;
use onesided_remote_memory::{Fault, FaultKind, Liveness, Patience, Rank};

use crate::Segment;
use crate::verbs::connection::is_after_break;
use crate::verbs::peer::Peer;
use crate::verbs::queue::{InFlight, WorkRequest};
use crate::verbs::raw::{Local, Remote, Verb};
use crate::verbs::traffic::{ConnectionId, Traffic};
use crate::verbs::words::Posted;
use crate::verbs::{Verbs, VerbsSegment};
use crate::waiting::drive::now;
use crate::waiting::peer_status::PeerStatus;

/// How many rails long messages to a rank are divided among: 1, 2 or 3. If it is not set, as many as
/// devices are named, at most 3.
pub const RAILS: &str = "ONESIDED_RAILS";

/// The shortest chunk but for the last, in bytes. A transfer of less than two is not divided.
const SHORTEST: u64 = 64 << 10;
/// How many chunks of a transfer there are for each rail: more follow the measured cost more closely,
/// and each is a work request.
const CHUNKS: u64 = 4;
/// A busy rail measures its cost each time it has moved so many bytes.
const SAMPLE: u64 = 4 << 20;
/// How long the peer may take to end a failed rail, in nanoseconds, and how often it is looked at.
const GIVE_UP_AFTER: u64 = 30_000_000_000;
const LOOK_AFTER: u64 = 20_000_000;

/// A read or a write.
pub(super) const fn moves(writes: bool, remote: Remote) -> Verb {
    if writes { Verb::Write { to: remote } } else { Verb::Read { from: remote } }
}

/// What moves over a rail of long transfers, and how fast.
#[derive(Debug, Default)]
pub(super) struct Load {
    in_flight: u64,
    /// Since when it is busy or has measured, and what it has moved since.
    since: u64,
    moved: u64,
    /// Picoseconds a byte; 0 before it was measured.
    cost: u64,
    /// The generation over which a read was posted, and up to which request that was.
    tried: Option<(u64, u64)>,
}

impl Load {
    fn begin(&mut self, len: u64, now: u64) {
        if self.in_flight == 0 {
            (self.since, self.moved) = (now, 0);
        }
        self.in_flight += len;
    }

    fn end(&mut self, len: u64, now: u64) {
        self.in_flight -= len;
        self.moved += len;
        if self.in_flight == 0 || self.moved >= SAMPLE {
            let cost = (now.saturating_sub(self.since).saturating_mul(1000) / self.moved).max(1);
            self.cost = if self.cost == 0 { cost } else { (3 * self.cost + cost) / 4 };
            (self.since, self.moved) = (now, 0);
        }
    }

    /// The bytes in flight, and the cost.
    const fn known(&self) -> (u64, u64) {
        (self.in_flight, self.cost)
    }

    /// Bytes that it does not move any more.
    fn forget(&mut self, len: u64) {
        self.in_flight -= len;
    }

    /// It was too expensive for a transfer. Later it is tried again.
    fn spare(&mut self) {
        self.cost -= self.cost / 8;
    }
}

/// The places of the rails with these bytes in flight and these costs, in the order in which they will
/// have moved `len` bytes more. One that was not measured counts as the fastest.
fn by_cost(loads: &[(u64, u64)], len: u64) -> Vec<usize> {
    let least = loads.iter().map(|(_, cost)| *cost).filter(|cost| *cost > 0).min().unwrap_or(1);
    let mut order: Vec<_> = (0..loads.len()).collect();
    order.sort_by_key(|at| {
        let (in_flight, cost) = loads[*at];
        u128::from(in_flight + len) * u128::from(if cost == 0 { least } else { cost })
    });
    order
}

/// A transfer over several rails.
#[derive(Debug)]
pub(super) struct Stripes {
    fabric: Verbs,
    /// This rank's memory, and the other's, each from an offset on.
    ends: [(VerbsSegment, u64); 2],
    writes: bool,
    rails: &'static [Traffic],
    /// Tells the connection of messages that it belongs to.
    breaks: u32,
    chunks: Vec<Chunk>,
    /// The rails on which writes have failed, and their generation then, until the peer has ended them.
    failed: Vec<(Traffic, u64)>,
    /// When that has taken too long.
    until: u64,
    outcome: Result<(), Fault>,
}

/// A part of a transfer, in flight.
#[derive(Debug)]
struct Chunk {
    at: u64,
    len: u64,
    rail: Traffic,
    generation: u64,
    posted: Posted,
}

impl Stripes {
    /// Posts all chunks.
    pub(super) fn start(
        fabric: &Verbs,
        rails: &'static [Traffic],
        ends: [(VerbsSegment, u64); 2],
        len: u64,
        writes: bool,
    ) -> Self {
        let breaks = fabric.peer(ends[1].0.rank()).map_or(0, |peer| peer.connection.breaks());
        let (chunks, failed, outcome) = (Vec::new(), Vec::new(), Ok(()));
        let fabric = fabric.clone();
        let mut stripes = Self { fabric, ends, writes, rails, breaks, chunks, failed, until: u64::MAX, outcome };
        let longest = stripes.fabric.0.capabilities.longest_transfer;
        let chunk = len.div_ceil(CHUNKS * rails.len() as u64).max(SHORTEST).next_multiple_of(4 << 10).min(longest);
        let mut at = 0;
        while at < len {
            stripes.post(at, chunk.min(len - at));
            at += chunk;
        }
        for peer in stripes.peers().filter(|peer| stripes.chunks.iter().all(|chunk| chunk.rail != peer.id.traffic)) {
            lock(&peer.load).spare();
        }
        stripes
    }

    fn rank(&self) -> Rank {
        self.ends[1].0.rank()
    }

    fn peer(&self, rail: Traffic) -> Option<&Peer> {
        self.fabric.0.peer(ConnectionId { rank: self.rank(), traffic: rail }).ok()
    }

    fn peers(&self) -> impl Iterator<Item = &Peer> {
        self.rails.iter().filter_map(|rail| self.peer(*rail))
    }

    /// Posts a chunk over the rail that is best for it.
    fn post(&mut self, at: u64, len: u64) {
        if self.outcome.is_ok() {
            match self.try_post(at, len) {
                Ok(chunk) => self.chunks.push(chunk),
                Err(fault) => self.outcome = Err(fault),
            }
        }
    }

    fn try_post(&self, at: u64, len: u64) -> Result<Chunk, Fault> {
        let inner = &*self.fabric.0;
        let first = inner.messages(self.rank())?;
        // Read before it is known that they are of this connection of messages: no later one is used.
        let mut rails: Vec<_> = self.peers().map(|peer| (peer, peer.connection.generation())).collect();
        if first.connection.breaks() != self.breaks {
            return Err(Fault::of(FaultKind::ConnectionLost, self.rank()));
        }
        // The first rail reports what has broken it, and that the peer has died or left.
        let is_alive = self.fabric.0.job_segment.liveness(self.rank()) == Liveness::Alive;
        let is_usable = |peer: &Peer, generation| {
            is_alive
                && peer.connection.is_ready()
                && self.is_tried(peer, generation)
                && !peer.connection.is_broken()
                && !first.connection.is_broken()
        };
        rails.retain(|(peer, generation)| {
            if peer.connection.is_broken() && peer.id.traffic.is_further_rail() {
                inner.end_rail(peer);
            }
            inner.ask_to_connect(peer);
            peer.id.traffic == Traffic::Messages || is_usable(peer, *generation)
        });
        let loads: Vec<_> = rails.iter().map(|(peer, _)| lock(&peer.load).known()).collect();
        for (peer, generation) in by_cost(&loads, len).into_iter().map(|place| rails[place]) {
            lock(&peer.load).begin(len, now());
            match self.post_over(peer, generation, at, len) {
                Ok(Some(posted)) => return Ok(Chunk { at, len, rail: peer.id.traffic, generation, posted }),
                Ok(None) => lock(&peer.load).forget(len),
                Err(fault) => {
                    lock(&peer.load).forget(len);
                    return Err(fault);
                }
            }
        }
        unreachable!("the first rail takes what no other does")
    }

    /// Whether a read over a rail has come back; one is posted.
    fn is_tried(&self, rail: &Peer, generation: u64) -> bool {
        let tried = &mut lock(&rail.load).tried;
        match *tried {
            Some((of, number)) if of == generation => rail.queue.has_completed(number),
            _ => {
                *tried = self.fabric.0.probe(rail).then(|| (generation, rail.queue.posted()));
                false
            }
        }
    }

    /// Posts a chunk over a rail. `None`: it cannot now. The first one waits for room.
    fn post_over(&self, peer: &Peer, generation: u64, at: u64, len: u64) -> Result<Option<Posted>, Fault> {
        let (inner, [(own, own_offset), (other, offset)]) = (&*self.fabric.0, &self.ends);
        let (here, there) = inner.places(peer.id);
        let ends = (own.local_at(here, own_offset + at)?, inner.key_at(&other.key(), there));
        let (Some(local), Some(key)) = ends else { return Ok(None) };
        let (local, remote) = (Local { len: len as u32, ..local }, Remote { key, ..other.remote(offset + at) });
        let taken = inner.take_slot(0)?;
        let moves = WorkRequest::new(moves(self.writes, remote), &taken, 0);
        let moves = WorkRequest { local, keeps: true, ..moves };
        let posted = |slot| Posted::new(&Verbs(self.fabric.0.clone(), peer.id.traffic), self.rank(), slot);
        inner.keep(taken.slot, InFlight { segments: (own.clone(), other.clone()), len });
        if peer.id.traffic == Traffic::Messages {
            inner.post(peer.id, [moves]);
            return Ok(Some(posted(taken.slot)));
        }
        let proof = if self.writes { inner.take_slot(8).map(Some) } else { Ok(None) };
        let is_posted = proof.map(|proof| match proof {
            Some(proof) => {
                let write = WorkRequest { unsignaled: true, ..moves };
                let read = inner.proof(peer, &proof);
                let is_posted = inner.try_post_over(peer, generation, [write, read]);
                if is_posted {
                    inner.forget(peer.id, taken.slot)
                } else {
                    inner.buffers.free(proof.slot)
                }
                is_posted.then_some(proof.slot)
            }
            None => inner.try_post_over(peer, generation, [moves]).then_some(taken.slot),
        });
        if !matches!(is_posted, Ok(Some(_))) {
            lock(&inner.in_flight).remove(&taken.slot);
            inner.buffers.free(taken.slot);
        }
        Ok(is_posted?.map(posted))
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        let mut at = 0;
        if self.chunks.iter().any(|chunk| chunk.posted.status().is_none()) {
            self.fabric.0.progress();
        }
        while let Some(chunk) = self.chunks.get_mut(at) {
            let is_first = chunk.rail == Traffic::Messages;
            match chunk.posted.status() {
                None => at += 1,
                // A death may be the cause, which says more.
                Some(status) if status != 0 && is_first && chunk.posted.poll(cx).is_pending() => at += 1,
                Some(status) => {
                    let chunk = self.chunks.swap_remove(at);
                    self.end(chunk, status);
                }
            }
        }
        if self.chunks.is_empty() && self.is_settled() {
            return Poll::Ready(self.outcome);
        }
        self.fabric.0.turn();
        let look_again = if self.failed.is_empty() { u64::MAX } else { now() + LOOK_AFTER };
        self.fabric.0.endpoint.register_waker(cx, look_again);
        Poll::Pending
    }

    fn end(&mut self, chunk: Chunk, status: u32) {
        let Chunk { at, len, rail, generation, posted } = chunk;
        posted.end();
        if let Some(peer) = self.peer(rail) {
            match status {
                0 => return lock(&peer.load).end(len, now()),
                _ => lock(&peer.load).forget(len),
            }
        }
        if rail == Traffic::Messages {
            let fault = self.fabric.0.fault(self.fabric.to(self.rank()), status);
            self.outcome = self.outcome.and(Err(fault));
            return;
        }
        if self.writes && !self.failed.contains(&(rail, generation)) {
            self.failed.push((rail, generation));
            self.until = now() + GIVE_UP_AFTER;
        }
        self.post(at, len);
    }

    /// Whether nothing of it can be on its way any more.
    fn is_settled(&mut self) -> bool {
        let mut failed = std::mem::take(&mut self.failed);
        failed.retain(|(rail, generation)| !self.has_ended(*rail, *generation));
        if !failed.is_empty()
            && let Ok(first) = self.fabric.0.messages(self.rank())
        {
            let is_alive = self.fabric.0.liveness(self.rank()) == Liveness::Alive;
            if first.connection.is_broken() || first.connection.breaks() != self.breaks || !is_alive {
                let lost = Err(Fault::of(FaultKind::ConnectionLost, self.rank()));
                self.outcome = self.outcome.and(self.fabric.ended(Patience::on(self.rank()))).and(lost);
                failed.clear(); // it ends with the first one
            } else if now() >= self.until {
                first.fail();
            }
        }
        self.failed = failed;
        self.failed.is_empty()
    }

    /// Whether the peer has ended its side of a rail that has failed. To ask for the next one tells it to.
    fn has_ended(&self, rail: Traffic, generation: u64) -> bool {
        let Some(peer) = self.peer(rail) else { return true };
        let has_ended = is_after_break(peer.connection.heard(), generation);
        if !has_ended {
            self.fabric.0.end_rail(peer);
            self.fabric.0.ask_to_connect(peer);
        }
        has_ended
    }
}

impl Drop for Stripes {
    fn drop(&mut self) {
        for chunk in &self.chunks {
            if let Some(peer) = self.peer(chunk.rail) {
                lock(&peer.load).forget(chunk.len);
            }
        }
    }
}

impl Verbs {
    /// Whether long messages have several rails. Datagrams have no connection that tells when one ends.
    pub(super) fn has_rails(&self) -> bool {
        self.0.rails.load(Ordering::Relaxed) > 1 && self.0.datagrams.is_none()
    }

    /// The rails of a transfer that has several.
    pub(super) fn rails_for(&self, len: u64) -> Option<&'static [Traffic]> {
        let is_long = self.is_for_messages() && len >= 2 * SHORTEST && self.has_rails();
        is_long.then(|| &Traffic::RAILS[..self.0.rails.load(Ordering::Relaxed) as usize])
    }

    /// Overrides [`RAILS`], for tests.
    #[doc(hidden)]
    pub fn set_rails(&self, rails: u32) {
        self.0.rails.store(rails.clamp(1, Traffic::RAILS.len() as u32), Ordering::Relaxed);
    }

    /// The handle whose operations go over a rail alone, for tests.
    #[doc(hidden)]
    pub fn rail(&self, rail: usize) -> Self {
        Self(self.0.clone(), Traffic::RAILS[rail])
    }

    /// Sets the queue pair of this handle's connection to a rank to the error state, as a card does, and
    /// says how many broke before. For tests.
    #[doc(hidden)]
    pub fn break_connection(&self, rank: Rank) -> u32 {
        self.peer(rank).map_or(0, |peer| {
            let _ = peer.queue.pair().map(|pair| pair.fail());
            peer.connection.breaks()
        })
    }

    /// How many of this handle's connections to a rank broke, for tests.
    #[doc(hidden)]
    pub fn breaks(&self, rank: Rank) -> u32 {
        self.peer(rank).map_or(0, |peer| peer.connection.breaks())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_goes_where_it_is_moved_first() {
        assert_eq!(by_cost(&[(0, 0), (0, 0)], 10), [0, 1]);
        assert_eq!(by_cost(&[(10, 0), (0, 0)], 10), [1, 0]);
        assert_eq!(by_cost(&[(0, 30), (10, 10)], 10), [1, 0]);
        assert_eq!(by_cost(&[(0, 30), (30, 10)], 10), [0, 1]);
        assert_eq!(by_cost(&[(0, 30), (10, 0)], 10), [0, 1]); // as fast as the fastest, and busy
        assert_eq!(by_cost(&[(u64::MAX - 10, u64::MAX), (0, 1)], 10), [1, 0]);
    }

    /// Chunks are divided as the costs say, whatever their order.
    #[test]
    fn rails_share_by_cost() {
        let (mut loads, mut chunks) = ([(0, 100), (0, 300), (0, 0)], [0; 3]);
        for _ in 0..70 {
            let rail = by_cost(&loads, 64)[0];
            loads[rail].0 += 64;
            chunks[rail] += 1;
        }
        assert_eq!(chunks, [30, 10, 30]);
    }

    #[test]
    fn a_rail_measures_while_it_is_busy() {
        let mut load = Load::default();
        load.begin(1000, 50);
        load.begin(1000, 60);
        load.end(1000, 150);
        assert_eq!((load.cost, load.in_flight), (0, 1000));
        load.end(1000, 250);
        assert_eq!((load.cost, load.in_flight), (100, 0)); // 200 ns for 2000 bytes
        load.begin(1000, 10_000); // idle time does not count
        load.end(1000, 10_500);
        assert_eq!(load.cost, 200);
        load.begin(SAMPLE, 20_000);
        load.begin(SAMPLE, 20_000);
        load.end(SAMPLE, 20_000 + SAMPLE / 5);
        assert_eq!((load.cost, load.in_flight), (199, SAMPLE)); // measured before it is idle
        load.forget(SAMPLE);
        load.spare();
        assert_eq!((load.cost, load.in_flight), (175, 0));
    }
}

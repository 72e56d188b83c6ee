//! Ends a living peer's access: [`Fabric::revoke`](crate::Fabric::revoke), and what follows a lost
//! connection.
//!
//! The owner of the memory closes its queue pairs to the peer, as Mu does with a deposed leader
//! (Aguilera et al., OSDI 2020): its card then drops all requests of the peer, whenever they were
//! posted. Revocation takes four steps, so that all requests of both sides end:
//!
//! 1. *Notice*: a write to the peer's home, which needs no action of the peer, because it may be
//!    stopped. A peer that is unreachable for a second gets no notice; one that the job reports
//!    dead, for a tenth of a second.
//! 2. *Error state*: the queue pair fails. This rank's requests in flight to the peer end, which is
//!    waited for, and nothing is posted to it any more. A card may still be executing an earlier
//!    request.
//! 3. *Reset*: the queue pair is reset. When the call returns, no request is executing either: a
//!    card that has forgotten its peer has nothing to do for it. Soft-RoCE before Linux 6.4 does not
//!    wait for a request whose execution a processor has begun: it may take effect later, where a
//!    virtual processor is stopped in it.
//! 4. *Record*: the cut table shows it to all ranks.
//!
//! Invalidating a key is no substitute: all peers share the key, and a request with a stale key
//! breaks the connection as well.
//!
//! The peer's own requests are no longer answered. Before its card gives up, after two seconds or
//! more, it finds the notice: a waiting thread checks for one several times a second, and closes
//! its side of the connection, too. The peer's requests in flight and its later ones end as
//! `Revoked`.
//!
//! A lost connection is closed by the same steps, by both of its ranks ([`cut`](super::cut)), but
//! for the notice: the job has told the peer already, and nothing counts as revoked.

use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use onesided_job::lock;
use onesided_remote_memory::{Fault, FaultKind, Liveness, Rank};

use crate::verbs::Inner;
use crate::verbs::peer::Peer;
use crate::verbs::queue::WorkRequest;
use crate::verbs::raw::Verb;
use crate::verbs::segment::RegionTable;
use crate::verbs::traffic::{ConnectionId, Traffic};
use crate::waiting::drive::now;

/// How long the notice may take, in nanoseconds.
const TELLING: u64 = 1_000_000_000;
/// The same for a rank that the job reports dead: most of them are, and do not answer.
const TELLING_THE_DEAD: u64 = 100_000_000;
/// How long the card may take to end requests in flight.
const CLOSING: u64 = 5_000_000_000;

/// The state of a revocation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Revocation {
    #[default]
    Not,
    /// The notice is among the first `posted` requests; and its deadline.
    Telling {
        posted: u64,
        until: u64,
    },
    /// The queue pair is in the error state; and the deadline of its requests.
    Closing {
        until: u64,
    },
    Done,
}

impl Inner {
    /// Whether this rank or a peer has revoked the other's access.
    pub(super) fn is_revoked(&self, rank: Rank) -> bool {
        let memory = self.peers.get(ConnectionId { rank, traffic: Traffic::Memory }.number());
        memory.and_then(OnceLock::get).is_some_and(|peer| peer.connection.is_closed())
            || self.region_table.is_noticed(rank)
    }

    /// The connections with a rank: that of memory, that of messages, the further rails.
    pub(super) fn peers_of(&self, rank: Rank) -> Result<[&Peer; Traffic::ALL.len()], Fault> {
        let [memory, messages, second, third] = Traffic::ALL.map(|traffic| self.peer(ConnectionId { rank, traffic }));
        Ok([memory?, messages?, second?, third?])
    }

    /// See [`Fence::Revoke`](crate::Fence::Revoke); and the same for a peer whose connection is lost, if
    /// not `revoked`.
    pub(super) fn end_access(&self, rank: Rank, revoked: bool) -> Result<bool, Fault> {
        let peers = self.peers_of(rank)?;
        let [peer, ..] = peers;
        self.progress();
        let mut revocation = lock(&peer.revocation);
        if let Revocation::Not = *revocation {
            let posted = if revoked { self.tell(peer) } else { 0 };
            let telling = match self.job_segment.liveness(rank) {
                Liveness::Dead => TELLING_THE_DEAD,
                Liveness::Alive | Liveness::Left | Liveness::NeverJoined => TELLING,
            };
            *revocation = Revocation::Telling { posted, until: now().saturating_add(telling) };
        }
        if let Revocation::Telling { posted, until } = *revocation {
            if !peer.queue.has_completed(posted) && !peer.connection.is_broken() && now() < until {
                return Ok(false);
            }
            peers.iter().for_each(|peer| peer.close(revoked));
            *revocation = Revocation::Closing { until: now().saturating_add(CLOSING) };
        }
        if let Revocation::Closing { until } = *revocation {
            peers.iter().for_each(|peer| self.report_packets(peer));
            if peers.iter().any(|peer| peer.queue.is_busy()) {
                // A repeated call waits as long again: the card may be slow.
                return if now() < until {
                    Ok(false)
                } else {
                    *revocation = Revocation::Closing { until: now().saturating_add(CLOSING) };
                    Err(Fault::of(FaultKind::TimedOut, rank))
                };
            }
            self.save_packets();
            peers
                .iter()
                .try_for_each(|peer| peer.reset())
                .map_err(|error| Fault::of(FaultKind::Refused, rank).with_detail(error.fault().detail()))?;
            self.region_table.record_cut(rank);
            *revocation = Revocation::Done;
        }
        Ok(true)
    }

    /// Writes the notice if it can be posted now. Returns how many requests were posted then.
    fn tell(&self, peer: &Peer) -> u64 {
        if !peer.connection.is_ready() {
            return 0; // refused when it asks for the connection
        }
        if let Some(taken) = self.buffers.take(8) {
            taken.buffer.word().store(1, Ordering::Relaxed);
            let to = peer.home.after(RegionTable::notice_of(self.rank));
            // The job may report a living rank dead.
            if self.try_post_to(peer, WorkRequest::new(Verb::Write { to }, &taken, 8), true) {
                self.forget(peer.id, taken.slot);
            } else {
                self.buffers.free(taken.slot);
            }
        }
        peer.queue.posted()
    }
}

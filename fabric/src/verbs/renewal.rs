//! Connections of messages that break between ranks that live, and are made anew.
//!
//! One breaks by a stale key, by a network that is silent for seconds, or because one side gives it up.
//! Once its requests have ended, and no death is expected to be the cause, each side
//!
//! 1. receives the packets that have arrived over it,
//! 2. ends its queue pair and counts one generation more,
//! 3. reports the loss, once ([`Transport::renewed`](crate::Transport::renewed)).
//!
//! The next request asks for the connection of that generation, as for a first one. A peer that has not
//! noticed learns of it by the [hello](super::connector), and does the same the next time that it takes
//! in packets.
//!
//! Where packets travel as datagrams, the connection of what messages read and write stays broken.
//! Nothing is made anew between ranks of which one has revoked the other's access or cut it, or whose
//! connection for memory is lost.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use onesided_remote_memory::{Fault, Liveness, Rank};

use crate::Renewed;
use crate::verbs::Inner;
use crate::verbs::arrivals::Arrivals;
use crate::verbs::peer::{ConnectionId, Peer, REFUSED, Revocation, Traffic, is_after_break};

impl Inner {
    /// Whether a connection may be made anew once it is broken.
    pub(super) fn may_renew(&self, ConnectionId { rank, traffic }: ConnectionId) -> bool {
        traffic == Traffic::Messages
            && self.datagrams.is_none()
            && self.job_segment.liveness(rank) == Liveness::Alive
            && !self.is_revoked(rank)
            && !self.job_segment.is_lost(self.rank, rank)
    }

    /// A connection is broken, and no death is the cause. Its packets' owner is told.
    pub(super) fn offer_renewal(&self) {
        self.has_to_renew.store(true, Ordering::Relaxed);
        self.ring();
        self.tell_handler(false);
    }

    /// The peer asks for a later connection than this rank has. Whether there will be one.
    pub(super) fn begins_anew(&self, peer: &Peer, generation: u64) -> bool {
        if !self.may_renew(peer.id) || !is_after_break(generation, peer.generation()) {
            return false;
        }
        peer.hear(generation);
        peer.fail_before(generation);
        self.offer_renewal();
        true
    }

    /// Makes a broken connection anew, and says why it broke.
    pub(super) fn renew_one(&self) -> Option<(Fault, Renewed)> {
        let is_to_renew = |peer: &&Peer| peer.is_broken() && self.may_renew(peer.id);
        let broken: Vec<_> = self.known_peers().filter(is_to_renew).map(|peer| peer.id.rank).collect();
        let renewed = broken.into_iter().find_map(|rank| self.renew(rank));
        if renewed.is_some() {
            self.has_to_renew.store(true, Ordering::Relaxed); // there may be more
        }
        renewed
    }

    /// The same of the connection to this rank. `None`: later.
    fn renew(&self, rank: Rank) -> Option<(Fault, Renewed)> {
        let [memory, peer] = self.peers_of(rank).ok()?;
        // Held against a cut.
        let revocation = memory.revocation.lock().unwrap_or_else(PoisonError::into_inner);
        if !peer.is_broken() || !matches!(*revocation, Revocation::Not) || !self.may_renew(peer.id) {
            return None;
        }
        // A death may be expected, requests may be in flight, and packets are to be received first.
        self.has_to_renew.store(true, Ordering::Relaxed);
        if self.detection_until(peer.id).is_some() {
            return None;
        }
        let fault = self.fault(peer.id, REFUSED);
        peer.fail_again(); // nothing arrives any more
        self.report_packets(peer);
        if peer.is_busy() || self.arrivals.get().is_some_and(Arrivals::save) {
            return None;
        }
        let is_missing = peer.take_deferred().is_some();
        self.end_connection(peer).then_some((fault, Renewed { is_missing }))
    }
}

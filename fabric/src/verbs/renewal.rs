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
//! A broken [rail](super::rails) ends without a report. The rails of a connection end with it, before its
//! loss is reported: what they move belongs to the messages that end.
//!
//! Where packets travel as datagrams, the connection of what messages read and write stays broken, and so
//! do packets to a peer if they take it, too; unless they are [kept](super::MESSAGES_RELIABLE). Then those of the
//! broken one become datagrams, its loss is not reported, and the next one is asked for at once.
//! Nothing is made anew between ranks of which one has revoked the other's access or cut it, or whose
//! connection for memory is lost.

use std::sync::atomic::Ordering;

use onesided_job::lock;
use onesided_remote_memory::{Fault, Liveness, Rank};

use crate::verbs::Inner;
use crate::verbs::arrivals::Arrivals;
use crate::verbs::connection::is_after_break;
use crate::verbs::peer::{Peer, REFUSED};
use crate::verbs::revoke::Revocation;
use crate::verbs::traffic::{ConnectionId, Traffic};
use crate::{Channel, Renewed};

impl Inner {
    /// Whether a connection may be made anew once it is broken.
    pub(super) fn may_renew(&self, ConnectionId { rank, traffic }: ConnectionId) -> bool {
        traffic != Traffic::Memory
            && (self.datagrams.is_none() || self.limits.is_reliable)
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
        if !self.may_renew(peer.id) || !is_after_break(generation, peer.connection.generation()) {
            return false;
        }
        peer.connection.hear(generation);
        peer.connection.give_up_before(generation);
        peer.fail_again();
        if peer.id.traffic.is_further_rail() {
            self.progress(); // the rank may compute
            self.end_rail(peer);
        } else {
            self.offer_renewal();
        }
        true
    }

    /// Ends a broken rail: the next request asks for another one. `false`: later. No error is
    /// reported, because its chunks are posted again.
    pub(super) fn end_rail(&self, rail: &Peer) -> bool {
        let Ok([memory, ..]) = self.peers_of(rail.id.rank) else { return false };
        // Held against a cut.
        let revocation = lock(&memory.revocation);
        if !rail.connection.is_broken() || !matches!(*revocation, Revocation::Not) || !self.may_renew(rail.id) {
            return false;
        }
        rail.fail_again(); // nothing arrives any more
        drop(lock(&rail.queue.posting)); // a post that started before is counted
        let is_over = !rail.queue.is_busy();
        if is_over {
            // Nothing is being written either when the peer hears of the next generation. If this fails, the
            // card is gone.
            let _ = rail.reset();
        }
        let is_ended = is_over && self.end_connection(rail);
        if !is_ended {
            self.has_to_renew.store(true, Ordering::Relaxed);
        }
        is_ended
    }

    /// Makes a broken connection anew, and says why it broke.
    pub(super) fn renew_one(&self) -> Option<(Fault, Renewed)> {
        let is_to_renew = |peer: &&Peer| peer.connection.is_broken() && self.may_renew(peer.id);
        let broken: Vec<_> = self.known_peers().filter(is_to_renew).collect();
        let (rails, broken): (Vec<_>, Vec<_>) = broken.into_iter().partition(|peer| peer.id.traffic.is_further_rail());
        for rail in rails {
            self.end_rail(rail);
        }
        let renewed = broken.into_iter().find_map(|peer| self.renew(peer.id.rank));
        if renewed.is_some() {
            self.has_to_renew.store(true, Ordering::Relaxed); // there may be more
        }
        renewed
    }

    /// The same of the connection to this rank. `None`: later.
    fn renew(&self, rank: Rank) -> Option<(Fault, Renewed)> {
        let [memory, peer, rails @ ..] = self.peers_of(rank).ok()?;
        // Held against a cut.
        let revocation = lock(&memory.revocation);
        if !peer.connection.is_broken() || !matches!(*revocation, Revocation::Not) || !self.may_renew(peer.id) {
            return None;
        }
        // A death may be expected, requests may be in flight, and packets are to be received first.
        self.has_to_renew.store(true, Ordering::Relaxed);
        if self.detection_until(peer.id).is_some() {
            return None;
        }
        let fault = self.fault(peer.id, REFUSED);
        peer.fail_again(); // nothing arrives any more
        rails.iter().for_each(|rail| rail.fail()); // what belongs to messages that end now
        self.report_packets(peer);
        let is_busy = peer.queue.is_busy() || rails.iter().any(|rail| rail.queue.is_busy());
        // What another thread has saved may be this connection's.
        if is_busy || self.save() || self.arrivals.get().is_some_and(Arrivals::packets_wait) {
            return None;
        }
        for rail in rails {
            self.end_connection(rail);
        }
        let is_missing = peer.take_deferred().is_some();
        self.end_connection(peer).then_some((fault, Renewed { channel: Channel::Connection, is_missing }))
    }
}

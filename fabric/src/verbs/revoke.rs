//! Ending a peer's access, though it lives: [`Fabric::revoke`](crate::Fabric::revoke).
//!
//! The rank whose memory it is closes its queue pair to the peer, as Mu does with a leader that is not one any more (Aguilera
//! et al., OSDI 2020): from then on its card drops what comes from there, whatever the peer has posted and however long ago.
//! It takes three steps, so that nothing of either side is left without an end:
//!
//! 1. *The peer is told*, by a write to its home, which needs no help of it: it may be stopped. A peer that is not reached
//!    within a second is not told.
//! 2. *The queue pair goes to the error state.* What this rank has under way there ends, which is waited for; nothing is
//!    posted to it any more. A card may still be in the middle of a request that came before.
//! 3. *The queue pair is reset.* That is done when the call returns, and ends the middle of a request as well: a card that has
//!    forgotten its peer has nothing to do for it.
//!
//! A key that is invalidated would not do in its place: it would be every peer's, and a request with a stale key ends the
//! connection as well.
//!
//! The peer finds out by its own requests, which nobody answers any more. Before its card gives up, after two seconds or more,
//! it finds the notice: whoever waits looks for one a few times a second, and closes this side of the connection, too. What it
//! had under way ends as `Revoked`, and what it posts later.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use onesided_remote_memory::{Fault, FaultKind, Rank};

use crate::drive::now;
use crate::verbs::Inner;
use crate::verbs::peer::{Peer, Revocation};
use crate::verbs::queue::Order;
use crate::verbs::raw::Verb;
use crate::verbs::segment::Directory;

/// How long the peer may take to be told, in nanoseconds.
const TELLING: u64 = 1_000_000_000;
/// How long the card may take to end what is under way.
const CLOSING: u64 = 5_000_000_000;

impl Inner {
    /// Whether one of this rank and a peer has ended the access of the other.
    pub(super) fn is_revoked(&self, rank: Rank) -> bool {
        self.peer(rank).is_ok_and(Peer::is_closed) || self.directory.is_noticed(rank)
    }

    /// See [`Fabric::revoke`](crate::Fabric::revoke).
    pub(super) fn revoke(&self, rank: Rank) -> Result<bool, Fault> {
        let peer = self.peer(rank)?;
        if rank == self.rank {
            return Err(Fault::of(FaultKind::Unsupported, rank));
        }
        self.progress();
        let mut revocation = peer.revocation.lock().unwrap_or_else(PoisonError::into_inner);
        if let Revocation::Not = *revocation {
            let posted = self.tell(rank, peer);
            *revocation = Revocation::Telling { posted, until: now().saturating_add(TELLING) };
        }
        if let Revocation::Telling { posted, until } = *revocation {
            if !peer.has_completed(posted) && !peer.is_broken() && now() < until {
                return Ok(false);
            }
            peer.close();
            *revocation = Revocation::Closing { until: now().saturating_add(CLOSING) };
        }
        if let Revocation::Closing { until } = *revocation {
            if peer.is_busy() {
                // Asked again it waits as long: the card may be slow.
                return if now() < until {
                    Ok(false)
                } else {
                    *revocation = Revocation::Closing { until: now().saturating_add(CLOSING) };
                    Err(Fault::of(FaultKind::TimedOut, rank))
                };
            }
            peer.pair
                .reset()
                .map_err(|error| Fault::of(FaultKind::Refused, rank).with_detail(error.fault().detail()))?;
            *revocation = Revocation::Done;
        }
        Ok(true)
    }

    /// Writes the notice, if that can be posted at once. Gives how many requests were posted then.
    fn tell(&self, rank: Rank, peer: &Peer) -> u64 {
        if let Some(room) = self.slots.take(8) {
            room.piece.word().store(1, Ordering::Relaxed);
            let to = peer.home.after(Directory::notice_of(self.rank));
            if self.try_post(rank, Order::new(Verb::Write { to }, &room, 8)) {
                self.forget(rank, room.slot);
            } else {
                self.slots.free(room.slot);
            }
        }
        peer.posted()
    }
}

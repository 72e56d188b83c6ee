//! The end of requests: what a completion means, and where it is reported.

use std::hint::spin_loop;
use std::sync::atomic::Ordering;

use ibverbs_sys::ibv_wc_status;
use onesided_job::lock;
use onesided_remote_memory::{Fault, FaultKind};

use crate::verbs::Inner;
use crate::verbs::bounce_buffers::Outcome;
use crate::verbs::peer::{NO_SPACE, REFUSED};
use crate::verbs::queue::{NUMBER, NUMBER_BITS};
use crate::verbs::send_queue::Entry;
use crate::verbs::traffic::{ConnectionId, Traffic};

impl Inner {
    #[inline]
    pub(super) fn report(&self, to: ConnectionId, outcome: Outcome) {
        if let (Outcome::Missed(status), Ok(peer)) = (outcome, self.peer(to)) {
            peer.defer(self.fault(to, status));
        }
    }

    /// Drains a completion: of the request with this number, and of the unsignaled ones before it.
    /// Only the thread that holds the drain lock calls it.
    pub(super) fn complete(&self, id: u64, status: u32) {
        let Ok(peer) = self.peer(ConnectionId::of(id >> NUMBER_BITS)) else { return };
        if status != 0 {
            peer.connection.break_by(status);
            if peer.id.traffic != Traffic::Memory {
                self.has_to_renew.store(true, Ordering::Relaxed); // a thread that never sleeps looks, too
            }
        }
        let first = peer.queue.completed.load(Ordering::Relaxed);
        let ahead = id.wrapping_sub(first) & NUMBER;
        if ahead >= peer.queue.depth as u64 {
            return peer.fail(); // a duplicate: no correct card sends one, and no wait may follow
        }
        let last = first + ahead;
        let mut number = first;
        loop {
            // It was written before the request was posted, so the loop ends at once; reading it
            // orders its slot as well.
            let entry = loop {
                let entry = Entry(peer.queue.entry(number).load(Ordering::Acquire));
                if entry.is_of(number) {
                    break entry;
                }
                spin_loop();
            };
            if entry.keeps() {
                lock(&self.in_flight).remove(&entry.slot());
            }
            self.report(peer.id, self.buffers.complete(entry.slot(), if number == last { status } else { 0 }));
            peer.queue.completed.store(number + 1, Ordering::Release);
            if number == last {
                break;
            }
            number += 1;
        }
    }

    /// The fault of a completion's status, for its report after the [detection
    /// timeout](Self::detection_until).
    pub(super) fn fault(&self, to: ConnectionId, status: u32) -> Fault {
        let rank = to.rank;
        let broken = self.peer(to).map_or(0, |peer| peer.connection.broken());
        // The rank's end takes precedence over the library's status.
        if let Err(ended) = self.job_segment.liveness(rank).needed(rank) {
            return ended;
        }
        let kind = match status {
            _ if self.is_revoked(rank) => return Fault::of(FaultKind::Revoked, rank),
            NO_SPACE => return Fault::of(FaultKind::Full, rank),
            REFUSED if broken == 0 => return Fault::of(FaultKind::Refused, rank),
            REFUSED => return Fault::of(FaultKind::ConnectionLost, rank).with_detail(broken),
            // The target's card found no such memory, and did nothing.
            ibv_wc_status::IBV_WC_REM_ACCESS_ERR => FaultKind::NoSuchRegion,
            // The message goes another way.
            _ if self.limits.is_reliable && to.traffic == Traffic::Messages => FaultKind::ConnectionLost,
            _ => FaultKind::Unknown,
        };
        Fault::of(kind, rank).with_detail(status)
    }
}

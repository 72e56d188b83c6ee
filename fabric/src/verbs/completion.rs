//! How requests end: what a completion says, and who is told.

use std::hint::spin_loop;
use std::sync::atomic::Ordering;

use ibverbs_sys::ibv_wc_status;
use onesided_remote_memory::{Fault, FaultKind, Liveness, Rank};

use crate::verbs::Inner;
use crate::verbs::peer::{CROWDED_OUT, Entry, REFUSED};
use crate::verbs::queue::{NUMBER, NUMBER_BITS};
use crate::verbs::slots::Outcome;

impl Inner {
    #[inline]
    pub(super) fn settle(&self, rank: Rank, outcome: Outcome) {
        if let (Outcome::Missed(status), Ok(peer)) = (outcome, self.peer(rank)) {
            peer.stick(self.fault(rank, status));
        }
    }

    /// Takes in a completion: of the request with this number, and of those before it that do not report. Only one thread
    /// at a time does: the one that reaps.
    pub(super) fn complete(&self, id: u64, status: u32) {
        let rank = Rank((id >> NUMBER_BITS) as u32);
        let Ok(peer) = self.peer(rank) else { return };
        if status != 0 {
            let _ = peer.broken.compare_exchange(0, status, Ordering::AcqRel, Ordering::Relaxed);
        }
        let first = peer.completed.load(Ordering::Relaxed);
        let ahead = id.wrapping_sub(first) & NUMBER;
        if ahead >= peer.depth as u64 {
            return peer.fail(); // of a request that has completed: no card does that, and no wait may be for it
        }
        let last = first + ahead;
        let mut number = first;
        loop {
            // It was written before the request was posted, so the loop ends at once; that it was read shows its slot too.
            let entry = loop {
                let entry = Entry(peer.entry(number).load(Ordering::Acquire));
                if entry.is_of(number) {
                    break entry;
                }
                spin_loop();
            };
            if entry.keeps() {
                self.kept().remove(&entry.slot());
            }
            self.settle(rank, self.slots.complete(entry.slot(), if number == last { status } else { 0 }));
            peer.completed.store(number + 1, Ordering::Release);
            if number == last {
                return;
            }
            number += 1;
        }
    }

    /// What a completion's status means.
    pub(super) fn fault(&self, rank: Rank, status: u32) -> Fault {
        let broken = self.peer(rank).map_or(0, |peer| peer.broken.load(Ordering::Acquire));
        let kind = match (self.board.liveness(rank), status) {
            // That says it all, whichever of the library's numbers it came as.
            (Liveness::Dead, _) => return Fault::of(FaultKind::PeerDied, rank),
            (Liveness::Left, _) => return Fault::of(FaultKind::PeerLeft, rank),
            _ if self.is_revoked(rank) => return Fault::of(FaultKind::Revoked, rank),
            (Liveness::Alive, CROWDED_OUT) => return Fault::of(FaultKind::Full, rank),
            (Liveness::Alive, REFUSED) => return Fault::of(FaultKind::Refused, rank).with_detail(broken),
            // The target's card found no such memory, and did nothing.
            (Liveness::Alive, ibv_wc_status::IBV_WC_REM_ACCESS_ERR) => FaultKind::NoSuchRegion,
            (Liveness::Alive, _) => FaultKind::Unknown,
        };
        Fault::of(kind, rank).with_detail(status)
    }

    /// Ends at once what is under way to ranks that died: their cards' silence would end it too, but later.
    pub(super) fn give_up_on_the_dead(&self) {
        self.turn();
        if self.board.failed_rank().is_none() {
            return;
        }
        for (rank, peer) in (0..).map(Rank).zip(&self.peers) {
            if self.board.liveness(rank) == Liveness::Dead {
                peer.fail();
            }
        }
    }
}

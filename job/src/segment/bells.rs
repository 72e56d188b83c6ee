//! The doorbells of the ranks, and of their handlers.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use onesided_remote_memory::Rank;
use rustix::thread::futex;

use crate::segment::JobSegment;
use crate::segment::doorbell::{Doorbell, SolicitedBell, Ticket};
use crate::segment::job_segment::{RINGS_AT, SLEEPERS_AT, SOLICITED_ARMED_AT, SOLICITED_RINGS_AT};

impl JobSegment {
    /// The doorbell of a rank.
    #[inline]
    pub fn doorbell(&self, rank: Rank) -> Doorbell<'_> {
        let fields_of = self.fields_of(rank);
        Doorbell { rings: self.half(fields_of + RINGS_AT), sleepers: self.half(fields_of + SLEEPERS_AT) }
    }

    /// Wakes the sleeping threads of a rank.
    #[inline]
    pub fn wake(&self, rank: Rank) {
        self.doorbell(rank).ring(wake_all);
    }

    /// Wakes the other sleeping threads of a rank, for one that has armed; see
    /// [`Doorbell::ring_others`].
    #[inline]
    pub fn wake_others(&self, rank: Rank, armed: Ticket) -> Ticket {
        self.doorbell(rank).ring_others(armed, wake_all)
    }

    /// Sleeps until the rank's doorbell has rung since the ticket was taken, or for `limit`.
    #[inline]
    pub fn sleep(&self, rank: Rank, ticket: Ticket, limit: Duration) {
        wait(self.doorbell(rank).rings, ticket, limit);
    }

    /// The doorbell of a rank's handler.
    #[inline]
    pub fn solicited_bell(&self, rank: Rank) -> SolicitedBell<'_> {
        let fields_of = self.fields_of(rank);
        SolicitedBell {
            rings: self.half(fields_of + SOLICITED_RINGS_AT),
            armed: self.half(fields_of + SOLICITED_ARMED_AT),
        }
    }

    /// Wakes a rank's handler after a solicited packet, if it is armed. Returns whether it is.
    #[inline]
    pub fn solicit(&self, rank: Rank) -> bool {
        self.solicited_bell(rank).ring(wake_all)
    }

    /// Wakes a rank's handler, armed or not.
    pub fn wake_handler(&self, rank: Rank) {
        let rings = self.solicited_bell(rank).rings;
        rings.fetch_add(1, Ordering::AcqRel);
        wake_all(rings);
    }

    /// The rank's handler sleeps until its doorbell has rung since the ticket was taken, or for
    /// `limit`.
    pub fn sleep_solicited(&self, rank: Rank, ticket: Ticket, limit: Duration) {
        wait(self.solicited_bell(rank).rings, ticket, limit);
    }
}

fn wait(rings: &AtomicU32, ticket: Ticket, limit: Duration) {
    let timeout =
        futex::Timespec { tv_sec: limit.as_secs().min(1 << 30) as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
    // Not private: the ringer is another process. On every outcome (woken, too late, timed out,
    // signal) the caller polls.
    let _ = futex::wait(rings, futex::Flags::empty(), ticket.0, Some(&timeout));
}

fn wake_all(rings: &AtomicU32) {
    let _ = futex::wake(rings, futex::Flags::empty(), i32::MAX as u32);
}

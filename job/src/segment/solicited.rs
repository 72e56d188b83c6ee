//! The doorbells of handlers.

use std::sync::atomic::Ordering;

use onesided_remote_memory::Rank;
use rustix::thread::futex;

use crate::segment::JobSegment;
use crate::segment::doorbell::{SolicitedBell, Ticket};
use crate::segment::job_segment::{SOLICITED_ARMED_AT, SOLICITED_RINGS_AT, wake_all};

impl JobSegment {
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

    /// The rank's handler sleeps until its doorbell has rung since the ticket was taken.
    pub fn sleep_solicited(&self, rank: Rank, ticket: Ticket) {
        let _ = futex::wait(self.solicited_bell(rank).rings, futex::Flags::empty(), ticket.0, None);
    }
}

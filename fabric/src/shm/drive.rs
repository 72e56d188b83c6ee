//! Waiting on shared memory: the doorbell of a rank.

use std::sync::Arc;
use std::time::Duration;

use onesided_remote_memory::Rank;

use crate::drive;
use crate::endpoint::Driver;
use crate::shm::{Board, Shm};
use crate::{Drive, Ticket};

impl Drive for Shm {
    #[inline]
    fn progress(&self) -> usize {
        0 // an operation is done when it returns, and mail is taken in by whoever receives
    }

    fn arm(&self) -> Ticket {
        self.0.endpoint.driver().arm()
    }

    fn sleep(&self, ticket: Ticket, until: u64) {
        self.0.endpoint.driver().sleep(ticket, until);
    }

    fn disarm(&self, _ticket: Ticket) {
        self.board().doorbell(self.me()).disarm();
    }

    fn oversubscribed(&self) -> bool {
        self.0.crowd.is(self.board(), self.me())
    }

    fn shares_its_core(&self) -> bool {
        self.0.crowd.attends()
    }

    fn unfinished(&self) -> usize {
        self.0.endpoint.adopted()
    }
}

/// A rank's place on the board, without its part in the job.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) board: Arc<Board>,
    pub(super) rank: Rank,
}

impl Driver for Seat {
    fn now(&self) -> u64 {
        drive::now()
    }

    fn progress(&self) {}

    fn arm(&self) -> Ticket {
        self.board.doorbell(self.rank).arm()
    }

    fn sleep(&self, ticket: Ticket, until: u64) {
        match until.checked_sub(self.now()) {
            _ if until == u64::MAX => self.board.sleep(self.rank, ticket, Duration::MAX),
            None | Some(0) => std::thread::yield_now(), // somebody tries without a pause, and others need the core
            Some(nanos) => self.board.sleep(self.rank, ticket, Duration::from_nanos(nanos)),
        }
        self.board.doorbell(self.rank).disarm();
    }

    fn wake(&self) {
        self.board.wake(self.rank);
    }

    fn wake_others(&self, armed: Ticket) -> Ticket {
        self.board.wake_others(self.rank, armed)
    }
}

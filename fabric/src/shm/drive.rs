//! Waiting on shared memory: the doorbell of a rank.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use onesided_remote_memory::Rank;

use crate::shm::{JobSegment, Shm};
use crate::waiting::drive;
use crate::waiting::tasks::Driver;
use crate::{Drive, Polls, SolicitedEvents, Tasks, Ticket};

impl Drive for Shm {
    #[inline]
    fn progress(&self) -> usize {
        0 // operations complete at post, and receivers drain messages
    }

    #[inline]
    fn polls(&self) -> Polls {
        Polls::of(self.0.oversubscription.core(self.job_segment(), self.me()))
    }

    fn tasks(&self) -> &Tasks {
        &self.0.endpoint
    }
}

impl SolicitedEvents for Shm {
    fn arm(&self) {
        self.job_segment().solicited_bell(self.me()).arm();
    }

    fn disarm(&self) {
        self.job_segment().solicited_bell(self.me()).disarm();
    }

    fn ticket(&self) -> Ticket {
        self.job_segment().solicited_bell(self.me()).ticket()
    }

    fn poll_sleep(&self, ticket: Ticket, until: u64) -> Poll<()> {
        let limit = match until {
            u64::MAX => Duration::MAX,
            _ => Duration::from_nanos(until.saturating_sub(drive::now())),
        };
        self.job_segment().sleep_solicited(self.me(), ticket, limit);
        Poll::Ready(())
    }

    fn wake(&self) {
        self.job_segment().wake_handler(self.me());
    }
}

/// A rank's fields in the job segment, without its part in the job.
#[derive(Debug)]
pub(super) struct DoorbellDriver {
    pub(super) job_segment: Arc<JobSegment>,
    pub(super) rank: Rank,
}

impl Driver for DoorbellDriver {
    fn arm(&self) -> Ticket {
        self.job_segment.doorbell(self.rank).arm()
    }

    fn sleep(&self, ticket: Ticket, until: u64) {
        match until {
            0 => {}
            u64::MAX => self.job_segment.sleep(self.rank, ticket, Duration::MAX),
            _ => match until.saturating_sub(self.now()) {
                0 => std::thread::yield_now(), // a task retries without pause, and others need the core
                nanos => self.job_segment.sleep(self.rank, ticket, Duration::from_nanos(nanos)),
            },
        }
        self.job_segment.doorbell(self.rank).disarm();
    }

    fn wake(&self) {
        self.job_segment.wake(self.rank);
    }

    fn wake_others(&self, armed: Ticket) -> Ticket {
        self.job_segment.wake_others(self.rank, armed)
    }
}

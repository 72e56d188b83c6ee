//! What ends a job's start before all hosts have answered.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::Signal;

use crate::Error;
use crate::launcher::Interrupt;
use crate::timespec;

/// How long hosts may take to answer, and the interrupts that end the start sooner.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits<'i> {
    pub(super) until: Instant,
    /// The total patience, for errors.
    pub(super) patience: Duration,
    pub(super) interrupts: &'i [Interrupt],
}

/// Why a job was not started.
pub(super) enum NotStarted {
    Interrupted(Signal),
    Failed(Error),
}

impl From<Error> for NotStarted {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Limits<'_> {
    /// Waits until this is readable. `false`: out of time.
    pub(super) fn wait_for(&self, readable: BorrowedFd<'_>) -> Result<bool, NotStarted> {
        self.wait_for_any(&[readable])
    }

    /// Waits until any of these is readable. `false`: out of time.
    pub(super) fn wait_for_any(&self, readable: &[BorrowedFd<'_>]) -> Result<bool, NotStarted> {
        loop {
            let left = self.until.saturating_duration_since(Instant::now());
            let raised = self.interrupts.iter().map(|interrupt| interrupt.raised.as_fd());
            let all = raised.chain(readable.iter().copied());
            let mut polled: Vec<_> = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
            let ready = poll(&mut polled, Some(&timespec(left))).is_ok_and(|ready| ready > 0);
            if let Some(signal) = raised_of(self.interrupts, &polled).filter(|_| ready) {
                return Err(NotStarted::Interrupted(signal));
            }
            if ready || left.is_zero() {
                return Ok(ready && !left.is_zero());
            }
        }
    }
}

/// The first interrupt that was raised; the interrupts come first among the polled.
pub(super) fn raised_of(interrupts: &[Interrupt], polled: &[PollFd<'_>]) -> Option<Signal> {
    let (interrupt, _) = interrupts.iter().zip(polled).find(|(_, polled)| !polled.revents().is_empty())?;
    // Reads one byte: two signals are two interrupts.
    let _ = rustix::io::read(&interrupt.raised, &mut [0; 1]);
    Some(interrupt.signal)
}

//! An eventfd, which ends the sleep of a thread that polls it beside the card's events.

use std::os::fd::{AsFd, BorrowedFd};

use onesided_job::fork::is_child;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;

use crate::Error;

#[derive(Debug)]
pub(super) struct WakeUp(OwnedFd);

impl WakeUp {
    pub(super) fn new() -> Result<Self, Error> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(Self).map_err(|source| Error::Verbs {
            call: "eventfd",
            source: source.into(),
            hint: "",
        })
    }

    /// Makes it readable.
    pub(super) fn ring(&self) {
        // Fails only if it is already readable.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Makes it unreadable again. A forked child would take what wakes its parent.
    pub(super) fn clear(&self) {
        if !is_child() {
            let _ = rustix::io::read(&self.0, &mut [0; 8]);
        }
    }
}

impl AsFd for WakeUp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

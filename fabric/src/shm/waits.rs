//! The pending futures of shared memory.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use onesided_remote_memory::{Fault, FaultKind, Patience, RemoteMemory};

use crate::peer_status::PeerStatus;
use crate::shm::{Shm, ShmWord};

/// The future of [`RemoteMemory::wait_until`] over shared memory.
#[derive(Debug)]
pub struct ShmWait<'f, P> {
    pub(super) shm: &'f Shm,
    pub(super) own: ShmWord<'f>,
    pub(super) predicate: P,
    pub(super) patience: Patience,
}

impl<P: Fn(u64) -> bool + Unpin> Future for ShmWait<'_, P> {
    type Output = Result<u64, Fault>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { shm, own, predicate, patience } = &*self;
        if own.owner != shm.rank() {
            return Poll::Ready(Err(Fault::of(FaultKind::NotOwn, own.owner)));
        }
        let look = || Some(own.word.load(Ordering::Acquire)).filter(|value| predicate(*value));
        if let Some(value) = look() {
            return Poll::Ready(Ok(value));
        }
        if let Err(fault) = shm.out_of_patience(*patience) {
            // The peer status was read before the word: a write before the end counts.
            return Poll::Ready(look().ok_or(fault));
        }
        shm.0.endpoint.register_waker(cx, patience.deadline);
        Poll::Pending
    }
}

/// The future of [`RemoteMemory::pause`] over shared memory.
#[derive(Debug)]
pub struct ShmPause<'f> {
    pub(super) shm: &'f Shm,
    pub(super) nanos: u64,
    pub(super) until: Option<u64>,
}

impl Future for ShmPause<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let (now, nanos) = (self.shm.now(), self.nanos);
        let until = match self.until {
            Some(until) if now >= until => return Poll::Ready(()),
            Some(until) => until,
            // Pending at least once, so that an attempt without backoff yields to others.
            None => *self.until.insert(now.saturating_add(nanos)),
        };
        self.shm.0.endpoint.register_waker(cx, until);
        Poll::Pending
    }
}

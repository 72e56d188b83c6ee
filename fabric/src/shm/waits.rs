//! The pending futures of shared memory.

use std::future::Future;
use std::pin::Pin;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use onesided_remote_memory::{Fault, FaultKind, Message, Notify, Patience, Port, Rank, RemoteMemory};

use crate::peer_status::PeerStatus;
use crate::receive_queues::Taken;
use crate::shm::segment_ring::SegmentRing;
use crate::shm::{Shm, ShmWord};

/// A full ring's reader rings no doorbell when it makes space, so a sender polls again after this
/// many nanoseconds.
const FULL: u64 = 20_000;

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

/// How long a pause does not watch its word, in nanoseconds: an eighth of the pause, within these
/// bounds. Waiters that look at every change disturb the owners of a lock that is held briefly.
const BLIND: [u64; 2] = [256, 4096];

/// The future of [`RemoteMemory::pause`] over shared memory: it also ends early when the thread
/// that polls it sees that the word has changed.
#[derive(Debug)]
pub struct ShmPause<'f> {
    shm: &'f Shm,
    nanos: u64,
    /// The word, and its value when the pause began; `None` if the pause is too short to watch it.
    watched: Option<(ShmWord<'f>, u64)>,
    /// When the pause begins to watch the word, and when it ends; set by the first poll.
    times: Option<[u64; 2]>,
}

impl<'f> ShmPause<'f> {
    #[inline]
    pub(super) fn new(shm: &'f Shm, word: ShmWord<'f>, nanos: u64) -> Self {
        let watched = (nanos > BLIND[0]).then(|| (word, word.load()));
        Self { shm, nanos, watched, times: None }
    }
}

impl Future for ShmPause<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let now = self.shm.now();
        let until = match self.times {
            Some([_, until]) if now >= until => return Poll::Ready(()),
            Some([watches, until]) => match self.watched {
                Some((word, before)) if now >= watches && word.load() != before => return Poll::Ready(()),
                _ => until,
            },
            // Pending at least once, so that an attempt without backoff yields to others.
            None => {
                let until = now.saturating_add(self.nanos);
                let watches = now.saturating_add((self.nanos / 8).clamp(BLIND[0], BLIND[1]));
                self.times = Some([watches, until]);
                until
            }
        };
        self.shm.0.endpoint.register_waker(cx, until);
        Poll::Pending
    }
}

/// The future of [`Mailbox::send`](onesided_remote_memory::Mailbox::send) over shared memory.
#[derive(Debug)]
pub struct ShmSend<'f> {
    pub(super) shm: &'f Shm,
    pub(super) to: Rank,
    pub(super) port: Port,
    pub(super) notify: Notify,
    pub(super) message: Result<Message, Fault>,
    pub(super) sent: bool,
    /// The deadline, set when the ring was found full.
    pub(super) until: Option<u64>,
}

impl ShmSend<'_> {
    /// Sends if there is space. Does not send to a rank that has died or left; the poll then
    /// returns the fault.
    pub(super) fn try_now(&mut self) {
        let Ok(message) = &self.message else { return };
        if self.shm.ended(Patience::on(self.to)).is_err() {
            return;
        }
        let ring = SegmentRing::new(self.shm.job_segment(), self.shm.rank(), self.to);
        let mut writer = self.shm.0.outboxes[self.to.index()].lock().unwrap_or_else(PoisonError::into_inner);
        self.sent = writer.push(&ring, self.port, message);
        drop(writer);
        if self.sent && self.notify == Notify::Yes {
            self.shm.job_segment().wake(self.to);
        }
    }
}

impl Future for ShmSend<'_> {
    type Output = Result<(), Fault>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Err(fault) = self.message {
            return Poll::Ready(Err(fault));
        }
        if self.sent {
            return Poll::Ready(Ok(()));
        }
        self.try_now();
        if self.sent {
            return Poll::Ready(Ok(()));
        }
        if let Err(fault) = self.shm.ended(Patience::on(self.to)) {
            return Poll::Ready(Err(fault));
        }
        // Two ranks that send to each other before they receive both drain.
        if let Err(fault) = self.shm.drain() {
            return Poll::Ready(Err(fault));
        }
        let now = self.shm.now();
        let after = self.shm.0.full_after.nanos();
        let until = *self.until.get_or_insert(now.saturating_add(after));
        if now >= until {
            return Poll::Ready(Err(Fault::of(FaultKind::Full, self.to)));
        }
        self.shm.0.endpoint.register_waker(cx, until.min(now + FULL));
        Poll::Pending
    }
}

/// The future of [`Mailbox::recv`](onesided_remote_memory::Mailbox::recv) over shared memory.
#[derive(Debug)]
pub struct ShmRecv<'f> {
    pub(super) shm: &'f Shm,
    pub(super) port: Port,
    pub(super) patience: Patience,
}

impl Future for ShmRecv<'_> {
    type Output = Result<Message, Fault>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { shm, port, patience } = *self;
        let take = || {
            shm.drain()?;
            let Some(Taken { message, made_room }) = shm.0.receive_queues.pop(port)? else { return Ok(None) };
            if made_room {
                shm.job_segment().wake(shm.rank()); // for receivers of messages that were held back
            }
            Ok(Some(message))
        };
        match take() {
            Ok(Some(message)) => return Poll::Ready(Ok(message)),
            Ok(None) => {}
            Err(fault) => return Poll::Ready(Err(fault)),
        }
        if let Err(fault) = shm.out_of_patience(patience) {
            // The peer status was read before the queue: a message sent before the end counts.
            return Poll::Ready(take().transpose().unwrap_or(Err(fault)));
        }
        shm.0.endpoint.register_waker(cx, patience.deadline);
        Poll::Pending
    }
}

//! The pending futures of shared memory.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use onesided_remote_memory::{Fault, Patience, RemoteMemory};

use crate::shm::{Shm, ShmWord};
use crate::waiting::peer_status::PeerStatus;

/// The future of [`RemoteMemory::wait_until`] over shared memory.
#[derive(Debug)]
pub struct ShmWait<'f, P> {
    pub(super) shm: &'f Shm,
    pub(super) own: ShmWord<'f>,
    pub(super) predicate: P,
    pub(super) patience: Patience,
    /// How many looks the next poll takes beside its one.
    pub(super) looks: u32,
}

impl<P: Fn(u64) -> bool + Unpin> Future for ShmWait<'_, P> {
    type Output = Result<u64, Fault>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut looks = std::mem::take(&mut self.looks);
        let Self { shm, own, predicate, patience, .. } = &*self;
        let own = own.own()?;
        let look = || Some(own.load(Ordering::Acquire)).filter(|value| predicate(*value));
        while looks > 0 && look().is_none() {
            looks -= 1;
            std::hint::spin_loop();
        }
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

/// A pause of fewer nanoseconds takes less than two looks at the clock: it is one hint to the
/// processor, and never pending.
const SHORTEST: u64 = 32;

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
        if (1..SHORTEST).contains(&self.nanos) {
            std::hint::spin_loop();
            return Poll::Ready(());
        }
        let now = self.shm.now();
        let until = match self.times {
            Some([_, until]) if now >= until => return Poll::Ready(()),
            Some([watches, until]) => match self.watched {
                Some((word, before)) if now >= watches && word.load() != before => return Poll::Ready(()),
                _ => until,
            },
            // Pending at least once, so that attempts without backoff yield to others.
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

//! The deadline of a handle.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use onesided_remote_memory::{At, RegionId, debug};

use crate::Fabric;

/// The deadline of a handle, which may be set at any time. It counts from the next poll of the
/// handle.
#[doc(hidden)]
pub struct Limit<'f, F: Fabric> {
    /// The duration set since the last poll.
    pub said: Option<Duration>,
    /// Boxed, to keep a handle without a deadline small.
    timer: Option<Box<Timer<'f, F>>>,
}

struct Timer<'f, F: Fabric> {
    until: u64,
    /// An own word that nothing changes, for the fabric's pause.
    word: F::Word<'f>,
    pause: F::Pause<'f>,
}

impl<F: Fabric> Default for Limit<'_, F> {
    fn default() -> Self {
        Self::NONE
    }
}

debug!([F: Fabric] Limit<'_, F>, |this| "{}", if this.is_set() { "a deadline" } else { "no deadline" });

impl<'f, F: Fabric> Limit<'f, F> {
    /// No deadline.
    pub const NONE: Self = Self { said: None, timer: None };

    /// Whether there is a deadline.
    pub const fn is_set(&self) -> bool {
        self.said.is_some() || self.timer.is_some()
    }

    /// Ready once the deadline has passed. Polled after the operation, whose completion takes
    /// precedence.
    pub fn poll(&mut self, cx: &mut Context<'_>, fabric: &'f F) -> Poll<()> {
        if let Some(after) = self.said.take() {
            let nanos = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX);
            // The world segment lives as long as its fabric; a fabric without one has no waits to
            // limit.
            let Ok(word) = fabric.word(At { rank: fabric.rank(), region: RegionId(0), offset: 0 }) else {
                return Poll::Ready(());
            };
            let until = fabric.now().saturating_add(nanos);
            self.timer = Some(Box::new(Timer { until, word, pause: fabric.pause(word, nanos) }));
        }
        let Some(timer) = &mut self.timer else { return Poll::Pending };
        loop {
            match timer.until.saturating_sub(fabric.now()) {
                0 => return Poll::Ready(()),
                left => {
                    ready!(Pin::new(&mut timer.pause).poll(cx));
                    timer.pause = fabric.pause(timer.word, left);
                }
            }
        }
    }
}

//! When a handle gives up.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use onesided_remote_memory::{At, RegionId};

use crate::Fabric;

/// The deadline of a handle, which may be said, and said again, at any time: it counts from the next look at the handle on.
#[doc(hidden)]
pub struct Limit<'f, F: Fabric> {
    /// What was said since the last look.
    pub said: Option<Duration>,
    /// Boxed, so that a handle without a deadline is hardly longer for it.
    timer: Option<Box<Timer<'f, F>>>,
}

struct Timer<'f, F: Fabric> {
    until: u64,
    /// A word of one's own that nobody changes: the fabric has pauses between two looks at a word.
    word: F::Word<'f>,
    pause: F::Pause<'f>,
}

impl<F: Fabric> Default for Limit<'_, F> {
    fn default() -> Self {
        Self::NONE
    }
}

impl<F: Fabric> fmt::Debug for Limit<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_set() { "a deadline" } else { "no deadline" })
    }
}

impl<'f, F: Fabric> Limit<'f, F> {
    /// Never.
    pub const NONE: Self = Self { said: None, timer: None };

    /// Whether there is one.
    pub const fn is_set(&self) -> bool {
        self.said.is_some() || self.timer.is_some()
    }

    /// Ready once it has passed. To be asked after what it limits, which counts if it is done.
    pub fn poll(&mut self, cx: &mut Context<'_>, fabric: &'f F) -> Poll<()> {
        if let Some(after) = self.said.take() {
            let nanos = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX);
            // A world segment is there as long as its fabric; one without it has nothing to wait for either.
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

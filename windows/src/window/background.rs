//! Work that no caller waits for, and waits that end: the background of a window.

use std::future::Future;
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_fabric::{Fabric, Task};

use crate::window::inner::Inner;

/// How long a call waits for a peer's step that no error would report, in nanoseconds.
pub(crate) const GRACE_PERIOD: u64 = 5_000_000_000;
/// How long it pauses between two looks, in nanoseconds.
pub(crate) const POLL_INTERVAL: u64 = 50_000;

/// Polls a future once, without a waker.
#[inline(always)]
pub(crate) fn poll_once<V>(future: impl Future<Output = V>) -> Poll<V> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Repeats `attempt` until it breaks with an outcome or the grace period ends: then the error is the one that the last
/// attempt continued with. Pauses on `word` between two attempts.
pub(crate) async fn retry<'f, F: Fabric, V, A: Future<Output = ControlFlow<Result<V, Fault>, Fault>>>(
    fabric: &'f F,
    word: F::Word<'f>,
    mut attempt: impl FnMut() -> A,
) -> Result<V, Fault> {
    let until = fabric.now().saturating_add(GRACE_PERIOD);
    loop {
        match attempt().await {
            ControlFlow::Break(outcome) => return outcome,
            ControlFlow::Continue(fault) if fabric.now() >= until => return Err(fault),
            ControlFlow::Continue(_) => fabric.pause(word, POLL_INTERVAL).await,
        }
    }
}

/// Waits until a condition holds or the grace period ends.
pub(crate) async fn poll_until<'f, F: Fabric>(
    fabric: &'f F,
    word: F::Word<'f>,
    timed_out: Fault,
    holds: impl Fn() -> bool,
) -> Result<(), Fault> {
    let attempt =
        || std::future::ready(if holds() { ControlFlow::Break(Ok(())) } else { ControlFlow::Continue(timed_out) });
    retry(fabric, word, attempt).await
}

/// Something under way that only the window's end waits for.
struct Background<F: Fabric>(Arc<Inner<F>>);

impl<F: Fabric> Drop for Background<F> {
    fn drop(&mut self) {
        self.0.lifecycle.end_background();
    }
}

impl<F: Fabric> Inner<F> {
    /// Leaves a release, or what is under way of a cancelled request, to the endpoint; the window's end waits for it.
    pub(crate) fn spawn(self: &Arc<Self>, task: Task) {
        self.lifecycle.begin_background();
        let background = Background(Arc::clone(self));
        self.fabric().spawn(Box::pin(async move {
            let _background = background;
            task.await;
        }));
    }

    /// Polls a task once, and [spawns](Self::spawn) it if it is not done then. Where operations complete at post, most
    /// tasks end at the first poll.
    pub(crate) fn run_or_spawn(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        let mut task = Box::pin(task);
        if poll_once(&mut task).is_pending() {
            self.spawn(task);
        }
    }

    /// Waits until the endpoint does nothing for this window any more: after the window's end, peers free what it
    /// reaches into. None of it waits for another rank.
    pub(crate) async fn drain_background(&self) -> Result<(), Fault> {
        let is_drained = || self.lifecycle.is_drained();
        if is_drained() {
            return Ok(());
        }
        let fabric = self.fabric();
        let own = fabric.world_segment(fabric.rank()).map_err(|error| error.fault())?;
        poll_until(fabric, fabric.word_in(&own, 0)?, Fault::new(FaultKind::TimedOut), is_drained).await
    }
}

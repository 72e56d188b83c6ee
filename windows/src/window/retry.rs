//! Futures that are polled once, and waits that end.

use std::future::Future;
use std::ops::ControlFlow;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use onesided_fabric::Fabric;
use onesided_fabric::remote_memory::Fault;

/// How long a call waits for a peer's step that no error would report, in nanoseconds.
pub(crate) const GRACE_PERIOD: u64 = 5_000_000_000;
/// How long it pauses between two looks, in nanoseconds.
pub(crate) const POLL_INTERVAL: u64 = 50_000;

/// Polls a future once, without a waker.
#[inline(always)]
pub(crate) fn poll_once<V>(future: impl Future<Output = V>) -> Poll<V> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Repeats `attempt` until it breaks with an outcome or the grace period ends: then the error is
/// the one that the last attempt continued with. Pauses on `word` between two attempts.
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

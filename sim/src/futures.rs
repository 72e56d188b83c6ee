//! The futures of programs. None of them keeps a waker: a rank is polled when one of its events
//! occurs.

use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use onesided_remote_memory::{At, Fault, FaultKind, Patience, Rank, RemoteMemory};

use onesided_fabric::debug;

use crate::endpoint::{Shared, SimFabric, Word};
use crate::operation::Action;
use crate::rank::What;

/// A word operation in flight.
#[must_use = "the operation is posted, but only awaiting tells how it went"]
pub struct Op {
    shared: Arc<Shared>,
    /// [`TAKEN`] once the outcome was taken.
    slot: u32,
}

const TAKEN: u32 = u32::MAX;

impl Op {
    /// An operation that was just posted.
    pub(crate) const fn new(shared: Arc<Shared>, slot: u32) -> Self {
        Self { shared, slot }
    }

    fn take(&mut self) -> Poll<(Action, Result<u64, Fault>)> {
        if self.slot == TAKEN {
            return Poll::Ready((Action::Read, Err(Fault::new(FaultKind::Closed))));
        }
        let taken = self.shared.lock().take(self.slot);
        taken.map_or(Poll::Pending, |outcome| {
            self.slot = TAKEN;
            Poll::Ready(outcome)
        })
    }
}

impl Future for Op {
    type Output = Result<u64, Fault>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        self.take().map(|(_, outcome)| outcome)
    }
}

impl Drop for Op {
    fn drop(&mut self) {
        if self.slot != TAKEN {
            self.shared.lock().detach(self.slot);
        }
    }
}

debug!([] Op, |this| "Op {{ slot: {}, .. }}", this.slot);

/// An RDMA transfer in flight.
#[derive(Debug)]
#[must_use = "the transfer is posted, but only awaiting tells when the buffer may be used again"]
pub struct Transfer(Op);

impl Transfer {
    pub(crate) const fn new(op: Op) -> Self {
        Self(op)
    }
}

impl Future for Transfer {
    type Output = Result<(), Fault>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.take().map(|(_, outcome)| outcome.map(drop))
    }
}

/// A get in flight.
#[derive(Debug)]
#[must_use = "the bytes are there when the get was awaited"]
pub struct Get<'b> {
    op: Op,
    into: &'b mut [u8],
}

impl<'b> Get<'b> {
    pub(crate) const fn new(op: Op, into: &'b mut [u8]) -> Self {
        Self { op, into }
    }
}

impl Future for Get<'_> {
    type Output = Result<(), Fault>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        self.op.take().map(|(action, outcome)| {
            outcome?;
            if let Action::Got(got) = action {
                self.into.copy_from_slice(&got.bytes);
            }
            Ok(())
        })
    }
}

/// The registration of a rank's wait; removed when the future is done or dropped.
#[derive(Debug)]
pub(crate) struct Waiting<F: Deref<Target = SimFabric>> {
    pub(crate) fabric: F,
    what: What,
    /// Whose wait is registered, and by which thread.
    noted: Option<(Patience, u32)>,
}

impl<F: Deref<Target = SimFabric>> Waiting<F> {
    pub(crate) const fn new(fabric: F, what: What) -> Self {
        Self { fabric, what, noted: None }
    }

    /// Registers the wait, unless patience is over: the rank polls for a while, then sleeps.
    pub(crate) fn register<T>(&mut self, patience: Patience) -> Poll<Result<T, Fault>> {
        if self.noted.is_some_and(|(noted, _)| noted != patience) {
            self.withdraw();
        }
        let polled = register(&self.fabric, self.what, patience, self.noted.is_some());
        if polled.is_pending() && self.noted.is_none() {
            self.noted = Some((patience, self.fabric.state().thread_of(self.fabric.rank().0)));
        }
        polled
    }

    /// Removes the registration.
    pub(crate) fn withdraw(&mut self) {
        if let Some((patience, thread)) = self.noted.take() {
            self.fabric.state().stop_waiting(self.fabric.rank(), self.what, patience.watch, Some(thread));
        }
    }
}

impl<F: Deref<Target = SimFabric>> Drop for Waiting<F> {
    fn drop(&mut self) {
        self.withdraw();
    }
}

/// Registers a rank's wait, unless it is `noted` or patience is over: the rank polls for a while,
/// then sleeps.
fn register<T>(fabric: &SimFabric, what: What, patience: Patience, noted: bool) -> Poll<Result<T, Fault>> {
    let (rank, mut state) = (fabric.rank(), fabric.state());
    if let Some(fault) = state.out_of_patience(rank, patience) {
        return Poll::Ready(Err(fault));
    }
    let polls_until = state.now + state.wire.polling;
    state.ranks[rank.index()].more().polls_until = polls_until;
    if !noted {
        state.wait(rank, what, patience.watch);
        state.stall.note_retry(rank, None);
        state.alarm(rank, patience.deadline);
    }
    Poll::Pending
}

/// Waits for a word; see [`RemoteMemory::wait_until`]. One for each waiting rank: small.
pub struct Wait<'f, P> {
    fabric: &'f SimFabric,
    word: Word,
    predicate: P,
    patience: Patience,
    /// Whether it is registered.
    noted: bool,
}

impl<'f, P> Wait<'f, P> {
    pub(crate) const fn new(fabric: &'f SimFabric, word: Word, predicate: P, patience: Patience) -> Self {
        Self { fabric, word, predicate, patience, noted: false }
    }

    const fn what(&self) -> What {
        let At { region, offset, .. } = self.word.at();
        What::Word { region: region.0, offset }
    }
}

impl<P> Drop for Wait<'_, P> {
    fn drop(&mut self) {
        if self.noted {
            self.fabric.state().stop_waiting(self.fabric.rank(), self.what(), self.patience.watch, None);
        }
    }
}

impl<P: Fn(u64) -> bool + Unpin> Future for Wait<'_, P> {
    type Output = Result<u64, Fault>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let value = match self.fabric.load_word(self.word) {
            Ok(value) => value,
            Err(fault) => return Poll::Ready(Err(fault)),
        };
        if (self.predicate)(value) {
            return Poll::Ready(Ok(value));
        }
        let polled = register(self.fabric, self.what(), self.patience, self.noted);
        self.noted |= polled.is_pending();
        polled
    }
}

/// Waits for a time; see [`RemoteMemory::pause`].
///
/// At a word on the same host, a processor that tries again sees a change at once, and nothing
/// without one: so the pause ends with a change. Without one it lasts as long as it takes until all
/// ranks together try no more often than every `ATTEMPT`, which spares the events of the attempts
/// in between.
pub struct Pause<'f> {
    fabric: &'f SimFabric,
    /// How long; once it has begun, until when.
    time: u64,
    /// Once it has begun, the value of the word, if that is on the same host.
    value: u64,
    word: Word,
    begun: bool,
    /// Whether its thread leaves its core to others.
    sleeps: bool,
}

/// In nanoseconds.
const ATTEMPT: u64 = 500;

impl<'f> Pause<'f> {
    pub(crate) const fn new(fabric: &'f SimFabric, word: Word, nanos: u64) -> Self {
        Self { fabric, time: nanos, value: 0, word, begun: false, sleeps: false }
    }

    pub(crate) const fn asleep(fabric: &'f SimFabric, nanos: u64) -> Self {
        Self { fabric, time: nanos, value: 0, word: Word::first(fabric.rank), begun: false, sleeps: true }
    }

    /// The word, if it is on the same host: its changes are seen.
    fn watched(&self) -> Option<At> {
        self.word.is_on_same_host().then(|| self.word.at())
    }
}

impl Future for Pause<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        let (fabric, now) = (self.fabric, self.fabric.now());
        if !self.begun {
            self.begun = true;
            let mut state = fabric.state();
            if let Some(at) = self.watched() {
                self.value = state.load(at);
                state.watch_word(fabric.rank(), at);
                self.time = self.time.max(ATTEMPT * u64::from(fabric.size()));
            }
            // At least a nanosecond: a loop of zero pauses would stop time.
            self.time = now.saturating_add(self.time.max(1));
            match self.watched() {
                Some(_) if !state.has_threads() => state.alarm_at_latest(fabric.rank(), self.time),
                _ => state.alarm(fabric.rank(), self.time),
            }
        } else if now >= self.time {
            return Poll::Ready(());
        } else if let Some(at) = self.watched() {
            let mut state = fabric.state();
            if state.load(at) != self.value {
                return Poll::Ready(());
            }
            if !state.has_threads() {
                state.alarm_at_latest(fabric.rank(), self.time);
            }
        }
        if self.sleeps {
            fabric.state().sleep_after_poll();
        }
        Poll::Pending
    }
}

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        if let (Some(at), true) = (self.watched(), self.begun) {
            self.fabric.state().stop_watching_word(self.fabric.rank(), at);
        }
    }
}

/// Completes posted operations; see [`Fabric::flush`](onesided_fabric::Fabric::flush).
pub struct Flush<'f> {
    waiting: Waiting<&'f SimFabric>,
    target: Rank,
    posted: u32,
}

impl<'f> Flush<'f> {
    pub(crate) fn new(fabric: &'f SimFabric, target: Rank) -> Self {
        let posted = match target.0 < fabric.size() {
            true => fabric.state().ranks[fabric.rank().index()].connection(target.0).posted,
            false => 0,
        };
        Self { waiting: Waiting::new(fabric, What::Flush(target)), target, posted }
    }
}

impl Future for Flush<'_> {
    type Output = Result<(), Fault>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let fabric = self.waiting.fabric;
        if self.target.0 >= fabric.size() {
            return Poll::Ready(Err(Fault::of(FaultKind::NoSuchRank, self.target)));
        }
        let mut state = fabric.state();
        let connection = state.ranks[fabric.rank().index()].connection(self.target.0);
        if (connection.completed.wrapping_sub(self.posted) as i32) >= 0 {
            let fault = state.faults.remove(&(fabric.rank().0, self.target.0));
            return Poll::Ready(fault.map_or(Ok(()), Err));
        }
        drop(state);
        self.waiting.register(Patience::until(u64::MAX))
    }
}

debug!([] Pause<'_>, |_this| "Pause");
debug!([] Flush<'_>, |_this| "Flush");

debug!([P] Wait<'_, P>, |this| "Wait({:?})", this.word);

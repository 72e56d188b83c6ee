//! The futures of programs. None of them keeps a waker: a rank is polled when one of its events
//! occurs.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use onesided_remote_memory::{Fault, FaultKind, Patience, Rank, RemoteMemory};

use crate::endpoint::{Shared, SimFabric, Word};
use crate::operation::Action;
use crate::report::WaitsFor;

/// A word operation in flight.
#[must_use = "the operation is posted, but only awaiting tells how it went"]
pub struct Op {
    shared: Arc<Shared>,
    /// None once the outcome was taken.
    slot: Option<u32>,
    /// The earliest time at which the operation can be complete.
    earliest: u64,
}

impl Op {
    /// An operation that was just posted.
    pub(crate) fn new(shared: Arc<Shared>, slot: u32) -> Self {
        let earliest = shared.now() + 1; // a card takes at least a nanosecond
        Self { shared, slot: Some(slot), earliest }
    }

    fn take(&mut self) -> Poll<(Action, Result<u64, Fault>)> {
        let Some(slot) = self.slot else {
            return Poll::Ready((Action::Read, Err(Fault::new(FaultKind::Closed))));
        };
        if self.shared.now() < self.earliest {
            return Poll::Pending;
        }
        match self.shared.lock().take(slot) {
            Some(outcome) => {
                self.slot = None;
                Poll::Ready(outcome)
            }
            None => Poll::Pending,
        }
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
        if let Some(slot) = self.slot {
            self.shared.lock().detach(slot);
        }
    }
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Op").field("slot", &self.slot).finish_non_exhaustive()
    }
}

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
            if let Action::Got { bytes, .. } = action {
                self.into.copy_from_slice(&bytes);
            }
            Ok(())
        })
    }
}

/// The registration of a rank's wait; removed when the future is done or dropped.
#[derive(Debug)]
pub(crate) struct Waiting<F: Deref<Target = SimFabric>> {
    pub(crate) fabric: F,
    what: WaitsFor,
    noted: Option<Patience>,
}

impl<F: Deref<Target = SimFabric>> Waiting<F> {
    pub(crate) const fn new(fabric: F, what: WaitsFor) -> Self {
        Self { fabric, what, noted: None }
    }

    /// Registers the wait, unless patience is over: the rank polls for a while, then sleeps.
    pub(crate) fn register<T>(&mut self, patience: Patience) -> Poll<Result<T, Fault>> {
        if self.noted.is_some_and(|noted| noted != patience) {
            self.withdraw();
        }
        let rank = self.fabric.rank();
        let mut state = self.fabric.state();
        if let Some(fault) = state.out_of_patience(rank, patience) {
            return Poll::Ready(Err(fault));
        }
        let polls_until = state.now + state.wire.polling;
        state.ranks[rank.index()].more().polls_until = polls_until;
        if self.noted.is_none() {
            self.noted = Some(patience);
            state.wait(rank, self.what, patience.watch);
            state.stall.note_retry(rank, None);
            state.alarm(rank, patience.deadline);
        }
        Poll::Pending
    }

    /// Removes the registration.
    pub(crate) fn withdraw(&mut self) {
        if let Some(patience) = self.noted.take() {
            self.fabric.state().stop_waiting(self.fabric.rank(), self.what, patience.watch);
        }
    }
}

impl<F: Deref<Target = SimFabric>> Drop for Waiting<F> {
    fn drop(&mut self) {
        self.withdraw();
    }
}

/// Waits for a word; see [`RemoteMemory::wait_until`].
pub struct Wait<'f, P> {
    waiting: Waiting<&'f SimFabric>,
    word: Word,
    predicate: P,
    patience: Patience,
}

impl<'f, P> Wait<'f, P> {
    pub(crate) fn new(fabric: &'f SimFabric, word: Word, predicate: P, patience: Patience) -> Self {
        let what = WaitsFor::Word { region: word.at().region.0, offset: word.at().offset };
        Self { waiting: Waiting::new(fabric, what), word, predicate, patience }
    }
}

impl<P: Fn(u64) -> bool + Unpin> Future for Wait<'_, P> {
    type Output = Result<u64, Fault>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let value = match self.waiting.fabric.load_word(self.word) {
            Ok(value) => value,
            Err(fault) => return Poll::Ready(Err(fault)),
        };
        if (self.predicate)(value) {
            return Poll::Ready(Ok(value));
        }
        let patience = self.patience;
        self.waiting.register(patience)
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
    begun: bool,
    /// Whether its thread leaves its core to others.
    sleeps: bool,
    /// The word on the same host, and its value.
    watched: Option<(Word, u64)>,
}

/// In nanoseconds.
const ATTEMPT: u64 = 500;

impl<'f> Pause<'f> {
    pub(crate) fn new(fabric: &'f SimFabric, word: Word, nanos: u64) -> Self {
        let watched = word.is_on_same_host().then_some((word, 0));
        Self { fabric, time: nanos, begun: false, sleeps: false, watched }
    }

    pub(crate) const fn asleep(fabric: &'f SimFabric, nanos: u64) -> Self {
        Self { fabric, time: nanos, begun: false, sleeps: true, watched: None }
    }
}

impl Future for Pause<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        let (fabric, now) = (self.fabric, self.fabric.now());
        if !self.begun {
            self.begun = true;
            let mut state = fabric.state();
            if let Some((word, value)) = &mut self.watched {
                let at = word.at();
                *value = state.load(at);
                state.watch_word(fabric.rank(), at);
                self.time = self.time.max(ATTEMPT * u64::from(fabric.size()));
            }
            // At least a nanosecond: a loop of zero pauses would stop time.
            self.time = now.saturating_add(self.time.max(1));
            state.alarm(fabric.rank(), self.time);
        } else if now >= self.time || self.watched.is_some_and(|(word, value)| fabric.state().load(word.at()) != value)
        {
            return Poll::Ready(());
        }
        if self.sleeps {
            fabric.state().sleep_after_poll();
        }
        Poll::Pending
    }
}

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        if let (Some((word, _)), true) = (self.watched, self.begun) {
            self.fabric.state().stop_watching_word(self.fabric.rank(), word.at());
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
        Self { waiting: Waiting::new(fabric, WaitsFor::Flush(target)), target, posted }
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
            return Poll::Ready(connection.fault.take().map_or(Ok(()), Err));
        }
        drop(state);
        self.waiting.register(Patience::until(u64::MAX))
    }
}

macro_rules! debug_by_name {
    ($($type:ty: $name:literal),*) => {$(
        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($name)
            }
        }
    )*};
}

debug_by_name!(Pause<'_>: "Pause", Flush<'_>: "Flush");

impl<P> fmt::Debug for Wait<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wait({:?})", self.word)
    }
}

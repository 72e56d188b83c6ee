//! Drives the engine over a fabric: what a waiting task does.

use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use onesided_fabric::remote_memory::{Fault, Patience, Rank, Watch};
use onesided_fabric::{Arrival, Fabric, Segment, SegmentKey, Transport};

use crate::engine::{Direct, Engine, Posted, window};
use crate::pipeline;
use crate::wire::{EAGER_HEAD, HEAD_MAX};

/// The most memory that sends have used and that is kept to be used again, in bytes.
const KEPT: u64 = 64 << 20;

/// The engine of a rank and its fabric. All communicators of the rank share it.
pub(crate) struct Progress<F: Fabric> {
    pub(crate) fabric: F,
    state: Mutex<State<F>>,
    memory: Mutex<Memory<Registered<F>>>,
}

struct State<F: Fabric> {
    engine: Engine<Registered<F>>,
    transport: F::Transport,
    reads: Vec<Read<F>>,
}

/// Registered memory of a message. Its sender holds it too while it copies the message in.
pub(crate) type Registered<F> = Arc<<F as Fabric>::Segment>;

/// A message is longer than a packet.
pub(crate) struct TooLong;

/// A read of an announced message whose receive is not waited for now.
struct Read<F: Fabric> {
    receive: usize,
    into: Registered<F>,
    transfer: F::Transfer,
}

impl<F: Fabric> fmt::Debug for Progress<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Progress").field("fabric", &self.fabric).finish_non_exhaustive()
    }
}

/// Registered memory that no peer reads, by length.
#[derive(Debug)]
struct Memory<S> {
    free: BTreeMap<u64, Vec<S>>,
    bytes: u64,
}

const fn posted(sent: Poll<Result<(), Fault>>) -> Posted {
    match sent {
        Poll::Ready(Ok(())) => Posted::Sent,
        Poll::Ready(Err(fault)) => Posted::Failed(fault),
        Poll::Pending => Posted::Busy,
    }
}

impl<F: Fabric> State<F> {
    /// Sends what can be sent. The waker is woken when there may be room for more.
    fn flush(&mut self, cx: &mut Context<'_>) {
        let Self { engine, transport, .. } = self;
        engine.flush(|to, head, body| posted(transport.poll_send(cx, to, head, body)));
    }

    /// Takes in the next packet, if there is one.
    #[inline]
    fn take_in(
        &mut self,
        cx: &mut Context<'_>,
        patience: Patience,
        direct: &mut Direct<'_>,
    ) -> Poll<Result<(), Fault>> {
        let Self { engine, transport, .. } = self;
        transport.poll_recv(cx, patience).map_ok(|Arrival { from, len }| {
            let mut head = [0; HEAD_MAX];
            let head = &mut head[..len.min(HEAD_MAX)];
            transport.read(0, head);
            engine.arrived(from, (head, len), |offset, into| transport.read(offset, into), direct);
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic under a lock is one of this crate's own invariants; no user code runs there.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<F: Fabric> Progress<F> {
    /// `fabric` must not keep its rank in the world.
    pub(crate) fn new(fabric: F) -> Result<Self, Fault> {
        let engine = Engine::new(fabric.rank(), window(fabric.size()));
        let state = Mutex::new(State { engine, transport: fabric.transport()?, reads: Vec::new() });
        Ok(Self { fabric, state, memory: Mutex::new(Memory { free: BTreeMap::new(), bytes: 0 }) })
    }

    /// Registered memory of at least `len` bytes.
    pub(crate) fn memory(&self, len: u64) -> Result<Registered<F>, Fault> {
        let len = len.next_multiple_of(len.next_power_of_two() / 16); // at most an eighth too much
        {
            let mut memory = lock(&self.memory);
            if let Some(segment) = memory.free.get_mut(&len).and_then(Vec::pop) {
                memory.bytes -= len;
                return Ok(segment);
            }
        }
        self.fabric.allocate(len).map(Arc::new).map_err(|error| error.fault())
    }

    /// Keeps memory for the next messages.
    pub(crate) fn keep(&self, segments: impl IntoIterator<Item = Registered<F>>) {
        let mut memory = lock(&self.memory);
        for mut segment in segments {
            let len = segment.len();
            let is_in_use = Arc::get_mut(&mut segment).is_none(); // by a copy whose receiver has died
            if !is_in_use && memory.bytes + len <= KEPT {
                memory.bytes += len;
                memory.free.entry(len).or_default().push(segment);
            }
        }
    }

    /// Changes the engine, sends what can be sent at once, and wakes the tasks that get on by it.
    pub(crate) fn with<R>(&self, change: impl FnOnce(&mut Engine<Registered<F>>) -> R) -> R {
        let mut state = lock(&self.state);
        let result = change(&mut state.engine);
        if state.engine.is_busy() {
            state.flush(&mut Context::from_waker(Waker::noop()));
        }
        self.unlock(state);
        result
    }

    /// Wakers run, and are dropped, without the lock: they may belong to anything.
    fn unlock(&self, mut state: MutexGuard<'_, State<F>>) {
        if !state.engine.has_left_over() {
            return;
        }
        let ([woken, _retired], idle) = (state.engine.take_wakers(), state.engine.take_idle());
        drop(state);
        woken.into_iter().for_each(Waker::wake);
        if !idle.is_empty() {
            self.keep(idle);
        }
    }

    /// Starts an eager send. `Ok(None)`: it is on its way already; `Err`: it is too long for a
    /// packet.
    #[inline]
    pub(crate) fn send_eager(&self, to: Rank, envelope: (u32, u32), bytes: &[u8]) -> Result<Option<usize>, TooLong> {
        let mut state = lock(&self.state);
        let State { engine, transport, .. } = &mut *state;
        if bytes.len() > transport.packet_max(to) - EAGER_HEAD {
            return Err(TooLong);
        }
        let mut cx = Context::from_waker(Waker::noop());
        let send = engine
            .send_eager(to, envelope, bytes, |to, head, body| posted(transport.poll_send(&mut cx, to, head, body)));
        self.unlock(state);
        Ok(send)
    }

    /// Starts to read announced messages whose receives are not waited for now, and ends the reads
    /// that are over.
    fn read_announced(&self, State { engine, reads, .. }: &mut State<F>, cx: &mut Context<'_>) {
        let state_of = |key: &SegmentKey| match pin!(pipeline::is_whole(&self.fabric, key))
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            Poll::Ready(Ok(false)) | Poll::Pending => None,
            Poll::Ready(Ok(true)) => Some(Ok(())),
            Poll::Ready(Err(fault)) => Some(Err(fault)),
        };
        while let Some((receive, key, whole)) = engine.next_to_read(state_of) {
            let opened = whole.and_then(|()| self.fabric.open(&key).map_err(|error| error.fault()));
            match opened.and_then(|from| Ok((from, self.memory(key.len)?))) {
                Ok((from, into)) => {
                    let transfer = self.fabric.rdma_read((&from, 0), (&*into, 0), key.len);
                    reads.push(Read { receive, into, transfer });
                }
                Err(fault) => engine.read(receive, Err(fault)),
            }
        }
        let mut at = 0;
        while let Some(read) = reads.get_mut(at) {
            match Pin::new(&mut read.transfer).poll(cx) {
                Poll::Ready(outcome) => {
                    let Read { receive, into, .. } = reads.swap_remove(at);
                    engine.read(receive, outcome.map(|()| into));
                }
                Poll::Pending => at += 1,
            }
        }
    }

    /// Waits until `look` finds what it waits for, and moves all messages of this rank meanwhile.
    /// `watch`: the rank whose end may be what ends the wait. `direct`: a receive that is waited for. `failed` says why nothing will be
    /// found, once everything that has arrived is taken in.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) fn until<'a, R: 'a>(
        &'a self,
        watch: Rank,
        mut direct: Direct<'a>,
        mut look: impl FnMut(&mut Engine<Registered<F>>, &mut Direct<'_>, &Waker) -> Option<R> + 'a,
        failed: impl Fn(&Engine<Registered<F>>) -> Option<R> + 'a,
    ) -> impl Future<Output = R> + 'a {
        let patience = Patience { deadline: u64::MAX, watch: Watch::RankAndFailures(watch) };
        poll_fn(move |cx| {
            let mut state = lock(&self.state);
            let (mut has_failed, mut is_changed) = (false, false);
            let found = loop {
                if let Some(found) = look(&mut state.engine, &mut direct, cx.waker()) {
                    break Some(found);
                }
                match state.take_in(cx, patience, &mut direct) {
                    Poll::Ready(Ok(())) => continue,
                    Poll::Ready(Err(fault)) => {
                        state.engine.lose(fault.rank().unwrap_or(watch), fault);
                        is_changed = true;
                    }
                    Poll::Pending => {}
                }
                // Everything that has arrived is taken in.
                if state.engine.has_work() || !state.reads.is_empty() || is_changed {
                    is_changed = false;
                    state.engine.lose_unreachable();
                    self.read_announced(&mut state, cx);
                    if state.engine.is_busy() {
                        state.flush(cx);
                    }
                    let found = look(&mut state.engine, &mut direct, cx.waker());
                    if found.is_some() || state.engine.has_unreachable() {
                        if found.is_some() {
                            break found;
                        }
                        continue;
                    }
                }
                match failed(&state.engine) {
                    // The end of a rank was seen after its last message may have arrived.
                    Some(_) if !has_failed => has_failed = true,
                    outcome => break outcome,
                }
            };
            if found.is_some() {
                if state.engine.is_busy() {
                    state.flush(cx);
                }
                if state.engine.is_busy() || !state.reads.is_empty() {
                    state.engine.wake_all(); // another task goes on with it
                }
            }
            self.unlock(state);
            found.map_or(Poll::Pending, Poll::Ready)
        })
    }
}

//! Drives the engine over a fabric: what a waiting task does.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use onesided_fabric::remote_memory::{Fault, FaultKind, Notify, Patience, Port, Rank, Watch};
use onesided_fabric::{Fabric, Segment};

use crate::engine::{Engine, Posted};

/// The most memory that sends have used and that is kept to be used again, in bytes.
const KEPT: u64 = 64 << 20;

/// The engine of a rank and its fabric. All communicators of the rank share it.
#[derive(Debug)]
pub(crate) struct Progress<F: Fabric> {
    pub(crate) fabric: F,
    engine: Mutex<Engine<F::Segment>>,
    memory: Mutex<Memory<F::Segment>>,
}

/// Registered memory that no peer reads, by length.
#[derive(Debug)]
struct Memory<S> {
    free: BTreeMap<u64, Vec<S>>,
    bytes: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic under a lock is one of this crate's own invariants; no user code runs there.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<F: Fabric> Progress<F> {
    /// `fabric` must not keep its rank in the world.
    pub(crate) fn new(fabric: F) -> Self {
        let engine = Mutex::new(Engine::new(fabric.rank()));
        Self { fabric, engine, memory: Mutex::new(Memory { free: BTreeMap::new(), bytes: 0 }) }
    }

    /// Registered memory of at least `len` bytes.
    pub(crate) fn memory(&self, len: u64) -> Result<F::Segment, Fault> {
        let len = len.next_power_of_two();
        {
            let mut memory = lock(&self.memory);
            if let Some(segment) = memory.free.get_mut(&len).and_then(Vec::pop) {
                memory.bytes -= len;
                return Ok(segment);
            }
        }
        self.fabric.allocate(len).map_err(|error| error.fault())
    }

    fn keep(&self, segments: Vec<F::Segment>) {
        let mut memory = lock(&self.memory);
        for segment in segments {
            let len = segment.len();
            if memory.bytes + len <= KEPT {
                memory.bytes += len;
                memory.free.entry(len).or_default().push(segment);
            }
        }
    }

    /// Changes the engine, sends what can be sent at once, and wakes the tasks that get on by it.
    pub(crate) fn with<R>(&self, change: impl FnOnce(&mut Engine<F::Segment>) -> R) -> R {
        let mut engine = lock(&self.engine);
        let result = change(&mut engine);
        if engine.is_busy() {
            self.flush(&mut engine, &mut Context::from_waker(Waker::noop()));
        }
        self.unlock(engine);
        result
    }

    fn unlock(&self, mut engine: MutexGuard<'_, Engine<F::Segment>>) {
        let (woken, idle) = (engine.take_woken(), engine.take_idle());
        drop(engine);
        woken.into_iter().for_each(Waker::wake);
        if !idle.is_empty() {
            self.keep(idle);
        }
    }

    /// Sends what can be sent. The send that found no room, so that its task is polled again.
    fn flush(&self, engine: &mut Engine<F::Segment>, cx: &mut Context<'_>) -> Option<F::Send<'_>> {
        let mut waiting = None;
        engine.flush(|to, packet| {
            let mut send = self.fabric.send(to, Port::MESSAGES, packet, Notify::Yes);
            match Pin::new(&mut send).poll(cx) {
                Poll::Ready(Ok(())) => Posted::Sent,
                Poll::Ready(Err(fault)) if fault.kind() == FaultKind::Full => Posted::Busy,
                Poll::Ready(Err(fault)) => Posted::Failed(fault),
                Poll::Pending => {
                    waiting = Some(send);
                    Posted::Busy
                }
            }
        });
        waiting
    }

    /// Waits until `look` finds what it waits for, and moves all messages of this rank meanwhile.
    /// `watch`: the rank whose end may be what ends the wait. `look` learns whether everything that
    /// has arrived is taken in: only then a failure of other ranks counts.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn until<R>(
        &self,
        watch: Rank,
        mut look: impl FnMut(&mut Engine<F::Segment>, &Waker, bool) -> Option<R>,
    ) -> R {
        let patience = Patience { deadline: u64::MAX, watch: Watch::RankAndFailures(watch) };
        let receive = || self.fabric.recv(Port::MESSAGES, patience);
        let mut receiving = receive();
        let mut sending = None;
        poll_fn(move |cx| {
            let mut engine = lock(&self.engine);
            drop(sending.take());
            let mut is_drained = false;
            let mut found = look(&mut engine, cx.waker(), is_drained);
            while found.is_none() && !is_drained {
                match Pin::new(&mut receiving).poll(cx) {
                    Poll::Ready(Ok(message)) => {
                        engine.arrived(message.from, message.bytes());
                        receiving = receive();
                    }
                    Poll::Ready(Err(fault)) => {
                        engine.lose(watch, fault);
                        receiving = receive();
                        is_drained = true;
                    }
                    Poll::Pending => is_drained = true,
                }
                if is_drained {
                    engine.lose_unreachable();
                }
                found = look(&mut engine, cx.waker(), is_drained);
            }
            if engine.is_busy() {
                sending = self.flush(&mut engine, cx);
                // What is waited for may have been sent just now.
                found = found.or_else(|| look(&mut engine, cx.waker(), is_drained));
            }
            self.unlock(engine);
            found.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

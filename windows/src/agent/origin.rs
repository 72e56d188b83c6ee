//! The origin's side: sends requests and waits for replies.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onesided_fabric::remote_memory::{Fault, FaultKind, Notify, Patience};
use onesided_fabric::{Fabric, Segment};

use super::Request;
use crate::combine::Work;
use crate::spread::{Spread, SpreadRuns};
use crate::window::{Inner, Target};
use crate::{AtomicElement, Op};

/// A pending request; it yields the previous elements, if they were wanted.
pub(crate) type Call<'w> = Pin<Box<dyn Future<Output = Result<Vec<u8>, Fault>> + Send + 'w>>;

/// How long, in nanoseconds, an origin waits before it checks whether the owner still replies.
const LOOK: u64 = 100_000_000;

/// The destination of a reply: the first task that sees the reply stores it for the requester.
type Reply = Arc<Mutex<Option<Result<Vec<u8>, Fault>>>>;

/// This rank's requests to each other rank, one at a time; and its signals to memory without words
/// there.
#[derive(Debug)]
pub(crate) struct Lines(Box<[(Mutex<Line>, Mutex<u64>)]>);

#[derive(Debug, Default)]
struct Line {
    /// The number of posted requests.
    posted: u64,
    /// The requester of the last one and the length of its results in bytes, until the reply.
    current: Option<(Reply, usize)>,
}

impl Lines {
    pub(crate) fn new(size: u32) -> Self {
        Self((0..size).map(|_| Default::default()).collect())
    }

    fn line(&self, rank: u32) -> Result<MutexGuard<'_, Line>, Fault> {
        let line = self.0.get(rank as usize).ok_or(Fault::new(FaultKind::NoSuchRank))?;
        Ok(line.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The number of signals to a rank; locked while signalling.
    pub(super) fn signals(&self, rank: u32) -> Result<MutexGuard<'_, u64>, Fault> {
        let line = self.0.get(rank as usize).ok_or(Fault::new(FaultKind::NoSuchRank))?;
        Ok(line.1.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn take(reply: &Reply) -> Option<Result<Vec<u8>, Fault>> {
    reply.lock().unwrap_or_else(PoisonError::into_inner).take()
}

impl<F: Fabric> Inner<F> {
    /// Executes a request, on this thread or by the owner's helper thread.
    pub(crate) fn call<'w>(&'w self, target: &'w Target<F>, mut request: Request) -> Call<'w> {
        request.place = target.place;
        Box::pin(async move {
            match request.perform(self.fabric(), &target.data) {
                Err(fault) if fault.kind() == FaultKind::NotOwn => self.ask(target, request).await,
                done => {
                    target.count(onesided_fabric::Path::Cpu);
                    done
                }
            }
        })
    }

    pub(super) async fn ask(&self, target: &Target<F>, request: Request) -> Result<Vec<u8>, Fault> {
        let (fabric, layout, owner) = (self.fabric(), self.layout(), target.fabric_rank());
        if target.locks.len() < layout.end() || self.own_locks.len() < layout.end() {
            return Err(Fault::of(FaultKind::Unsupported, owner));
        }
        let reply = Reply::default();
        let answer = fabric.word_in(&self.own_locks, layout.answer(target.rank))?;
        let mut request = Some(request);
        loop {
            let seen = {
                let mut line = self.lines.line(target.rank)?;
                let seen = fabric.load(answer)?; // before the request, or its reply could be mistaken for an old one
                self.collect(target, &mut line)?;
                if let Some(outcome) = take(&reply) {
                    target.count(onesided_fabric::Path::Helper);
                    return outcome;
                }
                if line.current.is_none()
                    && let Some(request) = request.take()
                {
                    self.post_request(target, &request, line.posted + 1)?;
                    line.posted += 1;
                    line.current = Some((Arc::clone(&reply), request.wants().unwrap_or(0)));
                }
                seen
            };
            // Any reply wakes this wait: the slot may then be free.
            let patience = Patience::on(owner).and_until(fabric.now().saturating_add(LOOK));
            if let Err(mut fault) = fabric.wait_until(answer, move |now| now != seen, patience).await {
                if fault.kind() == FaultKind::TimedOut {
                    let closed = fabric.word_in(&target.locks, layout.closed())?;
                    if fabric.read(closed).await? == 0 {
                        self.take_refusal(target).await?;
                        continue; // refused, still computing, or stopped
                    }
                    fault = Fault::of(FaultKind::NoSuchRegion, owner);
                }
                let mut line = self.lines.line(target.rank)?;
                self.collect(target, &mut line)?;
                let outcome = take(&reply);
                if line.current.as_ref().is_some_and(|(current, _)| Arc::ptr_eq(current, &reply)) {
                    line.current = None; // no reply will come
                }
                return outcome.unwrap_or(Err(fault));
            }
        }
    }

    /// Ends the pending request if its owner cannot reply to it.
    async fn take_refusal(&self, target: &Target<F>) -> Result<(), Fault> {
        let (fabric, layout) = (self.fabric(), self.layout());
        let at = layout.refusal(self.world.rank());
        let number = fabric.read(fabric.word_in(&target.locks, at)?).await?;
        let mut fault = [0; 8];
        fabric.get(&target.locks, at + 8, &mut fault).await?;
        let fault = Fault::from_bits(u64::from_le_bytes(fault)).unwrap_or(Fault::new(FaultKind::Protocol));
        let mut line = self.lines.line(target.rank)?;
        if number == line.posted
            && let Some((reply, _)) = line.current.take()
        {
            *reply.lock().unwrap_or_else(PoisonError::into_inner) = Some(Err(fault));
        }
        Ok(())
    }

    /// Stores the reply to the pending request, if it has arrived.
    fn collect(&self, target: &Target<F>, line: &mut Line) -> Result<(), Fault> {
        let (fabric, layout) = (self.fabric(), self.layout());
        let at = layout.answer(target.rank);
        if fabric.load(fabric.word_in(&self.own_locks, at)?)? != line.posted {
            return Ok(());
        }
        let Some((reply, wanted)) = line.current.take() else { return Ok(()) };
        let mut fault = [0; 8];
        fabric.read_own(&self.own_locks, at + 8, &mut fault)?;
        let outcome = match Fault::from_bits(u64::from_le_bytes(fault)) {
            Some(fault) => Err(fault),
            None => {
                let mut results = vec![0; wanted];
                fabric.read_own(&self.own_locks, layout.results(target.rank), &mut results).map(|()| results)
            }
        };
        *reply.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        Ok(())
    }

    fn post_request(&self, target: &Target<F>, request: &Request, number: u64) -> Result<(), Fault> {
        let (fabric, layout) = (self.fabric(), self.layout());
        let me = self.world.rank();
        fabric.put(&target.locks, layout.operands(me), &request.bytes)?;
        let words = [request.code.to_word(), request.count as u64, request.place, request.bytes.len() as u64];
        fabric.put(&target.locks, layout.request(me) + 8, &words.map(u64::to_le_bytes).concat())?;
        // Behind the payload on the same path; wakes the owner's helper thread.
        drop(fabric.write(fabric.word_in(&target.locks, layout.request(me))?, number, Notify::Yes));
        Ok(())
    }
}

/// An accumulate by the agent, request after request.
pub(crate) struct Rows<'w, 's> {
    run: Range<usize>,
    runs: SpreadRuns<'s>,
    /// The number of operands sent, and of elements in flight.
    done: usize,
    count: usize,
    call: Option<Call<'w>>,
}

#[inline(always)] // keeps its arguments out of memory until needed
pub(crate) const fn over_rows<'w, 's>(spread: Spread<'s>) -> Rows<'w, 's> {
    Rows { run: 0..0, runs: spread.runs(), done: 0, count: 0, call: None }
}

impl<'w> Rows<'w, '_> {
    /// Continues it.
    pub(crate) fn poll<T: AtomicElement, F: Fabric>(
        &mut self,
        inner: &'w Inner<F>,
        target: &'w Target<F>,
        work: &mut Work<'_, T>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Fault>> {
        loop {
            if let Some(call) = &mut self.call {
                let before = std::task::ready!(call.as_mut().poll(cx));
                self.call = None;
                let before = before?;
                if let Some(results) = &mut work.results {
                    let into: &mut [u8] = bytemuck::cast_slice_mut(&mut results[self.done..self.done + self.count]);
                    if into.len() != before.len() {
                        return std::task::Poll::Ready(Err(Fault::new(FaultKind::Protocol)));
                    }
                    into.copy_from_slice(&before);
                }
                self.done += self.count;
            }
            let room = inner.layout().room();
            let mut operands = if work.op == Op::NoOp { &[][..] } else { &work.operands[self.done..] };
            let rest = (&mut self.run, &mut self.runs as &mut dyn Iterator<Item = _>);
            let request = Request::of_runs::<T>(work.op, work.results.is_some(), room, rest, &mut operands);
            if request.count == 0 {
                return std::task::Poll::Ready(Ok(()));
            }
            self.count = request.count;
            self.call = Some(inner.call(target, request));
        }
    }
}

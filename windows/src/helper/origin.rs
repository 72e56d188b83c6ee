//! The origin's side: sends requests and waits for replies.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};

use onesided_fabric::remote_memory::{Fault, FaultKind, Notify, Patience};
use onesided_fabric::{Fabric, Segment};

use super::HelperRequest;
use super::in_flight::{InFlight, ReplyCell};
use crate::datatype::type_map::{TypeMap, TypeMapRuns};
use crate::operation::combine::Work;
use crate::window::inner::Inner;
use crate::window::target::Target;
use crate::{AtomicElement, Op};

/// A pending request; it yields the previous elements, if they were wanted.
pub(crate) type HelperCall<'w> = Pin<Box<dyn Future<Output = Result<Vec<u8>, Fault>> + Send + 'w>>;

/// How long, in nanoseconds, an origin waits before it checks whether the owner still replies.
const POLL_INTERVAL: u64 = 100_000_000;

fn take(reply: &ReplyCell) -> Option<Result<Vec<u8>, Fault>> {
    reply.lock().unwrap_or_else(PoisonError::into_inner).take()
}

impl<F: Fabric> Inner<F> {
    /// Executes a request, on this thread or by the owner's helper thread.
    pub(crate) fn call<'w>(&'w self, target: &'w Target<F>, mut request: HelperRequest) -> HelperCall<'w> {
        request.ptr = target.ptr;
        Box::pin(async move {
            match request.perform(self.fabric(), &target.data) {
                Err(fault) if fault.kind() == FaultKind::NotOwn => self.request_and_wait(target, request).await,
                done => {
                    target.count(onesided_fabric::Path::Cpu);
                    done
                }
            }
        })
    }

    pub(super) async fn request_and_wait(&self, target: &Target<F>, request: HelperRequest) -> Result<Vec<u8>, Fault> {
        let (fabric, layout, owner) = (self.fabric(), self.request_layout(), target.fabric_rank());
        if target.locks.len() < layout.end() || self.memory.hidden.len() < layout.end() {
            return Err(Fault::of(FaultKind::Unsupported, owner));
        }
        let reply = ReplyCell::default();
        let answer = fabric.word_in(&self.memory.hidden, layout.answer(target.rank))?;
        let mut request = Some(request);
        loop {
            let seen = {
                let mut in_flight = self.helper_requests.in_flight(target.rank)?;
                let seen = fabric.load(answer)?; // before the request, or its reply could be mistaken for an old one
                self.take_answer(target, &mut in_flight)?;
                if let Some(outcome) = take(&reply) {
                    target.count(onesided_fabric::Path::Helper);
                    return outcome;
                }
                if in_flight.current.is_none()
                    && let Some(request) = request.take()
                {
                    self.post_request(target, &request, in_flight.posted + 1)?;
                    in_flight.posted += 1;
                    in_flight.current = Some((Arc::clone(&reply), request.result_bytes()));
                }
                seen
            };
            // Any reply wakes this wait: the slot may then be free.
            let patience = Patience::on(owner).and_until(fabric.now().saturating_add(POLL_INTERVAL));
            if let Err(mut fault) = fabric.wait_until(answer, move |now| now != seen, patience).await {
                if fault.kind() == FaultKind::TimedOut {
                    let closed = fabric.word_in(&target.locks, layout.closed())?;
                    if fabric.read(closed).await? == 0 {
                        self.take_refusal(target).await?;
                        continue; // refused, still computing, or stopped
                    }
                    fault = Fault::of(FaultKind::NoSuchRegion, owner);
                }
                let mut in_flight = self.helper_requests.in_flight(target.rank)?;
                self.take_answer(target, &mut in_flight)?;
                let outcome = take(&reply);
                if in_flight.current.as_ref().is_some_and(|(current, _)| Arc::ptr_eq(current, &reply)) {
                    in_flight.current = None; // no reply will come
                }
                return outcome.unwrap_or(Err(fault));
            }
        }
    }

    /// Ends the pending request if its owner cannot reply to it.
    async fn take_refusal(&self, target: &Target<F>) -> Result<(), Fault> {
        let (fabric, layout) = (self.fabric(), self.request_layout());
        let at = layout.refusal(self.world.rank());
        let number = fabric.read(fabric.word_in(&target.locks, at)?).await?;
        let mut fault = [0; 8];
        fabric.get(&target.locks, at + 8, &mut fault).await?;
        let fault = Fault::from_bits(u64::from_le_bytes(fault)).unwrap_or(Fault::new(FaultKind::Protocol));
        let mut in_flight = self.helper_requests.in_flight(target.rank)?;
        if number == in_flight.posted
            && let Some((reply, _)) = in_flight.current.take()
        {
            *reply.lock().unwrap_or_else(PoisonError::into_inner) = Some(Err(fault));
        }
        Ok(())
    }

    /// Stores the reply to the pending request, if it has arrived.
    fn take_answer(&self, target: &Target<F>, in_flight: &mut InFlight) -> Result<(), Fault> {
        let (fabric, layout) = (self.fabric(), self.request_layout());
        let at = layout.answer(target.rank);
        if fabric.load(fabric.word_in(&self.memory.hidden, at)?)? != in_flight.posted {
            return Ok(());
        }
        let Some((reply, wanted)) = in_flight.current.take() else { return Ok(()) };
        let mut fault = [0; 8];
        fabric.read_direct(&self.memory.hidden, at + 8, &mut fault)?;
        let outcome = match Fault::from_bits(u64::from_le_bytes(fault)) {
            Some(fault) => Err(fault),
            None => {
                let mut results = vec![0; wanted];
                fabric.read_direct(&self.memory.hidden, layout.results(target.rank), &mut results).map(|()| results)
            }
        };
        *reply.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        Ok(())
    }

    fn post_request(&self, target: &Target<F>, request: &HelperRequest, number: u64) -> Result<(), Fault> {
        let (fabric, layout) = (self.fabric(), self.request_layout());
        let me = self.world.rank();
        fabric.put(&target.locks, layout.operands(me), &request.bytes)?;
        let words = [request.code.to_word(), request.len as u64, request.ptr, request.bytes.len() as u64];
        fabric.put(&target.locks, layout.request(me) + 8, &words.map(u64::to_le_bytes).concat())?;
        // Behind the payload on the same path; wakes the owner's helper thread.
        drop(fabric.write(fabric.word_in(&target.locks, layout.request(me))?, number, Notify::Yes));
        Ok(())
    }
}

/// An accumulate by the agent, request after request.
pub(crate) struct HelperAccumulate<'w, 's> {
    run: Range<usize>,
    runs: TypeMapRuns<'s>,
    /// The number of operands sent, and of elements in flight.
    done: usize,
    count: usize,
    call: Option<HelperCall<'w>>,
}

#[inline(always)] // keeps its arguments out of memory until needed
pub(crate) const fn by_helper<'w, 's>(type_map: TypeMap<'s>) -> HelperAccumulate<'w, 's> {
    HelperAccumulate { run: 0..0, runs: type_map.runs(), done: 0, count: 0, call: None }
}

impl<'w> HelperAccumulate<'w, '_> {
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
            let capacity = inner.request_layout().capacity();
            let mut operands = if work.op == Op::NoOp { &[][..] } else { &work.operands[self.done..] };
            let rest = (&mut self.run, &mut self.runs as &mut dyn Iterator<Item = _>);
            let request = HelperRequest::of_runs::<T>(work.op, work.results.is_some(), capacity, rest, &mut operands);
            if request.len == 0 {
                return std::task::Poll::Ready(Ok(()));
            }
            self.count = request.len / size_of::<T>();
            self.call = Some(inner.call(target, request));
        }
    }
}

//! The origin's side: sends requests and waits for replies.

use std::sync::Arc;

use onesided_fabric::remote_memory::{Fault, FaultKind, Notify, Patience};
use onesided_fabric::{Fabric, Segment, lock};

use super::in_flight::{InFlight, ReplyCell};
use super::{HelperRequest, OPERANDS, REFUSAL, REPLY, REQUEST};
use crate::datatype::fields::take_mut;
use crate::operation::combine::Work;
use crate::window::inner::Inner;
use crate::window::target::Target;
use crate::{Access, AtomicElement};

/// How long, in nanoseconds, an origin waits before it checks whether the owner still replies.
const POLL_INTERVAL: u64 = 100_000_000;

fn take(reply: &ReplyCell) -> Option<Result<Vec<u8>, Fault>> {
    lock(reply).take()
}

impl<F: Fabric> Inner<F> {
    /// Executes a request, on this thread or by the owner's helper thread.
    pub(crate) async fn call(&self, target: &Target<F>, mut request: HelperRequest) -> Result<Vec<u8>, Fault> {
        request.ptr = target.ptr;
        match request.perform(self.fabric(), &target.data) {
            Err(fault) if fault.kind() == FaultKind::NotOwn => self.request_and_wait(target, request).await,
            done => {
                target.count(onesided_fabric::Path::Cpu);
                done
            }
        }
    }

    pub(super) async fn request_and_wait(&self, target: &Target<F>, request: HelperRequest) -> Result<Vec<u8>, Fault> {
        let (fabric, layout, owner) = (self.fabric(), self.request_layout(), target.fabric_rank());
        if target.locks.len() < layout.end() || self.memory.hidden.len() < layout.end() {
            return Err(Fault::of(FaultKind::Unsupported, owner));
        }
        let reply = ReplyCell::default();
        let answer = fabric.word_in(&self.memory.hidden, layout.at(target.rank, REPLY))?;
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
        let at = layout.at(self.world.rank(), REFUSAL);
        let number = fabric.read(fabric.word_in(&target.locks, at)?).await?;
        let mut fault = [0; 8];
        fabric.get(&target.locks, at + 8, &mut fault).await?;
        let fault = Fault::from_bits(u64::from_le_bytes(fault)).unwrap_or(Fault::new(FaultKind::Protocol));
        let mut in_flight = self.helper_requests.in_flight(target.rank)?;
        if number == in_flight.posted
            && let Some((reply, _)) = in_flight.current.take()
        {
            *lock(&reply) = Some(Err(fault));
        }
        Ok(())
    }

    /// Stores the reply to the pending request, if it has arrived.
    fn take_answer(&self, target: &Target<F>, in_flight: &mut InFlight) -> Result<(), Fault> {
        let (fabric, layout) = (self.fabric(), self.request_layout());
        let at = layout.at(target.rank, REPLY);
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
        *lock(&reply) = Some(outcome);
        Ok(())
    }

    fn post_request(&self, target: &Target<F>, request: &HelperRequest, number: u64) -> Result<(), Fault> {
        let (fabric, layout) = (self.fabric(), self.request_layout());
        let me = self.world.rank();
        fabric.put(&target.locks, layout.at(me, OPERANDS), &request.bytes)?;
        let words = [request.code.to_word(), request.len as u64, request.ptr, request.bytes.len() as u64];
        fabric.put(&target.locks, layout.at(me, REQUEST) + 8, &words.map(u64::to_le_bytes).concat())?;
        // Behind the payload on the same path; wakes the owner's helper thread.
        drop(fabric.write(fabric.word_in(&target.locks, layout.at(me, REQUEST))?, number, Notify::Yes));
        Ok(())
    }
}

/// An accumulate by the agent, request after request.
pub(crate) async fn accumulate_by_helper<T: AtomicElement, F: Fabric>(
    access: Access<'_, T, F>,
    work: Work<'_, T>,
) -> Result<(), Fault> {
    let Access { inner, target, .. } = access;
    let Work { op, type_map, mut operands, mut results } = work;
    let (mut run, mut runs, capacity) = (0..0, type_map.runs(), inner.request_layout().capacity());
    loop {
        let rest = (&mut run, &mut runs as &mut dyn Iterator<Item = _>);
        let request = HelperRequest::of_runs::<T>(op, results.is_some(), capacity, rest, &mut operands);
        let len = request.len;
        if len == 0 {
            return Ok(());
        }
        let before = inner.call(target, request).await?;
        if let Some(results) = &mut results {
            if before.len() != len {
                return Err(Fault::new(FaultKind::Protocol));
            }
            bytemuck::cast_slice_mut(take_mut(results, len / size_of::<T>())).copy_from_slice(&before);
        }
    }
}

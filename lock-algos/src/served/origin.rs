//! The client side, for owners with a node.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use onesided_remote_memory::{Fault, FaultKind, Notify, Patience, RemoteMemory};

use super::messages::{Answer, Outcome, Request, Terms, Verb, ring};
use super::{ANSWER, ENDED, HELD, NOTE, POLL_INTERVAL, WAKE_EVENT};
use crate::backoff::Pauses;
use crate::recovery::{self, Boxed};
use crate::{Held, InMemory, Intent, IntentFn, LockContext, LockUse, Op, WaitPolicy, WordOf};

/// An owner that communicates with the server, which may sleep if it `SLEEPS`.
pub(super) struct Client<'m, P: InMemory, const SLEEPS: bool>(pub(super) LockUse<'m, P>);

impl<'m, P: LockContext<'m>, const SLEEPS: bool> Client<'m, P, SLEEPS> {
    /// The request id of this owner's last request, and its request slot.
    pub(super) fn noted(&self) -> Result<(u32, Option<u16>), Fault> {
        let note = self.0.memory.load(self.0.context.node(NOTE)?)?;
        Ok(((note >> 32) as u32, (note as u16).checked_sub(1)))
    }

    /// Notes the next request id, and returns it.
    pub(super) fn note(&self, request_slot: Option<u16>) -> Result<u32, Fault> {
        let (id, _) = self.noted()?;
        let id = id.wrapping_add(1);
        let request_slot = request_slot.map_or(0, |request_slot| u64::from(request_slot) + 1);
        self.0.memory.store(self.0.context.node(NOTE)?, u64::from(id) << 32 | request_slot)?;
        Ok(id)
    }

    /// Notes that the lock is held.
    fn note_held(&self) -> Result<(), Fault> {
        let node = self.0.context.node(NOTE)?;
        self.0.memory.store(node, self.0.memory.load(node)? | HELD)
    }

    /// Requests the lock. A repetition replaces the previous request.
    pub(super) fn request(&self, request_slot: u16, verb: Verb) -> Result<Op<P>, Fault> {
        let id = self.note(Some(request_slot))?;
        self.write_request(request_slot, id, verb)
    }

    /// Writes to the request slot, and to the wake event behind it: writes take effect in the order
    /// of posting.
    pub(super) fn write_request(&self, request_slot: u16, id: u32, verb: Verb) -> Result<Op<P>, Fault> {
        let LockUse { memory, context, .. } = self.0;
        let owner = context.owner();
        let request = Request { id, slot: owner.slot, verb };
        drop(memory.write(context.word(WordOf::Request(owner.rank, request_slot))?, request.to_bits(), Notify::No));
        let notify = if SLEEPS { Notify::Yes } else { Notify::No };
        Ok(memory.write(context.home(WAKE_EVENT)?, ring(owner.rank, request_slot, request), notify))
    }

    /// Ends the use of the node and the request slot.
    pub(super) fn leave(&self, request_slot: Option<u16>) -> Result<(), Fault> {
        recovery::retract(self.0.memory, self.0.context)?;
        if let Some(request_slot) = request_slot {
            self.0.context.release_request_slot(request_slot);
        }
        Ok(())
    }

    pub(super) fn closed(&self) -> Fault {
        Fault::of(FaultKind::Closed, self.0.context.home_rank())
    }

    /// `Closed` once the server has ended.
    pub(super) async fn check_open(&self) -> Result<(), Fault> {
        match self.0.memory.read(self.0.home).await? & ENDED {
            0 => Ok(()),
            _ => Err(self.closed()),
        }
    }
}

impl<'m, P: LockContext<'m>, const SLEEPS: bool> Client<'m, P, SLEEPS> {
    /// Waits for a reply that `is_it` accepts. `None`: `until` has become true, or there is none
    /// yet.
    fn answer(
        &self,
        is_it: impl Fn(Answer) -> bool + Copy + Unpin + Send + Sync + 'm,
        until: impl Fn() -> bool + Send + Sync,
    ) -> impl Future<Output = Result<Option<Outcome>, Fault>> + Send {
        let look = move |word| Answer::from_bits(word).filter(|answer| is_it(*answer)).map(|answer| answer.outcome);
        async move {
            let mut wait = self.wait_for_answer(move |word| look(word).is_some())?;
            match poll_fn(|cx| if until() { Poll::Ready(Ok(0)) } else { Pin::new(&mut wait).poll(cx) }).await {
                Ok(word) => Ok(look(word)),
                Err(fault) if fault.kind() == FaultKind::TimedOut => {
                    let open = self.check_open().await;
                    // It may have come before the end.
                    let answer = look(self.0.memory.load(self.0.node(ANSWER)?)?);
                    open.or_else(|closed| answer.map(drop).ok_or(closed))?;
                    Ok(answer)
                }
                Err(fault) => Err(fault),
            }
        }
    }

    fn wait_for_answer(
        &self,
        is_there: impl Fn(u64) -> bool + Unpin + Send + 'm,
    ) -> Result<impl Future<Output = Result<u64, Fault>> + Unpin + Send, Fault> {
        let LockUse { memory, context, .. } = self.0;
        let patience = Patience::on(context.home_rank()).and_until(memory.now().saturating_add(POLL_INTERVAL));
        Ok(memory.wait_until(self.0.node(ANSWER)?, is_there, patience))
    }

    /// Completes an acquire that [`start`](crate::LockAlgorithm::start) requested, if there was a
    /// request slot.
    pub(super) fn acquire(
        self,
        terms: Terms,
        first: Result<u64, Fault>,
        mut pauses: Pauses<'m>,
        intent: IntentFn<'_>,
    ) -> impl Future<Output = Result<Held, Fault>> + Send {
        async move {
            let outcome = match first {
                Err(fault) => Err(fault),
                Ok(_) => self.wait_for_grant(terms, &mut pauses, intent).await,
            };
            if outcome.is_err() {
                self.leave(self.noted()?.1)?;
            }
            outcome
        }
    }

    fn wait_for_grant(
        &self,
        mut terms: Terms,
        pauses: &mut Pauses<'m>,
        intent: IntentFn<'_>,
    ) -> impl Future<Output = Result<Held, Fault>> + Send {
        async move {
            loop {
                let intended = intent();
                let (id, request_slot) = self.noted()?;
                let Some(request_slot) = request_slot else {
                    match intended.wanted {
                        WaitPolicy::Cancelled | WaitPolicy::Leaving => return Err(Fault::new(FaultKind::Closed)),
                        WaitPolicy::Try => return Err(Fault::new(FaultKind::TimedOut)),
                        WaitPolicy::Block => {}
                    }
                    match self.0.context.take_request_slot() {
                        Some(request_slot) => drop(self.request(request_slot, Verb::Acquire(self.0.mode, terms))?),
                        None => {
                            self.0.memory.pause(self.0.home, pauses.next_nanos()).await;
                            self.check_open().await?;
                        }
                    }
                    continue;
                };
                if intended.is_over() {
                    self.withdraw((id, request_slot), Verb::Withdraw).await?;
                    return Err(Fault::new(FaultKind::Closed));
                }
                if !intended.is_patient() && !terms.at_once {
                    if terms.recovers {
                        // It may have been granted a poisoned lock: the server has to know that it
                        // does not hold it.
                        self.withdraw((id, request_slot), Verb::Withdraw).await?;
                    }
                    terms.at_once = true;
                    drop(self.request(request_slot, Verb::Acquire(self.0.mode, terms))?);
                    continue;
                }
                match self.answer(move |answer| answer.id == id, || intent().is_over()).await? {
                    None => {}
                    Some(Outcome::Granted(poison)) => {
                        self.note_held()?;
                        return Ok(Outcome::held(poison, self.0.mode, self.0.memory));
                    }
                    Some(Outcome::Busy) => return Err(Fault::new(FaultKind::TimedOut)),
                    Some(Outcome::Closed) => return Err(self.closed()),
                    Some(Outcome::Poisoned(poison)) => match intent() {
                        intended if intended.is_over() => {}
                        Intent { recovers: true, .. } if !terms.recovers => {
                            terms.recovers = true;
                            drop(self.request(request_slot, Verb::Acquire(self.0.mode, terms))?);
                        }
                        _ => return Err(poison.fault(self.0.memory)),
                    },
                    Some(Outcome::Withdrawn) => return Err(Fault::new(FaultKind::Protocol)),
                }
            }
        }
    }

    /// Withdraws an acquire, or leaves the lock poisoned, and waits until the server has handled
    /// that: then it writes nothing more to the node.
    pub(super) fn withdraw(&self, (id, request_slot): (u32, u16), verb: Verb) -> Boxed<'_, Result<(), Fault>> {
        Box::pin(async move {
            drop(self.write_request(request_slot, id, verb)?);
            let heard =
                move |answer: Answer| answer.id == id && matches!(answer.outcome, Outcome::Withdrawn | Outcome::Closed);
            while self.answer(heard, || false).await?.is_none() {}
            Ok(())
        })
    }
}

//! An acquire of a served lock, and its guard.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::thread;

use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_fabric::{Call, Fabric, Limit, debug, limited, lock};
use onesided_lock_algos::Mode;
use onesided_lock_algos::served::{Answer, Outcome, Poison, Request, Terms, Verb};

use super::{Inner, REQUEST, SLOTS, ServedLock, quietly};
use crate::{Error, Tag};

/// A pending acquire of a [`ServedLock`]: `.wait()` blocks, `.await` suspends, `.test()` polls once.
/// Does nothing unless waited on or polled. A drop withdraws it.
#[must_use = "does nothing unless waited on or polled"]
pub struct AcquireServed<'l, R, F: Fabric = onesided_fabric::Any> {
    lock: &'l ServedLock<F>,
    mode: Mode,
    terms: Terms,
    limit: Limit<'l, F>,
    call: Call<'l, Found<'l, R, F>, Result<R, Error>>,
}

/// Makes the result of a guard, or of none.
type Found<'l, R, F> = fn(Option<ServedGuard<'l, F>>) -> R;

impl<'l, F: Fabric> AcquireServed<'l, ServedGuard<'l, F>, F> {
    pub(super) fn new(lock: &'l ServedLock<F>, mode: Mode) -> Self {
        let call = Call::NotStarted((|guard: Option<_>| guard.expect("only a try is refused")) as fn(_) -> _);
        Self { lock, mode, terms: Terms::default(), limit: Limit::NONE, call }
    }
}

impl<'l, F: Fabric> AcquireServed<'l, Option<ServedGuard<'l, F>>, F> {
    pub(super) fn new_try(lock: &'l ServedLock<F>, mode: Mode) -> Self {
        let call = Call::NotStarted((|guard| guard) as fn(_) -> _);
        let terms = Terms { at_once: true, recovers: false };
        Self { lock, mode, terms, limit: Limit::NONE, call }
    }
}

impl<'l, R: 'l, F: Fabric> AcquireServed<'l, R, F> {
    /// Takes the lock over if it is poisoned: exclusively, and what it protects may be inconsistent
    /// (see [`ServedGuard::previous_owner`]). To be set before the first poll.
    pub const fn recover(mut self) -> Self {
        self.terms.recovers = true;
        self
    }

    #[cold]
    fn failed((lock, mode, terms): (&ServedLock<F>, Mode, Terms), fault: Fault) -> Error {
        let operation = match (terms.at_once, mode) {
            (false, Mode::Exclusive) => "lock",
            (false, Mode::Shared) => "lock_shared",
            (true, Mode::Exclusive) => "try_lock",
            (true, Mode::Shared) => "try_lock_shared",
        };
        Error::Lock { operation, home: lock.0.home, fault }
    }

    async fn run((lock, mode, terms): (&'l ServedLock<F>, Mode, Terms), found: Found<'l, R, F>) -> Result<R, Error> {
        let failed = |fault| Self::failed((lock, mode, terms), fault);
        let mut claim = Claim::new(&lock.0).map_err(failed)?;
        lock.0.release_again();
        let outcome = claim.outcome(Verb::Acquire(mode, terms)).await.map_err(failed)?;
        if let Outcome::Granted(poison) = outcome {
            return Ok(found(Some(ServedGuard::new(claim, mode, poison))));
        }
        claim.at_end = None; // the server has forgotten it
        match outcome {
            Outcome::Busy => Ok(found(None)),
            Outcome::Poisoned(poison) => {
                let world = lock.0.messages.world();
                Err(failed(world.translate(poison.fault(world.fabric()))))
            }
            Outcome::Granted(_) | Outcome::Withdrawn | Outcome::Closed => Err(failed(Fault::new(FaultKind::Closed))),
        }
    }
}

limited! {
    ['l, R: 'l, F], AcquireServed<'l, R, F>, R, Error, |acquire| acquire.lock.0.messages.world().fabric(),
    |found| Self::run((acquire.lock, acquire.mode, acquire.terms), found),
    late Self::failed((acquire.lock, acquire.mode, acquire.terms), Fault::new(FaultKind::TimedOut));
    /// Gives up after this time, counted from the next poll, and leaves nothing locked.
    deadline;
    /// Blocks until the lock is held, or the acquire has failed.
    ///
    /// # Errors
    /// See [`ServedLock::lock`].
    wait
}

debug!([R, F: Fabric] AcquireServed<'_, R, F>, |this| "{:?} acquire of {:?}, {:?}", this.mode, this.lock, this.call);

/// An acquire with its slot, which the home may know of until this is dropped.
struct Claim<'l, F: Fabric> {
    lock: &'l Inner<F>,
    slot: u16,
    /// Whether a reply to an earlier acquire may come.
    is_stale: bool,
    id: u32,
    /// What the home is told at the end.
    at_end: Option<Verb>,
}

impl<'l, F: Fabric> Claim<'l, F> {
    fn new(of: &'l Inner<F>) -> Result<Self, Fault> {
        let slots = &mut *lock(&of.slots);
        slots.id = slots.id.wrapping_add(1);
        let (slot, is_stale) = match slots.free.pop() {
            Some(free) => free,
            None if slots.made == SLOTS => return Err(Fault::new(FaultKind::NoSlot)),
            None => {
                slots.made += 1;
                (slots.made - 1, false)
            }
        };
        Ok(Self { lock: of, slot, is_stale, id: slots.id, at_end: None })
    }

    /// Sends the request, and waits for its reply.
    async fn outcome(&mut self, verb: Verb) -> Result<Outcome, Fault> {
        let (messages, home) = (&self.lock.messages, self.lock.home);
        let tag = Tag(self.slot.into());
        while std::mem::take(&mut self.is_stale) {
            let mut word = [0_u64];
            let mut receive = quietly(messages, home, || messages.recv_into(&mut word, home, tag));
            let polled = poll_fn(|cx| Poll::Ready(Pin::new(&mut receive).poll(cx))).await;
            self.is_stale = polled.map_err(|error| error.fault())?.is_ready();
        }
        let mut request = Some(Request { id: self.id, slot: self.slot, verb }.to_bits());
        loop {
            let mut word = [0_u64];
            let receive = quietly(messages, home, || messages.recv_into(&mut word, home, tag));
            if let Some(request) = request.take() {
                self.at_end = Some(Verb::Withdraw);
                let send = quietly(messages, home, || messages.send(std::slice::from_ref(&request), home, REQUEST));
                send.await.map_err(|error| error.fault())?;
            }
            receive.await.map_err(|error| error.fault())?;
            match Answer::from_bits(word[0]) {
                Some(Answer { id, outcome }) if id == self.id => return Ok(outcome),
                _ => {} // to an acquire that was withdrawn
            }
        }
    }
}

impl<F: Fabric> Drop for Claim<'_, F> {
    fn drop(&mut self) {
        let Self { lock: of, slot, id, at_end, .. } = *self;
        if let Some(verb) = at_end {
            of.send(Request { id, slot, verb }.to_bits());
        }
        lock(&of.slots).free.push((slot, self.is_stale || at_end == Some(Verb::Withdraw)));
    }
}

/// A served lock that is held. Its drop releases the lock, without waiting; in a panic it poisons one
/// that is held exclusively.
#[must_use = "the lock is released at once"]
pub struct ServedGuard<'l, F: Fabric = onesided_fabric::Any> {
    claim: Claim<'l, F>,
    mode: Mode,
    recovered: Option<Poison>,
    /// It was acquired in a panic, which does not poison it.
    in_panic: bool,
}

impl<'l, F: Fabric> ServedGuard<'l, F> {
    fn new(mut claim: Claim<'l, F>, mode: Mode, recovered: Option<Poison>) -> Self {
        claim.at_end = Some(Verb::Release);
        let mode = if recovered.is_some() { Mode::Exclusive } else { mode };
        Self { claim, mode, recovered, in_panic: thread::panicking() }
    }

    /// As requested, but exclusive if it was [recovered](AcquireServed::recover).
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// Why the lock was poisoned, if it was [recovered](AcquireServed::recover): `OwnerDied` or
    /// `OwnerPanicked`, with the owner's rank.
    pub fn previous_owner(&self) -> Option<Fault> {
        let world = self.claim.lock.messages.world();
        Some(world.translate(self.recovered?.fault(world.fabric())))
    }
}

impl<F: Fabric> Drop for ServedGuard<'_, F> {
    fn drop(&mut self) {
        if thread::panicking() && !self.in_panic {
            self.claim.at_end = Some(Verb::Panic);
        }
    }
}

debug!([F: Fabric] ServedGuard<'_, F>, |this| "{:?} lock at rank {}", this.mode, this.claim.lock.home);

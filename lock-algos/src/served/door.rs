//! The fallback slot, for owners without a node.

use onesided_remote_memory::{Fault, FaultKind, Liveness, RemoteMemory};

use super::messages::{Answer, Door, NO_LINE, Outcome, Request, Terms, Verb, ring};
use super::origin::Errand;
use super::{COMES, CROWD, DOOR, DOOR_ANSWER, in_crowd};
use crate::backoff::Pauses;
use crate::recovery::{Count, stamp};
use crate::settle::{self, LOOK, Tries};
use crate::{Held, IntentFn, LockContext, Mode, Owner, WaitPolicy};

/// A waiter at the fallback slot checks for the server once in this many polls.
const TURNS: u32 = 16;

impl<'m, M: RemoteMemory, P: LockContext<'m, M>> Errand<'m, M, P> {
    /// Changes the fallback slot, if it is still `found`, and wakes the server. Returns the
    /// previous word.
    async fn change(&self, found: Door, new: Door) -> Result<Door, Fault> {
        let now = Door(
            self.changed(found, new, self.memory.compare_swap(self.context.home(DOOR)?, found.0, new.0).await).await?,
        );
        if now == found {
            self.ring_at_the_door(new).await?;
        }
        Ok(now)
    }

    /// Resolves the result of a change of the fallback slot. No other rank writes or removes this
    /// owner's word.
    async fn changed(&self, found: Door, new: Door, outcome: Result<u64, Fault>) -> Result<u64, Fault> {
        let leaves = new.is_free() || !found.is_free();
        let took_effect = |now| Some(if leaves { now != found.0 } else { now == new.0 });
        let door = self.context.home(DOOR)?;
        let settled = settle::swapped(self.memory, door, (found.0, new.0), outcome, took_effect).await?;
        Ok(settled.unwrap_or_else(|now| now))
    }

    /// Wakes the server after a change of the fallback slot. The wake event names no request slot,
    /// so the server checks all. A changed fallback slot has another request id, or another verb.
    async fn ring_at_the_door(&self, door: Door) -> Result<(), Fault> {
        let gone = Request { turn: door.turn(), slot: Owner::NO_SLOT, verb: Verb::Release };
        let request = door.request(Owner::NO_SLOT).unwrap_or(gone);
        self.ring_until_told(ring(self.context.owner().rank, NO_LINE, request)).await
    }

    /// Ends a reader of the fallback slot: `found` is its previous number. `false` if there was
    /// none. An indeterminate departure does no harm: the server corrects the number.
    pub(super) async fn left_the_crowd(&self, found: Result<u64, Fault>) -> Result<bool, Fault> {
        if let Err(fault) = found
            && !fault.is_unknown()
        {
            return Err(fault);
        }
        if found.is_ok_and(|found| in_crowd(found) == 0) {
            self.memory.fetch_add(self.context.home(CROWD)?, 1).await?;
            return Ok(false);
        }
        // A different word each time, with high probability.
        let stamp = stamp(self.memory, self.context.owner());
        let request = Request { turn: stamp as u32, slot: (stamp >> 32) as u16, verb: Verb::Withdraw };
        self.ring_until_told(ring(self.context.owner().rank, NO_LINE, request)).await.map(|()| true)
    }

    /// Clears the fallback slot, which releases the lock. `false` if the word was not this owner's.
    pub(super) async fn step_aside(&self, door: Door) -> Result<bool, Fault> {
        Ok(self.change(door, door.left()).await? == door)
    }

    /// Withdraws a request, granted or not, and clears the slot when the server has handled that.
    /// `false` if the word was not this owner's.
    pub(super) async fn withdraw_at_the_door(&self, state: M::Word<'m>) -> Result<bool, Fault> {
        let Self { memory, context, .. } = *self;
        let (door, answer) = (context.home(DOOR)?, context.home(DOOR_ANSWER)?);
        let found = Door(settle::read(memory, door).await?);
        let withdrawn = found.withdrawn();
        if found.is_free() || found.rank() != context.owner().rank || self.change(found, withdrawn).await? != found {
            return Ok(false);
        }
        loop {
            let said = Answer::from_bits(settle::read(memory, answer).await?);
            let said = said.filter(|answer| answer.turn == found.turn()).map(|answer| answer.outcome);
            if let Some(Outcome::Withdrawn | Outcome::Closed) = said {
                return self.step_aside(withdrawn).await;
            }
            self.check_home()?;
            self.check_open(state).await?;
            memory.pause(answer, LOOK).await;
        }
    }

    /// Completes an acquire whose request [`start`](crate::LockAlgorithm::start) wrote to the
    /// fallback slot: `found` is the word before that.
    pub(super) async fn wait_at_the_door(
        self,
        state: M::Word<'m>,
        asked: (Mode, Terms),
        (first, pauses): (Result<u64, Fault>, Pauses<'m>),
        intent: IntentFn<'_>,
    ) -> Result<Held, Fault> {
        let mut counts = Count::of(self.memory, self.context, true);
        // A waiter is not one of the readers that the server may count.
        counts.end()?;
        let held = self.wait_there(state, asked, (first, pauses), intent, &mut counts).await;
        counts.after(held)
    }

    async fn wait_there(
        &self,
        state: M::Word<'m>,
        (mode, mut terms): (Mode, Terms),
        (first, mut pauses): (Result<u64, Fault>, Pauses<'m>),
        intent: IntentFn<'_>,
        counts: &mut Count<'m, M, P>,
    ) -> Result<Held, Fault> {
        let Self { memory, context, .. } = *self;
        let (door, me) = (context.home(DOOR)?, context.owner());
        let knocks = Door(0).taken(me, mode, terms);
        let mut found = Door(self.changed(Door(0), knocks, first).await?);
        let mut mine = (found == Door(0)).then_some(knocks);
        if let Some(mine) = mine {
            self.ring_at_the_door(mine).await?;
        }
        let mut looks = 0_u32;
        loop {
            self.check_home()?;
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(TURNS) {
                self.check_open(state).await?;
            }
            let intended = intent();
            let Some(taken) = mine else {
                if intended.is_over() {
                    return Err(Fault::new(FaultKind::Closed));
                }
                if found.is_free() {
                    terms.at_once = !intended.is_patient();
                    let new = found.taken(me, mode, terms);
                    let now = self.change(found, new).await?;
                    mine = (now == found).then_some(new);
                    found = now;
                    continue;
                }
                if memory.liveness(found.rank()) != Liveness::Alive {
                    self.ring_at_the_door(found).await?; // the server clears it
                } else if intended.wanted == WaitPolicy::Try {
                    return Err(Fault::new(FaultKind::TimedOut));
                }
                memory.pause(door, pauses.next_nanos()).await;
                found = settle::read(memory, door).await.map(Door)?;
                continue;
            };
            let changes = terms.at_once == intended.is_patient();
            if terms.recovers && (intended.is_over() || changes) {
                // It may have been granted a poisoned lock: the server has to know that it does not
                // hold it.
                self.withdraw_at_the_door(state).await?;
                (mine, found) = (None, settle::read(memory, door).await.map(Door)?);
                continue;
            }
            if intended.is_over() {
                self.step_aside(taken).await?;
                return Err(Fault::new(FaultKind::Closed));
            }
            if changes {
                terms.at_once = !intended.is_patient();
                mine = self.knock_again(taken, (mode, terms)).await?;
                continue;
            }
            let answer = context.home(DOOR_ANSWER)?;
            let said =
                Answer::from_bits(settle::read(memory, answer).await?).filter(|answer| answer.turn == taken.turn());
            let why = match said.map(|answer| answer.outcome) {
                None => {
                    memory.pause(answer, pauses.next_nanos()).await;
                    continue;
                }
                Some(Outcome::Granted(death)) => {
                    let held = Outcome::held(death, mode);
                    if held.mode == Mode::Shared && context.slots() > 0 {
                        counts.begin()?;
                        // First, so that a rank that sees the slot clear sees the reader. The
                        // server corrects one too many.
                        let mut tries = Tries::default();
                        while let Err(fault) = memory.fetch_add(context.home(CROWD)?, COMES).await {
                            tries.again(memory, door, fault).await?;
                        }
                        self.step_aside(taken).await?;
                    }
                    return Ok(held);
                }
                Some(Outcome::Poisoned(_)) if intended.recovers && !terms.recovers => {
                    terms.recovers = true;
                    mine = self.knock_again(taken, (mode, terms)).await?;
                    continue;
                }
                Some(Outcome::Poisoned(death)) => death.fault(),
                Some(Outcome::Busy) => Fault::new(FaultKind::TimedOut),
                Some(Outcome::Closed) => self.closed(),
                Some(Outcome::Withdrawn) => Fault::new(FaultKind::Protocol),
            };
            self.step_aside(taken).await?;
            return Err(why);
        }
    }

    /// Requests again on other terms: the slot's owner is gone, and another one uses it.
    async fn knock_again(&self, taken: Door, (mode, terms): (Mode, Terms)) -> Result<Option<Door>, Fault> {
        let new = taken.left().taken(self.context.owner(), mode, terms);
        match self.change(taken, new).await? == taken {
            true => Ok(Some(new)),
            false => Err(Fault::new(FaultKind::Protocol)), // no other rank changes it
        }
    }

    /// `PeerDied` or `PeerLeft` if the home rank ended: if its memory outlives it, nothing else
    /// tells.
    fn check_home(&self) -> Result<(), Fault> {
        let Some(home) = self.context.home_rank() else { return Ok(()) };
        match self.memory.liveness(home) {
            Liveness::Alive => Ok(()),
            Liveness::Dead => Err(Fault::of(FaultKind::PeerDied, home)),
            Liveness::Left => Err(Fault::of(FaultKind::PeerLeft, home)),
        }
    }
}

//! The way by the queue of a host: acquire, then release.

use std::future::Future;

use onesided_remote_memory::{Fault, FaultKind, Notify, Rank, RemoteMemory};

use super::TwoLevel;
use super::note::{NOTE, waits_at};
use crate::cohort::{CohortOwner, GlobalState, STATE, State, cohort};
use crate::part::Part;
use crate::recovery::{self, Boxed, is_lost};
use crate::test_and_set::hand_back;
use crate::ticket::counters::Counters;
use crate::{Held, InMemory, Intent, IntentFn, Kept, LockAlgorithm, LockContext, LockUse, Mode, Op, Word, WordOf};

impl TwoLevel {
    /// Posts the first operation in the queue of the host, if there is one.
    pub(super) fn queue_up<'m, P: LockContext<'m>>(
        &self,
        memory: &'m P::Memory, // not the use of the lock: by reference it would pass through memory
        context: P,
    ) -> Result<Option<Op<P>>, Fault> {
        let Some(leader) = context.cohort_home() else { return Ok(None) };
        let host = Part::of_host(context, leader);
        let Ok(words) = self.queue.words(host, Intent::LOCK) else { return Ok(None) };
        let queued = self.queue.start(LockUse::new(memory, host, words, Mode::Exclusive))?;
        memory.store(context.node(NOTE)?, waits_at(leader))?;
        Ok(Some(queued))
    }
}

/// An owner in the queue of its host.
pub(super) struct InQueue<'a, 'm, P: InMemory> {
    pub(super) lock: &'m TwoLevel,
    pub(super) used: &'a LockUse<'m, P>,
    pub(super) leader: Rank,
}

/// How far an owner is whose turn it is in the queue.
pub(super) enum Global {
    /// The lock is held, by this owner word of the cohort.
    Held(CohortOwner, Held),
    /// It is contended at the home: what the first attempt found there, in this state of the host.
    Contended(State, Result<u64, Fault>),
    /// The acquire is cancelled, and the turn was handed over.
    Cancelled,
}

impl<'m, P: LockContext<'m>> InQueue<'_, 'm, P> {
    pub(super) fn host(&self) -> Part<P> {
        Part::of_host(self.used.context, self.leader)
    }

    /// The use of the host's queue.
    fn queue(&self) -> Result<LockUse<'m, Part<P>>, Fault> {
        Ok(LockUse::new(
            self.used.memory,
            self.host(),
            self.lock.queue.words(self.host(), Intent::LOCK)?,
            Mode::Exclusive,
        ))
    }

    fn state_word(&self) -> Result<Word<'m, P>, Fault> {
        self.used.context.word(WordOf::Host(self.leader, STATE))
    }

    pub(super) async fn state(&self) -> Result<State, Fault> {
        self.used.memory.read(self.state_word()?).await.map(State::of)
    }

    pub(super) async fn set(&self, state: State) -> Result<(), Fault> {
        self.used.memory.write(self.state_word()?, state.word(), Notify::No).await.map(drop)
    }

    /// The cohort's owner word of this generation.
    pub(super) const fn owner_word(&self, state: State) -> CohortOwner {
        CohortOwner::new(self.leader, state.generation)
    }

    /// The use of the lock at the home by the cohort.
    pub(super) fn as_cohort(&self, state: State) -> LockUse<'m, P> {
        LockUse { mode: Mode::Exclusive, ..self.used.with_owner(self.owner_word(state).0) }
    }

    fn note(&self, note: u64) -> Result<(), Fault> {
        self.used.memory.store(self.used.node(NOTE)?, note)
    }

    /// The use of the queue in which this owner waits, unless the first operation found that it is
    /// its turn.
    pub(super) fn waits(&self, first: Result<u64, Fault>) -> Result<Option<LockUse<'m, Part<P>>>, Fault> {
        let queue = self.queue()?;
        let has_turn = first.is_ok_and(|first| self.lock.queue.holds(queue.owner, queue.mode, first));
        if has_turn {
            self.used.context.keep(Kept::Bypasses, 0);
        }
        Ok((!has_turn).then_some(queue))
    }

    /// Notes that this owner waits in the queue no more.
    pub(super) fn not_queued(&self, fault: Fault) -> Fault {
        self.note(0).err().unwrap_or(fault)
    }

    /// Acquires the lock, with the turn in the queue, as far as one attempt goes. `died` is the
    /// death in the queue. After an error the turn is still this owner's.
    pub(super) fn with_turn(
        &self,
        died: Option<Rank>,
        intent: IntentFn<'_>,
    ) -> impl Future<Output = Result<Global, Fault>> + Send {
        async move {
            let mut state = self.state().await?;
            if let (GlobalState::Kept(_), None) = (state.global, died)
                && cohort(self.used, self.leader).has_ended_member()
            {
                state = self.renew(state).await?; // not boxed: a rank may have left long ago
            }
            match state.global {
                GlobalState::Uncertain => Box::pin(self.recover(state, died, intent)).await,
                _ if died.is_some() => Box::pin(self.recover(state, died, intent)).await,
                GlobalState::Kept(_) if intent().is_over() => {
                    Box::pin(self.hand_over(state)).await.map(|()| Global::Cancelled)
                }
                GlobalState::Kept(_) => Ok(Global::Held(self.owner_word(state), Held::cleanly(Mode::Exclusive))),
                GlobalState::Away { yields } => {
                    if yields {
                        let nanos = self.lock.home.pauses(self.used.context.owner()).next_nanos();
                        self.used.memory.pause(self.used.home, nanos).await;
                    }
                    self.try_global(state, intent).await
                }
            }
        }
    }

    /// Tries to acquire the lock at the home, with the turn in the queue.
    pub(super) fn try_global(
        &self,
        state: State,
        intent: IntentFn<'_>,
    ) -> impl Future<Output = Result<Global, Fault>> + Send {
        // From here on the generation is unique to this hold.
        let state = State { global: GlobalState::Away { yields: false }, generation: state.generation + 1 };
        async move {
            self.set(state).await?;
            if intent().is_over() {
                return Err(Fault::new(FaultKind::Closed));
            }
            let owner_word = self.owner_word(state);
            Ok(match self.used.memory.compare_swap(self.used.home, 0, owner_word.0).await {
                Ok(0) => Global::Held(owner_word, Held::cleanly(Mode::Exclusive)),
                found => Global::Contended(state, found),
            })
        }
    }

    /// Ends the acquire of an owner whose turn it is. `contended`: whether it waited at the home,
    /// in this state.
    pub(super) async fn end(
        &self,
        contended: Option<State>,
        acquired: Result<(CohortOwner, Held), Fault>,
    ) -> Result<Held, Fault> {
        match acquired {
            Ok((owner_word, held)) => self.note(owner_word.0).map(|()| held),
            Err(fault) => Box::pin(self.fail(contended, fault)).await,
        }
    }

    async fn fail(&self, contended: Option<State>, fault: Fault) -> Result<Held, Fault> {
        let noted = match contended {
            // The owner word may be there: the next owner looks.
            Some(state) if is_lost(fault) => self.set(State { global: GlobalState::Uncertain, ..state }).await,
            _ => Ok(()),
        };
        self.leave_queue().await?;
        noted.and(Err(fault))
    }

    /// Hands the lock, which the host holds, over to the next owner in the queue, or releases it at
    /// the home.
    pub(super) fn hand_over(&self, state: State) -> impl Future<Output = Result<(), Fault>> + Send {
        let LockUse { memory, .. } = *self.used;
        async move {
            let (at, me) = (self.used.context.home_rank(), self.used.context.owner().rank);
            if memory.has_failed(at, me) {
                // What it did under the lock may be missing: the next owner recovers it.
                self.leave_as(GlobalState::Uncertain).await?;
                return Err(Fault::of(FaultKind::ConnectionLost, at));
            }
            let handed = if let GlobalState::Kept(handed) = state.global { handed } else { 0 };
            let mut found: Counters<15> = self.queue()?.look().await?;
            let mut written = state;
            let has_next = |queue: Counters<15>| !queue.is_recovering() && queue.out(Mode::Exclusive) > 1;
            if has_next(found) && handed < self.lock.handovers {
                written.global = GlobalState::Kept(handed + 1);
                self.set(written).await?;
                // By compare-swap: the next owner may be cancelled, and then no owner would hold
                // the lock.
                while has_next(found) {
                    let returned = Counters(found.0.wrapping_add(Counters::<15>::returning(Mode::Exclusive)));
                    let now = self.queue()?.swap(found, returned).await?;
                    if now == found {
                        self.note(0)?;
                        return recovery::retract(memory, self.host());
                    }
                    found = now;
                }
            }
            let away = State { global: GlobalState::Away { yields: has_next(found) }, ..state };
            if away != written {
                self.set(away).await?;
            }
            let released = hand_back(self.used, self.owner_word(state).0, 0).await;
            match released.is_err_and(is_lost) {
                true => self.leave_as(GlobalState::Uncertain).await?,
                false => self.leave_queue().await?,
            }
            released
        }
    }

    /// Leaves the host's queue with this state of the lock.
    pub(super) fn leave_as(&self, global: GlobalState) -> Boxed<'_, Result<(), Fault>> {
        Box::pin(async move {
            self.set(State { global, ..self.state().await? }).await?;
            self.leave_queue().await
        })
    }

    /// Gives the turn in the queue to the next owner, if there is one.
    async fn leave_queue(&self) -> Result<(), Fault> {
        self.note(0)?;
        let found = self.lock.queue.start_release(self.queue()?)?.await;
        self.lock.queue.finish_release(self.queue()?, found).await
    }
}

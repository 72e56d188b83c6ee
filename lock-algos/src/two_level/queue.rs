//! The way by the queue of a host: acquire, then release.

use onesided_remote_memory::{Fault, FaultKind, Notify, Rank, RemoteMemory};

use super::TwoLevel;
use super::cohort_owner::{CohortOwner, GlobalState, State};
use super::host::{AtHost, ByHost, lost_on};
use super::note::{NOTE, waits_at};
use crate::recovery::{self, is_lost};
use crate::test_and_set::hand_back;
use crate::ticket::counters::Counters;
use crate::{Held, IntentFn, LockAlgorithm, LockContext, LockUse, Mode};

impl TwoLevel {
    /// Posts the first operation in the queue of the host, if there is one.
    pub(super) fn queue_up<'m, M: RemoteMemory>(
        &self,
        memory: &'m M, // not the use of the lock: by reference it would pass through memory
        context: impl LockContext<'m, M>,
    ) -> Result<Option<M::Op>, Fault> {
        let Some(leader) = context.cohort_home() else { return Ok(None) };
        let host = AtHost { context, leader };
        let Ok(words) = self.queue.words(host) else { return Ok(None) };
        let queued = self.queue.start(LockUse::new(memory, host, words, Mode::Exclusive))?;
        memory.store(context.node(NOTE)?, waits_at(leader))?;
        Ok(Some(queued))
    }
}

/// An owner in the queue of its host.
#[derive(Clone, Copy)]
pub(super) struct InQueue<'m, M: RemoteMemory, P> {
    pub(super) lock: &'m TwoLevel,
    pub(super) memory: &'m M,
    pub(super) host: AtHost<P>,
    pub(super) home: M::Word<'m>,
}

impl<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm> InQueue<'m, M, P> {
    pub(super) fn of(lock: &'m TwoLevel, used: &LockUse<'m, M, P>, leader: Rank) -> Self {
        let LockUse { memory, context, home, .. } = *used;
        Self { lock, memory, host: AtHost { context, leader }, home }
    }

    /// The use of the host's queue.
    fn queue(&self) -> Result<LockUse<'m, M, AtHost<P>>, Fault> {
        Ok(LockUse::new(self.memory, self.host, self.lock.queue.words(self.host)?, Mode::Exclusive))
    }

    pub(super) async fn state(&self) -> Result<State, Fault> {
        self.memory.read(self.host.state()?).await.map(State::of)
    }

    pub(super) async fn set(&self, state: State) -> Result<(), Fault> {
        self.memory.write(self.host.state()?, state.word(), Notify::No).await.map(drop)
    }

    /// The cohort's owner word of this generation.
    pub(super) const fn owner_word(&self, state: State) -> CohortOwner {
        CohortOwner::new(self.host.leader, state.generation)
    }

    /// Waits for the turn in the host's queue, and for the lock.
    pub(super) async fn acquire(&self, first: Result<u64, Fault>, intent: IntentFn<'_>) -> Result<Held, Fault> {
        let (queue, note) = (self.queue()?, self.host.context.node(NOTE)?);
        let died = if first.is_ok_and(|first| self.lock.queue.holds(queue.owner, queue.mode, first)) {
            self.host.context.keep_bypasses(0);
            None
        } else {
            // A rank that died in the queue may not have held the lock: the home's word tells.
            let intent: IntentFn<'_> = &|| intent().recovering();
            match self.lock.queue.contend_in(queue, first, intent, None).await {
                Ok(held) => held.recovered.and_then(Fault::rank),
                Err(fault) => {
                    self.memory.store(note, 0)?;
                    return Err(fault);
                }
            }
        };
        match self.with_turn(died, intent).await {
            Ok(Some((owner_word, held))) => {
                self.memory.store(note, owner_word.0)?;
                Ok(held)
            }
            Ok(None) => Err(Fault::new(FaultKind::Closed)),
            Err(fault) => {
                self.leave_queue().await?;
                Err(fault)
            }
        }
    }

    /// Acquires the lock, with the turn in the queue. `died` is the death in the queue. `None`: the
    /// acquire is cancelled, and the turn was handed over. After an error the turn is still this
    /// owner's.
    async fn with_turn(&self, died: Option<Rank>, intent: IntentFn<'_>) -> Result<Option<(CohortOwner, Held)>, Fault> {
        let mut state = self.state().await?;
        if let (GlobalState::Kept(_), None) = (state.global, died)
            && lost_on(self.memory, self.host.context, self.host.leader).is_some()
        {
            state = self.renew(state).await?;
        }
        match state.global {
            GlobalState::Uncertain => self.recover(state, died, intent).await.map(Some),
            _ if died.is_some() => self.recover(state, died, intent).await.map(Some),
            GlobalState::Kept(_) if intent().is_over() => self.hand_over(state).await.map(|()| None),
            GlobalState::Kept(_) => Ok(Some((self.owner_word(state), Held::cleanly(Mode::Exclusive)))),
            GlobalState::Away { yields } => {
                if yields {
                    let nanos = self.lock.home.pauses(self.host.context.owner()).next_nanos();
                    self.memory.pause(self.home, nanos).await;
                }
                self.acquire_global(state, intent).await.map(Some)
            }
        }
    }

    /// Acquires the lock at the home, with the turn in the queue.
    pub(super) async fn acquire_global(
        &self,
        state: State,
        intent: IntentFn<'_>,
    ) -> Result<(CohortOwner, Held), Fault> {
        // From here on the generation is unique to this hold.
        let state = State { global: GlobalState::Away { yields: false }, generation: state.generation + 1 };
        let owner_word = self.owner_word(state);
        self.set(state).await?;
        if intent().is_over() {
            return Err(Fault::new(FaultKind::Closed));
        }
        let held = match self.memory.compare_swap(self.home, 0, owner_word.0).await {
            Ok(0) => Ok(Held::cleanly(Mode::Exclusive)),
            found => {
                let words = (self.home, owner_word.0);
                let lock = LockUse::new(self.memory, self.host.context, words, Mode::Exclusive);
                self.lock.home.contend_judged(lock, found, intent, Some(ByHost::default())).await
            }
        };
        if held.is_err_and(is_lost) {
            // The owner word may be there: the next owner looks.
            self.set(State { global: GlobalState::Uncertain, ..state }).await?;
        }
        held.map(|held| (owner_word, held))
    }

    /// Hands the lock, which the host holds, over to the next owner in the queue, or releases it at
    /// the home.
    pub(super) async fn hand_over(&self, state: State) -> Result<(), Fault> {
        let (memory, context) = (self.memory, self.host.context);
        let (at, me) = (context.home_rank(), context.owner().rank);
        if memory.has_failed(at, me) {
            // What it did under the lock may be missing: the next owner recovers it.
            self.leave_as(GlobalState::Uncertain).await?;
            return Err(Fault::of(FaultKind::ConnectionLost, at));
        }
        let queue = self.queue()?;
        let handed = if let GlobalState::Kept(handed) = state.global { handed } else { 0 };
        let mut found: Counters<15> = queue.look().await?;
        let mut written = state;
        let has_next = |queue: Counters<15>| !queue.is_recovering() && queue.out(Mode::Exclusive) > 1;
        if has_next(found) && handed < self.lock.handovers {
            written.global = GlobalState::Kept(handed + 1);
            self.set(written).await?;
            // By compare-swap: the next owner may be cancelled, and then no owner would hold the
            // lock.
            while has_next(found) {
                let returned = Counters(found.0.wrapping_add(Counters::<15>::returning(Mode::Exclusive)));
                let now = queue.swap(found, returned).await?;
                if now == found {
                    memory.store(context.node(NOTE)?, 0)?;
                    return recovery::retract(memory, self.host);
                }
                found = now;
            }
        }
        let away = State { global: GlobalState::Away { yields: has_next(found) }, ..state };
        if away != written {
            self.set(away).await?;
        }
        let released = hand_back(memory, self.home, self.owner_word(state).0, 0).await;
        match released.is_err_and(is_lost) {
            true => self.leave_as(GlobalState::Uncertain).await?,
            false => self.leave_queue().await?,
        }
        released
    }

    /// Leaves the host's queue with this state of the lock.
    pub(super) async fn leave_as(&self, global: GlobalState) -> Result<(), Fault> {
        self.set(State { global, ..self.state().await? }).await?;
        self.leave_queue().await
    }

    /// Gives the turn in the queue to the next owner, if there is one.
    async fn leave_queue(&self) -> Result<(), Fault> {
        self.memory.store(self.host.context.node(NOTE)?, 0)?;
        let queue = self.queue()?;
        let found = self.lock.queue.start_release(queue)?.await;
        self.lock.queue.finish_release(queue, found).await
    }
}

//! The way by the queue of a host.

use onesided_remote_memory::{Fault, FaultKind, Liveness, Notify, Rank, RemoteMemory};

use super::cohort_owner::{CohortOwner, GlobalState, State};
use super::host::{AtHost, ByHost, lost_on, member_died};
use super::{AT_HOST, NOTE, TwoLevel, waits_at};
use crate::recovery::{self, is_lost};
use crate::ticket::counters::Counters;
use crate::{Held, IntentFn, LockAlgorithm, LockContext, LockUse, Mode};

impl TwoLevel {
    /// Posts the first operation in the queue of the host, if there is one.
    pub(super) fn queue_up<'m, M: RemoteMemory>(
        &self,
        memory: &'m M,
        context: impl LockContext<'m, M>,
    ) -> Result<Option<M::Op>, Fault> {
        let Some(leader) = context.cohort_home() else { return Ok(None) };
        let Ok(queue) = self.in_queue(memory, AtHost { context, leader }) else { return Ok(None) };
        let queued = self.queue.start(queue)?;
        memory.store(context.node(NOTE)?, waits_at(leader))?;
        Ok(Some(queued))
    }

    /// The use of the host's queue.
    fn in_queue<'m, M: RemoteMemory, P: LockContext<'m, M>>(
        &self,
        memory: &'m M,
        host: AtHost<P>,
    ) -> Result<LockUse<'m, M, AtHost<P>>, Fault> {
        Ok(LockUse::new(memory, host, self.queue.words(host)?, Mode::Exclusive))
    }

    /// Waits for the turn in the host's queue, and for the lock.
    pub(super) async fn by_host<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        host: AtHost<P>,
        home: M::Word<'m>,
        first: Result<u64, Fault>,
        intent: IntentFn<'_>,
    ) -> Result<Held, Fault> {
        let queue = self.in_queue(memory, host)?;
        let died = if first.is_ok_and(|first| self.queue.holds(queue.owner, queue.mode, first)) {
            host.context.keep_bypasses(0);
            None
        } else {
            // A rank that died in the queue may not have held the lock: the home's word tells.
            let intent: IntentFn<'_> = &|| intent().recovering();
            match self.queue.contend_in(queue, first, intent, None).await {
                Ok(held) => held.recovered.and_then(Fault::rank),
                Err(fault) => {
                    memory.store(host.context.node(NOTE)?, 0)?;
                    return Err(fault);
                }
            }
        };
        match self.with_turn(memory, host, home, died, intent).await {
            Ok(Some((owner_word, held))) => {
                memory.store(host.context.node(NOTE)?, owner_word.0)?;
                Ok(held)
            }
            Ok(None) => Err(Fault::new(FaultKind::Closed)),
            Err(fault) => {
                self.leave_queue(memory, host).await?;
                Err(fault)
            }
        }
    }

    /// Acquires the lock, with the turn in the queue. `died` is the death in the queue. `None`: the
    /// acquire is cancelled, and the turn was handed over. After an error the turn is still this
    /// owner's.
    async fn with_turn<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        host: AtHost<P>,
        home: M::Word<'m>,
        died: Option<Rank>,
        intent: IntentFn<'_>,
    ) -> Result<Option<(CohortOwner, Held)>, Fault> {
        let mut state = host.global_state(memory).await?;
        if let (GlobalState::Kept(_), None) = (state.global, died)
            && lost_on(memory, host.context, host.leader).is_some()
        {
            state = self.renew(memory, host, home, state).await?;
        }
        match state.global {
            _ if died.is_some() => {}
            GlobalState::Kept(_) if intent().is_over() => {
                return self.hand_over(memory, host, home, state).await.map(|()| None);
            }
            GlobalState::Kept(_) => {
                return Ok(Some((CohortOwner::new(host.leader, state.generation), Held::cleanly(Mode::Exclusive))));
            }
            GlobalState::Away { yields } => {
                if yields {
                    memory.pause(home, self.home.pauses(host.context.owner()).next_nanos()).await;
                }
                return self.acquire_global(memory, host, home, state, intent).await.map(Some);
            }
            GlobalState::Uncertain => {}
        }
        // Until the home's word tells.
        state.global = GlobalState::Uncertain;
        memory.write(host.state()?, state.word(), Notify::No).await?;
        let left = memory.read(home).await?;
        if CohortOwner::of(left).is_none_or(|owner_word| owner_word.leader() != host.leader) {
            return self.acquire_global(memory, host, home, state, intent).await.map(Some); // another owner has recovered it, or there was nothing to recover
        }
        let failed = || memory.failed_at(host.context.home_rank());
        let died = died.or_else(failed).map(|rank| member_died(memory, host.context, host.leader, rank));
        if intent().is_over() {
            return Err(Fault::new(FaultKind::Closed));
        }
        let held = match died {
            Some(died) if !intent().recovers => return Err(died),
            Some(died) => Held::after(died, Mode::Exclusive),
            None => Held::cleanly(Mode::Exclusive),
        };
        let (state, is_swapped) = self.change_owner_word(memory, host, home, (left, state.generation)).await?;
        match is_swapped {
            true => Ok(Some((CohortOwner::new(host.leader, state.generation), held))),
            false => self.acquire_global(memory, host, home, state, intent).await.map(Some),
        }
    }

    /// Changes the cohort's owner word after a hand-over on the host. Returns the state after that:
    /// another owner may hold the lock.
    async fn renew<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        host: AtHost<P>,
        home: M::Word<'m>,
        kept: State,
    ) -> Result<State, Fault> {
        let old = (CohortOwner::new(host.leader, kept.generation).0, kept.generation);
        let (mut state, is_swapped) = self.change_owner_word(memory, host, home, old).await?;
        state.global = if is_swapped { kept.global } else { GlobalState::Away { yields: false } };
        memory.write(host.state()?, state.word(), Notify::No).await?;
        Ok(state)
    }

    /// Swaps the owner word at the home, if it is this word, for one of the next generation.
    /// Returns the state, which is suspect, and whether the word was swapped.
    async fn change_owner_word<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        host: AtHost<P>,
        home: M::Word<'m>,
        (found, generation): (u64, u64),
    ) -> Result<(State, bool), Fault> {
        let state = State { generation: generation + 1, global: GlobalState::Uncertain };
        memory.write(host.state()?, state.word(), Notify::No).await?;
        let owner_word = CohortOwner::new(host.leader, state.generation);
        let is_swapped = memory.compare_swap(home, found, owner_word.0).await? == found;
        Ok((state, is_swapped))
    }

    /// Acquires the lock at the home, with the turn in the queue.
    async fn acquire_global<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        host: AtHost<P>,
        home: M::Word<'m>,
        state: State,
        intent: IntentFn<'_>,
    ) -> Result<(CohortOwner, Held), Fault> {
        // From here on the generation is unique to this hold.
        let state = State { global: GlobalState::Away { yields: false }, generation: state.generation + 1 };
        let owner_word = CohortOwner::new(host.leader, state.generation);
        memory.write(host.state()?, state.word(), Notify::No).await?;
        if intent().is_over() {
            return Err(Fault::new(FaultKind::Closed));
        }
        let held = match memory.compare_swap(home, 0, owner_word.0).await {
            Ok(0) => Ok(Held::cleanly(Mode::Exclusive)),
            found => {
                let lock = LockUse::new(memory, host.context, (home, owner_word.0), Mode::Exclusive);
                self.home.contend_judged(lock, found, intent, Some(ByHost::default())).await
            }
        };
        if held.is_err_and(is_lost) {
            // The owner word may be there: the next owner looks.
            let uncertain = State { global: GlobalState::Uncertain, ..state };
            memory.write(host.state()?, uncertain.word(), Notify::No).await?;
        }
        held.map(|held| (owner_word, held))
    }

    /// Gives the turn in the queue to the next owner, if there is one.
    async fn leave_queue<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        host: AtHost<P>,
    ) -> Result<(), Fault> {
        memory.store(host.context.node(NOTE)?, 0)?;
        let queue = self.in_queue(memory, host)?;
        let found = self.queue.start_release(queue)?.await;
        self.queue.finish_release(queue, found).await
    }

    /// Hands the lock, which the host holds, over to the next owner in the queue, or releases it at
    /// the home.
    pub(super) async fn hand_over<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        host: AtHost<P>,
        home: M::Word<'m>,
        state: State,
    ) -> Result<(), Fault> {
        let owner_word = CohortOwner::new(host.leader, state.generation);
        let (at, me) = (host.context.home_rank(), host.context.owner().rank);
        if memory.has_failed(at, me) {
            // What it did under the lock may be missing: the next owner recovers it.
            self.leave_as(memory, host, GlobalState::Uncertain).await?;
            return Err(Fault::of(FaultKind::ConnectionLost, at));
        }
        let queue = self.queue.words(host)?.0;
        let handed = if let GlobalState::Kept(handed) = state.global { handed } else { 0 };
        let mut found = Counters::<15>(memory.read(queue).await?);
        let mut written = state;
        let has_next = |queue: Counters<15>| !queue.is_recovering() && queue.out(Mode::Exclusive) > 1;
        if has_next(found) && handed < self.handovers {
            written.global = GlobalState::Kept(handed + 1);
            memory.write(host.state()?, written.word(), Notify::No).await?;
            // By compare-swap: the next owner may be cancelled, and then no owner would hold the
            // lock.
            while has_next(found) {
                let returned = found.0.wrapping_add(Counters::<15>::returning(Mode::Exclusive));
                let now = memory.compare_swap(queue, found.0, returned).await?;
                if now == found.0 {
                    memory.store(host.context.node(NOTE)?, 0)?;
                    return recovery::retract(memory, host);
                }
                found = Counters(now);
            }
        }
        let away = State { global: GlobalState::Away { yields: has_next(found) }, ..state };
        if away != written {
            memory.write(host.state()?, away.word(), Notify::No).await?;
        }
        let released = self.give_back(memory, home, owner_word).await;
        match released.is_err_and(is_lost) {
            true => self.leave_as(memory, host, GlobalState::Uncertain).await?,
            false => self.leave_queue(memory, host).await?,
        }
        released
    }

    /// Leaves the host's queue with this state of the lock.
    pub(super) async fn leave_as<'m, M: RemoteMemory, P: LockContext<'m, M> + 'm>(
        &'m self,
        memory: &'m M,
        host: AtHost<P>,
        global: GlobalState,
    ) -> Result<(), Fault> {
        let state = State { global, ..host.global_state(memory).await? };
        memory.write(host.state()?, state.word(), Notify::No).await?;
        self.leave_queue(memory, host).await
    }

    /// Clears the cohort's owner word at the home.
    async fn give_back<'m, M: RemoteMemory>(
        &self,
        memory: &M,
        home: M::Word<'m>,
        owner_word: CohortOwner,
    ) -> Result<(), Fault> {
        match memory.compare_swap(home, owner_word.0, 0).await {
            Ok(found) if found == owner_word.0 => Ok(()),
            Ok(_) => Err(Fault::new(FaultKind::NotHeld)),
            Err(fault) => Err(fault),
        }
    }
}

/// Resets the node: this owner is in no queue, because it is gone.
pub(super) fn forget<'m, M: RemoteMemory>(memory: &M, context: impl LockContext<'m, M>) -> Result<(), Fault> {
    memory.store(context.node(AT_HOST)?, 0)?;
    memory.store(context.node(NOTE)?, 0)
}

/// Whether a fault is of the queue's memory, which is gone with its rank, or with the connection to
/// it.
pub(super) fn is_gone<M: RemoteMemory>(memory: &M, leader: Rank, fault: Fault) -> bool {
    use FaultKind::{Closed, ConnectionLost, NoSuchRegion, PeerDied, PeerLeft, TimedOut, Unknown};
    match fault.kind() {
        Closed | TimedOut => false,
        _ if fault.is_poison() => false,
        NoSuchRegion | PeerDied | PeerLeft | ConnectionLost | Unknown if fault.rank() == Some(leader) => true,
        _ => memory.liveness(leader) != Liveness::Alive,
    }
}

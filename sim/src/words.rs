//! Words and messages of a simulated rank.

use std::sync::Arc;

use onesided_remote_memory::{At, Fault, FaultKind, Link, Liveness, Notify, Patience, Rank, RemoteMemory};

use crate::endpoint::{SimFabric, Word};
use crate::futures::{Op, Pause, Wait};
use crate::memory::WORLD_REGION;
use crate::operation::{Action, Operation};

impl SimFabric {
    pub(crate) fn post_at(&self, at: At, same_host: bool, action: Action) -> Op {
        let mut operation = Operation::new(self.rank(), at.rank, at.region.0, at.offset, action);
        operation.same_host = same_host;
        let mut state = self.state();
        let slot = state.post(operation);
        self.shared.advance_clock(&state);
        drop(state);
        Op::new(Arc::clone(&self.shared), slot)
    }

    pub(crate) fn refuse(&self, target: Rank, fault: Fault) -> Op {
        let operation = Operation::new(self.rank(), target, WORLD_REGION, 0, Action::Read);
        let slot = self.state().refuse(operation, fault);
        Op::new(Arc::clone(&self.shared), slot)
    }
}

impl RemoteMemory for SimFabric {
    type Word<'f> = Word;
    type Op = Op;
    type Wait<'f, P: Fn(u64) -> bool + Unpin + Send + 'f> = Wait<'f, P>;
    type Pause<'f> = Pause<'f>;

    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn word(&self, at: At) -> Result<Word, Fault> {
        self.state().check_word(self.rank, at)?;
        Word::of(at)
    }

    fn post_link(&self, link: Link<Word>) -> Op {
        let action = match link {
            Link::Read { .. } => Action::Read,
            Link::Write { value, notify, .. } => Action::Write { value, notify },
            Link::CompareSwap { expected, new, .. } => Action::CompareSwap { expected, new },
            Link::FetchAdd { add, .. } => Action::FetchAdd(add),
        };
        self.post_at(link.word().at(), link.word().is_on_same_host(), action)
    }

    fn write_is_atomic(&self) -> bool {
        self.shared.writes_are_atomic
    }

    fn load(&self, own: Word) -> Result<u64, Fault> {
        self.load_word(own)
    }

    fn store(&self, own: Word, value: u64) -> Result<(), Fault> {
        let At { rank, region, offset } = own.at();
        self.own(rank)?;
        let mut state = self.state();
        let memory = &mut state.ranks[rank.index()].memory;
        memory.len(region.0).ok_or(Fault::of(FaultKind::NoSuchRegion, rank))?;
        memory.store(region.0, offset, value);
        state.changed(rank, own.at(), 8, Notify::No);
        Ok(())
    }

    fn take_values(&self, own: Word, each: &mut dyn FnMut(u64)) -> bool {
        let At { rank, region, offset } = own.at();
        if self.own(rank).is_err() {
            return false;
        }
        let values = self.state().ranks[rank.index()].memory.take_values(region.0, offset);
        let known = values.is_some();
        values.into_iter().flatten().for_each(each);
        known
    }

    fn wait_until<'f, P>(&'f self, own: Word, predicate: P, patience: Patience) -> Wait<'f, P>
    where
        P: Fn(u64) -> bool + Unpin + Send + 'f,
    {
        Wait::new(self, own, predicate, patience)
    }

    fn pause<'f>(&'f self, word: Word, nanos: u64) -> Pause<'f> {
        Pause::new(self, word, nanos)
    }

    fn now(&self) -> u64 {
        self.shared.now()
    }

    fn liveness(&self, rank: Rank) -> Liveness {
        self.state().liveness(self.rank, rank)
    }

    async fn has_cut(&self, home: Rank, rank: Rank) -> Result<bool, Fault> {
        if home.0 >= self.size {
            return Err(Fault::of(FaultKind::NoSuchRank, home));
        }
        if self.liveness(home) != Liveness::Alive || self.liveness(rank) == Liveness::Left {
            return Ok(true);
        }
        if home == self.rank {
            return Ok(self.state().has_cut(home, rank));
        }
        let asked = Operation::new(self.rank, home, WORLD_REGION, 0, Action::HasCut(rank));
        let slot = self.state().post(asked);
        Op::new(Arc::clone(&self.shared), slot).await.map(|cut| cut != 0)
    }

    fn lost_connection(&self, home: Rank, from: Rank) -> Option<Rank> {
        self.state().lost_connection(self.rank, home, from)
    }

    fn ends(&self) -> u32 {
        self.state().ends(self.rank)
    }

    fn failure(&self, index: u32) -> Option<Rank> {
        self.state().known_failures(self.rank).get(index as usize).map(|(rank, _)| *rank)
    }
}

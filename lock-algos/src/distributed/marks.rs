//! The marks in the counters of readers.

use remote_memory::{Fault, FaultKind, Liveness, Notify, Rank, RemoteMemory};

use crate::backoff::Pauses;
use crate::{Place, Wish};

/// Which word at the home tells how it is with the marks.
pub(super) const STATE: usize = 1;

/// In a counter: who comes does not read by it.
const MARK: u64 = 1 << 62;
/// How many of the rank do.
const READERS: u64 = MARK - 1;

pub(super) const fn is_marked(counter: u64) -> bool {
    counter & MARK != 0
}

/// How it is with the marks. Changed by who has the lock alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// There are none.
    Open,
    /// Somebody sets them or takes them away, or died over that.
    Changing,
    /// They are set, and nobody reads.
    Marked,
    /// They are set, and this rank died while its counter counted.
    Poisoned(Rank),
}

impl State {
    pub(super) const fn of(word: u64) -> Self {
        match word & 3 {
            0 => Self::Open,
            1 => Self::Changing,
            2 => Self::Marked,
            _ => Self::Poisoned(Rank((word >> 2) as u32)),
        }
    }

    const fn word(self) -> u64 {
        match self {
            Self::Open => 0,
            Self::Changing => 1,
            Self::Marked => 2,
            Self::Poisoned(Rank(rank)) => 3 | (rank as u64) << 2,
        }
    }
}

/// The marks, for who has an exclusive ticket whose turn has come.
pub(super) struct Marks<'m, M, P> {
    pub(super) memory: &'m M,
    pub(super) place: P,
}

/// How long the news of a rank's end may take after an operation on its memory has failed, and how often to look, in
/// nanoseconds.
const NEWS: u64 = 8_000_000_000;
const LOOK: u64 = 10_000_000;

impl<'m, M: RemoteMemory, P: Place<'m, M>> Marks<'m, M, P> {
    fn is_alive(&self, rank: Rank) -> bool {
        self.memory.liveness(rank) == Liveness::Alive
    }

    /// Whether anybody reads by a counter.
    fn has_counters(&self) -> bool {
        self.place.slots() > 0 && self.place.spread(self.memory.rank()).is_ok()
    }

    async fn write(&self, state: State) -> Result<(), Fault> {
        self.memory.write(self.place.home(STATE)?, state.word(), Notify::No).await.map(|_| ())
    }

    /// What an operation on a rank's counter found, nothing where that rank has gone and its memory with it.
    async fn found(&self, rank: Rank, outcome: Result<u64, Fault>) -> Result<Option<u64>, Fault> {
        let fault = match outcome {
            Ok(found) => return Ok(Some(found)),
            Err(fault) if fault.kind() == FaultKind::NoSuchRegion => return Ok(None),
            Err(fault) => fault,
        };
        let until = self.memory.now().saturating_add(NEWS);
        while self.is_alive(rank) {
            if self.memory.now() >= until {
                return Err(fault);
            }
            self.memory.pause(self.place.home(STATE)?, LOOK).await;
        }
        Ok(None)
    }

    /// Does this to the counters of all these ranks at once, and gives what they were; nothing of those that have gone.
    async fn all(
        &self,
        ranks: impl Iterator<Item = Rank> + Send,
        operation: impl Fn(M::Word<'m>) -> M::Op + Send,
    ) -> Result<Vec<(Rank, u64)>, Fault> {
        let posted: Vec<_> = ranks.map(|rank| (rank, self.place.spread(rank).map(&operation))).collect();
        let mut all = Vec::with_capacity(posted.len());
        let mut failed = Ok(());
        for (rank, posted) in posted {
            let outcome = match posted {
                Ok(op) => op.await,
                Err(fault) => Err(fault),
            };
            match self.found(rank, outcome).await {
                Ok(found) => all.extend(found.map(|found| (rank, found))),
                Err(fault) => failed = Err(fault),
            }
        }
        failed.map(|()| all)
    }

    fn everybody(&self) -> impl Iterator<Item = Rank> + use<'m, M, P> {
        (0..self.memory.size()).map(Rank)
    }

    /// Reads these ranks' counters again.
    async fn read(&self, found: Vec<(Rank, u64)>) -> Result<Vec<(Rank, u64)>, Fault> {
        let memory = self.memory;
        self.all(found.into_iter().map(|(rank, _)| rank), |counter| memory.read(counter)).await
    }

    /// Sets the marks that are missing, and gives what the counters were before.
    async fn mark(&self, state: State) -> Result<Vec<(Rank, u64)>, Fault> {
        let memory = self.memory;
        let set = move |counter| memory.fetch_add(counter, MARK);
        if state == State::Open {
            return self.all(self.everybody(), set).await;
        }
        let found = self.all(self.everybody(), |counter| memory.read(counter)).await?;
        let (mut marked, unmarked): (Vec<_>, Vec<_>) = found.into_iter().partition(|(_, found)| is_marked(*found));
        marked.extend(self.all(unmarked.into_iter().map(|(rank, _)| rank), set).await?);
        Ok(marked)
    }

    /// Sets all marks and waits until nobody reads. Gives the fault of a rank that died while it may have: this owner inherits
    /// from it.
    ///
    /// # Errors
    /// `Closed`, `TimedOut`: the marks are gone. `MemberDied`, what the operations report: they are not, and that is noted.
    pub(super) async fn set(
        &self,
        mut pauses: Pauses<'_>,
        wish: &(impl Fn() -> Wish + Send + Sync),
    ) -> Result<Option<Fault>, Fault> {
        if !self.has_counters() {
            return Ok(None);
        }
        let state = State::of(self.memory.read(self.place.home(STATE)?).await?);
        if state == State::Marked {
            return Ok(None);
        }
        // Before the first mark: whoever takes over from this owner has to know.
        self.write(State::Changing).await?;
        let mut found = self.mark(state).await?;
        let mut inherited = None;
        loop {
            found.retain(|(_, found)| found & READERS != 0);
            let (living, dead): (Vec<_>, Vec<_>) = found.into_iter().partition(|(rank, _)| self.is_alive(*rank));
            // It may have gone before it died.
            let counting = self.read(dead).await?.into_iter().filter(|(_, found)| found & READERS != 0);
            for (dead, _) in counting {
                let died = Fault::of(FaultKind::MemberDied, dead);
                if !wish().inherits {
                    self.write(State::Poisoned(dead)).await?;
                    return Err(died);
                }
                // Nobody else changes it.
                let cleared = self.memory.write(self.place.spread(dead)?, MARK, Notify::No).await;
                self.found(dead, cleared).await?;
                inherited = Some(died);
            }
            let Some((first, _)) = living.first() else { break };
            let wish = wish();
            if !wish.is_patient() && inherited.is_none() {
                self.take_away().await?;
                return Err(Fault::new(if wish.is_over() { FaultKind::Closed } else { FaultKind::TimedOut }));
            }
            self.memory.pause(self.place.spread(*first)?, pauses.next_nanos()).await;
            found = self.read(living).await?;
        }
        self.write(State::Marked).await?;
        Ok(inherited)
    }

    /// Takes all marks away.
    pub(super) async fn take_away(&self) -> Result<(), Fault> {
        if !self.has_counters() {
            return Ok(());
        }
        self.write(State::Changing).await?;
        let memory = self.memory;
        self.all(self.everybody(), |counter| memory.fetch_add(counter, MARK.wrapping_neg())).await?;
        self.write(State::Open).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_words() {
        for state in
            [State::Open, State::Changing, State::Marked, State::Poisoned(Rank(0)), State::Poisoned(Rank(Rank::LIMIT))]
        {
            assert_eq!(State::of(state.word()), state);
        }
        assert_eq!(State::Open.word(), 0);
    }

    #[test]
    fn a_mark_leaves_the_count_alone() {
        assert!(is_marked(MARK | 7) && !is_marked(7));
        assert_eq!((MARK | 7).wrapping_add(MARK.wrapping_neg()), 7);
        assert_eq!((MARK | 7) & READERS, 7);
    }
}

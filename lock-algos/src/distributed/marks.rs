//! The marks in the counters of readers.

use onesided_remote_memory::{Fault, FaultKind, Liveness, Notify, Rank, RemoteMemory};

use super::reading;
use crate::backoff::Pauses;
use crate::recovery::nobody_says;
use crate::settle::{self, LOOK, Tries};
use crate::{IntentFn, LockContext};

/// Which word at the home tells how it is with the marks.
pub(super) const STATE: usize = 1;

// A counter: how many have come 32 bits, wrapping | marked 1 bit | how many of the rank read 31 bits.
/// Who comes does not read by it.
const MARK: u64 = 1 << 31;
/// How many of the rank do.
const READERS: u64 = MARK - 1;
/// What is added by who comes: no two who come leave the same word.
pub(super) const COMES: u64 = 1 << 32 | 1;
/// What is added by who goes.
pub(super) const GOES: u64 = 1_u64.wrapping_neg();

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

/// Readers who stay are looked at that often at least, in nanoseconds.
const MOST: u64 = 1_000_000_000;

/// What is done to a counter.
#[derive(Clone, Copy)]
enum Task {
    Look,
    Mark,
    Unmark,
    /// Of a rank that is dead: nobody reads any more.
    Clear,
}

impl Task {
    fn post<M: RemoteMemory>(self, memory: &M, counter: M::Word<'_>) -> M::Op {
        match self {
            Self::Look => memory.read(counter),
            Self::Mark => memory.fetch_add(counter, MARK),
            Self::Unmark => memory.fetch_add(counter, MARK.wrapping_neg()),
            Self::Clear => memory.write(counter, MARK, Notify::No),
        }
    }

    /// Once more, when nobody knows what became of it. Of a mark, the counter tells: nobody else changes that now.
    async fn repeat<M: RemoteMemory>(self, memory: &M, counter: M::Word<'_>) -> Result<u64, Fault> {
        let is_done = |found| match self {
            Self::Mark => is_marked(found),
            Self::Unmark => !is_marked(found),
            Self::Look | Self::Clear => false,
        };
        match memory.read(counter).await {
            Ok(found) if is_done(found) => Ok(found),
            Ok(_) => self.post(memory, counter).await,
            lost => lost,
        }
    }
}

impl<'m, M: RemoteMemory, P: LockContext<'m, M>> Marks<'m, M, P> {
    fn is_alive(&self, rank: Rank) -> bool {
        self.memory.liveness(rank) == Liveness::Alive
    }

    /// Whether anybody reads by a counter.
    fn has_counters(&self) -> bool {
        self.place.slots() > 0 && self.place.per_rank_word(self.memory.rank()).is_ok()
    }

    async fn write(&self, state: State) -> Result<(), Fault> {
        settle::write(self.memory, self.place.home(STATE)?, state.word(), Notify::No).await
    }

    /// What a task found that ended so, nothing where that rank has gone and its memory with it. At one that lives it is tried
    /// again.
    async fn found(&self, rank: Rank, task: Task, mut outcome: Result<u64, Fault>) -> Result<Option<u64>, Fault> {
        let mut tries = Tries::default();
        let mut first = true;
        loop {
            let fault = match outcome {
                Ok(found) => return Ok(Some(found)),
                Err(fault) if fault.kind() == FaultKind::NoSuchRegion => return Ok(None),
                Err(fault) => fault,
            };
            if !self.is_alive(rank) {
                return Ok(None);
            }
            if tries.last(self.memory) {
                return Err(fault);
            }
            if !std::mem::take(&mut first) || !fault.is_unknown() {
                self.memory.pause(self.place.home(STATE)?, LOOK).await;
            }
            outcome = match self.place.per_rank_word(rank) {
                Ok(counter) => task.repeat(self.memory, counter).await,
                Err(fault) => Err(fault),
            };
        }
    }

    /// Does this to the counters of all these ranks at once, and gives what they were; nothing of those that have gone.
    async fn all(&self, ranks: impl Iterator<Item = Rank> + Send, task: Task) -> Result<Vec<(Rank, u64)>, Fault> {
        let posted: Vec<_> = ranks
            .map(|rank| (rank, self.place.per_rank_word(rank).map(|counter| task.post(self.memory, counter))))
            .collect();
        let mut all = Vec::with_capacity(posted.len());
        let mut failed = Ok(());
        for (rank, posted) in posted {
            let outcome = match posted {
                Ok(op) => op.await,
                Err(fault) => Err(fault),
            };
            match self.found(rank, task, outcome).await {
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
        self.all(found.into_iter().map(|(rank, _)| rank), Task::Look).await
    }

    /// Sets the marks that are missing, and gives what the counters were before.
    async fn mark(&self, state: State) -> Result<Vec<(Rank, u64)>, Fault> {
        if state == State::Open {
            return self.all(self.everybody(), Task::Mark).await;
        }
        let found = self.all(self.everybody(), Task::Look).await?;
        let (mut marked, unmarked): (Vec<_>, Vec<_>) = found.into_iter().partition(|(_, found)| is_marked(*found));
        marked.extend(self.all(unmarked.into_iter().map(|(rank, _)| rank), Task::Mark).await?);
        Ok(marked)
    }

    /// Sets the marked counters of those ranks right by which nobody reads any more: somebody there was not told that it was
    /// counted, or that it was not any more.
    async fn correct(&self, found: &[(Rank, u64)]) -> Result<(), Fault> {
        for (rank, counter) in found.iter().filter(|(_, counter)| is_marked(*counter) && counter & READERS != 0) {
            // Who is counted said so before, and who has come since has changed the counter.
            if nobody_says(self.memory, self.place, *rank, reading(self.place)).await {
                let Ok(word) = self.place.per_rank_word(*rank) else { continue }; // it has gone
                let _ = self.memory.compare_swap(word, *counter, counter & !READERS).await; // it is read next
            }
        }
        Ok(())
    }

    /// Sets all marks and waits until nobody reads. Gives the fault of a rank that died while it may have: this owner recovers
    /// from it.
    ///
    /// # Errors
    /// `Closed`, `TimedOut`: the marks are gone, but where this owner was about to inherit. Then, with `ParticipantDied` and with what the
    /// operations report, they are not, and that is noted.
    pub(super) async fn set(&self, mut pauses: Pauses<'_>, wish: IntentFn<'_>) -> Result<Option<Fault>, Fault> {
        if !self.has_counters() {
            return Ok(None);
        }
        let state = State::of(settle::read(self.memory, self.place.home(STATE)?).await?);
        if state == State::Marked {
            return Ok(None);
        }
        // Before the first mark: whoever takes over from this owner has to know.
        self.write(State::Changing).await?;
        let mut found = self.mark(state).await?;
        // Of whom it recovers. Their counters are cleared when it has the lock.
        let mut gone = Vec::new();
        let (mut asked, mut patience) = (None, LOOK);
        loop {
            found.retain(|(_, found)| found & READERS != 0);
            let (living, dead): (Vec<_>, Vec<_>) = found.into_iter().partition(|(rank, _)| self.is_alive(*rank));
            // It may have gone before it died.
            let counting = self.read(dead).await?.into_iter().filter(|(_, found)| found & READERS != 0);
            for (dead, _) in counting {
                let died = Fault::of(FaultKind::ParticipantDied, dead);
                if !wish().recovers {
                    self.write(State::Poisoned(dead)).await?;
                    return Err(died);
                }
                gone.push(dead);
            }
            let wish = wish();
            if !wish.is_patient() && (!living.is_empty() || wish.is_over()) {
                match gone.last() {
                    Some(dead) => self.write(State::Poisoned(*dead)).await?,
                    None => self.take_away().await?,
                }
                return Err(Fault::new(if wish.is_over() { FaultKind::Closed } else { FaultKind::TimedOut }));
            }
            let Some((first, _)) = living.first() else { break };
            // Where that has gone there will be news of it.
            let word = self.place.per_rank_word(*first).or_else(|_| self.place.home(STATE))?;
            self.memory.pause(word, pauses.next_nanos()).await;
            let now = self.memory.now();
            found = self.read(living).await?;
            if now.saturating_sub(*asked.get_or_insert(now)) >= patience {
                self.correct(&found).await?;
                (asked, patience) = (Some(now), patience.saturating_mul(2).min(MOST));
            }
        }
        // Nobody else changes them.
        self.all(gone.iter().copied(), Task::Clear).await?;
        self.write(State::Marked).await?;
        Ok(gone.last().map(|dead| Fault::of(FaultKind::ParticipantDied, *dead)))
    }

    /// Takes all marks away.
    pub(super) async fn take_away(&self) -> Result<(), Fault> {
        if !self.has_counters() {
            return Ok(());
        }
        self.write(State::Changing).await?;
        self.all(self.everybody(), Task::Unmark).await?;
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
        // However many have come.
        let comes = (u64::MAX << 32 | MARK | 7).wrapping_add(COMES);
        assert_eq!(comes, MARK | 8);
        assert_eq!(comes.wrapping_add(GOES), MARK | 7);
    }
}

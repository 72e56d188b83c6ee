//! The writer flags in the readers' counters.

use onesided_remote_memory::{Fault, FaultKind, Liveness, Notify, Rank, RemoteMemory};

use crate::backoff::Pauses;
use crate::recovery::{POISON, Participants};
use crate::{InMemory, IntentFn, LockContext, Op, Word, WordOf};

/// The word at the home with the state of the writer flags.
pub(super) const STATE: usize = POISON + 1;

// A counter: writer flag 1 bit | readers of the rank 31 bits.
/// The writer flag: an arriving reader does not read by the counter.
const FLAG: u64 = 1 << 31;
/// The number of readers of the rank.
const READERS: u64 = FLAG - 1;
/// Added by an arriving reader.
pub(super) const COMES: u64 = 1;
/// Added by a departing reader.
pub(super) const GOES: u64 = 1_u64.wrapping_neg();

pub(super) const fn is_flagged(counter: u64) -> bool {
    counter & FLAG != 0
}

const fn has_readers(counter: u64) -> bool {
    counter & READERS != 0
}

/// The state of the writer flags. Only an exclusive holder changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// None is set.
    Open,
    /// An owner is setting or clearing them, or died while it did.
    Changing,
    /// All are set, and no reader is left.
    Set,
}

impl State {
    pub(super) const fn of(word: u64) -> Self {
        match word {
            0 => Self::Open,
            2 => Self::Set,
            _ => Self::Changing,
        }
    }

    const fn word(self) -> u64 {
        match self {
            Self::Open => 0,
            Self::Changing => 1,
            Self::Set => 2,
        }
    }
}

/// The writer flags, for an owner whose exclusive ticket is being served.
pub(super) struct WriterFlags<'m, P: InMemory>(pub(super) Participants<'m, P>);

impl<'m, P: LockContext<'m>> WriterFlags<'m, P> {
    fn is_alive(&self, rank: Rank) -> bool {
        self.0.memory.liveness(rank) == Liveness::Alive
    }

    /// Whether there are per-rank counters.
    fn has_counters(&self) -> bool {
        self.0.context.word(WordOf::Rank(self.0.memory.rank())).is_ok()
    }

    async fn write(&self, state: State) -> Result<(), Fault> {
        self.0.memory.write(self.0.context.home(STATE)?, state.word(), Notify::No).await.map(drop)
    }

    /// Posts an operation on the counters of all these ranks at once and returns those previous values
    /// that the caller `wants`, without those of ranks that are gone.
    async fn all(
        &self,
        ranks: impl Iterator<Item = Rank> + Send,
        post: impl Fn(Word<'m, P>) -> Op<P> + Send,
        wants: fn(u64) -> bool,
    ) -> Result<Vec<(Rank, u64)>, Fault> {
        let posted: Vec<_> = ranks.map(|rank| (rank, self.0.context.word(WordOf::Rank(rank)).map(&post))).collect();
        let (mut all, mut failed) = (Vec::new(), Ok(()));
        for (rank, posted) in posted {
            let outcome = match posted {
                Ok(op) => op.await,
                Err(fault) => Err(fault),
            };
            match outcome {
                Ok(found) if wants(found) => all.push((rank, found)),
                Ok(_) => {}
                Err(fault) if fault.kind() == FaultKind::NoSuchRegion || !self.is_alive(rank) => {} // gone
                Err(fault) => failed = Err(fault),
            }
        }
        failed.map(|()| all)
    }

    fn everybody(&self) -> impl Iterator<Item = Rank> + use<'m, P> {
        (0..self.0.memory.size()).map(Rank)
    }

    /// Sets the missing writer flags and returns the previous counters, at least those with readers.
    async fn set_missing(&self, state: State) -> Result<Vec<(Rank, u64)>, Fault> {
        let set = |counter| self.0.memory.fetch_add(counter, FLAG);
        if state == State::Open {
            return self.all(self.everybody(), set, has_readers).await;
        }
        let found = self.all(self.everybody(), |counter| self.0.memory.read(counter), |_| true).await?;
        let (mut flagged, unset): (Vec<_>, Vec<_>) = found.into_iter().partition(|(_, found)| is_flagged(*found));
        flagged.extend(self.all(unset.into_iter().map(|(rank, _)| rank), set, has_readers).await?);
        Ok(flagged)
    }

    /// Sets all writer flags and waits until no reader is left. The readers of dead ranks are
    /// forgotten.
    ///
    /// # Errors
    /// `Closed` and `TimedOut`: the flags are as before. With errors of the operations they may be
    /// set, and the state says so.
    pub(super) async fn set(&self, mut pauses: Pauses<'_>, intent: IntentFn<'_>) -> Result<(), Fault> {
        let (memory, context) = (self.0.memory, self.0.context);
        if !self.has_counters() {
            return Ok(());
        }
        let home = context.home(STATE)?;
        let state = State::of(memory.read(home).await?);
        if state == State::Set {
            return Ok(());
        }
        // Before the first flag: an owner that takes over from this one has to know.
        self.write(State::Changing).await?;
        // The previous owner died, and may have flags in flight: a flag that is set twice is lost.
        while state == State::Changing && !self.0.all_are_cut().await? {
            if !intent().is_patient() {
                return Err(intent().given_up());
            }
            memory.pause(home, pauses.next_nanos()).await;
        }
        let mut found = self.set_missing(state).await?;
        let mut dead = Vec::new();
        loop {
            found.retain(|(_, found)| has_readers(*found));
            let (living, gone): (Vec<_>, Vec<_>) =
                found.into_iter().map(|(rank, _)| rank).partition(|rank| self.is_alive(*rank));
            dead.extend(gone);
            // Failed ranks may have been readers, and may read at the home until they are cut.
            let waits = !living.is_empty() || !self.0.are_cut(|_| true).await?;
            let intent = intent();
            if intent.is_over() || waits && !intent.is_patient() {
                self.clear().await?;
                return Err(intent.given_up());
            }
            if !waits {
                break;
            }
            // If that word is gone, the death will be reported.
            let word = match living.first() {
                Some(first) => context.word(WordOf::Rank(*first)).unwrap_or(home),
                None => home,
            };
            memory.pause(word, pauses.next_nanos()).await;
            found = self.all(living.into_iter(), |counter| memory.read(counter), has_readers).await?;
        }
        // No other owner changes them.
        self.all(dead.into_iter(), |counter| memory.write(counter, FLAG, Notify::No), |_| false).await?;
        self.write(State::Set).await
    }

    /// Clears all writer flags.
    pub(super) async fn clear(&self) -> Result<(), Fault> {
        if !self.has_counters() {
            return Ok(());
        }
        self.write(State::Changing).await?;
        self.all(self.everybody(), |counter| self.0.memory.fetch_add(counter, FLAG.wrapping_neg()), |_| false).await?;
        self.write(State::Open).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_words() {
        for state in [State::Open, State::Changing, State::Set] {
            assert_eq!(State::of(state.word()), state);
        }
        assert_eq!(State::Open.word(), 0);
    }

    #[test]
    fn a_mark_leaves_the_count_alone() {
        assert!(is_flagged(FLAG | 7) && !is_flagged(7));
        assert_eq!((FLAG | 7).wrapping_add(FLAG.wrapping_neg()), 7);
        assert_eq!((FLAG | 7) & READERS, 7);
        assert_eq!((FLAG | 7) + COMES, FLAG | 8);
        assert_eq!((FLAG | 8).wrapping_add(GOES), FLAG | 7);
    }
}

//! The sequential model: who holds the lock.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lock_algos::{Held, LockAlgorithm, Mode, Owner};
use remote_memory::{Fault, Rank};

/// How far an owner is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It acquires or releases: it may hold the lock or not.
    Between,
    /// It holds the lock.
    Inside(Mode),
}

/// What happened so far.
#[derive(Debug, Default)]
struct State {
    /// Those who are not listed are outside.
    stages: BTreeMap<(u32, u16), Stage>,
    /// Exclusive sections that added one to the data.
    counted: u64,
    /// The first thing that went wrong.
    violation: Option<String>,
    /// The acquires, in their order, and what each inherited.
    entered: Vec<(Mode, Option<Fault>)>,
    /// Of each acquire, in the same order, the rank.
    order: Vec<Rank>,
}

/// What all origins of one run report to. Uses no loom types: loom must not take the record for a part of the program.
#[derive(Debug, Default)]
pub struct Record(Mutex<State>);

impl Record {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something went wrong. The first such thing is kept.
    pub fn violated(&self, what: impl FnOnce() -> String) {
        self.state().violation.get_or_insert_with(what);
    }

    /// An acquire or a release begins.
    pub fn between(&self, owner: Owner) {
        self.state().stages.insert(key(owner), Stage::Between);
    }

    /// An acquire succeeded.
    pub fn enters(&self, owner: Owner, Held { mode, inherited }: Held) {
        let mut state = self.state();
        state.entered.push((mode, inherited));
        state.order.push(owner.rank);
        let conflict = state.stages.iter().find_map(|(other, stage)| match stage {
            Stage::Inside(held) if (*held, mode) != (Mode::Shared, Mode::Shared) => Some((*other, *held)),
            _ => None,
        });
        if let Some(((rank, slot), held)) = conflict {
            let what =
                format!("exclusion: {owner:?} entered {mode:?} while rank {rank} slot {slot} is inside {held:?}");
            state.violation.get_or_insert(what);
        }
        state.stages.insert(key(owner), Stage::Inside(mode));
    }

    /// A release is complete, or an acquire was given up.
    pub fn outside(&self, owner: Owner) {
        self.state().stages.remove(&key(owner));
    }

    /// An exclusive section added one to the data.
    pub fn counted(&self) {
        self.state().counted += 1;
    }

    /// A rank ends, wherever it is.
    pub fn dies(&self, rank: Rank) {
        self.state().stages.retain(|(of, _), _| *of != rank.0);
    }

    /// How those entered who did, one after the other, and what each inherited.
    #[must_use]
    pub fn entered(&self) -> Vec<(Mode, Option<Fault>)> {
        self.state().entered.clone()
    }

    /// Who entered, one after the other, and how.
    #[must_use]
    pub fn order(&self) -> Vec<(Rank, Mode)> {
        let state = self.state();
        state.order.iter().copied().zip(state.entered.iter().map(|(mode, _)| *mode)).collect()
    }

    /// What went wrong first.
    #[must_use]
    pub fn violation(&self) -> Option<String> {
        self.state().violation.clone()
    }

    /// How far the owners of a rank are, those that are not outside.
    #[must_use]
    pub fn stages_of(&self, rank: Rank) -> Vec<Stage> {
        self.state().stages.iter().filter(|((of, _), _)| *of == rank.0).map(|(_, stage)| *stage).collect()
    }

    /// At the end of a run in which nobody died: all are outside, nobody inherited anything, the lock's words are free and
    /// no exclusive section's count was lost.
    ///
    /// # Errors
    /// What is not so.
    pub fn check_end<A: LockAlgorithm>(&self, lock_words: &[u64], data: u64) -> Result<(), String> {
        let state = self.state();
        if let Some(violation) = &state.violation {
            return Err(violation.clone());
        }
        if let Some((_, Some(fault))) = state.entered.iter().find(|(_, inherited)| inherited.is_some()) {
            return Err(format!("inherited though nobody died: {fault:?}"));
        }
        if !state.stages.is_empty() {
            return Err(format!("not everybody is outside at the end: {:?}", state.stages));
        }
        if !A::is_free(lock_words) {
            return Err(format!("the lock is not free at the end: {lock_words:x?}"));
        }
        if data != state.counted {
            return Err(format!("lost update: {} sections counted to {data}", state.counted));
        }
        Ok(())
    }
}

const fn key(owner: Owner) -> (u32, u16) {
    (owner.rank.0, owner.slot)
}

//! The sequential model: who holds the lock.

mod death;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use onesided_lock_algos::{Held, LockAlgorithm, Mode, Owner};
use onesided_remote_memory::{Fault, Rank};

use death::Death;

/// How far an owner is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// It acquires or releases: it may hold the lock or not.
    Between,
    /// It holds the lock.
    Inside(Mode),
}

/// Who waits for the lock.
#[derive(Clone, Copy, Debug, Hash)]
struct Waiting {
    mode: Mode,
    /// When its first operation took effect, in the order of all.
    arrived: Option<u32>,
    /// How many who arrived later had the lock before it and kept it out.
    bypassed: u32,
}

/// What happened so far.
#[derive(Debug, Default, Hash)]
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
    waiting: BTreeMap<(u32, u16), Waiting>,
    arrivals: u32,
    /// The most that anybody was bypassed.
    bypassed: u32,
    deaths: Vec<Death>,
    /// How many rounds each rank has begun.
    rounds: BTreeMap<u32, u32>,
    /// The highest of an exclusive owner, and of anybody.
    tokens: [Option<u64>; 2],
}

impl State {
    /// An owner enters: whoever arrived before it and cannot have the lock beside it was bypassed.
    fn passes(&mut self, owner: Owner, mode: Mode) {
        let Some(entering) = self.waiting.remove(&key(owner)) else { return };
        self.bypassed = self.bypassed.max(entering.bypassed);
        let later = |waiting: &&mut Waiting| matches!((waiting.arrived, entering.arrived), (Some(before), Some(after)) if before < after);
        for waiting in self.waiting.values_mut().filter(later) {
            if (waiting.mode, mode) != (Mode::Shared, Mode::Shared) {
                waiting.bypassed += 1;
            }
        }
    }

    /// An owner has the lock: nobody else has, but that all may share it.
    fn takes(&mut self, owner: Owner, mode: Mode) {
        self.passes(owner, mode);
        let conflict = self.stages.iter().find_map(|(other, stage)| match stage {
            Stage::Inside(held) if (*held, mode) != (Mode::Shared, Mode::Shared) => Some((*other, *held)),
            _ => None,
        });
        if let Some(((rank, slot), held)) = conflict {
            let what =
                format!("exclusion: {owner:?} entered {mode:?} while rank {rank} slot {slot} is inside {held:?}");
            self.violation.get_or_insert(what);
        }
        self.stages.insert(key(owner), Stage::Inside(mode));
    }
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

    /// The number of a rank's next round: its owners' generation.
    pub fn begins(&self, rank: Rank) -> u32 {
        let mut state = self.state();
        let rounds = state.rounds.entry(rank.0).or_default();
        *rounds += 1;
        *rounds - 1
    }

    /// An acquire begins that waits for the lock for as long as it takes.
    pub fn waits(&self, owner: Owner, mode: Mode) {
        self.state().waiting.insert(key(owner), Waiting { mode, arrived: None, bypassed: 0 });
    }

    /// The first operation of this rank's acquire took effect.
    pub fn arrives(&self, rank: Rank) {
        let mut state = self.state();
        let arrivals = state.arrivals;
        let mut anybody = false;
        for ((of, _), waiting) in &mut state.waiting {
            if *of == rank.0 && waiting.arrived.is_none() {
                waiting.arrived = Some(arrivals);
                anybody = true;
            }
        }
        state.arrivals += u32::from(anybody);
    }

    /// The most acquires that came later and entered before somebody whom they kept out.
    #[must_use]
    pub fn bypassed(&self) -> u32 {
        self.state().bypassed
    }

    /// The token of who has just entered alone: it must be higher than all before it.
    pub fn token(&self, token: u64) {
        self.fenced(Mode::Exclusive, token);
    }

    /// The token of who is inside. Those who are inside together may have theirs in any order.
    pub fn fenced(&self, mode: Mode, token: u64) {
        let mut state = self.state();
        let [alone, any] = state.tokens;
        let before = if mode == Mode::Exclusive { any } else { alone };
        if let Some(before) = before.filter(|before| *before >= token) {
            state.violation.get_or_insert(format!("the token {token} after {before}"));
        }
        let token = Some(token);
        state.tokens = [if mode == Mode::Exclusive { alone.max(token) } else { alone }, any.max(token)];
    }

    /// All of it in one number: two records with the same one stand for the same past.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.state().hash(&mut hasher);
        hasher.finish()
    }

    /// An acquire succeeded.
    pub fn enters(&self, owner: Owner, Held { mode, recovered }: Held) {
        let mut state = self.state();
        state.entered.push((mode, recovered));
        state.order.push(owner.rank);
        state.takes(owner, mode);
    }

    /// An acquire succeeded that nobody wants any more: what it has inherited is the next one's.
    pub fn holds(&self, owner: Owner, mode: Mode) {
        self.state().takes(owner, mode);
    }

    /// A release is complete, or an acquire was given up.
    pub fn outside(&self, owner: Owner) {
        let mut state = self.state();
        state.stages.remove(&key(owner));
        state.waiting.remove(&key(owner));
    }

    /// An exclusive section added one to the data.
    pub fn counted(&self) {
        self.state().counted += 1;
    }

    /// A rank ends, wherever it is. `posted`: operations of it were under way, a release that it did not wait for.
    pub fn dies(&self, rank: Rank, posted: bool) {
        let mut state = self.state();
        let stages = state.stages.iter().filter(|((of, _), _)| *of == rank.0).map(|(_, stage)| *stage).collect();
        let entered = state.entered.len();
        state.deaths.push(Death { rank, stages, posted, entered });
        state.stages.retain(|(of, _), _| *of != rank.0);
        state.waiting.retain(|(of, _), _| *of != rank.0);
    }

    /// A rank is about to end that alone knew of its readers: nobody can tell whether it had any.
    pub(crate) fn forgets_readers(&self, rank: Rank) {
        for (_, stage) in self.state().stages.iter_mut().filter(|((of, _), _)| *of == rank.0) {
            if *stage == Stage::Inside(Mode::Shared) {
                *stage = Stage::Between;
            }
        }
    }

    /// Who has died.
    #[must_use]
    pub fn dead(&self) -> Vec<Rank> {
        self.state().deaths.iter().map(|death| death.rank).collect()
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
        if let Some((_, Some(fault))) = state.entered.iter().find(|(_, recovered)| recovered.is_some()) {
            return Err(format!("recovered though nobody died: {fault:?}"));
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

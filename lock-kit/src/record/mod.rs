//! The sequential model of the lock: its holders and waiters.

mod death;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use onesided_lock_algos::{Held, LockAlgorithm, Mode, Owner};
use onesided_remote_memory::{Fault, FaultKind, Rank};

use death::Death;

use crate::digest::digest;
use crate::linear::{Accesses, Accessing};
use crate::trace::{hex, who};

/// The stage of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// It acquires or releases: it may or may not hold the lock.
    Between,
    /// It holds the lock.
    Inside(Mode),
}

/// A waiter.
#[derive(Clone, Copy, Debug, Hash)]
struct Waiting {
    mode: Mode,
    /// When its first operation took effect, in the order of all.
    arrived: Option<u32>,
    /// How many owners that arrived later entered before it and excluded it.
    bypassed: u32,
}

/// The history so far.
#[derive(Debug, Default, Hash)]
struct State {
    /// Owners that are not listed are outside.
    stages: BTreeMap<(u32, u16), Stage>,
    /// The number of exclusive sections that incremented the data.
    counted: u64,
    /// The first violation.
    violation: Option<String>,
    /// The rank and mode of the acquires in order, with the fault that each recovered from.
    entered: Vec<(Rank, Mode, Option<Fault>)>,
    waiting: BTreeMap<(u32, u16), Waiting>,
    arrivals: u32,
    /// The most bypasses of a waiter.
    bypassed: u32,
    deaths: Vec<Death>,
    /// Whether a cancelled acquire recovered the lock, and released it as poisoned.
    gave_back: bool,
    /// The number of sections that each rank has begun.
    rounds: BTreeMap<u32, u32>,
    /// The highest token of an exclusive owner, and of any owner.
    tokens: [Option<u64>; 2],
    /// The time, if the lock has leases.
    now: u64,
    /// When each owner's acquire began.
    since: BTreeMap<(u32, u16), u64>,
    /// The owners whose lease was over when another entered.
    late: BTreeSet<(u32, u16)>,
    /// By rank: how often it lost a lock to the end of a lease, minus how often it was told at a release.
    lost: BTreeMap<u32, i32>,
}

impl State {
    /// An owner enters: waiters that arrived earlier and that it excludes were bypassed.
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

    /// An owner holds the lock: no other does, unless all are shared.
    fn takes(&mut self, owner: Owner, mode: Mode) {
        self.passes(owner, mode);
        let conflicts = self.stages.iter().filter_map(|(other, stage)| match stage {
            Stage::Inside(held) if (*held, mode) != (Mode::Shared, Mode::Shared) => Some((*other, *held)),
            _ => None,
        });
        let conflicts: Vec<_> = conflicts.collect();
        let conflict = conflicts.into_iter().find(|(other, _)| !self.is_late(key(owner)) && !self.is_late(*other));
        if let Some(((rank, slot), held)) = conflict {
            let what = format!(
                "exclusion: {} entered, {mode:?}, while {} is inside, {held:?}",
                who(owner),
                who(Owner { rank: Rank(rank), slot, generation: 0 })
            );
            self.violation.get_or_insert(what);
        }
        self.stages.insert(key(owner), Stage::Inside(mode));
    }

    /// Whether an owner is one that a rank lost its lock as.
    fn is_late(&mut self, owner: (u32, u16)) -> bool {
        if let Some(lost) = self.lost.get_mut(&owner.0).filter(|lost| **lost > 0 && !self.late.contains(&owner)) {
            *lost -= 1;
            self.late.insert(owner);
        }
        self.late.contains(&owner)
    }

    /// An acquire took the lock over from an owner of this rank, whose reply, or whose release, may
    /// still be on its way.
    fn expires(&mut self, rank: Rank, lease: u64) {
        let lost = self.lost.entry(rank.0).or_default();
        let inside = |(owner, stage): &(&(u32, u16), &Stage)| {
            owner.0 == rank.0 && **stage == Stage::Inside(Mode::Exclusive) && !self.late.contains(*owner)
        };
        let Some((owner, _)) = self.stages.iter().find(inside).filter(|_| *lost >= 0) else {
            *lost += 1;
            return;
        };
        let after = self.now - self.since[owner];
        if after < lease {
            let what =
                format!("lease: rank {} lost the lock {after} ns after its acquire began, before {lease}", rank.0);
            self.violation.get_or_insert(what);
        }
        self.late.insert(*owner);
    }
}

/// The shared record of one run. Uses no loom types: the record is not part of the program that
/// loom explores.
#[derive(Debug, Default)]
pub struct Record {
    state: Mutex<State>,
    /// What the sections do with the data, if they are those of a history.
    accesses: Option<Accesses>,
    /// In nanoseconds, if the lock has one.
    pub(crate) lease: Option<u64>,
}

impl Record {
    pub(crate) fn of(accesses: Accesses) -> Self {
        Self { accesses: Some(accesses), ..Self::default() }
    }

    /// An owner begins a section of a history.
    pub(crate) fn accessing(&self, owner: Owner) -> Option<Accessing<'_>> {
        self.accesses.as_ref()?.begins(owner)
    }

    /// Checks the history of the sections, if there is one.
    pub(crate) fn check_history(&self, words: usize) -> Result<(), String> {
        self.accesses.as_ref().map_or(Ok(()), |accesses| accesses.history.check(words))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a violation. The first one is kept.
    pub fn violated(&self, what: impl FnOnce() -> String) {
        self.state().violation.get_or_insert_with(what);
    }

    pub(crate) fn leasing(self, lease: Option<u64>) -> Self {
        Self { lease, ..self }
    }

    /// The time goes on.
    pub(crate) fn passes(&self, now: u64) {
        self.state().now = if self.lease.is_some() { now } else { 0 };
    }

    /// Whether this is the end of a lease that the lock promises.
    fn lease_over(&self, recovered: Option<Fault>) -> Option<(u64, Rank)> {
        let fault = recovered.filter(|fault| fault.kind() == FaultKind::LeaseExpired)?;
        self.lease.zip(fault.rank())
    }

    /// How a release ended. An owner whose lock was taken over finds that it is not held.
    pub(crate) fn released(&self, owner: Owner, done: Result<(), Fault>) -> Result<(), Fault> {
        let mut state = self.state();
        let late = state.late.contains(&key(owner));
        match done {
            Err(fault) if self.lease.is_some() && fault.kind() == FaultKind::NotHeld => {
                *state.lost.entry(owner.rank.0).or_default() -= i32::from(!late);
                return Ok(());
            }
            Ok(()) if late => {
                let what = format!("lease: the release of {} succeeded after another owner took the lock", who(owner));
                state.violation.get_or_insert(what);
            }
            _ => {}
        }
        done
    }

    /// An acquire or a release begins.
    pub fn between(&self, owner: Owner) {
        let mut state = self.state();
        let now = state.now;
        state.since.entry(key(owner)).or_insert(now);
        state.stages.insert(key(owner), Stage::Between);
    }

    /// The number of a rank's next section: its owners' generation.
    pub fn begins(&self, rank: Rank) -> u32 {
        let mut state = self.state();
        let rounds = state.rounds.entry(rank.0).or_default();
        *rounds += 1;
        *rounds - 1
    }

    /// An acquire that waits begins.
    pub fn waits(&self, owner: Owner, mode: Mode) {
        self.state().waiting.insert(key(owner), Waiting { mode, arrived: None, bypassed: 0 });
    }

    /// The operation by which this rank's acquires arrive took effect; the last one counts.
    pub fn arrives(&self, rank: Rank) {
        let mut state = self.state();
        let arrivals = state.arrivals;
        let mut anybody = false;
        for (_, waiting) in state.waiting.iter_mut().filter(|((of, _), _)| *of == rank.0) {
            (waiting.arrived, waiting.bypassed, anybody) = (Some(arrivals), 0, true);
        }
        state.arrivals += u32::from(anybody);
    }

    /// The most acquires that arrived later than a waiter, entered before it, and excluded it.
    #[must_use]
    pub fn bypassed(&self) -> u32 {
        self.state().bypassed
    }

    /// The token of an owner inside. Readers that are inside together may have theirs in any order.
    pub fn fenced(&self, mode: Mode, token: u64) {
        let mut state = self.state();
        let [alone, any] = state.tokens;
        let before = if mode == Mode::Exclusive { any } else { alone };
        if let Some(before) = before.filter(|before| *before >= token) {
            state.violation.get_or_insert(format!("fencing: the token {token} after {before}"));
        }
        let token = Some(token);
        state.tokens = [if mode == Mode::Exclusive { alone.max(token) } else { alone }, any.max(token)];
    }

    /// A digest of the record: equal digests stand for equal histories.
    #[must_use]
    pub fn digest(&self) -> u64 {
        digest(&*self.state())
    }

    /// An acquire succeeded.
    pub fn enters(&self, owner: Owner, Held { mode, recovered }: Held) {
        let mut state = self.state();
        state.entered.push((owner.rank, mode, recovered));
        self.lease_over(recovered).into_iter().for_each(|(lease, rank)| state.expires(rank, lease));
        state.takes(owner, mode);
    }

    /// A cancelled acquire succeeded: what it recovered is left to the next owner.
    pub fn holds(&self, owner: Owner, Held { mode, recovered }: Held) {
        let mut state = self.state();
        state.gave_back = true;
        self.lease_over(recovered).into_iter().for_each(|(lease, rank)| state.expires(rank, lease));
        state.takes(owner, mode);
    }

    /// A release is complete, or a cancelled acquire has ended.
    pub fn outside(&self, owner: Owner) {
        let mut state = self.state();
        state.stages.remove(&key(owner));
        state.since.remove(&key(owner));
        state.late.remove(&key(owner));
        state.waiting.remove(&key(owner));
    }

    /// An exclusive section incremented the data.
    pub fn counted(&self) {
        self.state().counted += 1;
    }

    /// A rank ends, at any stage. `posted`: it had operations in flight, of a detached release.
    pub fn dies(&self, rank: Rank, posted: bool) {
        let mut state = self.state();
        let stages = state.stages.iter().filter(|((of, _), _)| *of == rank.0).map(|(_, stage)| *stage).collect();
        let entered = state.entered.len();
        state.deaths.push(Death { rank, stages, posted, entered });
        state.stages.retain(|(of, _), _| *of != rank.0);
        state.waiting.retain(|(of, _), _| *of != rank.0);
    }

    /// The dead ranks.
    #[must_use]
    pub fn dead(&self) -> Vec<Rank> {
        self.state().deaths.iter().map(|death| death.rank).collect()
    }

    /// The modes of the successful acquires in order, with the fault that each recovered from.
    #[must_use]
    pub fn entered(&self) -> Vec<(Mode, Option<Fault>)> {
        self.state().entered.iter().map(|(_, mode, recovered)| (*mode, *recovered)).collect()
    }

    /// The ranks and modes of the successful acquires in order.
    #[must_use]
    pub fn order(&self) -> Vec<(Rank, Mode)> {
        self.state().entered.iter().map(|(rank, mode, _)| (*rank, *mode)).collect()
    }

    /// The first violation.
    #[must_use]
    pub fn violation(&self) -> Option<String> {
        self.state().violation.clone()
    }

    /// Checks the end of a run without deaths: all owners are outside, none recovered anything, the
    /// lock's words are free and no exclusive section's increment was lost.
    ///
    /// # Errors
    /// The violation.
    pub fn check_end<A: LockAlgorithm>(&self, lock_words: &[u64], data: u64) -> Result<(), String> {
        let state = self.state();
        if let Some(violation) = &state.violation {
            return Err(violation.clone());
        }
        let untold = state.lost.iter().find(|(_, lost)| **lost != 0 && !state.gave_back);
        if let Some((rank, lost)) = untold {
            let what =
                if *lost > 0 { "released a lock that another owner took" } else { "lost a lock that nobody took" };
            return Err(format!("lease: rank {rank} {what}"));
        }
        let odd = |recovered: &Option<Fault>| self.lease_over(*recovered).is_none().then_some(*recovered).flatten();
        if let Some(fault) = state.entered.iter().find_map(|(.., recovered)| odd(recovered)) {
            return Err(format!("recovered though no rank died: {fault:?}"));
        }
        if !state.stages.is_empty() {
            let who: Vec<_> = state
                .stages
                .keys()
                .map(|(rank, slot)| who(Owner { rank: Rank(*rank), slot: *slot, generation: 0 }))
                .collect();
            return Err(format!("not all owners are outside at the end: {}", who.join(", ")));
        }
        if !A::is_free(lock_words) {
            return Err(format!("the lock is not free at the end: {}", hex(lock_words)));
        }
        if self.accesses.is_none() && data != state.counted {
            return Err(format!("lost update: {} sections counted to {data}", state.counted));
        }
        Ok(())
    }
}

const fn key(owner: Owner) -> (u32, u16) {
    (owner.rank.0, owner.slot)
}

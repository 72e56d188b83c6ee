//! Remote memory of loom types: an operation is one step (an atomic of a card two), and a wait
//! blocks the thread until the word changes.
//!
//! Waits that spin would exceed loom's branches with three threads. A pause ends by itself only if no
//! task can go on, a few times, or not at all ([`Setting::woken`]): then an algorithm that makes
//! progress only because its pauses end by themselves deadlocks here.

use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, Ready, ready};
use std::panic::panic_any;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};

use loom::sync::{Condvar, Mutex, MutexGuard};
use onesided_lock_algos::LockAlgorithm;
use onesided_remote_memory::{At, Fault, FaultKind, Liveness, Notify, Patience, Rank, RemoteMemory, Watch};

use crate::Crashable;
use crate::caught::Violation;
use crate::posting::{check_own, resolve};
use crate::program::{LOCK, Names, Slots};
use crate::trace::{Action, Effect, Note, Planted, Trace};
use crate::world::{Setting, UNWOKEN};

/// What atomic operations are atomic with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atomics {
    /// With all operations, as a CPU's.
    All,
    /// With one another, as a card's: a write may come between an operation's read of the word and
    /// its write back, which a failing compare-swap does as well.
    OneAnother,
}

/// No waiter suspects a dead rank before that, in nanoseconds.
const ENDLESS: u64 = 10_000_000_000;

/// The memory of all ranks, seen from one rank.
pub struct LoomMemory {
    rank: Rank,
    /// The index in [`State::seen`] of what this handle saw: each thread has its own.
    view: usize,
    shared: Arc<Shared>,
}

impl fmt::Debug for LoomMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoomMemory").field("rank", &self.rank).finish_non_exhaustive()
    }
}

impl Clone for LoomMemory {
    fn clone(&self) -> Self {
        let mut state = self.state();
        let seen = state.seen[self.view].clone();
        state.seen.push(seen);
        Self { rank: self.rank, view: state.seen.len() - 1, shared: Arc::clone(&self.shared) }
    }
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// Held by each atomic operation, if these are atomic with one another only.
    card: Option<Mutex<()>>,
    /// A bit for each rank. Changed under the lock, so that waits notice it, and read without it,
    /// by their predicates.
    dead: AtomicU32,
    /// The operations that took effect, in order. Not part of the explored program: not a loom
    /// type.
    trace: Arc<std::sync::Mutex<Trace>>,
    waits: std::sync::Mutex<Waits>,
    woken: bool,
    planted: Planted,
    /// The word whose changes a wait ignores if they came before the wait began.
    forgets: Option<usize>,
    size: u32,
    region_words: usize,
}

/// Which tasks wait. Not part of the explored program either.
#[derive(Default)]
struct Waits {
    /// The tasks that have not ended. 0 if they are not counted: loom then finds a deadlock itself.
    active: usize,
    /// By handle: the rank that waits, its word, and whether it pauses.
    blocked: BTreeMap<usize, (Rank, usize, bool)>,
    /// How often all pauses ended because no task could go on.
    ended: u32,
    /// The same since a word changed.
    still: u32,
}

struct State {
    /// The regions of all ranks, one after the other.
    words: Vec<Word>,
    /// By handle: the version of each word that its last operation there saw, so that no change
    /// between that operation and a pause is missed.
    seen: Vec<Vec<u32>>,
    clocks: Vec<u64>,
    /// By rank: how many of its pauses have ended in a row without a change.
    idle: Vec<usize>,
}

/// The least length of these pauses in nanoseconds: a few of them make a second, whatever the
/// lock's backoff.
const IDLE_PAUSES: [u64; 4] = [0, 1_000, 1_000_000, 400_000_000];

#[derive(Clone, Copy, Default)]
struct Word {
    value: u64,
    version: u32,
    /// How often a write has notified its waiters.
    notified: u32,
}

impl LoomMemory {
    /// The memory of rank 0.
    pub fn new(ranks: usize, region_words: usize, atomics: Atomics) -> Self {
        let words = vec![Word::default(); ranks * region_words];
        let seen = vec![vec![0; words.len()]; ranks];
        let state = Mutex::new(State { words, seen, clocks: vec![0; ranks], idle: vec![0; ranks] });
        let card = (atomics == Atomics::OneAnother).then(|| Mutex::new(()));
        let shared = Shared {
            state,
            changed: Condvar::new(),
            card,
            dead: AtomicU32::new(0),
            trace: Arc::default(),
            waits: std::sync::Mutex::default(),
            woken: false,
            planted: Planted { names: Names::of_words(region_words), mutate: None },
            forgets: None,
            size: ranks as u32,
            region_words,
        };
        Self { rank: Rank(0), view: 0, shared: Arc::new(shared) }
    }

    /// The same memory, not shared yet, whose waits for this word of rank 0 end only by changes
    /// after they began: an event that is reset without a check of what it counts (Yu et al., *Open
    /// MPI over Elan4*, 2004, figure 5). Wrong on purpose, to check that lost wake-ups are found.
    #[must_use]
    pub fn forgetting(mut self, word: Option<usize>) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.forgets = word;
        }
        self
    }

    /// The same memory, not shared yet, of a lock in this setting. `counts`: its tasks are counted,
    /// by [`begins`](Self::begins) and [`ends`](Self::ends).
    pub(super) fn set<A: LockAlgorithm>(
        mut self,
        setting: &Setting,
        slots: Slots,
        counts: usize,
        trace: &Arc<std::sync::Mutex<Trace>>,
    ) -> Self {
        if let Ok(mut trace) = trace.lock() {
            *trace = Trace::default();
        }
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.planted = Planted { names: Names::of::<A>(slots), mutate: setting.mutate };
            shared.trace = Arc::clone(trace);
            (shared.woken, shared.waits) = (setting.woken, Waits { active: counts, ..Waits::default() }.into());
        }
        let mut state = self.state();
        for (word, value) in state.words[LOCK..].iter_mut().zip(setting.words::<A>()) {
            word.value = value;
        }
        drop(state);
        self
    }

    /// A task begins, if they are counted.
    pub(super) fn begins(&self) {
        let mut waits = self.waits();
        waits.active += usize::from(waits.active > 0);
    }

    /// A counted task ends.
    pub(super) fn ends(&self) {
        let mut waits = self.waits();
        waits.active = waits.active.saturating_sub(1);
        let all_wait = waits.active > 0 && waits.blocked.len() == waits.active;
        drop(waits);
        if all_wait {
            let _state = self.state(); // the last of them sleeps
            self.settle();
        }
    }

    fn waits(&self) -> std::sync::MutexGuard<'_, Waits> {
        self.shared.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all pauses if no task can go on, a few times. `true`: they end.
    fn settle(&self) -> bool {
        let mut waits = self.waits();
        if waits.active == 0 || waits.blocked.len() < waits.active {
            return false;
        }
        let pauses = waits.blocked.values().any(|(_, _, pauses)| *pauses);
        if !self.shared.woken && pauses && waits.still < UNWOKEN {
            (waits.ended, waits.still) = (waits.ended + 1, waits.still + 1);
            waits.blocked.clear();
            drop(waits);
            self.shared.changed.notify_all();
            return true;
        }
        let all: Vec<_> = waits
            .blocked
            .values()
            .map(|(rank, word, pauses)| format!("rank {} {}", rank.0, self.waits_at(*word, *pauses)))
            .collect();
        drop(waits);
        panic_any(Violation(format!("deadlock, ranks wait without end: {}", all.join(", "))));
    }

    /// Waits for a change, or for the end of all pauses.
    fn block<'s>(&'s self, state: MutexGuard<'s, State>, word: usize, pauses: bool) -> MutexGuard<'s, State> {
        self.waits().blocked.insert(self.view, (self.rank, word, pauses));
        self.note(self.waits_at(word, pauses));
        let all_end = self.settle();
        if all_end { state } else { self.shared.changed.wait(state).unwrap() }
    }

    fn wake(&self) {
        self.waits().blocked.clear();
        self.shared.changed.notify_all();
    }

    /// The same memory, seen from another rank.
    pub fn of(&self, rank: usize) -> Self {
        Self { rank: Rank(rank as u32), view: rank, shared: Arc::clone(&self.shared) }
    }

    /// The words of this rank's region.
    pub fn region(&self) -> Vec<u64> {
        let start = self.rank.index() * self.shared.region_words;
        let state = self.state();
        state.words[start..start + self.shared.region_words].iter().map(|word| word.value).collect()
    }

    /// The operations that took effect so far, in order.
    pub fn trace(&self) -> Trace {
        self.shared.trace.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap()
    }

    /// Posts an operation, or what is planted instead.
    fn post(&self, index: usize, action: Action, notify: Notify) -> u64 {
        let (index, action, notify) = self.shared.planted.post(self.rank, index, action, notify);
        let card =
            self.shared.card.as_ref().filter(|_| matches!(action, Action::CompareSwap(..) | Action::FetchAdd(_)));
        let Some(card) = card else {
            return action.answer(self.change(index, Some((action, None)), notify, |value| action.applied_to(value)));
        };
        let _alone = card.lock().unwrap();
        let before = self.change(index, None, Notify::No, |value| value);
        self.change(index, Some((action, Some(before))), Notify::No, |_| action.applied_to(before));
        before
    }

    /// One step, recorded in the trace with its action and what that returns, if not what the step
    /// finds.
    fn change(
        &self,
        index: usize,
        action: Option<(Action, Option<u64>)>,
        notify: Notify,
        change: impl FnOnce(u64) -> u64,
    ) -> u64 {
        let mut state = self.state();
        let word = &mut state.words[index];
        let before = word.value;
        word.value = change(before);
        let changed = word.value != before;
        word.notified += u32::from(notify == Notify::Yes);
        word.version += u32::from(changed);
        let version = word.version;
        state.seen[self.view][index] = version;
        if let Some((action, returned)) = action {
            self.took_effect(index, action, (before, returned.unwrap_or(before)));
        }
        drop(state);
        if changed || notify == Notify::Yes {
            if changed {
                self.waits().still = 0;
            }
            self.wake();
        }
        before
    }

    fn waits_at(&self, word: usize, pauses: bool) -> Note {
        Note::Waits(self.shared.planted.names.place(word), pauses)
    }

    fn took_effect(&self, index: usize, action: Action, (found, returned): (u64, u64)) {
        let target = Rank((index / self.shared.region_words) as u32);
        let (word, place) = (index % self.shared.region_words, self.shared.planted.names.place(index));
        let mut trace = self.shared.trace.lock().unwrap_or_else(PoisonError::into_inner);
        trace.push(Effect { origin: self.rank, target, word, place, action, found, returned });
    }

    fn check_own(&self, index: usize) -> Result<(), Fault> {
        check_own(index, self.shared.region_words, self.rank)
    }

    fn block_until(&self, index: usize, predicate: impl Fn(u64) -> bool, patience: Patience) -> Result<u64, Fault> {
        self.check_own(index)?;
        let Patience { deadline, watch } = patience;
        let mut state = self.state();
        let forgotten = (self.shared.forgets == Some(index)).then(|| state.words[index].version);
        loop {
            let Word { value, version, notified } = state.words[index];
            if predicate(value) && forgotten != Some(version) {
                return Ok(value);
            }
            match (watch, self.failed_rank()) {
                (Watch::Rank(rank) | Watch::RankAndFailures(rank), _) if self.liveness(rank) == Liveness::Dead => {
                    return Err(Fault::of(FaultKind::PeerDied, rank));
                }
                (_, Some(_)) if deadline != u64::MAX => {
                    let clock = &mut state.clocks[self.rank.index()];
                    *clock = deadline.max(*clock);
                    let now = *clock;
                    drop(state);
                    endless(now);
                    loom::thread::yield_now();
                    return Err(Fault::new(FaultKind::TimedOut));
                }
                _ => {}
            }
            let dead = self.shared.dead.load(Relaxed);
            while state.words[index].notified == notified && self.shared.dead.load(Relaxed) == dead {
                state = self.block(state, index, false);
            }
        }
    }

    /// Once a rank is dead a pause ends by itself and time passes, because algorithms then wait by
    /// the clock.
    fn block_while_unchanged(&self, index: usize, nanos: u64) {
        let me = self.rank.index();
        let mut state = self.state();
        let ended = self.waits().ended;
        while state.words[index].version == state.seen[self.view][index] && self.waits().ended == ended {
            if self.failed_rank().is_some() {
                let idle = state.idle[me];
                state.idle[me] = (idle + 1).min(IDLE_PAUSES.len() - 1);
                state.clocks[me] += nanos.max(IDLE_PAUSES[idle]);
                let now = state.clocks[me];
                drop(state);
                endless(now);
                loom::thread::yield_now();
                return;
            }
            state = self.block(state, index, true);
        }
        state.idle[me] = 0;
    }
}

impl RemoteMemory for LoomMemory {
    type Word<'f> = usize;
    type Op = Ready<Result<u64, Fault>>;
    type Wait<'f, P: Fn(u64) -> bool + Unpin + Send + 'f> = Ready<Result<u64, Fault>>;
    type Pause<'f> = Ready<()>;

    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> u32 {
        self.shared.size
    }

    fn word(&self, at: At) -> Result<usize, Fault> {
        resolve(at, self.size(), self.shared.region_words)
    }

    fn read(&self, word: usize) -> Self::Op {
        ready(Ok(self.post(word, Action::Read, Notify::No)))
    }

    fn write(&self, word: usize, value: u64, notify: Notify) -> Self::Op {
        ready(Ok(self.post(word, Action::Write(value), notify)))
    }

    fn compare_swap(&self, word: usize, expected: u64, new: u64) -> Self::Op {
        ready(Ok(self.post(word, Action::CompareSwap(expected, new), Notify::No)))
    }

    fn fetch_add(&self, word: usize, add: u64) -> Self::Op {
        ready(Ok(self.post(word, Action::FetchAdd(add), Notify::No)))
    }

    fn write_is_atomic(&self) -> bool {
        self.shared.card.is_none()
    }

    fn load(&self, own: usize) -> Result<u64, Fault> {
        self.check_own(own)?;
        Ok(self.change(own, Some((Action::Read, None)), Notify::No, |value| value))
    }

    fn store(&self, own: usize, value: u64) -> Result<(), Fault> {
        self.check_own(own)?;
        self.post(own, Action::Write(value), Notify::No);
        Ok(())
    }

    /// Blocks in this call already. While all ranks are alive a deadline never comes: time stands
    /// still while another rank may write.
    fn wait_until<'f, P>(&'f self, own: usize, predicate: P, patience: Patience) -> Self::Wait<'f, P>
    where
        P: Fn(u64) -> bool + Unpin + Send + 'f,
    {
        ready(self.block_until(own, predicate, patience))
    }

    /// Blocks in this call already.
    fn pause(&self, word: usize, nanos: u64) -> Ready<()> {
        self.block_while_unchanged(word, nanos);
        ready(())
    }

    fn now(&self) -> u64 {
        self.state().clocks[self.rank.index()]
    }

    fn liveness(&self, rank: Rank) -> Liveness {
        match rank {
            Rank(rank) if rank >= self.size() => Liveness::Left,
            Rank(rank) if self.shared.dead.load(Relaxed) >> rank & 1 == 1 => Liveness::Dead,
            _ => Liveness::Alive,
        }
    }

    fn failed_rank(&self) -> Option<Rank> {
        Some(self.shared.dead.load(Relaxed).trailing_zeros()).filter(|rank| *rank < self.size()).map(Rank)
    }
}

impl Crashable for LoomMemory {
    fn die(&self) {
        let state = self.state();
        self.shared.dead.fetch_or(1 << self.rank.0, Relaxed);
        self.note(Note::Ends);
        drop(state);
        self.wake();
    }

    fn note(&self, note: Note) {
        self.shared.trace.lock().unwrap_or_else(PoisonError::into_inner).note(self.rank, note);
    }
}

fn endless(now: u64) {
    if now >= ENDLESS {
        panic_any(Violation("ranks wait without end for the dead".into()));
    }
}

/// Runs a future that never waits for a waker, because its waits block.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    // Boxed: loom's threads have 32 kB of stack, and without optimization a lock's futures take
    // much of that.
    match Box::pin(future).as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("an operation of loom's memory is ready at its first poll"),
    }
}

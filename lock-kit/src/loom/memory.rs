//! Remote memory of loom types: an operation is one step (an atomic of a card two), and a wait
//! blocks the thread until the word changes.
//!
//! Waits that spin would exceed loom's branches with three threads. A pause ends by itself only if no
//! task can go on, a few times, or not at all ([`Setting::woken`](crate::Setting::woken)): then an
//! algorithm that makes progress only because its pauses end by themselves deadlocks here.

use std::future::{Future, Ready, ready};
use std::panic::panic_any;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};

use loom::sync::{Condvar, Mutex, MutexGuard};
use onesided_remote_memory::{
    At, Fault, FaultKind, Link, Liveness, Notify, Patience, Rank, RemoteMemory, Watch, delegate,
};

use crate::caught::Violation;
use crate::trace::{Action, Note, Trace};
use crate::world::{Pending, UNWOKEN};
use crate::{Crashable, ModelMemory};

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
#[derive(Debug)]
pub struct LoomMemory {
    /// Its words, waiters and trace. They are read and changed in steps of loom, but are not of its
    /// types.
    model: ModelMemory,
    shared: Arc<Shared>,
}

impl Clone for LoomMemory {
    fn clone(&self) -> Self {
        let _step = self.step();
        Self { model: self.model.clone(), shared: Arc::clone(&self.shared) }
    }
}

#[derive(Debug)]
struct Shared {
    /// By rank. Held in each step.
    clocks: Mutex<Vec<Clock>>,
    changed: Condvar,
    /// Held by each atomic operation, if these are atomic with one another only.
    card: Option<Mutex<()>>,
    /// The tasks that have not ended. 0 if they are not counted: loom then finds a deadlock itself.
    active: AtomicUsize,
    /// The word whose changes a wait ignores if they came before the wait began.
    forgets: Option<usize>,
}

#[derive(Clone, Debug, Default)]
struct Clock {
    now: u64,
    /// How many pauses have ended in a row without a change.
    idle: usize,
}

/// The least length of these pauses in nanoseconds: a few of them make a second, whatever the
/// lock's backoff.
const IDLE_PAUSES: [u64; 4] = [0, 1_000, 1_000_000, 400_000_000];

type Step<'s> = MutexGuard<'s, Vec<Clock>>;

impl LoomMemory {
    /// The memory of rank 0.
    pub fn new(ranks: usize, region_words: usize, atomics: Atomics) -> Self {
        Self::over(ModelMemory::new(ranks, region_words), atomics, 0, None)
    }

    /// A memory with these words, of so many tasks, or of 0 if they are not counted by
    /// [`begins`](Self::begins) and [`ends`](Self::ends).
    pub(super) fn over(model: ModelMemory, atomics: Atomics, tasks: usize, forgets: Option<usize>) -> Self {
        let shared = Shared {
            clocks: Mutex::new(vec![Clock::default(); model.size() as usize]),
            changed: Condvar::new(),
            card: (atomics == Atomics::OneAnother).then(|| Mutex::new(())),
            active: AtomicUsize::new(tasks),
            forgets,
        };
        Self { model, shared: Arc::new(shared) }
    }

    /// A task begins, if they are counted.
    pub(super) fn begins(&self) {
        self.shared.active.fetch_add(usize::from(self.shared.active.load(Relaxed) > 0), Relaxed);
    }

    /// A counted task ends.
    pub(super) fn ends(&self) {
        self.shared.active.fetch_sub(usize::from(self.shared.active.load(Relaxed) > 0), Relaxed);
        if self.all_wait() {
            let _step = self.step(); // the last of them sleeps
            self.settle();
        }
    }

    fn all_wait(&self) -> bool {
        let active = self.shared.active.load(Relaxed);
        active > 0 && self.model.world().waiting() == active
    }

    /// Ends all pauses if no task can go on, a few times. `true`: they end.
    fn settle(&self) -> bool {
        if !self.all_wait() {
            return false;
        }
        let mut world = self.model.world();
        if !world.woken && world.idle < UNWOKEN && world.pending.values().any(Pending::is_pause) {
            world.idle += 1;
            world.end_pauses();
            drop(world);
            self.shared.changed.notify_all();
            return true;
        }
        let all = world.waits();
        drop(world);
        panic_any(Violation(format!("deadlock, ranks wait without end: {all}")));
    }

    /// Blocks until this wait or pause ends.
    fn block<'s>(&'s self, mut step: Step<'s>, number: u32) -> Step<'s> {
        while !self.model.world().ends(number) {
            if !self.settle() {
                step = self.shared.changed.wait(step).unwrap();
            }
        }
        step
    }

    /// The same memory, seen from another rank.
    pub fn of(&self, rank: usize) -> Self {
        Self { model: self.model.of(rank), shared: Arc::clone(&self.shared) }
    }

    /// The words of this rank's region.
    pub fn region(&self) -> Vec<u64> {
        let _step = self.step();
        self.model.region()
    }

    /// The operations that took effect so far, in order.
    pub fn trace(&self) -> Trace {
        self.model.world().trace.clone()
    }

    fn step(&self) -> Step<'_> {
        self.shared.clocks.lock().unwrap()
    }

    /// Posts an operation, or what is planted instead.
    fn post(&self, word: usize, action: Action, notify: Notify) -> u64 {
        let (word, action, notify) = self.model.world().planted(self.rank(), word, action, notify);
        let atomic = matches!(action, Action::CompareSwap(..) | Action::FetchAdd(_));
        let Some(card) = self.shared.card.as_ref().filter(|_| atomic) else {
            return self.changes(word, action, notify, None);
        };
        let _alone = card.lock().unwrap();
        let step = self.step();
        let read = self.model.world().load(self.model.handle(), word);
        drop(step);
        self.changes(word, action, notify, Some(read))
    }

    /// One step.
    fn changes(&self, word: usize, action: Action, notify: Notify, read: Option<u64>) -> u64 {
        let step = self.step();
        let mut world = self.model.world();
        let before = world.versions[word];
        let answer = world.changes(self.rank(), word, action, notify == Notify::Yes, read);
        world.sees(self.model.handle().1, word);
        let changed = world.versions[word] != before;
        drop((world, step));
        if changed || notify == Notify::Yes {
            self.shared.changed.notify_all();
        }
        answer
    }

    /// Time passes after a death. Others go on first.
    fn passes(&self, step: Step<'_>) {
        let now = step[self.rank().index()].now;
        drop(step);
        if now >= ENDLESS {
            panic_any(Violation("ranks wait without end for the dead".into()));
        }
        loom::thread::yield_now();
    }

    fn block_until(&self, own: usize, predicate: impl Fn(u64) -> bool, patience: Patience) -> Result<u64, Fault> {
        self.model.check_own(own)?;
        let Patience { deadline, watch } = patience;
        let mut step = self.step();
        let now = || {
            let world = self.model.world();
            (world.words[own], world.versions[own])
        };
        let forgotten = (self.shared.forgets == Some(own)).then(|| now().1);
        loop {
            let (value, version) = now();
            if predicate(value) && forgotten != Some(version) {
                return Ok(value);
            }
            if let Watch::Rank(rank) | Watch::RankAndFailures(rank) = watch {
                self.liveness(rank).needed(rank)?;
            }
            if deadline != u64::MAX && self.model.world().failed_rank().is_some() {
                let clock = &mut step[self.rank().index()];
                clock.now = clock.now.max(deadline);
                self.passes(step);
                return Err(Fault::new(FaultKind::TimedOut));
            }
            let number = self.model.world().wait(self.model.handle(), own, u64::MAX, None);
            step = self.block(step, number);
        }
    }

    /// Once a rank is dead a pause ends by itself and time passes, because algorithms then wait by
    /// the clock.
    fn block_while_unchanged(&self, word: usize, nanos: u64) {
        let (rank, view) = self.model.handle();
        let mut step = self.step();
        let number = self.model.world().pause((rank, view), word, nanos);
        if self.model.world().failed_rank().is_some() {
            self.model.world().end_pauses();
        }
        step = self.block(step, number);
        let clock = &mut step[rank.index()];
        let world = self.model.world();
        if world.failed_rank().is_none() || world.seen(view, word) != world.versions[word] {
            clock.idle = 0;
            return;
        }
        drop(world);
        clock.now += nanos.max(IDLE_PAUSES[clock.idle]);
        clock.idle = (clock.idle + 1).min(IDLE_PAUSES.len() - 1);
        self.passes(step);
    }
}

impl RemoteMemory for LoomMemory {
    type Word<'f> = usize;
    type Op = Ready<Result<u64, Fault>>;
    type Wait<'f, P: Fn(u64) -> bool + Unpin + Send + 'f> = Ready<Result<u64, Fault>>;
    type Pause<'f> = Ready<()>;

    delegate! {
        model:
        fn rank(&self) -> Rank;
        fn size(&self) -> u32;
        fn word(&self, at: At) -> Result<usize, Fault>;
        fn liveness(&self, rank: Rank) -> Liveness;
    }

    fn post_link(&self, link: Link<usize>) -> Self::Op {
        let (action, notify) = Action::of(link);
        ready(Ok(self.post(link.word(), action, notify)))
    }

    fn write_is_atomic(&self) -> bool {
        self.shared.card.is_none()
    }

    fn load(&self, own: usize) -> Result<u64, Fault> {
        self.model.check_own(own)?;
        Ok(self.changes(own, Action::Read, Notify::No, None))
    }

    fn store(&self, own: usize, value: u64) -> Result<(), Fault> {
        self.model.check_own(own)?;
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
        self.step()[self.rank().index()].now
    }
}

impl Crashable for LoomMemory {
    fn die(&self) {
        let step = self.step();
        let mut world = self.model.world();
        world.kill(self.rank());
        world.end_pauses();
        drop((world, step));
        self.shared.changed.notify_all();
    }

    fn note(&self, note: Note) {
        self.model.note(note);
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

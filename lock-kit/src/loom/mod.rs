//! Exhaustive exploration up to a bound, by loom.

mod memory;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use onesided_lock_algos::{LockAlgorithm, Mode, served};
use onesided_remote_memory::{Fault, FaultKind, Rank};

pub use memory::{Atomics, LoomMemory, block_on};

pub use crate::caught::quietly;
use crate::caught::{Violation, caught};

use crate::program::{self, Layout, Section, Slots, Spawn, Task, lock_and_data};
use crate::record::Record;
use crate::tried::tried;
use crate::world::{ModelMemory, Server, Setting};

/// The faults of a previous owner that died.
pub(crate) const RECOVERED: [FaultKind; 2] = [FaultKind::OwnerDied, FaultKind::ParticipantDied];

/// A check of one execution's end. It gets the memory of the lock's home.
type Check = dyn Fn(&Record, &LoomMemory) -> Result<(), String> + Send + Sync;

/// Runs a lock in every interleaving of its operations up to a number of preemptions, by loom, over
/// a [memory](LoomMemory) whose waits block until their word changes. That memory is sequentially
/// consistent: an exploration verifies the algorithm, and finds no missing fence of a fabric.
///
/// Loom has at most 5 threads: origins, cancelled acquires and the server of a
/// [served](LockAlgorithm::SERVED) lock together. With 3 origins, 3 preemptions take seconds, 4
/// take minutes.
#[derive(Clone, Debug)]
#[must_use = "an exploration does nothing until it is run"]
pub struct Exploration<A> {
    lock: A,
    atomics: Atomics,
    preemptions: usize,
    at_least: usize,
    at_most: Option<usize>,
    forgets: Option<usize>,
    setting: Setting,
}

impl<A: LockAlgorithm + Clone> Exploration<A> {
    /// An exploration of this lock, over a CPU's atomics, with up to 2 preemptions.
    pub fn of(lock: &A) -> Self {
        Self {
            lock: lock.clone(),
            atomics: Atomics::All,
            preemptions: 2,
            at_least: 1,
            at_most: None,
            forgets: None,
            setting: Setting::USUAL,
        }
    }

    setters! {
        /// What atomic operations are atomic with.
        atomics: Atomics,
        /// The most preemptions of an execution.
        preemptions: usize,
        /// The fewest executions, so that the exploration cannot shrink unnoticed: their number depends
        /// on the lock, the bound and loom's version, not on chance.
        at_least: usize,
        /// Ends after about so many executions, in no particular order.
        at_most: usize,
        /// The setting of the executions: its mutation, first word and hosts.
        setting: Setting,
    }

    /// Waits for this word of the lock at its home end only by changes after they began: an event that
    /// is reset without a check of what it counts (Yu et al., *Open MPI over Elan4*, 2004, figure 5).
    /// Wrong on purpose, to check that lost wake-ups are found.
    pub fn forgetting(self, word: usize) -> Self {
        Self { forgets: Some(program::LOCK + word), ..self }
    }

    /// Runs the programs, one origin each, without deaths, and checks exclusion, no lost update,
    /// that every wait ends, and that the lock is free at the end. Returns the number of
    /// executions.
    ///
    /// # Panics
    /// On a violation, or if there were too few executions. The message has the programs and the
    /// operations of the execution; loom repeats it deterministically.
    #[track_caller]
    pub fn run(&self, programs: &[&[Section]]) -> usize {
        self.run_with(programs, free_at_the_end::<A>)
    }

    /// The same with a custom check at each execution's end. It gets the memory of the lock's home.
    ///
    /// # Panics
    /// As [`run`](Self::run).
    #[track_caller]
    pub fn run_with(
        &self,
        programs: &[&[Section]],
        check: impl Fn(&Record, &LoomMemory) -> Result<(), String> + Send + Sync + 'static,
    ) -> usize {
        match self.explored(programs, Arc::new(check)) {
            Ok(executions) => {
                assert!(executions >= self.at_least, "{}: only {executions} executions of {programs:?}", A::NAME);
                executions
            }
            Err(violation) => panic!("{violation}"),
        }
    }

    /// As [`run`](Self::run), for locks that may be wrong.
    ///
    /// # Errors
    /// The message with which [`run`](Self::run) panics.
    pub fn verdict(&self, programs: &[&[Section]]) -> Result<usize, String> {
        self.explored(programs, Arc::new(free_at_the_end::<A>))
    }

    /// Runs acquires that are cancelled, before one of the first reads of their intent, beside others. A cancelled acquire is completed concurrently with its origin's next one.
    /// Returns the number of executions.
    ///
    /// # Panics
    /// As [`run`](Self::run).
    #[track_caller]
    pub fn run_cancelled(&self) -> usize {
        let executions = self.cancelled().unwrap_or_else(|violation| panic!("{violation}"));
        assert!(executions >= self.at_least, "{}: only {executions} executions", A::NAME);
        executions
    }

    /// Implements [`run_cancelled`](Self::run_cancelled), without the check of the number.
    pub(crate) fn cancelled(&self) -> Result<usize, String> {
        const X: Section = Section::EXCLUSIVE;
        const S: Section = Section::SHARED;
        let mut executions = 0;
        for asked in 0..4 {
            let [x, s] = [X.cancelled(asked), S.cancelled(asked)];
            let behind: [&[&[Section]]; 2] = [&[&[X], &[x, X]], &[&[X], &[x]]];
            let among: [&[&[Section]]; 5] =
                [&[&[x, X], &[X]], &[&[s, X], &[X]], &[&[x, S], &[S]], &[&[s, S], &[X]], &[&[x], &[S], &[X]]];
            // A waiter that reads its intent more often waits, behind an owner of another rank.
            let among = if asked < 2 { &among[..] } else { &[] };
            for programs in behind.iter().chain(among).filter(|programs| self.setting.allows(programs)) {
                executions += self.explored(programs, Arc::new(free_at_the_end::<A>))?;
            }
        }
        Ok(executions)
    }

    /// Tries of rank 1 while rank 0 holds the lock, and does not release it: they end.
    pub(crate) fn tried(&self) -> Result<usize, String> {
        const X: Section = Section::EXCLUSIVE;
        const S: Section = Section::SHARED;
        let mut executions = 0;
        for (held, tried) in [(X, X), (X, S), (S, X)] {
            let programs: [&[Section]; 2] = [&[held.staying()], &[tried.trying()]];
            if self.setting.allows(&programs) {
                executions += self.explored(&programs, Arc::new(|record, _| record.violation().map_or(Ok(()), Err)))?;
            }
        }
        Ok(executions)
    }

    /// Rank 1 dies inside its section. Rank 0, which waits for it or arrives after its death, recovers
    /// the lock and learns of the death by a fault of this kind; if it entered before, or if rank 1
    /// was a reader and the lock has a shared mode, it does not.
    ///
    /// # Panics
    /// As [`run`](Self::run), and if there were not executions of both kinds.
    #[track_caller]
    pub fn run_deaths(&self, kind: FaultKind) {
        self.deaths(&[kind]).unwrap_or_else(|violation| panic!("{violation}"));
    }

    /// Implements it, with a fault of one of these kinds.
    pub(crate) fn deaths(&self, kinds: &[FaultKind]) -> Result<usize, String> {
        let deaths = [
            (Mode::Exclusive, Section::EXCLUSIVE),
            (Mode::Exclusive, Section::SHARED),
            (Mode::Shared, Section::EXCLUSIVE),
        ];
        deaths.into_iter().map(|(dying, survivor)| self.death(dying, survivor, kinds)).sum()
    }

    fn death(&self, dying: Mode, survivor: Section, kinds: &[FaultKind]) -> Result<usize, String> {
        let kinds = kinds.to_vec();
        let outcomes = Arc::new([const { AtomicUsize::new(0) }; 2]);
        let count = Arc::clone(&outcomes);
        let dies = Section { mode: dying, ..Section::EXCLUSIVE }.dying();
        let poisons = Arc::new(AtomicBool::new(false));
        let poisoned = Arc::clone(&poisons);
        let check = move |record: &Record, _: &LoomMemory| {
            let recoveries: Vec<_> = record.entered().into_iter().filter_map(|(_, recovered)| recovered).collect();
            count[recoveries.len().min(1)].fetch_add(1, Relaxed);
            // A lock without a shared mode holds it exclusively.
            let held_alone = record.order().contains(&(Rank(1), Mode::Exclusive));
            poisoned.fetch_or(held_alone, Relaxed);
            let named = |fault: &Fault| kinds.iter().any(|kind| *fault == Fault::of(*kind, Rank(1)));
            match (record.violation(), &recoveries[..], record.entered().len()) {
                (Some(violation), ..) => Err(violation),
                (None, [], 2) => Ok(()),
                (None, [fault], 2) if held_alone && named(fault) => Ok(()),
                (None, recoveries, entered) => Err(format!(
                    "after rank 1 died inside, {entered} acquires succeeded, and recovered from {recoveries:?}"
                )),
            }
        };
        let executions = self.explored(&[&[survivor], &[dies]], Arc::new(check))?;
        let [without, with] = [0, 1].map(|outcome| outcomes[outcome].load(Relaxed) > 0);
        match (without, with, poisons.load(Relaxed)) {
            (true, with, poisons) if with == poisons => Ok(executions),
            (false, ..) => Err(format!("{}: rank 0 never enters before rank 1 dies inside, {dying:?}", A::NAME)),
            (_, true, _) => Err(format!("{}: an owner recovers though a reader died inside", A::NAME)),
            (_, false, _) => Err(format!("{}: no owner recovers after rank 1 died inside", A::NAME)),
        }
    }

    /// What one owner adds to the words of the lock by this section; `None` if that fails.
    pub(crate) fn alone(&self, section: Section) -> Option<Vec<u64>> {
        let found = Arc::new(Mutex::new(None));
        let (found_by_check, first) = (Arc::clone(&found), self.setting.words::<A>());
        let check = move |record: &Record, memory: &LoomMemory| {
            free_at_the_end::<A>(record, memory)?;
            let home = memory.region();
            let added = lock_and_data::<A>(&home).0.iter().zip(&first).map(|(word, first)| word.wrapping_sub(*first));
            *found_by_check.lock().unwrap() = Some(added.collect());
            Ok(())
        };
        self.explored(&[&[section]], Arc::new(check)).ok()?;
        found.lock().ok()?.take()
    }

    #[track_caller]
    fn explored(&self, programs: &[&[Section]], check: Arc<Check>) -> Result<usize, String> {
        let (lock, layout) = (Arc::new(self.lock.clone()), (self.atomics, self.forgets, self.setting));
        let rounds: Vec<Vec<Section>> = programs.iter().map(|rounds| rounds.to_vec()).collect();
        let mut model = loom::model::Builder::new();
        (model.preemption_bound, model.max_permutations) = (Some(self.preemptions), self.at_most);
        model.max_duration = self.setting.until.map(|until| until.saturating_duration_since(Instant::now()));
        model.checkpoint_interval = 100; // how often it looks at these
        let (executions, words) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(ModelMemory::new(1, 1))));
        let (count, last) = (Arc::clone(&executions), Arc::clone(&words));
        let execution: Arc<dyn Fn() + Send + Sync> = Arc::new(move || {
            count.fetch_add(1, Relaxed);
            execute(&lock, layout, &rounds, &last, &*check);
        });
        let ended = caught(|| model.check(move || execution()));
        let executions = executions.load(Relaxed);
        tried(executions);
        ended.map(|()| executions).map_err(|mut what| {
            if what.contains("deadlock; threads") {
                what = "deadlock, ranks wait without end".into(); // those of loom have no names
            } else if what.contains("maximum number of branches") {
                what =
                    "ranks wait without end: a loop of the lock goes on without a pause, or the programs are too long"
                        .into();
            }
            let (Self { atomics, preemptions, .. }, name) = (self, A::NAME);
            let told = words.lock().unwrap_or_else(PoisonError::into_inner).world().trace.tells(&what);
            format!(
                "{name}: {told} in execution {executions} of {programs:?}\n with {preemptions} preemptions, atomics \
                 {atomics:?}"
            )
        })
    }
}

/// One execution.
fn execute<A: LockAlgorithm>(
    lock: &Arc<A>,
    (atomics, forgets, setting): (Atomics, Option<usize>, Setting),
    programs: &[Vec<Section>],
    last: &Mutex<ModelMemory>,
    check: &Check,
) {
    let mut slots = Slots::of(programs);
    let words = setting.memory::<A>(programs.len(), &mut slots);
    *last.lock().unwrap_or_else(PoisonError::into_inner) = words.of(0);
    let memory = LoomMemory::over(words, atomics, if A::SERVED { 0 } else { programs.len() }, forgets);
    let record = Arc::new(Record::default());
    let spawned = Arc::new(Mutex::new(Threads::new()));
    let origin = |rank: usize| -> Task {
        let (threads, of) = (Arc::clone(&spawned), memory.of(rank));
        let spawn: Spawn = Box::new(move |task| {
            of.begins();
            threads.lock().unwrap().push(thread(of.of(rank), task));
        });
        let rounds = programs[rank].clone();
        Box::pin(program::run(memory.of(rank), Arc::clone(lock), slots, rounds, Arc::clone(&record), spawn))
    };
    let server = A::SERVED.then(|| {
        let (Server { task, open }, record) = (Server::start::<A>(&memory, slots), Arc::clone(&record));
        let serves = async move {
            task.await.unwrap_or_else(|fault| record.violated(|| format!("the server ended: {fault}")));
        };
        (thread(memory.of(0), Box::pin(serves)), open)
    });
    let others: Threads = (1..programs.len()).map(|rank| thread(memory.of(rank), origin(rank))).collect();
    block_on(origin(0));
    memory.ends();
    others.into_iter().for_each(|thread| thread.join().unwrap());
    let spawned = std::mem::take(&mut *spawned.lock().unwrap());
    spawned.into_iter().for_each(|thread| thread.join().unwrap());
    if let Some((serves, open)) = server {
        open.store(false, Relaxed);
        block_on(served::wake(&memory, Layout::of_server::<A>(&memory, slots))).unwrap();
        serves.join().unwrap();
    }
    if let Err(violation) = check(&record, &memory) {
        std::panic::panic_any(Violation(violation));
    }
}

type Threads = Vec<loom::thread::JoinHandle<()>>;

/// A task, whose end is counted.
fn thread(memory: LoomMemory, task: Task) -> loom::thread::JoinHandle<()> {
    loom::thread::spawn(move || {
        block_on(task);
        memory.ends();
    })
}

/// The check of [`Exploration::run`].
///
/// # Errors
/// The violation.
fn free_at_the_end<A: LockAlgorithm>(record: &Record, memory: &LoomMemory) -> Result<(), String> {
    let home = memory.region();
    let (lock, data) = lock_and_data::<A>(&home);
    record.check_end::<A>(lock, data)
}

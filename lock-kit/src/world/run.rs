//! One run of a lock's programs: a schedule of the checker, or a case of a search.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use onesided_lock_algos::{LockAlgorithm, served};
use onesided_remote_memory::{Fault, Rank};

use super::{Budget, Event, ModelMemory, Time, World};
use crate::Record;
use crate::caught::caught;
use crate::program::{
    self, Crashable, Ending, HOME, LOCK, Layout, Names, Section, Slots, Spawn, Task, idle, lock_and_data, region_words,
};
use crate::trace::Op;

/// More events than any run that ends has.
const ENDLESS: usize = 3_000;

/// The setting of a run.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Mutates the operations of the memory.
    pub mutate: Option<fn(Op) -> Op>,
    /// The first word of the free lock.
    pub lock: u64,
    /// All its words at its home, instead of that.
    pub home: Option<u64>,
    /// Whether the others' nodes always appear idle.
    pub blind: bool,
    /// Whether no wait ends by its deadline, as if time stood still: a lost wake-up is then a wait
    /// without end. Not with deaths.
    pub timeless: bool,
    /// How many ranks share a host.
    pub per_host: u32,
    /// Whether a rank that ends leaves in order, wherever its tasks are, instead of dying.
    pub leaves: bool,
    /// Whether only a change of its word ends a pause while all ranks are alive. Otherwise pauses also
    /// end if nothing else can happen, as in windows.
    pub woken: bool,
    /// How many owners, of one rank each, use the lock at a time. Generated programs keep below it.
    pub owners: u32,
    /// The lease in nanoseconds, if the lock has one: its owners then only read the data.
    pub lease: Option<u64>,
    /// When a check, a search or an exploration stops, without a violation.
    pub until: Option<Instant>,
}

impl Setting {
    /// No mutation, and a lock of zeros.
    pub const USUAL: Self = Self {
        mutate: None,
        lock: 0,
        home: None,
        blind: false,
        timeless: false,
        per_host: 2,
        leaves: false,
        woken: false,
        owners: u32::MAX,
        lease: None,
        until: None,
    };

    /// The words of the free lock.
    pub(crate) fn words<A: LockAlgorithm>(&self) -> Vec<u64> {
        let mut words = vec![self.home.unwrap_or(0); A::HOME_WORDS];
        words[0] = self.home.unwrap_or(self.lock);
        words
    }

    /// Whether its time is over.
    pub(crate) fn is_over(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// Whether the owners of these programs are so few, and those of each rank one at a time.
    pub(crate) fn allows(&self, programs: &[&[Section]]) -> bool {
        let alone = |sections: &[Section]| sections.iter().rev().skip(1).all(|section| !section.is_cancelled());
        self.owners == u32::MAX || programs.len() <= self.owners as usize && programs.iter().all(|rounds| alone(rounds))
    }

    /// The usual one with a mutation.
    #[must_use]
    pub const fn mutating(mutate: fn(Op) -> Op) -> Self {
        Self { mutate: Some(mutate), ..Self::USUAL }
    }

    pub(crate) fn memory<A: LockAlgorithm>(self, ranks: usize, slots: &mut Slots) -> ModelMemory {
        let Self { mutate, blind, timeless, per_host, leaves, woken, .. } = self;
        *slots = Slots { blind, per_host, ..*slots };
        let memory = ModelMemory::new(ranks, region_words::<A>(*slots));
        let mut world = memory.world();
        (world.mutate, world.names, world.home_lives) = (mutate, Names::of::<A>(*slots), A::SERVED);
        world.words[LOCK..LOCK + A::HOME_WORDS].copy_from_slice(&self.words::<A>());
        (world.leaves, world.woken) = (leaves, woken);
        world.time = if timeless { Time::WithoutDeadlines } else { Time::Free };
        drop(world);
        memory
    }
}

pub(crate) struct Run<A> {
    lock: Arc<A>,
    slots: Slots,
    pub(crate) memory: ModelMemory,
    /// Of all ranks, polled as their events happen.
    tasks: Vec<(Rank, Task)>,
    spawned: Arc<Mutex<Vec<(Rank, Task)>>>,
    pub(crate) record: Arc<Record>,
    server: Option<Server>,
    /// Whether an acquire gives up its place.
    gives_up: bool,
    /// The most bypasses of a waiter, if the lock promises that.
    pub(crate) bypass: Option<u32>,
    /// Whether a survivor has acquired the lock at the end.
    pub(crate) probed: bool,
    events: usize,
}

impl<A: LockAlgorithm + Clone> Run<A> {
    /// `prepare`: what else the world is like.
    pub(crate) fn new<P: AsRef<[Section]>>(
        lock: &A,
        setting: Setting,
        programs: &[P],
        record: Record,
        prepare: impl FnOnce(&mut World),
    ) -> Self {
        let (lock, mut slots) = (Arc::new(lock.clone()), Slots::of(programs));
        let memory = setting.memory::<A>(programs.len(), &mut slots);
        prepare(&mut memory.world());
        let server = A::SERVED.then(|| Server::start::<A>(&memory, slots));
        let leaves = |section: &Section| matches!(section.ending, Ending::Cancelled { leaves: true, .. });
        let gives_up = programs.iter().any(|program| program.as_ref().iter().any(leaves));
        let mut run = Self {
            lock,
            slots,
            memory,
            tasks: Vec::new(),
            spawned: Arc::default(),
            record: Arc::new(record.leasing(setting.lease)),
            server,
            gives_up,
            bypass: None,
            probed: false,
            events: 0,
        };
        for (rank, program) in (0..).map(Rank).zip(programs) {
            run.start(rank, program.as_ref());
        }
        run
    }

    fn start(&mut self, rank: Rank, rounds: &[Section]) {
        let spawned = Arc::clone(&self.spawned);
        let spawn: Spawn = Box::new(move |task| spawned.lock().unwrap().push((rank, task)));
        let (memory, lock, record) = (self.memory.of(rank.index()), Arc::clone(&self.lock), Arc::clone(&self.record));
        let task = program::run(memory, lock, self.slots, rounds.to_vec(), record, spawn);
        self.tasks.push((rank, Box::pin(task)));
        self.poll(rank);
    }

    /// Lets a rank's tasks go on as far as they can. A panic is a violation.
    fn poll(&mut self, rank: Rank) {
        let mut context = Context::from_waker(Waker::noop());
        loop {
            let mut goes_on = |task: &mut Task| {
                caught(|| task.as_mut().poll(&mut context).is_pending()).unwrap_or_else(|message| {
                    self.record.violated(|| format!("rank {}: {message}", rank.0));
                    false
                })
            };
            self.tasks.retain_mut(|(of, task)| *of != rank || goes_on(task));
            let spawned = std::mem::take(&mut *self.spawned.lock().unwrap());
            if spawned.is_empty() {
                break;
            }
            self.tasks.extend(spawned);
        }
        let dying = std::mem::take(&mut self.memory.world().dying);
        for rank in dying {
            self.tasks.retain(|(of, _)| *of != rank);
            self.memory.world().kill(rank);
        }
        if let Some(server) = self.server.as_mut().filter(|_| rank == HOME)
            && let Poll::Ready(ended) = server.task.as_mut().poll(&mut context)
        {
            self.record.violated(|| format!("the server ended: {ended:?}"));
        }
    }

    /// Whether a rank has tasks.
    fn works(&self, rank: Rank) -> bool {
        self.tasks.iter().any(|(of, _)| *of == rank)
    }

    /// What may happen to the tasks.
    fn events(&self) -> Vec<Event> {
        let world = self.memory.world();
        let at_work: Vec<_> = (0..world.ranks()).map(|rank| self.works(Rank(rank))).collect();
        world.possible(&at_work)
    }

    /// Checks that all tasks have ended.
    fn ended(&self) -> Result<(), String> {
        let ranks: Vec<_> = self.tasks.iter().map(|(rank, _)| rank.0).collect();
        if ranks.is_empty() {
            return Ok(());
        }
        let waits = self.memory.world().waits();
        let how = if waits.is_empty() { "they go on and on" } else { &waits };
        Err(format!("ranks {ranks:?} wait without end: {how}"))
    }

    /// The possible events; none at the end.
    pub(crate) fn possible(&mut self) -> Vec<Event> {
        if self.has_failed() {
            return Vec::new();
        }
        let events = self.events();
        if !events.is_empty() || !self.tasks.is_empty() || self.probed {
            return events;
        }
        // After a death, a loss, or an acquire that gave up its place, a survivor acquires the lock,
        // in both modes, twice: one that reaches all others that are alive.
        self.probed = true;
        let dead = self.record.dead();
        let lost = self.memory.world().lost.clone();
        let ranks = self.memory.world().ranks();
        let reaches = |rank: Rank| lost.iter().all(|(origin, target)| *origin != rank || dead.contains(target));
        let survivor = (0..ranks).rev().map(Rank).find(|rank| !dead.contains(rank) && reaches(*rank));
        let troubled = !dead.is_empty() || !lost.is_empty() || self.gives_up;
        let Some(survivor) = survivor.filter(|_| troubled) else { return events };
        self.memory.world().budget = Budget::default();
        self.start(survivor, &[Section::EXCLUSIVE, Section::SHARED, Section::EXCLUSIVE, Section::SHARED]);
        self.events()
    }

    /// Whether the rank whose operation was lost has ended, if only that one matters.
    fn has_failed(&self) -> bool {
        let failed = self.memory.world().failed();
        failed.is_some_and(|rank| !self.works(rank))
    }

    /// A digest of the state.
    pub(crate) fn state(&self) -> (u64, u64, bool) {
        (self.memory.world().state(), self.record.digest(), self.probed)
    }

    /// Runs an event.
    ///
    /// # Errors
    /// The violation.
    pub(crate) fn happen(&mut self, event: Event) -> Result<(), String> {
        if let Event::Crash(rank) = event {
            self.record.dies(rank, self.memory.world().travels_from(rank));
            self.tasks.retain(|(of, _)| *of != rank);
        }
        let concerned = self.memory.world().happen(event);
        self.record.passes(self.memory.world().now);
        concerned.into_iter().for_each(|rank| self.poll(rank));
        let arrived = self.memory.world().last_arrival;
        arrived.into_iter().for_each(|rank| self.record.arrives(rank));
        self.events += 1;
        if self.events > ENDLESS {
            self.ended().map_err(|waits| format!("{waits}, after {ENDLESS} events"))?;
        }
        self.record.violation().map_or(Ok(()), Err)?;
        let bypassed = self.record.bypassed();
        match self.bypass.is_some_and(|at_most| bypassed > at_most) && self.record.dead().is_empty() {
            true => Err(format!("{bypassed} later acquires bypassed a waiter")),
            false => Ok(()),
        }
    }

    /// Runs the events that `choose` picks among the possible ones. It is told whether a survivor has
    /// acquired the lock at the end.
    ///
    /// # Errors
    /// The violation.
    pub(crate) fn play(&mut self, mut choose: impl FnMut(&[Event], bool) -> Option<Event>) -> Result<(), String> {
        loop {
            let possible = self.possible();
            match choose(&possible, self.probed) {
                Some(event) => self.happen(event)?,
                None => return self.end(),
            }
        }
    }

    /// Checks the end.
    ///
    /// # Errors
    /// The violation.
    pub(crate) fn end(&mut self) -> Result<(), String> {
        if self.has_failed() {
            return Ok(());
        }
        self.record.violation().map_or(Ok(()), Err)?;
        self.ended()?;
        if let Some(server) = self.server.take() {
            self.memory.world().budget = Budget::default();
            server.close::<A>(&self.memory, self.slots)?;
        }
        let world = self.memory.world();
        let (home, data) = lock_and_data::<A>(world.region(HOME));
        let dead = self.record.dead();
        self.record.check_history(world.ranks() as usize)?;
        match dead.len() {
            all if all == world.ranks() as usize => {} // no rank is left to recover
            0 => self.record.check_end::<A>(home, data)?,
            _ => self.record.check_after_deaths::<A>(home, world.leaves, self.gives_up)?,
        }
        let announced = |rank: &Rank| !dead.contains(rank) && !idle::<A>(self.slots, world.region(*rank));
        match (0..world.ranks()).map(Rank).find(announced) {
            Some(rank) => Err(format!("rank {} is announced at the end", rank.0)),
            None => Ok(()),
        }
    }
}

/// The server of a lock, for a served one.
#[expect(missing_debug_implementations)]
pub struct Server {
    /// Ends once `open` is false and it is woken.
    pub task: Pin<Box<dyn Future<Output = Result<(), Fault>> + Send>>,
    /// Whether it goes on.
    pub open: Arc<AtomicBool>,
}

impl Server {
    /// A server of the lock, with a handle of its own of the memory of [`HOME`].
    pub fn start<A: LockAlgorithm>(memory: &impl Crashable, slots: Slots) -> Self {
        let memory = memory.clone();
        let open = Arc::new(AtomicBool::new(true));
        let still = Arc::clone(&open);
        let task = Box::pin(async move {
            let context = Layout::of_server::<A>(&memory, slots);
            served::serve(&memory, context, move || still.load(Relaxed)).await
        });
        Self { task, open }
    }

    /// Stops it, and waits for its end.
    ///
    /// # Errors
    /// Why it does not end, or how.
    pub fn close<A: LockAlgorithm>(self, memory: &ModelMemory, slots: Slots) -> Result<(), String> {
        self.open.store(false, Relaxed);
        let ended = async move {
            served::wake(memory, Layout::of_server::<A>(memory, slots)).await?;
            self.task.await
        };
        crate::random::driven(memory, ended)
            .ok_or("the server does not end")?
            .map_err(|fault| format!("the server ended: {fault}"))
    }
}

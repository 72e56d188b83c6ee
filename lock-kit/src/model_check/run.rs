//! One schedule.

use std::fmt::Write as _;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use onesided_lock_algos::LockAlgorithm;
use onesided_remote_memory::{Fault, Rank};

use super::Checker;
use super::memory::{CheckedMemory, lock};
use super::world::{Event, World};
use crate::Record;
use crate::program::{self, HOME, LOCK, Layout, Section, Slots, Task, idle, lock_and_data};
use crate::random::Server;

/// More events than any schedule that ends has.
const ENDLESS: usize = 3_000;

pub(super) struct Run<A> {
    lock: Arc<A>,
    slots: Slots,
    world: Arc<Mutex<World>>,
    record: Arc<Record>,
    tasks: Vec<(Rank, Task)>,
    serving: Option<Serving>,
    spawned: Arc<Mutex<Vec<(Rank, Task)>>>,
    /// Whether a survivor has acquired the lock at the end.
    probed: bool,
    entered: usize,
    bypass: Option<u32>,
    token: Option<fn(&[u64]) -> u64>,
    events: Vec<(Event, String)>,
}

/// The server of the lock, at its home.
struct Serving {
    server: Server,
    ended: Option<Result<(), Fault>>,
}

impl Serving {
    fn poll(&mut self, context: &mut Context<'_>) {
        if self.ended.is_none()
            && let Poll::Ready(ended) = self.server.task.as_mut().poll(context)
        {
            self.ended = Some(ended);
        }
    }
}

/// The end of a schedule.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    pub(super) recovering: bool,
    pub(super) lost: bool,
    pub(super) bypassed: u32,
}

impl<A: LockAlgorithm + Clone> Run<A> {
    pub(super) fn new(checker: &Checker<A>, programs: &[&[Section]]) -> Self {
        let slots = Slots { per_host: checker.per_host, ..Slots::of(programs) };
        let mut world = World::new(programs.len(), program::region_words::<A>(slots), checker.budget);
        world.mutate = checker.mutate;
        world.memory_goes = checker.memory_goes;
        world.safe_within = checker.same_host_is_safe.then_some(checker.per_host);
        world.home_lives = A::SERVED;
        let mut run = Self {
            lock: Arc::new(checker.lock.clone()),
            slots,
            world: Arc::new(Mutex::new(world)),
            record: Arc::default(),
            tasks: Vec::new(),
            serving: None,
            spawned: Arc::default(),
            probed: false,
            entered: 0,
            bypass: checker.bypass,
            token: checker.token,
            events: Vec::new(),
        };
        if A::SERVED {
            let memory = CheckedMemory::new(HOME, &run.world).clone(); // a handle of its own
            run.serving = Some(Serving { server: Server::over(memory, &run.lock, slots), ended: None });
        }
        for (rank, rounds) in (0..).map(Rank).zip(programs) {
            run.spawn(rank, rounds);
            run.poll(rank);
        }
        run
    }

    fn spawn(&mut self, rank: Rank, rounds: &[Section]) {
        let memory = CheckedMemory::new(rank, &self.world);
        let (algorithm, record, spawned) =
            (Arc::clone(&self.lock), Arc::clone(&self.record), Arc::clone(&self.spawned));
        let spawn = move |task| spawned.lock().unwrap().push((rank, task));
        let task = program::run(memory, algorithm, self.slots, rounds.to_vec(), record, spawn);
        self.tasks.push((rank, Box::pin(task)));
    }

    /// Lets a rank's tasks go on as far as they can.
    fn poll(&mut self, rank: Rank) {
        let mut context = Context::from_waker(Waker::noop());
        loop {
            self.tasks.retain_mut(|(of, task)| *of != rank || task.as_mut().poll(&mut context).is_pending());
            let spawned = std::mem::take(&mut *self.spawned.lock().unwrap());
            if spawned.is_empty() {
                break;
            }
            self.tasks.extend(spawned);
        }
        if let Some(serving) = self.serving.as_mut().filter(|_| rank == HOME) {
            serving.poll(&mut context);
        }
        let dying = std::mem::take(&mut lock(&self.world).dying);
        for rank in dying {
            self.reap(rank);
        }
    }

    fn reap(&mut self, rank: Rank) {
        self.tasks.retain(|(of, _)| *of != rank);
        lock(&self.world).reap(rank);
    }

    fn at_work(&self) -> Vec<bool> {
        let ranks = lock(&self.world).ranks();
        (0..ranks).map(|rank| self.tasks.iter().any(|(of, _)| of.0 == rank)).collect()
    }

    /// The possible events; none at the end.
    pub(super) fn possible(&mut self) -> Vec<Event> {
        let at_work = self.at_work();
        let events = lock(&self.world).possible(&at_work);
        let over = events.is_empty() && self.tasks.is_empty() && !self.probed;
        if !over {
            return events;
        }
        // A survivor acquires the lock, in both modes, twice.
        self.probed = true;
        let dead = self.record.dead();
        let ranks = lock(&self.world).ranks();
        let lost = lock(&self.world).lost.clone();
        // One that reaches all others that are alive.
        let reaches = |rank: Rank| lost.iter().all(|(origin, target)| *origin != rank || dead.contains(target));
        let survivor = (0..ranks).rev().map(Rank).find(|rank| !dead.contains(rank) && reaches(*rank));
        let troubled = !dead.is_empty() || !lost.is_empty();
        let Some(survivor) = survivor.filter(|_| troubled) else { return events };
        lock(&self.world).budget = super::Budget::default();
        self.spawn(survivor, &[Section::EXCLUSIVE, Section::SHARED, Section::EXCLUSIVE, Section::SHARED]);
        self.poll(survivor);
        let at_work = self.at_work();
        lock(&self.world).possible(&at_work)
    }

    /// A digest of the state.
    pub(super) fn state(&self) -> (u64, u64, bool) {
        (lock(&self.world).state(), self.record.digest(), self.probed)
    }

    /// Runs an event. Returns the end of the schedule, if it has ended.
    pub(super) fn happen(&mut self, event: Event) -> Option<Result<End, String>> {
        let described = lock(&self.world).describe(event);
        self.events.push((event, described));
        if let Event::Crash(rank) = event {
            self.record.dies(rank, lock(&self.world).travels_from(rank));
            self.tasks.retain(|(of, _)| *of != rank);
        }
        let (concerned, effect) = {
            let mut world = lock(&self.world);
            (world.happen(event), world.last_arrival)
        };
        if let Some(origin) = effect {
            self.record.arrives(origin);
        }
        if let Some(rank) = concerned {
            self.poll(rank);
        }
        self.check().err().map(Err)
    }

    fn check(&mut self) -> Result<(), String> {
        if self.events.len() > ENDLESS {
            return Err(format!("does not end, after {ENDLESS} events"));
        }
        let entered = self.record.order();
        if entered.len() > self.entered {
            self.entered = entered.len();
            if let (Some(token), Some((_, onesided_lock_algos::Mode::Exclusive))) = (self.token, entered.last()) {
                let world = lock(&self.world);
                self.record.token(token(&world.words()[LOCK..LOCK + A::HOME_WORDS]));
            }
        }
        if let Some(violation) = self.record.violation() {
            return Err(violation);
        }
        if let Some(ended) = self.serving.as_ref().and_then(|serving| serving.ended.as_ref()) {
            return Err(format!("the server ended: {ended:?}"));
        }
        let bypassed = self.record.bypassed();
        if self.record.dead().is_empty() && self.bypass.is_some_and(|at_most| bypassed > at_most) {
            return Err(format!("{bypassed} later acquires bypassed a waiter"));
        }
        Ok(())
    }

    /// Stops the server.
    fn close(&mut self) -> Result<(), String> {
        let Some(mut serving) = self.serving.take() else { return Ok(()) };
        serving.server.open.store(false, Relaxed);
        let memory = CheckedMemory::new(HOME, &self.world);
        let mut context = Context::from_waker(Waker::noop());
        let mut wakes = pin!(self.lock.wake_server(&memory, Layout::<_, A>::of_server(&memory, self.slots)));
        let (mut woken, nobody) = (false, vec![false; lock(&self.world).ranks() as usize]);
        for _ in 0..ENDLESS {
            woken = woken || wakes.as_mut().poll(&mut context).is_ready();
            serving.poll(&mut context);
            if let Some(ended) = serving.ended.filter(|_| woken) {
                return ended.map_err(|fault| format!("the server ended: {fault}"));
            }
            let mut world = lock(&self.world);
            let Some(event) = world.possible(&nobody).first().copied() else { break };
            world.happen(event);
        }
        Err("the server does not end".to_owned())
    }

    /// Checks the end.
    pub(super) fn end(&mut self) -> Result<End, String> {
        if !self.tasks.is_empty() {
            let waiting: Vec<_> = self.tasks.iter().map(|(rank, _)| rank.0).collect();
            return Err(format!("ranks {waiting:?} wait without end"));
        }
        self.close()?;
        let world = lock(&self.world);
        let (home, data) = lock_and_data::<A>(&world.words()[..world.region_words()]);
        let dead = self.record.dead();
        match dead.len() {
            all if all == world.ranks() as usize => {} // no rank is left to recover
            0 => self.record.check_end::<A>(home, data)?,
            _ => self.record.check_after_deaths::<A>(home)?,
        }
        for rank in (0..world.ranks()).map(Rank).filter(|rank| !dead.contains(rank)) {
            if !idle::<A>(self.slots, &world.words()[rank.index() * world.region_words()..][..world.region_words()]) {
                return Err(format!("rank {} is announced at the end", rank.0));
            }
        }
        let recovering = self.record.entered().iter().any(|(_, recovered)| recovered.is_some());
        Ok(End { recovering, lost: !world.lost.is_empty(), bypassed: self.record.bypassed() })
    }

    /// The events, one per line.
    pub(super) fn story(&self) -> String {
        let mut story = String::new();
        for (_, what) in &self.events {
            let _ = writeln!(story, "  {what}");
        }
        story
    }
}

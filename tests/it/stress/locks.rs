//! Locks of all designs, whose requests are given up at random: they exclude, every wait ends, and
//! what a rank that ended has left is free or names that rank.

use std::time::{Duration, Instant};

use onesided::{
    Error, LeasePolicy, LockAllDesign, LockDesign, Mode, PreviousOwner, RwLock, Window, WindowError, World, WriteGuard,
};

use super::{LIMIT, Plan, begin, processes, seeds, threads, three_or_five};
use crate::collectives::steps::Random;
use crate::jobs;

/// Of rank 0's window memory: how often its lock was held exclusively, and by whom it is.
const COUNT: usize = 0;
const INSIDE: usize = 1;
const STEPS: u64 = 150;
/// Shorter than some owners hold the lock.
const LEASE: Duration = Duration::from_micros(800);
/// Seeds with which a rank ends with a status (ticket), dies (test-and-set, distributed counters), and
/// none ends (two-level).
const ON_CARDS: [u64; 4] = [5, 21, 29, 30];

/// What a rank does with the lock of rank 0.
struct User<'a> {
    plan: &'a Plan,
    world: &'a World,
    window: &'a Window<u64>,
    /// Whose lock has a lease that may expire.
    leased: &'a Window<u64>,
    /// How often it was written, in each element.
    value: &'a RwLock<[u64; 4]>,
    random: Random,
    counted: u64,
    committed: u64,
    written: u64,
}

impl User<'_> {
    fn time(&mut self) -> Duration {
        Duration::from_micros([0, 5, 50, 500, 5_000][self.random.below(5) as usize])
    }

    /// Whether an error is one that may be.
    fn failed(&self, error: impl Into<Error>) {
        let error = error.into();
        if error.is_timed_out() {
            return;
        }
        if error.is_poisoned() {
            return assert!(!self.plan.all_stay(), "{:?}: {error}", self.plan);
        }
        let fault = error.fault().unwrap_or_else(|| panic!("{:?}: {error}", self.plan));
        self.plan.check(self.world, fault, &error);
    }

    /// Under an exclusive lock.
    fn alone(&mut self, access: &onesided::Access<'_, u64, onesided::Any>, previous: Option<PreviousOwner>) {
        let pause = self.time().min(Duration::from_micros(60));
        inside(self.plan, self.world, (access, COUNT), (Mode::Exclusive, previous), pause).unwrap();
        self.counted += 1;
    }

    /// What it has when it ends: a request that is under way and that nobody waits for, or a guard.
    fn leaves_behind(&mut self) {
        match self.random.below(5) {
            0 => drop(self.window.lock_exclusive(0)),
            3 => std::mem::forget(self.value.read().recover().deadline(LIMIT).wait()),
            4 => std::mem::forget(self.value.write().recover().deadline(LIMIT).wait()),
            1 => std::mem::forget(self.window.lock_exclusive(0).recover().deadline(LIMIT).wait()),
            _ => std::mem::forget(self.window.lock_shared(0).recover().deadline(LIMIT).wait()),
        }
    }

    /// Writes the value, which is as whole as the last owner left it.
    fn write(&mut self, mut guard: WriteGuard<'_, [u64; 4]>) {
        let before = guard[0];
        assert!(guard.previous_owner().is_some() || *guard == [before; 4], "{:?}: {:?}", self.plan, *guard);
        *guard = [before + 1; 4];
        self.written += 1;
        match self.random.below(2) {
            0 => drop(guard),
            _ => guard.unlock().wait().unwrap(),
        }
    }

    /// Makes a request in some way, or gives it up.
    fn step(&mut self) {
        let (time, looks, window, value) = (self.time(), self.random.below(4), self.window, self.value);
        macro_rules! held {
            ($request:expr) => {
                match looks {
                    0 => $request.deadline(time).wait().map(Some),
                    1 => { $request }.wait_timeout(time),
                    2 => $request.deadline(LIMIT).wait().map(Some),
                    _ => {
                        let mut request = $request;
                        (0..3).find_map(|_| request.test().transpose()).transpose()
                    }
                }
            };
        }
        let recovers = !self.plan.all_stay();
        match self.random.below(11) {
            0..=2 => {
                let request = window.lock_exclusive(0);
                match held!(if recovers { request.recover() } else { request }) {
                    Ok(Some(epoch)) => {
                        self.alone(&epoch, epoch.previous_owner());
                        match self.random.below(3) {
                            0 => drop(epoch),
                            1 => drop(epoch.unlock()),
                            _ => epoch.unlock().wait().unwrap(),
                        }
                    }
                    Ok(None) => {}
                    Err(error) => self.failed(error),
                }
            }
            3 => match window.try_lock_exclusive(0).wait() {
                Ok(Some(epoch)) => {
                    self.alone(&epoch, epoch.previous_owner());
                    epoch.unlock().wait().unwrap();
                }
                Ok(None) => {}
                Err(error) => self.failed(error),
            },
            4 | 5 => {
                let request = window.lock_shared(0);
                match held!(if recovers { request.recover() } else { request }) {
                    Ok(Some(epoch)) => {
                        let modes = (epoch.mode(), epoch.previous_owner());
                        inside(self.plan, self.world, (&epoch, COUNT), modes, Duration::ZERO).unwrap();
                        self.counted += u64::from(epoch.mode() == Mode::Exclusive);
                        epoch.unlock().wait().unwrap();
                    }
                    Ok(None) => {}
                    Err(error) => self.failed(error),
                }
            }
            6 => match held!(window.lock_all()) {
                Ok(Some(all)) => {
                    match all.at(0).deadline(time).wait() {
                        Ok(access) => {
                            let mut words = [0; 2];
                            access.get(COUNT, &mut words).wait().unwrap();
                            assert_eq!(words[INSIDE], 0, "{:?}: beside lock_all", self.plan);
                        }
                        Err(error) => self.failed(error),
                    }
                    drop(all);
                }
                Ok(None) => {}
                Err(error) => self.failed(error),
            },
            7 => {
                let request = self.leased.lock_exclusive(0);
                match held!(if recovers { request.recover() } else { request }) {
                    Ok(Some(epoch)) => {
                        let count = epoch.committed().wait().unwrap();
                        if looks == 0 {
                            std::thread::sleep(time); // perhaps for longer than the lease
                        }
                        let is_late = |error: &WindowError| matches!(error, WindowError::Late { .. });
                        match epoch.commit(count + 1).wait() {
                            Ok(()) => self.committed += 1,
                            Err(error) => assert!(is_late(&error), "{:?}: {error}", self.plan),
                        }
                        let unlocked = epoch.unlock().wait();
                        assert!(unlocked.as_ref().err().is_none_or(is_late), "{:?}: {unlocked:?}", self.plan);
                    }
                    Ok(None) => {}
                    Err(error) => self.failed(error),
                }
            }
            8 => {
                let request = value.write();
                match held!(if recovers { request.recover() } else { request }) {
                    Ok(Some(guard)) => self.write(guard),
                    Ok(None) => {}
                    Err(error) => self.failed(error),
                }
            }
            9 => match held!(value.read()) {
                // One of them moves to another thread, which may outlive the next ones of this one.
                Ok(Some(guard)) => std::thread::scope(|scope| {
                    let whole = scope.spawn(move || *guard == [guard[0]; 4]).join();
                    assert!(whole.unwrap(), "{:?}", self.plan);
                }),
                Ok(None) => {}
                Err(error) => self.failed(error),
            },
            _ => {
                let (mut word, mut is_alone) = ([0], true);
                let add = |word: &mut [u64]| word[0] += 1;
                match window.locked(0).update(COUNT, &mut word, add).deadline(LIMIT).wait() {
                    Ok(()) => {}
                    Err(error) => {
                        is_alone = false;
                        self.failed(error);
                    }
                }
                self.counted += u64::from(is_alone);
            }
        }
    }
}

/// What a rank does under a lock: nobody else is there who writes, and it counts if it is alone.
pub(super) fn inside(
    plan: &Plan,
    world: &World,
    (access, at): (&onesided::Access<'_, u64, onesided::Any>, usize),
    (mode, previous): (Mode, Option<PreviousOwner>),
    pause: Duration,
) -> Result<(), WindowError> {
    let (me, mut words) = (world.rank(), [0; 2]);
    access.get(at, &mut words).wait()?;
    let left_by = words[INSIDE].checked_sub(1).map(|rank| rank as u32);
    let is_left = left_by.is_none_or(|rank| previous.is_some() && !plan.stays(rank));
    assert!(is_left, "{plan:?}: rank {me} finds {words:?} inside");
    if mode == Mode::Exclusive {
        words[INSIDE] = u64::from(me) + 1;
        access.put(at + INSIDE, &words[INSIDE..])?;
        access.flush().wait()?;
    }
    std::thread::sleep(pause);
    let mut again = [0; 2];
    access.get(at, &mut again).wait()?;
    assert_eq!(again, words, "{plan:?}: another rank came to rank {me}");
    if mode == Mode::Exclusive {
        access.put(at, &[words[COUNT] + 1, 0])?;
    }
    Ok(())
}

pub(super) fn play(world: &World, plan: &Plan) {
    let mut random = Random(plan.seed);
    let design = LockDesign::ALL[(plan.seed / 2) as usize % LockDesign::ALL.len()];
    let all = LockAllDesign::ALL[random.below(3) as usize];
    let window =
        Window::<u64>::builder().name("stressed").lock(design).lock_all(all).allocate(world, 2).wait().unwrap();
    let over = Window::<u64>::allocate(world, 4 * world.size() as usize).wait().unwrap();
    let value = RwLock::with(Window::builder().lock(design), world, 0, [0; 4]).wait().unwrap();
    let builder = Window::<u64>::builder().name("leased").lock(LockDesign::TestAndSet);
    let leased = builder.lease_policy(LeasePolicy::VersionedCommit, LEASE).allocate(world, 1).wait().unwrap();
    begin(world, plan);
    let random = plan.random(world.rank());
    let (window, leased, value) = (&window, &leased, &value);
    let mut user = User { plan, world, window, leased, value, random, counted: 0, committed: 0, written: 0 };
    for step in 0..STEPS {
        if plan.ends.get(&world.rank()).is_some_and(|(_, after)| *after == step) {
            user.leaves_behind();
        }
        if plan.ends_now(world, step) {
            return;
        }
        user.step();
    }
    let me = world.rank() as usize;
    let epoch = over.lock_shared(0).deadline(LIMIT).wait().unwrap();
    epoch.put(4 * me, &[user.counted, user.committed, user.written, u64::from(me > 0)]).unwrap();
    epoch.unlock().wait().unwrap();
    let begun = Instant::now();
    let wait = |rank: u32| {
        loop {
            let epoch = over.lock_shared(0).deadline(LIMIT).wait().unwrap();
            let mut seen = [0; 4];
            epoch.get(4 * rank as usize, &mut seen).wait().unwrap();
            epoch.unlock().wait().unwrap();
            if let [counted, committed, written, 1] = seen {
                return [counted, committed, written];
            }
            let is_there = world.is_alive(rank) && begun.elapsed() < LIMIT;
            assert!(is_there, "{plan:?} {design}: rank {rank} is not over: {}", onesided::dump());
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    if me == 0 {
        let others = (1..world.size()).filter(|rank| plan.stays(*rank));
        while plan.ends.keys().any(|ender| world.is_alive(*ender)) {
            assert!(begun.elapsed() < LIMIT, "{plan:?} {design}: it does not end");
            std::thread::sleep(Duration::from_millis(1));
        }
        let mine = [user.counted, user.committed, user.written];
        let [counted, committed, written] =
            others.map(wait).fold(mine, |all, one| std::array::from_fn(|at| all[at] + one[at]));
        let last = leased.lock_exclusive(0).recover().deadline(LIMIT).wait();
        let last = last.unwrap_or_else(|error| panic!("{plan:?}: {error}"));
        let found = last.committed().wait().unwrap();
        assert!(found == committed || !plan.all_stay() && found > committed, "{plan:?}: {found} of {committed}");
        drop(last);
        let last = window.lock_exclusive(0).recover().deadline(LIMIT).wait();
        last.unwrap_or_else(|error| panic!("{plan:?} {design}: {error}")).unlock().wait().unwrap();
        let last = value.write().recover().deadline(LIMIT).wait();
        let last = *last.unwrap_or_else(|error| panic!("{plan:?} {design}: {error}"));
        if plan.all_stay() {
            assert_eq!(last, [written; 4], "{plan:?} {design}");
            assert_eq!(window.local().read(COUNT..INSIDE + 1), [counted, 0], "{plan:?} {design}");
        }
        over.local().write(3, &[1]).unwrap();
        while (1..world.size()).any(|rank| world.is_alive(rank)) && begun.elapsed() < LIMIT {
            std::thread::sleep(Duration::from_millis(1)); // they look at its memory
        }
    } else {
        wait(0);
    }
    jobs::ok();
}

#[test]
fn threads_exclude_one_another() {
    seeds(60, 400, &ON_CARDS).into_iter().for_each(|seed| threads(three_or_five(seed), play));
}

#[test]
fn processes_exclude_one_another() {
    seeds(40, 200, &ON_CARDS).into_iter().for_each(|seed| processes(three_or_five(seed), "stress: locks", &[]));
}

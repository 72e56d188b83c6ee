//! Collectives of worlds, communicators and windows that are under way at the same time, between locks of
//! a table and messages. Ranks begin them in other orders than they end, and give some up. Each ends: it
//! is right, or its error names the rank that gave it up or has ended.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use onesided::fabric::block_on;
use onesided::fabric::remote_memory::Rank;
use onesided::{Error, Fault, FaultKind, LockDesign, LockTable, Messages, Mode, Tag, Window, World};

use super::locks::inside;
use super::messages::message;
use super::tasks::{Tasks, until};
use super::{LIMIT, MODES, Plan, WAYS, begin, processes, seeds, threads};
use crate::collectives::steps::{ALL, Random, Step};
use crate::jobs;

/// Calls of a group.
const CALLS: u64 = 8;
/// Of a communicator, under way.
const TOGETHER: usize = 4;
/// Locks of the table at a rank; of each its window memory has how often it was held, and by whom it is.
const LOCKS: u64 = 2;
const REQUESTS: u32 = 30;
/// Messages from a rank to another one with a tag.
const MANY: u64 = 10;
/// Seeds with which no rank ends, and one dies.
const ON_CARDS: [u64; 2] = [0, 21];
/// The deadline of a call that others may not come to.
const LATE: Duration = Duration::from_millis(30);

enum Of {
    World(World),
    Messages(Messages),
    Window(Window<u64>),
}

/// Ranks that make calls in one order.
struct Group {
    number: usize,
    members: Vec<u32>,
    of: Of,
    /// A call that a member gives up, and who.
    gives_up: Option<(u64, u32)>,
    /// No call comes after one that failed.
    is_over: AtomicBool,
}

impl Group {
    fn index(&self, rank: u32) -> u32 {
        self.members.iter().position(|member| *member == rank).unwrap() as u32
    }

    /// Whether one who gives up tells the others.
    fn is_told(&self) -> bool {
        matches!(self.of, Of::Messages(_))
    }

    fn is_given_up(&self, number: u64) -> bool {
        self.gives_up.is_some_and(|(from, _)| from <= number)
    }
}

/// What the parts of a rank share.
struct Shared<'a> {
    plan: &'a Plan,
    world: &'a World,
    messages: Messages,
    table: LockTable,
    counts: Window<u64>,
    design: LockDesign,
    groups: Vec<Group>,
    /// All ranks begin calls in one order, so that they may wait for any.
    is_ordered: bool,
    /// By lock.
    counted: Vec<AtomicU64>,
    /// By tag and rank.
    received: [Vec<AtomicU64>; 2],
    /// By rank: it is known that it has ended.
    has_ended: Vec<AtomicBool>,
}

impl Shared<'_> {
    fn has_ended(&self, rank: u32) -> bool {
        self.has_ended[rank as usize].load(Relaxed)
    }

    /// An operation failed: some rank has ended.
    fn failed(&self, error: impl Into<Error>) {
        let error = error.into();
        assert!(!error.is_timed_out(), "{:?}: {error}: {}", self.plan, onesided::dump());
        let fault = error.fault().unwrap_or_else(|| panic!("{:?}: {error}", self.plan));
        let ended = self.plan.check(self.world, fault, &error);
        self.has_ended[ended as usize].store(true, Relaxed);
    }

    /// A call of a group failed, whose deadline this was.
    fn failed_in(&self, group: &Group, (number, time): (u64, Duration), error: Error) {
        use FaultKind::{NoSuchRegion, OutOfStep, TimedOut};
        let fault = error.fault().unwrap_or_else(|| panic!("{:?}: {error}", self.plan));
        let member = fault.rank().and_then(|rank| group.members.get(rank.0 as usize).copied());
        // As a rank ends, it drops what it makes; what others make with it, they drop then.
        let mut enders = self.plan.ends.keys().filter(|rank| group.members.contains(rank));
        let is_right = match fault.kind() {
            TimedOut if time != LIMIT => true,
            _ if group.is_given_up(number) && (member == group.gives_up.map(|(_, who)| who) || !group.is_told()) => {
                true
            }
            OutOfStep => group.is_told() && enders.any(|ender| Some(*ender) == member),
            kind => kind == NoSuchRegion && !group.is_told() && enders.next().is_some(),
        };
        if !is_right {
            let fault = member.map_or(fault, |rank| Fault::of(fault.kind(), Rank(rank)));
            self.plan.check(self.world, fault, &format!("call {number} of {:?}: {error}", group.members));
        }
    }

    async fn call(&self, group: &Group, number: u64, mut private: Random) {
        let plan = self.plan;
        // All members draw the same.
        let mut random =
            Random(plan.seed << 24 | (group.members[0] as u64) << 16 | (group.number as u64) << 8 | number);
        let is_mine = group.gives_up == Some((number, self.world.rank()));
        let pendings = if is_mine && private.below(2) == 0 { private.below(6) } else { u64::MAX };
        let mut time = match is_mine {
            true => Duration::from_micros(private.below(300)),
            false if group.is_given_up(number) && !group.is_told() => LATE,
            false => LIMIT,
        };
        let call = async {
            match &group.of {
                Of::World(world) => return self.call_of_world((world, group.number == 0), &mut random, time).await,
                Of::Window(window) => {
                    let (me, size) = (group.index(self.world.rank()), group.members.len() as u32);
                    let value = |rank: u32| number << 8 | u64::from(rank);
                    let epoch = window.fence().deadline(time).await?;
                    // The others wait for this rank even if its own operations fail.
                    let put = epoch.at((me + 1) % size).and_then(|access| access.put(0, &[value(me)]));
                    epoch.end().deadline(time).await?;
                    put?;
                    assert_eq!(window.local().read(0..1), [value((me + size - 1) % size)], "{plan:?}: call {number}");
                }
                Of::Messages(messages) => {
                    let size = group.members.len() as u32;
                    let longest = [30, 3_000, 30_000, 300_000][random.below(20).min(3) as usize];
                    let mut step = Step::random(ALL[random.below(16) as usize], size, longest, &mut random);
                    // Of the same members, for one call.
                    let (members, is_made) = ((0..size).collect::<Vec<_>>(), random.below(6) == 0);
                    let made = messages.create_group(&members, Tag(number as u32)).deadline(time);
                    let made = if is_made { Some(made.await?) } else { None };
                    if is_made && group.is_given_up(number) {
                        time = LATE; // it may not have been made everywhere
                    }
                    step.deadline = (time != LIMIT).then_some(time);
                    step.run(made.as_ref().unwrap_or(messages)).await?;
                }
            }
            Ok(())
        };
        let ended = until(call, pendings).await;
        group.is_over.fetch_or(!group.is_told() && !matches!(ended, Some(Ok(()))), Relaxed);
        if let Some(Err(error)) = ended {
            self.failed_in(group, (number, time), error);
        }
    }

    /// What a program makes of a world is used and closed within the call.
    async fn call_of_world(
        &self,
        (world, is_first): (&World, bool),
        random: &mut Random,
        time: Duration,
    ) -> Result<(), Error> {
        let (me, size, builder) = (world.rank(), world.size(), Window::builder().lock(self.design).name("short"));
        // A rank makes its communicators one after the other.
        match random.below(if is_first { 7 } else { 6 }) {
            0 => world.barrier().deadline(time).await?,
            1 => {
                let most = random.below(1_025) as usize;
                let of = |rank: u32| vec![rank as u8; (most * (rank as usize + 7)) % 1_025];
                let all = world.all_gather(&of(me)).deadline(time).await?;
                assert!(all == (0..size).map(of).collect::<Vec<_>>(), "{:?}", self.plan);
            }
            2 => world.split(0, me).deadline(time).await?.barrier().deadline(time).await?,
            3 | 4 => {
                let window = builder.allocate(world, 1).deadline(time).await?;
                let added = window.locked((me + 1) % size).put(0, &[7]).deadline(time).await;
                drop(window.fence().deadline(time).await?);
                added?;
                assert_eq!(window.local().read(0..1), [7], "{:?}", self.plan);
                window.close().deadline(time).await?;
            }
            5 => {
                let table = LockTable::with(builder, world, 1).deadline(time).await?;
                let all: Vec<_> = (0..table.len()).collect();
                let held = table.lock_many(&all, Mode::Exclusive).deadline(time).await.map(drop);
                table.close().deadline(time).await?;
                held?;
            }
            _ => {
                let messages = Messages::new(world).deadline(time).await?;
                let mut step = Step::random(ALL[random.below(16) as usize], size, 3_000, random);
                step.deadline = Some(time);
                step.run(&messages).await?;
            }
        }
        Ok(())
    }

    /// Requests locks of the table, or gives that up; `true`: briefly at most.
    async fn lock(&self, mut random: Random, is_short: bool) {
        let all = LOCKS * u64::from(self.plan.ranks);
        let locks: Vec<_> = (0..1 + random.below(3)).map(|_| random.below(all)).collect();
        let time = match is_short || random.below(2) == 0 {
            true => Duration::from_micros([0, 50, 500, 5_000][random.below(4) as usize]),
            false => LIMIT,
        };
        let pendings = if random.below(3) == 0 { random.below(4) } else { u64::MAX };
        let (table, recovers) = (&self.table, !self.plan.all_stay());
        macro_rules! held {
            ($request:expr) => {{
                let request = $request.deadline(time);
                until(if recovers { request.recover() } else { request }, pendings).await.transpose()
            }};
        }
        let one = |guard: Option<_>| guard.into_iter().collect();
        let held: Result<Vec<_>, _> = match random.below(6) {
            0 => held!(table.lock_exclusive(locks[0])).map(one),
            1 => held!(table.lock_shared(locks[0])).map(one),
            2 => until(table.try_lock_exclusive(locks[0]), pendings).await.transpose().map(|held| one(held.flatten())),
            3 => held!(table.lock_many(&locks, Mode::Shared)).map(Option::unwrap_or_default),
            _ => held!(table.lock_many(&locks, Mode::Exclusive)).map(Option::unwrap_or_default),
        };
        let mut held = match held.map_err(Error::from) {
            Err(error) if error.is_timed_out() && time != LIMIT || error.is_poisoned() && recovers => return,
            Err(error) => return self.failed(error),
            Ok(held) => held,
        };
        for guard in &held {
            let (home, at) = table.place(guard.lock()).unwrap();
            let (modes, pause) = ((guard.mode(), guard.previous_owner()), Duration::from_micros(random.below(60)));
            let counts = self.counts.no_check();
            let outcome = async {
                let access = counts.at(home)?;
                inside(self.plan, self.world, (access, 2 * at as usize), modes, pause)?;
                access.flush().await // the unlock of a table does not
            };
            match outcome.await {
                Ok(()) => {
                    let counts = u64::from(guard.mode() == Mode::Exclusive);
                    self.counted[guard.lock() as usize].fetch_add(counts, Relaxed);
                }
                Err(error) => self.failed(error),
            }
        }
        while let Some(guard) = (!held.is_empty()).then(|| held.swap_remove(random.below(held.len() as u64) as usize)) {
            if random.below(2) == 0 {
                guard.unlock().await.unwrap_or_else(|error| self.failed(error));
            }
        }
    }

    /// Receives the next message of a rank, or gives up.
    async fn receive(&self, (from, tag): (u32, u32), mut random: Random) {
        let time = [Duration::ZERO, Duration::from_micros(200), LIMIT][random.below(3) as usize];
        let pendings = if random.below(3) == 0 { random.below(4) } else { u64::MAX };
        match until(self.messages.recv::<u8>(from, Tag(tag)).deadline(time), pendings).await {
            None => {}
            Some(Ok((bytes, _))) => {
                let number = self.received[tag as usize][from as usize].fetch_add(1, Relaxed);
                let is_next = bytes == message(from, self.world.rank(), tag, number);
                assert!(is_next, "{:?}: rank {} expected {number} of {from}", self.plan, self.world.rank());
            }
            Some(Err(error)) if error.kind() == FaultKind::TimedOut && time != LIMIT => {}
            Some(Err(error)) => self.failed(error),
        }
    }
}

#[derive(PartialEq)]
enum What {
    Call(usize),
    Receives(u32),
    Other,
}

/// What a thread of a rank does.
struct Part<'a> {
    rank: &'a Shared<'a>,
    tag: u32,
    random: Random,
    tasks: Tasks<'a, What>,
    /// The groups of the calls that are to be begun, the last one first.
    calls: Vec<usize>,
    requests: u32,
    /// By rank.
    sent: Vec<u64>,
}

impl<'a> Part<'a> {
    fn private(&mut self) -> Random {
        Random(self.random.below(u64::MAX))
    }

    /// Begins the next call, if it may be under way beside the others of its group.
    fn calls(&mut self) {
        let Some(group) = self.calls.last().copied() else { return };
        let left = self.calls.iter().filter(|other| **other == group).count() as u64;
        let found: Option<&'a Group> = self.rank.groups.iter().find(|other| other.number == group);
        let Some(found) = found.filter(|group| !group.is_over.load(Relaxed)) else {
            self.calls.pop();
            return;
        };
        let under_way = self.tasks.count(|what| *what == What::Call(group));
        if under_way < if found.is_told() { TOGETHER } else { 1 } {
            self.calls.pop();
            let (private, rank) = (self.private(), self.rank);
            self.tasks.begin(What::Call(group), rank.call(found, CALLS - left, private));
        } else if !self.rank.is_ordered {
            self.calls.rotate_right(1);
        }
    }

    fn sends(&mut self) {
        let (rank, me, to) =
            (self.rank, self.rank.world.rank(), self.random.below(u64::from(self.rank.plan.ranks)) as u32);
        if to == me || self.sent[to as usize] == MANY || rank.has_ended(to) {
            return;
        }
        let (bytes, tag) = (message(me, to, self.tag, self.sent[to as usize]), Tag(self.tag));
        self.sent[to as usize] += 1;
        let send = match self.random.below(4) {
            0 => rank.messages.send_synchronous(bytes, to, tag),
            1 => rank.messages.send_init(to, tag).unwrap().start(bytes),
            _ => rank.messages.send(bytes, to, tag),
        };
        if self.random.below(4) > 0 {
            self.tasks.begin(What::Other, async move {
                send.deadline(LIMIT).await.unwrap_or_else(|error| rank.failed(error))
            });
        }
    }

    fn receives(&mut self) {
        let (rank, tag, from) = (self.rank, self.tag, self.random.below(u64::from(self.rank.plan.ranks)) as u32);
        let has_come = rank.received[tag as usize][from as usize].load(Relaxed) == MANY;
        let is_awaited = self.tasks.count(|what| *what == What::Receives(from)) > 0;
        if from != rank.world.rank() && !has_come && !is_awaited && !rank.has_ended(from) {
            let private = self.private();
            self.tasks.begin(What::Receives(from), rank.receive((from, tag), private));
        }
    }

    fn locks(&mut self) {
        if self.requests > 0 && self.tasks.count(|_| true) < 20 {
            self.requests -= 1;
            let (rank, private) = (self.rank, self.private());
            match self.random.below(4) {
                0 => block_on(rank.world.fabric(), rank.lock(private, true)),
                _ => self.tasks.begin(What::Other, rank.lock(private, false)),
            }
        }
    }

    fn waits(&mut self) {
        let rank = self.rank;
        // All calls that others wait for are under way here.
        let has_calls = self.tasks.count(|what| matches!(what, What::Call(_))) > 0;
        let is_for_any = has_calls && (rank.is_ordered || self.calls.is_empty());
        let time = if is_for_any { 3 } else { self.random.below(3) };
        let time = [Duration::ZERO, Duration::from_micros(100), Duration::from_millis(2), LIMIT][time as usize];
        let ends = self.tasks.wait(&rank.messages, &mut self.random, time);
        assert!(ends || !is_for_any, "{:?}: nothing ends: {}", rank.plan, onesided::dump());
    }

    fn is_over(&self) -> bool {
        let rank = self.rank;
        let mut others = (0..rank.plan.ranks).filter(|other| *other != rank.world.rank() && !rank.has_ended(*other));
        let all = others.all(|other| {
            let received = rank.received[self.tag as usize][other as usize].load(Relaxed);
            [self.sent[other as usize], received] == [MANY; 2]
        });
        all && self.calls.is_empty() && self.requests == 0 && self.tasks.count(|_| true) == 0
    }

    /// Returns whether the rank leaves.
    fn run(mut self) -> bool {
        let (plan, world) = (self.rank.plan, self.rank.world);
        let (begun, mut steps) = (Instant::now(), 0);
        while !self.is_over() {
            steps += 1;
            if plan.ends_now(world, steps) {
                return true;
            }
            match self.random.below(8) {
                0 | 1 => self.calls(),
                2 => self.locks(),
                3 => self.sends(),
                4 => self.receives(),
                _ => self.waits(),
            }
            assert!(begun.elapsed() < 2 * LIMIT, "{plan:?}: {} calls to begin: {}", self.calls.len(), onesided::dump());
        }
        plan.ends_now(world, u64::MAX)
    }
}

pub(super) fn play(world: &World, plan: &Plan) {
    let (me, size) = (world.rank(), u64::from(plan.ranks));
    let (mut random, mut private) = (Random(plan.seed ^ 0xc011), plan.random(me));
    let designs: Vec<_> = LockDesign::ALL.iter().copied().filter(|design| design.fits_tables()).collect();
    let design = designs[random.below(designs.len() as u64) as usize];
    let [messages, last] = [(); 2].map(|()| Messages::new(world).wait().unwrap());
    let counts = Window::<u64>::allocate(world, 2 * LOCKS as usize).wait().unwrap();
    let builder = Window::builder().lock(design).name("stressed");
    let table = LockTable::with(builder, world, LOCKS as usize).wait().unwrap();
    // Some ranks, twice.
    let (halves, chosen) = (random.below(1 << size), random.below(1 << size));
    let is_beside = |rank: &u32| (halves >> rank ^ halves >> me) & 1 == 0;
    let half = world.split((halves >> me & 1) as u32, 0).wait().unwrap();
    let (all, beside) = ((0..plan.ranks).collect::<Vec<_>>(), (0..plan.ranks).filter(is_beside).collect::<Vec<_>>());
    let chosen: Vec<_> = (0..plan.ranks).filter(|rank| chosen >> rank & 1 == 1).collect();
    let made = chosen.contains(&me).then(|| messages.create_group(&chosen, Tag(0)).wait().unwrap());
    let window = |world: &World| Of::Window(Window::allocate(world, 1).wait().unwrap());
    let gives_up = (random.below(2) == 0).then(|| (random.below(7) as usize, random.below(CALLS), random.below(size)));
    let group = |number, members: &[u32], of| {
        let of_this = gives_up.filter(|(group, ..)| *group == number);
        let gives_up = of_this.map(|(_, call, who)| (call, members[who as usize % members.len()]));
        Group { number, members: members.into(), of, gives_up, is_over: AtomicBool::new(false) }
    };
    let mut groups = vec![
        group(0, &all, Of::World(world.clone())),
        group(1, &all, window(world)),
        group(2, &all, Of::Messages(Messages::new(world).wait().unwrap())),
        group(3, &beside, Of::Messages(Messages::new(&half).wait().unwrap())),
        group(4, &beside, window(&half)),
        group(5, &beside, Of::World(half)),
    ];
    groups.extend(made.map(|made| group(6, &chosen, Of::Messages(made))));
    let zeros = |many: u64| (0..many).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
    let (counted, received) = (zeros(LOCKS * size), [zeros(size), zeros(size)]);
    let has_ended = (0..size).map(|_| AtomicBool::new(false)).collect();
    let is_ordered = random.below(2) == 0;
    messages.set_progress(MODES[private.below(5) as usize]).unwrap();
    messages.set_rendezvous(WAYS[private.below(4) as usize]);
    begin(world, plan);
    let rank =
        Shared { plan, world, messages, table, counts, design, groups, is_ordered, counted, received, has_ended };
    let parts = if plan.all_stay() { 1 + random.below(2) as usize } else { 1 };
    let mut part = |tag: usize| {
        let mut calls: Vec<_> = (tag..7).step_by(parts).flat_map(|group| [group; CALLS as usize]).collect();
        let order = if is_ordered { &mut random } else { &mut private };
        (1..calls.len()).for_each(|at| calls.swap(at, order.below(at as u64 + 1) as usize));
        let (random, sent, rank) = (Random(private.below(u64::MAX)), vec![0; size as usize], &rank);
        move || Part { rank, tag: tag as u32, random, tasks: Tasks::default(), calls, requests: REQUESTS, sent }.run()
    };
    let leaves = match (part(0), parts) {
        (one, 1) => one(),
        (one, _) => std::thread::scope(|scope| {
            scope.spawn(part(1));
            one()
        }),
    };
    if leaves {
        return;
    }
    // Nobody holds a lock, and what was given up is free.
    let is_there = |rank: &u32| plan.stays(*rank);
    let locks: Vec<_> = (0..plan.ranks).filter(is_there).flat_map(|home| rank.table.locks_at(home)).collect();
    let held = rank.table.lock_many(&locks, Mode::Exclusive).recover().deadline(LIMIT).wait();
    drop(held.unwrap_or_else(|error| panic!("{plan:?} {design}: {error}: {}", onesided::dump())));
    // Nobody leaves before all have what was sent to them.
    let others = || (0..plan.ranks).filter(|rank| *rank != me).filter(is_there);
    let mut counted: Vec<_> = rank.counted.iter().map(|count| count.load(Relaxed)).collect();
    others().for_each(|to| drop(last.send(&counted, to, Tag(0))));
    for from in others() {
        let (theirs, _) = last.recv::<u64>(from, Tag(0)).deadline(LIMIT).wait().unwrap();
        counted.iter_mut().zip(theirs).for_each(|(count, more)| *count += more);
    }
    for (lock, words) in rank.table.locks_at(me).zip(rank.counts.local().read(0..2 * LOCKS as usize).chunks(2)) {
        let counted = counted[lock as usize];
        let is_right = if plan.all_stay() { words == [counted, 0] } else { words[0] >= counted };
        assert!(is_right, "{plan:?} {design}: {words:?} for {counted}");
    }
    if plan.all_stay() {
        rank.table.clone().close().deadline(LIMIT).wait().unwrap();
        rank.counts.clone().close().deadline(LIMIT).wait().unwrap();
    }
    jobs::ok();
}

/// How many ranks there are.
fn of(seed: u64) -> (u64, u32) {
    (seed, 3 + (seed / 2 % 2) as u32)
}

#[test]
fn threads_end_all_calls() {
    seeds(24, 400, &[]).into_iter().for_each(|seed| threads(of(seed), play));
}

#[test]
fn processes_end_all_calls() {
    seeds(20, 200, &ON_CARDS).into_iter().for_each(|seed| processes(of(seed), "stress: collectives", &[]));
}

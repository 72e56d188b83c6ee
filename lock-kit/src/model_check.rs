//! A model checker: every schedule of the shipped futures, with crashes, lost replies and stops.

use std::collections::HashSet;
use std::fmt;
use std::hash::BuildHasherDefault;

use onesided_lock_algos::LockAlgorithm;

use crate::digest::Digest;
use crate::program::Section;
use crate::record::Record;
use crate::tried::tried;
use crate::world::{Budget, Run, Setting, Time};

/// A model checker that replays a lock's futures over a memory with delayed effects and
/// completions, in every schedule, deterministically and in one thread.
///
/// Its state is the words, the operations in flight, and all results that each rank received.
/// Futures can neither be cloned nor compared, so each schedule is run from its start, and ends
/// when it reaches a known state: the results that a rank received determine what its futures do.
/// States are distinguished by 64 bits.
///
/// A schedule decides at each step:
///
/// - which operation takes effect: operations of one origin at one target in the order of posting
///   except for what [the boundary](onesided_remote_memory#order) lets overtake, of different pairs
///   in any order;
/// - which reply is delivered, and which waiter reads a changed word;
/// - whether a rank [crashes](Self::crashes): its operations in flight never take effect (those
///   that do took effect before);
/// - whether a reply, or an operation, is [lost](Self::losses), so that its origin sees `Unknown`;
/// - whether a rank is [stopped](Self::stops) until the others are done, or stuck for long.
///
/// Time passes only if nothing else can happen, and to a deadline only after a death, a stop or a
/// loss: before that, a waiter must be notified, and a pause ends by itself a few times
/// ([`Setting::woken`]: never). What a rank does between
/// two awaits is one step, including loads and stores of its own words:
/// [`Exploration`](crate::Exploration) separates them.
///
/// The server of a [served](LockAlgorithm::SERVED) lock is one more task of the home's rank, which
/// does not crash then, and loses no connection by an operation of its own.
///
/// Checked in every schedule: exclusion, no lost update, that every task ends, that exactly the
/// recovering owners learn of a death, that the lock is free at the end and a survivor can acquire
/// it. And, on request, a bound on [bypasses](Self::bypass).
#[derive(Clone, Debug)]
#[must_use = "a check does nothing until it is run"]
pub struct Checker<A> {
    lock: A,
    setting: Setting,
    budget: Budget,
    at_least: usize,
    at_most: usize,
    delay_bound: Option<usize>,
    bypass: Option<u32>,
    same_host_is_safe: bool,
    memory_goes: bool,
    errors: bool,
}

/// The extent of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Explored {
    /// Schedules that were run, to their end or to a known state.
    pub schedules: usize,
    /// Different states.
    pub states: usize,
    /// Schedules that reached their end.
    pub ends: usize,
    /// Events of the longest schedule.
    pub depth: usize,
    /// Ends with a recovery.
    pub recoveries: usize,
    /// Ends after an operation or a reply was lost.
    pub lost: usize,
    /// The most bypasses of a waiter.
    pub bypassed: u32,
    /// Whether all schedules were explored, not only up to the bound on states.
    pub complete: bool,
}

impl fmt::Display for Explored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { schedules, states, ends, depth, recoveries, lost, bypassed, complete } = self;
        let all = if *complete { "all" } else { "not all" };
        write!(
            f,
            "{states} states ({all}), {schedules} schedules, {ends} ends, up to {depth} events; {recoveries} ends with a recovery, \
             {lost} after a loss; at most {bypassed} bypassed"
        )
    }
}

impl<A: LockAlgorithm + Clone> Checker<A> {
    /// A check of this lock without failures.
    pub fn of(lock: &A) -> Self {
        Self {
            lock: lock.clone(),
            setting: Setting::USUAL,
            budget: Budget::default(),
            at_least: 1,
            at_most: 3_000_000,
            delay_bound: None,
            bypass: None,
            same_host_is_safe: false,
            memory_goes: false,
            errors: false,
        }
    }

    /// Up to this many ranks crash, each at any step, its program ended or not. One survives.
    pub fn crashes(self, crashes: u8) -> Self {
        Self { budget: Budget { crashes, ..self.budget }, ..self }
    }

    /// A rank that [crashes](Self::crashes) leaves in order instead, wherever its tasks are: with a
    /// lock that it holds, or with an acquire that is not finished.
    pub fn leaves(self) -> Self {
        Self { setting: Setting { leaves: true, ..self.setting }, ..self }
    }

    /// Up to this many operations or replies are lost, and the origin's connection to the target
    /// with each: the origin sees `Unknown`, and then `ConnectionLost`. An origin to which the lock
    /// reports that ends.
    pub fn losses(self, losses: u8) -> Self {
        Self { budget: Budget { lost: losses, ..self.budget }, ..self }
    }

    /// One operation or reply is [lost](Self::losses), of a lock that does not recover: the acquire or
    /// release that it belongs to ends, and not as if it had succeeded. What becomes of the others does
    /// not matter then.
    pub fn errors(self) -> Self {
        Self { errors: true, ..self.losses(1) }
    }

    /// No operation of a rank on the memory of its own host is lost.
    pub fn same_host_is_safe(self) -> Self {
        Self { same_host_is_safe: true, ..self }
    }

    /// The memory of a crashed rank is lost, except the home's and [host
    /// words](LockAlgorithm::HOST_WORDS), which the ranks of its host have mapped: operations there fail
    /// with `NoSuchRegion`. Other ranks learn of the crash at any later step, and time may pass
    /// meanwhile. A lock with [per-rank words](LockAlgorithm::PER_RANK_WORD) need not report the
    /// death of a reader: that was in its memory.
    pub fn memory_goes(self) -> Self {
        Self { memory_goes: true, ..self }
    }

    /// Up to this many times a rank is stopped, one at a time.
    pub fn stops(self, stops: u8) -> Self {
        Self { budget: Budget { stops, ..self.budget }, ..self }
    }

    setters! {
        /// The setting of the schedules: their mutation, the first words, hosts.
        setting: Setting,
        /// The fewest states, so that a check cannot shrink unnoticed: their number depends on the lock
        /// alone.
        at_least: usize,
        /// A check ends after this many states, and is not [complete](Explored::complete). 3 million by
        /// default.
        at_most: usize,
        /// Bounds the delays: only schedules that deviate this many times from the default one, in
        /// which operations take effect in the order of posting and nothing fails. A crash, a loss and
        /// a stop are a delay each. Most violations take few delays, and these schedules have their
        /// full length, while a bound on [states](Self::at_most) varies their ends.
        delay_bound: usize,
        /// While all ranks are alive, at most this many acquires that arrived later (whose first
        /// operation took effect later) enter before a waiter that they exclude.
        bypass: u32,
    }

    /// Whether the schedules have a [delay bound](Self::delay_bound).
    pub(crate) fn is_delay_bounded(&self) -> bool {
        self.delay_bound.is_some()
    }

    /// Checks these programs, one origin each, in every schedule.
    ///
    /// # Panics
    /// On a violation, or if there were too few states. The message has the programs, the events,
    /// and the schedule to [replay](Self::replay).
    #[track_caller]
    pub fn run(&self, programs: &[&[Section]]) -> Explored {
        match self.verdict(programs) {
            Ok(explored) => {
                assert!(explored.states >= self.at_least, "{}: only {explored}: {programs:?}", A::NAME);
                explored
            }
            Err(violation) => panic!("{violation}"),
        }
    }

    /// Checks these programs.
    ///
    /// # Errors
    /// The message with which [`run`](Self::run) panics.
    pub fn verdict(&self, programs: &[&[Section]]) -> Result<Explored, String> {
        let mut explored = Explored { complete: true, ..Explored::default() };
        let mut known = HashSet::<_, BuildHasherDefault<Digest>>::default();
        // The chosen event, and the number of events, at each step.
        let mut path: Vec<(u16, u16)> = Vec::new();
        loop {
            let mut run = self.begins(programs);
            explored.schedules += 1;
            let mut step = 0;
            let ended = loop {
                if path.len() == step {
                    if !known.insert((run.state(), self.left(&path))) {
                        break None;
                    }
                    tried(1);
                }
                let events = run.possible();
                if events.is_empty() {
                    break Some(run.end());
                }
                if path.len() == step {
                    path.push((0, events.len() as u16));
                }
                let happened = run.happen(events[usize::from(path[step].0)]);
                step += 1;
                if happened.is_err() {
                    break Some(happened);
                }
            };
            explored.states = known.len();
            explored.depth = explored.depth.max(step);
            match ended {
                None => {}
                Some(Ok(())) => explored.count(&run),
                Some(Err(violation)) => {
                    let schedule: Vec<u16> = path[..step].iter().map(|(chosen, _)| *chosen).collect();
                    return self.replay(programs, &schedule).and(Err(violation));
                }
            }
            while let Some((chosen, of)) = path.pop() {
                if chosen + 1 < of && (chosen > 0 || self.left(&path) != Some(0)) {
                    path.push((chosen, of));
                    break;
                }
            }
            let Some((chosen, _)) = path.last_mut() else { return Ok(explored) };
            *chosen += 1;
            if known.len() >= self.at_most || self.setting.is_over() {
                explored.complete = false;
                return Ok(explored);
            }
        }
    }

    fn begins(&self, programs: &[&[Section]]) -> Run<A> {
        let mut run = Run::new(&self.lock, self.setting, programs, Record::default(), |world| {
            (world.time, world.budget, world.memory_goes) = (Time::LastResort, self.budget, self.memory_goes);
            world.errors = self.errors;
            world.safe_within = self.same_host_is_safe.then_some(self.setting.per_host);
        });
        run.bypass = self.bypass;
        run
    }

    /// How many more delays these choices leave.
    fn left(&self, path: &[(u16, u16)]) -> Option<usize> {
        self.delay_bound.map(|times| times - path.iter().filter(|(chosen, _)| *chosen > 0).count())
    }

    /// Replays the schedule of a message.
    ///
    /// # Errors
    /// The violation, if it still occurs.
    pub fn replay(&self, programs: &[&[Section]], schedule: &[u16]) -> Result<(), String> {
        let mut run = self.begins(programs);
        let mut chosen = schedule.iter();
        let ended = run.play(|events, _| {
            chosen.next().and_then(|choice| events.get(usize::from(*choice))).or(events.first()).copied()
        });
        ended.map_err(|violation| {
            let (name, told) = (A::NAME, run.memory.world().trace.tells(&violation));
            let Budget { crashes, lost, stops } = self.budget;
            format!(
                "{name}: {told} in {programs:?}\n with up to {crashes} crashes, {lost} losses, {stops} stops\n again: \
                 replay(programs, &{schedule:?})"
            )
        })
    }
}

impl Explored {
    fn count<A: LockAlgorithm + Clone>(&mut self, run: &Run<A>) {
        self.ends += 1;
        self.recoveries += usize::from(run.record.entered().iter().any(|(_, recovered)| recovered.is_some()));
        self.lost += usize::from(!run.memory.world().lost.is_empty());
        self.bypassed = self.bypassed.max(run.record.bypassed());
    }
}

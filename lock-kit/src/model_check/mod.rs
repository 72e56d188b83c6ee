//! Every schedule of the shipped futures, with crashes, lost replies and stops: a checker of our own.

mod memory;
mod run;
mod world;

use std::collections::HashSet;
use std::fmt;

use onesided_lock_algos::LockAlgorithm;

pub use memory::{CheckedMemory, PauseEnd, Reply, Wait};
pub use world::Event;

use crate::program::Section;
use crate::trace::Action;
use run::{End, Run};
use world::Budget;

/// A checker that replays a lock's futures over a memory whose operations travel, in every schedule, deterministically and in
/// one thread.
///
/// Its state is the words, the operations under way, and all that each rank was told. Futures can neither be cloned nor
/// compared, so each schedule is run from its start, and one that comes to a state where another has been ends there: what a
/// rank was told decides what its futures do. States are told apart by 64 bits.
///
/// A schedule decides at each step:
///
/// - which operation takes effect: of one origin at one target in the order of posting but for what
///   [the boundary](onesided_remote_memory#order) lets overtake, of different pairs in any order;
/// - which answer is delivered, and who looks at a word that changed;
/// - whether a rank [crashes](Self::crashes): what is under way of it never takes effect (what does, did so before);
/// - whether an answer, or an operation, is [lost](Self::losses), and its origin told that nobody knows;
/// - whether a rank is [stopped](Self::stops) until the others are done, or stuck for long.
///
/// Time passes only where nothing else can happen, and only once somebody died or was stopped or something was lost: before that, who waits must be
/// waked by a change of the word that it waits for. What a rank does between two awaits is one step, loads and stores of its
/// own words included: [`Exploration`](crate::Exploration) has them apart.
///
/// Of a lock that is [served](LockAlgorithm::SERVED) the server is one more task of the home's rank, which does not crash then: a
/// loss of which that rank is told ends it, so such a lock has to [settle](Self::resolved) them.
///
/// Checked in every schedule: exclusion, no lost update, that everybody ends, that the heirs of the dead are told and nobody
/// else is, that the lock is free at the end and a survivor can have it. And, if asked for, that nobody is
/// [bypassed](Self::bypass) too often and that [tokens](Self::token) rise.
#[derive(Clone, Debug)]
pub struct Checker<A> {
    lock: A,
    budget: Budget,
    nodes: bool,
    per_host: u32,
    settled: bool,
    at_least: usize,
    states: usize,
    delay_bound: Option<usize>,
    bypass: Option<u32>,
    token: Option<fn(&[u64]) -> u64>,
    mutate: Option<fn(Action) -> Action>,
    same_host_is_safe: bool,
    memory_goes: bool,
}

/// How much was explored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Explored {
    /// Schedules that were run, to their end or to a state that was known.
    pub schedules: usize,
    /// Different states.
    pub states: usize,
    /// Schedules that came to their end.
    pub ends: usize,
    /// Events of the longest schedule.
    pub depth: usize,
    /// Ends with an heir.
    pub recoveries: usize,
    /// Ends after an operation or an answer was lost.
    pub lost: usize,
    /// The most that anybody was bypassed.
    pub bypassed: u32,
    /// Whether that was all, and not as many states as were allowed.
    pub complete: bool,
}

impl fmt::Display for Explored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { schedules, states, ends, depth, recoveries, lost, bypassed, complete } = self;
        let all = if *complete { "all" } else { "not all" };
        write!(
            f,
            "{states} states ({all}), {schedules} schedules, {ends} ends, up to {depth} events; {recoveries} ends with an recovering, \
             {lost} after a loss; at most {bypassed} bypassed"
        )
    }
}

impl<A: LockAlgorithm + Clone> Checker<A> {
    /// For this lock, where nothing goes wrong.
    pub fn of(lock: &A) -> Self {
        Self {
            lock: lock.clone(),
            budget: Budget::default(),
            nodes: true,
            per_host: 2,
            settled: false,
            at_least: 1,
            states: 3_000_000,
            delay_bound: None,
            bypass: None,
            token: None,
            mutate: None,
            same_host_is_safe: false,
            memory_goes: false,
        }
    }

    /// Up to so many ranks crash, each at any step. One is left.
    #[must_use]
    pub fn crashes(mut self, crashes: u8) -> Self {
        self.budget.crashes = crashes;
        self
    }

    /// Up to so many operations or answers are lost, and their origins told that nobody knows. An origin that the lock hands that
    /// on to ends, unless the lock is to [settle](Self::resolved) it.
    #[must_use]
    pub fn losses(mut self, losses: u8) -> Self {
        self.budget.lost = losses;
        self
    }

    /// Nothing is lost of what a rank does to the memory of its own host.
    #[must_use]
    pub fn same_host_is_safe(self) -> Self {
        Self { same_host_is_safe: true, ..self }
    }

    /// Who crashes takes its memory with it, the home's aside: operations there end with `NoSuchRegion`. The others hear of its end
    /// at any step after that, and time may pass meanwhile. Of a lock that [is spread](LockAlgorithm::PER_RANK_WORD) nobody need be told that
    /// a reader has died: that was in its memory.
    #[must_use]
    pub fn memory_goes(self) -> Self {
        Self { memory_goes: true, ..self }
    }

    /// The lock hands no loss on to anybody, and goes on: what a section does to the data is done again.
    #[must_use]
    pub fn resolved(self) -> Self {
        Self { settled: true, ..self }
    }

    /// Up to so many times a rank is stopped, one at a time.
    #[must_use]
    pub fn stops(mut self, stops: u8) -> Self {
        self.budget.stops = stops;
        self
    }

    /// Over a place without nodes.
    #[must_use]
    pub fn without_nodes(self) -> Self {
        Self { nodes: false, ..self }
    }

    /// So many ranks share a host: 2, if nothing else is said.
    #[must_use]
    pub fn per_host(self, ranks: u32) -> Self {
        Self { per_host: ranks, ..self }
    }

    /// How many states there must be, so that a check cannot shrink unseen: how many there are depends on the lock alone.
    #[must_use]
    pub fn at_least(self, states: usize) -> Self {
        Self { at_least: states, ..self }
    }

    /// After so many states a check ends, and is not [complete](Explored::complete). 3 million, if nothing else is said.
    #[must_use]
    pub fn at_most(self, states: usize) -> Self {
        Self { states, ..self }
    }

    /// Only schedules that depart so many times from the usual one, in which what was posted first comes first and nothing goes
    /// wrong: a crash, a loss and a stop are a departure each. What is found takes few of them, mostly, and these are of the whole
    /// length of a schedule, where so many [states](Self::at_most) are of its end.
    #[must_use]
    pub fn delay_bound(self, times: usize) -> Self {
        Self { delay_bound: Some(times), ..self }
    }

    /// Whether the schedules are bounded [so](Self::delay_bound).
    pub(crate) fn is_delay_bounded(&self) -> bool {
        self.delay_bound.is_some()
    }

    /// While everybody lives, at most so many acquires that came later (whose first operation took effect later) enter before
    /// somebody whom they keep out.
    #[must_use]
    pub fn bypass(self, at_most: u32) -> Self {
        Self { bypass: Some(at_most), ..self }
    }

    /// Whoever has the lock alone has a higher token than all before it. Gets the words of the lock.
    #[must_use]
    pub fn token(self, of: fn(&[u64]) -> u64) -> Self {
        Self { token: Some(of), ..self }
    }

    /// What operations become that are mutated on purpose: a lock that is wrong without a line of its own.
    #[must_use]
    pub fn mutate(self, mutate: fn(Action) -> Action) -> Self {
        Self { mutate: Some(mutate), ..self }
    }

    /// Checks these programs, one origin each, in every schedule.
    ///
    /// # Panics
    /// If something is wrong, or there were too few states. The message has the programs, what happened, and the schedule to
    /// [replay](Self::replay).
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
    /// What [`run`](Self::run) says when it panics.
    pub fn verdict(&self, programs: &[&[Section]]) -> Result<Explored, String> {
        let mut explored = Explored { complete: true, ..Explored::default() };
        let mut known = HashSet::new();
        // Which of how many events was chosen at each step.
        let mut path: Vec<(u16, u16)> = Vec::new();
        loop {
            let mut run = Run::new(self, programs);
            explored.schedules += 1;
            let mut step = 0;
            let ended = loop {
                if path.len() == step && !known.insert((run.state(), self.left(&path))) {
                    break None;
                }
                let events = run.possible();
                if events.is_empty() {
                    break Some(run.end());
                }
                if path.len() == step {
                    path.push((0, events.len() as u16));
                }
                let ended = run.happen(events[usize::from(path[step].0)]);
                step += 1;
                if ended.is_some() {
                    break ended;
                }
            };
            explored.states = known.len();
            explored.depth = explored.depth.max(step);
            match ended {
                None => {}
                Some(Ok(end)) => explored.count(end),
                Some(Err(violation)) => {
                    let schedule: Vec<u16> = path[..step].iter().map(|(chosen, _)| *chosen).collect();
                    return Err(self.report(&violation, programs, &run, &schedule));
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
            if known.len() >= self.states {
                explored.complete = false;
                return Ok(explored);
            }
        }
    }

    /// How many more delay_bound there may be after these choices.
    fn left(&self, path: &[(u16, u16)]) -> Option<usize> {
        self.delay_bound.map(|times| times - path.iter().filter(|(chosen, _)| *chosen > 0).count())
    }

    /// Runs one schedule: the one of a message.
    ///
    /// # Errors
    /// What is wrong, if it still is.
    pub fn replay(&self, programs: &[&[Section]], schedule: &[u16]) -> Result<(), String> {
        let mut run = Run::new(self, programs);
        let mut chosen = schedule.iter();
        loop {
            let events = run.possible();
            let ended = match (chosen.next(), events.first()) {
                (_, None) => Some(run.end()),
                (choice, Some(first)) => {
                    run.happen(choice.and_then(|choice| events.get(usize::from(*choice))).copied().unwrap_or(*first))
                }
            };
            match ended {
                None => {}
                Some(Ok(_)) => return Ok(()),
                Some(Err(violation)) => return Err(self.report(&violation, programs, &run, schedule)),
            }
        }
    }

    fn report(&self, violation: &str, programs: &[&[Section]], run: &Run<A>, schedule: &[u16]) -> String {
        let (name, budget) = (A::NAME, self.budget);
        let happened = run.story();
        format!(
            "{name}: {violation}\n in {programs:?}\n with {budget:?}\n what happened:\n{happened} again: replay(programs, &{schedule:?})"
        )
    }
}

impl Explored {
    fn count(&mut self, end: End) {
        self.ends += 1;
        self.recoveries += usize::from(end.recovering);
        self.lost += usize::from(end.lost);
        self.bypassed = self.bypassed.max(end.bypassed);
    }
}

//! `bench overlap`: whether a message moves while a rank computes (sur-2006, section 5), and what that
//! costs messages that are waited for (yu-2004, Table 1), by progress mode and rendezvous protocol.
//! Rank 0 receives, and the last rank sends.

use std::fmt;
use std::hint::black_box;
use std::time::{Duration, Instant};

use onesided_fabric::{Events, Fabric as _};
use onesided_two_sided::{Messages, ProgressMode, Protocol, Tag};
use rustix::thread::CpuSet;

use crate::bench::prelude::*;
use crate::bench::worker::timing::{CpuUse, spin_for, wake_ups};

const CONTROL: Tag = Tag(0);
const DATA: Tag = Tag(1);
/// How long a rank computes.
pub(crate) const COMPUTES: Duration = Duration::from_micros(1_800);
/// How long the other side waits, so that a receive is posted first, or a message announced first.
pub(crate) const LATER: Duration = Duration::from_micros(200);
/// What the receiver waits, from its receive on, while the sender computes: for the timeline.
pub(crate) const SENDER_COMPUTES_RECEIVER: &str = "receiver waits, sender computes";

/// How the messages of both ranks move.
#[derive(Clone, Copy)]
pub(crate) struct Way {
    mode: ProgressMode,
    rendezvous: Protocol,
}

/// Messages are read, but for RPUT, and RPUT with interrupt.
pub(crate) static WAYS: [Way; 7] = [
    Way { mode: ProgressMode::Polling, rendezvous: Protocol::Rget },
    Way { mode: ProgressMode::Interrupt, rendezvous: Protocol::Rget },
    Way { mode: ProgressMode::Thread, rendezvous: Protocol::Rget },
    Way { mode: ProgressMode::Hybrid, rendezvous: Protocol::Rget },
    Way { mode: ProgressMode::Polling, rendezvous: Protocol::Rput },
    Way { mode: ProgressMode::Hybrid, rendezvous: Protocol::Rput },
    Way { mode: ProgressMode::TwoThreads, rendezvous: Protocol::Rget },
];

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rendezvous {
            Protocol::Rget => write!(f, "{}", self.mode),
            _ => write!(f, "{}, {}", self.mode, self.rendezvous),
        }
    }
}

// What the two ranks do: flags, which benches/peers/overlap.c has too.
const RECEIVER_COMPUTES: u64 = 1;
const SENDER_COMPUTES: u64 = 2;
/// The message is announced before its receive is posted.
const LATE: u64 = 4;
/// Rank 0 answers a probe with the sender's time.
const OF_SENDER: u64 = 8;
/// The receive returns a vector.
const VECTOR: u64 = 16;
/// Beside the flags, a probe's argument says the mode.
const MODE: u32 = 8;

struct Case {
    flags: u64,
    /// The name of the sender's time, and of the receiver's, if it is reported.
    names: [Option<&'static str>; 2],
}

static CASES: [Case; 5] = [
    Case { flags: RECEIVER_COMPUTES | VECTOR, names: [None, Some("receiver of a vector computes")] },
    Case { flags: RECEIVER_COMPUTES, names: [Some("sender held, receiver computes"), Some("receiver computes")] },
    Case {
        flags: RECEIVER_COMPUTES | LATE,
        names: [Some("sender held, late receiver"), Some("late receiver computes")],
    },
    Case { flags: SENDER_COMPUTES, names: [Some("sender computes"), None] },
    Case {
        flags: RECEIVER_COMPUTES | SENDER_COMPUTES,
        names: [Some("both compute, sender"), Some("both compute, receiver")],
    },
];

impl Case {
    /// Whether the sender computes, and the receiver.
    const fn computes(flags: u64) -> [bool; 2] {
        [flags & SENDER_COMPUTES != 0, flags & RECEIVER_COMPUTES != 0]
    }
}

/// What `bench peers` compares in a mode: the name, whether it is a time of a rank that computes,
/// and the argument of the probe.
pub(crate) fn compared(mode: usize) -> impl Iterator<Item = (&'static str, bool, u64)> {
    CASES.iter().filter(|case| case.flags & VECTOR == 0).flat_map(move |case| {
        let of = [OF_SENDER, 0].into_iter().zip(case.names).zip(Case::computes(case.flags));
        of.filter_map(move |((of, name), computes)| Some((name?, computes, case.flags | of | (mode as u64) << MODE)))
    })
}

pub(crate) static SUITE: Suite =
    Suite { steps: |effort| (WAYS.len() * steps(effort)) as u64, ..Suite::new("overlap", Program::Plain(run)) };

const fn sizes(effort: Effort) -> &'static [usize] {
    match effort {
        Effort::Full => &[8, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20],
        Effort::Quick | Effort::Trial => &[1 << 20],
    }
}

/// Of a way.
const fn steps(effort: Effort) -> usize {
    sizes(effort).len() * CASES.len() + ROUND_TRIPS.len()
}

/// The messages of a round trip: those of yu-2004, Table 1.
const ROUND_TRIPS: [usize; 2] = [4, 4 << 10];

const fn round_trips(effort: Effort) -> u32 {
    match effort {
        Effort::Full => 2_000,
        Effort::Quick => 500,
        Effort::Trial => 10,
    }
}

/// A loop that takes [`COMPUTES`] on a core of its own.
struct Computation {
    turns: u64,
}

impl Computation {
    fn new() -> Self {
        let mut turns = 1_000;
        let took = |turns| (0..5).map(|_| Self { turns }.run()).min().unwrap_or_default();
        while took(turns) < COMPUTES / 4 {
            turns *= 2;
        }
        let turns = turns as f64 * COMPUTES.as_secs_f64() / took(turns).as_secs_f64();
        Self { turns: turns as u64 }
    }

    fn run(&self) -> Duration {
        let begin = Instant::now();
        let mut value = 1_u64;
        for _ in 0..self.turns {
            value = black_box(value.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ value >> 29);
        }
        begin.elapsed()
    }
}

fn run(rank: &BenchRank, effort: Effort) -> Result<(), Failure> {
    let messages = Messages::new(&rank.world).wait()?;
    if rank.world.rank() != 0 && !rank.is_target() {
        return Ok(()); // it waits for the end of the suite
    }
    let computation = Computation::new();
    let mut bytes = vec![1; sizes(effort).iter().copied().max().unwrap_or(0)];
    for way in WAYS {
        if way.mode == ProgressMode::TwoThreads && rank.world.fabric().events(Events::Completions).is_none() {
            (0..steps(effort)).try_for_each(|_| rank.step())?; // it is Thread
            continue;
        }
        unpinned(|| messages.set_progress(way.mode))?;
        messages.set_rendezvous(way.rendezvous);
        for size in sizes(effort) {
            let mut alone = Vec::new();
            for case in &CASES {
                alone.extend(measure((rank, effort), &messages, (&computation, case, way), &mut bytes[..*size])?);
                rank.step()?;
            }
            rank.report(Point::limit(of_alone(way), Quantity::Latency).of_size(*size), &alone)?;
        }
        for size in ROUND_TRIPS {
            round_trip((rank, effort), &messages, way, &mut vec![1; size])?;
            rank.step()?;
        }
    }
    Ok(())
}

/// Half a round trip, what both ranks use of their processors for a message, and how often they are
/// woken.
fn round_trip(
    (rank, effort): (&BenchRank, Effort),
    messages: &Messages,
    way: Way,
    bytes: &mut [u8],
) -> Result<(), Failure> {
    let (peer, is_first) = (if rank.is_target() { 0 } else { rank.peer() }, !rank.is_target());
    let count = round_trips(effort);
    let mut samples = Samples::default();
    let points =
        [("latency", Quantity::Latency), ("processor time", Quantity::Latency), ("wake-ups", Quantity::WakeUps)]
            .map(|(what, quantity)| Point::of(format!("{what} of a message of {} B: {way}", bytes.len()), quantity));
    for _ in 0..effort.runs() {
        rank.world.barrier().wait()?;
        let (woken, begin, cpu_use) = (wake_ups()?, Instant::now(), CpuUse::begin());
        for _ in 0..count {
            if is_first {
                messages.send(bytes, peer, DATA).wait()?;
            }
            messages.recv_into(bytes, peer, DATA).wait()?;
            if !is_first {
                messages.send(bytes, peer, DATA).wait()?;
            }
        }
        let (took, used) = (begin.elapsed().as_nanos() as f64, cpu_use.time().as_nanos() as f64);
        let mine = [used, wake_ups()?.saturating_sub(woken) as f64];
        if is_first {
            let mut theirs = [0.0; 2];
            messages.recv_into(&mut theirs, peer, CONTROL).wait()?;
            let of_both = [took, mine[0] + theirs[0], mine[1] + theirs[1]];
            points.iter().zip(of_both).for_each(|(point, all)| samples.add(point, all / f64::from(2 * count)));
        } else {
            messages.send(&mine, peer, CONTROL).wait()?;
        }
    }
    rank.report_all(samples)
}

/// The two ranks of a message, for `bench peers`.
pub(crate) struct Pair<'r> {
    rank: &'r BenchRank,
    messages: Messages,
    computation: Computation,
    bytes: Vec<u8>,
}

impl<'r> Pair<'r> {
    /// Collective.
    pub(crate) fn new(rank: &'r BenchRank) -> Result<Self, Failure> {
        let messages = Messages::new(&rank.world).wait()?;
        Ok(Self { rank, messages, computation: Computation::new(), bytes: Vec::new() })
    }

    /// The nanoseconds of so many exchanges, as `argument` says. The time of a rank that computes
    /// is in proportion to its computation, so that this takes [`COMPUTES`] everywhere.
    pub(crate) fn run(&mut self, size: u64, times: u64, argument: u64) -> Result<f64, Failure> {
        let Self { rank, messages, computation, bytes } = self;
        let (way, flags) = (WAYS[(argument >> MODE) as usize % WAYS.len()], argument & ((1 << MODE) - 1));
        unpinned(|| messages.set_progress(way.mode))?;
        bytes.resize(size as usize, 1);
        let is_receiver = usize::from(flags & OF_SENDER == 0);
        let mut all = 0.0;
        for _ in 0..times {
            let [time, alone, _] = exchange(rank, messages, (computation, flags), bytes)?[is_receiver];
            let computes = Case::computes(flags)[is_receiver];
            all += if computes { time / alone * COMPUTES.as_nanos() as f64 } else { time };
        }
        // A thread of this rank would take its core from the others.
        messages.set_progress(ProgressMode::Polling)?;
        Ok(all)
    }
}

/// What a computation is compared with: the same, interleaved with it.
fn of_alone(way: Way) -> String {
    format!("alone: {way}")
}

/// Threads that are started inside may run on every core: a rank stays on its own.
fn unpinned<T, E: Into<Failure>>(start: impl FnOnce() -> Result<T, E>) -> Result<T, Failure> {
    let mine = rustix::thread::sched_getaffinity(None)?;
    let mut all = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|core| all.set(core));
    rustix::thread::sched_setaffinity(None, &all)?;
    let started = start();
    rustix::thread::sched_setaffinity(None, &mine)?;
    started.map_err(Into::into)
}

fn measure(
    (rank, effort): (&BenchRank, Effort),
    messages: &Messages,
    (computation, case, way): (&Computation, &Case, Way),
    bytes: &mut [u8],
) -> Result<Vec<f64>, Failure> {
    let size = bytes.len();
    let point = |name: &str, quantity| Point::of(format!("{name}: {way}"), quantity).of_size(size);
    let mut all: [Vec<f64>; 4] = Default::default();
    for _ in 0..effort.runs() {
        let mut times: [Vec<f64>; 4] = Default::default();
        for _ in 0..effort.batches() {
            let [[sent, ..], [received, alone, woken]] = exchange(rank, messages, (computation, case.flags), bytes)?;
            [sent, received, alone, woken].into_iter().zip(&mut times).for_each(|(time, times)| times.push(time));
        }
        times.into_iter().zip(&mut all).for_each(|(times, all)| all.push(median(times)));
    }
    let [sent, received, alone, woken] = all;
    if rank.is_target() {
        return Ok(alone);
    }
    for ((is_computing, name), times) in Case::computes(case.flags).into_iter().zip(case.names).zip([&sent, &received])
    {
        let Some(name) = name else { continue };
        let limit = if is_computing { of_alone(way) } else { String::new() };
        rank.report(point(name, Quantity::Latency).beside(&limit), times)?;
    }
    if case.flags == SENDER_COMPUTES {
        rank.report(point(SENDER_COMPUTES_RECEIVER, Quantity::Latency), &received)?;
    }
    if let (Some(name), RECEIVER_COMPUTES) = (case.names[1], case.flags & !LATE) {
        rank.report(point(&format!("wake-ups, {name}"), Quantity::WakeUps), &woken)?;
    }
    Ok(alone)
}

/// A message, of its sender and of its receiver: the nanoseconds of the send or the receive, and of
/// the computation alone at the same rank, and the wake-ups of the receive. Only rank 0 knows the
/// sender's.
fn exchange(
    rank: &BenchRank,
    messages: &Messages,
    (computation, flags): (&Computation, u64),
    bytes: &mut [u8],
) -> Result<[[f64; 3]; 2], Failure> {
    let alone = computation.run().as_nanos() as f64;
    if rank.is_target() {
        let sender = [send(rank, messages, (computation, flags), bytes)?, alone, 0.0];
        messages.send(&sender, 0, CONTROL).wait()?;
        return Ok([sender, [0.0, alone, 0.0]]);
    }
    let [received, woken] = receive(rank, messages, (computation, flags), bytes)?;
    let mut sender = [0.0; 3];
    messages.recv_into(&mut sender, rank.peer(), CONTROL).wait()?;
    Ok([sender, [received, alone, woken]])
}

/// The nanoseconds of a send.
fn send(
    rank: &BenchRank,
    messages: &Messages,
    (computation, flags): (&Computation, u64),
    bytes: &[u8],
) -> Result<f64, Failure> {
    rank.world.barrier().wait()?;
    if flags & LATE == 0 {
        spin_for(LATER);
    }
    let begin = Instant::now();
    let send = messages.send(bytes, 0, DATA);
    if flags & SENDER_COMPUTES != 0 {
        computation.run();
    }
    send.wait()?;
    Ok(begin.elapsed().as_nanos() as f64)
}

/// The nanoseconds of a receive, and how often a thread of this rank was woken since its message may
/// have come.
fn receive(
    rank: &BenchRank,
    messages: &Messages,
    (computation, flags): (&Computation, u64),
    bytes: &mut [u8],
) -> Result<[f64; 2], Failure> {
    rank.world.barrier().wait()?;
    let woken = wake_ups()?;
    if flags & LATE != 0 {
        spin_for(LATER);
    }
    let begin = Instant::now();
    let computes = || {
        if flags & RECEIVER_COMPUTES != 0 {
            computation.run();
        }
    };
    if flags & VECTOR != 0 {
        let receive = messages.recv::<u8>(rank.peer(), DATA);
        computes();
        black_box(receive.wait()?);
    } else {
        let receive = messages.recv_into(bytes, rank.peer(), DATA);
        computes();
        receive.wait()?;
    }
    let received = begin.elapsed().as_nanos() as f64;
    Ok([received, wake_ups()?.saturating_sub(woken) as f64])
}

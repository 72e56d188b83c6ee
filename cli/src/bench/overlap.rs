//! `bench overlap`: whether a message moves while a rank computes (sur-2006, section 5), and what that
//! costs messages that are waited for (yu-2004, Table 1), by progress mode. Rank 0 receives, and the
//! last rank sends.

use std::hint::black_box;
use std::time::{Duration, Instant};

use onesided_two_sided::{Messages, ProgressMode, Tag};
use rustix::thread::CpuSet;

use crate::bench::effort::Effort;
use crate::bench::results::quantity::Quantity;
use crate::bench::results::summary::Summary;
use crate::bench::runner::suite::{Program, Suite};
use crate::bench::worker::rank::BenchRank;
use crate::bench::worker::timing::{CpuUse, spin_for};
use crate::failure::Failure;

const CONTROL: Tag = Tag(0);
const DATA: Tag = Tag(1);
/// How long a rank computes.
const COMPUTES: Duration = Duration::from_micros(1_800);
/// How long the other side waits, so that a receive is posted first, or a message announced first.
const LATER: Duration = Duration::from_micros(200);

const MODES: [ProgressMode; 4] =
    [ProgressMode::Polling, ProgressMode::Interrupt, ProgressMode::Thread, ProgressMode::Hybrid];

/// What the two ranks do.
struct Case {
    receiver_computes: bool,
    sender_computes: bool,
    /// The message is announced before its receive is posted.
    is_late: bool,
    /// The receive returns a vector.
    is_vec: bool,
    /// The name of the sender's time, and of the receiver's, if it is reported.
    names: [Option<&'static str>; 2],
}

static CASES: [Case; 5] = [
    Case {
        receiver_computes: true,
        sender_computes: false,
        is_late: false,
        is_vec: true,
        names: [None, Some("receiver of a vector computes")],
    },
    Case {
        receiver_computes: true,
        sender_computes: false,
        is_late: false,
        is_vec: false,
        names: [Some("sender held, receiver computes"), Some("receiver computes")],
    },
    Case {
        receiver_computes: true,
        sender_computes: false,
        is_late: true,
        is_vec: false,
        names: [Some("sender held, late receiver"), Some("late receiver computes")],
    },
    Case {
        receiver_computes: false,
        sender_computes: true,
        is_late: false,
        is_vec: false,
        names: [Some("sender computes"), None],
    },
    Case {
        receiver_computes: true,
        sender_computes: true,
        is_late: false,
        is_vec: false,
        names: [Some("both compute, sender"), Some("both compute, receiver")],
    },
];

pub(crate) static SUITE: Suite = Suite {
    steps: |effort| (MODES.len() * (sizes(effort).len() * CASES.len() + ROUND_TRIPS.len())) as u64,
    ..Suite::new("overlap", Program::Plain(run))
};

const fn sizes(effort: Effort) -> &'static [usize] {
    match effort {
        Effort::Full => &[8, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20],
        Effort::Quick | Effort::Trial => &[1 << 20],
    }
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
    for mode in MODES {
        unpinned(|| messages.set_progress(mode))?;
        for size in sizes(effort) {
            let mut alone = Vec::new();
            for case in &CASES {
                alone.extend(measure((rank, effort), &messages, (&computation, case, mode), &mut bytes[..*size])?);
                rank.step()?;
            }
            if rank.world.rank() == 0 {
                rank.measured((&of_alone(mode), Some(*size)), Quantity::Latency, &alone, None)?;
            }
        }
        for size in ROUND_TRIPS {
            round_trip((rank, effort), &messages, mode, &mut vec![1; size])?;
            rank.step()?;
        }
    }
    Ok(())
}

/// Half a round trip, and what both ranks use of their processors for a message.
fn round_trip(
    (rank, effort): (&BenchRank, Effort),
    messages: &Messages,
    mode: ProgressMode,
    bytes: &mut [u8],
) -> Result<(), Failure> {
    let (peer, is_first) = (if rank.is_target() { 0 } else { rank.peer() }, !rank.is_target());
    let count = round_trips(effort);
    let (mut times, mut used) = (Vec::new(), Vec::new());
    for _ in 0..effort.runs() {
        rank.world.barrier().wait()?;
        let (begin, cpu_use) = (Instant::now(), CpuUse::begin());
        for _ in 0..count {
            if is_first {
                messages.send(bytes, peer, DATA).wait()?;
            }
            messages.recv_into(bytes, peer, DATA).wait()?;
            if !is_first {
                messages.send(bytes, peer, DATA).wait()?;
            }
        }
        let (took, mine) = (begin.elapsed(), cpu_use.time().as_nanos() as f64);
        if is_first {
            let mut theirs = [0.0];
            messages.recv_into(&mut theirs, peer, CONTROL).wait()?;
            times.push(took.as_nanos() as f64 / f64::from(2 * count));
            used.push((mine + theirs[0]) / f64::from(2 * count));
        } else {
            messages.send(&[mine], peer, CONTROL).wait()?;
        }
    }
    if is_first {
        for (what, values) in [("latency", &times), ("processor time", &used)] {
            let name = format!("{what} of a message of {} B: {mode}", bytes.len());
            rank.measured((&name, None), Quantity::Latency, values, Some(""))?;
        }
    }
    Ok(())
}

/// What a computation is compared with: the same, interleaved with it.
fn of_alone(mode: ProgressMode) -> String {
    format!("alone: {mode}")
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
    (computation, case, mode): (&Computation, &Case, ProgressMode),
    bytes: &mut [u8],
) -> Result<Vec<f64>, Failure> {
    let (size, is_sender) = (bytes.len(), rank.is_target());
    let mut all: [Vec<f64>; 3] = Default::default();
    for _ in 0..effort.runs() {
        let mut times: [Vec<f64>; 3] = Default::default();
        for _ in 0..effort.batches() {
            let alone = computation.run();
            let [mine, other] = if is_sender {
                let sent = [send(rank, messages, (computation, case), bytes)?];
                messages.send(&sent, 0, CONTROL).wait()?;
                [sent[0], 0.0]
            } else {
                let received = receive(rank, messages, (computation, case), bytes)?;
                let mut sent = [0.0];
                messages.recv_into(&mut sent, rank.peer(), CONTROL).wait()?;
                [received, sent[0]]
            };
            [other, mine, alone.as_nanos() as f64]
                .into_iter()
                .zip(&mut times)
                .for_each(|(time, times)| times.push(time));
        }
        times.iter().zip(&mut all).for_each(|(times, all)| all.push(Summary::of(times).median));
    }
    let [sent, received, alone] = all;
    if is_sender {
        return Ok(alone);
    }
    for (is_computing, name, times) in
        [(case.sender_computes, case.names[0], &sent), (case.receiver_computes, case.names[1], &received)]
    {
        let Some(name) = name else { continue };
        let limit = if is_computing { of_alone(mode) } else { String::new() };
        rank.measured((&format!("{name}: {mode}"), Some(size)), Quantity::Latency, times, Some(&limit))?;
    }
    Ok(alone)
}

/// The nanoseconds of a send.
fn send(
    rank: &BenchRank,
    messages: &Messages,
    (computation, case): (&Computation, &Case),
    bytes: &[u8],
) -> Result<f64, Failure> {
    rank.world.barrier().wait()?;
    if !case.is_late {
        spin_for(LATER);
    }
    let begin = Instant::now();
    let send = messages.send(bytes, 0, DATA);
    if case.sender_computes {
        computation.run();
    }
    send.wait()?;
    Ok(begin.elapsed().as_nanos() as f64)
}

/// The nanoseconds of a receive.
fn receive(
    rank: &BenchRank,
    messages: &Messages,
    (computation, case): (&Computation, &Case),
    bytes: &mut [u8],
) -> Result<f64, Failure> {
    rank.world.barrier().wait()?;
    if case.is_late {
        spin_for(LATER);
    }
    let begin = Instant::now();
    let computes = || {
        if case.receiver_computes {
            computation.run();
        }
    };
    if case.is_vec {
        let receive = messages.recv::<u8>(rank.peer(), DATA);
        computes();
        black_box(receive.wait()?);
    } else {
        let receive = messages.recv_into(bytes, rank.peer(), DATA);
        computes();
        receive.wait()?;
    }
    Ok(begin.elapsed().as_nanos() as f64)
}

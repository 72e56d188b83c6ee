//! Many ranks contend for one lock: shows the simulator's speed, the memory of a rank, and what the
//! lock does.
//!
//! ```sh
//! cargo run --release -p onesided-sim --example contend -- [RANKS] [VIRTUAL MILLISECONDS]
//! ```

#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::cell::Cell;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use onesided_fabric::remote_memory::{At, Fault, FaultKind, Rank, RegionId, RemoteMemory, copied};
use onesided_lock_algos::{InMemory, Kept, LockAlgorithm, LockContext, LockUse, Mode, Owner, Owners, TestAndSet};
use onesided_sim::{Network, Simulation};

/// A lock in the first words of rank 0's memory. Its owners have no nodes.
struct AtRankZero<'m, M>(&'m M, &'m AtomicU8);

copied!([M] AtRankZero<'_, M>);

impl<M: RemoteMemory> InMemory for AtRankZero<'_, M> {
    type Memory = M;
}

impl<'m, M: RemoteMemory> LockContext<'m> for AtRankZero<'m, M> {
    fn home(&self, index: usize) -> Result<M::Word<'m>, Fault> {
        self.0.word(At { rank: Rank(0), region: RegionId(0), offset: index as u64 * 8 })
    }

    fn node_of(&self, _: Rank, _: u16, _: usize) -> Result<M::Word<'m>, Fault> {
        Err(Fault::new(FaultKind::Unsupported))
    }

    fn home_rank(&self) -> Rank {
        Rank(0)
    }

    fn owners(&self) -> Owners {
        Owners::all_counted(0, self.0.size().into())
    }

    /// The backoff cap: the lock keeps nothing else.
    fn kept(&self, _: Kept) -> Option<u8> {
        Some(self.1.load(Ordering::Relaxed))
    }

    fn keep(&self, _: Kept, cap: u8) {
        self.1.store(cap, Ordering::Relaxed);
    }

    fn lock(&self) -> u64 {
        0
    }

    fn owner(&self) -> Owner {
        Owner { rank: self.0.rank(), slot: 0, generation: 0 }
    }
}

/// Acquires and releases repeatedly.
async fn contend<M: RemoteMemory, A: LockAlgorithm>(memory: M, lock: &A, acquired: &[Cell<u64>]) -> Result<(), Fault> {
    let acquired = &acquired[memory.rank().index()];
    let reach = AtomicU8::new(0);
    let (place, mode) = (AtRankZero(&memory, &reach), Mode::Exclusive);
    let words = lock.words(place, onesided_lock_algos::Intent::LOCK)?;
    loop {
        let started = lock.start(LockUse::new(&memory, place, words, mode))?;
        lock.finish(LockUse::new(&memory, place, words, mode), started, || onesided_lock_algos::Intent::LOCK).await?;
        acquired.set(acquired.get() + 1);
        lock.start_release(LockUse::new(&memory, place, words, mode))?.await?;
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let ranks = arguments.next().map_or(Ok(100_000), |argument| argument.parse::<u32>());
    let millis = arguments.next().map_or(Ok(400), |argument| argument.parse());
    match (ranks, millis, arguments.next()) {
        (Ok(ranks), Ok(millis), None) => run(&TestAndSet::default(), ranks, millis),
        _ => {
            eprintln!("usage: contend [RANKS] [VIRTUAL MILLISECONDS]");
            std::process::exit(2);
        }
    }
}

fn run<A: LockAlgorithm>(lock: &A, ranks: u32, millis: u64) {
    let ranks = ranks.clamp(1, Rank::LIMIT);
    let before = memory("VmRSS:");
    let acquired = vec![Cell::new(0); ranks as usize];
    let simulation = Simulation::new(Network::default()).ranks(ranks).until(Duration::from_millis(millis));
    let (start, cpu) = (Instant::now(), cpu_time());
    let report = simulation.run_direct(|fabric| contend(fabric, lock, &acquired));
    let (took, cpu) = (start.elapsed(), cpu_time() - cpu);
    let peak = memory("VmHWM:").saturating_sub(before);

    let rate = |time: Duration| report.events as f64 / time.as_secs_f64() / 1e6;
    let [all, fewest] =
        [acquired.iter().map(Cell::get).sum::<u64>(), acquired.iter().map(Cell::get).min().unwrap_or(0)];
    println!("{ranks} ranks, {:?} of virtual time in {took:.2?}: {}", report.virtual_time, report.end);
    println!("{} events, {all} acquisitions by {}, at least {fewest} a rank", report.events, A::NAME);
    println!("{:.2} million events a second, {:.2} million a second of processor time", rate(took), rate(cpu));
    println!("at most {} bytes of memory a rank", peak * 1024 / u64::from(ranks));
    println!("trace {:016x}, {:?}", report.trace, report.counts);
}

/// The CPU time of this process, which other processes on a busy machine do not lengthen.
fn cpu_time() -> Duration {
    let schedstat = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    Duration::from_nanos(schedstat.split_whitespace().next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0))
}

/// Resident memory in KiB: now (`VmRSS:`), or at its peak (`VmHWM:`).
fn memory(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
    line.split_whitespace().next().and_then(|kib| kib.parse().ok()).unwrap_or(0)
}

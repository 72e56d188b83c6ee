//! Many ranks contend for one test-and-set lock: how fast the simulator is, and how much memory a rank takes.
//!
//! ```sh
//! cargo run --release -p onesided-sim --example contend -- [RANKS] [VIRTUAL MILLISECONDS]
//! ```

#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::cell::Cell;
use std::time::{Duration, Instant};

use fabric::remote_memory::{At, Fault, Rank, RegionId, RemoteMemory};
use sim::{Network, Simulation};

/// Test-and-set with exponential backoff, over and over.
async fn contend<M: RemoteMemory>(memory: M, acquired: &Cell<u64>) -> Result<(), Fault> {
    let lock = memory.word(At { rank: Rank(0), region: RegionId(0), offset: 0 })?;
    let me = u64::from(memory.rank().0) + 1;
    loop {
        let mut backoff = 1_000;
        while memory.compare_swap(lock, 0, me).await? != 0 {
            // Apart by rank, or all that start together would go on to collide together.
            memory.pause(lock, backoff + me * 7919 % backoff).await;
            backoff = (backoff * 2).min(1_000_000);
        }
        acquired.set(acquired.get() + 1);
        memory.compare_swap(lock, me, 0).await?;
    }
}

fn main() {
    let arguments = std::env::args().skip(1).map(|argument| argument.parse::<u64>()).collect::<Result<Vec<_>, _>>();
    let Ok(arguments) = arguments else {
        eprintln!("usage: contend [RANKS] [VIRTUAL MILLISECONDS]");
        std::process::exit(2);
    };
    let ranks = arguments.first().copied().unwrap_or(100_000).clamp(1, u64::from(Rank::LIMIT));
    let until = Duration::from_millis(arguments.get(1).copied().unwrap_or(100));

    let before = resident();
    let acquired = Cell::new(0);
    let start = Instant::now();
    let simulation = Simulation::new(Network::default()).ranks(ranks as u32).until(until);
    let report = simulation.run_direct(|fabric| {
        let acquired = &acquired;
        async move { contend(fabric, acquired).await }
    });
    let took = start.elapsed();
    let peak = peak_resident();

    println!("{ranks} ranks, {:?} virtual, {took:.2?} real", report.virtual_time);
    println!("{} events, {:.2} M/s; {} acquisitions", report.events, report.events as f64 / took.as_secs_f64() / 1e6, acquired.get());
    println!("{} bytes of memory a rank at the most", (peak - before) * 1024 / ranks);
    println!("trace {:016x}, {}; {:?}", report.trace, report.end, report.counts);
}

/// Resident memory in KiB.
fn resident() -> u64 {
    status("VmRSS:")
}

/// The most it ever was.
fn peak_resident() -> u64 {
    status("VmHWM:")
}

fn status(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
    line.split_whitespace().next().and_then(|kib| kib.parse().ok()).unwrap_or(0)
}

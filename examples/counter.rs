//! The smallest useful program: every rank adds to two counters that lie on rank 0.
//!
//! ```sh
//! cargo run --example counter                                  # one rank
//! cargo run --example counter -- --threads 4                   # four threads as ranks
//! cargo build --example counter
//! onesided run -n 4 -- target/debug/examples/counter           # four processes
//! ```
#![allow(clippy::print_stdout, clippy::print_stderr)] // a program's purpose

use onesided::{Window, World};

/// The number of additions of each rank to each counter.
const ROUNDS: u64 = 1000;
/// The displacement of the two counters in rank 0's window memory.
const ATOMIC: usize = 0;
const LOCKED: usize = 1;

fn main() -> onesided::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => count(World::init()?), // the job that started this process, or a world of one
        ["--threads", ranks] if ranks.parse::<u32>().is_ok() => {
            onesided::threads(ranks.parse().unwrap_or(1), count).map(drop)
        }
        _ => {
            eprintln!("usage: counter [--threads N]");
            std::process::exit(2)
        }
    }
}

fn count(world: World) -> onesided::Result<()> {
    // Collective: two counters on every rank, of which those of rank 0 are used. Rank 0 does
    // nothing for the others to reach them.
    let counters = Window::<u64>::allocate(&world, 2).wait()?;

    // Atomic operations need no exclusion among themselves: a shared lock admits all ranks at the
    // same time.
    let epoch = counters.lock_shared(0).wait()?;
    for _ in 0..ROUNDS {
        epoch.fetch_add(ATOMIC, 1).wait()?;
    }
    epoch.unlock().wait()?;

    // Get, add, put are three steps, so other ranks must be excluded: an exclusive lock.
    for _ in 0..ROUNDS {
        let epoch = counters.lock_exclusive(0).wait()?;
        let mut value = [0];
        epoch.get(LOCKED, &mut value).wait()?;
        epoch.put(LOCKED, &[value[0] + 1])?;
        epoch.unlock().wait()?; // the put is complete before the next owner has the lock
    }

    world.barrier().wait()?; // every rank is done
    if world.rank() == 0 {
        let expected = ROUNDS * u64::from(world.size());
        assert_eq!(counters.local().read(0..2), [expected, expected]);
        println!("{} ranks counted to {expected}, by atomic operations and under a lock", world.size());
    }
    counters.close().wait()?; // collective
    Ok(())
}

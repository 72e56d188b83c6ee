//! Many tasks of an async runtime share one rank: each of them locks, gets and puts without
//! blocking a thread.
//!
//! ```sh
//! cargo run --example async_tokio                              # one rank
//! cargo run --example async_tokio -- --threads 4               # four threads as ranks, each with a runtime
//! cargo build --example async_tokio
//! onesided run -n 4 -- target/debug/examples/async_tokio       # four processes
//! ```
//!
//! Any runtime works: the futures need nothing but a waker. A window is cheap to clone, so each
//! task has its own.
#![allow(clippy::print_stdout, clippy::print_stderr)] // a program's purpose

use std::time::Duration;

use onesided::{Window, World};
use tokio::time::timeout;

/// The number of tasks of each rank, and of additions of each task.
const TASKS: u32 = 20;
const ROUNDS: u32 = 10;

fn main() -> onesided::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => run(World::init()?),
        ["--threads", ranks] if ranks.parse::<u32>().is_ok() => {
            onesided::threads(ranks.parse().unwrap_or(1), run).map(drop)
        }
        _ => {
            eprintln!("usage: async_tokio [--threads N]");
            std::process::exit(2)
        }
    }
}

fn run(world: World) -> onesided::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build();
    let runtime = runtime.expect("threads for a runtime");
    runtime.block_on(count(world))
}

async fn count(world: World) -> onesided::Result<()> {
    let size = world.size();
    let counters = Window::<u64>::builder().allocate(&world, 1).await?;
    let tasks: Vec<_> = (0..TASKS).map(|number| tokio::spawn(add(counters.clone(), number % size))).collect();
    for task in tasks {
        task.await.expect("a task that does not panic")?;
    }

    // An acquire that takes too long is cancelled: the library finishes and releases it.
    let epoch = counters.lock_exclusive(world.rank()).await?;
    let second = timeout(Duration::from_millis(10), counters.lock_exclusive(world.rank()).into_future()).await.is_err();
    assert!(second, "it is ours already");
    epoch.unlock().await?;

    world.barrier().await?;
    let mut sum = 0;
    for target in 0..size {
        let mut counter = [0];
        counters.locked(target).get(0, &mut counter).await?;
        sum += counter[0];
    }
    assert_eq!(sum, u64::from(size * TASKS * ROUNDS));
    if world.rank() == 0 {
        println!("{size} ranks with {TASKS} tasks each counted to {sum}");
    }
    counters.close().await?;
    Ok(())
}

/// One task: it holds the lock across an await, and the thread runs other tasks meanwhile.
async fn add(counters: Window<u64>, target: u32) -> onesided::Result<()> {
    for _ in 0..ROUNDS {
        let epoch = counters.lock_exclusive(target).await?;
        let mut counter = [0];
        epoch.get(0, &mut counter).await?;
        tokio::task::yield_now().await;
        epoch.put(0, &[counter[0] + 1])?;
        epoch.unlock().await?;
    }
    Ok(())
}

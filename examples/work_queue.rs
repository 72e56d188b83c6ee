//! A work queue at rank 0. Every rank takes tasks from it and appends tasks to it, without help of
//! rank 0, which works like the others.
//!
//! ```sh
//! cargo run --example work_queue                               # one rank
//! onesided run -n 4 -- target/debug/examples/work_queue        # four processes
//! ```
#![allow(clippy::print_stdout)] // a program's purpose

use std::thread::sleep;
use std::time::Duration;

use onesided::{Result, Window, World};

/// The rank of the queue, and the number of tasks for which it has room.
const HOME: u32 = 0;
const CAPACITY: u64 = 1024;
/// The displacement of the tasks, behind four numbers: how many tasks were taken, appended and
/// finished, and the sum of the results.
const TASKS: usize = 4;

enum Next {
    Task(u64),
    /// The queue is empty, but a task that some rank works on may append others.
    Later,
    /// All tasks are finished. Their results add up to this.
    End(u64),
}

/// Takes the oldest task.
fn take(queue: &Window<u64>) -> Result<Next> {
    let queue = queue.lock_exclusive(HOME).wait()?;
    let mut numbers = [0; TASKS];
    queue.get(0, &mut numbers).wait()?;
    let [taken, appended, finished, sum] = numbers;
    if taken == appended {
        return Ok(if finished == appended { Next::End(sum) } else { Next::Later }); // the drop unlocks
    }
    let mut task = [0];
    queue.get(TASKS + (taken % CAPACITY) as usize, &mut task).wait()?;
    queue.put(0, &[taken + 1])?;
    queue.unlock().wait()?; // the put is complete before another rank has the lock
    Ok(Next::Task(task[0]))
}

/// Ends a task, which has a result or appends other tasks.
fn finish(queue: &Window<u64>, result: u64, others: &[u64]) -> Result<()> {
    let queue = queue.lock_exclusive(HOME).wait()?;
    let mut numbers = [0; TASKS];
    queue.get(0, &mut numbers).wait()?;
    let [taken, mut appended, finished, sum] = numbers;
    for task in others {
        assert!(appended - taken < CAPACITY, "the queue is full");
        queue.put(TASKS + (appended % CAPACITY) as usize, &[*task])?;
        appended += 1;
    }
    queue.put(1, &[appended, finished + 1, sum + result])?;
    queue.unlock().wait()?;
    Ok(())
}

fn main() -> Result<()> {
    let world = World::init()?;
    let queue = Window::<u64>::allocate(&world, TASKS + CAPACITY as usize).wait()?;
    if world.rank() == HOME {
        let first = queue.lock_exclusive(HOME).wait()?;
        first.put(0, &[0, 1, 0, 0, 12])?; // one task is there, the number 12
        first.unlock().wait()?;
    }
    world.barrier().wait()?;

    // A task computes a Fibonacci number, as the sum of the two before it.
    let sum = loop {
        match take(&queue)? {
            Next::Task(number @ (0 | 1)) => finish(&queue, number, &[])?,
            Next::Task(number) => finish(&queue, 0, &[number - 1, number - 2])?,
            Next::Later => sleep(Duration::from_micros(100)),
            Next::End(sum) => break sum,
        }
    };
    assert_eq!(sum, 144);
    if world.rank() == 0 {
        println!("{} ranks computed the Fibonacci number 12: {sum}", world.size());
    }
    queue.close().wait()?;
    Ok(())
}

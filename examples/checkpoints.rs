//! Data that outlives its rank: after each step a rank puts a copy of its state into the memory of the next
//! rank. One rank dies; the next one has its state.
//!
//! ```sh
//! cargo build --example checkpoints
//! onesided run -n 4 --on-failure continue -- target/debug/examples/checkpoints
//! ```
#![allow(clippy::print_stdout)] // a program's purpose

use std::process::exit;
use std::thread::sleep;
use std::time::Duration;

use onesided::{Result, Window, World};

const LEN: usize = 4;
const STEPS: u64 = 10;
/// The rank that dies, and in which step.
const DIES: (u32, u64) = (1, 8);
/// The element by which that rank learns how many others have begun.
const HERE: usize = 1;

fn main() -> Result<()> {
    let world = World::init()?;
    let (me, all) = (world.rank(), world.size());
    // The ranks that go on after the death wait for one another in a world of their own.
    let rest = world.split(u32::from(me == DIES.0), 0).wait()?;
    let (before, next) = ((me + all - 1) % all, (me + 1) % all);
    // Of the rank before: two copies in turn, so that one is whole, and the step of the last whole one.
    let copies = Window::<u64>::allocate(&world, 2 * LEN).wait()?;
    let steps = Window::<u64>::allocate(&world, 2).wait()?;
    let (access, flags) = (copies.no_check(), steps.no_check());
    if me != DIES.0 && all > DIES.0 {
        flags.at(DIES.0)?.fetch_add(HERE, 1).wait()?;
    }
    let mut state = [u64::from(me); LEN];
    for step in 1..=STEPS {
        state.iter_mut().for_each(|value| *value += 100);
        if (me, step) == DIES {
            // A window whose creation one rank has not left yet fails there.
            while steps.local().get(HERE)? + 1 < u64::from(all) {
                sleep(Duration::from_millis(1));
            }
            exit(3);
        }
        access.at(next)?.put_signal(place(step), &state, flags.at(next)?, 0, step)?; // the signal comes behind
        flags.at(next)?.flush().wait()?;
    }
    rest.barrier().wait()?; // nobody writes to another one any more
    match world.barrier().wait() {
        // It fails once a rank has died.
        Err(error) if error.is_peer_died() => {
            if error.fault().rank().is_some_and(|rank| rank.0 == before) {
                let step = steps.local().get(0)?;
                let state = copies.local().read(place(step)..place(step) + LEN);
                println!("rank {before} died after step {step}, with {state:?}");
            }
            Ok(())
        }
        ended => Ok(ended?),
    }
}

const fn place(step: u64) -> usize {
    LEN * (step % 2) as usize
}

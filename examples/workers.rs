//! A master hands out ranges of numbers, and workers count the primes in them: messages from any
//! rank, and a message that says that there is no more.
//!
//! ```text
//! cargo run --release --example workers                     alone: the master is the only worker
//! cargo run --release --example workers -- --threads 4      as threads
//! onesided run -n 4 -- target/release/examples/workers      as processes
//! ```
#![allow(clippy::print_stdout)] // a program's purpose

use onesided::{Messages, Source, Tag, World};

const RANGE: Tag = Tag(1);
const COUNT: Tag = Tag(2);
const LAST: u64 = 200_000;
const STEP: u64 = 5_000;

fn main() -> onesided::Result<()> {
    let mut args = std::env::args().skip(1);
    match (args.next().as_deref(), args.next().and_then(|ranks| ranks.parse().ok())) {
        (Some("--threads"), Some(ranks)) => onesided::threads(ranks, run).map(drop),
        _ => run(World::init()?),
    }
}

fn run(world: World) -> onesided::Result<()> {
    let messages = Messages::new(&world).wait()?;
    if world.rank() > 0 {
        // An empty message ends the work.
        while let [from, to] = messages.recv::<u64>(0, RANGE).wait()?.0[..] {
            messages.send(&[primes(from, to)], 0, COUNT).wait()?;
        }
        return Ok(());
    }
    let mut ranges = (0..LAST).step_by(STEP as usize).map(|from| [from, from + STEP]);
    let (mut working, mut count) = (0, 0);
    for (worker, range) in (1..world.size()).zip(&mut ranges) {
        messages.send(&range, worker, RANGE).wait()?;
        working += 1;
    }
    while working > 0 {
        let (primes, status) = messages.recv::<u64>(Source::Any, COUNT).wait()?;
        count += primes[0];
        match ranges.next() {
            Some(range) => messages.send(&range, status.source, RANGE).wait()?,
            None => working -= 1,
        }
    }
    count += ranges.map(|[from, to]| primes(from, to)).sum::<u64>(); // without workers
    for worker in 1..world.size() {
        messages.send::<u64>(&[], worker, RANGE).wait()?;
    }
    println!("{} ranks found {count} primes below {LAST}", world.size());
    Ok(())
}

fn primes(from: u64, to: u64) -> u64 {
    let is_prime = |n: &u64| *n > 1 && (2..).take_while(|d| d * d <= *n).all(|d| !n.is_multiple_of(d));
    (from..to).filter(is_prime).count() as u64
}

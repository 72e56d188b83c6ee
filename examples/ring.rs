//! The sum of one vector of each rank, by messages around a ring: every rank adds a part that comes
//! from the left to its own and sends it to the right, until each part is whole somewhere; then the
//! whole parts go around once more.
//!
//! ```text
//! cargo run --release --example ring                     alone
//! cargo run --release --example ring -- --threads 4      as threads
//! onesided run -n 4 -- target/release/examples/ring      as processes
//! ```
#![allow(clippy::print_stdout)] // a program's purpose

use std::ops::Range;

use onesided::{Messages, Tag, World};

const PART: Tag = Tag(1);
const ELEMENTS: usize = 1_000_000;

fn main() -> onesided::Result<()> {
    let mut args = std::env::args().skip(1);
    match (args.next().as_deref(), args.next().and_then(|ranks| ranks.parse().ok())) {
        (Some("--threads"), Some(ranks)) => onesided::threads(ranks, run).map(drop),
        _ => run(World::init()?),
    }
}

fn run(world: World) -> onesided::Result<()> {
    let messages = Messages::new(&world).wait()?;
    let (me, size) = (world.rank() as usize, world.size() as usize);
    let mut sum: Vec<u64> = (0..ELEMENTS).map(|at| (at * (me + 1)) as u64).collect();
    add_all(&messages, &mut sum)?;

    let of_ranks = size * (size + 1) / 2;
    assert!(sum.iter().enumerate().all(|(at, sum)| *sum == (at * of_ranks) as u64));
    if me == 0 {
        println!("{size} ranks added {ELEMENTS} elements each: the last sum is {}", sum[ELEMENTS - 1]);
    }
    Ok(())
}

/// Replaces each rank's elements by the sums of all ranks.
fn add_all(messages: &Messages, elements: &mut [u64]) -> onesided::Result<()> {
    let (me, size) = (messages.world().rank() as usize, messages.world().size() as usize);
    let (left, right) = ((me + size - 1) % size, (me + 1) % size);
    let part = |number: usize| part_of(number % size, size);
    let mut incoming = vec![0; ELEMENTS.div_ceil(size)];
    for step in 0..2 * (size - 1) {
        let (out, into) = (part(me + 2 * size - step), part(me + 2 * size - step - 1));
        let incoming = &mut incoming[..into.len()];
        // Posted before the send: both neighbours send at the same time.
        let receive = messages.recv_into(incoming, left as u32, PART);
        messages.send(&elements[out], right as u32, PART).wait()?;
        receive.wait()?;
        if step < size - 1 {
            elements[into].iter_mut().zip(incoming).for_each(|(sum, part)| *sum += *part);
        } else {
            elements[into].copy_from_slice(incoming);
        }
    }
    Ok(())
}

/// The elements of a part.
fn part_of(number: usize, size: usize) -> Range<usize> {
    let len = ELEMENTS.div_ceil(size);
    (number * len).min(ELEMENTS)..((number + 1) * len).min(ELEMENTS)
}

//! The fabric's side of the comparison with `loops.c`: the same operations, as a user posts and awaits them.
//!
//!     loops ROUNDS      prints a line each: operation, bytes, median nanoseconds
#![allow(clippy::print_stdout)] // the result

use std::time::Duration;

use fabric::bootstrap::local;
use fabric::remote_memory::{Mailbox, Notify, Patience, Port, Rank, RemoteMemory};
use fabric::verbs::Verbs;
use fabric::{Error, Fabric, Segment, SegmentKey, World, block_on};

const WARM_UP: usize = 200;
const LARGEST: u64 = 256 << 10;

/// The clock as `loops.c` reads it: that of the standard library costs more where every instruction is emulated.
fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// In nanoseconds.
fn median(rounds: usize, mut run: impl FnMut() -> Result<(), Error>) -> Result<u64, Error> {
    let mut times = Vec::with_capacity(WARM_UP + rounds);
    for _ in 0..WARM_UP + rounds {
        let began = now();
        run()?;
        times.push(now() - began);
    }
    let times = &mut times[WARM_UP..];
    times.sort_unstable();
    Ok(times[rounds / 2])
}

fn measure(world: &World<Verbs>, rounds: usize) -> Result<(), Error> {
    let fabric = world.fabric();
    let peer = Rank(1 - world.rank());
    let segment = fabric.world_segment(peer)?;
    let word = fabric.word_in(&segment, 4088).map_err(Error::operation("resolve a word"))?;
    let own = fabric.allocate(LARGEST)?;
    let keys = block_on(fabric, world.all_gather(&own.key().to_bytes())).map_err(Error::operation("tell the keys"))?;
    let theirs = keys.get(peer.index()).and_then(|key| SegmentKey::from_bytes(key)).expect("the peer told its key");
    let theirs = fabric.open(&theirs)?;
    world.barrier().wait()?;
    if world.rank() == 0 {
        std::thread::sleep(Duration::from_millis(300)); // until the other rank sleeps
        let print = |name: &str, nanos: u64| println!("{name} 8 {nanos}");
        let done = |result: Result<u64, _>| result.map(drop).map_err(Error::operation("an operation on a word"));
        print("write", median(rounds, || done(block_on(fabric, fabric.write(word, 1, Notify::No))))?);
        print("read", median(rounds, || done(block_on(fabric, fabric.read(word))))?);
        print("fetch-add", median(rounds, || done(block_on(fabric, fabric.fetch_add(word, 1))))?);
        print("compare-swap", median(rounds, || done(block_on(fabric, fabric.compare_swap(word, 0, 0))))?);
        // The sizes of loops.c, from and into registered memory.
        for size in std::iter::successors(Some(512), |size| Some(size * 8)).take_while(|size| *size <= LARGEST) {
            let moved = |result: Result<(), _>| result.map_err(Error::operation("move bytes"));
            let write = || moved(block_on(fabric, fabric.rdma_write((&own, 0), (&theirs, 0), size)));
            println!("write {size} {}", median(rounds, write)?);
            let read = || moved(block_on(fabric, fabric.rdma_read((&theirs, 0), (&own, 0), size)));
            println!("read {size} {}", median(rounds, read)?);
        }
    }
    world.barrier().wait()?;
    let send =
        || block_on(fabric, fabric.send(peer, Port::USER, &[7; 8], Notify::Yes)).map_err(Error::operation("send"));
    let receive =
        || block_on(fabric, fabric.recv(Port::USER, Patience::on(peer))).map(drop).map_err(Error::operation("receive"));
    if world.rank() == 0 {
        let round_trip = median(rounds, || send().and_then(|()| receive()))?;
        println!("send 8 {}", round_trip / 2);
    } else {
        for _ in 0..WARM_UP + rounds {
            receive()?;
            send()?;
        }
    }
    world.barrier().wait()
}

fn main() -> Result<(), Error> {
    let rounds = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(2000);
    let ranks: Vec<_> = local::jobs(2)?
        .into_iter()
        .map(|job| std::thread::spawn(move || measure(&World::new(Verbs::new(job)?), rounds)))
        .collect();
    ranks.into_iter().try_for_each(|rank| rank.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}

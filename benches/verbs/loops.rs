//! The library's side of the comparison with `loops.c`: the same operations as a user calls them,
//! first those of the fabric, then those of windows on the fabric that a program chooses at run
//! time.
//!
//!     loops ROUNDS [PART]      prints a line each: what, a tab, median nanoseconds; with PART, of those that contain it
//!
//! All ranks are in one thread, which blocks on behalf of the rank that waits, so no scheduler is
//! measured.
#![allow(clippy::print_stdout)] // the result

use std::error::Error;
use std::thread;

use onesided_fabric::bootstrap::{Job, local};
use onesided_fabric::remote_memory::{Notify, Patience, RemoteMemory};
use onesided_fabric::verbs::Verbs;
use onesided_fabric::{Any, Fabric, Segment, Transport, World, block_on};
use onesided_windows::{LockDesign, Op, Window};

const WARM_UP: usize = 100;
const RANKS: u32 = 16;
const LARGEST: u64 = 256 << 10;
const MANY: usize = 64;

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// The clock as `loops.c` reads it: that of the standard library costs more where every instruction
/// is emulated.
fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

struct Measures {
    rounds: usize,
    part: String,
}

impl Measures {
    #[inline(never)] // callgrind counts what is below it
    fn measure<E>(&self, name: &str, size: u64, mut once: impl FnMut() -> Result<(), E>) -> Outcome
    where
        Box<dyn Error + Send + Sync>: From<E>,
    {
        let name = format!("{name} {size}");
        if !name.contains(&self.part) {
            return Ok(());
        }
        let mut times = Vec::with_capacity(WARM_UP + self.rounds);
        for _ in 0..WARM_UP + self.rounds {
            let began = now();
            once()?;
            times.push(now() - began);
        }
        let times = &mut times[WARM_UP..];
        times.sort_unstable();
        println!("{name}\t{}", times[self.rounds / 2]);
        Ok(())
    }
}

/// The operation that each rank performs at the same time as the others, by rank.
fn together<I: Send, T: Send>(
    ranks: impl IntoIterator<Item = I>,
    run: impl Fn(I) -> Outcome<T> + Sync,
) -> Outcome<Vec<T>> {
    let run = &run;
    thread::scope(|scope| {
        let threads: Vec<_> = ranks.into_iter().map(|rank| scope.spawn(move || run(rank))).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    })
}

fn worlds<F: Fabric>(
    size: u32,
    join: impl Fn(Job) -> Result<F, onesided_fabric::Error> + Sync,
) -> Outcome<Vec<World<F>>> {
    together(local::jobs(size)?, |job| Ok(World::new(join(job)?)))
}

/// Words and registered memory, and messages.
fn fabrics(measures: &Measures) -> Outcome {
    let worlds = worlds(2, Verbs::new)?;
    let [fabric, other] = [worlds[0].fabric(), worlds[1].fabric()];
    let (own, theirs) = (fabric.allocate(LARGEST)?, other.allocate(LARGEST)?);
    let theirs = fabric.open(&theirs.key())?;
    let word = fabric.word_in(&theirs, 0)?;
    // The sizes of loops.c, from and into registered memory but for words.
    for size in [8, 512, 4096, 32 << 10, 256 << 10] {
        if size == 8 {
            measures.measure("write", size, || block_on(fabric, fabric.write(word, 1, Notify::No)).map(drop))?;
            measures.measure("read", size, || block_on(fabric, fabric.read(word)).map(drop))?;
            continue;
        }
        measures.measure("write", size, || block_on(fabric, fabric.rdma_write((&own, 0), (&theirs, 0), size)))?;
        measures.measure("read", size, || block_on(fabric, fabric.rdma_read((&theirs, 0), (&own, 0), size)))?;
    }
    measures.measure("compare-swap", 8, || block_on(fabric, fabric.compare_swap(word, 0, 0)).map(drop))?;
    measures.measure("fetch-add", 8, || block_on(fabric, fabric.fetch_add(word, 1)).map(drop))?;
    let mut packets = [fabric.transport()?, other.transport()?];
    measures.measure("send and answer", 8, || {
        for (from, to) in [(0, 1), (1, 0)] {
            let ends = [fabric, other];
            block_on(ends[from], packets[from].send(ends[to].rank(), &[7; 8]))?;
            block_on(ends[to], packets[to].recv(Patience::on(ends[from].rank())))?;
        }
        Ok::<_, onesided_fabric::remote_memory::Fault>(())
    })?;
    Ok(())
}

/// Window operations between two of the ranks.
fn windows_of_two(measures: &Measures, windows: &[Window<u64, Any>]) -> Outcome {
    let all = windows[0].no_check();
    let at = all.at(1)?;
    let memory = [7; 64 << 10 >> 3];
    let mut into = memory;
    for size in [8, 512, 4096, 16 << 10, 64 << 10] {
        let count = size as usize / 8;
        measures.measure("put, flush", size, || {
            at.put(0, &memory[..count])?;
            at.flush().wait()
        })?;
        measures.measure("get", size, || at.get(0, &mut into[..count]).wait())?;
    }
    measures.measure("64 puts, flush", 8, || {
        (0..MANY).try_for_each(|place| at.put(place, &memory[..1]))?;
        at.flush().wait()
    })?;
    let mut number = 0;
    measures.measure("put, signal, flush", 512, || {
        number += 1;
        let signal = number;
        at.put(0, &memory[..64])?;
        at.signal(1000, signal)?;
        windows[1].local().wait_until_from(0, 1000, move |word| word == signal).wait()?;
        at.flush().wait()
    })?;
    measures.measure("fetch_and_op sum", 8, || at.fetch_and_op(0, 1, Op::Sum).wait().map(drop))?;
    measures.measure("compare_and_swap", 8, || at.compare_and_swap(0, 0, 0).wait().map(drop))?;
    for count in [1, MANY] {
        measures.measure("accumulate sums, flush", count as u64, || {
            at.accumulate(0, &memory[..count], Op::Sum).wait()?;
            at.flush().wait()
        })?;
    }
    let mut operand = 1 << 40;
    measures.measure("accumulate max, flush", 8, || {
        operand += 1;
        at.accumulate(100, &[operand], Op::Max).wait()?;
        at.flush().wait()
    })?;
    measures.measure("lock, put, unlock", 8, || {
        let epoch = windows[0].lock_exclusive(1).wait()?;
        epoch.put(0, &memory[..1])?;
        epoch.unlock().wait()
    })
}

/// An uncontended acquire and release of every lock.
fn locks(measures: &Measures, worlds: &[World<Any>]) -> Outcome {
    for design in LockDesign::ALL {
        let windows =
            together(worlds, |world| Ok(Window::<u64>::builder().lock(*design).allocate(world, 64).wait()?))?;
        measures
            .measure(&format!("lock, unlock: {design}"), 8, || windows[0].lock_exclusive(1).wait()?.unlock().wait())?;
        together(windows, |window| Ok(window.close().wait()?))?;
    }
    Ok(())
}

fn main() -> Outcome {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let rounds = arguments.next().and_then(|rounds| rounds.parse().ok()).unwrap_or(2000);
    let measures = Measures { rounds, part: arguments.next().unwrap_or_default() };
    fabrics(&measures)?;
    let worlds = worlds(RANKS, |job| onesided_fabric::endpoint("verbs", job))?;
    let windows = together(&worlds, |world| Ok(Window::<u64, Any>::allocate(world, 64 << 10).wait()?))?;
    windows_of_two(&measures, &windows)?;
    locks(&measures, &worlds)?;
    // Every other rank.
    let all = windows[0].lock_all().wait()?;
    let parts = (1..RANKS).map(|rank| all.at(rank).wait()).collect::<Result<Vec<_>, _>>()?;
    measures.measure("put to 15, flush all", 8, || {
        parts.iter().try_for_each(|part| part.put(0, &[7]))?;
        all.flush_all().wait()
    })?;
    all.unlock_all().wait()?;
    together(windows, |window| Ok(window.close().wait()?)).map(drop)
}

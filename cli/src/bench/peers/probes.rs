//! The timed loops of ours, with the shapes of those in benches/peers/probes.c, and the bare ones.
#![allow(unsafe_code)] // the bare memory, for memcpy

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use onesided_windows::{Error, LockDesign, Op, Window};
use rustix::time::{ClockId, clock_gettime};

use crate::bench::bare;
use crate::bench::busy;
use crate::bench::peers::echoes;
use crate::bench::peers::plan::{FREE, MANY, TOUCH};
use crate::bench::peers::subject::Order;
use crate::bench::rank::{ROOM, RankOfBench};
use crate::failure::Failure;

type Access<'w> = onesided_windows::Access<'w, u64, onesided_fabric::Any>;

const WORD: usize = 8;
const PAGE: usize = 4096;
// Places in the target's part, in elements.
const COUNTER: usize = 16;
const SWAPPED: usize = 32;
const SUM: usize = 48;
// Bare words.
const LOCK: u64 = 0;
const COUNT: u64 = 1;

pub(crate) struct Probes<'r> {
    rank: &'r RankOfBench,
    window: Window<u64>,
    /// [`ROOM`] bytes from `begin` on, where a page begins, as the peers' buffer does.
    buffer: Vec<u64>,
    begin: usize,
}

/// A loop that locks for itself.
type Loop = fn(&Window<u64>, u32, u64) -> Result<(), Error>;
/// A loop under a held lock, whose operations have as many elements as the buffer, or as each of [`MANY`] pieces of it.
type Held = fn(&Access<'_>, &mut [u64], u64) -> Result<(), Error>;

impl<'r> Probes<'r> {
    pub(crate) fn new(rank: &'r RankOfBench) -> Result<Self, Failure> {
        let window = Window::<u64>::allocate(&rank.world, ROOM / WORD).wait()?;
        let buffer = vec![1_u64; (ROOM + PAGE) / WORD];
        let begin = buffer.as_ptr().addr().wrapping_neg() % PAGE / WORD;
        Ok(Self { rank, window, buffer, begin })
    }

    pub(crate) fn close(self) -> Result<(), Failure> {
        Ok(self.window.close().wait()?)
    }

    /// On rank 0 how many nanoseconds all times took, or what the probe says; nothing if there is no such probe.
    pub(crate) fn run(&mut self, order: Order<'_>) -> Result<Option<f64>, Failure> {
        if let Some((probe, lock)) = order.probe.split_once(':') {
            // For one order: a thread that serves a lock would take its core from the others.
            let window =
                Window::<u64>::builder().lock(lock.parse::<LockDesign>()?).allocate(&self.rank.world, 8).wait()?;
            let told = self.locking(&window, Order { probe, ..order })?;
            window.close().wait()?;
            return Ok(told);
        }
        if let Some(told) = self.locking(&self.window, order)? {
            return Ok(Some(told));
        }
        let held: Held = match order.probe {
            "allocate" => return self.allocate(order).map(Some),
            "bare_contend" => {
                return self.contend(order, |over| Ok(bare::contend(self.rank.word(LOCK), over, 1))).map(Some);
            }
            "signal_echo" => return echoes::signals(&self.window, self.rank.peer(), order.times).map(Some),
            "message_echo" | "message_many" => {
                let many = if order.probe.ends_with("_many") { MANY } else { 1 };
                return echoes::messages(&self.rank.world, self.rank.peer(), many, order.times).map(Some);
            }
            "put" => put,
            "get" => get,
            "put_many" => put_many,
            "get_many" => get_many,
            "accumulate" => accumulate,
            "fetch_and_op" => fetch_and_op,
            "compare_and_swap" => compare_and_swap,
            _ => return self.bare(order),
        };
        let many = if order.probe.ends_with("_many") { MANY } else { 1 };
        self.held(held, order, (order.size * many) as usize / WORD).map(Some)
    }

    /// What has to do with the window's lock.
    fn locking(&self, window: &Window<u64>, order: Order<'_>) -> Result<Option<f64>, Failure> {
        let told = match order.probe {
            "lock_unlock" => self.loops(window, lock_unlock, order),
            "lock_put_unlock" => self.loops(window, lock_put_unlock, order),
            "first_lock" => self.first_lock(window, order),
            "contend" => self.contend(order, |over| Ok(lock_until(window, over)?)),
            _ => return Ok(None),
        };
        told.map(Some)
    }

    fn loops(&self, window: &Window<u64>, run: Loop, order: Order<'_>) -> Result<f64, Failure> {
        timed(self.rank, || Ok(time(order.times, |n| run(window, self.rank.peer(), n))?))
    }

    fn held(&mut self, run: Held, order: Order<'_>, elements: usize) -> Result<f64, Failure> {
        timed(self.rank, || {
            let epoch = self.window.lock_exclusive(self.rank.peer()).wait()?;
            let taken = time(order.times, |n| run(&epoch, &mut self.buffer[self.begin..][..elements], n))?;
            epoch.unlock().wait()?;
            Ok(taken)
        })
    }

    /// The limits.
    fn bare(&mut self, order: Order<'_>) -> Result<Option<f64>, Failure> {
        let rank = self.rank;
        let (lock, count) = (rank.word(LOCK), rank.word(COUNT));
        let pieces = if matches!(order.probe, "bare_puts" | "bare_gets") { MANY as usize } else { 1 };
        let row = &mut self.buffer[self.begin..][..order.size as usize / WORD * pieces];
        let mut run: Box<dyn FnMut(u64)> = match order.probe {
            "bare_lock" => Box::new(|n| bare::cas_store(lock, n)),
            "bare_fetch" => Box::new(|n| bare::fetch_add(count, n)),
            "bare_swap" => Box::new(|n| bare::compare_swap(count, n)),
            // SAFETY: the bare memory has ROOM bytes, which a row of order.size or MANY small pieces does not exceed; it
            // begins with a page; nobody else uses it.
            "bare_put" | "bare_puts" => Box::new(|n| unsafe { bare::copy_in(rank.bytes(), row, (pieces, true), n) }),
            // SAFETY: as above.
            "bare_get" | "bare_gets" => Box::new(|n| unsafe { bare::copy_out(row, rank.bytes(), (pieces, true), n) }),
            _ => return Ok(None),
        };
        let run = |n| {
            run(n);
            Ok(())
        };
        timed(rank, || Ok(time(order.times, run)?)).map(Some)
    }

    /// How long rank 0 takes to allocate windows; if the argument says so until each rank has written to every page of its
    /// part, and until the window is gone.
    fn allocate(&self, order: Order<'_>) -> Result<f64, Failure> {
        let world = &self.rank.world;
        let mut taken = 0.0;
        for _ in 0..order.times {
            world.barrier().wait()?;
            let start = Instant::now();
            let window = Window::<u64>::allocate(world, order.size as usize / WORD).wait()?;
            if order.argument & TOUCH != 0 {
                let local = window.local();
                for place in (0..local.len()).step_by(PAGE / WORD) {
                    local.write(place, &[1])?;
                }
            }
            let used = start.elapsed();
            window.close().wait()?;
            let freed = start.elapsed();
            taken += if order.argument & FREE != 0 { freed } else { used }.as_nanos() as f64;
        }
        Ok(if world.rank() == 0 { taken } else { 0.0 })
    }

    /// The first lock, put and unlock after a while, the target being at its work for some milliseconds; in a barrier
    /// if none.
    fn first_lock(&self, window: &Window<u64>, order: Order<'_>) -> Result<f64, Failure> {
        let (world, peer) = (&self.rank.world, self.rank.peer());
        let mut taken = 0.0;
        world.barrier().wait()?;
        if world.rank() == 0 {
            thread::sleep(Duration::from_millis(10));
            let start = Instant::now();
            lock_put_unlock(window, peer, 1)?;
            taken = start.elapsed().as_nanos() as f64;
        } else if world.rank() == peer {
            busy::compute(Duration::from_millis(order.argument));
        }
        world.barrier().wait()?;
        Ok(taken)
    }

    /// All ranks at one lock from `argument` for `times` ms: how often this one had it.
    fn contend(
        &self,
        order: Order<'_>,
        lock_until: impl FnOnce(&AtomicU64) -> Result<u64, Failure>,
    ) -> Result<f64, Failure> {
        let over = AtomicU64::new(0);
        self.rank.world.barrier().wait()?;
        let acquired = thread::scope(|scope| {
            scope.spawn(|| {
                sleep_until(order.argument + order.times * 1_000_000);
                over.store(1, Ordering::Relaxed);
            });
            sleep_until(order.argument);
            lock_until(&over)
        })?;
        self.rank.world.barrier().wait()?;
        Ok(acquired as f64)
    }
}

/// Rank 0 is timed; the others are in a barrier meanwhile.
fn timed(rank: &RankOfBench, run: impl FnOnce() -> Result<f64, Failure>) -> Result<f64, Failure> {
    rank.world.barrier().wait()?;
    let taken = if rank.world.rank() == 0 { run()? } else { 0.0 };
    rank.world.barrier().wait()?;
    Ok(taken)
}

/// First some of it: the caches were another program's.
fn time(times: u64, mut run: impl FnMut(u64) -> Result<(), Error>) -> Result<f64, Error> {
    run(times / 8 + 1)?;
    let start = Instant::now();
    run(times)?;
    Ok(start.elapsed().as_nanos() as f64)
}

fn sleep_until(nanos: u64) {
    let now = clock_gettime(ClockId::Monotonic);
    let now = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
    thread::sleep(Duration::from_nanos(nanos.saturating_sub(now)));
}

// The timed loops, each a function of its own, so that no loop's code depends on another's.

#[inline(never)]
fn lock_unlock(window: &Window<u64>, target: u32, n: u64) -> Result<(), Error> {
    for _ in 0..n {
        window.lock_exclusive(target).wait()?.unlock().wait()?;
    }
    Ok(())
}

#[inline(never)]
fn lock_put_unlock(window: &Window<u64>, target: u32, n: u64) -> Result<(), Error> {
    for i in 0..n {
        let epoch = window.lock_exclusive(target).wait()?;
        epoch.put(0, &[i])?;
        epoch.unlock().wait()?;
    }
    Ok(())
}

#[inline(never)]
fn lock_until(window: &Window<u64>, over: &AtomicU64) -> Result<u64, Error> {
    let mut acquired = 0;
    while over.load(Ordering::Relaxed) == 0 {
        window.lock_exclusive(0).wait()?.unlock().wait()?;
        acquired += 1;
    }
    Ok(acquired)
}

#[inline(never)]
fn put(access: &Access<'_>, buffer: &mut [u64], n: u64) -> Result<(), Error> {
    for _ in 0..n {
        access.put(0, black_box(buffer))?;
        access.flush().wait()?;
    }
    Ok(())
}

#[inline(never)]
fn get(access: &Access<'_>, buffer: &mut [u64], n: u64) -> Result<(), Error> {
    for _ in 0..n {
        access.get(0, black_box(&mut *buffer)).wait()?;
        access.flush().wait()?;
    }
    Ok(())
}

#[inline(never)]
fn put_many(access: &Access<'_>, buffer: &mut [u64], n: u64) -> Result<(), Error> {
    let len = buffer.len() / MANY as usize;
    for _ in 0..n {
        for (k, piece) in buffer.chunks_exact(len).enumerate() {
            access.put(k * len, black_box(piece))?;
        }
        access.flush().wait()?;
    }
    Ok(())
}

#[inline(never)]
fn get_many(access: &Access<'_>, buffer: &mut [u64], n: u64) -> Result<(), Error> {
    let len = buffer.len() / MANY as usize;
    for _ in 0..n {
        let gets: Vec<_> =
            buffer.chunks_exact_mut(len).enumerate().map(|(k, piece)| access.get(k * len, black_box(piece))).collect();
        gets.into_iter().try_for_each(onesided_windows::Get::wait)?;
        access.flush().wait()?;
    }
    Ok(())
}

#[inline(never)]
fn accumulate(access: &Access<'_>, _: &mut [u64], n: u64) -> Result<(), Error> {
    for _ in 0..n {
        access.accumulate(SUM, black_box(&[1]), Op::Sum).wait()?;
        access.flush().wait()?;
    }
    Ok(())
}

#[inline(never)]
fn fetch_and_op(access: &Access<'_>, _: &mut [u64], n: u64) -> Result<(), Error> {
    let mut sum = 0_u64;
    for _ in 0..n {
        sum = sum.wrapping_add(access.fetch_and_op(COUNTER, 1, Op::Sum).wait()?);
        access.flush().wait()?;
    }
    black_box(sum);
    Ok(())
}

/// Each swap finds what it expects.
#[inline(never)]
fn compare_and_swap(access: &Access<'_>, _: &mut [u64], n: u64) -> Result<(), Error> {
    access.put(SWAPPED, &[0])?;
    access.flush().wait()?;
    let mut sum = 0_u64;
    for i in 0..n {
        sum = sum.wrapping_add(access.compare_and_swap(SWAPPED, i, i + 1).wait()?);
        access.flush().wait()?;
    }
    black_box(sum);
    Ok(())
}

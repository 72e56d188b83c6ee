//! The timed loops of this library, with the same shapes as those in benches/peers/probes.c, and
//! the bare ones.
#![allow(unsafe_code)] // memcpy to and from bare memory

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use onesided_windows::{Error, LockDesign, Window};

use crate::bench::baselines::bare;
use crate::bench::collectives::{Group, LOOPS};
use crate::bench::messages::End;
use crate::bench::overlap::Pair;
use crate::bench::peers::control::Request;
use crate::bench::peers::echoes;
use crate::bench::peers::plan::{FREE, MANY, TOUCH};
use crate::bench::rma::loops::{self, Loop, Row};
use crate::bench::worker::probes::{lock_exclusive, lock_put_unlock};
use crate::bench::worker::rank::{BenchRank, TRANSFER_AREA};
use crate::bench::worker::throughput::{Stop, lock_unlock};
use crate::bench::worker::timing;
use crate::failure::Failure;

const WORD: usize = 8;
const PAGE: usize = 4096;
// Bare words.
const LOCK: u64 = 0;
const COUNT: u64 = 1;

pub(crate) struct Probes<'r> {
    rank: &'r BenchRank,
    window: Window<u64>,
    /// [`TRANSFER_AREA`] bytes from `begin` on, which is page-aligned like the peers' buffer.
    buffer: Vec<u64>,
    begin: usize,
    /// Made for the first loop of messages.
    end: Option<End<'r>>,
    /// Made for the first loop of collectives.
    group: Option<Group<'r>>,
    /// Made for the first message between ranks that compute.
    pair: Option<Pair<'r>>,
}

/// A loop that acquires and releases the lock.
type LockingLoop = fn(&Window<u64>, u32, u64) -> Result<(), Error>;

impl<'r> Probes<'r> {
    pub(crate) fn new(rank: &'r BenchRank) -> Result<Self, Failure> {
        let window = Window::<u64>::allocate(&rank.world, TRANSFER_AREA / WORD).wait()?;
        let buffer = vec![1_u64; (TRANSFER_AREA + PAGE) / WORD];
        let begin = buffer.as_ptr().addr().wrapping_neg() % PAGE / WORD;
        Ok(Self { rank, window, buffer, begin, end: None, group: None, pair: None })
    }

    pub(crate) fn close(self) -> Result<(), Failure> {
        Ok(self.window.close().wait()?)
    }

    /// Runs a probe. Returns the nanoseconds of all iterations at rank 0, or the probe's own
    /// result; `None` if there is no such probe.
    pub(crate) fn run(&mut self, request: Request<'_>) -> Result<Option<f64>, Failure> {
        if let Some((probe, lock)) = request.probe.split_once(':') {
            // Closed after the request, because a thread that serves the lock would take its core
            // from the others.
            let window =
                Window::<u64>::builder().lock(lock.parse::<LockDesign>()?).allocate(&self.rank.world, 8).wait()?;
            let taken = self.locking(&window, Request { probe, ..request })?;
            window.close().wait()?;
            return Ok(taken);
        }
        if let Some(taken) = self.locking(&self.window, request)? {
            return Ok(Some(taken));
        }
        if let Some(one) = echoes::loop_of(request.probe) {
            if self.end.is_none() {
                self.end = End::new(self.rank, 1)?;
            }
            let run = |end| echoes::messages(end, one, request.size, request.times);
            return self.end.as_ref().map(run).transpose();
        }
        if let Some(one) = LOOPS.iter().find(|one| one.name == request.probe) {
            if self.group.is_none() {
                self.group = Some(Group::new(&self.rank.world)?);
            }
            let run = |group| echoes::collectives(group, one, request.size, request.times);
            return self.group.as_ref().map(run).transpose();
        }
        if request.probe == "overlap" {
            if self.pair.is_none() {
                self.pair = Some(Pair::new(self.rank)?);
            }
            let run = |pair: &mut Pair<'_>| pair.run(request.size, request.times, request.argument);
            return self.pair.as_mut().map(run).transpose();
        }
        let run: Loop = match request.probe {
            "allocate" => return self.allocate(request).map(Some),
            "bare_contend" => {
                return self.contend(request, |over| Ok(bare::contend(self.rank.word(LOCK), over, 1))).map(Some);
            }
            "signal_echo" => return echoes::signals(&self.window, self.rank.peer(), request.times).map(Some),
            "put" | "put_many" => loops::put,
            "get" | "get_many" => loops::get,
            "accumulate" => loops::accumulate,
            "fetch_and_op" => loops::fetch_and_op,
            "compare_and_swap" => loops::compare_and_swap,
            _ => return self.bare(request),
        };
        let pieces = if request.probe.ends_with("_many") { MANY as usize } else { 1 };
        self.locked(run, request, pieces).map(Some)
    }

    /// Runs a probe that depends on the window's lock.
    fn locking(&self, window: &Window<u64>, request: Request<'_>) -> Result<Option<f64>, Failure> {
        let taken = match request.probe {
            "lock_unlock" => self.loops(window, lock_exclusive, request),
            "lock_put_unlock" => self.loops(window, lock_put_unlock, request),
            "first_lock" => self.first_lock(window, request),
            "contend" => self.contend(request, |over| lock_unlock(window, 0, Stop { word: over, number: 1 })),
            _ => return Ok(None),
        };
        taken.map(Some)
    }

    fn loops(&self, window: &Window<u64>, run: LockingLoop, request: Request<'_>) -> Result<f64, Failure> {
        timed(self.rank, || Ok(time(request.times, |n| run(window, self.rank.peer(), n))?))
    }

    /// Runs a loop under a held lock, with so many pieces before each flush.
    fn locked(&mut self, run: Loop, request: Request<'_>, pieces: usize) -> Result<f64, Failure> {
        timed(self.rank, || {
            let epoch = self.window.lock_exclusive(self.rank.peer()).wait()?;
            let buffer = &mut self.buffer[self.begin..][..pieces * request.size as usize / WORD];
            let row = |n| run(&epoch, Row { buffer: &mut *buffer, results: &mut [], pieces }, n, true);
            let taken = time(request.times, row)?;
            epoch.unlock().wait()?;
            Ok(taken)
        })
    }

    /// Runs a limit.
    fn bare(&mut self, request: Request<'_>) -> Result<Option<f64>, Failure> {
        let rank = self.rank;
        let (lock, count, area) = (rank.word(LOCK), rank.word(COUNT), rank.transfer_area());
        let pieces = if matches!(request.probe, "bare_puts" | "bare_gets") { MANY as usize } else { 1 };
        let row = &mut self.buffer[self.begin..][..request.size as usize / WORD * pieces];
        let mut run: Box<dyn FnMut(u64)> = match request.probe {
            "bare_lock" => Box::new(|n| bare::cas_store(lock, n)),
            "bare_fetch" => Box::new(|n| bare::fetch_add(count, n)),
            "bare_swap" => Box::new(|n| bare::compare_swap(count, n)),
            // SAFETY: the transfer area has TRANSFER_AREA bytes, which a row of request.size or
            // MANY small pieces does not exceed; it is page-aligned; no other rank accesses it now.
            "bare_put" | "bare_puts" => Box::new(|n| unsafe { bare::copy_in(area, row, (pieces, true), n) }),
            // SAFETY: as above.
            "bare_get" | "bare_gets" => Box::new(|n| unsafe { bare::copy_out(row, area, (pieces, true), n) }),
            _ => return Ok(None),
        };
        let run = |n| {
            run(n);
            Ok(())
        };
        timed(rank, || Ok(time(request.times, run)?)).map(Some)
    }

    /// The time of rank 0 to allocate windows; depending on the argument, until each rank has
    /// written to every page of its window memory, and until the window is freed.
    fn allocate(&self, request: Request<'_>) -> Result<f64, Failure> {
        let world = &self.rank.world;
        let mut taken = 0.0;
        for _ in 0..request.times {
            world.barrier().wait()?;
            let start = Instant::now();
            let window = Window::<u64>::allocate(world, request.size as usize / WORD).wait()?;
            if request.argument & TOUCH != 0 {
                let local = window.local();
                for at in (0..local.len()).step_by(PAGE / WORD) {
                    local.write(at, &[1])?;
                }
            }
            let used = start.elapsed();
            window.close().wait()?;
            let freed = start.elapsed();
            taken += if request.argument & FREE != 0 { freed } else { used }.as_nanos() as f64;
        }
        Ok(if world.rank() == 0 { taken } else { 0.0 })
    }

    /// The first lock, put and unlock after 10 ms without one, while the target computes for `argument` ms, or
    /// waits in a barrier if that is 0.
    fn first_lock(&self, window: &Window<u64>, request: Request<'_>) -> Result<f64, Failure> {
        let (world, peer) = (&self.rank.world, self.rank.peer());
        let mut taken = 0.0;
        if world.rank() == 0 {
            lock_put_unlock(window, peer, 1)?; // no page of the window is new
        }
        world.barrier().wait()?;
        if world.rank() == 0 {
            thread::sleep(Duration::from_millis(10));
            let start = Instant::now();
            lock_put_unlock(window, peer, 1)?;
            taken = start.elapsed().as_nanos() as f64;
        } else if world.rank() == peer {
            timing::compute(Duration::from_millis(request.argument));
        }
        world.barrier().wait()?;
        Ok(taken)
    }

    /// All ranks at one lock from the time `argument` on for `times` ms: how often this rank
    /// acquires it.
    fn contend(
        &self,
        request: Request<'_>,
        lock_until: impl FnOnce(&AtomicU64) -> Result<u64, Failure>,
    ) -> Result<f64, Failure> {
        let over = AtomicU64::new(0);
        self.rank.world.barrier().wait()?;
        let acquired = thread::scope(|scope| {
            scope.spawn(|| {
                sleep_until(request.argument + request.times * 1_000_000);
                over.store(1, Ordering::Relaxed);
            });
            sleep_until(request.argument);
            lock_until(&over)
        })?;
        self.rank.world.barrier().wait()?;
        Ok(acquired as f64)
    }
}

/// Times rank 0, while the others wait in a barrier.
fn timed(rank: &BenchRank, run: impl FnOnce() -> Result<f64, Failure>) -> Result<f64, Failure> {
    rank.world.barrier().wait()?;
    let taken = if rank.world.rank() == 0 { run()? } else { 0.0 };
    rank.world.barrier().wait()?;
    Ok(taken)
}

/// Times a loop after some warm-up, because other programs have used the caches.
fn time(times: u64, mut run: impl FnMut(u64) -> Result<(), Error>) -> Result<f64, Error> {
    run(times / 8 + 1)?;
    let start = Instant::now();
    run(times)?;
    Ok(start.elapsed().as_nanos() as f64)
}

fn sleep_until(nanos: u64) {
    thread::sleep(Duration::from_nanos(nanos.saturating_sub(timing::now())));
}

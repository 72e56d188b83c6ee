//! Locks and small operations without contention.

use std::time::{Duration, Instant};

use onesided_windows::{Error, Window};

use crate::bench::baselines::bare;
use crate::bench::prelude::*;
use crate::bench::rma::loops::{self, Loop, Row};
use crate::bench::worker::probes::{lock_exclusive, lock_put_unlock};
use crate::bench::worker::served;

pub(super) fn run(rank: &BenchRank, effort: Effort) -> Result<(), Failure> {
    let window = Window::<u64>::allocate(&rank.world, 64).wait()?;
    let over_messages = served::over_messages(rank, window.info().lock, rank.peer())?;
    // The other ranks wait in `close`.
    if rank.world.rank() == 0 {
        let (own, peer) = (0, rank.peer());
        let mut probes = limits(rank);
        let lock = |what: &str, limit: &str, target, exclusive: bool| {
            let window = &window;
            Probe::ours(what, limit, move |n| {
                if exclusive { lock_exclusive(window, target, n) } else { lock_shared(window, target, n) }
            })
        };
        probes.push(lock("exclusive lock + unlock, own part", CAS_STORE, own, true));
        probes.push(lock("shared lock + unlock, own part", CAS_ADD, own, false));
        if peer != own {
            probes.push(lock("exclusive lock + unlock", CAS_STORE, peer, true));
            probes.push(lock("shared lock + unlock", CAS_ADD, peer, false));
        }
        if let Some(lock) = &over_messages {
            let batch = |n| (0..n).try_for_each(|_| lock.lock().wait().map(drop));
            probes.push(Probe::ours("exclusive lock + unlock over messages", CAS_STORE, batch));
        }
        probes.push(Probe::ours("lock + put 8 B + unlock", CAS_STORE, |n| lock_put_unlock(&window, peer, n)));
        let locked = |what, limit, run: Loop, flush| {
            let window = &window;
            Probe::ours(what, limit, move |n| {
                let epoch = window.lock_exclusive(peer).wait()?;
                run(&epoch, Row::of(&mut [0]), n, flush)?;
                epoch.unlock().wait()
            })
        };
        probes.push(locked("put 8 B + flush", STORE_FENCE, loops::put, true));
        probes.push(locked("get 8 B + flush", STORE_FENCE, loops::get, true));
        probes.push(locked("fetch_and_op, sum", FETCH_ADD, loops::fetch_and_op, false));
        probes.push(locked("compare_and_swap", CAS, loops::compare_and_swap, false));
        probes::run(rank, effort, probes)?;
        acquire_and_release(rank, effort, &window)?;
    }
    Ok(window.close().wait()?)
}

/// Acquire and release apart (jiang-2004, section 6.1), each timed, less the time to read the
/// clock.
fn acquire_and_release(rank: &BenchRank, effort: Effort, window: &Window<u64>) -> Result<(), Failure> {
    const TIMES: u32 = 200;
    let names = ["exclusive lock: acquire", "exclusive lock: release", "shared lock: acquire", "shared lock: release"];
    let mut samples = Samples::default();
    for _ in 0..effort.runs() {
        let mut batches = [Vec::new(), Vec::new(), Vec::new(), Vec::new()];
        for batch in 0..2 * effort.batches() {
            let exclusive = batch % 2 == 0;
            let [mut clock, mut acquire, mut release] = [Duration::ZERO; 3];
            for _ in 0..TIMES {
                let begin = Instant::now();
                let ready = Instant::now();
                let epoch =
                    if exclusive { window.lock_exclusive(rank.peer()) } else { window.lock_shared(rank.peer()) }
                        .wait()?;
                let acquired = Instant::now();
                epoch.unlock().wait()?;
                release += acquired.elapsed();
                acquire += acquired - ready;
                clock += ready - begin;
            }
            let nanos = |time: Duration| time.saturating_sub(clock).as_nanos() as f64 / f64::from(TIMES);
            let first = if exclusive { 0 } else { 2 };
            batches[first].push(nanos(acquire));
            batches[first + 1].push(nanos(release));
        }
        for (what, batches) in names.into_iter().zip(batches) {
            samples.add(&Point::of(what, Quantity::Latency), median(batches));
        }
    }
    rank.report_all(samples)
}

const CAS_STORE: &str = "lock: CAS + store";
const CAS_ADD: &str = "lock: CAS + fetch-add";
const STORE_FENCE: &str = "store with a full fence";
const FETCH_ADD: &str = "fetch-add";
const CAS: &str = "CAS";

fn limits(rank: &BenchRank) -> Vec<Probe<'_>> {
    if !rank.has_limits() {
        return Vec::new();
    }
    let (lock, word) = (rank.word(0), rank.word(1)); // two words: a lock that other probes add to would never be free
    vec![
        Probe::limit(CAS_STORE, |n| bare::cas_store(lock, n)),
        Probe::limit("lock: CAS + CAS", |n| bare::cas_cas(lock, n)),
        Probe::limit(CAS_ADD, |n| bare::cas_add(lock, n)),
        Probe::limit(CAS, |n| bare::compare_swap(word, n)),
        Probe::limit(FETCH_ADD, |n| bare::fetch_add(word, n)),
        Probe::limit("store", |n| bare::store(word, n)),
        Probe::limit(STORE_FENCE, |n| bare::store_fence(word, n)),
    ]
}

// A function of its own, so that the compiler optimizes it alone.
#[inline(never)]
fn lock_shared(window: &Window<u64>, target: u32, n: u64) -> Result<(), Error> {
    for _ in 0..n {
        window.lock_shared(target).wait()?.unlock().wait()?;
    }
    Ok(())
}

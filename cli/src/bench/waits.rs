//! How long each has to wait for a lock that all want, and who comes before whom.

use std::hint::spin_loop;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use onesided_fabric::remote_memory::FaultKind;
use onesided_windows::{Error, LockTable, Window};

use crate::bench::contest::{Contests, Over};
use crate::bench::rank::RankOfBench;
use crate::bench::report::{Metric, Parameter};
use crate::bench::worker::Effort;
use crate::failure::Failure;
use onesided_lock_kit::bench::{Histogram, Rng, jain, share};

/// A bare word: how often the lock was acquired, by all. Written by whoever holds it.
const ACQUIRED: u64 = 20;

/// The lock of rank 0, by all ranks, each wait timed.
pub(crate) fn run(rank: &RankOfBench, effort: Effort) -> Result<(), Failure> {
    let window = Window::<u64>::allocate(&rank.world, 8).wait()?;
    let mut contests = Contests::new(rank);
    let mut figures = Figures::default();
    for _ in 0..effort.runs() {
        let (mut waits, mut bypasses) = (Histogram::default(), Histogram::default());
        let outcome =
            contests.run(effort.sweeping() * 2, |over| timed(rank, &window, over, &mut waits, &mut bypasses))?;
        let (each, bypasses) = (contests.gathered(waits)?, merged(&contests.gathered(bypasses)?));
        let waits = merged(&each);
        // Who had no turn waited all the time.
        let all_the_time = (outcome.seconds * 1e9) as u64;
        let worst = each.iter().map(|waits| waits.quantile(0.99).unwrap_or(all_the_time)).max();
        for (metric, value) in [
            (Metric::P50, waits.quantile(0.5)),
            (Metric::P99, waits.quantile(0.99)),
            (Metric::P999, waits.quantile(0.999)),
            (Metric::WorstP99, worst),
            (Metric::LongestBypass, Some(bypasses.largest())),
            (Metric::Bypass, bypasses.quantile(0.999)),
        ] {
            figures.add(metric, value.unwrap_or(0) as f64);
        }
        figures.add(Metric::Share, share(&outcome.counts));
        figures.add(Metric::Jain, jain(&outcome.counts));
        rank.step()?;
    }
    if rank.world.rank() == 0 {
        for (metric, values) in &figures.0 {
            rank.alone(("wait for a contended lock", None), *metric, values)?;
        }
    }
    Ok(window.close().wait()?)
}

fn merged(each: &[Histogram]) -> Histogram {
    let mut all = Histogram::default();
    each.iter().for_each(|one| all.merge(one));
    all
}

/// How long it takes to read the clock: the median of some.
fn clock_takes() -> Duration {
    let mut all = Histogram::default();
    for _ in 0..1000 {
        let begin = Instant::now();
        all.add(begin.elapsed().as_nanos() as u64);
    }
    Duration::from_nanos(all.quantile(0.5).unwrap_or(0))
}

/// The runs' values of each metric.
#[derive(Default)]
struct Figures(Vec<(Metric, Vec<f64>)>);

impl Figures {
    fn add(&mut self, metric: Metric, value: f64) {
        match self.0.iter_mut().find(|(one, _)| *one == metric) {
            Some((_, values)) => values.push(value),
            None => self.0.push((metric, vec![value])),
        }
    }
}

fn timed(
    rank: &RankOfBench,
    window: &Window<u64>,
    over: Over<'_>,
    waits: &mut Histogram,
    bypasses: &mut Histogram,
) -> Result<u64, Failure> {
    let acquired_by_all = rank.word(ACQUIRED);
    let mut acquired = 0;
    let clock = clock_takes();
    while !over.is() {
        let begin = Instant::now();
        let request = window.lock_exclusive(0); // asked for: what comes now may come before us
        let before = acquired_by_all.load(Ordering::Relaxed);
        let epoch = request.wait()?;
        let waited = begin.elapsed().saturating_sub(clock);
        let all = acquired_by_all.load(Ordering::Relaxed);
        acquired_by_all.store(all + 1, Ordering::Relaxed);
        epoch.unlock().wait()?;
        waits.add(waited.as_nanos() as u64);
        bypasses.add(all - before);
        acquired += 1;
    }
    Ok(acquired)
}

/// How many of a hundred acquire to read.
pub(crate) const READERS: [u64; 6] = [0, 50, 90, 95, 99, 100];

/// The lock of rank 0, by all ranks, some of whom only read.
pub(crate) fn readers(rank: &RankOfBench, effort: Effort) -> Result<(), Failure> {
    let window = Window::<u64>::allocate(&rank.world, 8).wait()?;
    sweep(
        rank,
        effort,
        "lock + unlock, some to read",
        &READERS,
        |readers| Parameter::new("readers", readers as f64, "%"),
        |over, rng, readers| {
            let mut acquired = 0;
            while !over.is() {
                let request =
                    if rng.next_u64() % 100 < readers { window.lock_shared(0) } else { window.lock_exclusive(0) };
                let epoch = request.wait()?;
                busy(SECTION);
                epoch.unlock().wait()?;
                acquired += 1;
            }
            Ok(acquired)
        },
    )?;
    Ok(window.close().wait()?)
}

/// What readers and writers do: nothing that readers could do at once would tell nothing.
const SECTION: Duration = Duration::from_nanos(500);
/// How long the lock is held, in nanoseconds.
pub(crate) const SECTIONS: [u64; 5] = [0, 100, 1_000, 10_000, 100_000];

/// The lock of rank 0, by all ranks, held for a while and asked for again after as long.
pub(crate) fn sections(rank: &RankOfBench, effort: Effort) -> Result<(), Failure> {
    let window = Window::<u64>::allocate(&rank.world, 8).wait()?;
    sweep(
        rank,
        effort,
        "lock + work + unlock + work",
        &SECTIONS,
        |nanos| Parameter::new("section", nanos as f64, "ns"),
        |over, _, nanos| {
            let long = Duration::from_nanos(nanos);
            let mut acquired = 0;
            while !over.is() {
                let epoch = window.lock_exclusive(0).wait()?;
                busy(long);
                epoch.unlock().wait()?;
                busy(long);
                acquired += 1;
            }
            Ok(acquired)
        },
    )?;
    Ok(window.close().wait()?)
}

/// The exponent of Zipf's law in hundredths.
pub(crate) const SKEWS: [u64; 4] = [0, 50, 99, 150];
/// How many locks a rank has in a table, and in windows, where the lock is of no use to a table.
const IN_TABLE: usize = 16_384;
const IN_WINDOWS: usize = 16;

/// Many locks, some wanted more often than others: the n-th as often as 1 / n to the power of the skew.
pub(crate) fn zipf(rank: &RankOfBench, effort: Effort) -> Result<(), Failure> {
    let world = &rank.world;
    match LockTable::new(world, IN_TABLE).wait() {
        Ok(table) => {
            sweep_zipf(rank, effort, table.len() as usize, |lock| {
                table.lock_exclusive(lock as u64).wait()?.unlock().wait()
            })?;
            Ok(table.close().wait()?)
        }
        // Everybody is told so: a lock with words at every rank has no table.
        Err(Error::Operation { fault, .. }) if fault.kind() == FaultKind::Unsupported => {
            let windows: Vec<_> =
                (0..IN_WINDOWS).map(|_| Window::<u64>::allocate(world, 8).wait()).collect::<Result<_, _>>()?;
            let size = world.size() as usize;
            sweep_zipf(rank, effort, IN_WINDOWS * size, |lock| {
                windows[lock / size].lock_exclusive((lock % size) as u32).wait()?.unlock().wait()
            })?;
            for window in windows {
                window.close().wait()?;
            }
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

fn sweep_zipf(
    rank: &RankOfBench,
    effort: Effort,
    locks: usize,
    once: impl Fn(usize) -> Result<(), Error>,
) -> Result<(), Failure> {
    let what = format!("lock + unlock, {locks} Zipf-distributed locks");
    let skew = |skew| Parameter::new("skew", skew as f64 / 100.0, "1");
    let tables = SKEWS.map(|skew| (skew, zipf_table(locks, skew as f64 / 100.0))); // they take as long as a short contest
    sweep(rank, effort, &what, &SKEWS, skew, |over, rng, skew| {
        let table =
            tables.iter().find_map(|(of, table)| (*of == skew).then_some(table)).ok_or("there is no such skew")?;
        let mut acquired = 0;
        while !over.is() {
            let throw = rng.next_u64();
            once(table.partition_point(|up_to| *up_to < throw))?;
            acquired += 1;
        }
        Ok(acquired)
    })
}

/// Up to which throw of 64 bits it is which lock.
fn zipf_table(locks: usize, skew: f64) -> Vec<u64> {
    let weights: Vec<f64> = (1..=locks).map(|n| (n as f64).powf(-skew)).collect();
    let sum: f64 = weights.iter().sum();
    let mut reached = 0.0;
    let mut table: Vec<u64> = weights
        .iter()
        .map(|weight| {
            reached += weight / sum;
            (reached * u64::MAX as f64) as u64
        })
        .collect();
    if let Some(last) = table.last_mut() {
        *last = u64::MAX;
    }
    table
}

/// A contest for each of these values; all ranks' acquisitions a second are what comes out.
fn sweep(
    rank: &RankOfBench,
    effort: Effort,
    what: &str,
    values: &[u64],
    parameter: impl Fn(u64) -> Parameter,
    contend: impl Fn(Over<'_>, &mut Rng, u64) -> Result<u64, Failure>,
) -> Result<(), Failure> {
    let mut contests = Contests::new(rank);
    let mut rates = vec![Vec::new(); values.len()];
    for _ in 0..effort.runs() {
        for (value, rates) in values.iter().zip(&mut rates) {
            let mut rng = Rng::new(u64::from(rank.world.rank()) + 1);
            rates.push(contests.run(effort.sweeping(), |over| contend(over, &mut rng, *value))?.rate());
        }
        rank.step()?;
    }
    if rank.world.rank() == 0 {
        for (value, rates) in values.iter().zip(&rates) {
            rank.alone((what, Some(parameter(*value))), Metric::Acquisitions, rates)?;
        }
    }
    Ok(())
}

fn busy(long: Duration) {
    if long.is_zero() {
        return;
    }
    let begin = Instant::now();
    while begin.elapsed() < long {
        spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zipfs_law_has_its_shares() {
        let even = zipf_table(4, 0.0);
        for (n, up_to) in even.iter().enumerate() {
            let expected = (n as f64 + 1.0) / 4.0 * u64::MAX as f64;
            assert!((*up_to as f64 - expected).abs() / expected < 1e-9, "{even:?}");
        }
        let skewed = zipf_table(3, 1.0); // 1, 1/2, 1/3: 6, 3 and 2 of 11
        assert!((skewed[0] as f64 / u64::MAX as f64 - 6.0 / 11.0).abs() < 1e-9, "{skewed:?}");
        assert_eq!(skewed[2], u64::MAX, "every throw is some lock");
        let mut rng = Rng::new(1);
        let first = std::iter::repeat_with(|| rng.next_u64()).take(11_000);
        let first = first.filter(|throw| skewed.partition_point(|up_to| up_to < throw) == 0).count();
        assert!((5_700..6_300).contains(&first), "{first}");
    }
}

//! Many locks, some wanted more often than others: the n-th 1 / n to the power of the skew as often
//! as the first.

use onesided_fabric::remote_memory::FaultKind;
use onesided_windows::{Error, LockTable, Window};

use crate::bench::metrics::sweep;
use crate::bench::prelude::*;

pub(super) static METRIC: LockMetric = LockMetric {
    name: "zipf",
    help: "Many locks, uniformly wanted to heavily skewed (Zipf's law)",
    jobs: &[(Suite::new("zipf", Program::Plain(run)), Ranks::Default(&[4]))],
    descriptions: &[Description::named(
        Name::EndsWith("Zipf-distributed locks"),
        &[Shown::new(Quantity::Acquisitions, "acquired")],
    )
    .saying("Many locks, the n-th wanted 1 / n to the power of the skew as often as the first; 0 is even.")],
};

/// The exponent of Zipf's law, in hundredths.
const SKEWS: [u64; 4] = [0, 50, 99, 150];
/// How many locks of a table are at each rank; and of windows, for lock designs that tables do not
/// have.
const IN_TABLE: usize = 16_384;
const IN_WINDOWS: usize = 16;

fn run(rank: &BenchRank, effort: Effort) -> Result<(), Failure> {
    let world = &rank.world;
    match LockTable::new(world, IN_TABLE).wait() {
        Ok(table) => {
            contend(rank, effort, table.len() as usize, |lock| {
                table.lock_exclusive(lock as u64).wait()?.unlock().wait()
            })?;
            Ok(table.close().wait()?)
        }
        // All ranks get this error: a lock with words at every rank has no table.
        Err(Error::Operation { fault, .. }) if fault.kind() == FaultKind::Unsupported => {
            let windows: Vec<_> =
                (0..IN_WINDOWS).map(|_| Window::<u64>::allocate(world, 8).wait()).collect::<Result<_, _>>()?;
            let size = world.size() as usize;
            contend(rank, effort, IN_WINDOWS * size, |lock| {
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

fn contend(
    rank: &BenchRank,
    effort: Effort,
    locks: usize,
    lock_unlock: impl Fn(usize) -> Result<(), Error>,
) -> Result<(), Failure> {
    let what = format!("lock + unlock, {locks} Zipf-distributed locks");
    let skew = |skew| Parameter::new("skew", skew as f64 / 100.0, "1");
    // Made beforehand: a table takes as long as a short run.
    let tables = SKEWS.map(|skew| (skew, cumulative(locks, skew as f64 / 100.0)));
    sweep::run(rank, effort, &what, &SKEWS, skew, |stop, rng, skew| {
        let table =
            tables.iter().find_map(|(of, table)| (*of == skew).then_some(table)).ok_or("there is no such skew")?;
        let mut acquired = 0;
        while !stop.is_set() {
            let random = rng.next_u64();
            lock_unlock(table.partition_point(|up_to| *up_to < random))?;
            acquired += 1;
        }
        Ok(acquired)
    })
}

/// The cumulative distribution: up to which random number of 64 bits each lock is chosen.
fn cumulative(locks: usize, skew: f64) -> Vec<u64> {
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

#[cfg(test)]
mod tests {
    use onesided_lock_kit::bench::Rng;

    use super::*;

    #[test]
    fn zipfs_law_has_its_shares() {
        let even = cumulative(4, 0.0);
        for (n, up_to) in even.iter().enumerate() {
            let expected = (n as f64 + 1.0) / 4.0 * u64::MAX as f64;
            assert!((*up_to as f64 - expected).abs() / expected < 1e-9, "{even:?}");
        }
        let skewed = cumulative(3, 1.0); // 1, 1/2, 1/3: 6, 3 and 2 of 11
        assert!((skewed[0] as f64 / u64::MAX as f64 - 6.0 / 11.0).abs() < 1e-9, "{skewed:?}");
        assert_eq!(skewed[2], u64::MAX, "every random number chooses a lock");
        let mut rng = Rng::new(1);
        let first = std::iter::repeat_with(|| rng.next_u64()).take(11_000);
        let first = first.filter(|random| skewed.partition_point(|up_to| up_to < random) == 0).count();
        assert!((5_700..6_300).contains(&first), "{first}");
    }
}

//! A contended lock that some acquire to read.

use std::time::Duration;

use onesided_windows::Window;

use crate::bench::metrics::sweep;
use crate::bench::prelude::*;
use crate::bench::worker::timing::spin_for;

pub(super) static METRIC: LockMetric = LockMetric {
    name: "readers",
    help: "A contended lock that 0 to 100 % acquire to read",
    jobs: &[(Suite::new("readers", Program::Plain(run)), Ranks::Default(&[4]))],
    descriptions: &[Description::of(
        BENCHMARK,
        &[Shown::new(Quantity::Acquisitions, "acquired").heading("Some to read: acquisitions a second")],
    )
    .saying("All ranks at one lock, which so many acquire to read; each holds it for 0.5 µs.")],
};

const BENCHMARK: &str = "lock + unlock, some to read";
/// How many of a hundred acquisitions are to read.
const READERS: [u64; 6] = [0, 50, 90, 95, 99, 100];
/// How long readers and writers hold the lock: readers share only time that they spend in the
/// section.
const SECTION: Duration = Duration::from_nanos(500);

/// All ranks are at the lock of rank 0.
fn run(rank: &BenchRank, effort: Effort) -> Result<(), Failure> {
    let window = Window::<u64>::allocate(&rank.world, 8).wait()?;
    let parameter = |readers| Parameter::new("readers", readers as f64, "%");
    sweep::run(rank, effort, BENCHMARK, &READERS, parameter, |stop, rng, readers| {
        let mut acquired = 0;
        while !stop.is_set() {
            let is_reader = rng.next_u64() % 100 < readers;
            let request = if is_reader { window.lock_shared(0) } else { window.lock_exclusive(0) };
            let epoch = request.wait()?;
            spin_for(SECTION);
            epoch.unlock().wait()?;
            acquired += 1;
        }
        Ok(acquired)
    })?;
    Ok(window.close().wait()?)
}

//! A contended lock with work under it.

use std::time::Duration;

use onesided_windows::Window;

use crate::bench::metrics::sweep;
use crate::bench::prelude::*;
use crate::bench::worker::timing::spin_for;

pub(super) static METRIC: LockMetric = LockMetric {
    name: "section",
    help: "A contended lock that is held for 0 ns to 100 us",
    jobs: &[(Suite::new("sections", Program::Plain(run)), Ranks::Default(&[4]))],
    descriptions: &[Description::of(
        BENCHMARK,
        &[Shown::new(Quantity::Acquisitions, "acquired").heading("With work: acquisitions a second")],
    )
    .saying("All ranks at one lock: work under it, and as much work before the next acquire.")],
};

const BENCHMARK: &str = "lock + work + unlock + work";
/// How long the lock is held, in nanoseconds.
const SECTIONS: [u64; 5] = [0, 100, 1_000, 10_000, 100_000];

/// All ranks are at the lock of rank 0.
fn run(rank: &BenchRank, effort: Effort) -> Result<(), Failure> {
    let window = Window::<u64>::allocate(&rank.world, 8).wait()?;
    let parameter = |nanos| Parameter::new("section", nanos as f64, "ns");
    sweep::run(rank, effort, BENCHMARK, &SECTIONS, parameter, |stop, _, nanos| {
        let work = Duration::from_nanos(nanos);
        let mut acquired = 0;
        while !stop.is_set() {
            let epoch = window.lock_exclusive(0).wait()?;
            spin_for(work);
            epoch.unlock().wait()?;
            spin_for(work);
            acquired += 1;
        }
        Ok(acquired)
    })?;
    Ok(window.close().wait()?)
}

//! A throughput run at one lock for each value of a parameter.

use onesided_lock_kit::bench::Rng;

use crate::bench::prelude::*;

/// Reports all ranks' acquisitions a second for each of the values.
pub(super) fn run(
    rank: &BenchRank,
    effort: Effort,
    what: &str,
    values: &[u64],
    parameter: impl Fn(u64) -> Parameter,
    contend: impl Fn(Stop<'_>, &mut Rng, u64) -> Result<u64, Failure>,
) -> Result<(), Failure> {
    let (mut throughput, mut samples) = (Throughput::new(rank), Samples::default());
    for _ in 0..effort.runs() {
        for value in values {
            let mut rng = Rng::new(u64::from(rank.world.rank()) + 1);
            let outcome = throughput.run(effort.sweeping(), |stop| contend(stop, &mut rng, *value))?;
            samples.add(&Point::of(what, Quantity::Acquisitions).at(&parameter(*value)), outcome.rate());
        }
        rank.step()?;
    }
    rank.report_all(samples)
}

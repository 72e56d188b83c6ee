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
    let mut throughput = Throughput::new(rank);
    let mut rates = vec![Vec::new(); values.len()];
    for _ in 0..effort.runs() {
        for (value, rates) in values.iter().zip(&mut rates) {
            let mut rng = Rng::new(u64::from(rank.world.rank()) + 1);
            rates.push(throughput.run(effort.sweeping(), |stop| contend(stop, &mut rng, *value))?.rate());
        }
        rank.step()?;
    }
    if rank.world.rank() == 0 {
        for (value, rates) in values.iter().zip(&rates) {
            rank.uncompared((what, Some(parameter(*value))), Quantity::Acquisitions, rates)?;
        }
    }
    Ok(())
}

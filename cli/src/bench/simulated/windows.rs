//! The metrics of jiang-2004, section 6, for windows on the simulated network, in virtual time:
//! they depend on the lock design alone, not on this machine. Processors are not modelled, so that
//! computation takes no time.

use std::time::Duration;

use onesided_sim::Network;
use onesided_windows::LockDesign;

use crate::bench::prelude::*;
use crate::bench::results::report::Measured;
use crate::experiment::{Experiment, Handovers, Lock, Turns, Unlock};

/// A release by a single operation returns when that is posted.
const RELEASE: &str = "simulated lock: release, until posted";

const OWN_WINDOWS: &str = "simulated lock + unlock, a window for each origin";
const OPERATIONS: &str = "simulated lock + unlock: operations of all ranks";

pub(super) static DESCRIPTIONS: [Description; 5] = [
    Description::of("simulated lock: acquire", &[Shown::new(Quantity::Latency, "acquire")]),
    Description::of(RELEASE, &[Shown::new(Quantity::Latency, "release, posted")]),
    Description::of("simulated lock: release to acquired", &[Shown::new(Quantity::Latency, "release to acquired")]),
    Description::of(OWN_WINDOWS, &[Shown::new(Quantity::Latency, "lock, unlock")])
        .saying("Each origin with a window of its own, at one target, a modelled microsecond away."),
    Description::of(OPERATIONS, &[Shown::new(Quantity::Operations, "operations")])
        .saying("Reads, writes and atomics that are posted for one acquisition, with so many origins contending."),
];

/// The lock is held for longer than an acquire takes.
const HANDOVERS: Handovers = Handovers { later: 20_000, held_for: 60_000, period: 200_000, shift: 0 };

/// All metrics of a lock design.
pub(super) fn measure(design: LockDesign, seed: u64) -> Result<Vec<Measured>, Failure> {
    let network = &Network { jitter: Duration::from_nanos(200), ..Network::default() };
    let (lock, unlock) = (Lock::Shipped(design), Unlock::AsShipped);
    let experiment = Experiment { network, is_one_host: true, lock, unlock, seed, times: 100 };
    let latency = |what| Point::of(what, Quantity::Latency);
    let overhead = experiment.overhead(1)?;
    let held_for = Parameter::new("held for", (HANDOVERS.held_for - HANDOVERS.later) as f64, "ns");
    let delay = latency("simulated lock: release to acquired").at(&held_for);
    let mut results = vec![
        latency("simulated lock: acquire").simulated(design.name(), 2, overhead.acquire),
        latency(RELEASE).simulated(design.name(), 2, overhead.release),
        delay.simulated(design.name(), 3, experiment.delay(HANDOVERS)?),
    ];
    for origins in [1, 2, 4, 7] {
        let parameter = Parameter::new("origins", f64::from(origins), "1");
        let nanos = experiment.contend(origins, true, Turns::Each)?.nanos;
        results.push(latency(OWN_WINDOWS).at(&parameter).simulated(design.name(), origins + 1, nanos));
        let operations = experiment.contend(origins, false, Turns::Each)?.operations;
        let posted = Point::of(OPERATIONS, Quantity::Operations).at(&parameter);
        results.push(posted.simulated(design.name(), origins + 1, operations));
    }
    Ok(results)
}

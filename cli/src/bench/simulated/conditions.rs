//! The contended lock under conditions: a network that loses, an owner that stops or dies, cards of
//! two generations.

use std::time::Duration;

use onesided_lock_kit::lock_algos::AnyLock;
use onesided_sim::{Network, Profile};

use crate::bench::prelude::*;
use crate::bench::results::report::Measured;
use crate::bench::simulated::contention::{Conditions, Load, Owner};

const RATE: Quantity = Quantity::Acquisitions;
const GAP: Quantity = Quantity::LongestGap;

pub(super) static DESCRIPTIONS: [Description; 6] = [
    Description::of("simulated lock, no fault", &[Shown::new(RATE, "no fault")]),
    Description::of("simulated lock, 1 % loss", &[Shown::new(RATE, "1 % loss"), Shown::new(GAP, "gap, 1 % loss")]),
    Description::of("simulated lock, an owner stops for 10 ms", &[Shown::new(GAP, "gap, owner stops 10 ms")]),
    Description::of("simulated lock, an owner dies", &[Shown::new(GAP, "gap, owner dies")]),
    Description::of("simulated lock, ConnectX-7", &[Shown::new(RATE, "ConnectX-7")]),
    Description::of("simulated lock, InfiniHost", &[Shown::new(RATE, "InfiniHost")]),
];

const MS: Duration = Duration::from_millis(1);

/// A condition: the benchmark's name, and what is measured.
type Condition = (&'static str, &'static [Quantity], Conditions);

fn all(origins: u32) -> Result<Vec<Condition>, Failure> {
    let jitter = Duration::from_nanos(200);
    let modelled = Network { jitter, ..Network::default() };
    // Bounded where origins fail often.
    let events = 300_000 + 3_000 * u64::from(origins);
    let plain = Conditions { origins, lasting: Some(100 * MS), events, ..Conditions::on(modelled.clone()) };
    let after = 20 * MS;
    let on = |name| {
        let network = Network { jitter, ..Profile::shipped(name)?.network().clone() };
        // A core for each rank.
        let per_host = Some(network.host.cores.max(1));
        Ok::<_, Failure>(Conditions { network, per_host, ..plain.clone() })
    };
    Ok(vec![
        ("simulated lock, no fault", &[RATE], plain.clone()),
        (
            "simulated lock, 1 % loss",
            &[RATE, GAP],
            Conditions { network: Network { loss: 0.01, ..modelled }, ..plain.clone() },
        ),
        (
            "simulated lock, an owner stops for 10 ms",
            &[GAP],
            Conditions { owner: Owner::Stops { after, long: 10 * MS }, ..plain.clone() },
        ),
        (
            "simulated lock, an owner dies",
            &[GAP],
            Conditions { owner: Owner::Dies { after }, lasting: Some(4000 * MS), events: u64::MAX, ..plain.clone() },
        ),
        ("simulated lock, ConnectX-7", &[RATE], on("connectx7")?),
        ("simulated lock, InfiniHost", &[RATE], on("infinihost")?),
    ])
}

/// One lock under all conditions.
pub(super) fn measure(load: &Load, lock: &AnyLock, name: &str, origins: u32) -> Result<Vec<Measured>, Failure> {
    let mut results = Vec::new();
    for (what, quantities, conditions) in all(origins)? {
        let outcome = load.run(lock, &conditions);
        for quantity in quantities {
            let value = if *quantity == GAP { outcome.longest_gap.as_nanos() as f64 } else { outcome.rate() };
            results.push(Point::of(what, *quantity).simulated(name, origins + 1, value));
        }
    }
    Ok(results)
}

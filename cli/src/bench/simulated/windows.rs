//! The metrics of jiang-2004, section 6, for windows on the simulated network, in virtual time:
//! they depend on the lock design alone, not on this machine. Processors are not modelled, so that
//! computation takes no time.

use std::cell::Cell;
use std::future::Future;
use std::time::Duration;

use onesided_fabric::World;
use onesided_fabric::remote_memory::RemoteMemory;
use onesided_lock_kit::bench::Counted;
use onesided_sim::{Network, SimFabric, Simulation};
use onesided_windows::{LockDesign, Window};

use crate::bench::prelude::*;
use crate::bench::results::report::{Against, Measured};

type Fabric = Counted<SimFabric>;
type SimulatedWindow = Window<u64, Fabric>;

/// A release by a single operation returns when that is posted.
const RELEASE: &str = "simulated lock: release, until posted";

const OWN_WINDOWS: &str = "simulated lock + unlock, a window for each origin";
const OPERATIONS: &str = "simulated lock + unlock: operations of all ranks";

pub(super) static DESCRIPTIONS: [Description; 5] = [
    Description::of("simulated lock: acquire", &[Shown::new(Quantity::Latency, "acquire")]),
    Description::of(RELEASE, &[Shown::new(Quantity::Latency, "release, posted")]),
    Description::of("simulated lock: release to acquired", &[Shown::new(Quantity::Latency, "release to acquired")]),
    Description {
        benchmark: Name::Is(OWN_WINDOWS),
        sentence: "Each origin with a window of its own, at one target, a modelled microsecond away.",
        shown: &[Shown::new(Quantity::Latency, "lock, unlock")],
    },
    Description {
        benchmark: Name::Is(OPERATIONS),
        sentence: "Reads, writes and atomics that are posted for one acquisition, with so many origins contending.",
        shown: &[Shown::new(Quantity::Operations, "operations")],
    },
];

/// Repetitions of each measurement.
const TIMES: u64 = 100;
/// In nanoseconds: the second origin requests the lock [`LATER`] after the first, which holds it
/// for [`HELD_FOR`], longer than an acquire takes.
const LATER: u64 = 20_000;
const HELD_FOR: u64 = 60_000;
/// From one hand-over to the next, in nanoseconds.
const PERIOD: u64 = 200_000;

/// All metrics of a lock design.
pub(super) fn measure(design: LockDesign, seed: u64) -> Result<Vec<Measured>, Failure> {
    let jobs = Jobs { design, seed };
    let mut results = Vec::new();
    let [acquire, release] = jobs.overhead()?;
    results.push(jobs.measured("simulated lock: acquire", None, Quantity::Latency, 2, acquire));
    results.push(jobs.measured(RELEASE, None, Quantity::Latency, 2, release));
    let held_for = Parameter::new("held for", (HELD_FOR - LATER) as f64, "ns");
    results.push(jobs.measured(
        "simulated lock: release to acquired",
        Some(held_for),
        Quantity::Latency,
        3,
        jobs.delay()?,
    ));
    for origins in [1, 2, 4, 7] {
        let parameter = Parameter::new("origins", f64::from(origins), "1");
        let (nanos, _) = jobs.contend(origins, true)?;
        results.push(jobs.measured(OWN_WINDOWS, Some(parameter.clone()), Quantity::Latency, origins + 1, nanos));
        let (_, operations) = jobs.contend(origins, false)?;
        results.push(jobs.measured(OPERATIONS, Some(parameter), Quantity::Operations, origins + 1, operations));
    }
    Ok(results)
}

/// Simulations of windows with one lock design.
struct Jobs {
    design: LockDesign,
    seed: u64,
}

impl Jobs {
    fn measured(
        &self,
        what: &str,
        parameter: Option<Parameter>,
        quantity: Quantity,
        ranks: u32,
        value: f64,
    ) -> Measured {
        let (what, value) = (what.to_owned(), Summary::of(&[value]));
        Measured {
            what,
            size: None,
            parameter,
            quantity,
            ranks,
            value,
            against: Against::Nothing,
            lock: self.design.name().into(),
        }
    }

    /// Runs a program at all ranks; returns each rank's result.
    fn run<T, R: Future<Output = Result<T, onesided_windows::Error>>>(
        &self,
        ranks: u32,
        program: impl Fn(World<Fabric>) -> R,
    ) -> Result<Vec<T>, Failure> {
        let network = Network { jitter: Duration::from_nanos(200), ..Network::default() };
        let simulation = Simulation::new(network).ranks(ranks).seed(self.seed).until(Duration::from_secs(60));
        let report = simulation.run_direct(|fabric| program(World::new(Counted::new(fabric))));
        let ended = format!("{} in simulation: {}", self.design, report.end);
        let all = report.results.into_iter().map(|result| match result {
            Some(result) => Ok(result?),
            None => Err(Failure::from(ended.clone())),
        });
        all.collect()
    }

    async fn window(&self, world: &World<Fabric>) -> Result<SimulatedWindow, onesided_windows::Error> {
        Window::<u64>::builder().lock(self.design).allocate(world, 8).await
    }

    /// The mean times of acquire and release, with one origin and one target.
    fn overhead(&self) -> Result<[f64; 2], Failure> {
        let all = self.run(2, |world| async move {
            let window = self.window(&world).await?;
            let (now, mut times) = (|| world.fabric().now(), [0; 2]);
            if world.rank() == 0 {
                window.lock_exclusive(1).await?.unlock().await?; // resolves the target
                for _ in 0..TIMES {
                    let begin = now();
                    let epoch = window.lock_exclusive(1).await?;
                    let acquired = now();
                    epoch.unlock().await?;
                    times[0] += acquired - begin;
                    times[1] += now() - acquired;
                }
            }
            window.close().await?;
            Ok(times)
        })?;
        Ok(all[0].map(|time| time as f64 / TIMES as f64))
    }

    /// The mean delay from release to acquisition, with two origins that alternate in acquiring
    /// first, and a target.
    fn delay(&self) -> Result<f64, Failure> {
        let all = self.run(3, |world| async move {
            let window = self.window(&world).await?;
            let begin = world.fabric().now().next_multiple_of(PERIOD) + PERIOD;
            let mut at = Vec::new();
            for handover in 0..TIMES {
                let start = begin + handover * PERIOD;
                if world.rank() == 2 {
                    break;
                }
                if u64::from(world.rank()) == handover % 2 {
                    until(&world, start).await;
                    let epoch = window.lock_exclusive(2).await?;
                    until(&world, start + HELD_FOR).await;
                    at.push(world.fabric().now());
                    epoch.unlock().await?;
                } else {
                    until(&world, start + LATER).await;
                    let epoch = window.lock_exclusive(2).await?;
                    at.push(world.fabric().now());
                    epoch.unlock().await?;
                }
            }
            window.close().await?;
            Ok(at)
        })?;
        let delays = all[0].iter().zip(&all[1]).map(|(one, other)| one.abs_diff(*other) as f64);
        Ok(delays.sum::<f64>() / TIMES as f64)
    }

    /// Origins at one target, each with a window of its own or all with the same: the mean time of
    /// a lock and unlock, and the operations that all ranks post for it.
    fn contend(&self, origins: u32, apart: bool) -> Result<(f64, f64), Failure> {
        let finished = Cell::new(0);
        let finished = &finished;
        let all = self.run(origins + 1, |world| async move {
            let windows = if apart { origins } else { 1 };
            let mut all = Vec::new();
            for _ in 0..windows {
                all.push(self.window(&world).await?);
            }
            let (begin, before) = (world.fabric().now(), world.fabric().operations());
            if world.rank() < origins {
                let window = &all[(world.rank() % windows) as usize];
                for _ in 0..TIMES {
                    window.lock_exclusive(origins).await?.unlock().await?;
                }
                finished.set(finished.get() + 1);
            } else {
                while finished.get() < origins {
                    until(&world, world.fabric().now() + 1_000).await; // operations of a helper thread count, too
                }
            }
            let took = if world.rank() < origins { world.fabric().now() - begin } else { 0 };
            let operations = (world.fabric().operations() - before).total();
            for window in all {
                window.close().await?;
            }
            Ok((took, operations))
        })?;
        let of = |part: &dyn Fn(&(u64, u64)) -> u64| all.iter().map(|one| part(one) as f64).sum::<f64>();
        let each = f64::from(origins) * TIMES as f64;
        Ok((of(&|one| one.0) / each, of(&|one| one.1) / each))
    }
}

/// Lets virtual time pass until `time`.
async fn until(world: &World<Fabric>, time: u64) {
    let fabric = world.fabric();
    let Ok(own) = onesided_fabric::Fabric::world_segment(fabric, fabric.rank()) else { return };
    while fabric.now() < time {
        let Ok(word) = onesided_fabric::Fabric::word_in(fabric, &own, 0) else { return };
        fabric.pause(word, time - fabric.now()).await;
    }
}

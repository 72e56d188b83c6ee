//! The metrics of jiang-2004, section 6, of windows on the simulated network, in virtual time: they tell what a design does,
//! whatever machine this is. A processor is not modelled, so what a target computes is nothing here.

use std::cell::Cell;
use std::future::Future;
use std::time::Duration;

use onesided_fabric::World;
use onesided_fabric::remote_memory::RemoteMemory;
use onesided_lock_kit::bench::Counted;
use onesided_sim::{Network, SimFabric, Simulation};
use onesided_windows::{LockDesign, Window};

use crate::bench::report::{Against, Measured, Metric, Parameter};
use crate::bench::spread::Spread;
use crate::failure::Failure;

type Fabric = Counted<SimFabric>;
type Simulated = Window<u64, Fabric>;

/// A release that one operation does is over when that is posted.
const RELEASE: &str = "simulated lock: release, until posted";

/// How often what is measured is done.
const TIMES: u64 = 100;
/// One origin asks so long after the other, which holds the lock for [`HELD`], longer than an acquire takes.
const LATER: u64 = 20_000;
const HELD: u64 = 60_000;
/// From one turn to the next.
const TURN: u64 = 200_000;

/// All of them, of a lock.
pub(crate) fn paper(design: LockDesign, seed: u64) -> Result<Vec<Measured>, Failure> {
    let jobs = Jobs { design, seed };
    let mut results = Vec::new();
    let [acquire, release] = jobs.overhead()?;
    results.push(jobs.measured("simulated lock: acquire", None, Metric::Latency, 2, acquire));
    results.push(jobs.measured(RELEASE, None, Metric::Latency, 2, release));
    let held = Parameter::new("held for", (HELD - LATER) as f64, "ns");
    results.push(jobs.measured("simulated lock: release to acquired", Some(held), Metric::Latency, 3, jobs.delay()?));
    for origins in [1, 2, 4, 7] {
        let at = Parameter::new("origins", f64::from(origins), "1");
        let (nanos, _) = jobs.contest(origins, true)?;
        results.push(jobs.measured(
            "simulated lock + unlock, a window for each origin",
            Some(at.clone()),
            Metric::Latency,
            origins + 1,
            nanos,
        ));
        let (_, operations) = jobs.contest(origins, false)?;
        results.push(jobs.measured(
            "simulated lock + unlock: operations of all ranks",
            Some(at),
            Metric::Operations,
            origins + 1,
            operations,
        ));
    }
    Ok(results)
}

struct Jobs {
    design: LockDesign,
    seed: u64,
}

impl Jobs {
    fn measured(&self, what: &str, parameter: Option<Parameter>, metric: Metric, ranks: u32, value: f64) -> Measured {
        let (what, value) = (what.to_owned(), Spread::of(&[value]));
        Measured {
            what,
            size: None,
            parameter,
            metric,
            ranks,
            value,
            against: Against::Nothing,
            lock: self.design.name().into(),
        }
    }

    /// What each rank gives, of a program that all of them run.
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

    async fn window(&self, world: &World<Fabric>) -> Result<Simulated, onesided_windows::Error> {
        Window::<u64>::builder().lock(self.design).allocate(world, 8).await
    }

    /// One origin, one target: acquire and release apart.
    fn overhead(&self) -> Result<[f64; 2], Failure> {
        let all = self.run(2, |world| async move {
            let window = self.window(&world).await?;
            let (now, mut times) = (|| world.fabric().now(), [0; 2]);
            if world.rank() == 0 {
                window.lock_exclusive(1).await?.unlock().await?; // the first reaches the target's part
                for _ in 0..TIMES {
                    let begin = now();
                    let epoch = window.lock_exclusive(1).await?;
                    let held = now();
                    epoch.unlock().await?;
                    times[0] += held - begin;
                    times[1] += now() - held;
                }
            }
            window.close().await?;
            Ok(times)
        })?;
        Ok(all[0].map(|time| time as f64 / TIMES as f64))
    }

    /// Two origins, which come first in turns, and a target.
    fn delay(&self) -> Result<f64, Failure> {
        let all = self.run(3, |world| async move {
            let window = self.window(&world).await?;
            let begin = world.fabric().now().next_multiple_of(TURN) + TURN;
            let mut at = Vec::new();
            for turn in 0..TIMES {
                let start = begin + turn * TURN;
                if world.rank() == 2 {
                    break;
                }
                if u64::from(world.rank()) == turn % 2 {
                    until(&world, start).await;
                    let epoch = window.lock_exclusive(2).await?;
                    until(&world, start + HELD).await;
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

    /// Origins at one target, each at a window of its own, or all at the same: how long a lock and unlock took, and the operations that
    /// all ranks posted for each.
    fn contest(&self, origins: u32, apart: bool) -> Result<(f64, f64), Failure> {
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
                    until(&world, world.fabric().now() + 1_000).await; // what a helper posts meanwhile counts
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

/// Has virtual time pass until then.
async fn until(world: &World<Fabric>, time: u64) {
    let fabric = world.fabric();
    let Ok(own) = onesided_fabric::Fabric::world_segment(fabric, fabric.rank()) else { return };
    while fabric.now() < time {
        let Ok(word) = onesided_fabric::Fabric::word_in(fabric, &own, 0) else { return };
        fabric.pause(word, time - fabric.now()).await;
    }
}

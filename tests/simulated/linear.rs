//! Random sections over simulated windows, with a lossy network, cancelled acquires and deaths:
//! their histories are linearizable, for every lock design.

use std::sync::Arc;
use std::time::Duration;

use onesided_fabric::World;
use onesided_instances as _;
use onesided_lock_kit::linear::{Access, DataSection, History, Sections, Step, sections};
use onesided_sim::{End, Network, SimFabric, Simulation};
use onesided_windows::{Error, LockDesign, Mode, Window};
use proptest::prelude::*;

use crate::common::pause_until;

const WORDS: usize = 4;
/// When the sections begin, in nanoseconds; the window exists by then.
const BEGIN: u64 = 50_000_000;
/// When all have ended, including recoveries.
const OVER: u64 = 60_000_000_000;
/// A death occurs up to a hundred times this after the beginning: most sections are not over then.
const DEATHS: u64 = 1_500;

async fn section(
    scores: &Window<u64, SimFabric>,
    history: &History,
    number: u64,
    section: DataSection,
) -> Result<(), Error> {
    let process = scores.world().rank();
    let exclusive = section.mode == Mode::Exclusive;
    if section.cancelled.is_some() {
        match exclusive {
            true => drop(scores.lock_exclusive(0)),
            false => drop(scores.lock_shared(0)),
        }
        return Ok(());
    }
    let call = history.invoked(process);
    let request = if exclusive { scores.lock_exclusive(0) } else { scores.lock_shared(0) };
    let epoch = request.recover().await?;
    let mut written = Vec::new();
    for (step, (access, at)) in section.accesses.iter().enumerate() {
        match access {
            Access::Read => {
                let mut found = [0];
                let step = history.step(call, Step::Read(*at, None));
                epoch.get(*at, &mut found).await?;
                history.answered(call, step, found[0]);
            }
            Access::Write if exclusive => {
                let value = (1 + u64::from(process)) << 40 | number << 20 | step as u64;
                written.push(history.step(call, Step::Write(*at, value, false)));
                epoch.put(*at, &[value])?;
            }
            Access::Add if exclusive => {
                epoch.flush().await?;
                let step = history.step(call, Step::Add(*at, 1, None));
                history.answered(call, step, epoch.fetch_add(*at, 1).await?);
            }
            Access::Flush => {
                epoch.flush().await?;
                written.drain(..).for_each(|step| history.answered(call, step, 0));
            }
            Access::Write | Access::Add => {}
        }
    }
    epoch.unlock().await?;
    history.returned(call);
    Ok(())
}

fn run(design: LockDesign, case: &Sections, seed: u64) -> Result<(), String> {
    let history = Arc::new(History::default());
    let network = Network { loss: 0.01, jitter: Duration::from_micros(3), ..Network::default() };
    let ranks = case.programs.len() as u32;
    let mut simulation = Simulation::new(network).ranks(ranks).per_host(1 + (seed % 3) as u32).seed(seed);
    // Rank 0 has the lock and the data.
    let dies = case.death.map(|plan| (1 + plan.rank as u32 % (ranks - 1), BEGIN + DEATHS * plan.when as u64));
    if let Some((rank, time)) = dies {
        simulation = simulation.kill(rank, Duration::from_nanos(time));
    }
    let report = simulation.run({
        let (history, programs) = (Arc::clone(&history), case.programs.clone());
        move |world: World<SimFabric>| {
            let (history, programs) = (Arc::clone(&history), programs.clone());
            async move {
                let scores = Window::<u64>::builder().lock(design).name("scores").allocate(&world, WORDS).await?;
                pause_until(&world, BEGIN).await;
                for (number, one) in (0..).zip(programs[world.rank() as usize].clone()) {
                    section(&scores, &history, number, one).await?;
                }
                pause_until(&world, OVER).await;
                Ok::<_, Error>(())
            }
        }
    });
    if report.end != End::Finished {
        return Err(format!("{design:?}: {:?}", report.end));
    }
    let ended = report.results.iter().zip(0..).filter(|(result, _)| result.is_some()).map(|(_, rank)| rank);
    if !ended.eq((0..ranks).filter(|rank| dies.is_none_or(|(dead, _)| *rank != dead))) {
        return Err(format!("{design:?}: not all who live ended"));
    }
    if let Some(failed) = report.results.iter().flatten().find(|result| result.is_err()) {
        return Err(format!("{design:?}: {failed:?}"));
    }
    history.check(WORDS).map_err(|what| format!("{design:?}: {what}"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, max_shrink_iters: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn histories_over_windows_are_linearizable(case in sections(false), seed in any::<u64>()) {
        for design in LockDesign::ALL {
            run(*design, &case, seed).map_err(TestCaseError::fail)?;
        }
    }

    #[test]
    fn histories_with_deaths_are_linearizable(case in sections(true), seed in any::<u64>()) {
        for design in LockDesign::ALL {
            run(*design, &case, seed).map_err(TestCaseError::fail)?;
        }
    }
}

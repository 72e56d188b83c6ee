//! Rank 2 drops a wait of general active target synchronization, for a signal or for an operation at each
//! of its `Pending`s in turn, or ends it by a deadline there, and goes on as if it had not begun: nothing is
//! lost or counted twice.

use std::time::Duration;

use onesided_fabric::World;
use onesided_fabric::remote_memory::RemoteMemory as _;
use onesided_sim::{End, Network, SimFabric, Simulation};
use onesided_windows::{Error, Op, Shape, Window};

use crate::common::{bound, pause_until, variants};
use crate::left::{Left, at_all_times};

variants! {
    /// What rank 2 leaves.
    Wait, WAITS:
    Start,
    Complete,
    Exposure,
    /// It then waits for the same exposure.
    SameExposure,
    Signal,
    AnySignal,
    FirstSignal,
    PutSignal,
    Fetch,
    Accumulate,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    wait: Wait,
    left: Left,
    /// How long rank 2 takes before each round, and the others, in nanoseconds.
    times: (u64, u64),
}

const ROUNDS: u64 = 3;
/// The round in which rank 2 leaves its wait.
const LEFT: u64 = 2;
/// Elements of each rank: one that each rank puts to, then one that each signals.
const SIGNALS: usize = 4;
/// Those of a shape with so many pieces that a helper thread carries it.
const COLUMN: usize = 2 * SIGNALS;
const PIECES: usize = 64;
const LEN: usize = COLUMN + 2 * PIECES - 1;

/// What a rank applies in a round.
const fn bit(rank: u32, round: u64) -> u64 {
    1 << (rank as u64 * (ROUNDS + 1) + round)
}

/// One round of a rank. Returns whether it left its wait, or at rank 0 whether it was told that rank 2 did.
async fn round(window: &Window<u64, SimFabric>, case: Case, round: u64) -> Result<bool, Error> {
    let (me, local) = (window.world().rank(), window.local());
    let of = |wait| if (case.wait, me, round) == (wait, 2, LEFT) { case.left } else { Left::NEVER };
    let (late, mut is_left) = (Error::is_timed_out, false);
    match case.wait {
        Start | Complete | Exposure | SameExposure => {
            let to_two = matches!(case.wait, Exposure | SameExposure);
            let (targets, origins): (&[u32], &[u32]) = if to_two { (&[2], &[0, 1, 3]) } else { (&[0, 3], &[1, 2]) };
            if origins.contains(&me) {
                let start = of(Start);
                let started = start.run(window.start(targets).deadline(start.deadline()), late).await?;
                is_left = started.is_none();
                let epoch = if let Some(epoch) = started { epoch } else { window.start(targets).await? };
                for target in targets {
                    epoch.at(*target)?.put(me as usize, &[round])?;
                }
                let complete = of(Complete);
                is_left |= complete.run(epoch.complete().deadline(complete.deadline()), late).await?.is_none();
            } else {
                let (mut exposure, one, same) = (window.post(origins)?, of(Exposure), of(SameExposure));
                if case.wait == SameExposure {
                    is_left = same.run(&mut exposure, late).await?.is_none();
                    if is_left {
                        exposure.await?;
                    }
                } else if one.run(exposure.deadline(one.deadline()), late).await?.is_none() {
                    return Ok(true);
                }
                for origin in origins {
                    assert_eq!(local.get(*origin as usize)?, round, "{case:?}: of rank {origin}");
                }
            }
        }
        Signal | AnySignal | FirstSignal if me == 2 => {
            let from = |origin| local.wait_until_from(origin, SIGNALS + origin as usize, move |value| value >= round);
            for origin in [0, 1, 3] {
                let left = of(case.wait);
                is_left |= match case.wait {
                    Signal => left.run(from(origin).deadline(left.deadline()), late).await?.is_none(),
                    AnySignal => {
                        let any = local.wait_until(SIGNALS + origin as usize, move |value| value >= round);
                        left.run(any.deadline(left.deadline()), late).await?.is_none()
                    }
                    _ => {
                        let first = local.wait_until_any([0, 1, 3].map(from));
                        left.run(first.deadline(left.deadline()), late).await?.is_none()
                    }
                };
                from(origin).await?;
                assert!(local.get(origin as usize)? >= round, "{case:?}: the data of rank {origin}");
            }
        }
        Signal | AnySignal | FirstSignal => {
            let open = window.no_check();
            let access = open.at(2)?;
            access.put_signal(me as usize, &[round], access, SIGNALS + me as usize, round)?;
        }
        PutSignal if me == 2 => {
            let (open, left, values) = (window.no_check(), of(PutSignal), [round; PIECES]);
            let (access, column) = (open.at(0)?, Shape::Vector { count: PIECES, block: 1, stride: 2 });
            let put = |signal| access.put_signal_shaped(COLUMN, column, &values, access, SIGNALS, signal);
            is_left = left.run(put(2 * round).deadline(left.deadline()), late).await?.is_none();
            if is_left {
                put(2 * round + 1).await?; // the first has not signalled
            }
            local.wait_until_from(0, SIGNALS, |seen| seen == round).await?;
        }
        PutSignal if me == 0 => {
            let signal = local.wait_until_from(2, SIGNALS, |signal| signal >= 2 * round).await?;
            let put = local.read(COLUMN..LEN);
            assert!(put.iter().step_by(2).all(|value| *value == round), "{case:?}: {put:?}");
            window.no_check().at(2)?.signal(SIGNALS, round)?;
            is_left = signal == 2 * round + 1;
        }
        PutSignal => {}
        Fetch | Accumulate => {
            let (open, left) = (window.no_check(), of(case.wait));
            let access = open.at(0)?;
            is_left = match case.wait {
                Fetch => left.run(access.fetch_and_op(0, bit(me, round), Op::Xor), late).await?.is_none(),
                _ => left.run(access.accumulate(0, &[bit(me, round); 4], Op::Xor), late).await?.is_none(),
            };
            access.flush().await?;
        }
    }
    Ok(is_left)
}

async fn play(world: World<SimFabric>, case: Case) -> Result<(bool, Vec<u64>), Error> {
    let window = Window::<u64>::builder().pack_shapes(case.wait == PutSignal).allocate(&world, LEN).await?;
    let mut is_left = false;
    for number in 1..=ROUNDS {
        let time = if world.rank() == 2 { case.times.0 } else { case.times.1 };
        pause_until(&world, world.fabric().now() + time).await;
        is_left |= round(&window, case, number).await?;
    }
    world.barrier().await.expect("a barrier");
    let counted = window.local().read(0..4);
    window.close().await?;
    Ok((is_left, counted))
}

/// Runs a case, and returns whether rank 2 left its wait.
fn is_left(case: Case) -> bool {
    let simulation = Simulation::new(Network::default()).ranks(4).stalled_after(Duration::from_secs(60));
    let report = simulation.run(move |world| play(world, case));
    assert_eq!(report.end, End::Finished, "{case:?}");
    let outcomes = report.results.into_iter().flatten();
    let outcomes: Vec<_> =
        outcomes.map(|outcome| outcome.unwrap_or_else(|error| panic!("{case:?}: {error}"))).collect();
    let (is_left, _) = outcomes[2];
    let (told, counted) = &outcomes[0];
    match case.wait {
        PutSignal => assert_eq!(*told, is_left, "{case:?}"),
        Fetch | Accumulate => {
            let elements = if case.wait == Fetch { 1 } else { 4 };
            let all = (0..4).flat_map(|rank| (1..=ROUNDS).map(move |round| bit(rank, round))).sum::<u64>();
            let is_right = |count: &u64| *count == all || is_left && *count == all - bit(2, LEFT);
            assert!(counted[..elements].iter().all(is_right), "{case:?}: {counted:?}");
        }
        _ => {}
    }
    is_left
}

#[test]
fn a_wait_that_is_left_loses_nothing() {
    for &wait in WAITS {
        let mut pendings = 0;
        for times in [(0, 0), (0, 12_000), (12_000, 0)].into_iter().take(bound(2, 3)) {
            pendings += at_all_times(|left| is_left(Case { wait, left, times }));
        }
        assert!(pendings > 0, "{wait:?}");
    }
}

//! Rank 2 drops each collective at each of its `Pending`s in turn, or ends it by a deadline there, and
//! then leaves. The others pass, or are told that it left; nothing hangs, and what they passed is complete.
//! If it stays, the world and other windows go on after a collective of a window or of a split.

use std::time::Duration;

use onesided_fabric::World;
use onesided_fabric::remote_memory::{Fault, FaultKind, Rank, RemoteMemory as _};
use onesided_sim::{End, Network, SimFabric, Simulation};
use onesided_windows::{LockTable, Mutex, Window};

use crate::common::{bound, pause_until, variants};
use crate::left::{Left, at_all_times};

variants! {
    Call, CALLS:
    Barrier,
    AllGather,
    Split,
    /// The barrier of a split.
    OfSplit,
    Allocate,
    Create,
    Table,
    Value,
    Fence,
    NextFence,
    LastFence,
    Close,
    CloseInto,
}

/// What a rank has for its calls.
struct Ranks {
    world: World<SimFabric>,
    half: World<SimFabric>,
    window: Window<u64, SimFabric>,
    /// Over a vector.
    over: Window<u64, SimFabric>,
    /// Those that it made.
    values: std::sync::Mutex<Vec<Mutex<u64, SimFabric>>>,
}

/// Does nothing more than a collective does.
impl Ranks {
    /// Makes the call; returns whether it was left.
    async fn call(&self, call: Call, left: Left) -> Result<bool, Fault> {
        let Self { world, half, window, over, values } = self;
        let (after, me) = (left.deadline(), world.rank() as usize);
        // The errors of windows and of worlds are of two types.
        macro_rules! leave {
            ($request:expr) => {
                left.run($request.deadline(after), |error| error.is_timed_out()).await
            };
        }
        macro_rules! window {
            ($request:expr) => {
                leave!($request).map_err(|error| error.fault().unwrap_or_else(|| panic!("{error}")))
            };
        }
        Ok(match call {
            Barrier => leave!(world.barrier()).map_err(|error| error.fault())?.is_none(),
            OfSplit => leave!(half.barrier()).map_err(|error| error.fault())?.is_none(),
            AllGather => {
                let all = leave!(world.all_gather(&[me as u8; 40])).map_err(|error| error.fault())?;
                assert!(all.as_ref().is_none_or(|all| (0..4).all(|rank| all[rank] == [rank as u8; 40])), "{all:?}");
                all.is_none()
            }
            Split => {
                let split = leave!(world.split(world.rank() % 2, 0)).map_err(|error| error.fault())?;
                assert!(split.as_ref().is_none_or(|split| split.size() == 2));
                split.is_none()
            }
            Allocate => window!(Window::<u64>::builder().allocate(world, 3))?.is_none(),
            Create => window!(Window::create(world, vec![7_u64; 5]))?.is_none(),
            Table => window!(LockTable::new(world, 10))?.is_none(),
            Value => match window!(Mutex::new(world, 1, 5_u64))? {
                Some(value) => {
                    let read = value.lock().await.map(|guard| *guard);
                    assert!(read.as_ref().is_ok_and(|read| *read == 5), "{read:?}");
                    values.lock().unwrap().push(value);
                    false
                }
                None => true,
            },
            Fence => window!(window.fence())?.is_none(),
            NextFence | LastFence => {
                let epoch = window.fence().await.map_err(|error| error.fault().unwrap())?;
                for target in 0..4 {
                    epoch.at(target).unwrap().put(me, &[1]).unwrap();
                }
                let is_left =
                    if call == LastFence { window!(epoch.end())?.is_none() } else { window!(epoch.fence())?.is_none() };
                assert!(is_left || window.local().read(0..4) == [1; 4], "a put is missing");
                is_left
            }
            Close => window!(window.clone().close())?.is_none(),
            CloseInto => {
                let close = over.clone().close_into().deadline(after);
                let vector = left.run(close, |error| error.error().is_timed_out()).await;
                let vector = vector.map_err(|error| error.error().fault().unwrap())?;
                assert!(vector.as_ref().is_none_or(|vector| *vector == [me as u64; 4]), "{vector:?}");
                vector.is_none()
            }
        })
    }
}

#[derive(Clone, Copy, Debug)]
struct Case {
    call: Call,
    left: Left,
    /// Whether rank 2 stays: the others then have deadlines.
    stays: bool,
    /// When rank 2 makes the call, and when the others do, in nanoseconds.
    times: (u64, u64),
}

type Outcomes = (Result<bool, Fault>, Result<bool, Fault>);

/// What a rank does: the call twice, between other operations.
async fn play(world: World<SimFabric>, Case { call, left, stays, times }: Case) -> Outcomes {
    let half = world.split(world.rank() % 2, 0).await.unwrap();
    let busy = Window::<u64>::builder().allocate(&world, 1).await.unwrap();
    let window = Window::<u64>::builder().name("left").allocate(&world, 4).await.unwrap();
    let over = Window::create(&world, vec![u64::from(world.rank()); 4]).await.unwrap();
    let ranks = Ranks { world, half, window, over, values: std::sync::Mutex::default() };
    let world = &ranks.world;
    world.barrier().await.unwrap();
    let begun = world.fabric().now();
    if stays {
        pause_until(world, begun + if world.rank() == 2 { times.0 } else { times.1 }).await;
        let left = if world.rank() == 2 { left } else { Left::After(Duration::from_millis(1)) };
        let called = ranks.call(call, left).await;
        world.barrier().await.unwrap();
        busy.fence().await.unwrap().end().await.unwrap();
        return (called, Ok(false));
    }
    let count = async || {
        let epoch = busy.lock_exclusive(0).await?;
        epoch.fetch_add(0, 1).await?;
        epoch.unlock().await
    };
    if world.rank() == 2 {
        pause_until(world, begun + times.0).await;
        let first = ranks.call(call, left).await;
        count().await.unwrap();
        // The documented ways to go on: none but to leave. A rank that tries is told so.
        let again = ranks.call(call, Left::After(Duration::from_millis(1))).await;
        count().await.unwrap();
        return (first, again);
    }
    pause_until(world, begun + times.1 * u64::from(1 + world.rank())).await;
    count().await.unwrap();
    let outcomes = (ranks.call(call, Left::NEVER).await, ranks.call(call, Left::NEVER).await);
    // The other two operate on its memory, and ask whether it has left.
    pause_until(world, begun + 2_000_000_000).await;
    outcomes
}

/// Runs a case, and returns whether rank 2 left its first call.
fn is_left(case: Case) -> bool {
    let simulation = Simulation::new(Network::default()).ranks(4).per_host(2).stalled_after(Duration::from_secs(60));
    let report = simulation.run(move |world| play(world, case));
    assert_eq!(report.end, End::Finished, "{case:?}");
    let outcomes: Vec<Outcomes> = report.results.into_iter().flatten().collect();
    let closes = matches!(case.call, Close | CloseInto);
    let closed = |outcome: Result<bool, Fault>| outcome.map_err(Fault::kind) == Err(FaultKind::Closed);
    let (first, again) = outcomes[2];
    if case.stays {
        assert!(outcomes.iter().all(|(called, _)| called.is_ok()), "{case:?}: {outcomes:?}");
        return first == Ok(true);
    }
    let is_left = first.unwrap_or_else(|fault| panic!("{case:?}: {fault}"));
    for rank in [0, 1, 3] {
        let (first, again) = outcomes[rank];
        if is_left {
            let is_told = |outcome: Result<bool, Fault>| match outcome {
                Ok(_) => true,
                Err(fault) => match fault.kind() {
                    FaultKind::PeerLeft => fault.rank() == Some(Rank(if case.call == OfSplit { 1 } else { 2 })),
                    FaultKind::OutOfStep => true,
                    kind => closes && kind == FaultKind::Closed,
                },
            };
            assert!(is_told(first) && is_told(again), "{case:?}: rank {rank}: {first:?}, {again:?}");
        } else {
            assert_eq!(first, Ok(false), "{case:?}: rank {rank}");
            assert!(again == Ok(false) || closes && closed(again), "{case:?}: rank {rank}: {again:?}");
        }
    }
    let is_refused = |kind| kind == FaultKind::OutOfStep || closes && kind == FaultKind::Closed;
    let goes_on = if is_left { again.map_or_else(|fault| is_refused(fault.kind()), |_| true) } else { true };
    assert!(goes_on, "{case:?}: {again:?}");
    is_left
}

#[test]
fn a_collective_that_is_left_hangs_nobody() {
    for &call in CALLS {
        let mut pendings = 0;
        for times in [(0, 0), (0, 15_000), (40_000, 1_000)].into_iter().take(bound(2, 3)) {
            pendings += at_all_times(|left| is_left(Case { call, left, stays: false, times }));
            if matches!(call, OfSplit | Fence | NextFence | LastFence | Close | CloseInto) {
                at_all_times(|left| is_left(Case { call, left, stays: true, times }));
            }
        }
        assert!(pendings > 0, "{call:?}");
    }
}

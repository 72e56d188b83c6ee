//! Locks whose owner is believed dead and lives on: no survivor holds the lock while an operation
//! of that owner can still take effect at its home.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use onesided_fabric::World;
use onesided_fabric::remote_memory::RemoteMemory;
use onesided_instances as _;
use onesided_sim::{Network, SimFabric, Simulation};
use onesided_windows::{Error, LockDesign, Window};

use crate::common::{bound, pause_until};

const MS: u64 = 1_000_000;
/// When rank 2 holds the lock, and when its host falls silent.
const BEGIN: u64 = 40 * MS;
const SUSPICION: u64 = 50 * MS;
const LONG: Duration = Duration::from_secs(20);

/// Three hosts of two ranks. The second host, ranks 2 and 3, is silent from `SUSPICION` on, and the
/// others learn of it within `spread`.
fn simulation(seed: u64, spread: u64) -> Simulation {
    let network = Network { detection_jitter: Duration::from_nanos(spread), ..Network::default() };
    let silent = Duration::from_nanos(SUSPICION);
    Simulation::new(network).ranks(6).per_host(2).seed(seed).suspect(2, silent).suspect(3, silent)
}

async fn window(world: &World<SimFabric>, design: LockDesign) -> Result<Window<u64, SimFabric>, Error> {
    let window = Window::builder().lock(design).allocate(world, 4).await?;
    pause_until(world, BEGIN).await;
    Ok(window)
}

/// Rank 2 goes on writing until an operation fails. A survivor that has recovered the lock finds
/// what it wrote itself.
fn writers(design: LockDesign, seed: u64, spread: u64) -> Result<u32, String> {
    let report = simulation(seed, spread).run(move |world| async move {
        let scores = window(&world, design).await?;
        let (me, mut wrong, mut entered) = (world.rank(), Vec::new(), 0);
        if me == 2 {
            let epoch = scores.lock_exclusive(0).await?;
            while world.fabric().now() < SUSPICION + 8_000 * MS {
                epoch.put(0, &[2])?;
                if epoch.flush().await.is_err() {
                    break;
                }
                pause_until(&world, world.fabric().now() + MS).await;
            }
            std::mem::forget(epoch);
        } else if me != 3 {
            pause_until(&world, SUSPICION + u64::from(me) * 100_000).await;
            for round in 0..3 {
                let Ok(epoch) = scores.lock_exclusive(0).recover().deadline(LONG).await else { continue };
                let mine = u64::from(me) * 1000 + round;
                epoch.put(0, &[mine])?;
                epoch.flush().await?;
                pause_until(&world, world.fabric().now() + 20 * MS).await;
                let mut found = [0];
                epoch.get(0, &mut found).await?;
                if found != [mine] {
                    wrong.push(format!("{design} seed {seed}: rank {me} wrote {mine} and found {found:?}"));
                }
                epoch.unlock().await?;
                entered += 1;
            }
        }
        pause_until(&world, 60_000 * MS).await;
        Ok::<_, Error>((wrong, entered))
    });
    let mut entered = 0;
    for rank in [0, 1, 4, 5] {
        match report.results[rank].as_ref() {
            Some(Ok((wrong, count))) if wrong.is_empty() => entered += count,
            Some(Ok((wrong, _))) => return Err(wrong.join("; ")),
            other => return Err(format!("{design} seed {seed} rank {rank}: {other:?}, {}", report.end)),
        }
    }
    Ok(entered)
}

/// Rank 2 releases its shared lock late. The survivors take the lock in turns meanwhile.
fn readers(design: LockDesign, seed: u64, release: u64) -> Result<u32, String> {
    let wrong = Arc::new(Mutex::new(Vec::new()));
    let inside = Arc::new(Mutex::new((0_i32, 0_i32)));
    let seen = Arc::clone(&wrong);
    let report = simulation(seed, 10_000 * MS).run(move |world| {
        let (wrong, inside) = (Arc::clone(&seen), Arc::clone(&inside));
        async move {
            let scores = window(&world, design).await?;
            let (me, mut entered) = (world.rank(), 0);
            if me == 2 {
                let epoch = scores.lock_shared(0).await?;
                pause_until(&world, SUSPICION + release).await;
                let _ = epoch.unlock().await;
            } else if me != 3 {
                pause_until(&world, SUSPICION + if me == 4 { 10 } else { 2_000 + u64::from(me) } * MS).await;
                while world.fabric().now() < SUSPICION + 12_000 * MS {
                    let writes = me == 4;
                    let request = if writes { scores.lock_exclusive(0) } else { scores.lock_shared(0) };
                    let Ok(epoch) = request.recover().deadline(LONG).await else { continue };
                    let enter = |by: i32| {
                        let mut inside = inside.lock().unwrap();
                        *(if writes { &mut inside.0 } else { &mut inside.1 }) += by;
                        if inside.0 > 1 || (inside.0 > 0 && inside.1 > 0) {
                            let (now, found) = (world.fabric().now(), *inside);
                            let what = format!("{design} seed {seed} release {release}: {found:?} at {now} by {me}");
                            wrong.lock().unwrap().push(what);
                        }
                    };
                    enter(1);
                    pause_until(&world, world.fabric().now() + if writes { 100 } else { 2_000 } * MS).await;
                    enter(-1);
                    epoch.unlock().await?;
                    entered += 1;
                    pause_until(&world, world.fabric().now() + 50 * MS).await;
                }
            }
            pause_until(&world, 90_000 * MS).await;
            Ok::<_, Error>(entered)
        }
    });
    if let Some(first) = wrong.lock().unwrap().first() {
        return Err(first.clone());
    }
    let mut entered = 0;
    for rank in [0, 1, 4, 5] {
        match report.results[rank].as_ref() {
            Some(Ok(count)) => entered += count,
            other => return Err(format!("{design} seed {seed} rank {rank}: {other:?}, {}", report.end)),
        }
    }
    Ok(entered)
}

fn none_wrong(outcomes: impl Iterator<Item = Result<u32, String>>) {
    let (mut wrong, mut entered) = (Vec::new(), 0);
    for outcome in outcomes {
        match outcome {
            Ok(count) => entered += count,
            Err(what) => wrong.push(what),
        }
    }
    assert!(wrong.is_empty(), "{} stories, such as\n{}", wrong.len(), wrong.join("\n"));
    assert!(entered > 0, "no survivor ever held the lock");
}

#[test]
fn a_recovering_owner_is_alone() {
    none_wrong(LockDesign::ALL.iter().flat_map(|design| {
        (0..bound(2, 4)).map(|seed| writers(*design, seed, if seed % 2 == 0 { 50 } else { 5_000 } * MS))
    }));
}

/// By seeds that showed a writer beside a reader before locks asked their homes.
#[test]
fn a_late_release_of_a_reader_takes_no_other_away() {
    let seeds = |design: LockDesign| match design.name() {
        "mcs" => vec![26, 36],
        "ticket" => vec![18, 23, 28, 33],
        "fetch-add-queue" => vec![8, 18, 33, 39],
        _ => (1..=bound(1, 2)).collect(),
    };
    none_wrong(LockDesign::ALL.iter().flat_map(|design| {
        let times = seeds(*design).into_iter().flat_map(|seed| [2_500, 3_500].map(|release| (seed, release * MS)));
        times.map(|(seed, release)| readers(*design, seed, release)).collect::<Vec<_>>()
    }));
}

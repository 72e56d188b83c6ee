//! Lock, operate and unlock in one call.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use onesided_fabric::remote_memory::RemoteMemory;
use onesided_fabric::{Fabric, World};
use onesided_sim::{End, Network, SimFabric, Simulation};
use onesided_windows::{Error, Window};

use crate::{Outcome, scenario};

scenario!(locked_operations, calls_exclude_one_another_and_locks, [2, 4]);
scenario!(locked_put, the_next_owner_sees_the_put, [3]);
scenario!(locked_errors, a_refused_operation_leaves_nothing_locked, [2]);

/// Polls once, then drops.
async fn cancel<H: Future + Unpin>(mut handle: H) {
    poll_fn(|cx| {
        let _ = Pin::new(&mut handle).poll(cx);
        Poll::Ready(())
    })
    .await;
}

/// Records of equal words, incremented by calls, under locks, and by calls that are cancelled.
async fn calls_exclude_one_another_and_locks<F: Fabric>(world: World<F>) -> Outcome {
    const LEN: usize = 40;
    const ROUNDS: u64 = 24;
    let window = Window::<u64>::builder().allocate(&world, LEN).await?;
    let attempts = Window::<u64>::builder().allocate(&world, 1).await?;
    let all = attempts.lock_all().await?;
    let home = window.locked(0);
    let add = |record: &mut [u64]| {
        assert!(record.iter().all(|word| *word == record[0]), "{record:?}");
        record.iter_mut().for_each(|word| *word += 1);
        record[0]
    };
    let (mut done, mut last) = (0, 0);
    for round in 0..ROUNDS {
        let mut record = [0; LEN];
        match (round + u64::from(world.rank())) % 6 {
            0 | 1 => {
                last = home.update(0, &mut record, add).await?;
                done += 1;
            }
            2 => {
                home.get(0, &mut record).await?;
                assert_eq!(record, [record[0]; LEN]);
                assert!(record[0] >= last, "it sees what it has put");
            }
            3 => {
                let epoch = window.lock_exclusive(0).await?;
                epoch.get(0, &mut record).await?;
                add(&mut record);
                epoch.put(0, &record)?;
                epoch.unlock().await?;
                done += 1;
            }
            4 => drop(home.update(0, &mut record, |_| unreachable!("nobody waits for it"))),
            _ => {
                // Whether the change happens depends on timing; if it does, it is put and counted.
                let mut added = false;
                cancel(
                    home.update(0, &mut record, |record| {
                        added = true;
                        add(record)
                    })
                    .into_future(),
                )
                .await;
                done += u64::from(added);
            }
        }
    }
    all.at(0).await?.fetch_add(0, done).await?;
    all.unlock_all().await?;
    world.barrier().await.unwrap();
    if world.rank() == 0 {
        let mut record = [0; LEN];
        home.get(0, &mut record).await?;
        assert_eq!(record, [attempts.local().read(0..1)[0]; LEN]);
    }
    attempts.close().await?;
    window.close().await
}

async fn the_next_owner_sees_the_put<F: Fabric>(world: World<F>) -> Outcome {
    const LEN: usize = 700;
    let window = Window::<u64>::builder().allocate(&world, LEN).await?;
    let next = (world.rank() + 1) % world.size();
    for round in 1..8 {
        let home = window.locked(next);
        home.put(0, &[round; LEN]).await?;
        let mut found = [0; LEN];
        home.get(0, &mut found).await?;
        assert_eq!(found, [round; LEN]);
        home.flush().await?;
        world.barrier().await.unwrap();
        assert_eq!(window.local().read(0..LEN), [round; LEN]);
        world.barrier().await.unwrap();
    }
    window.close().await
}

async fn a_refused_operation_leaves_nothing_locked<F: Fabric>(world: World<F>) -> Outcome {
    let window = Window::<u16>::builder().name("small").allocate(&world, 3).await?;
    if world.rank() == 0 {
        let home = window.locked(1);
        let mut four = [0; 4];
        assert!(matches!(home.get(0, &mut four).await, Err(Error::Range { .. })));
        assert!(matches!(home.put(1, &[1; 3]).await, Err(Error::Range { .. })));
        assert!(matches!(home.update(0, &mut four, |_| ()).await, Err(Error::Range { .. })));
        assert!(matches!(window.locked(2).put(0, &[1]).await, Err(Error::Rank { .. })));
        assert!(matches!(window.locked(2).flush().await, Err(Error::Rank { .. })));
        // Behind an owner.
        let epoch = window.lock_exclusive(1).await?;
        let error = home.put(0, &[1]).deadline(std::time::Duration::from_millis(2)).await.unwrap_err();
        assert!(error.is_timed_out());
        epoch.unlock().await?;
        window.lock_exclusive(1).await?.unlock().await?;
    }
    world.barrier().await.unwrap();
    assert_eq!(window.local().read(0..3), [0; 3]);
    window.close().await
}

/// Uncontended, over a network: one round trip, where separate lock, get, put and unlock take
/// three.
#[test]
fn an_update_takes_one_round_trip() {
    async fn times(world: World<SimFabric>) -> Result<[u64; 4], Error> {
        let window = Window::<u64>::builder().allocate(&world, 8).await?;
        let mut times = [0; 4];
        if world.rank() == 0 {
            let now = || world.fabric().now();
            let (home, mut record) = (window.locked(1), [0; 8]);
            home.get(0, &mut record).await?; // first access to the target
            home.flush().await?;
            let begin = now();
            let epoch = window.lock_exclusive(1).await?;
            epoch.get(0, &mut record).await?;
            epoch.put(0, &record)?;
            epoch.unlock().await?;
            times[0] = now() - begin;
            home.flush().await?;
            for (at, time) in times.iter_mut().enumerate().skip(1) {
                let begin = now();
                match at {
                    1 => home.update(0, &mut record, |record| record[0] += 1).await?,
                    2 => home.put(0, &record).await?,
                    _ => home.get(0, &mut record).await?,
                }
                *time = now() - begin;
                home.flush().await?;
            }
        }
        window.close().await?;
        Ok(times)
    }
    let report = Simulation::new(Network::default()).run(times);
    assert_eq!(report.end, End::Finished);
    let times = report.results[0].as_ref().unwrap().as_ref().unwrap();
    let round_trip = 2_000..3_000; // of the default network: 1 us each way, plus the cards
    assert!(times[0] > 3 * round_trip.start, "{times:?}");
    assert!(times[1..].iter().all(|time| round_trip.contains(time)), "{times:?}");
}

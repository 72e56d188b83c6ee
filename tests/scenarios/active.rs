//! Active synchronisation: fences, and post, start, complete, wait.

use onesided_fabric::{Fabric, World};
use onesided_windows::{Error, Op, Window};

use crate::{Outcome, is_pending, pause, scenario};

scenario!(fence, fences_make_all_puts_visible, [1, 2, 5]);
scenario!(fence_accumulates, fences_complete_posted_sums, [3]);
scenario!(putpscw, a_ring_of_puts, [2, 6]);
scenario!(pscw_ordering, each_access_is_behind_the_last_exposure, [2]);
scenario!(pscw_groups, many_origins_of_many_targets, [5]);
scenario!(pscw_to_itself, a_rank_accesses_its_own_memory, [1, 3]);
scenario!(pscw_nocheck, what_is_known_to_be_exposed_is_not_looked_at, [2]);
scenario!(pscw_test, a_target_looks_while_it_goes_on, [3]);
scenario!(pscw_dropped, a_dropped_access_is_complete, [2]);
scenario!(pscw_overlapping, an_open_access_keeps_back_those_behind_it, [2, 3]);
scenario!(pscw_retried, a_start_that_failed_is_tried_again, [2]);

async fn fences_make_all_puts_visible<F: Fabric>(world: World<F>) -> Outcome {
    let (me, size) = (world.rank(), world.size());
    let window = Window::<u32>::builder().allocate(&world, size as usize).await?;
    let mut epoch = window.fence().await?;
    for round in 1..8 {
        for target in 0..size {
            epoch.at(target)?.put(me as usize, &[round * (me + 1)])?;
        }
        epoch = epoch.fence().await?;
        let expected: Vec<u32> = (1..=size).map(|rank| round * rank).collect();
        assert_eq!(window.local().read(0..size as usize), expected);
        let mut there = vec![0; size as usize];
        epoch.at((me + 1) % size)?.get(0, &mut there).await?;
        assert_eq!(there, expected);
        epoch = epoch.fence().await?;
        // A rank's own stores are visible after the next fence, too.
        window.local().write(me as usize, &[1000 + round])?;
        epoch = epoch.fence().await?;
        let mut there = [0];
        epoch.at((me + 1) % size)?.get(((me + 1) % size) as usize, &mut there).await?;
        assert_eq!(there, [1000 + round]);
        epoch = epoch.fence().await?;
    }
    assert!(matches!(epoch.at(size), Err(Error::Rank { .. })));
    epoch.end().await?;
    window.close().await
}

async fn fences_complete_posted_sums<F: Fabric>(world: World<F>) -> Outcome {
    const LEN: usize = 90;
    let window = Window::<u64>::builder().allocate(&world, LEN).await?;
    let mut epoch = window.fence().await?;
    for round in 1..5 {
        for target in 0..world.size() {
            epoch.at(target)?.accumulate(0, &[1; LEN], Op::Sum).await?;
        }
        epoch = epoch.fence().await?;
        assert_eq!(window.local().read(0..LEN), [round * u64::from(world.size()); LEN]);
        epoch = epoch.fence().await?;
    }
    epoch.end().await?;
    window.close().await
}

async fn a_ring_of_puts<F: Fabric>(world: World<F>) -> Outcome {
    const LEN: usize = 40;
    let (me, size) = (world.rank(), world.size());
    let (before, after) = ((me + size - 1) % size, (me + 1) % size);
    let window = Window::<u64>::builder().allocate(&world, LEN).await?;
    for round in 1..20 {
        let exposure = window.post(&[before])?;
        let epoch = window.start(&[after]).await?;
        epoch.at(after)?.put(0, &[round; LEN])?;
        epoch.complete().await?;
        exposure.await?;
        assert_eq!(window.local().read(0..LEN), [round; LEN]);
    }
    window.close().await
}

/// The target changes its memory between two exposures; the origin sees each change, and never too
/// early.
async fn each_access_is_behind_the_last_exposure<F: Fabric>(world: World<F>) -> Outcome {
    let window = Window::<u64>::builder().allocate(&world, 2).await?;
    for round in 1..30 {
        if world.rank() == 0 {
            window.local().write(0, &[round])?;
            window.post(&[1])?.await?;
            assert_eq!(window.local().read(0..2), [round, 2 * round]);
        } else {
            let epoch = window.start(&[0]).await?;
            let mut there = [0; 2];
            epoch.at(0)?.get(0, &mut there).await?;
            assert_eq!(there, [round, 2 * (round - 1)]);
            epoch.at(0)?.put(1, &[2 * round])?;
            epoch.complete().await?;
        }
    }
    window.close().await
}

/// Ranks 0 and 1 are targets, all other ranks origins of both; 0 is an origin of 1 as well.
async fn many_origins_of_many_targets<F: Fabric>(world: World<F>) -> Outcome {
    let (me, size) = (world.rank(), world.size());
    let window = Window::<u32>::builder().allocate(&world, size as usize).await?;
    let origins: Vec<u32> = (2..size).collect();
    for round in 1..10 {
        match me {
            0 => {
                let exposure = window.post(&origins)?;
                let epoch = window.start(&[1]).await?;
                epoch.at(1)?.put(0, &[round])?;
                epoch.complete().await?;
                exposure.await?;
            }
            1 => window.post(&[&[0], &origins[..], &[2]].concat())?.await?, // a rank that is named twice counts once
            _ => {
                let epoch = window.start(&[1, 0, 1]).await?;
                let error = epoch.at(2).unwrap_err().to_string();
                assert_eq!(error, "at on rank 2 of window \"unnamed, of u32\": not a target of the access epoch");
                for target in [0, 1] {
                    epoch.at(target)?.accumulate(me as usize, &[me], Op::Sum).await?;
                }
                epoch.complete().await?;
            }
        }
        let mut expected: Vec<u32> = (0..size).map(|rank| if rank < 2 { 0 } else { rank * round }).collect();
        expected[0] = if me == 1 { round } else { 0 };
        if me < 2 {
            assert_eq!(window.local().read(0..size as usize), expected);
        }
    }
    window.close().await
}

async fn a_rank_accesses_its_own_memory<F: Fabric>(world: World<F>) -> Outcome {
    let me = world.rank();
    let window = Window::<u8>::builder().allocate(&world, 3).await?;
    for round in 0..5 {
        let exposure = window.post(&[me])?;
        let epoch = window.start(&[me]).await?;
        epoch.at(me)?.put(0, &[round; 3])?;
        epoch.complete().await?;
        exposure.await?;
        assert_eq!(window.local().read(0..3), [round; 3]);
        // An empty group on both sides.
        let (exposure, epoch) = (window.post(&[])?, window.start(&[]).await?);
        epoch.complete().await?;
        exposure.await?;
    }
    window.close().await
}

async fn what_is_known_to_be_exposed_is_not_looked_at<F: Fabric>(world: World<F>) -> Outcome {
    let window = Window::<u64>::builder().allocate(&world, 1).await?;
    for round in 0..20 {
        let exposure = if world.rank() == 0 { Some(window.post(&[1])?) } else { None };
        world.barrier().await.unwrap();
        match exposure {
            Some(exposure) => {
                exposure.await?;
                assert_eq!(window.local().read(0..1), [round]);
            }
            None => {
                // With and without a mix of both sides.
                let epoch = if round % 2 == 0 { window.start_no_check(&[0])? } else { window.start(&[0]).await? };
                epoch.at(0)?.put(0, &[round])?;
                epoch.complete().await?;
            }
        }
    }
    window.close().await
}

async fn a_target_looks_while_it_goes_on<F: Fabric>(world: World<F>) -> Outcome {
    let window = Window::<u64>::builder().allocate(&world, 3).await?;
    if world.rank() == 0 {
        let mut exposure = window.post(&[1, 2])?;
        assert!(is_pending(&mut exposure)?, "nobody goes on before the barrier");
        world.barrier().await.unwrap();
        while is_pending(&mut exposure)? {
            pause(&world, 1000).await;
        }
        assert_eq!(window.local().read(0..3), [0, 1, 2]);
    } else {
        world.barrier().await.unwrap();
        let epoch = window.start(&[0]).await?;
        epoch.at(0)?.put(world.rank() as usize, &[world.rank().into()])?;
        epoch.complete().await?;
    }
    window.close().await
}

async fn a_dropped_access_is_complete<F: Fabric>(world: World<F>) -> Outcome {
    const LEN: usize = 300;
    let window = Window::<u64>::builder().allocate(&world, LEN).await?;
    for round in 1..6 {
        if world.rank() == 0 {
            window.post(&[1])?.await?;
            assert_eq!(window.local().read(0..LEN), [round; LEN]);
        } else {
            let epoch = window.start(&[0]).await?;
            epoch.at(0)?.put(0, &[round; LEN])?;
            drop(epoch);
        }
    }
    window.close().await
}

async fn a_start_that_failed_is_tried_again<F: Fabric>(world: World<F>) -> Outcome {
    let window = Window::<u64>::builder().name("late").allocate(&world, 1).await?;
    if world.rank() == 0 {
        let error = window.start(&[1]).deadline(std::time::Duration::from_millis(2)).await.unwrap_err();
        assert!(error.is_timed_out());
        assert_eq!(error.to_string(), "start on rank 1 of window \"late\": the deadline passed, waiting for rank 1");
        let gone = window.start(&[7]).await.unwrap_err();
        assert_eq!(gone.to_string(), "start on rank 7 of window \"late\": the world has 2 ranks");
        assert!(window.post(&[1, 7]).is_err());
        world.barrier().await.unwrap();
        let epoch = window.start(&[1]).await?;
        epoch.at(1)?.put(0, &[8])?;
        epoch.complete().await?;
        world.barrier().await.unwrap();
    } else {
        world.barrier().await.unwrap();
        let exposure = window.post(&[0])?;
        exposure.await?;
        assert_eq!(window.local().read(0..1), [8]);
        let exposure = window.post(&[0])?.deadline(std::time::Duration::from_millis(2));
        assert_eq!(
            exposure.await.unwrap_err().to_string(),
            "wait on rank 0 of window \"late\": the deadline passed, waiting for rank 0"
        );
        world.barrier().await.unwrap();
    }
    window.close().await
}

/// Two accesses of one target are open, and the later one ends first: no exposure is mistaken for
/// the other.
async fn an_open_access_keeps_back_those_behind_it<F: Fabric>(world: World<F>) -> Outcome {
    let window = Window::<u64>::builder().allocate(&world, 2).await?;
    let signals = Window::<u64>::builder().allocate(&world, 1).await?;
    for round in 1..=4 {
        if world.rank() == 0 {
            let mut first = window.post(&[1])?;
            let second = window.post(&[1])?;
            if round % 2 == 0 {
                // The later access is complete.
                signals.local().wait_until_from(1, 0, |seen| seen == round).await?;
                assert!(is_pending(&mut first)?, "the first access is open");
                signals.local().write(0, &[round + 100])?;
                let all = signals.lock_all().await?;
                all.at(1).await?.signal(0, round)?;
                all.unlock_all().await?;
            }
            first.await?;
            assert_eq!(window.local().read(0..1), [round]);
            second.await?;
            assert_eq!(window.local().read(0..2), [round, round + 10]);
        } else if world.rank() == 1 {
            let one = window.start(&[0]).await?;
            let other = window.start(&[0]).await?;
            other.at(0)?.put(1, &[round + 10])?;
            other.complete().await?;
            if round % 2 == 0 {
                let all = signals.lock_all().await?;
                all.at(0).await?.signal(0, round)?;
                all.unlock_all().await?;
                signals.local().wait_until_from(0, 0, |seen| seen == round).await?;
            }
            one.at(0)?.put(0, &[round])?;
            drop(one);
        }
        world.barrier().await.unwrap();
    }
    signals.close().await?;
    window.close().await
}

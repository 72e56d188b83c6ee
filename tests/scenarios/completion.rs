//! Completion, and to which ranks it is visible: flush, requests, the end of a lock.

use std::time::Duration;

use onesided_fabric::{Fabric, World};
use onesided_windows::{Access, Op, Window};

use crate::{Outcome, pause, scenario};

scenario!(put_flush_get, puts_are_seen_after_a_flush, [2, 5]);
scenario!(acc_flush_get, accumulates_are_seen_after_a_flush, [2, 5]);
scenario!(gacc_flush_get, get_accumulates_are_seen, [2, 5]);
scenario!(fop_flush_get, fetches_are_seen, [2, 5]);
scenario!(cas_flush_get, swaps_are_seen, [2, 5]);
scenario!(get_flushlocal, a_slice_may_be_reused_after_a_local_flush, [2]);
scenario!(reqops, requests_are_waited_for_in_any_order, [2, 4]);
scenario!(contention_put, every_rank_puts_to_every_rank, [4, 8]);
scenario!(close_behind_a_drop, a_window_ends_after_what_dropped_guards_have_left, [2, 3]);
scenario!(close_behind_a_request, a_window_ends_after_the_requests_that_were_given_up, [2, 3]);
scenario!(dropped_window, a_window_that_one_rank_drops_affects_no_other_rank, [2, 3]);

/// Rank 0 changes an element of rank 1 and flushes; every other rank, synchronised by a barrier
/// alone, gets it. The target sees it by a get and by a local read.
macro_rules! seen_after_a_flush {
    ($name:ident, |$access:ident, $round:ident| $change:expr, $expected:expr) => {
        async fn $name<F: Fabric>(world: World<F>) -> Outcome {
            let window = Window::<u32>::builder().allocate(&world, 7).await?;
            let all = window.lock_all().await?;
            for $round in 1..20_u32 {
                if world.rank() == 0 {
                    let $access: &Access<'_, u32, F> = all.at(1).await?;
                    $change;
                    $access.flush().await?;
                }
                world.barrier().await.unwrap();
                let mut now = [0];
                all.at(1).await?.get(5, &mut now).await?;
                assert_eq!(now, [$expected]);
                if world.rank() == 1 {
                    assert_eq!(window.local().read(4..7), [0, $expected, 0]);
                }
                world.barrier().await.unwrap();
            }
            all.unlock_all().await?;
            window.close().await
        }
    };
}

seen_after_a_flush!(puts_are_seen_after_a_flush, |access, round| access.put(5, &[round])?, round);
seen_after_a_flush!(
    accumulates_are_seen_after_a_flush,
    |access, round| access.accumulate(5, &[round], Op::Sum).await?,
    round * (round + 1) / 2
);
seen_after_a_flush!(
    get_accumulates_are_seen,
    |access, round| {
        let mut before = [0];
        access.get_accumulate(5, &[round], &mut before, Op::Replace).await?;
        assert_eq!(before, [round - 1]);
    },
    round
);
seen_after_a_flush!(
    fetches_are_seen,
    |access, round| assert_eq!(access.fetch_and_op(5, 1, Op::Sum).await?, round - 1),
    round
);
seen_after_a_flush!(
    swaps_are_seen,
    |access, round| assert_eq!(access.compare_and_swap(5, round - 1, round).await?, round - 1),
    round
);

async fn a_slice_may_be_reused_after_a_local_flush<F: Fabric>(world: World<F>) -> Outcome {
    const LEN: usize = 600;
    let window = Window::<u64>::builder().allocate(&world, LEN).await?;
    let all = window.lock_all().await?;
    let target = all.at(1 - world.rank()).await?;
    let mut buffer = vec![0; LEN];
    for round in 1..10 {
        buffer.fill(round);
        target.put(0, &buffer)?;
        match round % 2 {
            0 => target.flush_local().await?,
            _ => all.flush_local_all().await?,
        }
        buffer.fill(0);
        target.get(0, &mut buffer).await?;
        assert!(buffer.iter().all(|found| *found == round), "it sees what it has put");
    }
    all.unlock_all().await?;
    window.close().await
}

async fn requests_are_waited_for_in_any_order<F: Fabric>(world: World<F>) -> Outcome {
    let (me, size) = (world.rank() as usize, world.size());
    let window = Window::<u64>::builder().allocate(&world, 4 * size as usize).await?;
    let all = window.lock_all().await?;
    // All are in flight before the first is waited for.
    let (ones, mut before) = ([1; 4], vec![[9; 4]; size as usize]);
    let mut handles = Vec::new();
    let mut accesses = Vec::new();
    for target in 0..size {
        accesses.push(all.at(target).await?);
    }
    for (access, before) in accesses.iter().zip(&mut before) {
        access.put(4 * me, &[5, 6, 7, 8])?;
        let arrived = access.flush();
        arrived.await?; // puts and atomics have no order
        handles.push((access.get_accumulate(4 * me, &ones, before, Op::Sum), access.flush()));
    }
    for (accumulate, flush) in handles.into_iter().rev() {
        flush.await?;
        accumulate.await?;
    }
    assert_eq!(before, vec![[5, 6, 7, 8]; size as usize]);
    let mut after = vec![[0; 4]; size as usize];
    let gets: Vec<_> = accesses.iter().zip(&mut after).map(|(access, into)| access.get(4 * me, into)).collect();
    for get in gets.into_iter().rev() {
        get.await?;
    }
    assert_eq!(after, vec![[6, 7, 8, 9]; size as usize]);
    let fetches: Vec<_> = accesses.iter().map(|access| access.fetch_add(4 * me, 10)).collect();
    for fetch in fetches {
        assert_eq!(fetch.await?, 6);
    }
    all.unlock_all().await?;
    window.close().await
}

/// Each rank has its own stripe of every target's memory; the stripes share words with their
/// neighbours.
async fn every_rank_puts_to_every_rank<F: Fabric>(world: World<F>) -> Outcome {
    const STRIPE: usize = 8 * 3;
    let (me, size) = (world.rank() as usize, world.size());
    let window = Window::<u8>::builder().allocate(&world, STRIPE * size as usize).await?;
    for round in 0..4 {
        for step in 0..size {
            let epoch = window.lock_shared((world.rank() + step) % size).await?;
            for at in 0..STRIPE {
                epoch.put(STRIPE * me + at, &[(me + round) as u8])?;
            }
            epoch.unlock().await?;
        }
        world.barrier().await.unwrap();
        let expected: Vec<u8> = (0..STRIPE * size as usize).map(|at| (at / STRIPE + round) as u8).collect();
        assert_eq!(window.local().read(0..expected.len()), expected);
        world.barrier().await.unwrap();
    }
    window.close().await
}

/// A dropped guard leaves its release to the endpoint, which must not write to the memory of a
/// window that has ended.
async fn a_window_ends_after_what_dropped_guards_have_left<F: Fabric>(world: World<F>) -> Outcome {
    let next = (world.rank() + 1) % world.size();
    for round in 0..20 {
        let window = Window::<u64>::builder().allocate(&world, 100).await?;
        let guard = window.lock_shared(next).await?;
        guard.put(0, &[round; 100])?;
        drop(guard);
        window.close().await?;
    }
    Ok(())
}

/// A cancelled request for a lock that is never released must stop when the window and its memory
/// end: on a card a further attempt would break the connection.
async fn a_window_ends_after_the_requests_that_were_given_up<F: Fabric>(world: World<F>) -> Outcome {
    let mut last = None;
    for round in 0..5 {
        let window = Window::<u64>::builder().allocate(&world, 100).await?;
        if world.rank() == 0 {
            std::mem::forget(window.lock_exclusive(0).await?);
        }
        world.barrier().await.unwrap();
        if world.rank() != 0 {
            if round % 2 == 0 {
                drop(window.lock_exclusive(0));
            } else {
                let late = window.lock_shared(0).deadline(Duration::from_micros(100)).await;
                assert!(late.is_err_and(|error| error.is_timed_out()));
            }
        }
        window.close().await?;
        // Gives further attempts time; the connection to rank 0 still works.
        let next = Window::<u64>::builder().allocate(&world, 1).await?;
        pause(&world, 5_000_000).await;
        next.lock_shared(0).await?.fetch_add(0, 1).await?;
        if let Some(window) = last.replace(next) {
            window.close().await?;
        }
    }
    match last {
        Some(window) => window.close().await,
        None => Ok(()),
    }
}

/// Rank 1 drops its handle of a window, and the others continue with theirs. The effect at rank 1
/// depends on the fabric; everything else works.
async fn a_window_that_one_rank_drops_affects_no_other_rank<F: Fabric>(world: World<F>) -> Outcome {
    for _ in 0..3 {
        let window = Window::<u64>::builder().allocate(&world, 100).await?;
        window.lock_shared(1).await?.put(0, &[1])?;
        world.barrier().await.unwrap();
        let window = (world.rank() != 1).then_some(window);
        world.barrier().await.unwrap();
        if let Some(window) = &window
            && let Ok(guard) = window.lock_shared(1).await
        {
            guard.put(1, &[1; 50])?;
            let _ = guard.flush().await;
            let _ = guard.unlock().await;
        }
        world.barrier().await.unwrap();
        let next = Window::<u64>::builder().allocate(&world, 1).await?;
        let next_is_served = next.info().lock.is_served();
        next.lock_shared(1).await?.fetch_add(0, 1).await?;
        let closed = next.close().await;
        // The unlock of a lock that a thread serves is not waited for: the next flush to that rank
        // reports its outcome.
        assert!(closed.is_ok() || next_is_served, "{closed:?}");
    }
    Ok(())
}

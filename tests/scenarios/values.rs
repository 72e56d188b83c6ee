//! Values that a lock guards.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use onesided_fabric::{Fabric, World};
use onesided_windows::{Error, Mutex, RwLock, Window};

use crate::{Outcome, scenario};

scenario!(mutex_excludes, every_change_counts, [1, 2, 4]);
scenario!(rw_lock_shares, readers_see_whole_values, [3]);
scenario!(values_dropped, what_nobody_waits_for_locks_and_changes_nothing, [2]);
scenario!(values_panic, a_panic_puts_nothing_back, [2]);
scenario!(values_refused, ranks_that_disagree_are_told, [2, 3]);

async fn every_change_counts<F: Fabric>(world: World<F>) -> Outcome {
    const ROUNDS: u32 = 30;
    let home = world.size() - 1;
    let total = Mutex::new(&world, home, [7 * u32::from(world.rank() == home); 33]).await?;
    assert_eq!(total.home(), home);
    for round in 0..ROUNDS {
        let mut guard = total.lock().await?;
        assert!(guard.iter().all(|word| *word == guard[0]), "{guard:?}");
        guard.iter_mut().for_each(|word| *word += 1);
        match round % 3 {
            0 => guard.unlock().await?,
            1 => drop(guard),
            _ => drop(guard.unlock()), // as if the guard was dropped
        }
    }
    world.barrier().await.unwrap();
    assert_eq!(*total.lock().await?, [7 + ROUNDS * world.size(); 33]);
    total.close().await
}

async fn readers_see_whole_values<F: Fabric>(world: World<F>) -> Outcome {
    let value = RwLock::with(Window::builder().name("limits"), &world, 0, [0_u64; 9]).await?;
    let mut last = 0;
    for round in 0..40 {
        if round % 4 == u64::from(world.rank()) {
            let mut guard = value.write().await?;
            last = guard[0] + 1;
            guard.fill(last);
        } else {
            // Together with another lock of this rank.
            let (one, other) = (value.read().await?, value.read().await?);
            assert_eq!(*one, *other);
            assert_eq!(*one, [one[0]; 9]);
            assert!(one[0] >= last, "it sees what it has put back");
            last = one[0];
        }
    }
    // A reader excludes writers only.
    let reader = value.read().await?;
    let error = value.write().deadline(Duration::from_millis(2)).await.unwrap_err();
    assert!(error.is_timed_out(), "{error}");
    assert!(error.to_string().contains("limits"), "{error}");
    drop(reader);
    world.barrier().await.unwrap();
    assert_eq!(*value.read().await?, [30; 9]);
    value.close().await
}

async fn what_nobody_waits_for_locks_and_changes_nothing<F: Fabric>(world: World<F>) -> Outcome {
    let value = Mutex::new(&world, 0, [5_u64, 5]).await?;
    for _ in 0..10 {
        drop(value.lock());
        let mut lock = pin!(value.lock());
        let mut polled = poll_fn(|cx| Poll::Ready(lock.as_mut().poll(cx))).await;
        if let Poll::Ready(guard) = &mut polled {
            let _unchanged: &[u64; 2] = guard.as_ref().unwrap();
        }
        drop(polled);
        lock.set(value.lock()); // cancels the operation in flight
        drop(value.lock().await?);
    }
    world.barrier().await.unwrap();
    // It was never borrowed mutably: what another rank has put otherwise stays.
    assert_eq!(*value.lock().await?, [5, 5]);
    value.close().await
}

async fn a_panic_puts_nothing_back<F: Fabric>(world: World<F>) -> Outcome {
    let value = Mutex::new(&world, 0, [1_u64; 20]).await?;
    world.barrier().await.unwrap();
    if world.rank() == 1 {
        let mut guard = value.lock().await?;
        let panic = catch_unwind(AssertUnwindSafe(move || {
            guard[0] = 2;
            std::panic::resume_unwind(Box::new("half done")) // without a message
        }));
        assert_eq!(panic.unwrap_err().downcast_ref(), Some(&"half done"));
    }
    world.barrier().await.unwrap();
    assert_eq!(*value.lock().await?, [1; 20]);
    world.barrier().await.unwrap();
    // A destructor that runs during a panic changes the value.
    struct Counts<L: FnMut()>(L);
    impl<L: FnMut()> Drop for Counts<L> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    if world.rank() == 1 {
        let mut guards = Vec::new();
        let mut lock = Some(Box::pin(value.lock().into_future()));
        let panic = catch_unwind(AssertUnwindSafe(|| {
            let _counts = Counts(|| {
                let mut lock = lock.take().unwrap();
                // On shared memory the lock is acquired immediately; elsewhere the destructor may
                // not get it.
                if let Poll::Ready(guard) = lock.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                    let mut guard = guard.unwrap();
                    guard[0] = 3;
                    drop(guard);
                    guards.push(());
                }
            });
            std::panic::resume_unwind(Box::new(()))
        }));
        assert!(panic.is_err());
        assert_eq!(value.lock().await?[0], if guards.is_empty() { 1 } else { 3 });
    }
    world.barrier().await.unwrap();
    value.close().await
}

async fn ranks_that_disagree_are_told<F: Fabric>(world: World<F>) -> Outcome {
    let error = Mutex::new(&world, u32::from(world.rank() == 1), 0_u64).await.unwrap_err();
    assert!(matches!(&error, Error::Mismatch { rank: 1, .. }), "{error}");
    assert!(error.to_string().contains("it passed 1, rank 0 passed 0"), "{error}");
    let error = RwLock::new(&world, world.size(), 0_u64).await.unwrap_err();
    assert!(matches!(&error, Error::Rank { size, .. } if *size == world.size()), "{error}");
    Ok(())
}

//! What the shared-memory endpoint does; the conformance suite tries the rest.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use remote_memory::{Fault, FaultKind, Liveness, Mailbox, Notify, Patience, Port, Rank, RemoteMemory};

use crate::shm::{Shm, threads};
use crate::{Fabric, Segment, SegmentKey, World, block_on};

#[test]
fn one_value_goes_round() {
    let seen = threads(4, |shm| {
        let world = World::new(shm.clone());
        let own = shm.allocate(64).unwrap();
        let keys = block_on(&shm, world.all_gather(&own.key().to_bytes())).unwrap();
        let next = SegmentKey::from_bytes(&keys[(world.rank() as usize + 1) % 4]).unwrap();
        let next = shm.open(&next).unwrap();
        let word = shm.word_in(&next, 8).unwrap();
        drop(shm.write(word, u64::from(world.rank()) + 10, Notify::Yes));
        let mine = shm.word_in(&own, 8).unwrap();
        let value = block_on(&shm, shm.wait_until(mine, |value| value != 0, Patience::on(Rank(0)))).unwrap();
        world.barrier().wait().unwrap();
        value
    });
    assert_eq!(seen.unwrap(), [13, 10, 11, 12]);
}

#[test]
fn a_sleeper_is_woken_and_a_deadline_kept() {
    threads(2, |shm| {
        let own = shm.world_segment(shm.rank()).unwrap();
        let word = shm.word_in(&own, 4000).unwrap();
        if shm.rank() == Rank(0) {
            let patience = Patience::on(Rank(1));
            assert_eq!(block_on(&shm, shm.wait_until(word, |value| value == 7, patience)), Ok(7));
            let patience = Patience::until(shm.now() + 5_000_000);
            let late = block_on(&shm, shm.wait_until(word, |value| value == 8, patience));
            assert_eq!(late.map_err(Fault::kind), Err(FaultKind::TimedOut));
        } else {
            std::thread::sleep(Duration::from_millis(100));
            let peer = shm.world_segment(Rank(0)).unwrap();
            drop(shm.write(shm.word_in(&peer, 4000).unwrap(), 7, Notify::Yes));
        }
    })
    .unwrap();
}

#[test]
fn a_panicking_rank_ends_the_waits_of_the_others() {
    let ends = crate::bootstrap::local::jobs(2).unwrap().into_iter().map(|job| Shm::new(job).unwrap());
    let mut ends: Vec<_> = ends.collect();
    let (one, zero) = (ends.pop().unwrap(), ends.pop().unwrap());
    let panics = std::thread::spawn(move || {
        let _one = one;
        std::thread::sleep(Duration::from_millis(50));
        panic!("on purpose");
    });
    let world = World::new(zero);
    let ended = world.barrier().wait().unwrap_err().fault();
    assert_eq!((ended.kind(), ended.rank()), (FaultKind::PeerDied, Some(Rank(1))));
    assert_eq!(world.barrier().wait().unwrap_err().fault().kind(), FaultKind::Closed);
    assert!(panics.join().is_err());
}

#[test]
fn a_task_of_no_runtime_of_ours_is_woken() {
    threads(2, |shm| {
        let own = shm.world_segment(Rank(0)).unwrap();
        let word = shm.word_in(&own, 4000).unwrap();
        if shm.rank() == Rank(0) {
            let value = block_on_by_parking(shm.wait_until(word, |value| value == 3, Patience::on(Rank(1))));
            assert_eq!(value, Ok(3));
        } else {
            std::thread::sleep(Duration::from_millis(50));
            drop(shm.write(word, 3, Notify::Yes));
        }
    })
    .unwrap();
}

#[test]
fn adopted_work_is_finished_while_the_caller_computes() {
    threads(1, |shm| {
        let own = shm.world_segment(Rank(0)).unwrap();
        let (there, own) = (shm.clone(), own);
        let theirs = own.clone();
        shm.adopt(Box::pin(async move {
            let word = there.word_in(&theirs, 4000).unwrap();
            there.pause(word, 2_000_000).await;
            drop(there.write(word, 9, Notify::No));
        }));
        let word = shm.word_in(&own, 4000).unwrap();
        let until = shm.now() + 5_000_000_000;
        while shm.load(word) != Ok(9) {
            assert!(shm.now() < until, "the helper did not run");
            std::hint::spin_loop();
        }
    })
    .unwrap();
}

#[test]
fn mail_keeps_order_and_fills_up_without_loss() {
    threads(3, |shm| {
        let world = World::new(shm.clone());
        for to in [(shm.rank().0 + 1) % 3, (shm.rank().0 + 2) % 3] {
            if shm.rank() == Rank(0) {
                continue;
            }
            for number in 0..5000_u64 {
                if to == 0 {
                    block_on(&shm, shm.send(Rank(0), Port::USER, &number.to_le_bytes(), Notify::Yes)).unwrap();
                }
            }
        }
        if shm.rank() == Rank(0) {
            let mut next = [0; 3];
            for _ in 0..10_000 {
                let message = block_on(&shm, shm.recv(Port::USER, Patience::until(u64::MAX))).unwrap();
                let number = u64::from_le_bytes(message.bytes().try_into().unwrap());
                assert_eq!(number, next[message.from.index()]);
                next[message.from.index()] += 1;
            }
        }
        world.barrier().wait().unwrap();
    })
    .unwrap();
}

#[test]
fn the_last_handle_leaves_whatever_its_helper_waits_for() {
    for _ in 0..200 {
        let jobs = crate::bootstrap::local::jobs(2).unwrap();
        let board = Arc::clone(&jobs[0].board);
        let mut worlds = jobs.into_iter().map(|job| World::new(Shm::new(job).unwrap()));
        let (zero, one) = (worlds.next().unwrap(), worlds.next().unwrap());
        std::thread::scope(|scope| {
            scope.spawn(|| zero.barrier().wait().unwrap());
            one.barrier().wait().unwrap();
        });
        // A task that was dropped while it waited: its waker is still known.
        drop(poll_once(zero.barrier().into_future()));
        drop((zero, one));
        for rank in [0, 1].map(Rank) {
            assert_eq!(board.liveness(rank), Liveness::Left, "{rank}");
        }
    }
}

#[test]
fn a_waiting_task_is_polled_when_something_happens_and_not_all_the_time() {
    let polls = threads(2, |shm| {
        let world = World::new(shm);
        let mut polls = 0;
        let mut barrier = world.barrier().into_future();
        if world.rank() == 1 {
            std::thread::sleep(Duration::from_millis(300));
        }
        block_on_by_parking(std::future::poll_fn(|cx| {
            polls += 1;
            std::pin::Pin::new(&mut barrier).poll(cx)
        }))
        .unwrap();
        polls
    });
    assert!(polls.unwrap()[0] < 10);
}

#[test]
fn tasks_of_no_runtime_of_ours_miss_no_event() {
    threads(3, |shm| {
        let world = World::new(shm);
        for _ in 0..2_000 {
            block_on_by_parking(world.barrier().into_future()).unwrap();
        }
    })
    .unwrap();
}

/// Leaves the thread's waker behind.
fn poll_once<F: Future + Unpin>(mut future: F) -> F {
    let waker = Arc::new(Unpark(std::thread::current())).into();
    assert!(std::pin::Pin::new(&mut future).poll(&mut std::task::Context::from_waker(&waker)).is_pending());
    future
}

/// What an async runtime does, in short.
fn block_on_by_parking<T>(future: impl Future<Output = T>) -> T {
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut future = std::pin::pin!(future);
    loop {
        if let std::task::Poll::Ready(value) = future.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
            return value;
        }
        std::thread::park();
    }
}

struct Unpark(std::thread::Thread);

impl std::task::Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[test]
fn a_world_that_is_dropped_is_left_and_what_it_began_is_finished() {
    let mut jobs = crate::bootstrap::local::jobs(1).unwrap();
    let job = jobs.pop().unwrap();
    let board = Arc::clone(&job.board);
    let world = World::new(Shm::new(job).unwrap());
    let shm = world.fabric().clone();
    let background = world.background();
    shm.adopt(Box::pin(async move {
        let fabric = background.fabric();
        let own = fabric.world_segment(Rank(0)).unwrap();
        let word = fabric.word_in(&own, 4000).unwrap();
        fabric.pause(word, 200_000_000).await;
        drop(fabric.write(word, 5, Notify::No));
    }));
    drop(world); // although the task still holds an endpoint
    assert_eq!(board.liveness(Rank(0)), Liveness::Left);
    let own = shm.world_segment(Rank(0)).unwrap();
    assert_eq!(shm.load(shm.word_in(&own, 4000).unwrap()), Ok(5));
}

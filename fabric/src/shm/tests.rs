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
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    threads(2, |shm| {
        let own = shm.world_segment(Rank(0)).unwrap();
        let word = shm.word_in(&own, 4000).unwrap();
        if shm.rank() == Rank(0) {
            let waker = Arc::new(Unpark(std::thread::current())).into();
            let mut cx = std::task::Context::from_waker(&waker);
            let mut wait = std::pin::pin!(shm.wait_until(word, |value| value == 3, Patience::on(Rank(1))));
            while Future::poll(wait.as_mut(), &mut cx).is_pending() {
                std::thread::park();
            }
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

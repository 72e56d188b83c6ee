//! The shared-memory endpoint, beyond the conformance suite.

mod packets;

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use onesided_remote_memory::{Fault, FaultKind, Link, Liveness, Notify, Patience, Rank, RemoteMemory};

use crate::shm::{Shm, threads};
use crate::{Fabric, Segment, SegmentKey, World, block_on};

#[test]
fn own_words_are_those_of_the_segment_and_keep_it() {
    threads(2, |shm| {
        let world = World::new(shm.clone());
        let own = shm.allocate(64).unwrap();
        let words = own.own_words::<2>(16).unwrap();
        assert!(own.own_words::<6>(16).is_some());
        assert!(own.own_words::<7>(16).is_none() && own.own_words::<2>(20).is_none());
        let keys = block_on(&shm, world.all_gather(&own.key().to_bytes())).unwrap();
        let next = SegmentKey::from_bytes(&keys[1 - world.rank() as usize]).unwrap();
        assert!(shm.open(&next).unwrap().own_words::<2>(16).is_none());

        shm.store(shm.word_in(&own, 24).unwrap(), 7).unwrap();
        drop(own);
        let [first, second] = words.get();
        assert_eq!((shm.load(first), shm.load(second)), (Ok(0), Ok(7)));
        shm.store(first, 6).unwrap();
        assert_eq!(words.get().map(|word| shm.load(word).unwrap()), [6, 7]);
        world.barrier().wait().unwrap();
    })
    .unwrap();
}

#[test]
fn ranks_of_several_hosts_are_refused() {
    let jobs = onesided_job::local::jobs(3).unwrap();
    assert!((0..3).all(|rank| jobs[1].host_of(Rank(rank)) == 0) && jobs[0].hosts() == 1);
    jobs[0].job_segment.place(Rank(2), 1);
    for job in jobs {
        assert_eq!((job.hosts(), job.host_of(Rank(2))), (2, 1));
        assert!(job.same_host(Rank(0), Rank(1)) && !job.same_host(Rank(1), Rank(2)));
        let error = Shm::new(job).unwrap_err();
        assert!(matches!(&error, crate::Error::NoFabric { name, .. } if name == "shm"), "{error}");
        assert!(error.to_string().contains("on 2 hosts"), "{error}");
    }
}

#[test]
fn adopted_work_is_finished_while_the_caller_computes() {
    threads(1, |shm| {
        let own = shm.world_segment(Rank(0)).unwrap();
        let (there, own) = (shm.clone(), own);
        let theirs = own.clone();
        shm.endpoint().spawn(Box::pin(async move {
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
fn a_pause_ends_once_its_word_has_changed() {
    threads(1, |shm| {
        let own = shm.world_segment(Rank(0)).unwrap();
        let word = shm.word_in(&own, 4000).unwrap();
        let mut pause = pin!(shm.pause(word, u64::MAX));
        let mut cx = Context::from_waker(Waker::noop());
        let until = shm.now() + 5_000_000;
        while shm.now() < until {
            assert!(pause.as_mut().poll(&mut cx).is_pending(), "the word has not changed");
        }
        drop(shm.write(word, 1, Notify::No));
        let until = shm.now() + 10_000_000_000;
        while pause.as_mut().poll(&mut cx).is_pending() {
            assert!(shm.now() < until, "the change does not end the pause");
        }
    })
    .unwrap();
}

/// Polls the inner future only when it was woken, as collections of futures do.
struct OnlyWhenWoken<F>(F, Arc<Flag>);

#[derive(Default)]
struct Flag {
    wakes: AtomicUsize,
    asleep: AtomicBool,
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.wakes.fetch_add(1, Ordering::Relaxed);
        self.asleep.store(false, Ordering::Release);
    }
}

impl<F: Future + Unpin> Future for OnlyWhenWoken<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<F::Output> {
        if self.1.asleep.swap(true, Ordering::Acquire) {
            return Poll::Pending;
        }
        let waker = Arc::clone(&self.1).into();
        Pin::new(&mut self.0).poll(&mut Context::from_waker(&waker))
    }
}

#[test]
fn a_blocked_thread_wakes_what_has_a_waker_of_its_own() {
    threads(1, |shm| {
        let own = shm.world_segment(Rank(0)).unwrap();
        let word = shm.word_in(&own, 4000).unwrap();
        let wait = shm.wait_until(word, |value| value == 1, Patience::until(shm.now() + 100_000_000));
        let ended = block_on(&shm, OnlyWhenWoken(wait, Arc::default()));
        assert_eq!(ended.map_err(Fault::kind), Err(FaultKind::TimedOut));
    })
    .unwrap();
}

/// The future was polled elsewhere before, so the progress thread wakes it.
#[test]
fn what_the_helper_wakes_may_be_polled_by_a_thread_that_sleeps() {
    threads(1, |shm| {
        let own = shm.world_segment(Rank(0)).unwrap();
        let word = shm.word_in(&own, 4000).unwrap();
        let mut wait = shm.wait_until(word, |value| value == 1, Patience::until(shm.now() + 300_000_000));
        let flag = Arc::new(Flag::default());
        let waker = Arc::clone(&flag).into();
        for _ in 0..2 {
            assert!(Pin::new(&mut wait).poll(&mut Context::from_waker(&waker)).is_pending());
            std::thread::sleep(Duration::from_millis(50)); // the progress thread sleeps by now
        }
        flag.asleep.store(true, Ordering::Release);
        let ended = block_on(&shm, OnlyWhenWoken(wait, flag));
        assert_eq!(ended.map_err(Fault::kind), Err(FaultKind::TimedOut));
    })
    .unwrap();
}

#[test]
fn a_wait_that_was_dropped_keeps_nobody_in_the_job() {
    threads(2, |shm| {
        if shm.rank() == Rank(0) {
            let own = shm.world_segment(Rank(0)).unwrap();
            let waker = Arc::new(Flag::default()).into();
            let mut wait = shm.wait_until(shm.word_in(&own, 4000).unwrap(), |value| value == 1, Patience::on(Rank(0)));
            assert!(Pin::new(&mut wait).poll(&mut Context::from_waker(&waker)).is_pending());
            std::thread::sleep(Duration::from_millis(50)); // the progress thread sleeps by now
        } else {
            let own = shm.world_segment(Rank(1)).unwrap();
            let patience = Patience::on(Rank(0)).and_until(shm.now() + 2_000_000_000);
            let ended = block_on(&shm, shm.wait_until(shm.word_in(&own, 4000).unwrap(), |value| value == 1, patience));
            assert_eq!(ended.map_err(Fault::kind), Err(FaultKind::PeerLeft));
        }
    })
    .unwrap();
}

#[test]
fn tasks_that_wait_are_not_polled_meanwhile() {
    threads(1, |shm| {
        let own = shm.world_segment(Rank(0)).unwrap();
        let word = shm.word_in(&own, 4000).unwrap();
        let deadlines = [u64::MAX, shm.now() + 500_000_000, shm.now() + 100_000_000];
        let mut tasks = deadlines.map(|deadline| {
            OnlyWhenWoken(shm.wait_until(word, |value| value == 1, Patience::until(deadline)), Arc::default())
        });
        let until = Instant::now() + Duration::from_millis(300);
        while Instant::now() < until {
            for task in &mut tasks {
                if task.1.wakes.load(Ordering::Relaxed) < 1000 {
                    let _ = Pin::new(task).poll(&mut Context::from_waker(Waker::noop()));
                }
            }
            std::thread::sleep(Duration::from_micros(20));
        }
        let wakes = tasks.map(|task| task.1.wakes.load(Ordering::Relaxed));
        assert!(wakes.iter().all(|wakes| (1..20).contains(wakes)), "{wakes:?}");
    })
    .unwrap();
}

#[test]
fn a_task_that_panics_stops_no_other() {
    threads(1, |shm| {
        shm.endpoint().spawn(Box::pin(async { panic!("on purpose") }));
        let ran = Arc::new(AtomicBool::new(false));
        let there = Arc::clone(&ran);
        std::thread::sleep(Duration::from_millis(20));
        shm.endpoint().spawn(Box::pin(async move { there.store(true, Ordering::Release) }));
        let until = shm.now() + 5_000_000_000;
        while !ran.load(Ordering::Acquire) {
            assert!(shm.now() < until, "the helper is gone");
            std::thread::yield_now();
        }
    })
    .unwrap();
}

#[test]
fn the_last_handle_leaves_whatever_its_helper_waits_for() {
    for _ in 0..200 {
        let jobs = onesided_job::local::jobs(2).unwrap();
        let job_segment = Arc::clone(&jobs[0].job_segment);
        let mut worlds = jobs.into_iter().map(|job| World::new(Shm::new(job).unwrap()));
        let (zero, one) = (worlds.next().unwrap(), worlds.next().unwrap());
        std::thread::scope(|scope| {
            scope.spawn(|| zero.barrier().wait().unwrap());
            one.barrier().wait().unwrap();
        });
        // The waker of a task that was dropped while it waited is still registered.
        drop(poll_once(zero.barrier().into_future()));
        drop((zero, one));
        for rank in [0, 1].map(Rank) {
            assert_eq!(job_segment.liveness(rank), Liveness::Left, "{rank}");
        }
    }
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

/// Leaves the thread's waker registered.
fn poll_once<F: Future + Unpin>(mut future: F) -> F {
    let waker = Arc::new(Unpark(std::thread::current())).into();
    assert!(Pin::new(&mut future).poll(&mut Context::from_waker(&waker)).is_pending());
    future
}

/// A minimal async runtime.
fn block_on_by_parking<T>(future: impl Future<Output = T>) -> T {
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        std::thread::park();
    }
}

#[test]
fn a_world_that_is_dropped_is_left_and_what_it_began_is_finished() {
    let mut jobs = onesided_job::local::jobs(1).unwrap();
    let job = jobs.pop().unwrap();
    let job_segment = Arc::clone(&job.job_segment);
    let world = World::new(Shm::new(job).unwrap());
    let shm = world.fabric().clone();
    let background = world.background();
    shm.endpoint().spawn(Box::pin(async move {
        let fabric = background.fabric();
        let own = fabric.world_segment(Rank(0)).unwrap();
        let word = fabric.word_in(&own, 4000).unwrap();
        fabric.pause(word, 200_000_000).await;
        drop(fabric.write(word, 5, Notify::No));
    }));
    drop(world); // the task still holds an endpoint
    assert_eq!(job_segment.liveness(Rank(0)), Liveness::Left);
    let own = shm.world_segment(Rank(0)).unwrap();
    assert_eq!(shm.load(shm.word_in(&own, 4000).unwrap()), Ok(5));
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Each rank writes a word of rank 0, then reads the other's word. In a chain, the two cannot both
/// read the old value.
#[test]
fn a_chain_is_not_overtaken_by_its_own_read() {
    const ROUNDS: u64 = 20_000;
    let seen = threads(2, |shm| {
        let home = shm.world_segment(Rank(0)).unwrap();
        let [mine, theirs] = if shm.rank() == Rank(0) { [3000, 3128] } else { [3128, 3000] };
        let word = |offset| shm.word_in(&home, offset).unwrap();
        (1..=ROUNDS)
            .map(|round| {
                // A rendezvous, so that both post their chains at the same time.
                block_on(&shm, shm.fetch_add(word(3256), 1)).unwrap();
                while block_on(&shm, shm.read(word(3256))) != Ok(2 * round) {
                    if block_on(&shm, shm.read(word(3256))).unwrap() > 2 * round {
                        break; // the peer is ahead
                    }
                    std::thread::yield_now();
                }
                let write = Link::Write { word: word(mine), value: round, notify: Notify::No, waited: false };
                let read = Link::Read { word: word(theirs), waited: true };
                block_on(&shm, shm.post([write, read])).unwrap()[1]
            })
            .collect::<Vec<_>>()
    })
    .unwrap();
    let both_missed = (1..=ROUNDS).zip(seen[0].iter().zip(&seen[1])).filter(|(round, (a, b))| *a < round && *b < round);
    assert_eq!(both_missed.count(), 0);
}

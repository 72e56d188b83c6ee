//! Locks that a thread serves over messages.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use onesided_fabric::remote_memory::FaultKind;
use onesided_fabric::{Any, ServerThread, World, threads};
use onesided_instances as _;
use onesided_lock_algos::Mode;
use onesided_sim::{End, Network, SimFabric, Simulation};
use onesided_two_sided::{Error, Messages, ServedGuard, ServedLock, Tag};

const THREADS: [ServerThread; 2] = [ServerThread::Polls, ServerThread::Sleeps];
const LATE: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(20);

fn ranks(ranks: u32, run: impl Fn(&World<Any>, ServedLock) + Sync) {
    for thread in THREADS {
        threads(ranks, |world| run(&world, ServedLock::new(&world, 0, thread).deadline(LATE).wait().unwrap())).unwrap();
    }
}

fn fault_of<G>(result: Result<G, Error>) -> (FaultKind, Option<u32>) {
    let fault = result.map(drop).unwrap_err().fault();
    (fault.kind(), fault.rank().map(|rank| rank.0))
}

/// An owner has sent the home more than there is credit for, which the home receives under the lock.
#[test]
fn a_release_passes_messages_that_nobody_has_received() {
    const MANY: u64 = 5_000;
    ranks(2, |world, lock| {
        let messages = Messages::new(world).wait().unwrap();
        if world.rank() == 1 {
            let guard = lock.lock().wait().unwrap();
            world.barrier().wait().unwrap();
            let sends: Vec<_> = (0..MANY).map(|_| messages.send(&[0_u64], 0, Tag(0))).collect();
            drop(guard);
            sends.into_iter().for_each(|send| send.wait().unwrap());
        } else {
            world.barrier().wait().unwrap();
            let _guard = lock.lock().deadline(LATE).wait().unwrap();
            (0..MANY).for_each(|_| drop(messages.recv::<u64>(1, Tag(0)).wait().unwrap()));
        }
        world.barrier().wait().unwrap();
    });
}

/// Writers are alone, readers see no writer, and nobody is lost.
#[test]
fn sections_exclude_one_another() {
    let (writers, readers) = (AtomicU32::new(0), AtomicU32::new(0));
    ranks(4, |world, lock| {
        for round in 0..200 {
            match (round + world.rank()) % 4 {
                0 => {
                    let _guard = lock.lock_shared().deadline(LATE).wait().unwrap();
                    readers.fetch_add(1, Ordering::SeqCst);
                    assert_eq!(writers.load(Ordering::SeqCst), 0);
                    readers.fetch_sub(1, Ordering::SeqCst);
                    continue;
                }
                // Dropped at once, or a little later.
                1 => {
                    drop(lock.lock().wait_timeout(Duration::from_micros(u64::from(round))));
                    drop(lock.lock_shared().test());
                    continue;
                }
                _ => {}
            }
            let guard = if round % 2 == 0 { lock.try_lock().wait().unwrap() } else { None };
            let _guard = guard.unwrap_or_else(|| lock.lock().deadline(LATE).wait().unwrap());
            assert_eq!((writers.fetch_add(1, Ordering::SeqCst), readers.load(Ordering::SeqCst)), (0, 0));
            writers.fetch_sub(1, Ordering::SeqCst);
        }
        world.barrier().wait().unwrap();
    });
}

/// First come, first served: a writer waits for a reader, and a reader behind it for the writer.
#[test]
fn waiters_are_served_in_the_order_of_their_requests() {
    ranks(1, |_, lock| {
        let reader = lock.lock_shared().wait().unwrap();
        let (mut second, mut third) = (lock.lock(), lock.lock_shared());
        assert!(second.wait_timeout(SHORT).unwrap().is_none());
        assert!(third.wait_timeout(SHORT).unwrap().is_none(), "it passes a writer");
        assert!(lock.try_lock_shared().wait().unwrap().is_none());
        drop(reader);
        let writer = second.deadline(LATE).wait().unwrap();
        assert!(third.wait_timeout(SHORT).unwrap().is_none());
        drop(writer);
        let third = third.deadline(LATE).wait().unwrap();
        assert!(lock.try_lock_shared().wait().unwrap().is_some());
        assert!(lock.try_lock().wait().unwrap().is_none());
        drop(third);
    });
}

#[test]
fn a_withdrawn_acquire_holds_up_nobody() {
    ranks(2, |world, lock| {
        world.barrier().wait().unwrap();
        if world.rank() == 1 {
            for _ in 0..300 {
                drop(lock.lock().test()); // granted, and withdrawn
            }
            let held = lock.lock().deadline(LATE).wait().unwrap();
            assert_eq!(fault_of(lock.lock().deadline(SHORT).wait()), (FaultKind::TimedOut, None));
            let text = lock.lock_shared().deadline(SHORT).wait().map(drop).unwrap_err().to_string();
            assert_eq!(text, "lock_shared at rank 0: the deadline passed");
            drop(held);
            drop(lock.lock().deadline(LATE).wait().unwrap());
        }
        world.barrier().wait().unwrap();
        drop(lock.lock().deadline(LATE).wait().unwrap());
        world.barrier().wait().unwrap();
    });
}

#[test]
fn a_panic_under_the_guard_poisons_the_lock_until_it_is_recovered() {
    ranks(2, |world, lock| {
        if world.rank() == 1 {
            let panics = std::panic::AssertUnwindSafe(|| {
                let _guard = lock.lock().wait().unwrap();
                std::panic::resume_unwind(Box::new("on purpose"));
            });
            std::panic::catch_unwind(panics).unwrap_err();
        }
        world.barrier().wait().unwrap();
        if world.rank() == 0 {
            let panicked = (FaultKind::OwnerPanicked, Some(1));
            assert_eq!(fault_of(lock.lock_shared().deadline(LATE).wait()), panicked);
            assert!(lock.try_lock().wait().map(drop).unwrap_err().is_poisoned());
            let guard = lock.lock_shared().recover().deadline(LATE).wait().unwrap();
            assert_eq!(
                (guard.mode(), guard.previous_owner().map(|fault| fault.kind())),
                (Mode::Exclusive, Some(panicked.0))
            );
            drop(guard);
            assert_eq!(lock.lock().deadline(LATE).wait().unwrap().previous_owner(), None);
        }
        world.barrier().wait().unwrap();
    });
}

/// The home drops its handle, and later leaves, while others wait: both end their acquires.
#[test]
fn the_end_of_the_service_ends_all_acquires() {
    for thread in THREADS {
        let asks = Barrier::new(2);
        threads(3, |world| {
            let lock = ServedLock::new(&world, 1, thread).with_own_thread().wait().unwrap();
            let of_owner = (world.rank() == 0).then(|| lock.clone());
            let held = of_owner.as_ref().map(|lock| lock.lock().wait().unwrap());
            world.barrier().wait().unwrap();
            match world.rank() {
                1 => {
                    asks.wait();
                    drop(lock);
                    world.barrier().wait().unwrap();
                    return; // leaves before the others drop theirs
                }
                2 => {
                    let mut waits = lock.lock().deadline(LATE);
                    assert!(waits.wait_timeout(SHORT).unwrap().is_none());
                    asks.wait();
                    assert_eq!(fault_of(waits.wait()).0, FaultKind::Closed);
                }
                _ => {}
            }
            assert!(matches!(fault_of(lock.lock().deadline(LATE).wait()).0, FaultKind::Closed | FaultKind::PeerLeft));
            world.barrier().wait().unwrap();
            drop(held);
            while world.is_alive(1) {
                std::thread::yield_now();
            }
            assert_eq!(fault_of(lock.lock().deadline(LATE).wait()), (FaultKind::PeerLeft, Some(1)));
        })
        .unwrap();
    }
    for name in ["onesided-poll", "onesided-event"] {
        assert!(ends(name), "{name} goes on");
    }
}

/// Whether no thread of this name is left, in time.
fn ends(name: &str) -> bool {
    let end = Instant::now() + LATE;
    let is_left = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok()).any(|comm| comm.trim() == name)
    };
    while is_left() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
    !is_left()
}

/// All others leave: the home goes on with its own lock.
#[test]
fn the_home_is_left_alone() {
    ranks(3, |world, lock| {
        drop(lock.lock().wait().unwrap());
        world.barrier().wait().unwrap();
        if world.rank() == 0 {
            while (1..3).any(|rank| world.is_alive(rank)) {
                std::thread::yield_now();
            }
            for _ in 0..10 {
                drop(lock.lock().deadline(LATE).wait().unwrap());
            }
        }
    });
}

/// Several locks at one rank, by one thread and by one each, of a part of the ranks as well.
#[test]
fn locks_at_one_rank_do_not_hold_up_one_another() {
    for thread in THREADS {
        threads(3, |world| {
            let locks: Vec<_> = (0..4)
                .map(|at| {
                    let make = ServedLock::new(&world, 0, thread);
                    if at < 2 { make } else { make.with_own_thread() }.wait().unwrap()
                })
                .collect();
            let part = world.split(u32::from(world.rank() == 0), world.rank()).wait().unwrap();
            let of_part = ServedLock::new(&part, part.size() - 1, thread).wait().unwrap();
            assert_eq!(fault_of(ServedLock::new(&part, 9, thread).wait()).0, FaultKind::NoSuchRank);
            world.barrier().wait().unwrap();
            let held = locks[world.rank() as usize].lock().deadline(LATE).wait().unwrap();
            for _ in 0..50 {
                drop(locks[3].lock().deadline(LATE).wait().unwrap());
                drop(of_part.lock().deadline(LATE).wait().unwrap());
            }
            world.barrier().wait().unwrap();
            drop(held);
            world.barrier().wait().unwrap();
        })
        .unwrap();
    }
}

#[test]
fn all_ranks_name_one_home() {
    threads(3, |world| {
        let home = u32::from(world.rank() == 1);
        let error = ServedLock::new(&world, home, ServerThread::Sleeps).wait().map(drop).unwrap_err();
        assert_eq!(error.kind(), FaultKind::OutOfStep, "{error}");
        world.barrier().wait().unwrap();
    })
    .unwrap();
}

fn rough() -> Network {
    Network { loss: 0.05, jitter: Duration::from_micros(5), retries: 50, ..Network::default() }
}

/// What simulated ranks do and see, for all of them: a simulation has one thread.
#[derive(Default)]
struct Seen {
    killed: Option<u32>,
    inside: RefCell<[Option<Mode>; RANKS]>,
    is_done: RefCell<[bool; RANKS]>,
    sections: Cell<u32>,
    recovered: Cell<u32>,
}

const RANKS: usize = 4;
const SECTIONS: u32 = 12;

impl Seen {
    fn enters(&self, rank: u32, guard: &ServedGuard<'_, SimFabric>) {
        let inside = &mut *self.inside.borrow_mut();
        if let Some(fault) = guard.previous_owner() {
            assert_eq!((fault.kind(), fault.rank().map(|rank| rank.0)), (FaultKind::OwnerDied, self.killed));
            inside[self.killed.unwrap() as usize] = None;
            self.recovered.set(self.recovered.get() + 1);
        }
        // A reader that dies leaves the lock to the next owner.
        let others =
            (0..).zip(&*inside).filter(|(other, mode)| **mode == Some(Mode::Exclusive) || self.killed != Some(*other));
        let is_alone = others.clone().all(|(_, mode)| mode.is_none());
        let is_read = others.clone().all(|(_, mode)| *mode != Some(Mode::Exclusive));
        assert!(if guard.mode() == Mode::Exclusive { is_alone } else { is_read }, "rank {rank} enters: {inside:?}");
        inside[rank as usize] = Some(guard.mode());
    }

    /// Sections until a fault but poison. The home stays until the others are done.
    async fn sections(self: Rc<Self>, world: World<SimFabric>, thread: ServerThread) -> Result<(), Error> {
        let lock = ServedLock::new(&world, 0, thread).await?;
        let me = world.rank();
        for round in 0..SECTIONS {
            // Some are withdrawn, soon or after the grant.
            if (round + me).is_multiple_of(3) {
                let _ = lock.lock().deadline(Duration::from_micros(u64::from(3 * round))).await;
            }
            let acquire = if (round + me).is_multiple_of(4) { lock.lock_shared() } else { lock.lock() };
            let guard = match acquire.await {
                Err(error) if error.is_poisoned() => {
                    assert_eq!(fault_of::<()>(Err(error)), (FaultKind::OwnerDied, self.killed));
                    lock.lock().recover().await?
                }
                outcome => outcome?,
            };
            self.enters(me, &guard);
            assert!(!matches!(lock.try_lock().await, Ok(Some(_))), "a second owner");
            self.inside.borrow_mut()[me as usize] = None;
            self.sections.set(self.sections.get() + 1);
        }
        self.is_done.borrow_mut()[me as usize] = true;
        while me == 0 && (1..RANKS).any(|rank| world.is_alive(rank as u32) && !self.is_done.borrow()[rank]) {
            let _ = lock.lock().deadline(Duration::from_micros(50)).await;
        }
        Ok(())
    }
}

#[test]
fn sections_exclude_one_another_under_loss() {
    for thread in THREADS {
        for (seed, network) in (0..10).flat_map(|seed| [(seed, Network::default()), (seed, rough())]) {
            let seen = Rc::new(Seen::default());
            let report = Simulation::new(network)
                .ranks(RANKS as u32)
                .seed(seed)
                .run(|world| Rc::clone(&seen).sections(world, thread));
            assert_eq!(report.end, End::Finished, "seed {seed}");
            report.results.into_iter().for_each(|result| result.unwrap().unwrap());
            assert_eq!(seen.sections.get(), RANKS as u32 * SECTIONS);
        }
    }
}

/// A rank dies at every moment: an owner, a waiter, or the home.
#[test]
fn deaths_end_every_wait_and_are_told() {
    let every = if std::env::var_os("ONESIDED_LONG").is_some() { 1 } else { 7 };
    let mut recovered = 0;
    for (at, network) in (0..400).step_by(every).zip([Network::default(), rough()].into_iter().cycle()) {
        for dead in [0, 1] {
            let seen = Rc::new(Seen { killed: Some(dead), ..Seen::default() });
            let thread = THREADS[at as usize % 2];
            let report = Simulation::new(network.clone())
                .ranks(RANKS as u32)
                .seed(at)
                .kill(dead, Duration::from_micros(at))
                .run(|world| Rc::clone(&seen).sections(world, thread));
            assert_eq!(report.end, End::Finished, "{at} us: rank {dead}");
            for result in report.results.into_iter().flatten() {
                let Err(error) = result else { continue };
                assert_eq!(fault_of::<()>(Err(error)), (FaultKind::PeerDied, Some(dead)), "{at} us: {error}");
                assert!(dead == 0 || matches!(error, Error::Create { .. }), "{at} us: {error}");
            }
            recovered += seen.recovered.get();
        }
    }
    assert!(recovered > 5, "{recovered} owners died");
}

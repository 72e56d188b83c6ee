//! Under an async runtime, and by several threads of one rank at the same time.

use std::future::{Future, IntoFuture};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use onesided::fabric::{AtomicAgent, Fabric};
use onesided::{Error, Op, Window, World};
use tokio::runtime::{Builder, Runtime};

use crate::designs;
use crate::jobs::{self, Role, is_short_on_cards, ok};
use crate::support::{DEADLINE, eventually, ranks};

pub(crate) const ROLES: &[Role] =
    &[("tasks", tasks), ("one thread's tasks", one_threads_tasks), ("threads", threads), ("joins twice", joins_twice)];

const TASKS: u64 = 12;

/// Of each task: a multiple of the four things that a task does.
fn rounds() -> u64 {
    if is_short_on_cards() { 4 } else { 12 }
}

fn many_threads() -> Runtime {
    Builder::new_multi_thread().worker_threads(3).enable_time().build().unwrap()
}

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

/// Many tasks at the same time, each with locks, gets and puts, atomics, and combined calls.
async fn task(window: Window<u64>, number: u64) -> Result<u64, onesided_windows::Error> {
    let size = u64::from(window.world().size());
    let mut done = 0;
    for round in 0..rounds() {
        let target = ((number + round) % size) as u32;
        let mut record = [0; 2];
        match (number + round) % 4 {
            0 => {
                let epoch = window.lock_exclusive(target).await?;
                epoch.get(0, &mut record).await?;
                assert_eq!(record[0], record[1], "torn");
                tokio::task::yield_now().await;
                epoch.put(0, &record.map(|found| found + 1))?;
                epoch.unlock().await?;
                done += 1;
            }
            1 => {
                window.locked(target).update(0, &mut record, |record| record.iter_mut().for_each(|n| *n += 1)).await?;
                done += 1;
            }
            2 => {
                let epoch = window.lock_shared(target).await?;
                epoch.get(0, &mut record).await?;
                assert_eq!(record[0], record[1], "torn");
                epoch.fetch_add(2, 1).await?;
                epoch.unlock().await?;
            }
            _ => {
                let all = window.lock_all().await?;
                all.at(target).await?.accumulate(2, &[1], Op::Sum).await?;
                all.unlock_all().await?;
            }
        }
    }
    Ok(done)
}

fn run_tasks(world: &World, runtime: &Runtime) {
    let window = Window::<u64>::allocate(world, 4).wait().unwrap();
    let done = runtime.block_on(async {
        let tasks: Vec<_> = (0..TASKS).map(|number| tokio::spawn(task(window.clone(), number))).collect();
        let mut done = 0;
        for task in tasks {
            done += task.await.unwrap().unwrap();
        }
        let home = window.lock_shared(0).await.unwrap();
        home.accumulate(3, &[done], Op::Sum).await.unwrap();
        home.unlock().await.unwrap();
        done
    });
    assert!(done > 0);
    world.barrier().wait().unwrap();
    let mut sums = [0; 4];
    for target in 0..world.size() {
        let mut part = [0; 4];
        window.locked(target).get(0, &mut part).wait().unwrap();
        sums.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
    }
    assert_eq!((sums[0], sums[1]), (sums[3], sums[3]), "what was done under locks");
    assert_eq!(sums[2], u64::from(world.size()) * TASKS * rounds() / 2, "what was added");
    window.close().wait().unwrap();
}

fn tasks(world: World) {
    run_tasks(&world, &many_threads());
    ok();
}

fn one_threads_tasks(world: World) {
    run_tasks(&world, &one_thread());
    ok();
}

/// Threads of one rank at the same time, without a runtime.
fn threads(world: World) {
    const THREADS: u64 = 4;
    let rounds = match world.fabric().capabilities().agent {
        AtomicAgent::Card => 4, // an emulated device is slow
        _ if designs::is_one_of_many() => 25,
        _ => 100,
    };
    let window = Window::<u64>::allocate(&world, 2 + 8 * THREADS as usize * world.size() as usize).wait().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (window, world) = (&window, &world);
            scope.spawn(move || {
                let place = 2 + 8 * (u64::from(world.rank()) * THREADS + thread) as usize;
                for round in 0..rounds {
                    let target = ((round + thread) % u64::from(world.size())) as u32;
                    let mut found = [0; 8];
                    let epoch = window.lock_shared(target).wait().unwrap();
                    epoch.put(place, &[round; 8]).unwrap();
                    epoch.get(place, &mut found).wait().unwrap();
                    assert_eq!(found, [round; 8]);
                    epoch.fetch_add(0, 1).wait().unwrap();
                    epoch.unlock().wait().unwrap();
                    let add = |counter: &mut [u64]| counter[0] += 1;
                    window.locked(0).update(1, &mut found[..1], add).wait().unwrap();
                }
            });
        }
    });
    world.barrier().wait().unwrap();
    let mut sum = 0;
    for target in 0..world.size() {
        let mut part = [0; 2];
        window.locked(target).get(0, &mut part).wait().unwrap();
        sum += part[0];
        assert!(target > 0 || part[1] == THREADS * rounds * u64::from(world.size()));
    }
    assert_eq!(sum, THREADS * rounds * u64::from(world.size()));
    window.close().wait().unwrap();
    ok();
}

/// A process is one rank: a second call does not wait for the others.
fn joins_twice(world: World) {
    let error = World::init().unwrap_err();
    let why = "this process has joined it before; a process is one rank, and joins once";
    assert_eq!(error.to_string(), format!("join the job: {why}"));
    drop(world);
    assert!(World::init().is_err());
    ok();
}

#[test]
fn a_process_joins_once() {
    by_processes("joins twice");
}

/// Ranks that are threads share nothing but the card where there is one.
fn by_processes(role: &str) {
    if !is_short_on_cards() {
        let ended = jobs::start(2, role).wait();
        assert_eq!((ended.code, ended.ok()), (0, vec![0, 1]), "{ended:#?}");
    }
}

#[test]
fn many_tasks_of_a_runtime_with_many_threads() {
    ranks(2, tasks);
    by_processes("tasks");
}

#[test]
fn many_tasks_of_a_runtime_with_one_thread() {
    ranks(2, one_threads_tasks);
    by_processes("one thread's tasks");
}

#[test]
fn many_threads_of_one_rank() {
    ranks(2, threads);
    by_processes("threads");
}

/// Counts the polls of a future after which it waits.
struct Counted<'c, F>(F, &'c AtomicUsize);

impl<F: Future + Unpin> Future for Counted<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let polled = pin!(&mut self.0).poll(cx);
        self.1.fetch_add(usize::from(polled.is_pending()), Ordering::Relaxed);
        polled
    }
}

/// Wakers are used: a waiting future is polled when its state may have changed, not continuously.
#[test]
fn a_waiting_future_is_not_polled_continuously() {
    let polls = Arc::new([const { AtomicUsize::new(0) }; 3]);
    let theirs = Arc::clone(&polls);
    ranks(2, move |world| {
        let window = Window::<u64>::allocate(&world, 2).wait().unwrap();
        if world.rank() == 0 {
            let waits_for_long = |wait: usize| {
                eventually(DEADLINE, "rank 1 waits", || theirs[wait].load(Ordering::Relaxed) > 0);
                std::thread::sleep(Duration::from_millis(300));
            };
            let held = window.lock_exclusive(1).wait().unwrap();
            world.barrier().wait().unwrap();
            waits_for_long(0);
            held.signal(0, 1).unwrap();
            waits_for_long(1);
            held.unlock().wait().unwrap();
            waits_for_long(2);
            world.barrier().wait().unwrap();
        } else {
            world.barrier().wait().unwrap();
            one_thread().block_on(async {
                let signal = window.local().wait_until(0, |value| value == 1).into_future();
                Counted(signal, &theirs[0]).await.unwrap();
                drop(Counted(window.lock_exclusive(1).into_future(), &theirs[1]).await.unwrap());
                Counted(world.barrier().into_future(), &theirs[2]).await.unwrap();
            });
        }
        window.close().wait().unwrap();
    });
    let [signal, lock, barrier] = [0, 1, 2].map(|wait| polls[wait].load(Ordering::Relaxed));
    // Liveness is checked now and then.
    assert!(signal < 50 && barrier < 100, "{polls:?}");
    // This lock's waiters retry every 8 to 24 us; a busy loop would have done so a million times.
    assert!(lock < 100_000, "{polls:?}");
}

const _: () = {
    const fn is_send<T: Send>() {}
    const fn is_send_and_sync<T: Send + Sync>() {}
    is_send_and_sync::<World>();
    is_send_and_sync::<Window<u8>>();
    is_send_and_sync::<onesided::LockAll<'_, u64, onesided::Any>>();
    is_send::<Error>();
    is_send::<onesided::Request<'_, onesided::Epoch<'_, u64>>>();
};

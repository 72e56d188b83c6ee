//! Two ranks lose each other, and neither the lock's rank: a waiter that cannot ask the other, and a
//! successor in the queue of one host.

use std::time::Duration;

use onesided_fabric::remote_memory::RemoteMemory;
use onesided_windows::{Error, LockDesign, Mode};

use super::*;

/// Ranks 2 and 3 lose each other, and rank 1 dies with the lock. Rank 2, which waits, cannot ask
/// rank 3 whether it has the lock: it is told so in bounded time, or gets the lock or the news of
/// the death as the others do. Rank 4, which has lost nobody, waits before it, behind it, or comes
/// later.
fn cannot_ask(design: LockDesign, seed: u64, mode: Mode) -> Vec<(u32, Result<Seen, String>)> {
    let simulation = simulation(seed, 3, LOSS, 5 * MS).kill(1, Duration::from_nanos(LOSS + 10 * MS));
    run(simulation, move |world| async move {
        let scores = window(&world, design).await?;
        let (me, mut seen) = (world.rank(), Seen::default());
        match me {
            1 => {
                std::mem::forget(lock(&scores, mode).await?);
                pause_until(&world, OVER).await; // it dies meanwhile
            }
            2 => {
                pause_until(&world, BEGIN + 3 * MS).await;
                let outcome = lock(&scores, Mode::Exclusive).await;
                let died = |error: &Error| error.is_poisoned() && error.fault().unwrap().rank().unwrap().0 == 1;
                let ends = match (&outcome, mode) {
                    (Ok(epoch), _) => epoch.previous_owner().is_none(), // another one may have recovered it
                    (Err(error), _) => is_lost(&outcome) || mode == Mode::Exclusive && died(error),
                };
                seen.wrong_if(!ends, || format!("{mode:?}: {outcome:?}"));
                seen.wrong_if(world.fabric().now() > LATE / 2, || format!("late: {outcome:?}"));
            }
            4 => {
                pause_until(&world, [BEGIN + 2 * MS, BEGIN + 4 * MS, LATE / 2][seed as usize / 2]).await;
                seen = write_in_turns(&world, &scores, 3).await?;
                seen.wrong_if(world.fabric().now() > LATE, || "late".into());
            }
            _ => {}
        }
        pause_until(&world, OVER).await;
        Ok(seen)
    })
    .into_iter()
    .filter(|(rank, _)| *rank != 1)
    .collect()
}

#[test]
fn a_waiter_that_cannot_ask_another_rank_ends() {
    for mode in [Mode::Exclusive, Mode::Shared] {
        let recovered = every_design(&[1], 6, |design, seed| cannot_ask(design, seed, mode));
        assert_eq!(recovered > 0, mode == Mode::Exclusive);
    }
}

/// Ranks 2 and 3 share a host, and wait for the lock that rank 4 holds, rank 3 behind rank 2, when
/// they lose each other. Rank 2 gets the lock and releases it; all others that are left get it.
#[test]
fn a_successor_on_the_same_host_that_is_cut_off_keeps_no_other_waiting() {
    every_design(&[2, 3], 6, |design, seed| {
        run(simulation(seed, 3, LOSS, 5 * MS), move |world| async move {
            let scores = window(&world, design).await?;
            let (me, mut seen) = (world.rank(), Seen::default());
            match me {
                4 => {
                    let epoch = lock(&scores, Mode::Exclusive).await?;
                    // Before and after the loss is known.
                    pause_until(&world, LOSS + [0, 500_000, 100 * MS][seed as usize % 3]).await;
                    seen.wrong.extend(ended(epoch.unlock().await));
                }
                2 | 3 => {
                    pause_until(&world, BEGIN + u64::from(me) * MS).await;
                    match recover(&scores, Mode::Exclusive).await {
                        Ok(epoch) => {
                            pause_until(&world, world.fabric().now() + 5 * MS).await;
                            drop(epoch.unlock().await);
                        }
                        // A queue whose ranks wait for each other.
                        waited => seen.wrong_if(!is_lost(&waited), || format!("{waited:?}")),
                    }
                }
                1 | 5 => {
                    pause_until(&world, LOSS + u64::from(me) * MS).await;
                    seen = write_in_turns(&world, &scores, 3).await?;
                    seen.wrong_if(world.fabric().now() > LATE, || "late".into());
                }
                _ => {}
            }
            pause_until(&world, OVER).await;
            Ok(seen)
        })
    });
}

/// The same with the lock of all targets: rank 1 dies under a `lock_all` that is one operation.
#[test]
fn a_waiter_for_all_targets_that_cannot_ask_another_rank_ends() {
    for (design, seed) in
        [LockDesign::TestAndSet, LockDesign::Ticket].into_iter().flat_map(|design| [(design, 0), (design, 1)])
    {
        let simulation = simulation(seed, 3, LOSS, 5 * MS).kill(1, Duration::from_nanos(LOSS + 10 * MS));
        let seen = run(simulation, move |world| async move {
            let builder = Window::builder().lock(design).lock_all(LockAllDesign::Global);
            let scores: Scores = builder.allocate(&world, 4).await?;
            pause_until(&world, BEGIN).await;
            let mut seen = Seen::default();
            match world.rank() {
                1 => std::mem::forget(scores.lock_all().await?),
                2 => {
                    pause_until(&world, BEGIN + 3 * MS).await;
                    let outcome = lock(&scores, Mode::Exclusive).await;
                    seen.wrong_if(!is_lost(&outcome), || format!("{outcome:?}"));
                    seen.wrong_if(world.fabric().now() > LATE / 2, || "late".into());
                }
                4 => {
                    pause_until(&world, LATE / 2).await;
                    seen = write_in_turns(&world, &scores, 3).await?;
                    seen.wrong_if(world.fabric().now() > LATE, || "late".into());
                }
                _ => {}
            }
            pause_until(&world, OVER).await;
            Ok(seen)
        });
        for (rank, seen) in seen.into_iter().filter(|(rank, _)| *rank != 1) {
            let seen = seen.unwrap_or_else(|what| panic!("{design} seed {seed} rank {rank}: {what}"));
            assert!(seen.wrong.is_empty() && seen.recovered.is_empty(), "{design} seed {seed} rank {rank}: {seen:?}");
        }
    }
}

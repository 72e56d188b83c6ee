//! The report of a deadlock names windows, their locks and the holders of these.

use std::time::Duration;

use onesided_fabric::World;
use onesided_fabric::remote_memory::Rank;
use onesided_instances as _;
use onesided_sim::{End, Network, Report, SimFabric, Simulation, Stuck};
use onesided_windows::{Error, LockAllDesign, LockDesign, LockTable, Window};

use crate::common::pause;

type Outcome = Result<(), Error>;

/// The ranks of the deadlock in which a run ends.
fn stuck(report: &Report<Outcome>) -> &[Stuck] {
    let (End::Deadlock(stuck) | End::Stalled(stuck)) = &report.end else { panic!("{}", report.end) };
    stuck
}

fn simulation(ranks: u32) -> Simulation {
    Simulation::new(Network::default()).ranks(ranks).stalled_after(Duration::from_secs(3))
}

async fn window(world: &World<SimFabric>, design: LockDesign, name: &str) -> Result<Window<u64, SimFabric>, Error> {
    Window::builder().lock(design).name(name).allocate(world, 1).await
}

/// The text of a deadlock without its times.
fn text(report: &Report<Outcome>) -> String {
    let text = report.end.to_string();
    let mut parts = text.split(" since ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let end = part.find([';', ' ']).unwrap_or(part.len());
        text + " since T" + &part[end..]
    })
}

/// Two ranks lock two windows crosswise; a third waits behind one of them, and a fourth for a word.
#[test]
fn who_holds_and_who_waits_is_named() {
    for design in LockDesign::ALL {
        let report = simulation(4).run(move |world| async move {
            let (a, b) = (window(&world, *design, "a").await?, window(&world, *design, "b").await?);
            let (first, second) = if world.rank() == 1 { (&b, &a) } else { (&a, &b) };
            if world.rank() == 3 {
                a.local().wait_until(0, |value| value == 1).await?;
            }
            pause(world.fabric(), 1_000_000 * u64::from(world.rank())).await;
            let held = first.lock_exclusive(0).await?;
            pause(world.fabric(), 10_000_000).await;
            let other = second.lock_exclusive(0).await?;
            other.unlock().await?;
            held.unlock().await
        });
        let lock = |window: &str| format!("for the exclusive lock of window \"{window}\" ({design}) at rank 0");
        let expected = format!(
            "deadlock: 4 ranks wait for ever; rank 0 {b}, held by rank 1 since T; rank 1 {a}, held by rank 0 since T; \
             rank 2 {a}, held by rank 0 since T; rank 3 for the word at 0 of window \"a\"",
            a = lock("a"),
            b = lock("b"),
        );
        assert_eq!(text(&report), expected);
        let behind: Vec<_> = stuck(&report).iter().map(|stuck| stuck.behind.map(|rank| rank.0)).collect();
        assert_eq!(behind, [Some(1), Some(0), Some(0), None], "{design}");
        let (_, since) = stuck(&report)[1].locks[0].holders[0];
        assert!(since < Duration::from_millis(1), "{design}: {since:?}");
    }
}

/// As a rank that locks twice does.
#[test]
fn a_rank_that_waits_for_itself_is_named() {
    for design in LockDesign::ALL {
        let report = simulation(1).run(move |world| async move {
            let window = window(&world, *design, "a").await?;
            let held = window.lock_shared(0).await?;
            window.lock_exclusive(0).await?.unlock().await?;
            held.unlock().await
        });
        let lock = format!("the exclusive lock of window \"a\" ({design}) at rank 0");
        let expected = format!("deadlock: 1 rank waits for ever; rank 0 for {lock}, held by rank 0 since T");
        assert_eq!(text(&report), expected);
        assert_eq!(stuck(&report)[0].behind, Some(Rank(0)));
    }
}

/// Several readers hold the lock; a lock that was released, cancelled or left is not held.
#[test]
fn only_those_that_hold_the_lock_are_named() {
    for design in LockDesign::ALL {
        let report = simulation(6).run(move |world| async move {
            let window = window(&world, *design, "a").await?;
            let soon = Duration::from_micros(500);
            window.lock_exclusive(0).await?.unlock().await?;
            drop(window.lock_shared(0).await?);
            world.barrier().await.unwrap();
            if world.rank() < 4 {
                std::mem::forget(window.lock_shared(0).await?);
            }
            world.barrier().await.unwrap();
            match world.rank() {
                0..4 => std::future::pending().await,
                4 => pause(world.fabric(), 10_000_000).await,
                _ => {
                    let late = window.lock_exclusive(0).deadline(soon).await.map(drop);
                    assert!(late.unwrap_err().is_timed_out());
                    return Ok(());
                }
            }
            window.lock_exclusive(0).await?.unlock().await
        });
        let lock = format!("the exclusive lock of window \"a\" ({design}) at rank 0");
        let held = "held by rank 0 since T and by rank 1 since T and by rank 2 since T and 1 more";
        // Where a cancelled acquire stays in the queue, the rank that cancelled it is stuck, too.
        let (end, waiter) = (text(&report), format!("; rank 4 for {lock}, {held}"));
        assert!(end.contains(&waiter) && !end.contains("rank 5 for the exclusive lock"), "{end}");
    }
}

#[test]
fn a_recovered_lock_is_not_held_by_the_dead() {
    for design in LockDesign::ALL {
        let report = simulation(3).kill(1, Duration::from_millis(5)).run(move |world| async move {
            let window = window(&world, *design, "a").await?;
            if world.rank() == 1 {
                std::mem::forget(window.lock_exclusive(0).await?);
                pause(world.fabric(), 1_000_000_000).await; // it dies meanwhile
            }
            pause(world.fabric(), 10_000_000).await;
            if world.rank() == 2 {
                std::mem::forget(window.lock_exclusive(0).recover().await?);
                return std::future::pending().await;
            }
            pause(world.fabric(), 2_000_000_000).await;
            window.lock_exclusive(0).await.map(drop)
        });
        let lock = format!("rank 0 for the exclusive lock of window \"a\" ({design}) at rank 0");
        assert!(text(&report).contains(&format!("{lock}, held by rank 2 since T; ")), "{}", report.end);
    }
}

#[test]
fn a_lock_of_a_table_and_the_lock_of_all_ranks_are_named() {
    let report = simulation(2).run(|world| async move {
        let table = LockTable::with(Window::builder().lock(LockDesign::Mcs).name("records"), &world, 4).await?;
        let window = Window::<u64>::builder().lock(LockDesign::Ticket).lock_all(LockAllDesign::Global).name("a");
        let window = window.allocate(&world, 1).await?;
        if world.rank() == 0 {
            let _held = table.lock_exclusive(6).await?;
            pause(world.fabric(), 1_000_000).await;
            return window.lock_exclusive(1).await?.unlock().await;
        }
        let _held = window.lock_all().await?;
        pause(world.fabric(), 1_000_000).await;
        table.lock_shared(6).await?.unlock().await
    });
    assert_eq!(
        text(&report),
        "deadlock: 2 ranks wait for ever; \
         rank 0 for the exclusive lock of window \"a\" (ticket) at rank 1, held by rank 1 since T; \
         rank 1 for the shared lock 2 of those at rank 1 of table \"records\" (mcs), held by rank 0 since T"
    );
}

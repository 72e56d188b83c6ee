//! Collectives that a rank does not come to, in time or at all.

use std::sync::{Arc, Barrier};
use std::time::Duration;

use onesided::{Error, Messages, Tag, Window, World};

use crate::jobs::{self, Role, die, ok};
use crate::support::{DEADLINE, eventually, ranks};

#[path = "../messages/collectives/steps.rs"]
pub(crate) mod steps;

pub(crate) const ROLES: &[Role] = &[("split", split), ("reconnect alone", alone)];

/// The ranks that have not come are told from those that wait for them, too.
#[test]
fn a_collective_names_the_ranks_that_it_waited_for() {
    let (entered, over) = (Barrier::new(5), Barrier::new(7));
    ranks(7, move |world| {
        let window = Window::<u64>::builder().name("a").allocate(&world, 1).wait().unwrap();
        let mut fence = window.fence().deadline(Duration::from_millis(5));
        if ![3, 5, 0].contains(&world.rank()) {
            fence = window.fence();
            assert!(fence.test().unwrap().is_none());
        }
        if ![3, 5].contains(&world.rank()) {
            entered.wait();
        }
        if world.rank() == 0 {
            let text = "fence window \"a\": the deadline passed, waiting for rank 3 and 1 more";
            assert_eq!(fence.wait().map(drop).unwrap_err().to_string(), text);
        }
        over.wait();
    });
}

/// All of them, whether they hear from that rank in the rounds or from others alone, and before any of
/// them leaves; also the only rank that is in the collective.
#[test]
fn waiters_learn_which_rank_left() {
    type Step = fn(&World, &Window<u64>) -> Result<(), Error>;
    let steps: &'static [(&str, Step)] = &[
        ("barrier", |world, _| Ok(world.barrier().wait()?)),
        ("all_gather", |world, _| Ok(world.all_gather(&[1]).wait().map(drop)?)),
        ("split a world", |world, _| Ok(world.split(0, 0).wait().map(drop)?)),
        ("create window \"b\"", |world, _| {
            Ok(Window::<u64>::builder().name("b").allocate(world, 1).wait().map(drop)?)
        }),
        ("make a communicator", |world, _| Ok(Messages::new(world).wait().map(drop)?)),
        ("fence window \"a\"", |_, window| Ok(window.fence().wait().map(drop)?)),
        ("", |world, _| Ok(world.reconnect().map(drop)?)),
    ];
    for (begin, step) in steps {
        for (size, left, is_one) in [(3, 0, false), (4, 2, false), (4, 2, true), (7, 5, false)] {
            let [entered, over] = [0; 2].map(|_| Arc::new(Barrier::new(size as usize - 1)));
            ranks(size, move |world| {
                let window = Window::<u64>::builder().name("a").allocate(&world, 1).wait().unwrap();
                if world.rank() == left {
                    return;
                }
                // The rank before it hears from it in no round but the last.
                let is_late = is_one && world.rank() + 1 != left;
                if is_late {
                    entered.wait();
                }
                let error = step(&world, &window).unwrap_err();
                let text = error.to_string();
                assert!(text.starts_with(begin) && text.ends_with(&format!(": rank {left} has left")), "{text}");
                if !is_late && is_one {
                    entered.wait();
                }
                over.wait();
            });
        }
    }
}

#[test]
fn a_deadline_past_the_clock_is_no_deadline() {
    ranks(2, |world| {
        world.barrier().deadline(Duration::MAX).wait().unwrap();
        world.close(Duration::MAX).unwrap();
    });
}

/// Two worlds of three ranks; a rank dies in one of them, and the other continues.
fn split(world: World) {
    let subworld = world.split(world.rank() % 2, 0).wait().unwrap();
    let window = Window::<u64>::builder().name("subworld").allocate(&subworld, 1).wait().unwrap();
    let ready = Window::<u64>::allocate(&world, 1).wait().unwrap();
    let fenced = window.fence().wait().unwrap().end().wait();
    if world.rank() == 3 {
        fenced.unwrap();
        eventually(DEADLINE, "all others are there", || ready.local().read(0..1) == [5]);
        die();
    }
    // All that was made with rank 3 is complete here.
    let epoch = ready.lock_shared(3).wait().unwrap();
    epoch.fetch_add(0, 1).wait().unwrap();
    epoch.unlock().wait().unwrap();
    if world.rank() % 2 == 1 {
        // It may die before the others are out of the fence.
        let error = match (fenced, subworld.rank()) {
            (Err(error), _) => Error::from(error),
            (_, 0) => Error::from(subworld.barrier().wait().unwrap_err()),
            _ => Error::from(window.local().wait_until(0, |value| value > 0).wait().unwrap_err()),
        };
        assert!(error.to_string().ends_with("rank 1 died"), "{error}");
        if subworld.rank() == 2 {
            // Its leaving would be an error for a rank that is still in the barrier.
            eventually(DEADLINE, "rank 0 knows that rank 1 left", || !world.is_alive(1));
        }
        return ok();
    }
    fenced.unwrap();
    while world.is_alive(3) {
        std::thread::sleep(Duration::from_millis(1));
    }
    for round in 1..=if jobs::is_short_on_cards() { 10 } else { 200 } {
        let next = (subworld.rank() + 1) % subworld.size();
        let epoch = window.lock_exclusive(next).wait().unwrap();
        epoch.fetch_add(0, 1).wait().unwrap();
        epoch.unlock().wait().unwrap();
        subworld.barrier().wait().unwrap();
        assert_eq!(window.local().read(0..1), [round]);
        subworld.barrier().wait().unwrap();
    }
    assert_eq!(world.barrier().wait().unwrap_err().to_string(), "barrier: rank 3 died");
    window.close().wait().unwrap();
    ok();
}

#[test]
fn a_death_ends_the_collectives_of_its_own_world() {
    let ended = jobs::start(6, "split").wait();
    assert_eq!(ended.ok(), [0, 1, 2, 4, 5], "{ended:?}");
}

/// Rank 1 does not call it.
fn alone(world: World) {
    let messages = Messages::new(&world).wait().unwrap();
    let other = 1 - world.rank();
    if world.rank() == 0 {
        let error = world.reconnect().unwrap_err();
        assert!(error.is_timed_out(), "{error}");
        messages.send(&[0_u8], other, Tag(0)).wait().unwrap();
    } else {
        messages.recv::<u8>(other, Tag(0)).deadline(DEADLINE).wait().unwrap();
    }
    ok();
}

#[test]
fn a_rank_that_reconnects_alone_gives_up_after_the_time_for_joining() {
    let ended = jobs::start_under(2, "reconnect alone", ("ONESIDED_JOIN_TIMEOUT", "2")).wait();
    assert_eq!(ended.ok(), [0, 1], "{ended:?}");
}

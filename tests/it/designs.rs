//! Guarantees of every lock design, chosen by name.

use std::process::{Command, Stdio};
use std::time::Duration;

use onesided::{
    Error, FaultKind, LockAllDesign, LockDesign, LockTable, Mode, PreviousOwner, Window, WindowError, World,
};

use crate::support::{DEADLINE, ranks};

/// Runs ranks that share a window of each design.
fn each(count: u32, run: fn(&World, &Window<u64>)) {
    each_of(None, count, run);
}

/// The same with a given design of `lock_all`.
fn each_of(all: Option<LockAllDesign>, count: u32, run: fn(&World, &Window<u64>)) {
    for design in LockDesign::ALL {
        ranks(count, move |world| {
            let builder = Window::<u64>::builder().lock(*design).name("scores");
            let builder = all.map_or_else(|| builder.clone(), |all| builder.clone().lock_all(all));
            let window = builder.allocate(&world, 8).wait().unwrap();
            assert_eq!(window.info().lock, *design);
            let explained = window.explain(0);
            assert!(all.is_some() || explained.ends_with(&format!("lock {design}")), "{explained}");
            run(&world, &window);
            window.close().wait().unwrap();
        });
    }
}

/// All ranks lock all, each in its own order.
#[test]
fn several_locks_at_once_do_not_deadlock() {
    each(3, |world, window| {
        for round in 0..60 {
            let mut all = [2, 1, 0, 2];
            all.rotate_left((world.rank() as usize + round) % 4);
            let guards = window.lock_many(&all, Mode::Exclusive).wait().unwrap();
            assert_eq!(guards.iter().map(|guard| guard.target()).collect::<Vec<_>>(), [0, 1, 2]);
            let mut count = [0];
            guards[0].get(0, &mut count).wait().unwrap();
            guards[0].put(0, &[count[0] + 1]).unwrap();
            for guard in guards {
                guard.unlock().wait().unwrap();
            }
            drop(window.lock_many(&all, Mode::Shared).wait().unwrap());
        }
        // What was taken before a failure is free again.
        assert!(matches!(window.lock_many(&[0, 9], Mode::Exclusive).wait().unwrap_err(), WindowError::Rank { .. }));
        assert!(window.lock_many(&[], Mode::Shared).wait().unwrap().is_empty());
        world.barrier().wait().unwrap();
        assert!(world.rank() != 0 || window.local().read(0..1) == [180]);
        // A rank that panicked held two of them.
        if world.rank() == 1 {
            let panics = std::panic::AssertUnwindSafe(|| {
                let _guards = window.lock_many(&[2, 0], Mode::Exclusive).wait().unwrap();
                std::panic::resume_unwind(Box::new(()));
            });
            assert!(std::panic::catch_unwind(panics).is_err());
        }
        world.barrier().wait().unwrap();
        if world.rank() == 0 {
            let error = Error::from(window.lock_many(&[0, 1], Mode::Exclusive).wait().unwrap_err());
            assert!(error.is_poisoned(), "{error}");
            let guards = window.lock_many(&[0, 1, 2], Mode::Exclusive).recover().deadline(DEADLINE).wait().unwrap();
            let previous: Vec<_> = guards.iter().map(|guard| guard.previous_owner()).collect();
            assert_eq!(previous, [Some(PreviousOwner::Panicked(1)), None, Some(PreviousOwner::Panicked(1))]);
        }
        world.barrier().wait().unwrap();
    });
}

#[test]
fn a_try_returns_with_the_lock_or_without() {
    each(2, |world, window| {
        for (held, mode) in [(Mode::Exclusive, true), (Mode::Shared, false)] {
            if world.rank() == 0 {
                let request = if held == Mode::Exclusive { window.lock_exclusive(0) } else { window.lock_shared(0) };
                let epoch = request.wait().unwrap();
                world.barrier().wait().unwrap();
                world.barrier().wait().unwrap();
                epoch.unlock().wait().unwrap();
                world.barrier().wait().unwrap();
            } else {
                world.barrier().wait().unwrap();
                assert!(window.try_lock_exclusive(0).wait().unwrap().is_none());
                let shared = window.try_lock_shared(0).wait().unwrap();
                assert_eq!(shared.is_none(), mode, "{held:?}");
                assert!(shared.is_none_or(|epoch| epoch.mode() == Mode::Shared));
                world.barrier().wait().unwrap();
                world.barrier().wait().unwrap();
                let epoch = window.try_lock_exclusive(0).wait().unwrap().expect("it is free");
                epoch.put(0, &[1]).unwrap();
                epoch.unlock().wait().unwrap();
                assert!(window.try_lock_shared(0).wait().unwrap().is_some());
            }
            world.barrier().wait().unwrap();
        }
    });
}

/// A writer holds rank 0's lock and asks for rank 1's, while a `lock_all` waits for the first.
#[test]
fn lock_all_does_not_deadlock() {
    each_of(Some(LockAllDesign::EachTarget), 2, |world, window| {
        if world.rank() == 0 {
            let first = window.lock_exclusive(0).wait().unwrap();
            world.barrier().wait().unwrap();
            std::thread::sleep(Duration::from_millis(100)); // until the other rank waits
            let second = window.lock_exclusive(1).deadline(DEADLINE / 3).wait().unwrap();
            second.unlock().wait().unwrap();
            first.unlock().wait().unwrap();
        } else {
            world.barrier().wait().unwrap();
            window.lock_all().wait().unwrap().unlock_all().wait().unwrap();
        }
    });
}

/// Also in lock tables. Exclusive requests for test-and-set locks need no slot.
#[test]
fn lock_slots_bound_the_locks_of_a_rank() {
    for design in LockDesign::ALL {
        ranks(2, move |world| {
            let builder = || Window::<u64>::builder().lock(*design).name("scores").lock_slots(3);
            let refused = |outcome: Result<(), Error>| {
                let error = outcome.unwrap_err();
                assert_eq!(error.fault().map(|fault| fault.kind()), Some(FaultKind::NoSlot), "{design}: {error}");
                let said = error.fault().unwrap().to_string();
                assert!(said.contains("`lock_slots`"), "{design}: {said}");
            };
            let (window, me) = (builder().allocate(&world, 1).wait().unwrap(), world.rank());
            for _ in 0..10 {
                let mut held: Vec<_> = (0..3).map(|_| window.lock_shared(me).wait().unwrap()).collect();
                refused(window.lock_shared(1 - me).wait().map(drop).map_err(Error::from));
                held.pop().unwrap().unlock().wait().unwrap();
                held.push(window.lock_shared(1 - me).wait().unwrap());
                refused(window.try_lock_shared(me).wait().map(drop).map_err(Error::from));
                held.into_iter().for_each(|epoch| epoch.unlock().wait().unwrap());
                world.barrier().wait().unwrap();
            }
            if design.fits_tables() {
                let table = LockTable::with(builder(), &world, 4).wait().unwrap();
                let held: Vec<_> = (0..3).map(|lock| table.lock_shared(lock).wait().unwrap()).collect();
                refused(table.lock_shared(3).wait().map(drop).map_err(Error::from));
                if *design == LockDesign::TestAndSet {
                    drop(table.lock_exclusive(4 + u64::from(me)).wait().unwrap());
                }
                drop(held);
                table.close().wait().unwrap();
            }
            window.close().wait().unwrap();
            let differs = Window::<u64>::builder().lock(*design).lock_slots(2 + me as u16);
            let error = Error::from(differs.allocate(&world, 1).wait().map(drop).unwrap_err()).to_string();
            assert!(error.contains("2 slots") && error.contains("3 slots"), "{error}");
        });
    }
}

/// The names of the tests that lock begin with these.
const THAT_LOCK: &[&str] = &[
    "litmus::lock_hands_over::threads",
    "litmus::locked_update::threads",
    "requests::",
    "runtimes::",
    "handles::",
    "deadlines::",
    "scopes::",
];

/// Whether this program runs them once more, under one of many designs: in fewer rounds.
pub(crate) fn is_one_of_many() -> bool {
    std::env::var_os("ONESIDED_LOCK").is_some() && std::env::var_os("ONESIDED_LONG").is_none()
}

/// Runs those tests once more under each of these settings, two at a time: they wait for much.
pub(crate) fn those_that_lock_pass<const N: usize>(settings: &[[(&str, &str); N]]) {
    let start = |setting: &[(&str, &str); N]| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(THAT_LOCK).envs(*setting).stdout(Stdio::piped()).spawn().unwrap()
    };
    for two in settings.chunks(2) {
        for (setting, started) in two.iter().zip(two.iter().map(start).collect::<Vec<_>>()) {
            let ended = started.wait_with_output().unwrap();
            let output = String::from_utf8_lossy(&ended.stdout);
            let all = THAT_LOCK.iter().all(|name| output.contains(&format!("test {name}")));
            assert!(ended.status.success() && all, "{setting:?}: {output}");
        }
    }
}

/// Further tests that lock, under every design but the default. A thread for each window serves as one for all
/// does: `scenarios` runs with both.
#[test]
fn the_tests_that_lock_pass_under_every_design() {
    if std::env::var_os("ONESIDED_LOCK").is_some() {
        return; // it was started by this test
    }
    let long = std::env::var_os("ONESIDED_LONG").is_some();
    let tested = |design: &LockDesign| long || !design.name().ends_with("per-window");
    let designs = LockDesign::ALL.iter().filter(|design| **design != LockDesign::default() && tested(design));
    those_that_lock_pass(&designs.map(|design| [("ONESIDED_LOCK", design.name())]).collect::<Vec<_>>());
}

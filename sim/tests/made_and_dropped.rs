//! What a program makes and drops leaves nothing behind, however often: counted, of all threads of a
//! process, in which nothing else runs.

mod counting;

use std::time::Duration;

use onesided_fabric::{Any, World, threads};
use onesided_instances as _;
use onesided_windows::{LockDesign, LockTable, Mutex, RwLock, Window};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const ROUNDS: u32 = 100;
/// What a round may leave, in bytes: lists of free ranges grow at first. What stays of a window or a request
/// takes more.
const LEAST: isize = 512;

/// What all threads have allocated more after many rounds than after some.
#[track_caller]
fn leaves_nothing(what: &str, round: impl Fn(&World<Any>) -> Outcome + Sync) {
    let more = threads(2, |world| -> Outcome<isize> {
        let allocated = |count: u32| -> Outcome<isize> {
            (0..count).try_for_each(|_| round(&world))?;
            world.barrier().wait()?;
            std::thread::sleep(Duration::from_millis(20)); // background work ends
            let allocated = counting::allocated_by_all() as isize;
            world.barrier().wait()?;
            Ok(allocated)
        };
        let before = allocated(ROUNDS / 2)?;
        Ok(allocated(ROUNDS)? - before)
    });
    for more in more.unwrap() {
        let more = more.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(more < LEAST * ROUNDS as isize, "{what}: {more} bytes are left of {ROUNDS} rounds");
    }
}

/// One after the other, as all threads are counted.
#[test]
fn what_is_made_and_dropped_leaves_nothing() {
    worlds();
    windows_of_every_design();
    windows_without_a_close();
    windows_over_vectors();
    tables_and_values();
    requests_that_are_dropped();
    a_leak_is_found();
}

fn a_leak_is_found() {
    let leaks = || {
        leaves_nothing("a leak", |_| {
            std::mem::forget(std::hint::black_box(Box::new([0_u8; LEAST as usize])));
            Ok(())
        });
    };
    let found = std::panic::catch_unwind(leaks).unwrap_err();
    assert!(found.downcast_ref::<String>().is_some_and(|found| found.contains("bytes are left")));
}

fn worlds() {
    leaves_nothing("split worlds", |world| {
        let part = world.split(0, 1 - world.rank()).wait()?;
        part.barrier().wait()?;
        let alone = world.split(world.rank(), 0).wait()?;
        alone.barrier().wait()?;
        Ok(())
    });
}

fn windows_of_every_design() {
    for design in LockDesign::ALL {
        leaves_nothing(design.name(), |world| {
            let window = Window::<u64>::builder().lock(*design).allocate(world, 16).wait()?;
            let epoch = window.lock_exclusive(0).wait()?;
            epoch.fetch_add(0, 1).wait()?;
            epoch.unlock().wait()?;
            window.fence().wait()?.end().wait()?;
            Ok(window.close().wait()?)
        });
    }
}

fn windows_without_a_close() {
    leaves_nothing("windows that are dropped", |world| {
        let window = Window::<u64>::allocate(world, 16).wait()?;
        window.lock_shared(1 - world.rank()).wait()?.unlock().wait()?;
        world.barrier().wait()?;
        Ok(())
    });
}

fn windows_over_vectors() {
    leaves_nothing("windows over vectors", |world| {
        let window = Window::create(world, vec![0_u64; 16]).wait()?;
        let access = window.lock_all().wait()?;
        access.at(1 - world.rank()).wait()?.put(0, &[1])?;
        access.unlock_all().wait()?;
        Ok(window.close().wait()?)
    });
}

fn tables_and_values() {
    leaves_nothing("tables and values", |world| {
        let table = LockTable::new(world, 100).wait()?;
        table.lock_exclusive(3).wait()?.unlock().wait()?;
        table.close().wait()?;
        let mutex = Mutex::new(world, 0, 7_u64).wait()?;
        drop(mutex.lock().wait()?);
        let value = RwLock::new(world, 1, 7_u64).wait()?;
        drop(value.read().wait()?);
        world.barrier().wait()?;
        Ok(())
    });
}

fn requests_that_are_dropped() {
    leaves_nothing("requests that are dropped", |world| {
        let window = Window::<u64>::builder().lock(LockDesign::Mcs).allocate(world, 16).wait()?;
        let held = if world.rank() == 0 { Some(window.lock_exclusive(0).wait()?) } else { None };
        world.barrier().wait()?;
        if world.rank() == 1 {
            drop(window.lock_exclusive(0));
            assert!(
                window.lock_shared(0).deadline(Duration::from_micros(10)).wait().is_err_and(|late| late.is_timed_out())
            );
        }
        world.barrier().wait()?;
        drop(held);
        world.barrier().wait()?;
        Ok(window.close().wait()?)
    });
}

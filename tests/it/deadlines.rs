//! Deadlines of requests and collectives.

use std::time::{Duration, Instant};

use onesided::{Error, FaultKind, LockAllDesign, LockDesign, LockTable, Messages, Mode, Mutex, RwLock, Window};

use crate::handles::Steps;
use crate::support::{DEADLINE, eventually, ranks, run_async};

const SHORT: Duration = Duration::from_millis(5);

/// Every request has a deadline, for a thread that blocks, for a task, and for one that tests; the
/// last one that is set counts.
#[test]
fn every_request_has_a_deadline() {
    macro_rules! late {
        ($begin:expr) => {{
            let begin = Instant::now();
            let error = $begin.deadline(SHORT).wait().map(drop).unwrap_err();
            assert!(error.is_timed_out() && begin.elapsed() >= SHORT, "{error}");
            let error = run_async($begin.deadline(DEADLINE).deadline(SHORT)).map(drop).unwrap_err();
            assert!(error.is_timed_out(), "{error}");
            let mut handle = $begin.deadline(SHORT);
            eventually(DEADLINE, "the deadline passed", || handle.test().is_err_and(|error| error.is_timed_out()));
        }};
    }
    let steps = Steps::default();
    ranks(2, move |world| {
        let all_designs = [LockAllDesign::OnDemand, LockAllDesign::EachTarget, LockAllDesign::Global];
        let windows = all_designs.map(|design| Window::<u64>::builder().lock_all(design).allocate(&world, 1));
        let windows = windows.map(|window| window.wait().unwrap());
        let (window, records) = (&windows[0], Window::<u64>::allocate(&world, 1).wait().unwrap().versioned());
        let (value, limits) =
            (Mutex::new(&world, 1, 7_u64).wait().unwrap(), RwLock::new(&world, 1, 7_u64).wait().unwrap());
        let table = Window::<u64>::builder().lock(LockDesign::TestAndSet); // others may have no tables
        let table = LockTable::with(table, &world, 2).wait().unwrap();
        if world.rank() == 0 {
            steps.wait(1);
            let mut into = [0];
            late!(window.start(&[1]));
            let exposure = window.post(&[1]).unwrap().deadline(SHORT);
            assert!(exposure.wait().unwrap_err().is_timed_out());
            late!(window.local().wait_until(0, |value| value == 1));
            late!(window.local().wait_until_from(1, 0, |value| value == 1));
            late!(window.lock_exclusive(1));
            late!(window.lock_exclusive(1).fenced());
            late!(window.lock_many(&[1, 0], Mode::Exclusive));
            late!(window.locked(1).get(0, &mut into));
            late!(window.locked(1).put(0, &into));
            late!(window.locked(1).update(0, &mut into, |_| ()));
            let mut epochs = window.epochs();
            late!(epochs.lock(1, Mode::Shared));
            let all = window.lock_all().wait().unwrap();
            late!(all.at(1));
            drop(all);
            late!(windows[1].lock_all());
            late!(windows[2].lock_all());
            late!(value.lock());
            late!(limits.read());
            late!(limits.write().recover());
            late!(records.write(1));
            late!(records.read_into(1, 0, &mut into));
            late!(table.lock_shared(3));
            late!(table.lock_many(&[0, 3], Mode::Exclusive));
            // A free lock is acquired before the deadline.
            drop(table.lock_exclusive(0).deadline(SHORT).wait().unwrap());
            steps.reach(2);
        } else {
            let held = windows.each_ref().map(|window| window.lock_exclusive(1).wait().unwrap());
            let (guard, limit) = (value.lock().wait().unwrap(), limits.write().wait().unwrap());
            let (record, lock) = (records.write(1).wait().unwrap(), table.lock_exclusive(3).wait().unwrap());
            steps.reach(1);
            steps.wait(2);
            drop((held, guard, limit, record, lock));
        }
        world.barrier().wait().unwrap();
        // Nothing is left locked.
        for window in windows {
            window.lock_exclusive(1).wait().unwrap().unlock().wait().unwrap();
            window.close().wait().unwrap();
        }
        drop((value.lock().wait().unwrap(), limits.write().wait().unwrap(), table.lock_exclusive(3).wait().unwrap()));
        value.close().wait().unwrap();
        limits.close().wait().unwrap();
        table.close().wait().unwrap();
        records.close().wait().unwrap();
    });
}

/// A collective that was given up is the last one of its world or window.
#[test]
fn every_collective_has_a_deadline() {
    let steps = Steps::default();
    ranks(2, move |world| {
        macro_rules! late {
            (|$subworld:ident, $window:ident| $begin:expr, then $next:expr, $kind:ident) => {{
                let $subworld = world.split(0, 0).wait().unwrap();
                let $window = Window::<u64>::builder().name("late").allocate(&$subworld, 1).wait().unwrap();
                if world.rank() == 0 {
                    let error = Error::from($begin.deadline(SHORT).wait().map(drop).unwrap_err());
                    assert!(error.is_timed_out(), "{error}");
                    assert!(error.to_string().ends_with(", waiting for rank 1"), "{error}");
                    // A close that is out of step ends its server first.
                    let deadline = if FaultKind::$kind == FaultKind::TimedOut { SHORT } else { DEADLINE };
                    let error = Error::from($next.deadline(deadline).wait().map(drop).unwrap_err());
                    assert_eq!(error.kind(), Some(FaultKind::$kind), "{error}");
                }
            }};
            (|$subworld:ident, $window:ident| $begin:expr) => {
                late!(|$subworld, $window| $begin, then $subworld.barrier(), OutOfStep)
            };
        }
        late!(|_subworld, window| window.fence(), then window.fence(), OutOfStep);
        late!(|_subworld, window| window.fence(), then window.close(), OutOfStep);
        late!(|subworld, window| window.fence(), then subworld.barrier(), TimedOut);
        late!(|_subworld, window| window.clone().close(), then window.fence(), OutOfStep);
        late!(|subworld, window| window.close(), then subworld.barrier(), TimedOut);
        late!(|subworld, window| window.close_into(), then subworld.barrier(), TimedOut);
        late!(|subworld, _window| Window::<u64>::allocate(&subworld, 1));
        late!(|subworld, _window| Mutex::new(&subworld, 0, 1_u64));
        late!(|subworld, _window| LockTable::new(&subworld, 1));
        late!(|subworld, _window| subworld.barrier());
        late!(|subworld, _window| Messages::new(&subworld));
        match world.rank() {
            0 => steps.reach(1),
            _ => steps.wait(1),
        }
        world.barrier().wait().unwrap();
    });
}

/// A collective that was entered and dropped is the last one, too.
#[test]
fn a_collective_that_is_dropped_is_the_last_one() {
    let steps = Steps::default();
    ranks(2, move |world| {
        if world.rank() == 0 {
            assert!(world.barrier().test().unwrap().is_none());
            let error = Window::<u64>::allocate(&world, 1).wait().map(drop).unwrap_err();
            assert_eq!(error.kind(), Some(FaultKind::OutOfStep), "{error}");
            steps.reach(1);
        }
        steps.wait(1);
    });
}

//! Lock tables, and fencing tokens.

use std::time::Duration;

use onesided::{
    Builder, Element, Error, FaultKind, LockDesign, LockTable, Mode, Mutex, PreviousOwner, RwLock, Window, WindowError,
    World,
};

use crate::jobs::{self, Role, die, ok};
use crate::support::{DEADLINE, eventually, ranks};

pub(crate) const ROLES: &[Role] = &[("table", owner_dies)];

/// A window's lock is chosen by a builder; a table's too.
fn table(world: &World, design: LockDesign, here: usize) -> LockTable {
    LockTable::with_tokens(Window::<u64>::builder().lock(design).name("records"), world, here).wait().unwrap()
}

/// The designs that tables support.
fn designs() -> impl Iterator<Item = &'static LockDesign> {
    LockDesign::ALL.iter().filter(|design| design.fits_tables())
}

/// A table does not support a lock with words at every rank, or with a thread.
#[test]
fn the_other_designs_are_refused() {
    for design in LockDesign::ALL.iter().filter(|design| !designs().any(|other| other == *design)) {
        ranks(2, move |world| {
            let made = LockTable::with(Window::<u64>::builder().lock(*design), &world, 1).wait();
            let error = made.map(drop).unwrap_err();
            assert!(error.fault().is_some_and(|fault| fault.kind() == FaultKind::Unsupported), "{design} {error}");
        });
    }
}

/// A table's locks have another layout with tokens, and another than a window's.
#[test]
fn ranks_with_different_tables_all_get_an_error() {
    type Make = fn(&World) -> Result<(), WindowError>;
    fn of<T: Element>() -> Builder<T> {
        Window::builder().lock(LockDesign::Ticket)
    }
    let makes: [(&str, Make); 4] = [
        (", of a table", |world| LockTable::with(of(), world, 4).wait().map(drop)),
        (", of a table with tokens", |world| LockTable::with_tokens(of(), world, 4).wait().map(drop)),
        (", of a value", |world| Mutex::with(of(), world, 0, 0_u64).wait().map(drop)),
        ("", |world| of::<u64>().allocate(world, 4).wait().map(drop)),
    ];
    for first in makes {
        for other in makes.into_iter().filter(|other| other.0 != first.0) {
            let errors = ranks(3, move |world| {
                let (_, make) = if world.rank() == 1 { other } else { first };
                make(&world).unwrap_err().to_string()
            });
            let why = format!("rank 1 differs from rank 0 in the lock: ticket{} against ticket{}", other.0, first.0);
            let of = |purpose: &str| match purpose {
                ", of a value" => "a mutex of u64",
                "" => "unnamed, of u64",
                _ => "unnamed, of locks",
            };
            let expected =
                [first, other, first].map(|(purpose, _)| format!("create window \"{}\": {why}", of(purpose)));
            assert_eq!(errors, expected);
        }
    }
}

#[test]
fn a_million_locks() {
    for design in designs() {
        ranks(2, move |world| {
            let builder = Window::<u64>::builder().lock(*design);
            let table = LockTable::with(builder, &world, 500_000).wait().unwrap();
            assert_eq!((table.len(), table.design(), table.locks_at(1)), (1_000_000, *design, 500_000..1_000_000));
            assert_eq!(table.place(999_999), Some((1, 499_999)));
            let bytes = match design {
                LockDesign::TestAndSet => 8,
                LockDesign::FetchAddQueue => 272,
                _ => 16,
            };
            assert_eq!(table.bytes_per_lock(), bytes, "{design}");
            for lock in (u64::from(world.rank())..table.len()).step_by(1009) {
                assert!(table.try_lock_exclusive(lock).wait().unwrap().is_some(), "{lock} of {table:?}");
            }
            table.close().wait().unwrap();
        });
    }
}

#[test]
fn each_lock_is_by_itself() {
    for design in designs() {
        ranks(3, move |world| {
            let table = table(&world, *design, world.rank() as usize * 2);
            assert_eq!(
                (table.len(), table.locks_at(0), table.locks_at(1), table.locks_at(2), table.locks_at(3)),
                (6, 0..0, 0..2, 2..6, 0..0)
            );
            assert_eq!(
                [0, 1, 2, 5, 6].map(|lock| table.place(lock)),
                [Some((1, 0)), Some((1, 1)), Some((2, 0)), Some((2, 3)), None]
            );
            let error = table.lock_shared(6).wait().unwrap_err();
            assert!(matches!(error, WindowError::NoSuchLock { lock: 6, count: 6, .. }), "{error}");
            assert_eq!(error.to_string(), "lock_shared of lock 6 of table \"records\": it has 6 locks");
            let mine = u64::from(world.rank());
            let guards = [table.lock_exclusive(mine).wait().unwrap(), table.lock_exclusive(mine + 3).wait().unwrap()];
            assert_eq!((guards[0].lock(), guards[1].mode()), (mine, Mode::Exclusive));
            world.barrier().wait().unwrap();
            for lock in 0..6 {
                assert!(table.try_lock_shared(lock).wait().unwrap().is_none());
            }
            let error = table.lock_shared((mine + 1) % 3).deadline(Duration::from_millis(2)).wait().unwrap_err();
            assert!(error.is_timed_out() && error.to_string().contains("of lock"), "{error}");
            world.barrier().wait().unwrap();
            drop(guards);
            world.barrier().wait().unwrap();
            let many = table.lock_many(&[4, 1, 0, 5, 4, 3, 2], Mode::Shared);
            let shared = many.deadline(DEADLINE / 2).wait().unwrap();
            assert!(shared.iter().map(|guard| guard.lock()).eq(0..6));
            world.barrier().wait().unwrap();
            drop(shared);
            table.close().wait().unwrap();
        });
    }
}

/// Tokens rise from owner to owner, however they are drawn, for windows, tables and values.
#[test]
fn tokens_rise() {
    for design in designs() {
        ranks(3, move |world| {
            let window = Window::<u64>::builder().lock(*design).allocate(&world, 1).wait().unwrap();
            let table = table(&world, *design, 4);
            for round in 0..200_u64 {
                // The lock protects the last token.
                let (epoch, token) = match round % 2 {
                    0 => window.lock_exclusive(1).fenced().wait().unwrap(),
                    _ => {
                        let epoch = window.lock_exclusive(1).wait().unwrap();
                        let token = epoch.fencing_token().wait().unwrap();
                        (epoch, token)
                    }
                };
                let mut last = [0];
                epoch.get(0, &mut last).wait().unwrap();
                assert!(token > last[0], "{design}: {token} after {}", last[0]);
                let later = epoch.fencing_token().wait().unwrap();
                assert!(later > token);
                epoch.put(0, &[later]).unwrap();
                epoch.unlock().wait().unwrap();
                if round % 8 == 0 {
                    // Readers have tokens as well, above those of earlier writers.
                    let (epoch, token) = window.lock_shared(1).fenced().wait().unwrap();
                    epoch.get(0, &mut last).wait().unwrap();
                    assert!(token > last[0], "{design}: {token} after {}", last[0]);
                }
                let guard = table.lock_exclusive(7).wait().unwrap();
                let first = guard.fencing_token().wait().unwrap();
                assert!(guard.fencing_token().wait().unwrap() == first + 1);
            }
            world.barrier().wait().unwrap();
            // One for each draw, and none of another lock.
            let guard = table.lock_exclusive(7).wait().unwrap();
            assert!((1201..1204).contains(&guard.fencing_token().wait().unwrap()));
            drop(guard);
            let other = table.lock_shared(6).wait().unwrap().fencing_token().wait().unwrap();
            assert!((1..4).contains(&other));
            let plain = LockTable::new(&world, 1).wait().unwrap();
            assert!(plain.lock_shared(0).wait().unwrap().fencing_token().wait().is_err());
            world.barrier().wait().unwrap();
        });
    }
    ranks(2, move |world| {
        let (mutex, limits) =
            (Mutex::new(&world, 0, 0_u64).wait().unwrap(), RwLock::new(&world, 1, 0_u64).wait().unwrap());
        for _ in 0..100 {
            let mut last = mutex.lock().wait().unwrap();
            let token = last.fencing_token().wait().unwrap();
            assert!(token > *last);
            *last = token;
            last.unlock().wait().unwrap();
            let mut last = limits.write().wait().unwrap();
            let token = last.fencing_token().wait().unwrap();
            assert!(token > *last);
            *last = token;
            last.unlock().wait().unwrap();
            let read = limits.read().wait().unwrap();
            assert!(read.fencing_token().wait().unwrap() > *read);
        }
        world.barrier().wait().unwrap();
    });
}

/// Rank 0 dies and holds three locks of a table. The two that it holds exclusively are poisoned,
/// each separately, and no other.
fn owner_dies(world: World) {
    let table = LockTable::with_tokens(Window::<u64>::builder().name("records"), &world, 4).wait().unwrap();
    let state = Window::<u64>::allocate(&world, 3).wait().unwrap();
    if world.rank() == 0 {
        let guards = [5, 10].map(|lock| table.lock_exclusive(lock).wait().unwrap());
        let _read = table.lock_shared(9).wait().unwrap();
        let token = guards[0].fencing_token().wait().unwrap();
        state.no_check().at(2).unwrap().fetch_add(1, token).wait().unwrap();
        world.barrier().wait().unwrap();
        std::thread::sleep(Duration::from_millis(100));
        die();
    }
    world.barrier().wait().unwrap();
    let named = table.design() == LockDesign::TestAndSet;
    let error = table.lock_exclusive(5).wait().unwrap_err();
    let reason = if named { "died while it held the lock" } else { "died, and may have held the lock" };
    assert_eq!(
        error.to_string(),
        format!("lock_exclusive of lock 5 of table \"records\", at rank 1: rank 0 {reason} (`recover` takes it over)")
    );
    assert!(Error::from(table.lock_exclusive(10).wait().unwrap_err()).is_poisoned());
    // Other locks at the same ranks, and the one that it only read under.
    for lock in [4, 6, 7, 8, 9, 11] {
        let guard = table.lock_exclusive(lock).recover().wait().unwrap();
        assert_eq!(guard.previous_owner(), None, "{lock}");
        guard.unlock().wait().unwrap();
        table.lock_exclusive(lock).wait().unwrap().unlock().wait().unwrap();
    }
    let home = state.no_check();
    home.at(2).unwrap().fetch_add(2, 1).wait().unwrap();
    if world.rank() == 2 {
        eventually(DEADLINE / 2, "both got the error", || state.local().read(2..3) == [2]);
        let guard = table.lock_exclusive(5).recover().wait().unwrap();
        let previous = if named { PreviousOwner::Owner(0) } else { PreviousOwner::Participant(0) };
        assert_eq!((guard.previous_owner(), guard.mode()), (Some(previous), Mode::Exclusive));
        assert!(guard.fencing_token().wait().unwrap() > state.local().read(1..2)[0]);
        guard.unlock().wait().unwrap();
        let guard = table.lock_shared(10).recover().wait().unwrap();
        assert_eq!((guard.previous_owner(), guard.mode()), (Some(previous), Mode::Exclusive));
        drop(guard);
        home.at(2).unwrap().fetch_add(0, 1).wait().unwrap();
    }
    let is_recovered = || home.at(2).unwrap().fetch_one(0).wait().unwrap() > 0;
    eventually(DEADLINE / 2, "it is recovered", is_recovered);
    for lock in [5, 10] {
        table.lock_exclusive(lock).wait().unwrap().unlock().wait().unwrap();
    }
    // No rank leaves before the other is done.
    home.at(2).unwrap().fetch_add(0, 1).wait().unwrap();
    eventually(DEADLINE / 2, "both are done", || home.at(2).unwrap().fetch_one(0).wait().unwrap() == 3);
    if world.rank() == 2 {
        std::thread::sleep(Duration::from_millis(200)); // the other rank reads its memory
    }
    ok();
}

#[test]
fn only_the_locks_of_a_failed_rank_are_poisoned() {
    for design in designs() {
        let ended = jobs::start_under(3, "table", ("ONESIDED_LOCK", design.name())).wait();
        assert_eq!((ended.code, ended.ok()), (128 + 9, vec![1, 2]), "{design} {ended:#?}");
    }
}

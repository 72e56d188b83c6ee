//! Creating windows and using them wrongly: if one rank fails or disagrees, every rank gets an
//! error, and none hangs.

use std::fs::File;

use onesided::{Element, Error, FaultKind, Op, Window, World};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::jobs::{self, Role};
use crate::support::{DEADLINE, eventually, ranks};

pub(crate) const ROLES: &[Role] = &[
    ("no descriptors", no_descriptors),
    ("no descriptors to open", no_descriptors_to_open),
    ("nothing leaks", nothing_leaks),
];

fn text(error: impl Into<Error>) -> String {
    error.into().to_string()
}

/// After any failure, the world and its windows still work.
fn check_world(world: &World) {
    let window = Window::<u64>::allocate(world, 1).wait().unwrap();
    let all = window.lock_all().wait().unwrap();
    for target in 0..world.size() {
        all.at(target).wait().unwrap().fetch_add(0, 1).wait().unwrap();
    }
    all.unlock_all().wait().unwrap();
    world.barrier().wait().unwrap();
    assert_eq!(window.local().read(0..1), [u64::from(world.size())]);
    window.close().wait().unwrap();
}

#[test]
fn ranges_past_the_end_are_refused_and_nothing_is_moved() {
    ranks(2, |world| {
        let window = Window::<u32>::builder().name("small").allocate(&world, 10).wait().unwrap();
        let epoch = window.lock_shared(1).wait().unwrap();
        let wrong = [(10, 1), (11, 0), (0, 11), (9, 2), (usize::MAX, 1), (usize::MAX, 2), (usize::MAX, 0), (1, 10)];
        for (offset, count) in wrong {
            let mut buffer = vec![7; count];
            let s = if count == 1 { "" } else { "s" };
            let place =
                format!("{count} element{s} at {offset} on rank 1 of window \"small\": it has 10 elements there");
            assert_eq!(text(epoch.put(offset, &buffer).unwrap_err()), format!("put of {place}"));
            assert_eq!(text(epoch.get(offset, &mut buffer).wait().unwrap_err()), format!("get of {place}"));
            assert_eq!(buffer, vec![7; count]);
            let local = window.local();
            assert!(local.write(offset, &buffer).is_err() && local.read_into(offset, &mut buffer).is_err());
        }
        for offset in [10, usize::MAX, usize::MAX / 4 + 1] {
            let place = format!("1 element at {offset} on rank 1 of window \"small\": it has 10 elements there");
            assert_eq!(text(epoch.fetch_add(offset, 1).wait().unwrap_err()), format!("fetch_add of {place}"));
            assert!(epoch.fetch_and_op(offset, 1, Op::Xor).wait().is_err());
            assert!(epoch.compare_and_swap(offset, 0, 1).wait().is_err());
            assert!(epoch.fetch_one(offset).wait().is_err());
        }
        for (offset, count) in wrong {
            let (operands, mut results) = (vec![7; count], vec![9; count]);
            let s = if count == 1 { "" } else { "s" };
            let place =
                format!("{count} element{s} at {offset} on rank 1 of window \"small\": it has 10 elements there");
            for op in [Op::Sum, Op::Replace, Op::NoOp] {
                let error = epoch.accumulate(offset, &operands, op).wait().unwrap_err();
                assert_eq!(text(error), format!("accumulate of {place}"));
                let error = epoch.get_accumulate(offset, &operands, &mut results, op).wait().unwrap_err();
                assert_eq!(text(error), format!("get_accumulate of {place}"));
            }
            assert_eq!(results, vec![9; count]);
        }
        let mut results = [9; 3];
        let error = epoch.get_accumulate(0, &[1, 2], &mut results, Op::Sum).wait().unwrap_err();
        assert_eq!(text(error), "get_accumulate on rank 1 of window \"small\": 2 elements given, 3 expected");
        assert_eq!(results, [9; 3]);
        epoch.accumulate(10, &[], Op::Sum).wait().unwrap();
        epoch.get_accumulate(10, &[], &mut [], Op::Max).wait().unwrap();
        for offset in 0..=10 {
            epoch.put(offset, &[]).unwrap();
            epoch.get(offset, &mut []).wait().unwrap();
        }
        epoch.unlock().wait().unwrap();
        world.barrier().wait().unwrap();
        assert_eq!(window.local().read(0..10), [0; 10]);
        window.close().wait().unwrap();
    });
}

#[test]
fn window_memory_may_be_empty_and_uneven() {
    ranks(3, |world| {
        let empty = Window::<u64>::allocate(&world, 0).wait().unwrap();
        let epoch = empty.lock_exclusive(1).wait().unwrap();
        epoch.put(0, &[]).unwrap();
        epoch.get(0, &mut []).wait().unwrap();
        assert!(epoch.put(0, &[1]).is_err() && epoch.fetch_add(0, 1).wait().is_err());
        epoch.unlock().wait().unwrap();
        assert!(empty.local().is_empty() && empty.local().read(0..0).is_empty());
        if let Ok(direct) = empty.direct(1) {
            assert!(direct.is_empty() && direct.words().is_empty());
        }
        assert!(empty.buffer(0).unwrap().is_empty() && !empty.buffer(1).unwrap().is_empty());
        empty.close().wait().unwrap();

        let uneven = Window::<u16>::builder().uneven().allocate(&world, 3 * world.rank() as usize).wait().unwrap();
        for rank in 0..3 {
            assert_eq!(uneven.len(rank), 3 * rank as usize);
        }
        let epoch = uneven.lock_exclusive(2).wait().unwrap();
        epoch.put(5, &[9]).unwrap();
        assert!(epoch.put(6, &[9]).is_err());
        epoch.unlock().wait().unwrap();
        assert!(uneven.lock_shared(0).wait().unwrap().put(0, &[1]).is_err());
        uneven.close().wait().unwrap();
    });
}

/// What every rank reports when rank 1 asks for a different window than the others.
fn disagree(expected: &str, ask: impl Fn(&World) -> String + Send + Sync + 'static) {
    let errors = ranks(3, move |world| {
        let errors = ask(&world);
        check_world(&world);
        errors
    });
    assert_eq!(errors, [expected; 3]);
}

fn refused<T: Element>(made: Result<Window<T>, impl Into<Error>>) -> String {
    text(made.map(|_| ()).unwrap_err())
}

#[test]
fn ranks_that_disagree_all_get_mismatch() {
    disagree(
        "create window \"a\": rank 1 differs from rank 0 in the type: i64 (8 bytes) against u64 (8 bytes)",
        |world| match world.rank() {
            1 => refused(Window::<i64>::builder().name("a").allocate(world, 8).wait()),
            _ => refused(Window::<u64>::builder().name("a").allocate(world, 8).wait()),
        },
    );
    disagree(
        "create window \"unnamed, of u64\": rank 1 differs from rank 0 in the length: 8 elements against 9",
        |world| refused(Window::<u64>::allocate(world, if world.rank() == 1 { 8 } else { 9 }).wait()),
    );
}

#[test]
fn windows_of_different_names_are_not_one_window() {
    let errors = ranks(3, |world| {
        let name = if world.rank() == 2 { "right" } else { "left" };
        refused(Window::<u8>::builder().name(name).allocate(&world, 1).wait())
    });
    let why = "rank 2 differs from rank 0 in the name: \"right\" against \"left\"";
    assert_eq!(errors, ["left", "left", "right"].map(|name| format!("create window \"{name}\": {why}")));
}

#[test]
fn names_may_be_long_and_of_any_letters() {
    ranks(2, |world| {
        for name in ["", "\u{1f980}".repeat(1000).as_str(), "line\nfeed \"quoted\""] {
            let window = Window::<u8>::builder().name(name).allocate(&world, 1).wait().unwrap();
            assert_eq!(window.name(), name);
            window.close().wait().unwrap();
        }
    });
}

#[test]
fn too_much_memory_on_one_rank_fails_on_all() {
    for len in [usize::MAX, usize::MAX / 8, 1 << 45] {
        let errors = ranks(3, move |world| {
            let made = Window::<u64>::builder()
                .name("vast")
                .uneven()
                .allocate(&world, if world.rank() == 1 { len } else { 1 })
                .wait();
            let errors = refused(made);
            check_world(&world);
            errors
        });
        for rank in [0, 2] {
            assert!(errors[rank].starts_with("create window \"vast\": rank 1 failed: rank 1: "), "{errors:?}");
        }
        assert!(errors[1].starts_with("create window \"vast\": allocate "), "{errors:?}");
    }
}

/// The fault that every rank reports: rank 1 its own, the others that of rank 1.
fn create_fails(world: &World, len: usize, kind: FaultKind) {
    let error = Window::<u64>::builder().name("limited").allocate(world, len).wait().map(|_| ()).unwrap_err();
    let error = Error::from(error);
    let fault = error.fault().unwrap();
    assert_eq!((fault.kind(), fault.rank().map(|rank| rank.0)), (kind, Some(1)), "{error}");
    assert_eq!(text(error).contains("rank 1 failed"), world.rank() != 1);
}

/// Opens files until there is no descriptor left.
fn exhaust_descriptors() -> (Rlimit, Vec<File>) {
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(64), ..before }).unwrap();
    let mut files = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        files.push(file);
    }
    (before, files)
}

/// Rank 1 has no descriptor left when it allocates.
fn no_descriptors(world: World) {
    let exhausted = (world.rank() == 1).then(exhaust_descriptors);
    create_fails(&world, 8, FaultKind::NoDescriptors);
    drop(exhausted);
    check_world(&world);
    jobs::ok();
}

/// Rank 1 has no descriptor left when it first accesses another rank's memory.
fn no_descriptors_to_open(world: World) {
    let window = Window::<u64>::builder().name("far").allocate(&world, 8).wait().unwrap();
    if world.rank() == 1 {
        let exhausted = exhaust_descriptors();
        let error = Error::from(window.lock_exclusive(0).wait().unwrap_err());
        assert_eq!(error.fault().map(|fault| fault.kind()), Some(FaultKind::NoDescriptors), "{error}");
        assert_eq!(
            text(error),
            "lock_exclusive on rank 0 of window \"far\": rank 1: no file descriptors left (raise `ulimit -n`)"
        );
        drop(exhausted);
        window.lock_exclusive(0).wait().unwrap().unlock().wait().unwrap();
    }
    window.close().wait().unwrap();
    check_world(&world);
    jobs::ok();
}

/// Descriptors and mappings of this process.
fn held() -> (usize, usize) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let maps = maps.lines().filter(|line| line.contains("memfd:onesided")).count();
    (std::fs::read_dir("/proc/self/fd").unwrap().count(), maps)
}

fn nothing_leaks(world: World) {
    check_world(&world); // cached mappings stay
    let before = held();
    for round in 0..300 {
        let window = Window::<u64>::allocate(&world, 1000).wait().unwrap();
        let all = window.lock_all().wait().unwrap();
        for target in 0..world.size() {
            all.at(target).wait().unwrap().put(0, &[round]).unwrap();
        }
        all.unlock_all().wait().unwrap();
        drop(window.lock_exclusive(0));
        if round % 2 == 0 {
            window.close().wait().unwrap();
        } else {
            world.barrier().wait().unwrap(); // every rank has reached it
            drop(window);
        }
    }
    world.barrier().wait().unwrap();
    // A cancelled request holds its window until the endpoint is done with it.
    eventually(DEADLINE, "nothing is left open", || held() == before);
    jobs::ok();
}

/// A job of processes in which a limit affects rank 1, and every rank ends well.
fn survives(role: &str) {
    let ended = jobs::start(3, role).wait();
    assert_eq!((ended.code, ended.ok()), (0, vec![0, 1, 2]), "{ended:#?}");
}

#[test]
fn no_descriptors_fail_on_all() {
    survives("no descriptors");
    survives("no descriptors to open");
}

#[test]
fn hundreds_of_windows_leave_nothing_open() {
    survives("nothing leaks");
}

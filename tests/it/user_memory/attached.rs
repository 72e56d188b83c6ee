//! Attached memory of a dynamic window.

use onesided::{Error, FaultKind, RemotePtr, Window, World};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::all_go_well;
use crate::jobs::{self, Role, ok};

pub(super) const ROLES: &[Role] = &[("user memory: taken back", taken_back), ("user memory: many", many)];

#[test]
fn access_to_memory_that_was_taken_back_is_an_error() {
    all_go_well(3, "user memory: taken back");
}

/// Rank 0 attaches and detaches a vector; the others have pointers to it.
fn taken_back(world: World) {
    let places = Window::<u64>::allocate(&world, 4).wait().unwrap();
    let window = Window::<u64>::builder().name("loans").dynamic(&world).wait().unwrap();
    let publish = |what: u64| {
        for target in 0..world.size() {
            let epoch = places.lock_exclusive(target).wait().unwrap();
            epoch.put(0, &[what]).unwrap();
            epoch.unlock().wait().unwrap();
        }
    };
    for turn in 0..5_u64 {
        let mine = (world.rank() == 0).then(|| {
            let place = window.attach(vec![turn; 1000]).unwrap();
            publish(place.to_word());
            place
        });
        world.barrier().wait().unwrap();
        let place = RemotePtr::from_word(places.local().read(0..1)[0]);
        let epoch = window.lock_shared(0).wait().unwrap();
        assert!(epoch.attached(RemotePtr::from_word(u64::MAX)).wait().is_err());
        let there = epoch.attached(place).wait().unwrap();
        let mut seen = [0; 3];
        there.get(500, &mut seen).wait().unwrap();
        assert_eq!(seen, [turn; 3]);
        world.barrier().wait().unwrap();
        there.put(world.rank() as usize, &[100 + turn]).unwrap();
        there.fetch_add(10, 1).wait().unwrap();
        world.barrier().wait().unwrap();
        if let Some(place) = mine {
            let vector = window.detach(place).wait().unwrap();
            assert_eq!(vector[..4], [100 + turn, 100 + turn, 100 + turn, turn]);
            assert_eq!((vector[10], vector.len()), (turn + 3, 1000));
        }
        world.barrier().wait().unwrap();
        let no_region = |error: Error| {
            assert_eq!(error.fault().map(|fault| fault.kind()), Some(FaultKind::NoSuchRegion), "{error}");
        };
        no_region(there.put(0, &[1]).unwrap_err().into());
        no_region(there.get(0, &mut seen).wait().unwrap_err().into());
        no_region(there.fetch_add(0, 1).wait().unwrap_err().into());
        epoch.unlock().wait().unwrap();
        world.barrier().wait().unwrap();
    }
    window.close().wait().unwrap();
    places.close().wait().unwrap();
    ok();
}

#[test]
fn attached_memory_leaks_no_descriptors_of_peers() {
    let ended = jobs::start(2, "user memory: many").wait();
    assert_eq!((ended.code, ended.ok().len()), (0, 2), "{ended:?}");
}

/// Rank 1 accesses more memory of rank 0 than it may have open files.
fn many(world: World) {
    let places = Window::<u64>::allocate(&world, 1).wait().unwrap();
    let window = Window::<u64>::builder().name("many").dynamic(&world).wait().unwrap();
    setrlimit(Resource::Nofile, Rlimit { current: Some(60), ..getrlimit(Resource::Nofile) }).unwrap();
    for turn in 0..100 {
        let mine = (world.rank() == 0).then(|| {
            let place = if turn % 2 == 0 { window.attach(vec![turn; 10]) } else { window.attach_zeroed(10) }.unwrap();
            let epoch = places.lock_exclusive(1).wait().unwrap();
            epoch.put(0, &[place.to_word()]).unwrap();
            epoch.unlock().wait().unwrap();
            place
        });
        world.barrier().wait().unwrap();
        if mine.is_none() {
            let epoch = window.lock_shared(0).wait().unwrap();
            let place = RemotePtr::from_word(places.local().read(0..1)[0]);
            epoch.attached(place).wait().unwrap().put(3, &[turn + 1]).unwrap();
            epoch.unlock().wait().unwrap();
        }
        world.barrier().wait().unwrap();
        if let Some(place) = mine {
            assert_eq!(window.detach(place).wait().unwrap()[3], turn + 1);
        }
    }
    window.close().wait().unwrap();
    places.close().wait().unwrap();
    ok();
}

#[test]
fn a_freed_slot_serves_another_thread() {
    onesided::fabric::threads(1, |world| {
        let window = Window::<u64>::builder().name("slots").dynamic(&world).wait().unwrap();
        let fill = window.attach_zeroed(1).unwrap();
        let others: Vec<_> = (0..254).map(|_| window.attach(vec![0]).unwrap()).collect();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..3000 {
                        let Ok(place) = window.attach(vec![7]) else { continue }; // the other thread has the only one
                        let epoch = window.lock_shared(0).wait().unwrap();
                        epoch.attached(place).wait().unwrap();
                        epoch.unlock().wait().unwrap();
                        assert_eq!(window.detach(place).wait().unwrap(), [7]);
                    }
                });
            }
        });
        others.into_iter().for_each(|place| drop(window.detach(place).wait().unwrap()));
        window.detach(fill).wait().unwrap();
        let clone = window.clone();
        window.close().wait().unwrap();
        let error = clone.attach(vec![1]).unwrap_err();
        assert_eq!(error.fault().map(|fault| fault.kind()), Some(FaultKind::Closed), "{error}");
    })
    .unwrap();
}

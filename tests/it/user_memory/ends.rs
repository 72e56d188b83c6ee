//! Targets and copiers that die, stop, or cannot answer.

use std::time::Duration;

use onesided::info::Path;
use onesided::{Error, FaultKind, Op, RemotePtr, Window, World};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};

use super::{BOTH, all_go_well, expected_path};
use crate::faults::status::{SYNCHRONIZED, Status};
use crate::jobs::{self, Role, ok, send, state};
use crate::support::{DEADLINE, eventually};

pub(super) const ROLES: &[Role] = &[
    ("user memory: copier dies", copier_dies),
    ("user memory: copier stops", copier_stops),
    ("user memory: owner dies", owner_dies),
    ("user memory: owner stops", owner_stops),
    ("user memory: end fails", end_fails),
    ("user memory: owner cannot answer", owner_cannot_answer),
];

/// 32 MiB at rank 0 that rank 1 puts to repeatedly until it fails; the test learns its address, and
/// rank 1's process id.
struct Copied {
    window: Window<u64>,
    status: Window<u64>,
}

const LONG: usize = 4 << 20;

impl Copied {
    fn new(world: &World) -> Self {
        let window = Window::<u64>::builder().name("copied").dynamic(world).wait().unwrap();
        let status = Window::<u64>::builder().name("status").allocate(world, 8).wait().unwrap();
        Self { window, status }
    }

    fn publish(&self, target: u32, at: usize, value: u64) {
        let epoch = self.status.lock_exclusive(target).wait().unwrap();
        epoch.put(at, &[value]).unwrap();
        epoch.unlock().wait().unwrap();
    }

    fn wait_for(&self, at: usize) -> u64 {
        eventually(DEADLINE, "it is published", || self.status.local().read(at..at + 1)[0] != 0);
        self.status.local().read(at..at + 1)[0]
    }

    /// Rank 1: copies until the memory is taken back, or its rank ends.
    fn copy(&self) -> Error {
        let place = RemotePtr::from_word(self.wait_for(0));
        let epoch = self.window.lock_shared(0).wait().unwrap();
        let there = epoch.attached(place).wait().unwrap();
        self.publish(0, 1, std::process::id().into());
        let bytes = vec![u64::MAX; LONG];
        let mut turn = 0;
        let error = loop {
            if let Err(error) = there.put(0, &bytes) {
                break error;
            }
            turn += 1;
            self.status.local().write(2, &[turn]).unwrap();
        };
        std::mem::forget(epoch); // its target may have died
        error.into()
    }
}

#[test]
fn memory_is_returned_after_a_copier_died() {
    for path in BOTH {
        let ended = jobs::start_under(2, "user memory: copier dies", path).wait();
        assert_eq!(ended.ok(), [0], "{path:?}: {ended:?}");
    }
}

fn copier_dies(world: World) {
    let copied = Copied::new(&world);
    if world.rank() == 1 {
        panic!("{}", copied.copy()); // it is killed in the middle
    }
    let place = copied.window.attach(vec![1_u64; LONG]).unwrap();
    copied.publish(1, 0, place.to_word());
    let copier = copied.wait_for(1);
    std::thread::sleep(Duration::from_millis(30));
    send(copier, Signal::KILL);
    let mut vector = copied.window.detach(place).wait().unwrap();
    assert!(vector.iter().all(|element| *element == 1 || *element == u64::MAX));
    vector.fill(3);
    std::thread::sleep(Duration::from_millis(20));
    assert!(vector.iter().all(|element| *element == 3));
    eventually(DEADLINE, "it is seen to be dead", || !world.is_alive(1));
    ok();
}

#[test]
fn memory_is_not_returned_while_a_stopped_copier_may_write_to_it() {
    all_go_well(2, "user memory: copier stops");
}

fn copier_stops(world: World) {
    let copied = Copied::new(&world);
    if world.rank() == 1 {
        let error = copied.copy();
        assert_eq!(error.fault().map(|fault| fault.kind()), Some(FaultKind::NoSuchRegion), "{error}");
        copied.publish(0, 3, 1);
        ok();
        copied.wait_for(4);
        return;
    }
    let place = copied.window.attach(vec![1_u64; LONG]).unwrap();
    copied.publish(1, 0, place.to_word());
    let copier = copied.wait_for(1);
    std::thread::sleep(Duration::from_millis(20));
    send(copier, Signal::STOP);
    eventually(DEADLINE, "it stops", || state(copier) == Some('T'));
    // Whether it was stopped inside or outside of the guard is chance: the memory is returned, or
    // leaked.
    let mut vector = match copied.window.detach(place).wait() {
        Ok(mut vector) => {
            vector.fill(3);
            Some(vector)
        }
        Err(error) => {
            assert!(error.is_timed_out(), "{error}");
            None
        }
    };
    send(copier, Signal::CONT);
    copied.wait_for(3);
    if let Some(vector) = &mut vector {
        assert!(vector.iter().all(|element| *element == 3));
    }
    ok();
    copied.publish(1, 4, 1);
}

#[test]
fn a_copy_to_an_owner_that_dies_is_an_error() {
    for path in BOTH {
        let ended = jobs::start_under(2, "user memory: owner dies", path).wait();
        assert_eq!(ended.ok(), [1], "{path:?}: {ended:?}");
    }
}

fn owner_dies(world: World) {
    let copied = Copied::new(&world);
    if world.rank() == 0 {
        let place = copied.window.attach(vec![1_u64; LONG]).unwrap();
        copied.publish(1, 0, place.to_word());
        copied.wait_for(1);
        std::thread::sleep(Duration::from_millis(30));
        jobs::die();
    }
    let error = copied.copy();
    assert_eq!(error.fault().map(|fault| fault.kind()), Some(FaultKind::PeerDied), "{error}");
    eventually(DEADLINE, "it is seen to be dead", || !world.is_alive(0));
    let epoch = copied.window.lock_shared(0).wait();
    if let Ok(epoch) = epoch {
        let place = RemotePtr::from_word(copied.wait_for(0));
        let there = epoch.attached(place).wait().unwrap();
        let died =
            |error: Error| assert_eq!(error.fault().map(|fault| fault.kind()), Some(FaultKind::PeerDied), "{error}");
        died(there.fetch_add(0, 1).wait().unwrap_err().into());
        died(there.accumulate(0, &[1; 9000], Op::Max).wait().unwrap_err().into());
        died(there.get(0, &mut [0]).wait().unwrap_err().into());
    }
    ok();
}

#[test]
fn a_stopped_owner_is_waited_for_or_not_needed() {
    all_go_well(2, "user memory: owner stops");
}

/// Its memory is reachable while it is stopped if the kernel copies; its helper thread answers when
/// it continues.
fn owner_stops(world: World) {
    let status = Window::<u64>::builder().name("status").allocate(&world, 2).wait().unwrap();
    let window = Window::<u64>::builder().name("stopped").create(&world, vec![5; 100]).wait().unwrap();
    if world.rank() == 0 {
        let epoch = status.lock_exclusive(1).wait().unwrap();
        epoch.put(0, &[std::process::id().into()]).unwrap();
        epoch.unlock().wait().unwrap();
    }
    world.barrier().wait().unwrap();
    if world.rank() == 1 {
        let owner = status.local().read(0..1)[0];
        let epoch = window.lock_exclusive(0).wait().unwrap();
        epoch.get(0, &mut [0]).wait().unwrap();
        send(owner, Signal::STOP);
        eventually(DEADLINE, "it stops", || state(owner) == Some('T'));
        if expected_path(&window, 0) == Path::ProcessVm {
            epoch.put(3, &[6]).unwrap();
            let mut seen = [0; 2];
            epoch.get(2, &mut seen).wait().unwrap();
            assert_eq!(seen, [5, 6]);
        }
        let mut fetch = epoch.fetch_add(3, 1);
        assert_eq!(fetch.test().unwrap(), None);
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(fetch.test().unwrap(), None);
        send(owner, Signal::CONT);
        let before = fetch.wait().unwrap();
        assert!(before == 5 || before == 6);
        epoch.unlock().wait().unwrap();
    }
    window.close().wait().unwrap();
    status.close().wait().unwrap();
    ok();
}

#[test]
fn an_owner_that_cannot_answer_is_an_error() {
    let ended = jobs::start(2, "user memory: owner cannot answer").wait();
    assert_eq!((ended.code, ended.ok().len()), (0, 2), "{ended:?}");
}

/// Rank 0 has no descriptor for the memory in which rank 1 waits for the answer.
fn owner_cannot_answer(world: World) {
    let window = Window::<u64>::builder().name("mute").create(&world, vec![5; 10]).wait().unwrap();
    let before = getrlimit(Resource::Nofile);
    if world.rank() == 0 {
        setrlimit(Resource::Nofile, Rlimit { current: Some(1), ..before }).unwrap();
    }
    world.barrier().wait().unwrap();
    if world.rank() == 1 {
        let epoch = window.lock_shared(0).wait().unwrap();
        drop(epoch.fetch_add(3, 1)); // one that is not waited for does not block the others
        let error = epoch.fetch_add(3, 1).wait().unwrap_err();
        assert_eq!(error.fault().map(|fault| fault.kind()), Some(FaultKind::NoDescriptors), "{error}");
        epoch.unlock().wait().unwrap();
    }
    world.barrier().wait().unwrap();
    if world.rank() == 0 {
        setrlimit(Resource::Nofile, before).unwrap();
    }
    world.barrier().wait().unwrap();
    if world.rank() == 1 {
        let epoch = window.lock_shared(0).wait().unwrap();
        assert_eq!(epoch.fetch_add(3, 1).wait().unwrap(), 5, "what was refused was not done");
        epoch.unlock().wait().unwrap();
    }
    window.close().wait().unwrap();
    ok();
}

#[test]
fn a_vector_is_returned_from_a_window_whose_close_fails() {
    let ended = jobs::start(2, "user memory: end fails").wait();
    assert_eq!(ended.ok(), [0], "{ended:?}");
}

fn end_fails(world: World) {
    let window = Window::<u64>::create(&world, vec![3; 10]).wait().unwrap();
    let status = Status::new(&world);
    if world.rank() == 1 {
        eventually(DEADLINE, "rank 0 has left its collectives", || status.published(0, SYNCHRONIZED) == 1);
        jobs::die();
    }
    status.publish(SYNCHRONIZED, 1);
    let (error, vector) = window.close_into().wait().unwrap_err().into_parts();
    assert_eq!(error.fault().map(|fault| fault.kind()), Some(FaultKind::PeerDied), "{error}");
    assert_eq!(vector.unwrap(), [3; 10]);
    ok();
}

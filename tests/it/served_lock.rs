//! Locks that a thread serves over messages, between processes.

use std::time::Duration;

use onesided::{FaultKind, Messages, ServedLock, ServerThread, Tag, Window, World};
use onesided_fabric::{Fabric, Segment, SegmentKey, block_on};

use crate::jobs::{self, Role, die, ok};
use crate::support::{DEADLINE, eventually};

pub(crate) const ROLES: &[Role] = &[
    ("served lock: counts", counts),
    ("served lock: owner dies", owner_dies),
    ("served lock: connection breaks", connection_breaks),
];

/// One lock of each kind of thread, at rank 0.
fn locks(world: &World) -> [ServedLock; 2] {
    [ServerThread::Polls, ServerThread::Sleeps].map(|thread| ServedLock::new(world, 0, thread).wait().unwrap())
}

/// Ranks add to a counter by get and put under the lock.
fn counts(world: World) {
    let counters = Window::<u64>::allocate(&world, 2).wait().unwrap();
    let rounds = if jobs::is_short_on_cards() { 10 } else { 100 };
    let last = world.size() - 1;
    let access = counters.lock_all().wait().unwrap();
    for (at, lock) in locks(&world).iter().enumerate() {
        for _ in 0..rounds {
            let _guard = lock.lock().deadline(DEADLINE).wait().unwrap();
            let (counter, mut value) = (access.at(last).wait().unwrap(), [0]);
            counter.get(at, &mut value).wait().unwrap();
            counter.put(at, &[value[0] + 1]).unwrap();
            counter.flush().wait().unwrap();
        }
        world.barrier().wait().unwrap();
    }
    access.unlock_all().wait().unwrap();
    world.barrier().wait().unwrap();
    if world.rank() == last {
        let sum = u64::from(rounds * world.size());
        assert_eq!(counters.local().read(0..2), [sum; 2]);
    }
    counters.close().wait().unwrap();
    ok();
}

/// Rank 1 dies with locks of each kind at rank 0. The waiters are told, until one recovers the lock, and go on.
fn owner_dies(world: World) {
    let (locks, messages) = (locks(&world), Messages::new(&world).wait().unwrap());
    if world.rank() == 1 {
        locks.iter().for_each(|lock| std::mem::forget(lock.lock().wait().unwrap()));
        world.barrier().wait().unwrap();
        std::thread::sleep(Duration::from_millis(100)); // the others wait by now
        die();
    }
    world.barrier().wait().unwrap();
    for lock in &locks {
        match lock.lock().deadline(DEADLINE).wait() {
            Ok(guard) => assert_eq!(guard.previous_owner(), None), // the other has recovered it
            Err(error) => {
                assert!(error.is_owner_died() && error.fault().rank().unwrap().0 == 1, "{error}");
                drop(lock.lock_shared().recover().deadline(DEADLINE).wait().unwrap());
            }
        }
    }
    let other = 2 - world.rank();
    messages.send(&[0_u8], other, Tag(0)).wait().unwrap();
    messages.recv::<u8>(other, Tag(0)).deadline(DEADLINE).wait().unwrap();
    ok();
}

/// The connection breaks under two guards, by a read of memory that is gone: their releases may be lost
/// with it, and are repeated.
fn connection_breaks(world: World) {
    let lock = ServedLock::new(&world, 0, ServerThread::Sleeps).wait().unwrap();
    let fabric = world.fabric().for_messages();
    let own = fabric.allocate(64).unwrap();
    let keys = world.all_gather(&own.key().to_bytes()).wait().unwrap();
    let theirs = fabric.open(&SegmentKey::from_bytes(&keys[0]).unwrap()).unwrap();
    world.barrier().wait().unwrap();
    if world.rank() == 0 {
        drop((own, theirs));
        world.barrier().wait().unwrap();
    } else {
        world.barrier().wait().unwrap();
        let held = [(); 2].map(|()| lock.lock_shared().deadline(DEADLINE).wait().unwrap());
        block_on(world.fabric(), fabric.rdma_read((&theirs, 0), (&own, 0), 64)).unwrap_err();
        drop(held);
        eventually(DEADLINE, "the connection is made anew", || match lock.lock().deadline(DEADLINE).wait() {
            Ok(_released) => true,
            Err(error) => {
                assert_eq!(error.fault().kind(), FaultKind::ConnectionLost, "{error}");
                false
            }
        });
    }
    world.barrier().wait().unwrap();
    drop(lock.lock().deadline(DEADLINE).wait().unwrap());
    world.barrier().wait().unwrap();
    ok();
}

#[test]
fn a_lock_outlives_its_connection() {
    // Datagrams have no connection.
    if jobs::on_cards() && std::env::var_os("ONESIDED_MESSAGES_CHANNEL").is_none() {
        let ended = jobs::start(2, "served lock: connection breaks").wait();
        assert_eq!((ended.code, ended.ok()), (0, vec![0, 1]), "{ended:#?}");
    }
}

#[test]
fn processes_count_under_a_served_lock() {
    let ended = jobs::start(3, "served lock: counts").wait();
    assert_eq!((ended.code, ended.ok()), (0, vec![0, 1, 2]), "{ended:#?}");
}

#[test]
fn deaths_of_owners_are_told() {
    let ended = jobs::start(3, "served lock: owner dies").wait();
    assert_eq!(ended.ok(), [0, 2], "{ended:#?}");
}

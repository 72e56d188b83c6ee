//! Locks exclude, and the next owner sees everything that was written under a lock.

use bytemuck::{Pod, Zeroable};
use onesided::{Element, LockAll, Window, World};

use crate::jobs::{self, Role};
use crate::support::ranks;

pub(crate) const ROLES: &[Role] = &[("records", records), ("counts", counts)];

const _: () = {
    const fn is_send_and_sync<T: Send + Sync>() {}
    is_send_and_sync::<World>();
    is_send_and_sync::<Window<u8>>();
    is_send_and_sync::<LockAll<'_, u64, onesided::Any>>();
};

/// The number of contending threads of each rank.
const THREADS: usize = 2;
const ROUNDS: u64 = 150;

/// Runs several threads of a rank until they end.
fn threads(run: impl Fn(usize) + Sync) {
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let run = &run;
            scope.spawn(move || run(thread));
        }
    });
}

/// A read, an addition and a write are one unit under an exclusive lock, also among the threads of
/// a rank.
fn counts(world: World) {
    let window = Window::<u64>::allocate(&world, 3).wait().unwrap();
    threads(|_| {
        for round in 0..ROUNDS {
            let target = (round % 2) as u32;
            let epoch = window.lock_exclusive(target).wait().unwrap();
            let mut value = [0; 3];
            epoch.get(0, &mut value).wait().unwrap();
            assert!(value.iter().all(|each| *each == value[0]), "{value:?}");
            epoch.put(0, &value.map(|value| value + 1)).unwrap();
            if round % 3 == 0 {
                drop(epoch);
            } else {
                epoch.unlock().wait().unwrap();
            }
        }
    });
    world.barrier().wait().unwrap();
    if world.rank() < 2 {
        let sum = ROUNDS / 2 * THREADS as u64 * u64::from(world.size());
        assert_eq!(window.local().read(0..3), [sum; 3]);
    }
    window.close().wait().unwrap();
    jobs::ok();
}

/// All words of a record are always equal.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Record {
    words: [u64; 32],
}

impl Record {
    fn check(self) {
        assert!(self.words.iter().all(|word| *word == self.words[0]), "torn: {:?}", self.words);
    }
}

fn first<T: Element>(access: &onesided::Access<'_, T, onesided::Any>) -> T {
    let mut record = [T::zeroed()];
    access.get(0, &mut record).wait().unwrap();
    record[0]
}

/// One in three writes under an exclusive lock, the others read under shared ones.
fn records(world: World) {
    let window = Window::<Record>::allocate(&world, 1).wait().unwrap();
    threads(|thread| {
        for round in 0..ROUNDS {
            let target = (round % 2) as u32;
            match (round + thread as u64 + u64::from(world.rank())) % 3 {
                0 => {
                    let epoch = window.lock_exclusive(target).wait().unwrap();
                    first(&epoch).check();
                    let word = u64::from(world.rank()) << 32 | (thread as u64) << 24 | round;
                    epoch.put(0, &[Record { words: [word; 32] }]).unwrap();
                    first(&epoch).check();
                    epoch.unlock().wait().unwrap();
                }
                1 => {
                    let epoch = window.lock_shared(target).wait().unwrap();
                    let before = first(&epoch);
                    before.check();
                    std::thread::yield_now();
                    assert_eq!(before.words, first(&epoch).words, "a writer came between");
                }
                _ => {
                    let all = window.lock_all().wait().unwrap();
                    for target in 0..world.size() {
                        first(all.at(target).wait().unwrap()).check();
                    }
                    all.unlock_all().wait().unwrap();
                }
            }
        }
    });
    world.barrier().wait().unwrap();
    // All locks are free again.
    for target in 0..world.size() {
        window.lock_exclusive(target).wait().unwrap().unlock().wait().unwrap();
        world.barrier().wait().unwrap();
    }
    window.close().wait().unwrap();
    jobs::ok();
}

#[test]
fn counts_are_right_among_threads() {
    ranks(4, counts);
}

#[test]
fn counts_are_right_among_processes() {
    let ended = jobs::start(3, "counts").wait();
    assert_eq!((ended.code, ended.ok()), (0, vec![0, 1, 2]), "{ended:#?}");
}

#[test]
fn records_are_whole_among_threads() {
    ranks(4, records);
}

#[test]
fn records_are_whole_among_processes() {
    let ended = jobs::start(3, "records").wait();
    assert_eq!((ended.code, ended.ok()), (0, vec![0, 1, 2]), "{ended:#?}");
}

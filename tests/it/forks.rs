//! What a child made by `fork` drops is a copy: its parent is unaffected.
#![allow(unsafe_code)] // what a child does between fork and exec

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::{Arc, Mutex};

use onesided::{Window, World};

use crate::jobs::{self, Role};
use crate::support::DEADLINE;

pub(crate) const ROLES: &[Role] = &[("forks", forks)];

/// Rank 1 forks, and its child drops every object of the library, among them a window that peers
/// access.
fn forks(world: World) {
    let (rank, size) = (world.rank(), world.size());
    let window = Window::<u64>::allocate(&world, 4).wait().unwrap();
    let all = Arc::new(Mutex::new(Some((window, world))));
    if rank == 1 {
        let theirs = Arc::clone(&all);
        let mut command = Command::new("true");
        // SAFETY: no other thread of this process runs this library's code or holds a lock (the
        // endpoint was not waited on yet, so its helper was not started), and the allocator of the
        // C library can be used after fork.
        unsafe {
            command.pre_exec(move || {
                drop(theirs.lock().unwrap().take());
                Ok(())
            })
        };
        assert!(command.status().unwrap().success());
    }
    let (window, world) = all.lock().unwrap().take().unwrap();
    world.barrier().deadline(DEADLINE).wait().unwrap();
    assert!((0..size).all(|rank| world.is_alive(rank)));
    // Its memory is reachable, for ranks that accessed it before and for others; and it can still
    // talk to the launcher.
    for target in 0..size {
        let epoch = window.lock_exclusive(target).wait().unwrap();
        epoch.fetch_add(0, 1).wait().unwrap();
        epoch.unlock().wait().unwrap();
    }
    let next = Window::<u64>::allocate(&world, 4).wait().unwrap();
    next.lock_shared(1).wait().unwrap().put(rank as usize, &[1]).unwrap();
    next.close().wait().unwrap();
    assert_eq!(window.local().read(0..1), [u64::from(size)]);
    window.close().wait().unwrap();
    jobs::ok();
}

#[test]
fn a_forked_child_drops_copies() {
    let ended = jobs::start(2, "forks").wait();
    assert_eq!((ended.code, ended.ok()), (0, vec![0, 1]), "{ended:?}");
}

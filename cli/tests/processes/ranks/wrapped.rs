//! A rank that holds a lock while the program around it ends, or that closes its descriptors.
#![allow(unsafe_code)] // closes descriptors that it does not know, as daemons do

use std::fs;
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::Duration;

use onesided_fabric::{Any, World};
use onesided_windows::Window;
use rustix::process::{Signal, getppid, kill_process};

use super::pause;
use crate::support::{DEADLINE, runs};

/// What the holder does while it holds the lock.
pub(super) enum Act {
    /// The program around it ends in order.
    WrapperEnds,
    /// The program around it is killed.
    WrapperIsKilled,
    CloseDescriptors,
}

/// The last rank locks rank 0, which waits for that lock and prints what it finds.
pub(super) fn hold(act: &Act) -> i32 {
    let world = World::<Any>::init().unwrap();
    let window = Window::<u64>::allocate(&world, 2).wait().unwrap();
    if world.rank() == world.size() - 1 {
        let epoch = window.lock_exclusive(0).wait().unwrap();
        epoch.put(1, &[u64::from(std::process::id())]).unwrap();
        epoch.flush().wait().unwrap();
        match act {
            Act::WrapperEnds => end_the_wrapper(Signal::USR1),
            Act::WrapperIsKilled => end_the_wrapper(Signal::KILL),
            Act::CloseDescriptors => close_descriptors(),
        }
        std::thread::sleep(Duration::from_millis(500)); // time to find it dead
        epoch.put(0, &[42]).unwrap();
        say!("unlock {:?}", epoch.unlock().wait());
    } else if world.rank() == 0 {
        let pid = loop {
            match window.local().get(1).unwrap() {
                0 => pause(),
                pid => break pid,
            }
        };
        if matches!(act, Act::CloseDescriptors) {
            close_descriptors();
        }
        let epoch = window.lock_exclusive(0).recover().deadline(DEADLINE).wait().unwrap();
        let (value, previous) = (window.local().get(0).unwrap(), epoch.previous_owner());
        say!("finds {value} {previous:?}, runs {}", value == 0 && runs(pid as i32));
    }
    0
}

/// Prints its process id and runs until it is killed.
pub(super) fn outlast(act: &Act) -> i32 {
    let _world = World::<Any>::init().unwrap();
    match act {
        Act::WrapperEnds => end_the_wrapper(Signal::USR1),
        Act::WrapperIsKilled => end_the_wrapper(Signal::KILL),
        Act::CloseDescriptors => close_descriptors(),
    }
    say!("{}", std::process::id());
    loop {
        pause();
    }
}

fn end_the_wrapper(signal: Signal) {
    let wrapper = getppid().unwrap();
    kill_process(wrapper, signal).unwrap();
    while getppid() == Some(wrapper) {
        pause();
    }
}

/// Other files, which are always readable, have the numbers then, at once: a number that no file has
/// would end a thread of the library that closes it meanwhile.
fn close_descriptors() {
    let zero = fs::File::open("/dev/zero").unwrap();
    let open = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let open: Vec<i32> = open.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for fd in open.into_iter().filter(|fd| *fd > 2) {
        // SAFETY: unsound as what it imitates: the library's owners of these numbers use them later. Nothing
        // that this process opens meanwhile is of value.
        let mut number = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(fd) });
        rustix::io::dup2(&zero, &mut number).unwrap();
    }
}

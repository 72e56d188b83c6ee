//! What a child made by `fork` drops is a copy: its parent is unaffected.
#![allow(unsafe_code)] // what a child does between fork and exec

use std::fmt::Debug;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use onesided::{Error, FaultKind, LockDesign, LockTable, Messages, RwLock, Tag, Window, World};
use rustix::process::{Pid, WaitOptions, waitpid};

use crate::jobs::{self, Role};
use crate::support::DEADLINE;

pub(crate) const ROLES: &[Role] =
    &[("forks", forks), ("a forked child", children), ("forks beside messages", beside_messages)];

/// Runs `child` in a forked child, and waits until it has [ended](ended).
fn in_a_child(child: impl FnOnce()) {
    ended(forked(child));
}

/// Waits until a child has ended without a panic.
fn ended(pid: Option<Pid>) {
    let (_, status) = waitpid(pid, WaitOptions::empty()).unwrap().unwrap();
    assert_eq!(status.exit_status(), Some(0));
}

/// Runs `child` in a forked child.
fn forked(child: impl FnOnce()) -> Option<Pid> {
    unsafe extern "C" {
        fn fork() -> i32;
        fn _exit(status: i32) -> !;
    }
    // SAFETY: the child runs on copies, with this thread alone, and the allocator of the C library can be
    // used after fork. A lock that another thread held would make it hang, which the test's limit ends.
    match unsafe { fork() } {
        0 => {
            let panicked = catch_unwind(AssertUnwindSafe(child)).is_err();
            // SAFETY: ends the child, and runs nothing of its parent's.
            unsafe { _exit(panicked.into()) }
        }
        pid => Pid::from_raw(pid),
    }
}

#[track_caller]
fn is_forked<T: Debug, E: Into<Error> + Debug>(outcome: Result<T, E>) {
    match outcome {
        Err(error) => {
            let error = error.into();
            assert_eq!(error.fault().map(|fault| fault.kind()), Some(FaultKind::Forked), "{error}");
            assert!(error.to_string().contains("a child made by `fork`"), "{error}");
        }
        Ok(value) => panic!("{value:?}"),
    }
}

/// What a child of rank 1 drops has no effect on rank 0, and what it calls is an error.
fn children(world: World) {
    let barrier = || world.barrier().deadline(DEADLINE).wait().unwrap();
    for design in LockDesign::ALL {
        let window = Window::<u64>::builder().lock(*design).allocate(&world, 4).wait().unwrap();
        let table = match LockTable::with(Window::<u64>::builder().lock(*design), &world, 4).wait() {
            Err(_) => LockTable::new(&world, 4).wait().unwrap(), // not every design is for tables
            made => made.unwrap(),
        };
        let value = RwLock::with(Window::builder().lock(*design), &world, 0, 0_u64);
        let value = value.wait().unwrap();
        barrier();
        if world.rank() == 1 {
            let mut exclusive = Some(window.lock_exclusive(0).wait().unwrap());
            let mut entry = Some(table.lock_exclusive(0).wait().unwrap());
            let mut written = Some(value.write().wait().unwrap());
            exclusive.as_ref().unwrap().put(0, &[7]).unwrap();
            in_a_child(|| {
                let epoch = exclusive.as_ref().unwrap();
                is_forked(epoch.put(0, &[99]));
                is_forked(epoch.fetch_add(0, 1).wait());
                is_forked(epoch.flush().wait());
                is_forked(window.lock_exclusive(1).deadline(DEADLINE).wait());
                is_forked(world.barrier().wait());
                let _ = window.local().write(0, &[99]);
                **written.as_mut().unwrap() = 99;
                drop((exclusive.take(), entry.take(), written.take()));
            });
            in_a_child(|| is_forked(exclusive.take().unwrap().unlock().wait()));
            barrier();
            barrier();
            **written.as_mut().unwrap() = 8;
            written.take().unwrap().unlock().wait().unwrap();
            drop((exclusive.take(), entry.take()));
        } else {
            barrier();
            assert!(window.try_lock_exclusive(0).wait().unwrap().is_none(), "{design}");
            assert!(table.try_lock_exclusive(0).wait().unwrap().is_none(), "{design}");
            barrier();
            assert_eq!(window.lock_exclusive(0).deadline(DEADLINE).wait().unwrap().previous_owner(), None);
            table.lock_exclusive(0).deadline(DEADLINE).wait().unwrap().unlock().wait().unwrap();
            assert_eq!(*value.read().deadline(DEADLINE).wait().unwrap(), 8, "{design}");
        }
        barrier();
        assert_eq!(window.local().get(0).unwrap(), if world.rank() == 0 { 7 } else { 0 }, "{design}");
        if world.rank() == 1 {
            let mut shared = Some(window.lock_shared(0).wait().unwrap());
            let mut request = Some(table.lock_exclusive(2));
            in_a_child(|| drop((shared.take(), request.take())));
            barrier();
            barrier();
            drop(shared);
            let mut all = Some(window.lock_all().wait().unwrap());
            all.as_ref().unwrap().at(0).wait().unwrap();
            in_a_child(|| drop(all.take()));
            barrier();
            barrier();
            drop(all);
            request.take().unwrap().wait().unwrap().unlock().wait().unwrap();
        } else {
            barrier();
            assert!(window.try_lock_exclusive(0).wait().unwrap().is_none(), "{design}");
            barrier();
            barrier();
            assert!(window.try_lock_exclusive(0).wait().unwrap().is_none(), "{design}");
            barrier();
            window.lock_exclusive(0).deadline(DEADLINE).wait().unwrap().unlock().wait().unwrap();
        }
        barrier();
        value.close().wait().unwrap();
        table.close().wait().unwrap();
        window.close().wait().unwrap();
    }
    // Memory of the program's own, which the system copies from process to process.
    let mut created = Some(Window::create(&world, vec![0_u64; 4]).wait().unwrap());
    if world.rank() == 1 {
        let mut epoch = Some(created.as_ref().unwrap().lock_exclusive(0).wait().unwrap());
        in_a_child(|| {
            is_forked(epoch.as_ref().unwrap().put(0, &[99]));
            drop(epoch.take());
        });
        epoch.unwrap().unlock().wait().unwrap();
        in_a_child(|| {
            drop(created.take());
            is_forked(Window::create(&world, vec![0_u64; 4]).wait());
            is_forked(Window::<u64>::allocate(&world, 4).wait());
            is_forked(Messages::new(&world).wait());
        });
    }
    let created = created.unwrap();
    // Beside a child that has a copy of it, a card reaches the memory that this rank writes.
    let (ends, end) = std::io::pipe().unwrap();
    let child = (world.rank() == 1).then(|| forked(|| (&ends).read_exact(&mut [0]).unwrap()));
    created.local().write(2, &[6]).unwrap();
    barrier();
    created.lock_exclusive(1 - world.rank()).deadline(DEADLINE).wait().unwrap().put(1, &[5]).unwrap();
    barrier();
    (&end).write_all(&[0]).unwrap();
    child.into_iter().for_each(ended);
    assert_eq!(created.close_into().wait().unwrap(), [0, 5, 6, 0]);
    let messages = Messages::new(&world).wait().unwrap();
    for len in [1, 1 << 10, 1 << 18] {
        let sent: Vec<u64> = (0..len).collect();
        if world.rank() == 0 {
            barrier();
            let send = messages.send(&sent, 1, Tag(0));
            barrier();
            send.deadline(DEADLINE).wait().unwrap();
        } else {
            let mut receive = Some(messages.recv::<u64>(0, Tag(0)));
            receive.as_mut().unwrap().test().unwrap();
            barrier();
            in_a_child(|| {
                let _ = receive.as_mut().unwrap().test(); // its own copy at most
                drop(receive.take());
                is_forked(messages.recv::<u64>(0, Tag(1)).wait());
                is_forked(messages.send(&sent, 0, Tag(1)).wait());
            });
            barrier();
            assert!(receive.take().unwrap().deadline(DEADLINE).wait().unwrap().0 == sent, "{len} elements");
        }
        barrier();
    }
    jobs::ok();
}

struct Guard<'a>(&'a AtomicBool);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Rank 1 forks while other threads of it move messages: its own, which call the library, and the handler's.
fn beside_messages(world: World) {
    const FORKS: u64 = 100;
    let messages = Messages::new(&world).wait().unwrap();
    let echo = |tag| {
        let (byte, status) = messages.recv::<u64>(1 - world.rank(), tag).deadline(DEADLINE).wait().unwrap();
        assert_eq!(status.source, 1 - world.rank());
        byte
    };
    if world.rank() == 0 {
        loop {
            let sent = echo(Tag(0));
            messages.send(&sent, 1, Tag(0)).deadline(DEADLINE).wait().unwrap();
            if sent.is_empty() {
                break;
            }
        }
    } else {
        let ends = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0.. {
                    let is_last = ends.load(Ordering::Relaxed);
                    let sent = vec![round; if is_last { 0 } else { 1 << (round % 16) }];
                    messages.send(&sent, 0, Tag(0)).deadline(DEADLINE).wait().unwrap();
                    assert!(echo(Tag(0)) == sent);
                    if is_last {
                        break;
                    }
                }
            });
            // However this thread ends.
            let _end = Guard(&ends);
            for _ in 0..FORKS {
                let mut receive = Some(messages.recv::<u64>(0, Tag(1)));
                receive.as_mut().unwrap().test().unwrap();
                in_a_child(|| {
                    let _ = receive.as_mut().unwrap().test();
                    drop(receive.take());
                    is_forked(messages.recv::<u64>(0, Tag(1)).wait());
                    is_forked(messages.send(&[1_u64], 0, Tag(1)).wait());
                });
            }
        });
        // The last one, and with it all that is shared.
        let mut messages = Some(messages);
        in_a_child(|| drop(messages.take()));
    }
    world.barrier().deadline(DEADLINE).wait().unwrap();
    jobs::ok();
}

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
fn a_forked_child_has_no_effect() {
    let ended = jobs::start(2, "a forked child").wait();
    assert_eq!((ended.code, ended.ok()), (0, vec![0, 1]), "{ended:?}");
}

#[test]
fn a_forked_child_drops_copies() {
    let ended = jobs::start(2, "forks").wait();
    assert_eq!((ended.code, ended.ok()), (0, vec![0, 1]), "{ended:?}");
}

#[test]
fn a_child_forked_beside_messages_ends() {
    let ended = jobs::start(2, "forks beside messages").wait();
    assert_eq!((ended.code, ended.ok()), (0, vec![0, 1]), "{ended:?}");
}

//! Handlers, which move messages between processes while the program computes.

use std::time::{Duration, Instant};

use onesided::{Messages, ProgressMode, Protocol, Tag, Window, World};

use crate::jobs::{self, Role, ok};
use crate::messages::{elements, ring_by};
use crate::support::{DEADLINE, eventually};

pub(crate) const ROLES: &[Role] = &[
    ("handlers: ring", ring),
    ("handlers: receiver computes", receiver_computes),
    ("handlers: without room", without_room),
    ("handlers: without receives", without_receives),
];

/// Messages that are read and written around a ring of ranks with handlers. On emulated cards a ring
/// takes seconds: each mode has one there.
fn ring(world: World) {
    let messages = Messages::new(&world).wait().unwrap();
    let both = [Protocol::Rget, Protocol::Rput];
    for (number, mode) in [ProgressMode::Hybrid, ProgressMode::TwoThreads, ProgressMode::Thread].into_iter().enumerate()
    {
        messages.set_progress(mode).unwrap();
        let one = number % 2;
        let by = if jobs::is_short_on_cards() { &both[one..=one] } else { &both[..] };
        by.iter().for_each(|rendezvous| ring_by(&world, Some(*rendezvous)));
    }
    ok();
}

#[test]
fn processes_send_and_write_around_a_ring() {
    let ended = jobs::start(4, "handlers: ring").wait();
    assert_eq!((ended.code, ended.ok()), (0, vec![0, 1, 2, 3]), "{ended:#?}");
}

/// How often handlers of this process have gone to sleep.
fn sleeps() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten().map(|task| task.path());
    let of_handlers = tasks.filter(|task| {
        std::fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.starts_with("onesided-handle"))
    });
    let voluntary = of_handlers.map(|task| {
        let status = std::fs::read_to_string(task.join("status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.map_or(0, |count| count.trim().parse().unwrap())
    });
    voluntary.sum()
}

/// How often a handler may have looked since, which over datagrams has a timer.
fn looks(since: Instant) -> u64 {
    since.elapsed().as_millis() as u64 / 100
}

/// Puts a number to rank 1, under its lock.
fn tell(window: &Window<u64>, number: u64) {
    let epoch = window.lock_exclusive(1).deadline(DEADLINE).wait().unwrap();
    epoch.put(0, &[number]).unwrap();
    epoch.unlock().wait().unwrap();
}

/// Short messages to a rank that is in no call wake no handler, and a long one is over for its sender.
fn receiver_computes(world: World) {
    const SHORT: u64 = 50;
    let messages = Messages::new(&world).wait().unwrap();
    messages.set_progress(ProgressMode::Hybrid).unwrap();
    let window = Window::<u64>::allocate(&world, 1).wait().unwrap();
    let hear = |step| eventually(DEADLINE, "rank 0 goes on", || window.local().read(0..1) == [step]);
    let sent = elements(0, 1 << 17);
    for (round, rendezvous) in (1..).zip([Protocol::Rget, Protocol::Rput, Protocol::Rget]) {
        messages.set_rendezvous(rendezvous);
        world.barrier().wait().unwrap();
        if world.rank() == 0 {
            for number in 0..SHORT {
                messages.send(&[number], 1, Tag(1)).deadline(DEADLINE).wait().unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
            tell(&window, 2 * round);
            world.barrier().wait().unwrap();
            messages.send(&sent, 1, Tag(0)).deadline(DEADLINE).wait().unwrap();
            tell(&window, 2 * round + 1);
        } else {
            let (before, since) = (sleeps(), Instant::now());
            hear(2 * round);
            let woken = sleeps() - before;
            assert!(woken < SHORT / 5 + looks(since), "{woken} times"); // by what the barrier has left
            for number in 0..SHORT {
                assert_eq!(messages.recv::<u64>(0, Tag(1)).deadline(DEADLINE).wait().unwrap().0, [number]);
            }
            let receive = messages.recv::<u64>(0, Tag(0));
            world.barrier().wait().unwrap();
            hear(2 * round + 1);
            assert!(receive.deadline(DEADLINE).wait().unwrap().0 == sent);
        }
    }
    world.barrier().wait().unwrap();
    window.close().wait().unwrap();
    ok();
}

#[test]
fn a_handler_moves_messages_while_its_rank_computes() {
    let ended = jobs::start(2, "handlers: receiver computes").wait();
    assert_eq!((ended.code, ended.ok()), (0, vec![0, 1]), "{ended:#?}");
}

/// A long message comes behind more short ones than there is room or credit for, to a rank that is in no
/// call.
fn without_room(world: World) {
    let messages = Messages::new(&world).wait().unwrap();
    messages.set_progress(ProgressMode::Hybrid).unwrap();
    let window = Window::<u64>::allocate(&world, 1).wait().unwrap();
    let long = elements(0, 1 << 17);
    for (round, (many, len)) in (1..).zip([(400, 256), (3_000, 1)]) {
        let short = elements(round, len);
        if world.rank() == 0 {
            world.barrier().wait().unwrap();
            let sends: Vec<_> = (0..many).map(|_| messages.send(&short, 1, Tag(1))).collect();
            let all = sends.into_iter().chain([messages.send(&long, 1, Tag(0))]);
            all.for_each(|send| send.deadline(DEADLINE).wait().unwrap());
            tell(&window, round.into());
        } else {
            let mut receives: Vec<_> = (0..many).map(|_| messages.recv::<u64>(0, Tag(1))).collect();
            receives.push(messages.recv(0, Tag(0)));
            world.barrier().wait().unwrap();
            eventually(DEADLINE, "all is received", || window.local().read(0..1) == [round.into()]);
            let last = receives.pop().unwrap().deadline(DEADLINE).wait().unwrap().0;
            assert!(last == long && receives.into_iter().all(|receive| receive.wait().unwrap().0 == short));
        }
    }
    world.barrier().wait().unwrap();
    window.close().wait().unwrap();
    ok();
}

#[test]
fn a_handler_makes_room_while_its_rank_computes() {
    let ended = jobs::start(2, "handlers: without room").wait();
    assert_eq!((ended.code, ended.ok()), (0, vec![0, 1]), "{ended:#?}");
}

/// Long messages come to a rank that is in no call: without a receive they wake no handler, and with
/// one they do.
fn without_receives(world: World) {
    const MANY: u32 = 40;
    let messages = Messages::new(&world).wait().unwrap();
    messages.set_progress(ProgressMode::Hybrid).unwrap();
    let window = Window::<u64>::allocate(&world, 2).wait().unwrap();
    let hear = |step| eventually(DEADLINE, "rank 0 goes on", || window.local().read(0..1) == [step]);
    let long = elements(0, 1 << 14);
    let send = |tag| messages.send(&long, 1, Tag(tag)).deadline(DEADLINE);
    let receive = |tag| messages.recv::<u64>(0, Tag(tag)).deadline(DEADLINE);
    for round in 0..2 {
        world.barrier().wait().unwrap();
        if world.rank() == 0 {
            let sends: Vec<_> = (0..MANY)
                .map(|tag| {
                    std::thread::sleep(Duration::from_millis(1));
                    send(tag)
                })
                .collect();
            tell(&window, 2 * round + 1);
            sends.into_iter().for_each(|send| send.wait().unwrap());
            let is_posted = || {
                let epoch = window.lock_shared(1).deadline(DEADLINE).wait().unwrap();
                let mut posted = [0];
                epoch.get(1, &mut posted).wait().unwrap();
                epoch.unlock().wait().unwrap();
                posted == [round + 1]
            };
            eventually(DEADLINE, "the receive is posted", is_posted);
            send(MANY).wait().unwrap();
            tell(&window, 2 * round + 2);
        } else {
            let (before, since) = (sleeps(), Instant::now());
            hear(2 * round + 1);
            let woken = sleeps() - before;
            assert!(woken <= 2 + looks(since), "{woken} times"); // by what was there before
            (0..MANY).for_each(|tag| assert!(receive(tag).wait().unwrap().0 == long));
            let awaited = receive(MANY);
            window.local().write(1, &[round + 1]).unwrap();
            hear(2 * round + 2); // its sender has been told, by the handler
            assert!(awaited.wait().unwrap().0 == long);
        }
    }
    world.barrier().wait().unwrap();
    window.close().wait().unwrap();
    ok();
}

#[test]
fn a_handler_sleeps_while_nothing_is_received() {
    let ended = jobs::start(2, "handlers: without receives").wait();
    assert_eq!((ended.code, ended.ok()), (0, vec![0, 1]), "{ended:#?}");
}

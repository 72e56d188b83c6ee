//! A receiver that is stopped.

use std::time::Duration;

use onesided::{Messages, Tag, World};
use rustix::process::Signal;

use super::elements;
use crate::jobs::{self, ok, send, state};
use crate::support::{DEADLINE, eventually};

/// Sends to a stopped process wait up to their deadlines, and arrive once it goes on.
pub(super) fn receiver_stops(world: World) {
    const MANY: u64 = 3_000;
    let messages = Messages::new(&world).wait().unwrap();
    if world.rank() == 0 {
        messages.send(&[u64::from(std::process::id())], 1, Tag(0)).wait().unwrap();
        for number in 0..MANY {
            assert_eq!(messages.recv::<u64>(1, Tag(1)).deadline(DEADLINE).wait().unwrap().0, [number]);
        }
        assert_eq!(messages.recv::<u64>(1, Tag(1)).deadline(DEADLINE).wait().unwrap().0, elements(1, 10_000));
        world.barrier().wait().unwrap();
        return ok();
    }
    let pid = messages.recv::<u64>(0, Tag(0)).deadline(DEADLINE).wait().unwrap().0[0];
    send(pid, Signal::STOP);
    eventually(DEADLINE, "rank 0 is stopped", || state(pid) == Some('T'));
    // More than its credit: the rest waits here.
    let numbers: Vec<_> = (0..MANY).collect();
    let sends: Vec<_> = numbers.chunks(1).map(|number| messages.send(number, 0, Tag(1))).collect();
    let large = messages.send(&elements(1, 10_000), 0, Tag(1)).deadline(Duration::from_millis(100)).wait();
    assert!(large.unwrap_err().is_timed_out());
    send(pid, Signal::CONT);
    sends.into_iter().for_each(|send| send.wait().unwrap());
    world.barrier().wait().unwrap();
    ok();
}

#[test]
fn sends_to_a_stopped_process_wait_for_it() {
    let ended = jobs::start(2, "messages: receiver stops").wait();
    assert_eq!((ended.code, ended.ok()), (0, vec![0, 1]), "{ended:#?}");
}

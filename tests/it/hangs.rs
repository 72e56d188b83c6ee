//! What hanging programs are told of their waits.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;

use onesided::{LockDesign, Messages, Tag, Window, dump};
use rustix::process::{Pid, Signal, kill_process};

use crate::examples::example;
use crate::jobs::{Job, start_with};
use crate::support::{DEADLINE, eventually, ranks};

/// The example `hangs` under a launcher that makes a page of it.
fn hang(how: &str) -> Job {
    let program = [example("hangs").as_os_str(), how.as_ref()].join(OsStr::new("\n"));
    start_with(2, &[("ONESIDED_IT_PROGRAM", &program), ("ONESIDED_IT_STUCK", "0.3".as_ref())])
}

#[test]
fn a_page_names_who_waits_for_whom() {
    let one = "onesided: the job may be stuck: 1 of its 2 ranks wait";
    let outside = "  rank 1 is waited for, and waits for nothing of onesided";
    let lock = ["rank 1", "rank 0"].map(|home| format!("of window \"accounts\" (test-and-set) at {home}"));
    let expected: &[(&str, &[&str])] = &[
        ("twice", &[one, "  rank 0 waits for rank 0 since ", "a circle, none can go on: ranks 0 -> 0"]),
        ("crosswise", &["2 of its 2 ranks wait", &lock[0], &lock[1], "a circle, none can go on: ranks 0 -> 1 -> 0"]),
        ("requests", &["2 of its 2 ranks wait", &lock[0], &lock[1], "a circle, none can go on: ranks 0 -> 1 -> 0"]),
        ("signal", &[one, ": a signal at offset 3 of window \"accounts\"", outside]),
        (
            "message",
            &[one, ": a receive with tag 1 from", "  rank 0 has 1 receive posted: with tag 1 from rank 1", outside],
        ),
        (
            "unread",
            &[one, ": a send of 800000 bytes", "has 1 send under way: to rank 1 (announced, not read)", outside],
        ),
        ("collective", &[one, ": a barrier", outside]),
        ("close", &[one, ": the close of window \"accounts\"", outside]),
        (
            "fences",
            &[
                "2 of its 2 ranks wait",
                ": a fence of window \"accounts\"",
                ": a fence of window \"orders\"",
                "a circle, none can go on: ranks 0 -> 1 -> 0",
            ],
        ),
    ];
    let jobs: Vec<_> = expected.iter().map(|(how, texts)| (hang(how), texts)).collect();
    for (job, texts) in &jobs {
        for text in **texts {
            while !job.line().contains(text) {}
        }
    }
}

/// A process whose time is 0 tells of its waits on SIGUSR1.
#[test]
fn a_signal_asks_for_a_dump() {
    let mut program = Command::new(example("hangs"));
    program.args(["--threads", "message"]).env("ONESIDED_STUCK_AFTER", "0").stderr(Stdio::piped());
    let mut program = program.spawn().unwrap();
    let pid = Pid::from_child(&program);
    // Before it has a handler, the signal would end it.
    let has_handler = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() >> (Signal::USR1.as_raw() - 1) & 1 == 1
    };
    eventually(DEADLINE, "a handler", has_handler);
    let (sender, lines) = channel();
    let said = BufReader::new(program.stderr.take().unwrap());
    std::thread::spawn(move || said.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    let waits = |line: String| line.contains("rank 0 waits for rank 1") && line.contains("a receive with tag 1 from");
    // The first signals may come before the wait.
    eventually(DEADLINE, "it tells of its receive", || {
        kill_process(pid, Signal::USR1).unwrap();
        lines.try_iter().any(waits)
    });
    program.kill().unwrap();
    program.wait().unwrap();
}

/// A wait that blocks and one that is awaited tell the same, of each design; and they go on.
#[test]
fn every_lock_tells_of_its_waiters() {
    for design in LockDesign::ALL {
        // The words of the others count, or have their servers' requests.
        let names_owner = matches!(design, LockDesign::TestAndSet | LockDesign::Mcs | LockDesign::TwoLevel);
        for is_async in [false, true] {
            ranks(2, move |world| {
                let window = Window::<u64>::builder().lock(*design).name("told of").allocate(&world, 1).wait().unwrap();
                if world.rank() == 0 {
                    let epoch = window.lock_exclusive(0).wait().unwrap();
                    world.barrier().wait().unwrap();
                    let wait = loop {
                        let dump = dump();
                        // Other tests of this process wait as well, at windows of other names.
                        let mine = dump.waits().iter().find(|wait| wait.what.contains("\"told of\""));
                        // The second dump says since when.
                        let is_told =
                            |wait: &&onesided::fabric::Wait| wait.since.is_some() || *design != LockDesign::TestAndSet;
                        if let Some(wait) = mine.filter(is_told) {
                            break wait.clone();
                        }
                    };
                    let text = wait.to_string();
                    assert!(text.starts_with("rank 1 waits"), "{text}");
                    assert!(
                        text.contains(&format!("exclusive lock of window \"told of\" ({design}) at rank 0")),
                        "{text}"
                    );
                    let awaited: Vec<_> = wait.awaited.iter().map(|rank| rank.0).collect();
                    assert_eq!(awaited, if names_owner { vec![0] } else { vec![] }, "{text}");
                    epoch.unlock().wait().unwrap();
                } else {
                    world.barrier().wait().unwrap();
                    let request = window.lock_exclusive(0);
                    let epoch = match is_async {
                        false => request.wait(),
                        true => onesided::fabric::block_on(world.fabric(), request),
                    };
                    epoch.unwrap().unlock().wait().unwrap();
                }
                window.close().wait().unwrap();
            });
        }
    }
}

#[test]
fn a_dump_shows_what_a_rank_has_of_messages() {
    ranks(2, |world| {
        let messages = Messages::new(&world).wait().unwrap();
        let other = 1 - world.rank();
        messages.send(&[1_u8; 3], other, Tag(7)).wait().unwrap();
        world.barrier().wait().unwrap();
        assert!(messages.probe(other, Tag(7)).wait().is_ok());
        let pending = messages.recv::<u8>(other, Tag(8));
        let text = dump().to_string();
        let me = world.rank();
        for line in [
            format!("onesided: rank {me} has 1 message without a receive: 3 bytes with tag 7 from rank {other}"),
            format!("onesided: rank {me} has 1 receive posted: with tag 8 from rank {other}"),
        ] {
            assert!(text.contains(&line), "{text}");
        }
        drop(pending);
        messages.recv::<u8>(other, Tag(7)).wait().unwrap();
        world.barrier().wait().unwrap();
    });
}

//! Long messages over two devices, of which one fails.

use std::cell::Cell;
use std::process::Command;
use std::time::Duration;

use onesided::{FaultKind, Messages, Protocol, Tag, World};

use super::elements;
use crate::jobs::{self, ok};
use crate::support::{DEADLINE, eventually};

/// The link of the device rxe1, which may be taken down.
const LINK: &str = "ONESIDED_TEST_LINK";

const LEN: usize = 1 << 16;

/// How many packets the second device of this host has sent.
fn sent() -> u64 {
    let count = std::fs::read_to_string("/sys/class/infiniband/rxe1/ports/1/hw_counters/sent_pkts").unwrap();
    count.trim().parse().unwrap()
}

fn set_link(state: &str) {
    let link = std::env::var(LINK).unwrap();
    assert!(Command::new("ip").args(["link", "set", &link, state]).status().unwrap().success(), "{link} {state}");
}

/// Both ranks send each other messages for as long as rank 0 says. Its link goes and comes back.
pub(super) fn device_fails(world: World) {
    let messages = Messages::new(&world).wait().unwrap();
    let (me, other) = (world.rank(), 1 - world.rank());
    let buffers = [(); 2].map(|()| messages.buffer::<u64>(LEN).unwrap());
    let (number, buffers) = (Cell::new(0), Cell::new(Some(buffers)));
    // Each message has its number, so that one that comes twice would be seen.
    let exchange = || {
        number.set(number.get() + 2);
        messages.set_rendezvous(if number.get() % 4 == 0 { Protocol::Rget } else { Protocol::Rput });
        let [mut out, into] = buffers.take().unwrap();
        out.write(0, &elements(number.get() + me, LEN));
        let receive = messages.recv_buffer(into, other, Tag(0)).deadline(DEADLINE);
        let send = messages.send_buffer(out, other, Tag(0)).deadline(DEADLINE);
        let (into, _) = receive.wait().unwrap();
        assert!(into.read(0..LEN) == elements(number.get() + other, LEN), "message {}", number.get());
        buffers.set(Some([send.wait().unwrap(), into]));
    };
    let go_on = |on: bool| messages.send(&[u8::from(on)], 1, Tag(1)).deadline(DEADLINE).wait().unwrap();
    if me == 0 {
        let carries = |what| {
            let before = sent();
            eventually(DEADLINE, what, || {
                go_on(true);
                exchange();
                sent() > before + 200
            });
        };
        carries("the second device carries much");
        set_link("down");
        for _ in 0..10 {
            go_on(true);
            exchange();
        }
        set_link("up");
        carries("it does so again");
        go_on(false);
    } else {
        while messages.recv::<u8>(0, Tag(1)).deadline(DEADLINE).wait().unwrap().0 == [1] {
            exchange();
        }
    }
    world.barrier().wait().unwrap();
    let more = messages.probe(other, Tag(0)).deadline(Duration::ZERO).wait();
    world.barrier().wait().unwrap(); // neither has left before
    assert_eq!(more.unwrap_err().fault().kind(), FaultKind::TimedOut);
    ok();
}

#[test]
fn a_device_that_fails_loses_no_message() {
    if std::env::var_os(LINK).is_some() {
        let ended = jobs::start(2, "messages: device fails").wait();
        assert_eq!((ended.code, ended.ok()), (0, vec![0, 1]), "{ended:#?}");
    }
}

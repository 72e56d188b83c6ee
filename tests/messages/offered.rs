//! Long messages, whose receivers read the sender's slice.

use std::time::Duration;

use onesided_instances as _;
use onesided_two_sided::{Protocol, Rules, Tag, Tags};

use crate::support::ranks;

const SOON: Duration = Duration::from_secs(30);
/// Eager, copied by the sender, offered, and offered with chunks for both sides.
const LENGTHS: [usize; 6] = [1_000, 3_000, 4_096, 100_000, 1_000_001, 3_000_000];

fn bytes(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(31).wrapping_add(seed) >> 3) as u8).collect()
}

/// The slice changes as soon as the handle is gone: before the receive, beside it, and behind it.
#[test]
fn a_slice_whose_send_was_dropped_may_change() {
    ranks(2, |world, messages| {
        for len in LENGTHS {
            for round in 0..16 {
                if world.rank() == 0 {
                    let mut slice = bytes(round, len);
                    let mut send = messages.send(&slice, 1, Tag(0));
                    // It may help the receiver.
                    let _ = (0..round % 4).find_map(|_| send.test().unwrap());
                    drop(send);
                    slice.fill(0xff);
                } else {
                    if round % 2 == 0 {
                        messages.probe(0, Tag(0)).deadline(SOON).wait().unwrap();
                    }
                    let (got, _) = messages.recv::<u8>(0, Tag(0)).deadline(SOON).wait().unwrap();
                    assert!(got == bytes(round, len), "{len} bytes, round {round}");
                }
            }
            world.barrier().wait().unwrap();
        }
    });
}

/// A sender that waits, and one that does not.
#[test]
fn the_sender_helps_or_not() {
    ranks(3, |world, messages| {
        for len in LENGTHS {
            for round in 0..8 {
                if world.rank() == 0 {
                    let slices = [1, 2].map(|to| bytes(round + to, len));
                    let [one, two] = [1_u32, 2].map(|to| messages.send(&slices[to as usize - 1], to, Tag(0)));
                    world.barrier().wait().unwrap(); // rank 2 receives before this is over
                    one.deadline(SOON).wait().unwrap();
                    two.deadline(SOON).wait().unwrap();
                } else {
                    if world.rank() == 1 {
                        world.barrier().wait().unwrap();
                    }
                    let mut into = vec![0; len];
                    messages.recv_into(&mut into, 0, Tag(0)).deadline(SOON).wait().unwrap();
                    assert!(into == bytes(round + world.rank() as usize, len), "{len} bytes, round {round}");
                    if world.rank() == 2 {
                        world.barrier().wait().unwrap();
                    }
                }
            }
        }
    });
}

/// A leaked handle cannot take its slice back: the receiver may get other bytes, or none.
#[test]
fn a_leaked_send_harms_nobody() {
    ranks(2, |world, messages| {
        for len in LENGTHS {
            if world.rank() == 0 {
                let slice = bytes(1, len);
                std::mem::forget(messages.send(&slice, 1, Tag(0)));
                drop(slice);
                world.barrier().wait().unwrap();
            } else {
                world.barrier().wait().unwrap();
                if let Ok((got, status)) = messages.recv::<u8>(0, Tags::Any).deadline(SOON).wait() {
                    assert_eq!((got.len() as u64, status.tag), (status.bytes, Tag(0)));
                }
            }
            world.barrier().wait().unwrap();
        }
    });
}

#[test]
fn the_explanation_names_the_protocol_and_why() {
    ranks(2, |world, messages| {
        let (me, other) = (world.rank(), 1 - world.rank());
        let protocol = |to, bytes| messages.explain(to, bytes).unwrap().protocol();
        let eager_max = messages.explain(other, 0).unwrap().eager_max() as u64;
        assert_eq!((protocol(other, eager_max), protocol(other, eager_max + 1)), (Protocol::Eager, Protocol::Offered));
        let long = messages.explain(other, 100_000).unwrap();
        assert_eq!((long.protocol(), protocol(me, 100_000)), (Protocol::Offered, Protocol::Rget));
        let lines = |to, bytes| {
            let text = messages.explain(to, bytes).unwrap().to_string();
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
        };
        let turns = "(from 131072 bytes on, 4096 to 131072 in turns with rget to measure which is faster)";
        let offered = format!("> size>=measured: offered copied once, out of the sender's slice {turns}");
        let eager = "eager passed over: it is longer than a packet";
        assert_eq!(
            lines(other, 100_000),
            [
                &*format!("100000 bytes to rank {other}: offered, by rule 2 of 3 (built in)"),
                eager,
                &offered,
                "rget not asked"
            ]
        );
        messages.set_rules("eager, size>=20000: offered, rget".parse().unwrap()).unwrap();
        assert_eq!([19_999, 20_000].map(|len| protocol(other, len)), [Protocol::Rget, Protocol::Offered]);
        let last = "> rget copied by the sender, read by the receiver";
        assert_eq!(lines(other, 19_999)[2..], ["size>=20000: offered passed over: not size>=20000", last]);
        messages.set_rules("eager, rget".parse().unwrap()).unwrap();
        assert_eq!(lines(other, 100_000)[1..], [eager, last]);
        messages.set_rules(Rules::default()).unwrap();
        let own = messages.explain(me, 100_000).unwrap().to_string();
        assert!(own.contains("a message to oneself, copied by the send and by the receive"), "{own}");
        messages.send(&[7_u8; 100_000], me, Tag(99)).deadline(Duration::from_secs(60)).wait().unwrap();
        assert_eq!(messages.recv::<u8>(me, Tag(99)).wait().unwrap().0, [7; 100_000]);
        assert!(messages.explain(2, 1).is_err());
    });
}

/// The first messages go both ways, by turns and with more than one under way, until it is known which is
/// faster.
#[test]
fn the_bound_of_offered_slices_is_measured() {
    ranks(2, |world, messages| {
        let other = 1 - world.rank();
        let text = || messages.explain(other, 1 << 20).unwrap().to_string();
        assert!(text().contains("4096 to 131072 in turns"), "{}", text());
        for round in 0..64 {
            let sent = [9_000, 20_000, 40_000, 60_000].map(|len| bytes(round + len, len));
            let sends: Vec<_> = sent.iter().map(|sent| messages.send(sent, other, Tag(0))).collect();
            for sent in &sent {
                let mut into = vec![0; sent.len()];
                messages.recv_into(&mut into, other, Tag(0)).deadline(SOON).wait().unwrap();
                assert!(into == *sent);
            }
            // One try ends with its handle.
            for (at, send) in sends.into_iter().enumerate() {
                if at != round % 7 {
                    send.deadline(SOON).wait().unwrap();
                }
            }
            // Another one goes alone.
            let alone = [9_000, 20_000, 40_000][round % 3];
            let receive = messages.recv::<u8>(other, Tag(1));
            messages.send(&bytes(1, alone), other, Tag(1)).deadline(SOON).wait().unwrap();
            assert!(receive.deadline(SOON).wait().unwrap().0 == bytes(1, alone));
        }
        world.barrier().wait().unwrap();
        assert!(!text().contains("4096 to 131072 in turns"), "{}", text());
    });
}

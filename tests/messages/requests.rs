//! Synchronous sends, and sets of requests.

use std::task::Poll;
use std::time::Duration;

use onesided_fabric::remote_memory::FaultKind;
use onesided_instances as _;
use onesided_two_sided::{Error, Shape, Tag};

use crate::support::ranks;

#[test]
fn a_synchronous_send_ends_with_its_receive() {
    ranks(2, |world, messages| {
        for to in [1, 0] {
            for len in [0, 8, 100_000] {
                let bytes = vec![7_u8; len];
                if world.rank() == 0 {
                    let mut send = messages.send_synchronous(&bytes, to, Tag(0));
                    std::thread::sleep(Duration::from_millis(5));
                    assert!(send.test().unwrap().is_none());
                    if to == 0 {
                        let receive = messages.recv::<u8>(0, Tag(0));
                        send.wait().unwrap();
                        assert_eq!(receive.wait().unwrap().0, bytes);
                        continue;
                    }
                    messages.send::<u8>(&[], 1, Tag(1)).wait().unwrap();
                    send.wait().unwrap();
                } else if to == 1 {
                    messages.recv::<u8>(0, Tag(1)).wait().unwrap();
                    assert_eq!(messages.recv::<u8>(0, Tag(0)).wait().unwrap().0, bytes);
                }
            }
        }
    });
}

#[test]
fn sets_of_requests_end_by_any_some_and_all() {
    ranks(3, |world, messages| {
        if world.rank() != 0 {
            messages.recv::<u8>(0, Tag(world.rank())).wait().unwrap();
            messages.send(&[world.rank()], 0, Tag(9)).wait().unwrap();
            return;
        }
        let mut receives: Vec<_> = [2, 1].map(|from| messages.recv::<u32>(from, Tag(9))).into();
        assert!(world.test_some(&mut receives).is_empty());
        let go = |rank: u32| messages.send::<u8>(&[], rank, Tag(rank)).wait().unwrap();
        go(1);
        let (index, received) = world.wait_any(&mut receives).unwrap();
        assert_eq!((index, &received.unwrap().0[..], receives.len()), (1, &[1][..], 1));
        go(2);
        let some = world.wait_some(&mut receives);
        assert_eq!((some.len(), some[0].0, receives.len()), (1, 0, 0));
        assert!(world.wait_any(&mut receives).is_none() && world.wait_some(&mut receives).is_empty());
        let mut slices = [[0_u32; 100]; 5];
        let receives = slices.iter_mut().map(|slice| messages.recv_into(slice, 0, Tag(7))).collect();
        for number in 0..5 {
            messages.send(&[number; 100], 0, Tag(7)).wait().unwrap();
        }
        for received in world.wait_all(receives) {
            assert_eq!(received.unwrap().bytes, 400);
        }
        assert!((0..5).all(|number| slices[number as usize] == [number; 100]));
    });
}

/// Messages that come before and after their receives are posted, and out of order; all short, so that
/// they are taken in together, and among long ones.
#[test]
fn the_receives_of_a_set_end_each_with_its_own() {
    const SHORT: &[usize] = &[8, 0, 64, 100, 8, 4_000, 8, 1, 2_000, 16];
    const MIXED: &[usize] = &[8, 9_000, 0, 100_000, 8];
    let sets = [(SHORT, 0), (SHORT, 5), (SHORT, SHORT.len()), (MIXED, 0), (MIXED, 3), (MIXED, MIXED.len())];
    ranks(3, |world, messages| {
        let me = world.rank();
        for (lens, early) in sets {
            let message = |from: u32, tag: usize| vec![(from * 16) as u8 + tag as u8; lens[tag]];
            if me != 0 {
                let sent: Vec<_> = (0..lens.len()).map(|tag| message(me, tag)).collect();
                let send = |tag: usize| messages.send(&sent[tag], 0, Tag(tag as u32));
                let mut sends: Vec<_> = (0..early).rev().map(send).collect();
                world.barrier().wait().unwrap();
                sends.extend((early..lens.len()).map(send));
                world.wait_all(sends).into_iter().for_each(Result::unwrap);
                continue;
            }
            world.barrier().wait().unwrap();
            let mut slices: Vec<_> = lens.iter().flat_map(|len| [vec![0; *len], vec![0; *len]]).collect();
            let post = |(at, slice): (u32, _)| messages.recv_into::<u8>(slice, 1 + at % 2, Tag(at / 2));
            let receives = (0..).zip(slices.iter_mut().map(|slice| &mut slice[..])).map(post).collect();
            for (at, outcome) in world.wait_all(receives).into_iter().enumerate() {
                let (from, tag) = (1 + at as u32 % 2, at / 2);
                let status = outcome.unwrap();
                assert_eq!((status.source, status.tag, status.bytes), (from, Tag(tag as u32), lens[tag] as u64));
            }
            assert!(slices.iter().enumerate().all(|(at, slice)| *slice == message(1 + at as u32 % 2, at / 2)));
        }
    });
}

/// A message too long for its slice, one that is withheld, and a sender that leaves end their own
/// receives alone; a deadline counts from the beginning.
#[test]
fn a_receive_of_a_set_that_fails_leaves_the_others() {
    ranks(2, |world, messages| {
        if world.rank() == 1 {
            let sends = [(20, 0), (8, 2)].map(|(len, tag)| (vec![7_u8; len], Tag(tag)));
            sends.iter().for_each(|(bytes, tag)| messages.send(bytes, 0, *tag).wait().unwrap());
            messages.recv::<u8>(0, Tag(3)).wait().unwrap();
            return messages.send(&[7_u8; 8], 0, Tag(4)).wait().unwrap();
        }
        let mut slices = [[0_u8; 8]; 5];
        let [long, gone, third, late, fifth] = &mut slices;
        let last = messages.recv_into(fifth, 1, Tag(4));
        let late = messages.recv_into(late, 1, Tag(9)).deadline(Duration::from_millis(1));
        let kinds = |outcomes: Vec<Result<_, Error>>| -> Vec<_> {
            outcomes.into_iter().map(|outcome| outcome.err().map(|error| error.kind())).collect()
        };
        assert_eq!(kinds(world.wait_all(vec![late])), [Some(FaultKind::TimedOut)]);
        messages.send::<u8>(&[], 1, Tag(3)).wait().unwrap();
        let receives = vec![
            messages.recv_into(long, 1, Tag(0)),
            messages.recv_into(gone, 1, Tag(1)),
            messages.recv_into(third, 1, Tag(2)),
            last,
        ];
        assert_eq!(kinds(world.wait_all(receives)), [Some(FaultKind::TooLong), Some(FaultKind::PeerLeft), None, None]);
        assert!(slices[0] == [7; 8] && slices[2] == [7; 8] && slices[4] == [7; 8]);
    });
}

/// Messages of a list are in order, whether they go together, by themselves, wait for credit or are
/// announced, and so are its receives. A wrong one fails alone.
#[test]
fn a_list_is_as_one_after_the_other() {
    const MANY: usize = 5_000; // more than there is credit for
    const WRONG: usize = 7;
    let len = |at: usize| match at {
        ..100 => [1, 2_000, 1, 20_000, 3][at % 5],
        _ => [0, 2, 1, 33, 32, 40][at % 6],
    };
    ranks(3, |world, messages| {
        let me = world.rank();
        let rank = |at: usize| match at {
            WRONG => 3,
            ..100 => 1 + at as u32 % 2,
            _ => 1 + at as u32 / 40 % 2,
        };
        let mut all: Vec<_> = (0..MANY).map(|at| vec![if me == 0 { at as u32 } else { u32::MAX }; len(at)]).collect();
        let failed: Vec<_> = if me == 0 {
            let first = messages.send(&[9_u32], 1, Tag(0));
            let sends = messages.send_all((0..MANY).map(|at| (&all[at][..], rank(at), Tag(0))));
            first.wait().unwrap();
            world.wait_all(sends).into_iter().filter_map(Result::err).collect()
        } else {
            if me == 1 {
                assert_eq!(messages.recv::<u32>(0, Tag(0)).wait().unwrap().0, [9]);
            }
            let into = all.iter_mut().enumerate().filter(|(at, _)| rank(*at) == me || *at == WRONG);
            let from = |at: usize| if at == WRONG { 3 } else { 0 };
            let receives = messages.recv_all_into(into.map(|(at, into)| (&mut into[..], from(at), Tag(0))));
            let failed = world.wait_all(receives).into_iter().filter_map(Result::err).collect();
            let right = |(at, elements): (usize, &Vec<u32>)| elements.iter().all(|element| *element == at as u32);
            assert!(all.iter().enumerate().filter(|(at, _)| rank(*at) == me).all(right));
            failed
        };
        assert!(matches!(&failed[..], [Error::Rank { rank: 3, .. }]), "{failed:?}");
    });
}

/// Messages up to the limit end without a receive, longer ones with it: slices, shapes, buffers,
/// and those of a list.
#[test]
fn the_longest_eager_message_is_a_rule() {
    ranks(2, |world, messages| {
        for (eager, limit) in [(Some(0), 128), (Some(500), 500), (Some(u64::MAX), 2048), (None, 2048)] {
            let rule = eager.map_or(String::new(), |bytes| format!("size<={bytes}: "));
            messages.set_rules(format!("{rule}eager, rget").parse().unwrap()).unwrap();
            let explained = messages.explain(1, limit as u64 + 1).unwrap();
            assert_eq!(explained.eager_max() == limit, eager.is_some_and(|eager| eager <= 500));
            let said = format!("passed over: not size<={}\n", eager.unwrap_or_default());
            assert_eq!(explained.to_string().contains(&said), limit <= 500 && world.rank() == 0, "{explained}");
            for (len, is_eager) in [(limit, true), (limit + 1, limit > 500)] {
                let sent = vec![7_u8; 2 * len];
                if world.rank() == 0 {
                    let column = Shape::Vector { count: len, block: 1, stride: 2 };
                    let mut sends = messages.send_all([(&sent[..len], 1, Tag(0)), (&sent[..len], 1, Tag(0))]);
                    sends.push(messages.send(&sent[..len], 1, Tag(0)));
                    sends.push(messages.send_shaped(&sent, column, 1, Tag(0)));
                    let mut buffer = messages.send_buffer(messages.buffer::<u8>(len).unwrap(), 1, Tag(0));
                    let ended = sends.iter_mut().map(|send| send.test().unwrap().is_some());
                    // Of 2 to 8 KiB only what need not be packed is eager.
                    let expected = [is_eager, is_eager, is_eager, is_eager && len <= 2048];
                    assert_eq!(ended.collect::<Vec<_>>(), expected, "{len} bytes, {eager:?}");
                    let is_over = |poll: Poll<_>| poll.is_ready();
                    let is_sent = is_over(onesided_fabric::poll_now(world.fabric(), &mut buffer));
                    assert_eq!(is_sent, expected[3], "{len} bytes, {eager:?}");
                    messages.send(&[0_u8], 1, Tag(1)).wait().unwrap();
                    for send in sends.into_iter().zip(expected).filter_map(|(send, ended)| (!ended).then_some(send)) {
                        send.wait().unwrap();
                    }
                    if !is_sent {
                        drop(buffer.wait().unwrap());
                    }
                } else {
                    messages.recv::<u8>(0, Tag(1)).wait().unwrap();
                    (0..5).for_each(|_| assert_eq!(messages.recv::<u8>(0, Tag(0)).wait().unwrap().0.len(), len));
                }
            }
        }
    });
}

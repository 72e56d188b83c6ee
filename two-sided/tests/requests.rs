//! Synchronous sends, and sets of requests.

use std::time::Duration;

use onesided_fabric::remote_memory::FaultKind;
use onesided_fabric::{Any, World, threads};
use onesided_instances as _;
use onesided_two_sided::{Messages, Tag};

fn ranks(ranks: u32, run: impl Fn(World<Any>, Messages) + Sync) {
    threads(ranks, |world| {
        let messages = Messages::new(&world).wait().unwrap();
        run(world, messages);
    })
    .unwrap();
}

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

/// Short and long slices, messages that come before and after their receives are posted, out of order
/// and too long, a receive of a passed deadline, and one from a rank that has left.
#[test]
fn the_receives_of_a_set_end_each_with_its_own() {
    const ROOMS: [usize; 12] = [8, 0, 64, 100, 8, 4_000, 9_000, 8, 100_000, 8, 2_000, 1];
    let message = |from: u32, tag: usize| {
        // That of tag 7 is longer than its slice.
        let len = if tag == 7 { 20 } else { ROOMS[tag] };
        vec![(from * 16) as u8 + tag as u8; len]
    };
    for early in [0, 5, ROOMS.len()] {
        ranks(3, |world, messages| {
            let me = world.rank();
            if me != 0 {
                let sent: Vec<_> = (0..ROOMS.len()).map(|tag| message(me, tag)).collect();
                let send = |tag: usize| messages.send(&sent[tag], 0, Tag(tag as u32));
                let mut sends: Vec<_> = (0..early).rev().map(send).collect();
                world.barrier().wait().unwrap();
                sends.extend((early..ROOMS.len()).map(send));
                return world.wait_all(sends).into_iter().for_each(Result::unwrap);
            }
            world.barrier().wait().unwrap();
            let mut slices: Vec<_> = ROOMS.iter().flat_map(|room| [vec![0; *room], vec![0; *room]]).collect();
            let mut nothing = [0; 8];
            let (late, left) = (Tag(98), Tag(99));
            let mut receives: Vec<_> =
                (0..).zip(&mut slices).map(|(at, slice)| messages.recv_into(slice, 1 + at % 2, Tag(at / 2))).collect();
            receives.insert(3, messages.recv_into(&mut nothing, 1, late).deadline(Duration::ZERO));
            let mut outcomes = world.wait_all(receives);
            assert!(outcomes.remove(3).unwrap_err().kind() == FaultKind::TimedOut);
            let mut gone = [0; 8];
            let receives = vec![messages.recv_into(&mut gone, 1, left)];
            assert!(world.wait_all(receives).pop().unwrap().unwrap_err().kind() == FaultKind::PeerLeft);
            for (at, outcome) in outcomes.into_iter().enumerate() {
                let (from, tag) = (1 + at as u32 % 2, at / 2);
                let sent = message(from, tag);
                if tag == 7 {
                    outcome.unwrap_err();
                    continue;
                }
                let status = outcome.unwrap();
                assert_eq!((status.source, status.tag, status.bytes), (from, Tag(tag as u32), sent.len() as u64));
                assert!(slices[at] == sent, "{from}, {tag}");
            }
        });
    }
}

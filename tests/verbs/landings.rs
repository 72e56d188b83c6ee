//! Datagrams that are received into memory.

use std::future::poll_fn;

use onesided_fabric::remote_memory::{FaultKind, Patience, Rank};
use onesided_fabric::{Fabric, Segment, SegmentKey, Transport, block_on};

use crate::support::device;
use crate::{LONG, by_datagrams, kind, ranks, until};

const LEN: u64 = 50_000;

/// What was sent to a landing that is gone changes no memory, neither that of the landing nor that of the next one of the
/// same queue pair, which all arrives.
#[test]
fn late_datagrams_reach_no_other_memory() {
    let Some(_device) = device("late_datagrams_reach_no_other_memory") else { return };
    if !by_datagrams() {
        return;
    }
    ranks(2, |world| {
        let (fabric, other) = (world.fabric(), Rank(1 - world.rank()));
        let messages = fabric.for_messages();
        let mut packets = fabric.transport().unwrap();
        let patience = || Patience::on(other).and_until(until(fabric, LONG));
        let [first, second] = [1_u8, 2].map(|byte| {
            let own = messages.allocate(LEN).unwrap();
            let is_sender = world.rank() == 1;
            messages.write_direct(&own, 0, &vec![if is_sender { byte } else { 0 }; LEN as usize]).unwrap();
            own
        });
        for _ in 0..20 {
            if world.rank() == 1 {
                for own in [&first, &second] {
                    let (_, key) = block_on(fabric, packets.recv(patience())).unwrap();
                    let key = SegmentKey::from_bytes(&key).unwrap();
                    block_on(fabric, messages.launch((own, 0), &key).unwrap()).unwrap();
                }
                block_on(fabric, packets.send(other, b"sent")).unwrap();
                block_on(fabric, packets.recv(patience())).unwrap();
                continue;
            }
            let (gone, landing) = messages.land(&first, LEN).unwrap();
            drop(landing);
            let (key, mut landing) = messages.land(&second, LEN).unwrap();
            assert_eq!(gone.address, key.address, "the queue pair is another one");
            for key in [gone, key] {
                block_on(fabric, packets.send(other, &key.to_bytes())).unwrap();
            }
            block_on(fabric, packets.recv(patience())).unwrap();
            let missing = block_on(fabric, poll_fn(|cx| landing.poll_over(cx))).unwrap();
            let count = LEN.div_ceil(missing.unit.into());
            assert!((missing.datagrams.len() as u64) < count, "nothing came: {missing:?}");
            let bytes = |segment, is_right: &dyn Fn(u64, u8) -> bool| {
                let mut bytes = vec![9; LEN as usize];
                messages.read_direct(segment, 0, &mut bytes).unwrap();
                (0..).zip(bytes).all(|(at, byte)| is_right(at, byte))
            };
            assert!(bytes(&first, &|_, byte| byte == 0), "a late datagram is in the memory of its landing");
            let is_missing = |at: u64| missing.datagrams.contains(&((at / u64::from(missing.unit)) as u32));
            assert!(bytes(&second, &|at, byte| byte == 2 || is_missing(at)), "another message is in its memory");
            messages.write_direct(&second, 0, &vec![0; LEN as usize]).unwrap();
            block_on(fabric, packets.send(other, b"next")).unwrap();
        }
        world.barrier().wait().unwrap();
    });
}

/// There are few landings, and what no landing has is no key of one.
#[test]
fn landings_are_limited_and_their_keys_checked() {
    let Some(_device) = device("landings_are_limited_and_their_keys_checked") else { return };
    if !by_datagrams() {
        return;
    }
    ranks(2, |world| {
        let (messages, other) = (world.fabric().for_messages(), Rank(1 - world.rank()));
        let own = messages.allocate(LEN).unwrap();
        let most = messages.landing_max(other);
        assert!(most >= LEN && messages.landing_max(Rank(world.rank())) == 0);
        let land = |len| messages.land(&own, len);
        assert_eq!([0, most + 1].map(|len| kind(land(len))), [FaultKind::Unsupported; 2]);
        assert_eq!(kind(land(LEN + 1)), FaultKind::OutOfRange);
        let mut all: Vec<_> = std::iter::from_fn(|| land(LEN).ok()).take(100).collect();
        assert_eq!(kind(land(LEN)), FaultKind::Full);
        assert!(all.pop().is_some() && land(LEN).is_ok());
        let key = SegmentKey { rank: other, ..all[0].0 };
        let unit = key.address >> 32;
        for wrong in [
            SegmentKey { address: key.address & 0xffff_ffff, ..key },
            SegmentKey { address: key.address ^ (unit + 1) << 32, ..key },
            SegmentKey { address: key.address | 1 << 24, ..key },
            SegmentKey { rank: Rank(2), ..key },
            SegmentKey { rank: Rank(world.rank()), ..key },
        ] {
            let launched = messages.launch((&own, 0), &wrong).map(drop);
            assert_eq!(kind(launched), FaultKind::Unsupported, "{wrong:?}");
        }
        assert_eq!(kind(messages.launch((&own, 1), &key).map(drop)), FaultKind::OutOfRange);
        world.barrier().wait().unwrap();
        assert_eq!(own.len(), LEN);
    });
}

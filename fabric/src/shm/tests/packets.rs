//! Packets between ranks of a host.

use super::*;
use crate::Transport;

/// A receiver that is alive but never polls: a sender waits, by a thread and by a task of a
/// runtime, and what it gives up does not arrive.
#[test]
fn sending_to_a_rank_that_takes_nothing_waits() {
    threads(2, |shm| {
        let world = World::new(shm.clone());
        let mut packets = shm.transport().unwrap();
        world.barrier().wait().unwrap();
        if shm.rank() == Rank(0) {
            let mut sent = 0_u64;
            let late = loop {
                let number = sent.to_le_bytes();
                let mut send = pin!(packets.send(Rank(1), &number));
                match crate::wait_timeout(&shm, &mut send, Duration::from_millis(20)) {
                    Some(outcome) => outcome.unwrap(),
                    None => break sent,
                }
                sent += 1;
                assert!(sent < 100_000, "it has no end");
            };
            world.barrier().wait().unwrap();
            block_on_by_parking(packets.send(Rank(1), &late.to_le_bytes())).unwrap();
            block_on(&shm, packets.send(Rank(1), &[])).unwrap();
        } else {
            world.barrier().wait().unwrap(); // drains no packets
            for number in 0_u64.. {
                let patience = Patience::until(shm.now() + 20_000_000_000);
                let (_, bytes) = block_on(&shm, packets.recv(patience)).unwrap();
                if bytes.is_empty() {
                    assert!(number > 1);
                    break;
                }
                assert_eq!(bytes, number.to_le_bytes());
            }
        }
    })
    .unwrap();
}

/// A transport that is taken again goes on where the last one ended.
#[test]
fn packets_keep_order_and_fill_up_without_loss() {
    threads(3, |shm| {
        let world = World::new(shm.clone());
        let me = shm.rank();
        if me != Rank(0) {
            for number in 0..5000_u64 {
                let bytes = [&number.to_le_bytes()[..], &vec![me.0 as u8; number as usize % 300]].concat();
                block_on(&shm, shm.transport().unwrap().send(Rank(0), &bytes)).unwrap();
            }
        } else {
            let mut next = [0; 3];
            for _ in 0..10_000 {
                let received = block_on(&shm, shm.transport().unwrap().recv(Patience::until(u64::MAX)));
                let (from, bytes) = received.unwrap();
                let number = u64::from_le_bytes(bytes[..8].try_into().unwrap());
                assert_eq!(number, next[from.index()]);
                assert_eq!(bytes[8..], vec![from.0 as u8; number as usize % 300]);
                next[from.index()] += 1;
            }
        }
        world.barrier().wait().unwrap();
    })
    .unwrap();
}

/// A peer that writes nonsense is named once, and others are still heard.
#[test]
fn a_broken_lane_is_told_and_left() {
    threads(3, |shm| {
        let world = World::new(shm.clone());
        let mut packets = shm.transport().unwrap();
        if shm.rank() == Rank(1) {
            let lane = shm.job_segment().lane(shm.job_segment().lane_offset(Rank(1), Rank(0)));
            lane[8].store(1 << 16 | 60_000, Ordering::Release);
            shm.job_segment().open_lane(Rank(1), Rank(0));
        }
        world.barrier().wait().unwrap();
        if shm.rank() == Rank(2) {
            block_on(&shm, packets.send(Rank(0), b"sound")).unwrap();
        }
        if shm.rank() == Rank(0) {
            let mut seen = (0, 0);
            // In whichever order the lanes are looked at.
            while seen.0 == 0 || seen.1 == 0 {
                match block_on(&shm, packets.recv(Patience::until(shm.now() + 20_000_000_000))) {
                    Err(fault) => {
                        assert_eq!((fault.kind(), fault.rank()), (FaultKind::Protocol, Some(Rank(1))));
                        seen.0 += 1;
                    }
                    Ok((from, bytes)) => {
                        assert_eq!((from, &bytes[..]), (Rank(2), &b"sound"[..]));
                        seen.1 += 1;
                    }
                }
            }
            let soon = Patience::until(shm.now() + 10_000_000);
            assert_eq!(block_on(&shm, packets.recv(soon)).map_err(Fault::kind), Err(FaultKind::TimedOut));
            assert_eq!(seen, (1, 1));
        }
        world.barrier().wait().unwrap();
    })
    .unwrap();
}

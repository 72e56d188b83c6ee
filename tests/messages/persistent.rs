//! Sends and receives that are started again and again.

use std::time::Duration;

use onesided_fabric::remote_memory::FaultKind;
use onesided_fabric::{Any, World, threads};
use onesided_instances as _;
use onesided_two_sided::{Error, Messages, PersistentRecv, PersistentSend, Source, Tag, Tags};

use crate::support::{ranks, words};

const SOON: Duration = Duration::from_secs(60);
/// In words: eager, and by rendezvous.
const LENGTHS: [usize; 5] = [0, 1, 100, 2_000, 20_000];

/// Every rank sends to the next one, other elements at each start, two messages at a time.
async fn ring(world: World) -> Result<(), Error> {
    let messages = Messages::new(&world).await?;
    let (me, all) = (world.rank(), world.size());
    let (left, right) = ((me + all - 1) % all, (me + 1) % all);
    let (to, any) = (messages.send_init(right, Tag(3))?, messages.recv_init(Source::Any, Tags::Any)?);
    let from = messages.recv_init(left, Tag(3))?;
    for round in 0..3 {
        for len in LENGTHS {
            let sent = [0, 1].map(|at| words(me as usize + 10 * round + 100 * at, len));
            let expected = [0, 1].map(|at| words(left as usize + 10 * round + 100 * at, len));
            let mut into = [0, 1].map(|_| vec![7_u64; len]);
            let [first, second] = &mut into;
            let receives = [from.start(first), any.start(second)];
            let sends = [to.start(&sent[0]), to.start(&sent[1])];
            for receive in receives {
                let status = receive.await?;
                assert_eq!((status.source, status.tag, status.bytes), (left, Tag(3), 8 * len as u64));
            }
            for send in sends {
                send.await?;
            }
            assert!(into == expected, "{len} words in round {round}");
        }
    }
    Ok(())
}

#[test]
fn requests_are_started_again_and_again() {
    for size in [1, 2, 4] {
        threads(size, |world| onesided_fabric::block_on(&world.fabric().clone(), ring(world)).unwrap()).unwrap();
    }
}

/// Sets of two communicators, of a split world among them: each message stays in its own, and the
/// order of the starts is that of the messages.
#[test]
fn all_are_started_together_in_each_communicator() {
    ranks(4, |world, messages| {
        // Ranks 3 and 1, and 2 and 0.
        let half = world.split(world.rank() % 2, 4 - world.rank()).wait().unwrap();
        let other = Messages::new(&half).wait().unwrap();
        let (me, my_half) = (world.rank(), half.rank());
        let peer = (me + 2) % 4;
        let sends = [messages.send_init(peer, Tag(0)).unwrap(), other.send_init(1 - my_half, Tag(0)).unwrap()];
        let receives = [messages.recv_init(peer, Tags::Any).unwrap(), other.recv_init(Source::Any, Tag(0)).unwrap()];
        let order = [0, 0, 1, 0, 1, 1, 1, 0];
        for round in 0..3_u32 {
            let row = |from: u32, at: usize| [from, at as u32, order[at] as u32, round];
            let out: Vec<_> = (0..order.len()).map(|at| row(me, at)).collect();
            let mut into = vec![[9; 4]; order.len()];
            let rows = order.iter().zip(&mut into);
            let received = PersistentRecv::start_all(rows.map(|(at, row)| (&receives[*at], &mut row[..])));
            let sent = PersistentSend::start_all(order.iter().zip(&out).map(|(at, row)| (&sends[*at], &row[..])));
            let statuses = world.wait_all(received).into_iter().collect::<Result<Vec<_>, _>>().unwrap();
            world.wait_all(sent).into_iter().collect::<Result<Vec<_>, _>>().unwrap();
            assert_eq!(into, (0..order.len()).map(|at| row(peer, at)).collect::<Vec<_>>());
            let sources = order.iter().map(|at| if *at == 0 { peer } else { 1 - my_half });
            assert!(statuses.iter().map(|status| status.source).eq(sources));
        }
        assert!(PersistentSend::<Any>::start_all::<u8>([]).is_empty());
    });
}

#[test]
fn a_wrong_rank_is_told_once_and_a_lost_one_at_each_start() {
    ranks(2, |world, messages| {
        let error = messages.send_init(2, Tag(0)).unwrap_err();
        assert_eq!(error.to_string(), "send to rank 2: the world has 2 ranks");
        let error = messages.recv_init(7, Tag(0)).unwrap_err();
        assert_eq!(error.to_string(), "recv from rank 7: the world has 2 ranks");
        if world.rank() == 1 {
            messages.recv::<u8>(0, Tag(0)).wait().unwrap();
            return;
        }
        let (to, from) = (messages.send_init(1, Tag(0)).unwrap(), messages.recv_init(1, Tag(0)).unwrap());
        let names = "sends with tag 0 to rank 1, receives with tag 0 from rank 1";
        assert_eq!(format!("{to:?}, {from:?}"), names);
        let error = from.start(&mut [0_u8; 4]).deadline(Duration::from_millis(1)).wait().unwrap_err();
        assert_eq!(error.kind(), FaultKind::TimedOut);
        to.start(&[1_u8]).wait().unwrap();
        while world.is_alive(1) {
            std::thread::yield_now();
        }
        for _ in 0..2 {
            assert_eq!(to.start(&[1_u8]).deadline(SOON).wait().unwrap_err().kind(), FaultKind::PeerLeft);
            assert_eq!(from.start(&mut [0_u8; 4]).deadline(SOON).wait().unwrap_err().kind(), FaultKind::PeerLeft);
        }
    });
}

/// Starts whose handles are dropped or leaked hold up no later one.
#[test]
fn dropped_and_leaked_starts_harm_nobody() {
    for len in [1, 20_000] {
        ranks(2, |world, messages| {
            let (to, from) = (messages.send_init(1, Tag(0)).unwrap(), messages.recv_init(0, Tag(0)).unwrap());
            if world.rank() == 0 {
                let sent: Vec<_> = (0..3).map(|seed| words(seed, len)).collect();
                drop(to.start(&sent[0]));
                std::mem::forget(to.start(&sent[1]));
                to.start(&sent[2]).deadline(SOON).wait().unwrap();
                messages.recv::<u8>(1, Tag(1)).deadline(SOON).wait().unwrap();
            } else {
                let mut into = vec![0_u64; len];
                drop(from.start(&mut into)); // its message goes to the next one
                for seed in 0..3 {
                    from.start(&mut into).deadline(SOON).wait().unwrap();
                    assert!(into == words(seed, len), "{len} words, message {seed}");
                }
                messages.send(&[1_u8], 0, Tag(1)).wait().unwrap();
            }
        });
    }
}

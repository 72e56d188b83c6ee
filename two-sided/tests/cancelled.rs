//! What is dropped before it is ready has taken nothing: each receive is dropped at its first `Pending`,
//! then at its second, and so on, and the messages still come, whole, once, and in their order.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use onesided_fabric::remote_memory::{FaultKind, RemoteMemory};
use onesided_fabric::{Fabric, World, block_on, threads};
use onesided_instances as _;
use onesided_sim::{End, Network, Simulation};
use onesided_two_sided::{Messages, ProgressMode, Protocol, Shape, Source, Tag};

use crate::support::{filled, words};

/// How many messages a rank sends in a round: more than there is room for on the way.
const MESSAGES: usize = 100;
/// In words: eager, and by rendezvous.
const LENGTHS: [usize; 4] = [1, 300, 3_000, 20_000];
/// The kinds of receives.
const KINDS: usize = 5;
const BY: [Protocol; 4] = [Protocol::Rget, Protocol::Rput, Protocol::Pipeline, Protocol::Copy];

/// The outcome of what is `Pending` at most so many times. `None`: it was dropped.
async fn pending<T>(mut times: usize, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
        Poll::Pending if times == 0 => Poll::Ready(None),
        Poll::Pending => {
            times -= 1;
            Poll::Pending
        }
    })
    .await
}

/// The next message, by a receive that is dropped again and again.
async fn receive<F: Fabric + 'static>(messages: &Messages<F>, from: Source, kind: usize) -> Vec<u64> {
    for times in kind % 3.. {
        let mut slice = vec![0; LENGTHS[3]];
        let len = match kind {
            0 => match pending(times, messages.recv::<u64>(from, Tag(0))).await {
                Some(received) => return received.unwrap().0,
                None => continue,
            },
            1 => pending(times, messages.recv_into(&mut slice, from, Tag(0))).await.map(|status| status.unwrap()),
            2 => {
                let mut column = vec![0; 2 * LENGTHS[3]];
                let places = Shape::Vector { count: LENGTHS[3], block: 1, stride: 2 };
                let status = pending(times, messages.recv_shaped(&mut column, places, from, Tag(0))).await;
                slice = column.into_iter().step_by(2).collect();
                status.map(|status| status.unwrap())
            }
            3 => {
                let buffer = messages.buffer::<u64>(LENGTHS[3]).unwrap();
                let received = pending(times, messages.recv_buffer(buffer, from, Tag(0))).await;
                received.map(|received| {
                    let (buffer, status) = received.unwrap();
                    slice = buffer.read(0..buffer.len());
                    status
                })
            }
            _ => match pending(times / 2, messages.match_probe(from, Tag(0))).await {
                Some(message) => {
                    let received = message.unwrap().recv_into(&mut slice);
                    pending(times.div_ceil(2), received).await.map(|status| status.unwrap())
                }
                None => continue,
            },
        };
        if let Some(status) = len {
            slice.truncate(status.bytes as usize / 8);
            return slice;
        }
    }
    unreachable!("it ends before")
}

/// All ranks of a ring send one another messages at the same time.
async fn ring<F: Fabric + 'static>(world: &World<F>, by: Protocol, mode: ProgressMode, lengths: &[usize]) {
    let messages = Messages::new(world).await.unwrap();
    messages.set_rendezvous(by);
    messages.set_progress(mode).unwrap();
    let (me, all) = (world.rank() as usize, world.size() as usize);
    let (left, right) = ((me + all - 1) % all, (me + 1) % all);
    for round in 0..KINDS {
        let number = |rank: usize, at: usize| words((round * MESSAGES + at) * all + rank, lengths[at % lengths.len()]);
        let sent: Vec<_> = (0..MESSAGES).map(|at| number(me, at)).collect();
        let send = |(at, words)| match at % 7 {
            0 => messages.send_synchronous(words, right as u32, Tag(0)),
            _ => messages.send(words, right as u32, Tag(0)),
        };
        let mut sends: Vec<_> = sent.iter().map(|words| &words[..]).enumerate().map(send).map(Some).collect();
        for at in 0..MESSAGES {
            let from = if at % 2 == 0 { Source::Any } else { Source::Rank(left as u32) };
            let got = receive(&messages, from, (round + at) % KINDS).await;
            assert!(got == number(left, at), "rank {me} lacks message {at} of round {round} by {by:?}");
            if at % 3 == 0 {
                sends[at * 7 % MESSAGES] = None; // it goes on
            }
        }
        for send in sends.into_iter().flatten() {
            send.await.unwrap();
        }
        messages.barrier().await.unwrap(); // a rank that leaves sends no more
    }
}

#[test]
fn dropped_receives_of_threads_take_nothing() {
    for by in BY {
        for mode in [ProgressMode::Polling, ProgressMode::Thread, ProgressMode::Hybrid, ProgressMode::Interrupt] {
            for lengths in [&LENGTHS[..2], &LENGTHS[..]] {
                threads(2, |world| block_on(world.fabric(), ring(&world, by, mode, lengths))).unwrap();
            }
        }
    }
}

/// A receive from any rank fails by a death only if no message is its own: no later one overtakes.
#[test]
fn a_death_leaves_the_messages_of_the_living_in_their_order() {
    const SENT: usize = 6;
    for (by, after) in BY.into_iter().flat_map(|by| (0..40).map(move |step| (by, 1_000_000 + step * 4_000))) {
        let network = Network { detection: Duration::ZERO, ..Network::default() };
        let simulation = Simulation::new(network).ranks(3).kill(2, Duration::from_nanos(after));
        let report = simulation.run(|world| async move {
            let messages = Messages::new(&world).await.unwrap();
            messages.set_rendezvous(by);
            world.fabric().sleep(1_000_000 - world.fabric().now()).await;
            match world.rank() {
                0 => {
                    let buffers = (0..SENT).map(|number| filled(&messages, number, LENGTHS[3]));
                    let sends: Vec<_> = buffers.map(|buffer| messages.send_buffer(buffer, 1, Tag(0))).collect();
                    for send in sends {
                        send.await.unwrap();
                    }
                }
                1 => {
                    let mut number = 0;
                    while number < SENT {
                        match messages.recv::<u64>(Source::Any, Tag(0)).await {
                            Ok((got, _)) => {
                                assert!(got == words(number, LENGTHS[3]), "message {number} by {by:?} at {after} ns");
                                number += 1;
                            }
                            Err(error) => {
                                assert_eq!(error.kind(), FaultKind::PeerDied, "{error}");
                                messages.acknowledge_failures();
                            }
                        }
                    }
                }
                _ => world.fabric().sleep(1 << 40).await,
            }
        });
        assert_eq!(report.end, End::Finished, "{by:?}, {after} ns");
        assert!(report.results[0].is_some() && report.results[1].is_some());
    }
}

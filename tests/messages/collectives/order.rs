//! Several requests at once, and messages among them.

use std::slice;
use std::time::Duration;

use onesided_fabric::{World, block_on, threads};
use onesided_two_sided::{CollectiveRequest, Messages, Op, Source, Tag, Tags};

use super::steps::{ALL, Random, Step};

/// Ranks wait for their requests in different orders.
#[test]
fn requests_end_in_any_order() {
    threads(4, |world| {
        let messages = Messages::new(&world).wait().unwrap();
        let me = world.rank();
        for len in [1, 5_000] {
            let mut data = vec![vec![me; len]; 6];
            let mut requests: Vec<CollectiveRequest<'_, _>> = Vec::new();
            for (number, data) in (0_u32..).zip(&mut data) {
                requests.push(match number % 3 {
                    0 => messages.all_reduce(data, Op::Sum),
                    1 => messages.broadcast(data, number % 4),
                    _ => messages.scan(data, Op::Sum),
                });
            }
            // Each begins all, and then waits in an order of its own.
            for (_, complete) in world.test_some(&mut requests) {
                complete.unwrap();
            }
            if me % 2 == 1 {
                requests.reverse();
            }
            world.wait_all(requests).into_iter().for_each(Result::unwrap);
            for (number, data) in (0_u32..).zip(&data) {
                let expected = match number % 3 {
                    0 => 6,
                    1 => number % 4,
                    _ => (0..=me).sum(),
                };
                assert!(data.iter().all(|element| *element == expected), "{number}");
            }
        }
    })
    .unwrap();
}

/// Messages that nobody receives yet hold up no collective, short or long.
#[test]
fn messages_without_credit_hold_up_no_collective() {
    const MANY: u64 = 6_000;
    const LATE: Duration = Duration::from_secs(30);
    threads(2, |world| {
        let messages = Messages::new(&world).wait().unwrap();
        let (me, other) = (world.rank(), 1 - world.rank());
        let numbers: Vec<_> = (0..MANY).collect();
        let sends: Vec<_> =
            numbers.iter().map(|number| messages.send(slice::from_ref(number), other, Tag(0))).collect();
        for len in [1, 200, 5_000, 100_000] {
            let mut sum = vec![me; len];
            messages.barrier().deadline(LATE).wait().unwrap();
            messages.all_reduce(&mut sum, Op::Sum).deadline(LATE).wait().unwrap();
            assert!(sum.iter().all(|sum| *sum == 1));
        }
        for number in 0..MANY {
            assert_eq!(messages.recv::<u64>(other, Tag(0)).deadline(LATE).wait().unwrap().0, [number]);
        }
        sends.into_iter().for_each(|send| send.wait().unwrap());
    })
    .unwrap();
}

/// A receive of any tag from any rank gets messages alone.
#[test]
fn messages_do_not_meet_collectives() {
    threads(3, |world| {
        let messages = Messages::new(&world).wait().unwrap();
        let (me, size) = (world.rank(), world.size());
        let mut random = Random(3);
        for number in 0..100_u32 {
            let receive = messages.recv::<u32>(Source::Any, Tags::Any);
            let collective = ALL[random.below(16) as usize];
            let step = Step::random(collective, size, 2_000, &mut random);
            drop(messages.send(&[number], (me + 1) % size, Tag(number)));
            block_on(world.fabric(), step.run(&messages)).unwrap();
            let (got, status) = receive.wait().unwrap();
            assert_eq!((&got[..], status.tag, status.source), (&[number][..], Tag(number), (me + 2) % size));
        }
        assert!(messages.probe(Source::Any, Tags::Any).test().unwrap().is_none());
        messages.barrier().wait().unwrap(); // no rank has left before
    })
    .unwrap();
}

#[test]
fn tasks_await_collectives() {
    threads(3, |world| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
        let ran = runtime.block_on(async {
            let run = async |world: &World| {
                let messages = Messages::new(world).await.unwrap();
                let mut random = Random(8);
                for collective in ALL {
                    Step::random(collective, world.size(), 3_000, &mut random).run(&messages).await.unwrap();
                }
            };
            tokio::time::timeout(Duration::from_secs(60), run(&world)).await
        });
        ran.unwrap();
    })
    .unwrap();
}

/// Two communicators of the same ranks, and one of some of them.
#[test]
fn communicators_do_not_meet() {
    threads(4, |world| {
        let pair = world.split(world.rank() % 2, 0).wait().unwrap();
        let [one, two, some] = [&world, &world, &pair].map(|world| Messages::new(world).wait().unwrap());
        let mut sums = [[world.rank()]; 3];
        let [a, b, c] = &mut sums;
        let (a, b, c) = (one.all_reduce(a, Op::Sum), two.all_reduce(b, Op::Max), some.all_reduce(c, Op::Sum));
        for request in [c, b, a] {
            request.wait().unwrap();
        }
        assert_eq!(sums, [[6], [3], [2 + 2 * (world.rank() % 2)]]);
    })
    .unwrap();
}

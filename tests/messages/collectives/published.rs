//! Short collectives of ranks of one host, where some have no room in their buffers, and where one ends.

use std::pin::pin;
use std::task::Context;

use onesided_fabric::{Any, NOBODY, block_on, threads};
use onesided_two_sided::{Collective, CollectiveFault, CollectiveRequest, Error, Messages, Op, Tag};

use super::steps::{Random, Step};
use crate::support::ranks;

/// Those whose contributions are published.
const PUBLISHED: [Collective; 6] = [
    Collective::Barrier,
    Collective::Broadcast,
    Collective::AllReduce,
    Collective::AllGather,
    Collective::AllGatherV,
    Collective::AllToAll,
];

/// Elements that fit, of up to four ranks together.
const SHORT: usize = 15;

fn step(collective: Collective, size: u32, random: &mut Random) -> Step {
    let mut step = Step::random(collective, size, SHORT, random);
    step.len = step.len.min(SHORT);
    step
}

/// Runs rounds of collectives beside a call that is under way: no later one is passed, so that from the 16th on a rank has no
/// room in its buffer, and messages go.
pub(super) fn without_room(
    messages: &Messages,
    (rounds, collectives): (usize, &[Collective]),
    mut step: impl FnMut(Collective) -> Step,
) {
    let world = messages.world();
    let mut greatest = [world.rank()];
    let first = messages.all_reduce(&mut greatest, Op::Max);
    for collective in (0..rounds).flat_map(|_| collectives) {
        block_on(world.fabric(), step(*collective).run(messages)).unwrap();
    }
    first.wait().unwrap();
    assert_eq!(greatest, [world.size() - 1]);
}

#[test]
fn contributions_without_room_go_as_messages() {
    for size in 2..5 {
        ranks(size, |_, messages| {
            let mut random = Random(size.into());
            for _ in 0..2 {
                without_room(&messages, (8, &PUBLISHED), |collective| step(collective, size, &mut random));
            }
        });
    }
}

/// A root waits for nobody: the others get its contributions in order, whichever way they go.
#[test]
fn a_root_runs_ahead() {
    ranks(3, |world, messages| {
        let me = world.rank();
        if me == 1 {
            for number in 0..100_u64 {
                messages.broadcast(&mut [number], 1).wait().unwrap();
            }
            messages.send(&[0_u8], 0, Tag(0)).wait().unwrap();
        } else {
            if me == 0 {
                messages.recv::<u8>(1, Tag(0)).wait().unwrap();
            }
            for number in 0..100_u64 {
                let mut into = [0];
                messages.broadcast(&mut into, 1).wait().unwrap();
                assert_eq!(into, [number]);
            }
        }
        messages.barrier().wait().unwrap();
    });
}

/// All begin more calls than there is room for, and wait for them in opposite orders.
#[test]
fn many_calls_are_under_way() {
    ranks(3, |world, messages| {
        let mut sums = vec![[world.rank() + 1]; 100];
        let mut calls: Vec<_> = sums.iter_mut().map(|sum| messages.all_reduce(sum, Op::Sum)).collect();
        for (_, ended) in world.test_some(&mut calls) {
            ended.unwrap();
        }
        if world.rank() == 1 {
            calls.reverse();
        }
        calls.into_iter().for_each(|call| call.wait().unwrap());
        assert!(sums.iter().all(|sum| *sum == [6]));
    });
}

/// A call of three ranks.
fn call<'m>(messages: &'m Messages, collective: Collective, mine: &'m [u32; 9], into: &'m mut [u32; 9]) -> Request<'m> {
    match collective {
        Collective::Barrier => messages.barrier(),
        Collective::AllReduce => messages.all_reduce(into, Op::Sum),
        Collective::AllGather => messages.all_gather(&mine[..3], into),
        _ => messages.all_to_all(mine, into),
    }
}

pub(super) type Request<'m> = CollectiveRequest<'m, Any>;

/// Polls a call, unless it is over, and takes its outcome.
pub(super) fn poll(call: &mut Option<Request<'_>>, outcome: &mut Option<Result<(), Error>>) {
    let ended = call.as_mut().map(|call| call.test());
    if let Some(ended @ (Ok(Some(())) | Err(_))) = ended {
        (*call, *outcome) = (None, Some(ended.map(drop)));
    }
}

/// Polls the calls in turn, from one of them on, until all are over; that of rank 2 is dropped at the turn of a
/// number. The outcomes.
fn in_turn(calls: [Request<'_>; 3], first: usize, dropped_at: Option<u32>) -> [Option<Result<(), Error>>; 3] {
    let (mut calls, mut outcomes) = (calls.map(Some), [None, None, None]);
    for turn in 0.. {
        for rank in (0..3).map(|rank| (rank + first) % 3) {
            if rank == 2 && dropped_at == Some(turn) {
                calls[rank] = None;
            }
            poll(&mut calls[rank], &mut outcomes[rank]);
        }
        if calls.iter().all(Option::is_none) {
            return outcomes;
        }
        assert!(turn < 10_000, "{outcomes:?}");
    }
    unreachable!("the turns do not end")
}

/// The others end, complete or with an error that names the rank, whichever way the contributions went.
#[test]
fn a_call_that_is_dropped_ends_the_others() {
    let mut failed = 0;
    let places = (0..3).flat_map(|at| [(at, 0), (at, 20)]).flat_map(|at| [0, 1, 2].map(|first| (at, first)));
    for ((dropped_at, earlier), first) in places {
        for collective in [Collective::Barrier, Collective::AllReduce, Collective::AllGather, Collective::AllToAll] {
            let all = threads(3, |world| Messages::new(&world).wait().unwrap()).unwrap();
            let all: [_; 3] = all.try_into().unwrap();
            let _under_way = all.each_ref().map(Messages::barrier); // none of the next ones is passed
            for _ in 0..earlier {
                let outcomes = in_turn(all.each_ref().map(Messages::barrier), first, None);
                assert!(outcomes.iter().all(|outcome| matches!(outcome, Some(Ok(())))), "{outcomes:?}");
            }
            let (mine, mut into) = ([1; 9], [[1; 9]; 3]);
            let mut into = into.iter_mut();
            let calls = all.each_ref().map(|messages| call(messages, collective, &mine, into.next().unwrap()));
            for outcome in in_turn(calls, first, Some(dropped_at)).into_iter().flatten() {
                if let Err(Error::Collective { fault, .. }) = &outcome {
                    assert_eq!(*fault, CollectiveFault::Dropped { rank: 2 }, "{collective} at {dropped_at}");
                    failed += 1;
                } else {
                    outcome.unwrap();
                }
            }
        }
    }
    assert!(failed >= 48, "{failed}");
}

/// What a rank has published before it leaves counts.
#[test]
fn a_contribution_outlives_its_rank() {
    let mut all = threads(2, |world| Messages::new(&world).wait().unwrap()).unwrap();
    let other = all.pop().unwrap();
    other.broadcast(&mut [7], 1).wait().unwrap();
    drop(other);
    let mut into = [0];
    all[0].broadcast(&mut into, 1).wait().unwrap();
    assert_eq!(into, [7]);
    let left = all[0].barrier().wait().unwrap_err();
    assert!(left.fault().rank().is_some_and(|rank| rank.0 == 1), "{left}");
    let cx = &mut Context::from_waker(NOBODY);
    assert!(pin!(all[0].barrier()).poll(cx).is_ready());
}

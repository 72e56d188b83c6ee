//! Long collectives of ranks of one host, which read one another's slices; where some cannot, and where one ends.

use std::time::Duration;

use onesided_fabric::{block_on, threads};
use onesided_two_sided::{Collective, CollectiveFault, Error, InPlace, Messages, Op};

use super::published::{Request, poll, without_room};
use super::steps::{Random, Step};
use crate::support::ranks;

const DIRECT: [Collective; 4] =
    [Collective::AllReduce, Collective::AllGather, Collective::AllGatherV, Collective::AllToAll];

/// Elements of 4 bytes: from 4,096 on slices are read.
const LONG: usize = 20_000;

fn step(collective: Collective, size: u32, random: &mut Random) -> Step {
    let mut step = Step::random(collective, size, LONG, random);
    step.len = LONG / 8 + random.below(LONG as u64) as usize;
    step
}

#[test]
fn long_ones_give_what_they_should() {
    for size in 2..6 {
        ranks(size, |world, messages| {
            let mut random = Random(size.into());
            for _ in 0..6 {
                for collective in DIRECT {
                    block_on(world.fabric(), step(collective, size, &mut random).run(&messages)).unwrap();
                }
            }
        });
    }
}

#[test]
fn without_room_messages_go() {
    for size in 2..5 {
        ranks(size, |_, messages| {
            let mut random = Random(size.into());
            without_room(&messages, (6, &DIRECT), |collective| step(collective, size, &mut random));
        });
    }
}

/// All start more calls than there is room for, and wait for them in opposite orders.
#[test]
fn many_long_calls_are_under_way() {
    ranks(3, |world, messages| {
        let mut sums = vec![vec![world.rank() + 1; 5_000]; 40];
        let mut calls: Vec<_> = sums.iter_mut().map(|sum| messages.all_reduce(sum, Op::Sum).start()).collect();
        if world.rank() == 1 {
            calls.reverse();
        }
        calls.into_iter().for_each(|call| call.wait().unwrap());
        assert!(sums.iter().flatten().all(|sum| *sum == 6));
    });
}

#[test]
fn long_ones_of_other_lengths_are_told_so() {
    let errors = ranks(3, |world, messages| {
        let len = if world.rank() == 1 { 6_000 } else { 6_002 };
        messages.all_reduce(&mut vec![1_u64; len], Op::Sum).wait().unwrap_err()
    });
    for error in errors {
        let Error::Collective { fault, .. } = &error else { panic!("{error}") };
        assert!(matches!(fault, CollectiveFault::Lengths { .. }), "{error}");
    }
}

/// Three ranks' slices, in one thread.
struct Call {
    collective: Collective,
    mine: Vec<u32>,
    all: Vec<u32>,
}

const BLOCK: usize = 6_000;

impl Call {
    fn new(collective: Collective, rank: u32) -> Self {
        let element = |at: usize| rank * 1_000_000 + at as u32;
        let mine = (0..3 * BLOCK).map(element).collect();
        Self { collective, mine, all: vec![rank + 1; 3 * BLOCK] }
    }

    fn begin<'c>(&'c mut self, messages: &'c Messages) -> Request<'c> {
        match self.collective {
            Collective::AllReduce => messages.all_reduce(&mut self.all, Op::Sum),
            Collective::AllGather => messages.all_gather(&self.mine[..BLOCK], &mut self.all),
            Collective::AllToAll if messages.world().rank() == 0 => {
                self.all.copy_from_slice(&self.mine);
                messages.all_to_all(InPlace, &mut self.all)
            }
            _ => messages.all_to_all(&self.mine, &mut self.all),
        }
    }

    fn check(&self, rank: u32) {
        let expected = |at: usize| {
            let (from, place) = ((at / BLOCK) as u32, at % BLOCK);
            match self.collective {
                Collective::AllReduce => 6,
                Collective::AllGather => from * 1_000_000 + place as u32,
                _ => from * 1_000_000 + (rank as usize * BLOCK + place) as u32,
            }
        };
        let wrong = (0..3 * BLOCK).find(|at| self.all[*at] != expected(*at));
        assert_eq!(wrong, None, "{} at rank {rank}", self.collective);
    }

    /// What the slices of a request that was dropped are used for next.
    fn overwrite(&mut self) {
        self.mine.fill(u32::MAX);
        self.all.fill(u32::MAX);
    }
}

/// The calls of two ranks that go on, and their outcomes.
struct Others<'c> {
    calls: [Option<Request<'c>>; 2],
    outcomes: [Option<Result<(), Error>>; 2],
}

impl Others<'_> {
    fn poll(&mut self, rank: usize) {
        poll(&mut self.calls[rank], &mut self.outcomes[rank]);
    }
}

/// Rank 2 gives up after each number of polls, in random orders of all polls, and uses its slices again at once. The
/// others have what they should have, or are told.
#[test]
fn what_is_read_of_a_dropped_call_does_not_count() {
    let (mut failed, mut complete, mut random) = (0, 0, Random(1));
    let collectives = [Collective::AllReduce, Collective::AllGather, Collective::AllToAll];
    let places = collectives.iter().flat_map(|one| (0..8).map(move |polls| (*one, polls)));
    for (collective, polls) in places.flat_map(|place| [place; 12]) {
        let all = threads(3, |world| Messages::new(&world).wait().unwrap()).unwrap();
        let mut calls = [0, 1, 2].map(|rank| Call::new(collective, rank));
        let [first, second, third] = &mut calls;
        let mut others =
            Others { calls: [Some(first.begin(&all[0])), Some(second.begin(&all[1]))], outcomes: [None, None] };
        let mut given_up = third.begin(&all[2]);
        let mut left = polls;
        while left > 0 {
            match random.below(3) as usize {
                2 if !matches!(given_up.test(), Ok(None)) => break,
                2 => left -= 1,
                rank => others.poll(rank),
            }
        }
        drop(given_up);
        third.overwrite();
        while others.calls.iter().any(Option::is_some) {
            others.poll(random.below(2) as usize);
        }
        let outcomes = std::mem::take(&mut others.outcomes);
        drop(others);
        for (rank, outcome) in (0..).zip(outcomes) {
            match outcome {
                Some(Err(Error::Collective { fault, .. })) => {
                    assert_eq!(fault, CollectiveFault::Dropped { rank: 2 }, "{collective} after {polls}");
                    failed += 1;
                }
                outcome => {
                    outcome.unwrap().unwrap();
                    calls[rank as usize].check(rank);
                    complete += 1;
                }
            }
        }
    }
    assert!(failed > 100 && complete > 50, "{failed} failed, {complete} complete");
}

/// A rank that comes too late, or not at all, ends the call of the others in time, and gets the reason.
#[test]
fn a_deadline_ends_long_ones() {
    let errors = ranks(3, |world, messages| {
        let mut data = vec![1_u64; 5_000];
        if world.rank() == 1 {
            let call = messages.all_reduce(&mut data, Op::Sum).deadline(Duration::from_millis(20));
            return call.wait().unwrap_err();
        }
        if world.rank() == 2 {
            std::thread::sleep(Duration::from_millis(100));
        }
        messages.all_reduce(&mut data, Op::Sum).wait().unwrap_err()
    });
    for error in errors {
        let Error::Collective { fault, .. } = error else { panic!("{error}") };
        assert_eq!(fault, CollectiveFault::Late { rank: 1 });
    }
}

/// A rank that leaves in the middle ends the calls of the others, with its name.
#[test]
fn a_rank_that_leaves_ends_long_ones() {
    for polls in 0..4 {
        let mut all = threads(3, |world| Messages::new(&world).wait().unwrap()).unwrap();
        let leaving = all.pop().unwrap();
        let [mut first, mut second, mut third] = [0, 1, 2].map(|rank| Call::new(Collective::AllGather, rank));
        let mut others =
            Others { calls: [Some(first.begin(&all[0])), Some(second.begin(&all[1]))], outcomes: [None, None] };
        let mut call = third.begin(&leaving);
        others.poll(0);
        for _ in 0..polls {
            assert!(matches!(call.test(), Ok(None)), "rank 1 has not begun");
        }
        drop(call);
        drop(leaving);
        while others.calls.iter().any(Option::is_some) {
            (0..2).for_each(|rank| others.poll(rank));
        }
        for outcome in others.outcomes {
            let error = outcome.unwrap().unwrap_err();
            let Error::Collective { fault, .. } = &error else { panic!("{error}") };
            assert_eq!(*fault, CollectiveFault::Dropped { rank: 2 }, "{error}");
        }
    }
}

//! What ends collectives early, at all ranks and with the same reason.

use std::future::poll_fn;
use std::sync::Barrier;
use std::task::Poll;
use std::time::Duration;

use onesided_fabric::remote_memory::{Fault, FaultKind, Rank, RemoteMemory};
use onesided_fabric::{Drive, Fabric, block_on, threads};
use onesided_sim::{End, Network, Simulation};
use onesided_two_sided::{Collective, CollectiveFault, CollectiveRequest, Error, InPlace, Messages, Op, Tag};

use super::steps::{ALL, Random, Step};
use crate::support::ranks;

const SOON: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(20);

fn fault(error: &Error) -> CollectiveFault {
    let Error::Collective { fault, .. } = *error else { panic!("{error}") };
    fault
}

/// The error of a step, or of one of the barriers after it: a rank whose part was over before it
/// could see that something is wrong sees it then.
async fn until_error<F: Fabric>(messages: &Messages<F>, step: &Step) -> Error {
    if let Err(error) = step.run(messages).await {
        return error;
    }
    for _ in 0..3 {
        if let Err(error) = messages.barrier().await {
            return error;
        }
    }
    panic!("rank {}: no error after {step:?}", messages.world().rank());
}

/// Rank `odd` is in another collective than the others.
fn out_of_step(size: u32, odd: u32, pair: [Collective; 2], seed: u64) {
    let mut random = Random(seed);
    let [most, other] = pair.map(|collective| Step::random(collective, size, 64, &mut random));
    let errors = ranks(size, |world, messages| {
        let step = if world.rank() == odd { &other } else { &most };
        messages.barrier().wait().unwrap();
        let error = block_on(world.fabric(), until_error(&messages, step));
        assert_eq!(error.kind(), FaultKind::OutOfStep, "{error}: {pair:?}");
        (fault(&error), error)
    });
    for (fault, error) in errors {
        let CollectiveFault::OutOfStep(calls) = fault else { panic!("{error}: {pair:?}") };
        assert_ne!(calls[0].rank(), calls[1].rank());
        let of_pair = |call: &onesided_two_sided::CollectiveCall| {
            let expected = pair[usize::from(call.rank() == odd)];
            call.number() == 2 && call.collective() == Some(expected) || call.collective() == Some(Collective::Barrier)
        };
        assert!(calls.iter().all(of_pair), "{error}: {pair:?}");
        assert!(calls.iter().any(|call| call.number() == 2), "{error}: {pair:?}");
    }
}

#[test]
fn out_of_step_collectives_are_told_so() {
    let pairs = ALL.iter().flat_map(|one| ALL.map(|other| [*one, other])).filter(|[one, other]| one != other);
    for (seed, pair) in (0..).zip(pairs) {
        out_of_step(2, (seed % 2) as u32, pair, seed);
        if seed % 3 == 0 {
            out_of_step(3 + (seed % 2) as u32, (seed % 3) as u32, pair, seed);
        }
    }
}

#[test]
fn different_operations_and_types_are_out_of_step() {
    type Call = (&'static str, fn(&Messages) -> Result<(), Error>);
    fn of<F: Drive>(request: CollectiveRequest<'_, F>) -> Result<(), Error> {
        request.deadline(SOON).wait()
    }
    let groups: [&[Call]; 3] = [
        &[
            ("all_reduce by Sum of u64 (call 1)", |messages| of(messages.all_reduce(&mut [1_u64; 4], Op::Sum))),
            ("all_reduce by Max of u64 (call 1)", |messages| of(messages.all_reduce(&mut [1_u64; 4], Op::Max))),
            ("all_reduce by Sum of f64 (call 1)", |messages| of(messages.all_reduce(&mut [1_f64; 4], Op::Sum))),
            ("all_reduce by a function (call 1)", |messages| {
                of(messages.all_reduce(&mut [1_u64; 4], |one: u64, other: u64| one.max(other)))
            }),
        ],
        &[
            ("scan by Sum of i32 (call 1)", |messages| of(messages.scan(&mut [1; 4], Op::Sum))),
            ("scan by Sum of u32 (call 1)", |messages| of(messages.scan(&mut [1_u32; 4], Op::Sum))),
        ],
        &[
            ("reduce by Sum (call 1, root 1)", |messages| of(messages.reduce(&mut [1; 4], Op::Sum, 1))),
            ("reduce by Replace (call 1, root 1)", |messages| of(messages.reduce(&mut [1; 4], Op::Replace, 1))),
        ],
    ];
    for calls in groups {
        for pair in calls.windows(2) {
            let errors = ranks(2, |world, messages| {
                let (_, call) = pair[world.rank() as usize];
                call(&messages).and_then(|()| messages.barrier().wait()).unwrap_err().to_string()
            });
            let [zero, one] = [pair[0].0, pair[1].0];
            assert!(errors.iter().all(|error| error.contains(zero) && error.contains(one)), "{errors:?}");
        }
    }
}

#[test]
fn different_roots_are_out_of_step() {
    let errors = ranks(3, |world, messages| {
        let (mine, mut all) = ([world.rank()], vec![0; 3]);
        let root = if world.rank() == 1 { 1 } else { 0 };
        let all = if root == world.rank() { &mut all[..] } else { &mut [] };
        // The part of rank 2 is over before it can see it.
        let gathered = messages.gather(&mine, all, root).deadline(SOON).wait();
        gathered.and_then(|()| messages.barrier().wait()).unwrap_err().to_string()
    });
    let one = "rank 0 is in gather (call 1, root 0), and rank 1 is in gather (call 1, root 1)";
    let other = "rank 1 is in gather (call 1, root 1), and rank 0 is in gather (call 1, root 0)";
    for error in errors {
        assert!([one, other].iter().any(|text| error.ends_with(text)), "{error}");
    }
}

#[test]
fn a_rank_that_has_left_is_named() {
    for collective in ALL {
        for longest in [16, 4_000] {
            let step = Step::random(collective, 4, longest, &mut Random(collective as u64));
            ranks(4, |world, messages| {
                messages.barrier().wait().unwrap();
                if world.rank() == 2 {
                    return;
                }
                let error = block_on(world.fabric(), until_error(&messages, &step));
                let CollectiveFault::Fault(fault) = fault(&error) else { panic!("{error}") };
                // Its communicator is closed before it leaves.
                assert!(matches!(fault.kind(), FaultKind::PeerLeft | FaultKind::Closed), "{error}: {step:?}");
                assert_eq!(fault.rank().unwrap().0, 2, "{error}: {step:?}");
                // Later ones fail at once; messages go on.
                let again = messages.barrier().wait().unwrap_err();
                assert_eq!(again.fault(), fault, "{again}");
                let (next, before) = ([1, 3, 0, 0], [3, 0, 0, 1]);
                let me = world.rank() as usize;
                drop(messages.send(&[me], next[me], Tag(7)));
                let (got, _) = messages.recv::<usize>(before[me], Tag(7)).deadline(SOON).wait().unwrap();
                assert_eq!(got, [before[me] as usize]);
            });
        }
    }
}

/// Runs steps at the same time, which begin in this order; their errors.
async fn together<F: Fabric>(messages: &Messages<F>, steps: &[Step]) -> Vec<Error> {
    let mut runs: Vec<_> = steps.iter().map(|step| Some(Box::pin(step.run(messages)))).collect();
    let mut errors = Vec::new();
    poll_fn(|cx| {
        for run in &mut runs {
            let Some(Poll::Ready(ended)) = run.as_mut().map(|run| run.as_mut().poll(cx)) else { continue };
            (*run, _) = (None, ended.map_err(|error| errors.push(error)));
        }
        runs.reverse();
        if runs.iter().any(Option::is_some) { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    errors
}

/// Rank 2 leaves because rank 1 has died, and rank 0 waits for rank 2 first.
#[test]
fn a_death_is_told_before_those_who_left_because_of_it() {
    let told = std::sync::OnceLock::new();
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        ranks(3, |world, messages| {
            let until_it_ends =
                |rank| (0..).take_while(|_| world.is_alive(rank)).for_each(|_| std::thread::yield_now());
            match world.rank() {
                1 => panic!("on purpose"),
                2 => until_it_ends(1),
                _ => {
                    until_it_ends(2);
                    told.set(fault(&messages.barrier().wait().unwrap_err())).unwrap();
                }
            }
        })
    }));
    assert_eq!(outcome.unwrap_err().downcast_ref(), Some(&"on purpose"));
    assert_eq!(told.get(), Some(&CollectiveFault::Fault(Fault::of(FaultKind::PeerDied, Rank(1)))));
}

/// A simulated rank dies at a random time in a series of collectives, some of which are under way at the
/// same time.
fn dies(size: u32, seed: u64, network: Network) -> bool {
    let mut random = Random(seed);
    let dead = random.below(size.into()) as u32;
    let time = Duration::from_nanos(20_000 + random.below(500_000));
    let report = Simulation::new(network).ranks(size).seed(seed).kill(dead, time).run(|world| async move {
        let messages = match Messages::new(&world).await {
            Ok(messages) => messages,
            Err(error) => return assert_eq!(error.kind(), FaultKind::PeerDied, "{error}"),
        };
        let mut random = Random(seed);
        loop {
            let (mut all, longest) = (ALL.to_vec(), [300, 3_000][seed as usize % 2]);
            while !all.is_empty() {
                let several = all.split_off(all.len().saturating_sub(1 + random.below(4) as usize));
                let steps: Vec<_> = several
                    .into_iter()
                    .map(|collective| Step::random(collective, size, longest, &mut random))
                    .collect();
                let errors = together(&messages, &steps).await;
                for error in &errors {
                    let CollectiveFault::Fault(fault) = fault(error) else { panic!("{error}") };
                    assert_eq!(fault.kind(), FaultKind::PeerDied, "{error}");
                    assert_eq!(fault.rank().unwrap().0, dead, "{error}");
                }
                if !errors.is_empty() {
                    // Its departure would end the waits of the others.
                    let own = world.fabric().world_segment(world.fabric().rank()).unwrap();
                    return world.fabric().pause(world.fabric().word_in(&own, 0).unwrap(), 1_000_000_000).await;
                }
            }
        }
    });
    assert_eq!(report.end, End::Finished, "seed {seed}: {time:?}");
    assert_eq!(report.results.iter().flatten().count() as u32, size - 1, "seed {seed}");
    true
}

#[test]
fn a_death_ends_all_ranks() {
    let seeds = if std::env::var_os("ONESIDED_LONG").is_some() { 60 } else { 24 };
    for seed in 0..seeds {
        dies(2 + (seed % 8) as u32, seed, Network::default());
    }
}

/// A rank dies while all make a communicator, which some have then, and others have not. Nobody leaves.
#[test]
fn a_death_in_the_creation_ends_the_calls_of_those_that_have_the_communicator() {
    for seed in 0..200 {
        let mut random = Random(seed);
        let (size, at) = (3 + random.below(3) as u32, Duration::from_nanos(random.below(40_000)));
        let step = Step::random(ALL[random.below(16) as usize], size, 300, &mut random);
        let network = Network { detection_jitter: Duration::from_micros(50), ..Network::default() };
        let simulation = Simulation::new(network).ranks(size).seed(seed).kill(1, at);
        let step = &step;
        let report = simulation.stalled_after(Duration::from_secs(60)).run(|world| async move {
            let outcome = match Messages::new(&world).await {
                Ok(messages) => step.run(&messages).await,
                Err(error) => Err(error),
            };
            let own = world.fabric().world_segment(world.fabric().rank()).unwrap();
            world.fabric().pause(world.fabric().word_in(&own, 0).unwrap(), 1_000_000_000).await;
            outcome
        });
        assert_eq!(report.end, End::Finished, "seed {seed}, at {at:?}: {step:?}");
        for error in report.results.into_iter().flatten().filter_map(Result::err) {
            let is_of_death = error.kind() == FaultKind::PeerDied && error.fault().rank() == Some(Rank(1));
            assert!(is_of_death, "seed {seed}, at {at:?}, {step:?}: {error}");
        }
    }
}

#[test]
fn a_death_ends_all_of_many_ranks_under_loss() {
    for seed in 0..3 {
        let network = Network { loss: 0.01, jitter: Duration::from_micros(2), retries: 50, ..Network::default() };
        dies(64, seed, network);
    }
}

#[test]
fn a_late_rank_fails_all() {
    let errors = ranks(4, |world, messages| {
        let mut sum = [1];
        if world.rank() != 0 {
            return messages.all_reduce(&mut sum, Op::Sum).deadline(SHORT * (1 + 1000 * (world.rank() % 2))).wait();
        }
        messages.recv::<u8>(2, Tag(0)).wait().unwrap_err(); // which has left
        messages.all_reduce(&mut sum, Op::Sum).wait()
    });
    for error in errors {
        let error = error.unwrap_err();
        assert_eq!(fault(&error), CollectiveFault::Late { rank: 2 }, "{error}");
        assert_eq!(error.to_string(), "all_reduce (call 1): the deadline of rank 2 passed");
    }
}

#[test]
fn a_dropped_request_fails_all() {
    for is_begun in [false, true] {
        let errors = ranks(3, |world, messages| {
            let mut all = [0; 3];
            let mut request = messages.all_gather(InPlace, &mut all);
            if world.rank() == 1 {
                if is_begun && request.test().unwrap().is_some() {
                    unreachable!("rank 0 comes later");
                }
                drop(request);
                drop(messages.send(&[0_u8], 0, Tag(0)));
                return messages.barrier().wait();
            }
            if world.rank() == 0 {
                messages.recv::<u8>(1, Tag(0)).wait().unwrap();
            }
            request.wait()?;
            messages.barrier().wait()
        });
        let texts = errors.into_iter().map(|error| error.unwrap_err().to_string());
        let texts: Vec<_> = texts.collect();
        assert_eq!(texts[0], "all_gather (call 1): rank 1 dropped its request");
        assert_eq!(texts[1], "barrier (call 2): call 1 failed before: rank 1 dropped its request");
        assert_eq!(texts[2], texts[0]);
    }
}

/// The later one of two calls that are under way fails first.
#[test]
fn an_earlier_call_that_fails_later_is_told() {
    let over = Barrier::new(4);
    let errors = ranks(4, |world, messages| {
        let mut data = [0; 3];
        let error = if world.rank() == 1 {
            let earlier = messages.broadcast(&mut data, 1);
            let late = messages.barrier().deadline(SHORT).wait().unwrap_err();
            assert_eq!(fault(&late), CollectiveFault::Late { rank: 1 }, "{late}");
            drop(earlier);
            messages.barrier().wait().unwrap_err()
        } else {
            messages.broadcast(&mut data, 1).deadline(SOON).wait().unwrap_err()
        };
        over.wait();
        error.to_string()
    });
    for rank in [0, 2, 3] {
        assert_eq!(errors[rank], "broadcast (call 1): rank 1 dropped its request");
    }
    assert_eq!(errors[1], "barrier (call 3): call 1 failed before: rank 1 dropped its request");
}

/// What is left of a call that failed here is no sign that another rank is out of step.
#[test]
fn a_call_that_is_under_way_fails_as_the_one_before_it() {
    let [sent, over] = [Barrier::new(2), Barrier::new(2)];
    ranks(2, |world, messages| {
        let (mut gathered, mut all) = ([0; 2], [0; 2]);
        let gather = messages.gather(&[1], &mut gathered, 1);
        if world.rank() == 0 {
            gather.wait().unwrap(); // it waits for nobody
            sent.wait();
            over.wait(); // no other call of this rank tells rank 1
        } else {
            sent.wait();
            let mut later = messages.all_gather(InPlace, &mut all);
            assert!(later.test().unwrap().is_none());
            drop(gather);
            let error = later.deadline(SOON).wait();
            over.wait();
            let text = error.unwrap_err().to_string();
            assert_eq!(text, "all_gather (call 2): call 1 failed before: rank 1 dropped its request");
        }
    });
}

#[test]
fn different_lengths_are_told() {
    for size in [2, 3, 5] {
        ranks(size, |world, messages| {
            let mut data = vec![1_u32; if world.rank() == 1 { 3 } else { 4 }];
            let error = messages.all_reduce(&mut data, Op::Sum).deadline(SOON).wait().unwrap_err();
            let CollectiveFault::Lengths { rank, bytes, other, expected, .. } = fault(&error) else {
                panic!("{error}")
            };
            let [sent, expects] = [rank, other].map(|rank| if rank == 1 { 3 } else { 4 });
            let why = format!("rank {rank} sent {sent} elements of 4 bytes, and rank {other} expected {expects}");
            assert!(error.to_string().ends_with(&why), "{error}");
            let lengths = [rank, other].map(|rank| if rank == 1 { 12 } else { 16 });
            assert_eq!(([bytes, expected], error.kind()), (lengths, FaultKind::TooLong), "{error}");
        });
    }
}

#[test]
fn arguments_that_do_not_fit_are_refused() {
    /// The error of rank 0, which the other one gets too.
    fn refused(call: impl Fn(&Messages, &mut [f64]) -> Result<(), Error> + Sync) -> String {
        let texts = ranks(2, |world, messages| {
            let mut data = [0.0; 6];
            let outcome = if world.rank() == 0 { call(&messages, &mut data) } else { messages.barrier().wait() };
            let text = outcome.unwrap_err().to_string();
            text.split_once(": ").unwrap().1.to_string()
        });
        assert_eq!(texts[0], texts[1]);
        texts[0].clone()
    }
    let text = refused(|messages, data| messages.all_reduce(data, Op::Xor).wait());
    assert_eq!(text, "Xor does not apply to the elements of rank 0");
    assert_eq!(
        refused(|messages, data| messages.broadcast(data, 2).wait()),
        "rank 0 named rank 2, and there is no such rank"
    );
    let text = refused(|messages, data| messages.all_gather_v(&[1.0], data, &[6]).wait());
    assert_eq!(text, "rank 0 gave 1 counts for 2 ranks");
    let text = refused(|messages, data| messages.all_gather_v(&[1.0], data, &[1, usize::MAX]).wait());
    assert_eq!(text, "rank 0 gave 2 counts for 2 ranks");
    for text in [
        refused(|messages, data| messages.all_gather(&[1.0, 2.0], data).wait()),
        refused(|messages, data| messages.gather(&[1.0, 2.0], data, 0).wait()),
    ] {
        assert_eq!(text, "a slice of rank 0 has 6 elements of 8 bytes, and the call needs 4");
    }
    let text = refused(|messages, data| messages.reduce_scatter(&mut data[..5], Op::Sum).wait());
    assert_eq!(text, "a slice of rank 0 has 5 elements of 8 bytes, and the call needs 4");
    let text = refused(|messages, data| messages.gather(InPlace, data, 1).wait());
    assert_eq!(text, "a slice of rank 0 has 0 bytes, and the call needs 1");
}

#[test]
fn another_communicator_goes_on() {
    ranks(2, |world, messages| {
        let other = Messages::new(&world).wait().unwrap();
        drop(messages.barrier());
        assert!(messages.barrier().wait().is_err());
        let mut sum = [1];
        other.all_reduce(&mut sum, Op::Sum).wait().unwrap();
        assert_eq!(sum, [2]);
    });
}

/// Errors name ranks of the communicator, not of the job.
#[test]
fn ranks_of_a_split_are_named_by_it() {
    threads(5, |world| {
        let odd = world.split(world.rank() % 2, 0).wait().unwrap();
        let messages = Messages::new(&odd).wait().unwrap();
        if world.rank() == 2 || world.rank() == 3 {
            return; // rank 1 of both
        }
        let error = messages.all_reduce(&mut [0_u8; 10_000], Op::Sum).deadline(SOON).wait().unwrap_err();
        assert_eq!(error.to_string(), "all_reduce (call 1): rank 1 has left");
        // The other ranks of the job have no part in it.
        if world.rank() == 4 {
            let other = messages.barrier().wait().unwrap_err();
            assert_eq!(other.to_string(), "barrier (call 2): call 1 failed before: rank 1 has left");
        }
    })
    .unwrap();
}

/// A rank drops a communicator in order while the others wait for it there, and goes on with another one.
#[test]
fn a_communicator_dropped_at_one_rank_ends_the_calls_of_the_others() {
    for size in [2, 3, 5] {
        ranks(size, |world, messages| {
            let part = Messages::new(&world).wait().unwrap();
            part.barrier().deadline(SOON).wait().unwrap();
            let last = size - 1;
            if world.rank() == last {
                drop(part);
                for other in 0..last {
                    messages.recv::<u8>(other, Tag(0)).deadline(SOON).wait().unwrap();
                }
                return;
            }
            let error = part.barrier().deadline(SOON).wait().unwrap_err();
            let closed = Fault::of(FaultKind::Closed, Rank(last));
            assert_eq!(fault(&error), CollectiveFault::Fault(closed), "{size}, {}: {error}", world.rank());
            messages.send(&[0_u8], last, Tag(0)).wait().unwrap();
        });
    }
}

/// A rank that has sent its part and dropped the communicator: the others, which asked it before, get that part.
#[test]
fn what_was_sent_before_a_communicator_was_dropped_arrives() {
    let late = Duration::from_millis(100); // after some questions
    ranks(3, |world, messages| {
        let part = Messages::new(&world).wait().unwrap();
        let mut data = [world.rank()];
        match world.rank() {
            0 => {
                std::thread::sleep(late);
                part.broadcast(&mut data, 0).wait().unwrap();
                drop(part);
                messages.barrier().deadline(SOON).wait().unwrap();
            }
            me => {
                std::thread::sleep(if me == 1 { Duration::ZERO } else { 2 * late });
                part.broadcast(&mut data, 0).deadline(SOON).wait().unwrap();
                assert_eq!(data, [0]);
                messages.barrier().deadline(SOON).wait().unwrap();
            }
        }
    });
}

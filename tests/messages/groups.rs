//! Communicators that some members of another make alone.

use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Barrier, Mutex};
use std::task::Poll;
use std::time::Duration;

use onesided_fabric::remote_memory::{At, FaultKind, Rank, RegionId, RemoteMemory};
use onesided_fabric::{Fabric, World};
use onesided_instances as _;
use onesided_sim::{End, Network, Simulation};
use onesided_two_sided::{CollectiveFault, Error, Messages, Op, Source, Tag, Tags, WrongMembers};

use crate::planted::{Bug, Planted};
use crate::support::{ranks, rough};

const SOON: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(50);

/// Every member hears of every other by a collective and by a message from any rank.
async fn use_group<F: Fabric>(group: &Messages<F>, members: &[u32], seed: u32) -> Result<(), Error> {
    let (me, size) = (group.world().rank(), group.world().size());
    assert_eq!(size as usize, members.len());
    let mut sum = [members[me as usize]];
    group.all_reduce(&mut sum, Op::Sum).await?;
    assert_eq!(sum[0], members.iter().sum::<u32>());
    let sent = [seed, me];
    let sends: Vec<_> = (0..size).filter(|to| *to != me).map(|to| group.send(&sent, to, Tag(seed))).collect();
    let mut heard = BTreeSet::from([me]);
    for _ in 1..size {
        let ([from_seed, from], status) = {
            let (got, status) = group.recv::<u32>(Source::Any, Tags::Any).await?;
            (<[u32; 2]>::try_from(got).unwrap(), status)
        };
        assert_eq!((from_seed, from), (seed, status.source));
        assert!(heard.insert(from));
    }
    for send in sends {
        send.await?;
    }
    Ok(())
}

fn make(messages: &Messages, members: &[u32], tag: u32) -> Messages {
    messages.create_group(members, Tag(tag)).deadline(SOON).wait().unwrap()
}

fn use_now(group: &Messages, members: &[u32], seed: u32) {
    onesided_fabric::block_on(group.world().fabric(), use_group(group, members, seed)).unwrap();
}

#[test]
fn members_make_a_communicator_without_the_others() {
    let is_over = Barrier::new(5);
    ranks(5, |world, messages| {
        let members = [4, 0, 2];
        let me = world.rank();
        if me == 1 {
            drop((world, messages)); // it is not even there
            is_over.wait();
            return;
        }
        if let Some(place) = members.iter().position(|member| *member == me) {
            while world.is_alive(1) {
                std::thread::yield_now();
            }
            let group = make(&messages, &members, 0);
            assert_eq!(group.world().rank() as usize, place);
            use_now(&group, &members, 1);
            // A world like any other.
            group.world().barrier().deadline(SOON).wait().unwrap();
            let again = Messages::new(group.world()).deadline(SOON).wait().unwrap();
            use_now(&again, &members, 2);
            // Of a part of the part, in its numbers.
            if place != 1 {
                use_now(&make(&group, &[2, 0], 0), &[2, 0], 3);
            }
            assert_eq!(group.send(&[0_u8], 3, Tag(0)).wait().unwrap_err().kind(), FaultKind::NoSuchRank);
            // The communicator that it was made from, and again with the same tag.
            use_now(&make(&messages, &members, 0), &members, 4);
        }
        is_over.wait();
    });
}

#[test]
fn a_rank_alone_and_all_ranks() {
    ranks(3, |world, messages| {
        let me = world.rank();
        use_now(&make(&messages, &[me], 7), &[me], 0);
        use_now(&make(&messages, &[2, 1, 0], 7), &[2, 1, 0], 1);
        world.barrier().wait().unwrap();
    });
}

/// Threads of each rank are in creations of overlapping groups at the same time, and use them at the
/// same time. A communicator whose number another has at a rank gets the other's messages.
#[test]
fn threads_make_groups_at_the_same_time() {
    const GROUPS: [&[u32]; 6] = [&[0, 1, 2, 3], &[1, 0], &[3, 1, 2], &[2, 1], &[0, 2, 3], &[2, 0, 1]];
    ranks(4, |world, messages| {
        let at_once = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for (tag, members) in (0..).zip(GROUPS).filter(|(_, members)| members.contains(&world.rank())) {
                let (messages, at_once) = (&messages, &at_once);
                scope.spawn(move || {
                    for round in 0..10 {
                        let group = make(messages, members, tag);
                        use_now(&group, members, tag * 100 + round);
                        at_once.lock().unwrap().push((group, members, tag * 100 + round));
                    }
                });
            }
        });
        let mut all = at_once.into_inner().unwrap();
        all.sort_by_key(|(_, _, seed)| *seed);
        let names: BTreeSet<_> = all.iter().map(|(group, ..)| format!("{group:?}")).collect();
        assert_eq!(names.len(), all.len());
        all.iter().for_each(|(group, members, seed)| use_now(group, members, *seed));
    });
}

#[test]
fn wrong_lists_are_refused() {
    ranks(3, |world, messages| {
        let text = |members: &[u32]| messages.create_group(members, Tag(0)).wait().unwrap_err().to_string();
        assert_eq!(text(&[0, 1, 2, 3]), "create_group with rank 3: the world has 3 ranks");
        assert_eq!(text(&[0, 1, 2, 0]), "make a communicator of some ranks: rank 0 is in the list twice");
        let (me, absent) = (world.rank(), "calls it and is not in its list");
        let others: Vec<_> = (0..3).filter(|rank| *rank != me).collect();
        assert_eq!(text(&others), format!("make a communicator of some ranks: rank {me} {absent}"));
        assert_eq!(text(&[]), format!("make a communicator of some ranks: rank {me} {absent}"));
        // Nothing was sent.
        use_now(&make(&messages, &[0, 1, 2], 0), &[0, 1, 2], 0);
    });
}

#[test]
fn lists_that_differ_name_a_rank_that_gave_another() {
    ranks(4, |world, messages| {
        // Another order, and one member less.
        for (tag, other) in (0..).zip([&[0, 2, 1, 3][..], &[0, 1, 2]]) {
            let list = if world.rank() == 2 { other } else { &[0, 1, 2, 3] };
            let error = messages.create_group(list, Tag(tag)).deadline(SOON).wait().unwrap_err();
            assert!(matches!(error, Error::Members { rank: 2, wrong: WrongMembers::Others }), "{error}");
            assert_eq!(error.kind(), FaultKind::OutOfStep);
            assert_eq!(
                error.to_string(),
                "make a communicator of some ranks: rank 2 gave another list than the lowest rank"
            );
        }
        world.barrier().wait().unwrap(); // none leaves while another still sends to it
    });
}

/// One rank gives up, the first or another one. The next creation has another tag.
#[test]
fn a_rank_that_gives_up_ends_it_for_all() {
    for quitter in [0, 1] {
        let (has_begun, is_over) = (Barrier::new(2), Barrier::new(3));
        ranks(3, |world, messages| {
            let me = world.rank();
            let create = |tag| messages.create_group(&[0, 1, 2], Tag(tag)).deadline(SOON).wait();
            let text = |tag| create(tag).unwrap_err().to_string();
            if me == quitter {
                let error = messages.create_group(&[0, 1, 2], Tag(1)).deadline(SHORT).wait().unwrap_err();
                let late = "make a communicator: the deadline passed, waiting for rank";
                let awaited = if quitter == 0 { 2 } else { 0 };
                assert_eq!(error.to_string(), format!("{late} {awaited}"));
                has_begun.wait();
            } else {
                if me == 2 {
                    has_begun.wait(); // until the deadline has passed
                }
                let gave_up = "gave up, or has seen a creation with this tag fail";
                assert_eq!(text(1), format!("make a communicator of some ranks: rank {quitter} {gave_up}"));
            }
            is_over.wait();
            let error = create(1).unwrap_err();
            assert!(matches!(error, Error::Members { wrong: WrongMembers::GaveUp, .. }), "{error}");
            use_now(&create(2).unwrap(), &[0, 1, 2], 0);
            is_over.wait();
        });
    }
}

/// At any of its `Pending`s: that rank is named, not another one, which the creation ends at in turn.
#[test]
fn a_rank_that_gives_up_is_named_whenever_it_does() {
    ranks(4, |world, messages| {
        for round in 0..400 {
            // What comes for failed creations of a rank that is far behind is received in its later ones alone.
            if round % 50 == 0 {
                world.barrier().wait().unwrap();
            }
            let mut create = messages.create_group(&[0, 1, 2, 3], Tag(round)).deadline(SOON);
            let made = match world.rank() {
                2 => (0..=round % 8).find_map(|_| {
                    std::thread::yield_now();
                    create.test().transpose()
                }),
                _ => Some(create.wait()),
            };
            match made.map(|made| made.and_then(|group| group.barrier().deadline(SOON).wait())) {
                None | Some(Ok(())) => {}
                Some(Err(Error::Collective { fault, .. })) => assert_eq!(fault, CollectiveFault::Dropped { rank: 2 }),
                Some(Err(error)) => {
                    let is_named = matches!(error, Error::Members { rank: 2, wrong: WrongMembers::GaveUp });
                    assert!(is_named, "{round}: {error}");
                }
            }
        }
        world.barrier().wait().unwrap();
    });
}

/// Also when the others have the communicator. It stays.
#[test]
fn a_rank_that_is_late_ends_the_calls_of_those_that_have_the_communicator() {
    let mut ended = 0;
    for at in (0..120).map(|at| Duration::from_nanos(at * 250)) {
        let report = Simulation::new(Network::default()).ranks(4).run(|world| async move {
            let messages = Messages::new(&world).await.expect("messages");
            let create = messages.create_group(&[0, 1, 2, 3], Tag(1));
            let met = match if world.rank() == 2 { create.deadline(at) } else { create }.await {
                Ok(group) => group.barrier().await,
                Err(error) => Err(error),
            };
            let own = world.fabric().word(At { rank: world.fabric().rank(), region: RegionId(0), offset: 0 }).unwrap();
            world.fabric().pause(own, 1_000_000_000).await;
            met
        });
        assert_eq!(report.end, End::Finished, "{at:?}");
        let errors = report.results.into_iter().map(|met| met.expect("it ends").err());
        for error in errors.enumerate().filter(|(rank, _)| *rank != 2).filter_map(|(_, error)| error) {
            let is_told = matches!(error, Error::Collective { fault: CollectiveFault::Dropped { rank: 2 }, .. });
            let is_named = matches!(error, Error::Members { rank: 2, wrong: WrongMembers::GaveUp });
            assert!(is_told || is_named, "{at:?}: {error}");
            ended += u32::from(is_told);
        }
    }
    assert!(ended > 0, "no rank had a communicator");
}

#[test]
fn a_handle_that_is_dropped_unpolled_has_no_effect_and_one_that_was_polled_ends_it() {
    ranks(2, |world, messages| {
        drop(messages.create_group(&[0, 1], Tag(0)));
        use_now(&make(&messages, &[0, 1], 0), &[0, 1], 0);
        if world.rank() == 1 {
            let mut create = messages.create_group(&[0, 1], Tag(1));
            assert!(create.test().unwrap().is_none());
            drop(create);
        } else {
            let error = messages.create_group(&[0, 1], Tag(1)).deadline(SOON).wait().unwrap_err();
            assert!(matches!(error, Error::Members { rank: 1, wrong: WrongMembers::GaveUp }), "{error}");
        }
        use_now(&make(&messages, &[0, 1], 2), &[0, 1], 0);
    });
}

#[test]
fn a_member_that_has_left_is_named() {
    ranks(3, |world, messages| {
        if world.rank() == 1 {
            return;
        }
        let error = messages.create_group(&[0, 1, 2], Tag(0)).deadline(SOON).wait().unwrap_err();
        assert_eq!(error.to_string(), "make a communicator: rank 1 has left");
        use_now(&make(&messages, &[2, 0], 1), &[2, 0], 0);
    });
}

/// A member dies at every moment of a creation: each other one has a communicator then, or an error
/// that names it.
#[test]
fn a_death_of_a_member_ends_the_creation_and_is_named() {
    for (network, every) in [(Network::default(), 2), (rough(), 50)] {
        for dead in [0, 2] {
            let (mut made, mut failed) = (0, 0);
            for at in (0..80).map(|step| Duration::from_micros(step * every)) {
                let simulation = Simulation::new(network.clone()).ranks(4).kill(dead, at);
                let report = simulation.run(|world| async move {
                    let messages = Messages::new(&world).await.ok()?;
                    if world.rank() == 1 {
                        return None;
                    }
                    Some(messages.create_group(&[2, 3, 0], Tag(0)).await.map(|group| group.world().size()))
                });
                assert_eq!(report.end, End::Finished, "{at:?}: {:?}", report.end);
                // Those that had no communicator to begin with have left.
                let has_left = |(rank, outcome): (u32, &Option<Option<_>>)| rank != 1 && matches!(outcome, Some(None));
                if (0..).zip(&report.results).any(has_left) {
                    continue;
                }
                for outcome in report.results.into_iter().flatten().flatten() {
                    match outcome {
                        Ok(size) => made += usize::from(size == 3),
                        Err(error) => {
                            let fault = error.fault();
                            let rank = fault.rank().map(|rank| rank.0);
                            assert_eq!((fault.kind(), rank), (FaultKind::PeerDied, Some(dead)), "{at:?}: {error}");
                            failed += 1;
                        }
                    }
                }
            }
            assert!(made > 0 && failed > 0, "{dead}: {made} made, {failed} failed");
        }
    }
}

/// Each rank waits for one that waits for another: each until its own deadline.
#[test]
fn lists_with_different_lowest_ranks_wait_for_the_deadline() {
    let lists: [&[u32]; 3] = [&[0, 1], &[1, 2], &[0, 2]];
    for deadlines in [[10, 20, 30], [30, 20, 10], [20, 20, 20]] {
        let report = Simulation::new(Network::default()).ranks(3).run(|world| async move {
            let (messages, me) = (Messages::new(&world).await.unwrap(), world.rank() as usize);
            let deadline = Duration::from_millis(deadlines[me]);
            let begin = world.fabric().now();
            let error = messages.create_group(lists[me], Tag(0)).deadline(deadline).await.unwrap_err();
            let took = Duration::from_nanos(world.fabric().now() - begin);
            assert!(took >= deadline && took < deadline + Duration::from_millis(1), "rank {me}: {took:?}");
            world.barrier().await.unwrap();
            let group = messages.create_group(&[0, 1, 2], Tag(1)).await.unwrap();
            use_group(&group, &[0, 1, 2], 0).await.unwrap();
            error.to_string()
        });
        assert_eq!(report.end, End::Finished);
        for (error, awaited) in report.results.into_iter().zip([1, 2, 0]) {
            let late = format!("make a communicator: the deadline passed, waiting for rank {awaited}");
            assert_eq!(error.unwrap(), late);
        }
    }
}

/// A creation of ranks 0, 1 and 2 with these faults. Rank 0 does not hear for a while that all is
/// well at the others; rank 1 has a deadline meanwhile, or none.
fn hears_late(bugs: [Bug; 3], deadline: Option<Duration>) -> Vec<String> {
    let report = Simulation::new(Network::default()).ranks(3).run_direct(|fabric| async move {
        let me = fabric.rank();
        let world = World::new(Planted::new(fabric, bugs[me.index()]));
        let messages = Messages::new(&world).await.unwrap();
        let word = world.fabric().word(At { rank: me, region: RegionId(0), offset: 0 }).unwrap();
        let pause = |millis: u64| world.fabric().pause(word, millis * 1_000_000);
        world.barrier().await.unwrap();
        let mut create = messages.create_group(&[0, 1, 2], Tag(0));
        if me == Rank(0) {
            pause(1).await; // what the others say first is here
            let told_all = poll_fn(|cx| Poll::Ready(Pin::new(&mut create).poll(cx))).await;
            assert!(told_all.is_pending());
            pause(10).await;
        } else if let Some(deadline) = deadline.filter(|_| me == Rank(1)) {
            create = create.deadline(deadline);
        }
        let outcome = create.await.map(drop).map_err(|error| error.to_string());
        world.barrier().await.unwrap();
        outcome.unwrap_err()
    });
    assert_eq!(report.end, End::Finished);
    report.results.into_iter().flatten().collect()
}

#[test]
fn a_member_that_gives_up_late_is_heard() {
    let gave_up = "make a communicator of some ranks: rank 1 gave up, or has seen a creation with this tag fail";
    let late = "make a communicator: the deadline passed, waiting for rank 0";
    assert_eq!(hears_late([Bug::None; 3], Some(Duration::from_millis(5))), [gave_up, late, gave_up]);
}

/// The connection of a member with the lowest rank breaks, and is made anew: the lowest rank has
/// nothing under way with the member, which alone waits.
#[test]
fn a_member_that_fails_by_itself_is_heard() {
    let breaks = |with| Bug::BreaksAt(5_000_000, Rank(with));
    let lost = [1, 0, 1].map(|rank| format!("make a communicator: rank {rank}: the connection to it is lost"));
    assert_eq!(hears_late([breaks(1), breaks(0), Bug::None], None), lost);
}

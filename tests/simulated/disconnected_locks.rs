//! Locks whose owners or waiters live and have lost their connection to the lock's rank, or to
//! another waiter: as after a death of that rank the others go on, and nothing of it takes effect
//! at the lock's rank once another holds the lock.

mod participants;

use std::time::Duration;

use onesided_fabric::World;
use onesided_fabric::remote_memory::{FaultKind, RemoteMemory};
use onesided_instances as _;
use onesided_sim::{Network, SimFabric, Simulation};
use onesided_windows::{Epoch, Error, LockAllDesign, LockDesign, Mode, PreviousOwner, Window};

use crate::common::pause_until;

const MS: u64 = 1_000_000;
/// When the windows exist, and when the connection of rank 2 is lost.
const BEGIN: u64 = 40 * MS;
const LOSS: u64 = 50 * MS;
/// By when a rank that is to get the lock has it, or an error.
const LATE: u64 = 20_000 * MS;
/// When no rank needs the memory of another any more.
const OVER: u64 = 60_000 * MS;
const LONG: Duration = Duration::from_secs(20);

type Scores = Window<u64, SimFabric>;

/// Six ranks, of which ranks 2 and `peer` lose their connection at `time`; the one that finds it is
/// told by the seed. They learn of it within `spread`.
fn simulation(seed: u64, peer: u32, time: u64, spread: u64) -> Simulation {
    let network = Network {
        jitter: Duration::from_micros(3),
        detection_jitter: Duration::from_nanos(spread),
        ..Network::default()
    };
    let (rank, peer) = if seed.is_multiple_of(2) { (2, peer) } else { (peer, 2) };
    Simulation::new(network).ranks(6).per_host(2).seed(seed).disconnect(rank, peer, Duration::from_nanos(time))
}

async fn window(world: &World<SimFabric>, design: LockDesign) -> Result<Scores, Error> {
    let window = Window::builder().lock(design).allocate(world, 4).await?;
    pause_until(world, BEGIN).await;
    Ok(window)
}

async fn lock(scores: &Scores, mode: Mode) -> Result<Epoch<'_, u64, SimFabric>, Error> {
    match mode {
        Mode::Exclusive => scores.lock_exclusive(0).deadline(LONG).await,
        Mode::Shared => scores.lock_shared(0).deadline(LONG).await,
    }
}

async fn recover(scores: &Scores, mode: Mode) -> Result<Epoch<'_, u64, SimFabric>, Error> {
    match mode {
        Mode::Exclusive => scores.lock_exclusive(0).recover().deadline(LONG).await,
        Mode::Shared => scores.lock_shared(0).recover().deadline(LONG).await,
    }
}

fn is_lost<T>(outcome: &Result<T, Error>) -> bool {
    let fault = outcome.as_ref().err().and_then(Error::fault);
    fault.is_some_and(|fault| matches!(fault.kind(), FaultKind::Unknown | FaultKind::ConnectionLost))
}

/// What is wrong with the outcome of an unlock. One that is not waited for fails in the next
/// operation.
fn ended(outcome: Result<(), Error>) -> Option<String> {
    (outcome.is_err() && !is_lost(&outcome)).then(|| format!("unlock: {outcome:?}"))
}

fn names_two(error: &Error) -> bool {
    error.is_poisoned() && error.fault().and_then(|fault| fault.rank()).is_some_and(|rank| rank.0 == 2)
}

/// What a rank saw: from whom it recovered the lock, and what was wrong.
#[derive(Debug, Default)]
struct Seen {
    recovered: Vec<PreviousOwner>,
    wrong: Vec<String>,
}

impl Seen {
    fn wrong_if(&mut self, wrong: bool, what: impl FnOnce() -> String) {
        if wrong {
            self.wrong.push(what());
        }
    }
}

/// Takes the lock in turns, writes under it and finds what it wrote.
async fn write_in_turns(world: &World<SimFabric>, scores: &Scores, rounds: u64) -> Result<Seen, Error> {
    let mut seen = Seen::default();
    for round in 1..=rounds {
        let mine = u64::from(world.rank()) * 1000 + round;
        let epoch = recover(scores, Mode::Exclusive).await?;
        seen.recovered.extend(epoch.previous_owner());
        epoch.put(0, &[mine])?;
        epoch.flush().await?;
        pause_until(world, world.fabric().now() + 5 * MS).await;
        let mut found = [0];
        epoch.get(0, &mut found).await?;
        seen.wrong_if(found != [mine], || format!("rank {} wrote {mine}, found {found:?}", world.rank()));
        epoch.unlock().await?;
    }
    Ok(seen)
}

/// Runs a story for every design and collects what went wrong: the lock is recovered from the ranks
/// in `failed` alone. Returns how often a rank recovered it.
fn every_design(
    failed: &[u32],
    seeds: u64,
    story: impl Fn(LockDesign, u64) -> Vec<(u32, Result<Seen, String>)>,
) -> usize {
    let (mut wrong, mut recovered) = (Vec::new(), 0);
    for design in LockDesign::ALL {
        for seed in 0..seeds {
            for (rank, seen) in story(*design, seed) {
                match seen {
                    Ok(seen) => {
                        recovered += seen.recovered.len();
                        let from = |rank: &u32| [PreviousOwner::Owner(*rank), PreviousOwner::Participant(*rank)];
                        let known: Vec<_> = failed.iter().flat_map(from).collect();
                        if !seen.recovered.iter().all(|from| known.contains(from)) {
                            wrong.push(format!("{design} seed {seed} rank {rank}: recovered {:?}", seen.recovered));
                        }
                        wrong.extend(seen.wrong.iter().map(|what| format!("{design} seed {seed} rank {rank}: {what}")));
                    }
                    Err(what) => wrong.push(format!("{design} seed {seed} rank {rank}: {what}")),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} stories, such as\n{}", wrong.len(), wrong.join("\n"));
    recovered
}

/// Runs a program; the seen of each rank that has some.
fn run<R>(simulation: Simulation, program: impl FnMut(World<SimFabric>) -> R) -> Vec<(u32, Result<Seen, String>)>
where
    R: Future<Output = Result<Seen, Error>>,
{
    let report = simulation.run(program);
    let end = report.end.to_string();
    let results = report.results.into_iter().map(|result| match result {
        Some(result) => result.map_err(|error| error.to_string()),
        None => Err(end.clone()),
    });
    (0..).zip(results).collect()
}

/// Rank 2 goes on writing until an operation fails. Its unlock fails too, and it goes on elsewhere.
/// A rank that does not recover is told that rank 2 failed.
#[test]
fn an_exclusive_owner_that_is_cut_off_is_alone_no_more() {
    let recovered = every_design(&[2], 6, |design, seed| {
        let spread = [0, 50 * MS, 2_000 * MS][seed as usize % 3];
        run(simulation(seed, 0, LOSS, spread), move |world| async move {
            let scores = window(&world, design).await?;
            let mut seen = Seen::default();
            match world.rank() {
                2 => {
                    let epoch = lock(&scores, Mode::Exclusive).await?;
                    while world.fabric().now() < LATE {
                        epoch.put(0, &[2])?;
                        if is_lost(&epoch.flush().await) {
                            break;
                        }
                        pause_until(&world, world.fabric().now() + MS).await;
                    }
                    seen.wrong_if(world.fabric().now() >= LATE, || "it can write for ever".into());
                    seen.wrong.extend(ended(epoch.unlock().await));
                    let again = lock(&scores, Mode::Exclusive).await;
                    seen.wrong_if(!is_lost(&again), || format!("again: {again:?}"));
                    drop(again);
                    scores.lock_shared(5).deadline(LONG).await?.unlock().await?;
                }
                0 => {} // only its memory is needed
                1 => {
                    pause_until(&world, LOSS - MS).await;
                    let told = lock(&scores, Mode::Exclusive).await.map(drop);
                    seen.wrong_if(!told.as_ref().is_err_and(names_two), || format!("told {told:?}"));
                    pause_until(&world, LATE).await;
                    seen.recovered = write_in_turns(&world, &scores, 3).await?.recovered;
                }
                rank => {
                    pause_until(&world, LOSS + 10_000 * MS + u64::from(rank) * 100_000).await;
                    seen = write_in_turns(&world, &scores, 3).await?;
                }
            }
            pause_until(&world, OVER).await;
            Ok(seen)
        })
    });
    assert!(recovered >= LockDesign::ALL.len() * 6);
}

/// A writer waits for the reader that is cut off, and gets the lock once that is cut, as after any
/// other reader.
#[test]
fn a_reader_that_is_cut_off_keeps_no_writer_waiting() {
    let recovered = every_design(&[2], 4, |design, seed| {
        run(simulation(seed, 0, LOSS, seed * 20 * MS), move |world| async move {
            let scores = window(&world, design).await?;
            let mut seen = Seen::default();
            match world.rank() {
                2 => {
                    let epoch = lock(&scores, Mode::Shared).await?;
                    pause_until(&world, LOSS + 200 * MS).await;
                    seen.wrong.extend(ended(epoch.unlock().await));
                    let again = lock(&scores, Mode::Exclusive).await;
                    seen.wrong_if(!is_lost(&again), || format!("again: {again:?}"));
                }
                rank @ (1 | 4) => {
                    pause_until(&world, LOSS - u64::from(rank) * MS).await;
                    seen = write_in_turns(&world, &scores, 3).await?;
                }
                _ => {}
            }
            pause_until(&world, OVER).await;
            Ok(seen)
        })
    });
    assert_eq!(recovered, 0);
}

/// The rank of the lock itself asks for it, after it lost the connection to the rank that holds it:
/// it cannot ask that rank. After a reader it gets the lock; after an exclusive owner it is told
/// first.
#[test]
fn a_home_that_is_cut_off_from_an_owner_gets_its_own_lock() {
    for mode in [Mode::Exclusive, Mode::Shared] {
        let recovered = every_design(&[2], 6, |design, seed| home(design, seed, mode));
        assert_eq!(recovered, if mode == Mode::Exclusive { 6 * LockDesign::ALL.len() } else { 0 });
    }
}

fn home(design: LockDesign, seed: u64, mode: Mode) -> Vec<(u32, Result<Seen, String>)> {
    // A writer sets a flag at every rank. Rank 4 can.
    let needs_all = design == LockDesign::DistributedCounters;
    run(simulation(seed, 0, LOSS, seed * 20 * MS), move |world| async move {
        let scores = window(&world, design).await?;
        let mut seen = Seen::default();
        match world.rank() {
            2 => {
                let epoch = lock(&scores, mode).await?;
                pause_until(&world, LOSS + 200 * MS).await;
                // It releases what is left of the lock, or never does. A reader that is counted in
                // its own memory keeps the others waiting until then.
                match seed % 3 {
                    0 if !needs_all => std::mem::forget(epoch),
                    _ => seen.wrong.extend(ended(epoch.unlock().await)),
                }
            }
            0 => {
                pause_until(&world, [LOSS - MS, LOSS + MS, LOSS + 3_000 * MS][seed as usize % 3]).await;
                let outcome = lock(&scores, Mode::Exclusive).await;
                let as_expected = match (mode, &outcome) {
                    (Mode::Shared, _) if needs_all => is_lost(&outcome),
                    (Mode::Shared, outcome) => outcome.as_ref().is_ok_and(|epoch| epoch.previous_owner().is_none()),
                    // A queue may not reach the waiter that it follows.
                    (Mode::Exclusive, Err(error)) => names_two(error) || design == LockDesign::Mcs && is_lost(&outcome),
                    (Mode::Exclusive, Ok(_)) => false,
                };
                seen.wrong_if(!as_expected, || format!("{mode:?}: {outcome:?}"));
                drop(outcome);
                if needs_all {
                    if mode == Mode::Exclusive {
                        let epoch = recover(&scores, mode).await?; // the owner had set all flags
                        seen.recovered.extend(epoch.previous_owner());
                        seen.wrong.extend(ended(epoch.unlock().await));
                    }
                    let again = recover(&scores, Mode::Exclusive).await;
                    seen.wrong_if(!is_lost(&again), || format!("{mode:?} again: {again:?}"));
                    drop(again);
                } else {
                    let own = write_in_turns(&world, &scores, 3).await?;
                    seen.recovered = own.recovered;
                    seen.wrong.extend(own.wrong);
                }
            }
            4 => {
                pause_until(&world, LOSS + 30_000 * MS).await;
                seen = write_in_turns(&world, &scores, 3).await?;
            }
            _ => {}
        }
        pause_until(&world, OVER).await;
        Ok(seen)
    })
}

/// Rank 2 holds the lock of rank 3 exclusively, in a window whose `lock_all` is one operation, when
/// its connection to that rank is lost. Its release fails there and leaves the word that `lock_all`
/// counts in, at rank 0: no rank waits for it any more. What it wrote may be missing at rank 3, so
/// `lock_all` fails until rank 5 has recovered the lock from it.
#[test]
fn an_owner_that_is_cut_off_leaves_the_lock_all_word() {
    let designs = [LockDesign::TestAndSet, LockDesign::Mcs, LockDesign::Ticket, LockDesign::FetchAddQueue];
    for (design, seed) in designs.into_iter().flat_map(|design| (0..6).map(move |seed| (design, seed))) {
        let seen = run(simulation(seed, 3, LOSS, seed * 20 * MS), move |world| async move {
            let builder = Window::builder().lock(design).lock_all(LockAllDesign::Global);
            let scores: Scores = builder.allocate(&world, 4).await?;
            pause_until(&world, BEGIN).await;
            let mut seen = Seen::default();
            match world.rank() {
                2 => {
                    let epoch = scores.lock_exclusive(3).deadline(LONG).await?;
                    pause_until(&world, LOSS + 200 * MS).await;
                    seen.wrong.extend(ended(epoch.unlock().await));
                }
                rank @ (1 | 4) => {
                    let late = !seed.is_multiple_of(2);
                    pause_until(&world, if late { LOSS + 300 * MS } else { LOSS - MS }).await;
                    let mut told = 0;
                    for round in 0..3 {
                        let all = loop {
                            match scores.lock_all().await {
                                Ok(all) => break all,
                                Err(error) => seen.wrong_if(!names_two(&error), || format!("told {error}")),
                            }
                            told += 1;
                            pause_until(&world, world.fabric().now() + 100 * MS).await;
                        };
                        seen.wrong_if(late && told == 0, || "it was not told".into());
                        all.at(0).await?.fetch_add(0, 1).await?;
                        all.unlock_all().await?;
                        pause_until(&world, world.fabric().now() + u64::from(rank + round) * MS).await;
                    }
                }
                5 => {
                    pause_until(&world, LOSS + 5_000 * MS).await;
                    let told = scores.lock_exclusive(3).deadline(LONG).await.map(drop);
                    seen.wrong_if(!told.as_ref().is_err_and(names_two), || format!("told {told:?}"));
                    let epoch = scores.lock_exclusive(3).recover().deadline(LONG).await?;
                    seen.recovered.extend(epoch.previous_owner());
                    epoch.unlock().await?;
                    for _ in 0..3 {
                        scores.lock_exclusive(3).deadline(LONG).await?.unlock().await?;
                        scores.lock_all().await?.unlock_all().await?;
                    }
                }
                _ => {}
            }
            pause_until(&world, OVER).await;
            Ok(seen)
        });
        for (rank, seen) in seen {
            let seen = seen.unwrap_or_else(|what| panic!("{design} seed {seed} rank {rank}: {what}"));
            assert!(seen.wrong.is_empty(), "{design} seed {seed} rank {rank}: {:?}", seen.wrong);
            let from_two = |from: &_| matches!(from, PreviousOwner::Owner(2) | PreviousOwner::Participant(2));
            assert_eq!(seen.recovered.len(), usize::from(rank == 5), "{design} seed {seed} rank {rank}");
            assert!(seen.recovered.iter().all(from_two), "{design} seed {seed} rank {rank}: {:?}", seen.recovered);
        }
    }
}

/// Rank 2 waits when its connection is lost, to the lock's rank or to its predecessor, rank 4. In
/// the first case it ends in bounded time; in both the others go on. Rank 3 waits behind it.
fn waiter(design: LockDesign, seed: u64, peer: u32, mode: Mode) -> Vec<(u32, Result<Seen, String>)> {
    // The owner hands over before and after the loss is known.
    let release = LOSS + [0, 500_000, 100 * MS][seed as usize % 3];
    run(simulation(seed, peer, LOSS, 5 * MS), move |world| async move {
        let scores = window(&world, design).await?;
        let (me, mut seen) = (world.rank(), Seen::default());
        match me {
            4 => {
                let epoch = lock(&scores, Mode::Exclusive).await?;
                pause_until(&world, release).await;
                seen.wrong.extend(ended(epoch.unlock().await));
            }
            2 => {
                pause_until(&world, BEGIN + 2 * MS).await;
                match lock(&scores, mode).await {
                    Ok(epoch) => drop(epoch.unlock().await),
                    waited => {
                        seen.wrong_if(!is_lost(&waited) && peer == 0, || format!("it waits: {waited:?}"));
                        let late = waited.as_ref().is_err_and(Error::is_timed_out);
                        seen.wrong_if(late, || format!("it waits for ever: {waited:?}"));
                    }
                }
            }
            3 | 5 => {
                pause_until(&world, BEGIN + u64::from(me) * MS).await;
                seen = write_in_turns(&world, &scores, 3).await?;
            }
            _ => {}
        }
        pause_until(&world, OVER).await;
        Ok(seen)
    })
}

#[test]
fn a_waiter_that_is_cut_off_ends_and_the_others_go_on() {
    for mode in [Mode::Exclusive, Mode::Shared] {
        every_design(&[2], 6, |design, seed| waiter(design, seed, 0, mode));
    }
}

#[test]
fn a_waiter_that_is_cut_off_from_its_predecessor_delays_no_other() {
    for mode in [Mode::Exclusive, Mode::Shared] {
        every_design(&[2, 4], 6, |design, seed| waiter(design, seed, 4, mode));
    }
}

/// The connection is lost at any time around the release: the lock is released, or recovered.
#[test]
fn a_release_in_flight_leaves_the_lock_free_or_recoverable() {
    for mode in [Mode::Exclusive, Mode::Shared] {
        every_design(&[2], 30, |design, seed| {
            run(simulation(seed, 0, LOSS + seed * 200, MS), move |world| async move {
                let scores = window(&world, design).await?;
                let (me, mut seen) = (world.rank(), Seen::default());
                match me {
                    2 => {
                        let epoch = lock(&scores, mode).await?;
                        pause_until(&world, LOSS).await;
                        seen.wrong.extend(ended(epoch.unlock().await));
                    }
                    1 | 4 => {
                        pause_until(&world, LOSS - MS).await;
                        seen = write_in_turns(&world, &scores, 3).await?;
                    }
                    _ => {}
                }
                pause_until(&world, OVER).await;
                Ok(seen)
            })
        });
    }
}

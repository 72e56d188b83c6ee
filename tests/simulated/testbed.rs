//! Hosts, threads and cards of a testbed, in virtual time.

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use onesided_fabric::remote_memory::{Notify, Patience, Rank, RemoteMemory};
use onesided_fabric::{Endpoint, Fabric, ServerThread};
use onesided_sim::{Card, End, Host, Network, Report, SimFabric, Simulation};

/// In nanoseconds, from the network below: a write takes effect after 1000.
const LATENCY: u64 = 1000;
const SLICE: u64 = 10_000;

fn nanos(nanos: u64) -> Duration {
    Duration::from_nanos(nanos)
}

/// One-sided operations cost the wire alone, and hosts have so many cores.
fn network(cores: u32) -> Network {
    Network {
        latency: nanos(LATENCY),
        send: nanos(0),
        receive: nanos(1),
        polling: Duration::from_secs(1),
        wake: nanos(300),
        host: Host { cores, slice: nanos(SLICE), switch: nanos(0), interrupt: nanos(700), ..Host::default() },
        ..Network::default()
    }
}

/// Rank 0 writes to rank 1, which answers; returns the times of the answers at rank 0.
async fn ask(fabric: SimFabric, times: u64) -> Vec<u64> {
    let mut heard = Vec::new();
    let (own, peer) = (fabric.rank(), Rank(fabric.rank().0 ^ 1));
    let (mine, theirs) = (fabric.world_segment(own).unwrap(), fabric.world_segment(peer).unwrap());
    let (mine, theirs) = (fabric.word_in(&mine, 0).unwrap(), fabric.word_in(&theirs, 0).unwrap());
    for turn in 1..=times {
        if own.0 == 0 {
            fabric.write(theirs, turn, Notify::Yes).await.unwrap();
        }
        fabric.wait_until(mine, move |value| value >= turn, Patience::until(u64::MAX)).await.unwrap();
        if own.0 == 1 {
            fabric.write(theirs, turn, Notify::Yes).await.unwrap();
        }
        heard.push(fabric.now());
    }
    heard
}

fn asked(network: Network, computing: u32, times: u64) -> Report<Vec<u64>> {
    let report = Simulation::new(network).per_host(1).computing(1, computing).run_direct(|fabric| ask(fabric, times));
    assert_eq!(report.end, End::Finished);
    report
}

fn took(report: &Report<Vec<u64>>) -> u64 {
    *report.results[0].as_ref().unwrap().last().unwrap()
}

#[test]
fn threads_that_poll_share_their_cores_with_those_that_compute() {
    let alone = took(&asked(network(1), 0, 200));
    assert_eq!(took(&asked(network(2), 1, 200)), alone, "a core for each");
    for computing in [1, 3] {
        let shared = took(&asked(network(1), computing, 200));
        let ratio = shared as f64 / alone as f64;
        assert!((ratio - f64::from(1 + computing)).abs() < 0.3, "{computing} computing: {ratio}");
    }
    assert_eq!(asked(network(1), 3, 50).trace, asked(network(1), 3, 50).trace);
}

#[test]
fn a_thread_that_wakes_preempts_those_that_compute() {
    let sleepy = Network { polling: nanos(0), ..network(1) };
    let (polling, asleep) = (took(&asked(network(1), 0, 10)), took(&asked(sleepy.clone(), 0, 10)));
    // Interrupt and wake-up, 700 + 300: the acknowledgement wakes rank 0 while the answer arrives.
    assert_eq!(asleep, polling + 10 * 1000);
    assert_eq!(took(&asked(sleepy, 5, 10)), asleep);
}

#[test]
fn processors_take_time_to_post_and_to_poll() {
    let base = network(2);
    let with = |host: Host| took(&asked(Network { host, ..base.clone() }, 0, 10));
    let plain = with(base.host.clone());
    // A turn is two posts, two waits and two acknowledgements, one of which the other rank hides.
    let posting = with(Host { post: nanos(100), ..base.host.clone() });
    let polling = with(Host { poll: nanos(100), ..base.host.clone() });
    assert!((plain + 1900..=plain + 2100).contains(&posting), "{plain}, {posting}");
    assert!(polling >= plain + 1900, "{plain}, {polling}");
}

/// The time at which rank 1's operations on rank 0's memory are complete.
fn posted(network: Network, post: impl Fn(&SimFabric, u64)) -> u64 {
    let post = &post;
    let report = Simulation::new(network).per_host(1).run_direct(async move |fabric| {
        if fabric.rank() == Rank(1) {
            (0..8).for_each(|index| post(&fabric, index));
            fabric.flush(Rank(0)).await.unwrap();
        }
        fabric.now()
    });
    report.results[1].unwrap()
}

fn add(fabric: &SimFabric, word: u64) {
    let segment = fabric.world_segment(Rank(0)).unwrap();
    drop(fabric.fetch_add(fabric.word_in(&segment, 8 * word).unwrap(), 1));
}

#[test]
fn atomics_follow_one_another_on_a_word() {
    let card = Card { atomic: nanos(500), ..Card::default() };
    let network = Network { card, ..network(2) };
    let one_word = posted(network.clone(), |fabric, _| add(fabric, 0));
    let words = posted(network, add);
    assert!((2 * LATENCY + 8 * 500..2 * LATENCY + 8 * 500 + 50).contains(&one_word), "{one_word}");
    assert!((2 * LATENCY + 500..2 * LATENCY + 550).contains(&words), "{words}");
}

#[test]
fn a_connection_has_so_many_reads_in_flight() {
    let limited = |outstanding| Network { card: Card { outstanding, ..Card::default() }, ..network(2) };
    let rounds = |outstanding| posted(limited(outstanding), add) / (2 * LATENCY);
    assert_eq!([rounds(0), rounds(8), rounds(4), rounds(2), rounds(1)], [1, 1, 2, 4, 8]);
    // What is behind them waits with them, and keeps its order.
    let report = Simulation::new(limited(1)).per_host(1).run_direct(async |fabric| {
        let segment = fabric.world_segment(Rank(0)).unwrap();
        let word = fabric.word_in(&segment, 0).unwrap();
        if fabric.rank() == Rank(1) {
            drop((fabric.fetch_add(word, 1), fabric.fetch_add(word, 1), fabric.write(word, 7, Notify::No)));
            return fabric.read(word).await.unwrap();
        }
        fabric.sleep(100_000).await;
        0
    });
    assert_eq!(report.results[1], Some(7));
}

#[test]
fn a_dead_rank_leaves_its_core() {
    let simulation = Simulation::new(network(1)).ranks(2).kill(0, nanos(50_000));
    let report = simulation.run_direct(async |fabric| {
        let own = fabric.world_segment(fabric.rank()).unwrap();
        let word = fabric.word_in(&own, 0).unwrap();
        let mut turns = 0;
        while fabric.now() < 500_000 {
            fabric.pause(word, 1000).await; // polls, as rank 0 does until it dies
            turns += 1;
        }
        turns
    });
    assert_eq!(report.end, End::Finished);
    assert!(report.results[1].unwrap() > 400, "{:?}", report.results);
}

#[test]
fn a_put_is_copied_and_a_write_from_a_segment_is_not() {
    let host = Host { copy: 1_000_000_000, ..network(2).host };
    let network = Network { host, ..network(2) };
    let report = Simulation::new(network).per_host(1).run_direct(async |fabric| {
        let own = fabric.allocate(1 << 16).unwrap();
        let target = fabric.world_segment(Rank(0)).unwrap();
        if fabric.rank() == Rank(0) {
            return (0, 0);
        }
        let begin = fabric.now();
        fabric.put(&target, 0, &[1; 1000]).unwrap();
        let put = fabric.now() - begin;
        drop(fabric.rdma_write((&own, 0), (&target, 0), 1000));
        let written = fabric.now() - begin - put;
        fabric.flush(Rank(0)).await.unwrap();
        (put, written)
    });
    assert_eq!(report.results[1], Some((1000, 0)));
}

/// Other ranks write to rank 0 from the same time on, each to a word that a server thread of its own
/// takes and answers; how long after that time each of them has its last answer.
fn served(network: Network, (ranks, times): (u32, u64), thread: ServerThread) -> Vec<u64> {
    const BEGIN: u64 = 20_000;
    let simulation = Simulation::new(network).ranks(ranks + 1).per_host(1).until(Duration::from_secs(1));
    let report = simulation.run_direct(async |fabric| {
        let word = |rank: Rank, offset| fabric.word_in(&fabric.world_segment(rank).unwrap(), offset).unwrap();
        let request = |rank: u32| word(Rank(0), 8 * u64::from(rank));
        if fabric.rank() != Rank(0) {
            let mine = word(fabric.rank(), 0);
            fabric.sleep(BEGIN - fabric.now()).await;
            for turn in 1..=times {
                drop(fabric.write(request(fabric.rank().0), turn, Notify::Yes));
                fabric.wait_until(mine, move |value| value == turn, Patience::until(u64::MAX)).await.unwrap();
            }
            return fabric.now() - BEGIN;
        }
        for rank in 1..=ranks {
            let (server, request, answer) = (fabric.clone(), request(rank), word(Rank(rank), 0));
            let task = async move {
                for turn in 1..=times {
                    let asked = server.wait_until(request, move |value| value == turn, Patience::until(u64::MAX));
                    asked.await.unwrap();
                    drop(server.write(answer, turn, Notify::Yes));
                }
            };
            fabric.serve(Box::pin(task), Some(thread)).unwrap();
        }
        fabric.sleep(10 * BEGIN).await;
        0
    });
    assert_eq!(report.end, End::Finished);
    let mut all: Vec<u64> = report.results.into_iter().skip(1).flatten().collect();
    all.sort_unstable();
    all
}

#[test]
fn threads_behind_one_progress_engine_follow_one_another() {
    let host = Host { progress: nanos(1000), ..network(8).host };
    let with = |host: Host| Network { polling: nanos(0), host, ..network(8) };
    for thread in [ServerThread::Polls, ServerThread::Sleeps] {
        let apart = served(with(host.clone()), (3, 1), thread);
        let at = |number| apart[0] + number;
        assert!(apart[2] < at(10), "{thread:?}: {apart:?}"); // the card receives one after another
        let locked = Host { locked_progress: true, ..host.clone() };
        let steps = |all: Vec<u64>| all.iter().map(|time| (time - apart[0]) / 100 * 100).collect::<Vec<_>>();
        let free = steps(served(with(locked.clone()), (3, 1), thread));
        assert_eq!(free, [0, 1000, 2000], "{thread:?}");
        let few = Host { cores: 2, ..locked.clone() };
        let [few, many] = [few, locked.clone()].map(|host| served(with(host), (5, 9), thread));
        assert_eq!(few, many, "{thread:?}: those that wait leave their cores");
        let handed = Host { hand_over: nanos(400), ..locked.clone() };
        // A poller that does not have the mutex pays for it, too.
        let first = if thread == ServerThread::Polls { 400 } else { 0 };
        let handed_over = steps(served(with(handed.clone()), (3, 1), thread));
        assert_eq!(handed_over, [0, 1400, 2800].map(|time| time + first), "{thread:?}");
        let alone = served(with(handed), (1, 1), thread);
        assert_eq!(alone, served(with(host.clone()), (1, 1), thread), "{thread:?}: nobody else asks");
    }
}

#[test]
fn a_thread_wakes_another_one_of_its_rank() {
    let sleepy = Network { polling: nanos(0), ..network(2) };
    let report = Simulation::new(sleepy).ranks(1).run_direct(async |fabric| {
        let told = Arc::new(Mutex::new((None::<Waker>, 0)));
        let (teller, server) = (Arc::clone(&told), fabric.clone());
        let task = async move {
            server.sleep(20_000).await;
            let mut told = teller.lock().unwrap();
            told.1 = server.now();
            told.0.take().unwrap().wake();
        };
        fabric.serve(Box::pin(task), Some(ServerThread::Sleeps)).unwrap();
        let hear = poll_fn(|cx| {
            let mut told = told.lock().unwrap();
            told.0 = Some(cx.waker().clone());
            if told.1 == 0 { Poll::Pending } else { Poll::Ready(told.1) }
        });
        let told_at = hear.await;
        fabric.now() - told_at
    });
    assert_eq!((report.end, report.results), (End::Finished, vec![Some(300)]));
}

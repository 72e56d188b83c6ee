//! Many messages in the simulator, all accounted for: under loss, jitter, deaths, and lost
//! connections.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use onesided_fabric::remote_memory::{FaultKind, RemoteMemory};
use onesided_instances as _;
use onesided_sim::{Card, End, Network, SimFabric, Simulation};
use onesided_two_sided::{Error, Messages, Tag, Tags};

const RANKS: u32 = 16;
const DATA: Tag = Tag(0);
/// The number of messages that its sender sent to the receiver.
const COUNT: Tag = Tag(1);
/// Eager in 1, 2 and 40 packets of a lane, and rendezvous.
const LENGTHS: [usize; 5] = [0, 3, 5, 250, 1_000];

/// Both, at the same time.
async fn both<A, B>(one: impl Future<Output = A>, other: impl Future<Output = B>) -> (A, B) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    let (mut first, mut second) = (None, None);
    poll_fn(move |cx| {
        if first.is_none() {
            first = ready(one.as_mut().poll(cx));
        }
        if second.is_none() {
            second = ready(other.as_mut().poll(cx));
        }
        match (first.take(), second.take()) {
            (Some(first), Some(second)) => Poll::Ready((first, second)),
            (one, other) => {
                (first, second) = (one, other);
                Poll::Pending
            }
        }
    })
    .await
}

fn ready<T>(polled: Poll<T>) -> Option<T> {
    if let Poll::Ready(value) = polled { Some(value) } else { None }
}

/// A generator of splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 27)) % limit
    }
}

/// What the ranks sent and received, by sender and receiver.
#[derive(Default)]
struct Account {
    sent: Vec<u64>,
    /// Those whose handle said so.
    delivered: Vec<u64>,
    received: Vec<u64>,
}

fn at(from: u32, to: u32) -> usize {
    (from * RANKS + to) as usize
}

/// Sends to random ranks; ends with how many there were.
async fn send_all(messages: &Messages<SimFabric>, many: u64, seed: u64, account: &RefCell<Account>) {
    let (me, mut random) = (messages.world().rank(), Random(seed ^ u64::from(messages.world().rank())));
    let mut left = many;
    while left > 0 {
        let to = random.below(RANKS.into()) as u32;
        // Some short ones together.
        let count = left.min([1, 1, 1, 8][random.below(4) as usize]);
        let lengths = if count > 1 { &LENGTHS[..3] } else { &LENGTHS[..] };
        let list: Vec<Vec<u64>> = (0..count)
            .map(|_| {
                let len = lengths[random.below(lengths.len() as u64) as usize];
                let number = account.borrow().sent[at(me, to)];
                account.borrow_mut().sent[at(me, to)] += 1;
                [number].into_iter().chain((1..=len as u64).map(|word| word * number)).collect()
            })
            .collect();
        for send in messages.send_all(list.iter().map(|message| (&message[..], to, DATA))) {
            match send.await {
                Ok(()) => account.borrow_mut().delivered[at(me, to)] += 1,
                Err(error) => assert_ne!(error.kind(), FaultKind::TimedOut, "{error}"),
            }
        }
        left -= count;
    }
    for to in 0..RANKS {
        let sent = account.borrow().sent[at(me, to)];
        let _ = messages.send(&[sent], to, COUNT).await; // the receiver may be dead
    }
}

/// Receives until every other rank has ended or is lost.
async fn receive_all(messages: &Messages<SimFabric>, account: &RefCell<Account>) {
    let me = messages.world().rank();
    let mut expected = [None; RANKS as usize];
    let mut lost = [false; RANKS as usize];
    let received = |from: u32| account.borrow().received[at(from, me)];
    let is_over = |from: u32, expected: &[Option<u64>], lost: &[bool]| {
        lost[from as usize] || expected[from as usize] == Some(received(from))
    };
    for from in 0..RANKS {
        // What the others send meanwhile is received by the same receives, in turn.
        while !is_over(from, &expected, &lost) {
            match messages.recv::<u64>(from, Tags::Any).await {
                Ok((message, status)) if status.tag == COUNT => expected[from as usize] = Some(message[0]),
                Ok((message, _)) => {
                    let number = received(from);
                    assert_eq!(message[0], number, "from {from} to {me}: lost, doubled or overtaken");
                    assert!((1..).zip(&message[1..]).all(|(word, found): (u64, _)| *found == word * number));
                    account.borrow_mut().received[at(from, me)] += 1;
                }
                Err(Error::Read { status, fault }) => {
                    assert!(!messages.world().is_alive(status.source), "{status:?}: {fault:?}");
                }
                Err(error) => {
                    assert!(matches!(error.kind(), FaultKind::PeerDied | FaultKind::PeerLeft), "{error}");
                    lost[from as usize] = true;
                }
            }
        }
    }
}

fn run(many: u64, seed: u64, dead: u32, simulation: Simulation) {
    let cells = (RANKS * RANKS) as usize;
    let account =
        Rc::new(RefCell::new(Account { sent: vec![0; cells], delivered: vec![0; cells], received: vec![0; cells] }));
    let report = simulation.ranks(RANKS).seed(seed).run(|world| {
        let account = Rc::clone(&account);
        async move {
            let messages = Messages::new(&world).await.unwrap();
            both(send_all(&messages, many, seed, &account), receive_all(&messages, &account)).await;
            messages.acknowledge_failures();
            world.rank()
        }
    });
    assert_eq!(report.end, End::Finished, "seed {seed}");
    let alive: Vec<u32> = report.results.into_iter().flatten().collect();
    assert_eq!(alive.len() as u32, RANKS - dead, "seed {seed}: died in the middle of it");
    let account = account.borrow();
    for from in 0..RANKS {
        for to in 0..RANKS {
            let of = |counts: &[u64]| counts[at(from, to)];
            let [sent, delivered, received] = [&account.sent, &account.delivered, &account.received].map(|all| of(all));
            assert!(received <= sent, "seed {seed}: {received} of {sent} from {from} to {to}");
            if alive.contains(&from) && alive.contains(&to) {
                assert_eq!((delivered, received), (sent, sent), "seed {seed}: from {from} to {to}");
            }
        }
    }
}

/// `ONESIDED_LONG`: a million.
fn many() -> u64 {
    if std::env::var_os("ONESIDED_LONG").is_some() { 1_000_000 / u64::from(RANKS) } else { 300 }
}

#[test]
fn messages_arrive_once_and_in_order_under_loss() {
    let network = Network { loss: 0.01, jitter: Duration::from_micros(5), retries: 50, ..Network::default() };
    run(many(), 1, 0, Simulation::new(network.clone()));
    run(many(), 1, 0, Simulation::new(Network { datagrams: true, duplication: 0.01, ..network }));
}

#[test]
fn all_messages_are_accounted_for_when_ranks_die() {
    let network = || Network { loss: 0.01, jitter: Duration::from_micros(2), retries: 50, ..Network::default() };
    run(
        many(),
        2,
        2,
        Simulation::new(network()).kill(3, Duration::from_micros(300)).kill(7, Duration::from_micros(900)),
    );
    for seed in 3..8 {
        run(100, seed, 1, Simulation::new(network()).kill(5, Duration::from_micros(100 + 40 * seed)));
        // Those of odd seeds make connections and fast paths beside.
        let connects_after = (seed % 2 == 1).then_some(1);
        let datagrams = Network { datagrams: true, connects_after, fast_paths: 8, ..network() };
        run(600, seed, 1, Simulation::new(datagrams).kill(5, Duration::from_micros(100 + 40 * seed)));
    }
}

/// The time of messages of 8 B from every rank to every other one, ten times, in nanoseconds, and the most connections that
/// a rank made.
fn all_to_all(network: Network) -> (u64, u64) {
    const RANKS: u32 = 48;
    let report = Simulation::new(network).ranks(RANKS).run(|world| async move {
        let messages = Messages::new(&world).await.unwrap();
        let (me, mut start) = (world.rank(), 0);
        let others = || (1..RANKS).map(move |step| (me + step) % RANKS);
        for round in 0..18_u64 {
            if round == 8 {
                world.barrier().await.unwrap();
                start = world.fabric().now(); // connections are there
            }
            let sent = [round];
            for send in others().map(|to| messages.send(&sent, to, DATA)).collect::<Vec<_>>() {
                send.await.unwrap();
            }
            for from in others() {
                assert_eq!(messages.recv::<u64>(from, DATA).await.unwrap().0, [round]);
            }
        }
        (world.fabric().now() - start, messages.statistics().channels.made)
    });
    assert_eq!(report.end, End::Finished);
    let all = report.results.into_iter().flatten();
    all.fold((0, 0), |(time, made), (later, more)| (time.max(later), made.max(more)))
}

/// Where cards keep the contexts of fewer connections than a rank has peers, datagrams are faster than connections, and few
/// connections beside datagrams are the fastest (koop-2008, sections 4.2 and 6.2).
#[test]
fn many_connections_overflow_the_cards() {
    for contexts in [0, 32] {
        let card = Card { contexts, fetch: Duration::from_micros(1), ..Card::default() };
        let connections = Network { card, ..Network::default() };
        let datagrams = Network { datagrams: true, ..connections.clone() };
        let both = Network { connects_after: Some(5), connections: 16, ..datagrams.clone() };
        let [(rc, _), (ud, _), (aptus, made)] = [connections, datagrams, both].map(all_to_all);
        let expected =
            if contexts == 0 { rc < aptus && aptus < ud } else { aptus < ud && 1.2 * ud as f64 <= rc as f64 };
        assert!(
            expected && made == 16,
            "{contexts} contexts: {rc} ns by connections, {ud} by datagrams, {aptus} by both"
        );
    }
}

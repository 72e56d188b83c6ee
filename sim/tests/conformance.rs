//! The conformance suite on the simulated fabric, and on fabrics with planted faults.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use onesided_fabric::conformance::{Failure, Summary, run};
use onesided_fabric::remote_memory::{At, Fault, Liveness, Notify, Patience, Rank, RegionId, RemoteMemory};
use onesided_fabric::{Arrival, Capabilities, Error, Fabric, Segment, SegmentKey, Task, Transport, UserMemory, World};
use onesided_sim::{End, Network, Profile, Report, SimFabric, SimSegment, SimTransport, Simulation, Word};

type Verdict = Result<Summary, Failure>;

fn conform(network: Network, ranks: u32, seed: u64) -> Report<Verdict> {
    Simulation::new(network).ranks(ranks).seed(seed).run(|world| async move { run(&world).await })
}

fn assert_conforms(network: &Network, ranks: u32, seed: u64) {
    let report = conform(network.clone(), ranks, seed);
    assert_eq!(report.end, End::Finished, "{ranks} ranks, seed {seed}: {}", report.end);
    for verdict in report.results.into_iter().flatten() {
        let summary = verdict.unwrap_or_else(|failure| panic!("{ranks} ranks, seed {seed}: {failure}"));
        assert!(summary.passed.len() > 30);
    }
}

#[test]
fn conforms_with_any_number_of_ranks() {
    for ranks in 1..=8 {
        assert_conforms(&Network::default(), ranks, 0);
    }
}

#[test]
fn conforms_with_loss_and_jitter() {
    let network = Network { loss: 0.02, jitter: Duration::from_micros(20), ..Network::default() };
    for seed in 0..3 {
        for ranks in [2, 5] {
            assert_conforms(&network, ranks, seed);
        }
    }
}

#[test]
fn conforms_on_unusual_networks() {
    let zero = Duration::ZERO;
    let immediate = Network { latency: zero, send: zero, receive: zero, wake: zero, room: 8, ..Network::default() };
    let slow =
        Network { latency: Duration::from_micros(300), bandwidth: 1_000_000_000, polling: zero, ..Network::default() };
    for network in [immediate, slow] {
        assert_conforms(&network, 3, 0);
    }
}

/// Packets travel as datagrams, which are lost, doubled and overtaken.
#[test]
fn conforms_over_datagrams() {
    let jitter = Duration::from_micros(100);
    for (ranks, loss, duplication, jitter) in
        [(1, 0.0, 0.0, Duration::ZERO), (3, 0.01, 0.0, Duration::ZERO), (4, 0.0, 0.05, jitter), (2, 0.1, 0.05, jitter)]
    {
        let network = Network { datagrams: true, loss, duplication, jitter, ..Network::default() };
        assert_conforms(&network, ranks, 0);
    }
}

/// Threads take turns on the cores of their host, and ranks share its card.
#[test]
fn conforms_on_testbeds() {
    for name in ["infinihost", "shm"] {
        let short = Profile::shipped(name).unwrap().with("slice", 20_000.0).unwrap();
        for sleeps in [false, true] {
            let mut network = short.network().clone();
            if sleeps {
                network.polling = Duration::from_micros(3);
            }
            for (ranks, per_host) in [(1, 1), (5, 3)] {
                let simulation = Simulation::new(network.clone()).ranks(ranks).per_host(per_host).computing(0, 2);
                let report = simulation.run(|world| async move { run(&world).await });
                assert_eq!(report.end, End::Finished, "{name}, {ranks} ranks, {per_host} on a host: {}", report.end);
                for verdict in report.results.into_iter().flatten() {
                    let summary = verdict.unwrap_or_else(|failure| panic!("{name}, {ranks} ranks: {failure}"));
                    assert!(summary.passed.len() > 30);
                }
            }
        }
    }
}

/// The faults of the wrong fabrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    None,
    /// Fetch-add is a read and a write.
    TornFetchAdd,
    /// Compare-and-swap compares the lower half of the word only.
    HalfCompare,
    /// Signals are lost.
    Mute,
    /// Puts of odd lengths are one byte short.
    ShortOddPut,
    /// A flush does nothing.
    IdleFlush,
    /// Offset and length overflow in the range check of a get.
    OverflowingGet,
    /// Every hundredth packet is lost.
    LostPackets,
    /// Every hundredth packet comes twice.
    DoubledPackets,
    /// Every hundredth packet comes behind the next one.
    OvertakenPackets,
    /// The body of a packet begins one byte late.
    ShiftedBody,
    /// A dropped send has sent its packet.
    SentAndPending,
    /// Reclaimed user memory has its old content.
    StaleLoan,
    /// Peers still reach memory that was reclaimed.
    EndlessLoan,
    /// A part has the address of its whole.
    EveryPartBegins,
    /// Packets that go apart from writes claim to follow them.
    OvertakingFin,
}

#[derive(Clone, Debug)]
struct Planted {
    inner: SimFabric,
    bug: Bug,
}

#[test]
fn catches_wrong_fabrics() {
    let expected = [
        (Bug::TornFetchAdd, "words::sums"),
        (Bug::HalfCompare, "words::operations"),
        (Bug::Mute, "waits::woken"),
        (Bug::ShortOddPut, "bulk::sizes_and_offsets"),
        (Bug::IdleFlush, "bulk::flushed"),
        (Bug::OverflowingGet, "bulk::ranges"),
        (Bug::LostPackets, "transport::all_to_all"),
        (Bug::DoubledPackets, "transport::all_to_all"),
        (Bug::OvertakenPackets, "transport::flood"),
        (Bug::ShiftedBody, "transport::parts"),
        (Bug::SentAndPending, "transport::all_to_all"),
        (Bug::StaleLoan, "registered::memory"),
        (Bug::EndlessLoan, "registered::memory"),
        (Bug::EveryPartBegins, "registered::parts"),
        (Bug::OvertakingFin, "rendezvous::write"),
    ];
    // One card sends in order, so a missing flush shows only where the connections differ in
    // length.
    let network = Network { jitter: Duration::from_micros(100), ..Network::default() };
    for (bug, check) in expected {
        let network = Network { datagrams: bug == Bug::OvertakingFin, ..network.clone() };
        let report = Simulation::new(network)
            .ranks(4)
            .run_direct(|inner| async move { run(&World::new(Planted { inner, bug })).await });
        assert_eq!(report.end, End::Finished, "{bug:?}: {}", report.end);
        let verdicts = report.results.into_iter().flatten().collect::<Vec<_>>();
        let Err(failure) = verdicts[0].clone() else { panic!("{bug:?} was not caught") };
        assert_eq!(failure.check, check, "{bug:?}: {failure}");
        for verdict in verdicts {
            assert_eq!(verdict, Err(failure.clone()), "{bug:?}: every rank learns it");
        }
    }
}

/// A transport that finds no room at any time, however often it is asked, conforms.
#[test]
fn a_busy_transport_conforms() {
    for seed in 0..3 {
        let report = Simulation::new(Network::default())
            .ranks(3)
            .seed(seed)
            .run_direct(|inner| async move { run(&World::new(Planted { inner, bug: Bug::None })).await });
        assert_eq!(report.end, End::Finished, "seed {seed}: {}", report.end);
        for verdict in report.results.into_iter().flatten() {
            verdict.unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
        }
    }
}

/// Packets with a fault; a transport without one has no room at every third send.
#[derive(Debug)]
struct PlantedPackets {
    inner: SimTransport,
    fabric: SimFabric,
    bug: Bug,
    sent: u64,
    /// The packet that the next one overtakes.
    held: Option<(Rank, Vec<u8>)>,
}

impl Transport for PlantedPackets {
    fn packet_max(&self, to: Rank) -> usize {
        self.inner.packet_max(to)
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, to: Rank, head: &[u8], body: &[u8]) -> Poll<Result<(), Fault>> {
        self.sent += 1;
        let now_and_then = self.sent.is_multiple_of(100);
        match self.bug {
            Bug::LostPackets if now_and_then => return Poll::Ready(Ok(())),
            Bug::DoubledPackets if now_and_then => {
                let _ = self.inner.poll_send(cx, to, head, body);
            }
            Bug::OvertakenPackets if now_and_then => {
                self.held = Some((to, [head, body].concat()));
                return Poll::Ready(Ok(()));
            }
            Bug::SentAndPending if now_and_then => {
                let sent = self.inner.poll_send(cx, to, head, body);
                self.poll_soon(cx);
                return if sent.is_ready() { Poll::Pending } else { sent };
            }
            Bug::None if self.sent.is_multiple_of(3) => {
                self.poll_soon(cx);
                return Poll::Pending;
            }
            _ => {}
        }
        let sent = match self.bug {
            Bug::ShiftedBody if !body.is_empty() => self.inner.poll_send(cx, to, head, &[&[0], &body[1..]].concat()),
            _ => self.inner.poll_send(cx, to, head, body),
        };
        if sent.is_ready()
            && let Some((to, held)) = self.held.take()
        {
            let _ = self.inner.poll_send(cx, to, &held, &[]);
        }
        sent
    }

    fn follows_writes(&self) -> bool {
        self.inner.follows_writes() || self.bug == Bug::OvertakingFin
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>, patience: Patience) -> Poll<Result<Arrival, Fault>> {
        self.inner.poll_recv(cx, patience)
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        self.inner.read(offset, into);
    }
}

impl PlantedPackets {
    /// Has the rank polled again after a microsecond.
    fn poll_soon(&self, cx: &mut Context<'_>) {
        let word = self.fabric.word(At { rank: self.fabric.rank(), region: RegionId(0), offset: 0 }).unwrap();
        let _ = Pin::new(&mut self.fabric.pause(word, 1000)).poll(cx);
    }
}

type Boxed<'f, T> = Pin<Box<dyn Future<Output = Result<T, Fault>> + Send + 'f>>;

impl RemoteMemory for Planted {
    type Word<'f> = Word;
    type Op = Boxed<'static, u64>;
    type Wait<'f, P: Fn(u64) -> bool + Unpin + Send + 'f> = onesided_sim::Wait<'f, P>;
    type Pause<'f> = onesided_sim::Pause<'f>;

    fn rank(&self) -> Rank {
        self.inner.rank()
    }

    fn size(&self) -> u32 {
        self.inner.size()
    }

    fn word(&self, at: At) -> Result<Word, Fault> {
        self.inner.word(at)
    }

    fn read(&self, word: Word) -> Self::Op {
        Box::pin(self.inner.read(word))
    }

    fn write(&self, word: Word, value: u64, notify: Notify) -> Self::Op {
        // The barrier's own signals arrive: otherwise every case would only see a barrier that
        // fails.
        let mute = matches!(self.bug, Bug::Mute) && word.at().region.0 != 0;
        Box::pin(self.inner.write(word, value, if mute { Notify::No } else { notify }))
    }

    fn compare_swap(&self, word: Word, expected: u64, new: u64) -> Self::Op {
        if !matches!(self.bug, Bug::HalfCompare) {
            return Box::pin(self.inner.compare_swap(word, expected, new));
        }
        let (inner, read) = (self.inner.clone(), self.inner.read(word));
        Box::pin(async move {
            let found = read.await?;
            if found as u32 == expected as u32 {
                inner.write(word, new, Notify::No).await?;
            }
            Ok(found)
        })
    }

    fn fetch_add(&self, word: Word, add: u64) -> Self::Op {
        if !matches!(self.bug, Bug::TornFetchAdd) {
            return Box::pin(self.inner.fetch_add(word, add));
        }
        let (inner, read) = (self.inner.clone(), self.inner.read(word));
        Box::pin(async move {
            let found = read.await?;
            inner.write(word, found.wrapping_add(add), Notify::No).await?;
            Ok(found)
        })
    }

    fn load(&self, own: Word) -> Result<u64, Fault> {
        self.inner.load(own)
    }

    fn store(&self, own: Word, value: u64) -> Result<(), Fault> {
        self.inner.store(own, value)
    }

    fn wait_until<'f, P>(&'f self, own: Word, predicate: P, patience: Patience) -> Self::Wait<'f, P>
    where
        P: Fn(u64) -> bool + Unpin + Send + 'f,
    {
        self.inner.wait_until(own, predicate, patience)
    }

    fn pause<'f>(&'f self, word: Word, nanos: u64) -> Self::Pause<'f> {
        self.inner.pause(word, nanos)
    }

    fn now(&self) -> u64 {
        self.inner.now()
    }

    fn liveness(&self, rank: Rank) -> Liveness {
        self.inner.liveness(rank)
    }

    async fn has_cut(&self, home: Rank, rank: Rank) -> Result<bool, Fault> {
        self.inner.has_cut(home, rank).await
    }

    fn failures(&self) -> u32 {
        self.inner.failures()
    }

    fn failure(&self, index: u32) -> Option<Rank> {
        self.inner.failure(index)
    }

    fn lost_connection(&self, home: Rank, from: Rank) -> Option<Rank> {
        self.inner.lost_connection(home, from)
    }
}

impl Fabric for Planted {
    type Segment = SimSegment;
    type Transfer = onesided_sim::Transfer;
    type Get<'b> = Boxed<'b, ()>;
    type Flush<'f> = Boxed<'f, ()>;
    type Transport = PlantedPackets;

    fn transport(&self) -> Result<Self::Transport, Fault> {
        let inner = self.inner.transport()?;
        Ok(PlantedPackets { inner, fabric: self.inner.clone(), bug: self.bug, sent: 0, held: None })
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn allocate(&self, len: u64) -> Result<SimSegment, Error> {
        self.inner.allocate(len)
    }

    fn open(&self, key: &SegmentKey) -> Result<SimSegment, Error> {
        self.inner.open(key)
    }

    fn world_segment(&self, rank: Rank) -> Result<SimSegment, Error> {
        self.inner.world_segment(rank)
    }

    fn register(&self, memory: UserMemory) -> Result<SimSegment, Error> {
        self.inner.register(memory)
    }

    fn reclaim(&self, own: &SimSegment) -> Result<Option<UserMemory>, Fault> {
        match self.bug {
            Bug::StaleLoan => Ok(self.inner.reclaim(own)?.map(|memory| vec![0_u8; memory.len()].into())),
            Bug::EndlessLoan => {
                let mut copy = vec![0_u8; own.len() as usize];
                self.inner.read_own(own, 0, &mut copy)?;
                Ok(Some(copy.into()))
            }
            _ => self.inner.reclaim(own),
        }
    }

    fn part(&self, own: &SimSegment, offset: u64, len: u64) -> Result<SimSegment, Fault> {
        let offset = if matches!(self.bug, Bug::EveryPartBegins) && len == 400 { 0 } else { offset };
        self.inner.part(own, offset, len)
    }

    fn word_in<'s>(&'s self, segment: &'s SimSegment, offset: u64) -> Result<Word, Fault> {
        self.inner.word_in(segment, offset)
    }

    fn put(&self, to: &SimSegment, offset: u64, from: &[u8]) -> Result<(), Fault> {
        let short = usize::from(matches!(self.bug, Bug::ShortOddPut) && from.len() % 2 == 1);
        self.inner.put(to, offset, &from[..from.len() - short])
    }

    fn get<'b>(&self, from: &SimSegment, offset: u64, into: &'b mut [u8]) -> Boxed<'b, ()> {
        let fits = offset.wrapping_add(into.len() as u64) <= from.len();
        if matches!(self.bug, Bug::OverflowingGet) && fits && offset > from.len() {
            return Box::pin(async { Ok(()) });
        }
        Box::pin(self.inner.get(from, offset, into))
    }

    fn rdma_write(&self, from: (&SimSegment, u64), to: (&SimSegment, u64), len: u64) -> onesided_sim::Transfer {
        self.inner.rdma_write(from, to, len)
    }

    fn rdma_read(&self, from: (&SimSegment, u64), into: (&SimSegment, u64), len: u64) -> onesided_sim::Transfer {
        self.inner.rdma_read(from, into, len)
    }

    fn flush(&self, target: Rank) -> Boxed<'_, ()> {
        if matches!(self.bug, Bug::IdleFlush) && target.0 < self.size() {
            return Box::pin(async { Ok(()) });
        }
        Box::pin(self.inner.flush(target))
    }

    fn flush_local(&self, target: Rank) -> Boxed<'_, ()> {
        Box::pin(self.inner.flush_local(target))
    }

    fn read_own(&self, own: &SimSegment, offset: u64, into: &mut [u8]) -> Result<(), Fault> {
        self.inner.read_own(own, offset, into)
    }

    fn write_own(&self, own: &SimSegment, offset: u64, from: &[u8]) -> Result<(), Fault> {
        self.inner.write_own(own, offset, from)
    }

    fn spawn(&self, task: Task) {
        self.inner.spawn(task);
    }

    fn leave(&self) {
        self.inner.leave();
    }

    fn abort(&self, status: u8) -> ! {
        self.inner.abort(status)
    }
}

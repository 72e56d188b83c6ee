//! The simulated fabric with planted faults.
#![allow(dead_code, reason = "a test program plants some of them")]

use std::future::Future;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use onesided_fabric::remote_memory::{
    At, Fault, FaultKind, Link, Liveness, Notify, Patience, Rank, RegionId, RemoteMemory,
};
use onesided_fabric::{
    Absent, Arrival, Capabilities, Channel, ChannelTo, Endpoint, Error, Fabric, Landing, Launch, Missing, Packet,
    Renewed, Segment, SegmentKey, Transport, UserMemory, delegate,
};
use onesided_sim::{SimFabric, SimSegment, SimTransport, Word};

/// The faults of the wrong fabrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    None,
    /// No fault: there is no room at every third send.
    OftenBusy,
    /// No fault: there is room at every fourth send alone.
    MostlyBusy,
    /// No fault: there is no room at this send, counted from 1.
    BusyAt(u64),
    /// The packet of this send is lost, as if it had been posted though there was no room.
    IgnoresBusyAt(u64),
    /// No fault: the connection with this rank breaks at this time, and is made anew.
    BreaksAt(u64, Rank),
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
    /// Datagrams reach memory whose landing was dropped.
    EndlessLanding,
    /// Datagrams for a landing that is gone reach the next one.
    NextLanding,
    /// A part has the address of its whole.
    EveryPartBegins,
    /// Packets that go apart from writes claim to follow them.
    OvertakingFin,
}

#[derive(Clone, Debug)]
pub(crate) struct Planted {
    inner: SimFabric,
    bug: Bug,
    steps: Arc<Mutex<Vec<u64>>>,
    sends: Arc<AtomicU64>,
}

impl Planted {
    pub(crate) fn new(inner: SimFabric, bug: Bug) -> Self {
        Self { inner, bug, steps: Arc::default(), sends: Arc::default() }
    }

    /// When this rank posted a packet or a transfer, or took a packet in.
    pub(crate) fn steps(&self) -> Vec<u64> {
        self.steps.lock().unwrap().clone()
    }

    /// How often it has tried to post a packet.
    pub(crate) fn sends(&self) -> u64 {
        self.sends.load(Ordering::Relaxed)
    }

    /// A read, then perhaps a write.
    fn torn(&self, word: Word, next: impl Fn(u64) -> Option<u64> + Send + 'static) -> Boxed<'static, u64> {
        let (inner, read) = (self.inner.clone(), self.inner.read(word));
        Box::pin(async move {
            let found = read.await?;
            if let Some(next) = next(found) {
                inner.write(word, next, Notify::No).await?;
            }
            Ok(found)
        })
    }

    fn step(&self) {
        self.steps.lock().unwrap().push(self.inner.now());
    }
}

/// Packets with a fault.
#[derive(Debug)]
pub(crate) struct PlantedPackets {
    inner: SimTransport,
    /// Instead of the true ones.
    channel: Option<ChannelTo>,
    fabric: Planted,
    bug: Bug,
    sent: u64,
    /// The packet that the next one overtakes.
    held: Option<(Rank, Vec<u8>)>,
    renewed: Option<Rank>,
}

impl Transport for PlantedPackets {
    fn poll_send(&mut self, cx: &mut Context<'_>, to: Rank, packet: Packet<'_>) -> Poll<Result<(), Fault>> {
        self.sent += 1;
        self.fabric.sends.fetch_add(1, Ordering::Relaxed);
        self.fabric.step();
        let now_and_then = self.sent.is_multiple_of(100);
        match self.bug {
            Bug::LostPackets if now_and_then => return Poll::Ready(Ok(())),
            Bug::DoubledPackets if now_and_then => {
                let _ = self.inner.poll_send(cx, to, packet);
            }
            Bug::OvertakenPackets if now_and_then => {
                self.held = Some((to, [packet.head, packet.body].concat()));
                return Poll::Ready(Ok(()));
            }
            Bug::SentAndPending if now_and_then => {
                let sent = self.inner.poll_send(cx, to, packet);
                self.poll_soon(cx);
                return if sent.is_ready() { Poll::Pending } else { sent };
            }
            Bug::OftenBusy if self.sent.is_multiple_of(3) => {
                self.poll_soon(cx);
                return Poll::Pending;
            }
            Bug::MostlyBusy if !self.sent.is_multiple_of(4) => {
                self.poll_soon(cx);
                return Poll::Pending;
            }
            Bug::BusyAt(at) if self.sent == at => {
                self.poll_soon(cx);
                return Poll::Pending;
            }
            Bug::IgnoresBusyAt(at) if self.sent == at => return Poll::Ready(Ok(())),
            _ => {}
        }
        let sent = match self.bug {
            Bug::ShiftedBody if !packet.body.is_empty() => {
                let body = [&[0], &packet.body[1..]].concat();
                self.inner.poll_send(cx, to, Packet { body: &body, ..packet })
            }
            _ => self.inner.poll_send(cx, to, packet),
        };
        if sent.is_ready()
            && let Some((to, held)) = self.held.take()
        {
            let _ = self.inner.poll_send(cx, to, Packet::new(packet.channel, &held));
        }
        sent
    }

    fn channels(&self, to: Rank) -> &[ChannelTo] {
        self.channel.as_ref().map_or_else(|| self.inner.channels(to), std::slice::from_ref)
    }

    fn count(&mut self, to: Rank, bytes: usize) -> ChannelTo {
        let first = self.inner.count(to, bytes);
        self.channel.unwrap_or(first)
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>, patience: Patience) -> Poll<Result<Arrival, Fault>> {
        let received = self.inner.poll_recv(cx, patience);
        match (self.bug, &received) {
            (Bug::BreaksAt(at, with), Poll::Pending) => {
                if let Some(left) = at.checked_sub(self.fabric.now()).filter(|left| *left > 0) {
                    self.poll_after(cx, left);
                    return received;
                }
                self.bug = Bug::None;
                self.renewed = Some(with);
                return Poll::Ready(Err(Fault::of(FaultKind::ConnectionLost, with)));
            }
            (_, Poll::Ready(Ok(_))) => self.fabric.step(),
            _ => {}
        }
        received
    }

    fn renewed(&mut self, rank: Rank) -> Option<Renewed> {
        self.renewed
            .take_if(|renewed| *renewed == rank)
            .map(|_| Renewed { channel: Channel::Connection, is_missing: false })
    }

    fn set_list(&mut self, is_open: bool) {
        self.inner.set_list(is_open);
    }

    delegate! {
        inner:
        fn read(&self, offset: usize, into: &mut [u8]);
        fn absent(&self, to: Rank) -> Option<Absent>;
    }
}

impl PlantedPackets {
    /// Has the rank polled again after a microsecond.
    fn poll_soon(&self, cx: &mut Context<'_>) {
        self.poll_after(cx, 1000);
    }

    fn poll_after(&self, cx: &mut Context<'_>, nanos: u64) {
        let word = self.fabric.word(At { rank: self.fabric.rank(), region: RegionId(0), offset: 0 }).unwrap();
        let _ = Pin::new(&mut self.fabric.pause(word, nanos)).poll(cx);
    }
}

/// A landing that is never dropped.
#[derive(Debug)]
struct Endless(ManuallyDrop<Box<dyn Landing>>);

impl Landing for Endless {
    fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<Result<Missing, Fault>> {
        self.0.poll_over(cx)
    }
}

type Boxed<'f, T> = Pin<Box<dyn Future<Output = Result<T, Fault>> + Send + 'f>>;

impl RemoteMemory for Planted {
    type Word<'f> = Word;
    type Op = Boxed<'static, u64>;
    type Wait<'f, P: Fn(u64) -> bool + Unpin + Send + 'f> = onesided_sim::Wait<'f, P>;
    type Pause<'f> = onesided_sim::Pause<'f>;

    fn post_link(&self, link: Link<Word>) -> Self::Op {
        match (self.bug, link) {
            // The barrier's own signals arrive: otherwise every case would only see a barrier that fails.
            (Bug::Mute, Link::Write { word, value, .. }) if word.at().region.0 != 0 => {
                Box::pin(self.inner.write(word, value, Notify::No))
            }
            (Bug::HalfCompare, Link::CompareSwap { word, expected, new, .. }) => {
                self.torn(word, move |found| (found as u32 == expected as u32).then_some(new))
            }
            (Bug::TornFetchAdd, Link::FetchAdd { word, add, .. }) => {
                self.torn(word, move |found| Some(found.wrapping_add(add)))
            }
            _ => Box::pin(self.inner.post_link(link)),
        }
    }

    fn wait_until<'f, P>(&'f self, own: Word, predicate: P, patience: Patience) -> Self::Wait<'f, P>
    where
        P: Fn(u64) -> bool + Unpin + Send + 'f,
    {
        self.inner.wait_until(own, predicate, patience)
    }

    async fn has_cut(&self, home: Rank, rank: Rank) -> Result<bool, Fault> {
        self.inner.has_cut(home, rank).await
    }

    delegate! {
        inner:
        fn rank(&self) -> Rank;
        fn size(&self) -> u32;
        fn word(&self, at: At) -> Result<Word, Fault>;
        fn load(&self, own: Word) -> Result<u64, Fault>;
        fn store(&self, own: Word, value: u64) -> Result<(), Fault>;
        fn pause<'f>(&'f self, word: Word, nanos: u64) -> Self::Pause<'f>;
        fn now(&self) -> u64;
        fn liveness(&self, rank: Rank) -> Liveness;
        fn failure(&self, index: u32) -> Option<Rank>;
        fn ends(&self) -> u32;
        fn lost_connection(&self, home: Rank, from: Rank) -> Option<Rank>;
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
        let follows = ChannelTo { follows_writes: true, ..inner.channels(self.rank())[0] };
        let channel = (self.bug == Bug::OvertakingFin).then_some(follows);
        Ok(PlantedPackets { inner, channel, fabric: self.clone(), bug: self.bug, sent: 0, held: None, renewed: None })
    }

    fn reclaim(&self, own: &SimSegment) -> Result<Option<UserMemory>, Fault> {
        match self.bug {
            Bug::StaleLoan => Ok(self.inner.reclaim(own)?.map(|memory| vec![0_u8; memory.len()].into())),
            Bug::EndlessLoan => {
                let mut copy = vec![0_u8; own.len() as usize];
                self.inner.read_direct(own, 0, &mut copy)?;
                Ok(Some(copy.into()))
            }
            _ => self.inner.reclaim(own),
        }
    }

    fn land(&self, into: &SimSegment, len: u64) -> Result<(SegmentKey, Box<dyn Landing>), Fault> {
        let (key, landing) = self.inner.land(into, len)?;
        match self.bug {
            Bug::EndlessLanding => Ok((key, Box::new(Endless(ManuallyDrop::new(landing))))),
            _ => Ok((key, landing)),
        }
    }

    fn launch(&self, from: (&SimSegment, u64), to: &SegmentKey) -> Result<Launch, Fault> {
        let next = SegmentKey { rkey: to.rkey + 1, ..*to };
        self.inner.launch(from, if self.bug == Bug::NextLanding { &next } else { to })
    }

    fn part(&self, own: &SimSegment, offset: u64, len: u64) -> Result<SimSegment, Fault> {
        let offset = if matches!(self.bug, Bug::EveryPartBegins) && len == 400 { 0 } else { offset };
        self.inner.part(own, offset, len)
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
        self.step();
        Box::pin(self.inner.get(from, offset, into))
    }

    fn rdma_write(&self, from: (&SimSegment, u64), to: (&SimSegment, u64), len: u64) -> onesided_sim::Transfer {
        self.step();
        self.inner.rdma_write(from, to, len)
    }

    fn rdma_read(&self, from: (&SimSegment, u64), into: (&SimSegment, u64), len: u64) -> onesided_sim::Transfer {
        self.step();
        self.inner.rdma_read(from, into, len)
    }

    fn flush(&self, target: Rank) -> Boxed<'_, ()> {
        if matches!(self.bug, Bug::IdleFlush) && target.0 < self.size() {
            return Box::pin(async { Ok(()) });
        }
        Box::pin(self.inner.flush(target))
    }

    delegate! {
        inner:
        fn capabilities(&self) -> Capabilities;
        fn landing_max(&self, peer: Rank) -> u64;
        fn allocate(&self, len: u64) -> Result<SimSegment, Error>;
        fn open(&self, key: &SegmentKey) -> Result<SimSegment, Error>;
        fn world_segment(&self, rank: Rank) -> Result<SimSegment, Error>;
        fn register(&self, memory: UserMemory) -> Result<SimSegment, Error>;
        fn word_in<'s>(&'s self, segment: &'s SimSegment, offset: u64) -> Result<Word, Fault>;
        fn read_direct(&self, own: &SimSegment, offset: u64, into: &mut [u8]) -> Result<(), Fault>;
        fn write_direct(&self, own: &SimSegment, offset: u64, from: &[u8]) -> Result<(), Fault>;
        fn endpoint(&self) -> &dyn Endpoint;
    }
}

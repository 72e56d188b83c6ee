//! Datagrams of cards, over which packets travel if `ONESIDED_MESSAGES_CHANNEL` says so.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::{Context, Poll};

use ibverbs_sys::ibv_wc;
use onesided_job::lock;
use onesided_remote_memory::{Fault, FaultKind, Liveness, Patience, Rank, RemoteMemory};

use crate::datagrams::{
    Apart, Connecting, DatagramChannel, DatagramWaits, Datagrams, Identity, Machine, Posted, SharedMachine,
};
use crate::verbs::connection::Phase;
use crate::verbs::connector::Connector;
use crate::verbs::device::Device;
use crate::verbs::drive::DATAGRAM;
use crate::verbs::endpoint_address::EndpointAddress;
use crate::verbs::fast_path;
use crate::verbs::landing::Landings;
use crate::verbs::raw::{CompletionQueue, DatagramQueue, DatagramRoom, LIST, ProtectionDomain, Received, Written};
use crate::verbs::traffic::Traffic;
use crate::verbs::transport::ConnectionTransport;
use crate::verbs::{Inner, Verbs};
use crate::waiting::drive::now;
use crate::waiting::peer_status::PeerStatus;
use crate::{Arrival, Channel, ChannelCounts, ChannelMemory, ChannelTo, Error, Packet, Transport};

/// Over what the packets of cards travel: `rc`, reliable connections, `ud`, unreliable datagrams, or
/// `both`, first datagrams, and later the connection to a rank.
pub const MESSAGES_CHANNEL: &str = "ONESIDED_MESSAGES_CHANNEL";

/// With both: whether packets over connections are kept until they are acknowledged, `on` or `off`, the same at all
/// ranks. If a connection breaks, its packets become datagrams, and it is made anew.
pub const MESSAGES_RELIABLE: &str = "ONESIDED_MESSAGES_RELIABLE";

/// With both: for how many messages to a rank that would take its connection it is made.
pub const CONNECT_AFTER: &str = "ONESIDED_MESSAGES_CONNECT_AFTER";
/// The same without a setting.
pub(super) const COUNTED: u32 = 16;
/// How many such connections a rank has at most, without a setting (koop-2008, section 5.4).
pub(super) const CONNECTIONS: u32 = 16;

/// The queue for packets, whose completions have the mark [`DATAGRAM`].
pub(super) fn queue(
    device: &Device,
    domain: &Arc<ProtectionDomain>,
    completions: &Arc<CompletionQueue>,
) -> Result<DatagramQueue, Error> {
    DatagramQueue::new(domain, completions, device.port, room(device), DATAGRAM)
}

const RECEIVES: u32 = 1024;

/// The room of that queue.
pub(super) const fn room(device: &Device) -> DatagramRoom {
    DatagramRoom { receives: RECEIVES, sends: 256, longest: bytes(device.state.active_mtu) }
}

/// The bytes of a packet of this size in the library's encoding.
const fn bytes(mtu: u32) -> u32 {
    128 << mtu
}

/// What the protocol machine of a rank and its card share.
#[derive(Debug)]
struct Port {
    queue: DatagramQueue,
    connector: Arc<Connector>,
    domain: Arc<ProtectionDomain>,
    rank: Rank,
    /// The longest datagram that all ranks take, in bytes.
    longest: u32,
    /// Datagrams for the machine, in their receives.
    waiting: Mutex<VecDeque<Received>>,
    /// When the machine has something to do.
    due: AtomicU64,
    is_idle: AtomicBool,
}

/// The packets of a rank as datagrams.
#[derive(Debug)]
pub(super) struct CardDatagrams {
    port: Arc<Port>,
    pub(super) machine: SharedMachine<VerbsDatagrams>,
    pub(super) landings: Landings,
}

impl CardDatagrams {
    /// All ranks have a queue for packets.
    pub(super) fn new(
        (queue, landings): (DatagramQueue, Landings),
        connector: &Arc<Connector>,
        domain: &Arc<ProtectionDomain>,
        rank: Rank,
        (inner, keeps): (Weak<Inner>, bool),
    ) -> Self {
        let addresses = &connector.addresses;
        // A number is random in each process, and known from the start: none comes later.
        let number = |address: &EndpointAddress| address.incarnation as u32;
        let own = Identity { job: number(&addresses[0]), rank, incarnation: number(&addresses[rank.index()]) };
        let longest =
            addresses.iter().map(|address| bytes(address.port(Traffic::Messages).mtu)).fold(queue.longest(), u32::min);
        let port = Arc::new(Port {
            queue,
            connector: Arc::clone(connector),
            domain: Arc::clone(domain),
            rank,
            longest,
            waiting: Mutex::default(),
            due: AtomicU64::new(u64::MAX),
            is_idle: AtomicBool::new(true),
        });
        let channel = DatagramChannel::new(own, addresses.iter().map(number)).keeping(keeps);
        let bytes = vec![0; port.queue.longest() as usize].into();
        let datagrams = VerbsDatagrams { port: Arc::clone(&port), inner, written: Vec::new(), bytes };
        Self { port, machine: Machine::new(channel, datagrams), landings }
    }

    /// The longest datagram that all ranks take, in bytes.
    pub(super) fn longest(&self) -> u32 {
        self.port.longest
    }

    /// Takes in a completion with the mark [`DATAGRAM`].
    pub(super) fn complete(&self, completion: &ibv_wc) {
        if let Some(datagram) = self.port.queue.complete(completion) {
            lock(&self.port.waiting).push_back(datagram);
        }
    }

    /// When the machine is to be driven at the latest.
    pub(super) fn due(&self) -> u64 {
        self.port.due.load(Ordering::Relaxed)
    }

    /// Whether an acknowledgement is owed or awaited.
    pub(super) fn is_busy(&self) -> bool {
        !self.port.is_idle.load(Ordering::Relaxed)
    }

    /// Drives the machine if it has something to do and no other thread drives it.
    pub(super) fn drive(&self) {
        let due = self.due();
        if (lock(&self.port.waiting).is_empty() && (due == u64::MAX || now() < due)) || self.machine.is_poisoned() {
            return;
        }
        if let Ok(mut machine) = self.machine.try_lock() {
            machine.drive();
        }
    }
}

/// The datagrams of a rank, as its protocol machine has them.
#[derive(Debug)]
pub struct VerbsDatagrams {
    port: Arc<Port>,
    inner: Weak<Inner>,
    /// Datagrams that are to be posted together.
    written: Vec<(Rank, Written)>,
    /// Room for one that is taken in.
    bytes: Box<[u8]>,
}

impl VerbsDatagrams {
    fn post_written(&mut self) {
        let Port { queue, connector, domain, rank, .. } = &*self.port;
        let to = |to: Rank| Some((connector.handle(domain, *rank, to)?, connector.addresses[to.index()].packets?));
        if !self.written.is_empty() {
            queue.post_written(self.written.drain(..).map(|(rank, written)| {
                let (handle, number) = to(rank).unwrap_or_else(|| unreachable!("it was there before it was written"));
                (written, handle, number)
            }));
        }
    }
}

impl Datagrams for VerbsDatagrams {
    fn longest(&self) -> usize {
        self.port.longest as usize
    }

    fn now(&self) -> u64 {
        now()
    }

    fn post(&mut self, to: Rank, header: &[u8], packet: &[u8], is_solicited: bool) -> Posted {
        let is_here = |inner: Arc<Inner>| inner.job_segment.liveness(to) == Liveness::Alive && !inner.is_revoked(to);
        if !self.inner.upgrade().is_none_or(is_here) {
            return Posted::Gone;
        }
        let Port { queue, connector, domain, rank, .. } = &*self.port;
        if connector.addresses[to.index()].packets.is_none() {
            return Posted::Gone;
        }
        if connector.handle(domain, *rank, to).is_none() {
            return Posted::Sent;
        }
        let Some(written) = queue.write(header, packet, is_solicited) else { return Posted::Busy };
        self.written.push((to, written));
        if self.written.len() == LIST {
            self.post_written();
        }
        Posted::Sent
    }

    /// The connection to it shows whether it can be reached: the keepalive reads from it.
    fn reaches(&self, rank: Rank) -> bool {
        let Some(inner) = self.inner.upgrade() else { return false };
        inner.shows(rank, Traffic::Messages).is_ok_and(|peer| {
            peer.wait_on();
            !peer.connection.is_broken()
        })
    }

    fn waiting(&self) -> usize {
        lock(&self.port.waiting).len()
    }

    fn drain(&mut self, arrived: &mut dyn FnMut(&[u8])) {
        let Self { port, bytes, .. } = self;
        // Those that come meanwhile are looked at once what these ask for was sent.
        let count = lock(&port.waiting).len();
        for _ in 0..count {
            let Some(datagram) = lock(&port.waiting).pop_front() else { return };
            arrived(port.queue.take(datagram, bytes));
        }
    }

    fn rest(&mut self, due: u64, is_idle: bool) {
        self.post_written();
        self.port.due.store(due, Ordering::Relaxed);
        self.port.is_idle.store(is_idle, Ordering::Relaxed);
    }
}

/// The bytes before a packet over a connection.
const APART: usize = DatagramChannel::APART;

/// How the owner of the packets waits.
#[derive(Debug)]
pub struct VerbsWaits(pub(super) Verbs, pub(super) Option<ConnectionTransport>);

impl Drop for VerbsWaits {
    fn drop(&mut self) {
        if self.1.is_none() {
            self.0.0.has_transport.store(true, Ordering::Release); // otherwise with that
        }
    }
}

impl DatagramWaits for VerbsWaits {
    type Datagrams = VerbsDatagrams;

    fn needs(&self, rank: Rank) -> Result<(), Fault> {
        self.0.peer(rank)?;
        if self.0.0.is_cutting(rank) {
            return Ok(()); // the wait for room ends with the cut
        }
        self.0.ended(Patience::on(rank))
    }

    fn pend(&mut self, cx: &mut Context<'_>, room: Option<Rank>, patience: Patience, due: u64) -> Result<(), Fault> {
        let is_cutting = room.is_some_and(|rank| self.0.0.is_cutting(rank));
        if !is_cutting {
            self.0.wait_on(patience)?;
        }
        if room.is_some() {
            self.0.0.turn();
        }
        self.0.0.endpoint.register_waker(cx, patience.deadline.min(due));
        Ok(())
    }

    fn progress(&self) {
        self.0.0.drain_all();
    }

    fn connections(&self) -> Option<(ChannelTo, u32)> {
        let channel = self.1.as_ref()?.channels(self.0.rank())[0];
        Some((ChannelTo { packet_max: channel.packet_max - APART, ..channel }, self.0.0.limits.connect_after))
    }

    fn connection(&self, to: Rank) -> Connecting {
        match self.0.0.peers.get(self.0.to(to).number()).and_then(OnceLock::get) {
            None => Connecting::Unasked,
            Some(peer) if peer.connection.is_broken() && self.0.0.may_renew(peer.id) => Connecting::Unasked,
            Some(peer) => match peer.connection.phase() {
                Phase::Ready => Connecting::Open,
                Phase::Refused => Connecting::Refused,
                _ if peer.connection.is_broken() => Connecting::Refused,
                Phase::Asked => Connecting::Asked,
                Phase::Absent | Phase::Giving => Connecting::Unasked,
            },
        }
    }

    fn connection_counts(&self) -> ChannelCounts {
        let mut counts = self.0.0.connection_counts();
        let Some(card) = &self.0.0.datagrams else { return counts };
        let ChannelMemory { count, bytes } = card.landings.memory();
        counts.memory[Channel::Datagrams as usize] =
            ChannelMemory { count: count + 1, bytes: bytes + card.port.queue.memory() };
        card.landings.counts(counts)
    }

    fn connect(&self, to: Rank) {
        if let Ok(peer) = self.0.peer(to) {
            peer.connection.forget_refusal();
            self.0.0.ask_to_connect(peer);
        }
    }

    fn fast_path(&self) -> Option<usize> {
        let datagrams = self.0.0.datagrams.as_ref()?;
        self.1.as_ref().map(|_| fast_path::room(datagrams.port.longest))
    }

    #[inline]
    fn slots(&self, to: Rank) -> u32 {
        let peer = self.0.0.peers.get(self.0.to(to).number()).and_then(OnceLock::get);
        peer.map_or(0, |peer| peer.slots.load(Ordering::Relaxed))
    }

    fn send_apart(&mut self, cx: &mut Context<'_>, to: Rank, packet: Packet<'_>) -> Poll<Result<(), Fault>> {
        if packet.channel == Channel::FastPath {
            let is_placed = self.1.as_ref().map_or(Ok(false), |connections| connections.try_place(to, packet))?;
            return if is_placed { Poll::Ready(Ok(())) } else { Poll::Pending };
        }
        self.1.as_mut().ok_or(Fault::of(FaultKind::Unsupported, to))?.poll_send(cx, to, packet)
    }

    fn next_apart(&mut self) -> Option<Apart> {
        let short = self.fast_path()?;
        let connection = self.1.as_mut()?;
        let Arrival { from, channel, len } = connection.next_drained()?;
        if channel == Channel::Connection
            && len <= short
            && let Ok(peer) = self.0.peer(from)
        {
            self.0.0.count_short(peer);
        }
        let mut before = [0; APART];
        connection.read(0, &mut before);
        Some((Arrival { from, channel, len: len.saturating_sub(APART) }, before))
    }

    #[inline]
    fn read_apart(&self, offset: usize, into: &mut [u8]) {
        if let Some(connection) = &self.1 {
            connection.read(APART + offset, into);
        }
    }

    fn next_broken(&mut self) -> Option<Rank> {
        let is_to_renew = self.0.0.has_to_renew.load(Ordering::Relaxed);
        let rank = self.1.as_mut().filter(|_| is_to_renew)?.renew()?.rank()?;
        self.connect(rank); // the peer, which may not have noticed, learns it
        Some(rank)
    }
}

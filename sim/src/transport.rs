//! The packets of a simulated rank.

use std::sync::Arc;
use std::task::{Context, Poll};

use onesided_fabric::{Arrival, Channel, ChannelCounts, ChannelTo, DatagramTransport, Either, Packet, Transport};
use onesided_remote_memory::{Fault, FaultKind, Patience, Rank, RemoteMemory};

use crate::datagrams;
use crate::endpoint::SimFabric;
use crate::futures::Waiting;
use crate::operation::SentBy;
use crate::rank::What;

/// The longest packet in bytes.
const PACKET_MAX: usize = 4096;

/// A connection to any rank.
pub(crate) const CONNECTION: ChannelTo =
    ChannelTo { channel: Channel::Connection, packet_max: PACKET_MAX, follows_writes: true };

/// The packets of a rank: over its connections, or over [datagrams](crate::Network::datagrams), beside
/// which there may be [connections](crate::Network::connects_after).
/// Dropping it gives it back.
pub type SimTransport = Either<ConnectionTransport, DatagramTransport<SimWaits>>;

pub(crate) fn take(fabric: &SimFabric) -> Result<SimTransport, Fault> {
    let mut state = fabric.state();
    if std::mem::replace(&mut state.ranks[fabric.rank().index()].more().rare().has_transport, true) {
        return Err(Fault::of(FaultKind::Refused, fabric.rank()));
    }
    let over_datagrams = state.wire.datagrams;
    drop(state);
    let waits = SimWaits::new(fabric);
    Ok(match over_datagrams {
        true => Either::Second(datagrams::take(waits)?),
        false => Either::First(ConnectionTransport { waits, current: None }),
    })
}

/// How the owner of a rank's packets waits. Dropping it gives them back.
#[derive(Debug)]
pub struct SimWaits {
    pub(crate) fabric: Arc<SimFabric>,
    /// By thread: each that waits for packets sees them.
    receiving: Vec<(u32, Waiting<Arc<SimFabric>>)>,
    /// The waits for room of sends that found none, by receiver.
    sending: Vec<(Rank, Waiting<Arc<SimFabric>>)>,
    /// The last packet that came over a connection beside datagrams, with the bytes of the machine before it.
    pub(crate) apart: Box<[u8]>,
}

impl SimWaits {
    fn new(fabric: &SimFabric) -> Self {
        Self { fabric: Arc::new(fabric.clone()), receiving: Vec::new(), sending: Vec::new(), apart: Box::default() }
    }

    /// Sends a packet over a connection. `false`: there is no room.
    pub(crate) fn post(&self, to: Rank, packet: Packet<'_>) -> Result<bool, Fault> {
        let by = match packet.solicited {
            _ if packet.channel == Channel::FastPath => SentBy::Slot,
            true => SentBy::Solicited,
            false => SentBy::Plain,
        };
        let mut state = self.fabric.state();
        let sent = state.send(self.fabric.rank(), to, (packet.head, packet.body), by);
        self.fabric.shared.advance_clock(&state);
        sent
    }

    /// The wait for a packet of the thread that is polled.
    fn receiving(&mut self) -> &mut Waiting<Arc<SimFabric>> {
        let thread = self.fabric.state().thread_of(self.fabric.rank().0);
        let known = self.receiving.iter().position(|(of, _)| *of == thread);
        let at = known.unwrap_or_else(|| {
            self.receiving.reserve_exact(1); // most ranks have one thread
            self.receiving.push((thread, Waiting::new(Arc::clone(&self.fabric), What::Packet)));
            self.receiving.len() - 1
        });
        &mut self.receiving[at].1
    }

    /// Waits for room to send to a rank, otherwise for a packet.
    pub(crate) fn register<T>(&mut self, room: Option<Rank>, patience: Patience) -> Poll<Result<T, Fault>> {
        let Some(to) = room else { return self.receiving().register(patience) };
        let known = self.sending.iter().position(|(waits_for, _)| *waits_for == to);
        let at = known.unwrap_or_else(|| {
            self.sending.push((to, Waiting::new(Arc::clone(&self.fabric), What::Room(to))));
            self.sending.len() - 1
        });
        self.sending[at].1.register(patience)
    }

    /// The wait for room to send to a rank, or else for a packet, is over.
    pub(crate) fn end(&mut self, room: Option<Rank>) {
        match room {
            Some(to) => self.sending.retain(|(waits_for, _)| *waits_for != to),
            None => self.receiving().withdraw(),
        }
    }
}

impl Drop for SimWaits {
    fn drop(&mut self) {
        self.fabric.state().ranks[self.fabric.rank().index()].more().rare().has_transport = false;
    }
}

/// The packets of a rank over its connections.
#[derive(Debug)]
pub struct ConnectionTransport {
    waits: SimWaits,
    current: Option<(Rank, Channel, Box<[u8]>)>,
}

impl Transport for ConnectionTransport {
    fn channels(&self, _to: Rank) -> &[ChannelTo] {
        &[CONNECTION]
    }

    fn channel_counts(&self) -> ChannelCounts {
        let fabric = &self.waits.fabric;
        fabric.state().wire.with_memory(ChannelCounts::default(), [fabric.size() - 1, 0, 0])
    }

    fn poll_send(&mut self, _: &mut Context<'_>, to: Rank, packet: Packet<'_>) -> Poll<Result<(), Fault>> {
        packet.check(PACKET_MAX)?;
        if to.0 >= self.waits.fabric.size() {
            return Poll::Ready(Err(Fault::of(FaultKind::NoSuchRank, to)));
        }
        if self.waits.post(to, packet)? {
            self.waits.end(Some(to));
            return Poll::Ready(Ok(()));
        }
        self.waits.register(Some(to), Patience::on(to))
    }

    fn poll_recv(&mut self, _: &mut Context<'_>, patience: Patience) -> Poll<Result<Arrival, Fault>> {
        let fabric = &self.waits.fabric;
        self.current = fabric.state().take_packet(fabric.rank());
        match &self.current {
            Some((from, channel, bytes)) => {
                self.waits.end(None);
                Poll::Ready(Ok(Arrival { from: *from, channel: *channel, len: bytes.len() }))
            }
            None => self.waits.register(None, patience),
        }
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        self.current.iter().for_each(|(.., bytes)| read(bytes, offset, into));
    }
}

/// Copies bytes of a packet from an offset on.
pub(crate) fn read(packet: &[u8], offset: usize, into: &mut [u8]) {
    let bytes = packet.get(offset..).unwrap_or_default();
    into.iter_mut().zip(bytes).for_each(|(into, byte)| *into = *byte);
}

//! The packets of a simulated rank.

use std::sync::Arc;
use std::task::{Context, Poll};

use onesided_fabric::{Arrival, DatagramTransport, Either, Transport};
use onesided_remote_memory::{Fault, FaultKind, Patience, Rank, RemoteMemory};

use crate::datagrams::{self, SimWaits};
use crate::endpoint::SimFabric;
use crate::futures::Waiting;
use crate::report::WaitsFor;

/// The longest packet in bytes.
const PACKET_MAX: usize = 4096;

/// The packets of a rank: over its connections, or over [datagrams](crate::Network::datagrams).
/// Dropping it gives it back.
pub type SimTransport = Either<ConnectionTransport, DatagramTransport<SimWaits>>;

pub(crate) fn take(fabric: &SimFabric) -> Result<SimTransport, Fault> {
    let mut state = fabric.state();
    if std::mem::replace(&mut state.ranks[fabric.rank().index()].more().rare().has_transport, true) {
        return Err(Fault::of(FaultKind::Refused, fabric.rank()));
    }
    let over_datagrams = state.wire.datagrams;
    drop(state);
    if over_datagrams {
        return datagrams::take(fabric).map(Either::Second);
    }
    let fabric = Arc::new(fabric.clone());
    let receiving = Waiting::new(Arc::clone(&fabric), WaitsFor::Packet);
    Ok(Either::First(ConnectionTransport { fabric, current: None, receiving, sending: None }))
}

/// The packets of a rank over its connections.
#[derive(Debug)]
pub struct ConnectionTransport {
    fabric: Arc<SimFabric>,
    current: Option<(Rank, Box<[u8]>)>,
    receiving: Waiting<Arc<SimFabric>>,
    /// The wait for room of the send that found none last.
    sending: Option<(Rank, Waiting<Arc<SimFabric>>)>,
}

impl Drop for ConnectionTransport {
    fn drop(&mut self) {
        self.fabric.state().ranks[self.fabric.rank().index()].more().rare().has_transport = false;
    }
}

impl Transport for ConnectionTransport {
    fn packet_max(&self, _to: Rank) -> usize {
        PACKET_MAX
    }

    fn poll_send(&mut self, _: &mut Context<'_>, to: Rank, head: &[u8], body: &[u8]) -> Poll<Result<(), Fault>> {
        let (fabric, len) = (&self.fabric, head.len() + body.len());
        if len > PACKET_MAX {
            return Poll::Ready(Err(Fault::new(FaultKind::TooLong).with_detail(len as u32)));
        }
        if to.0 >= fabric.size() {
            return Poll::Ready(Err(Fault::of(FaultKind::NoSuchRank, to)));
        }
        let mut state = fabric.state();
        let sent = state.send(fabric.rank(), to, head, body);
        fabric.shared.advance_clock(&state);
        drop(state);
        if sent? {
            self.sending = None;
            return Poll::Ready(Ok(()));
        }
        if self.sending.as_ref().is_none_or(|(waits_for, _)| *waits_for != to) {
            self.sending = Some((to, Waiting::new(Arc::clone(fabric), WaitsFor::Room(to))));
        }
        match &mut self.sending {
            Some((_, waiting)) => waiting.register(Patience::on(to)),
            None => Poll::Pending,
        }
    }

    fn poll_recv(&mut self, _: &mut Context<'_>, patience: Patience) -> Poll<Result<Arrival, Fault>> {
        self.current = self.fabric.state().take_packet(self.fabric.rank());
        match &self.current {
            Some((from, bytes)) => {
                self.receiving.withdraw();
                Poll::Ready(Ok(Arrival { from: *from, len: bytes.len() }))
            }
            None => self.receiving.register(patience),
        }
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        let bytes = self.current.as_ref().and_then(|(_, bytes)| bytes.get(offset..)).unwrap_or_default();
        into.iter_mut().zip(bytes).for_each(|(into, byte)| *into = *byte);
    }
}

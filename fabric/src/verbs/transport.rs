//! The packets of cards: sends into the receiver's shared receive queue.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use onesided_remote_memory::{Fault, FaultKind, Patience, Rank, RemoteMemory};

use crate::peer_status::PeerStatus;
use crate::receive_queue::Packet;
use crate::verbs::queue::WorkRequest;
use crate::verbs::raw::{SharedReceiveQueue, Verb};
use crate::verbs::{Verbs, VerbsWaits};
use crate::{Arrival, DatagramTransport, Drive, Either, Transport};

/// The packets of a rank on cards: over its connections, or over datagrams. Dropping it gives it
/// back.
pub type VerbsTransport = Either<ConnectionTransport, DatagramTransport<VerbsWaits>>;

/// The packets of a rank over its connections.
#[derive(Debug)]
pub struct ConnectionTransport {
    fabric: Verbs,
    current: Option<Packet>,
}

impl Drop for ConnectionTransport {
    fn drop(&mut self) {
        self.fabric.0.has_transport.store(true, Ordering::Release);
    }
}

impl Verbs {
    pub(super) fn take_transport(&self) -> Result<VerbsTransport, Fault> {
        if !self.0.has_transport.swap(false, Ordering::Acquire) {
            return Err(Fault::of(FaultKind::Refused, self.rank()));
        }
        let fabric = Self(Arc::clone(&self.0));
        Ok(match &self.0.datagrams {
            Some(datagrams) => {
                Either::Second(DatagramTransport::new(Arc::clone(&datagrams.machine), VerbsWaits(fabric)))
            }
            None => Either::First(ConnectionTransport { fabric, current: None }),
        })
    }

    /// Sends if there is room now.
    fn try_send(&self, to: Rank, head: &[u8], body: &[u8]) -> Result<bool, Fault> {
        let inner = &*self.0;
        // Packets that arrived may be from other ranks.
        if !inner.has_room(to) && (inner.progress() == 0 || !inner.has_room(to)) {
            return Ok(false);
        }
        let len = head.len() + body.len();
        let taken = inner.take_slot(len)?;
        taken.buffer.write(0, head);
        taken.buffer.write(head.len(), body);
        let posted = inner.try_post(to, WorkRequest::new(Verb::Send, &taken, len));
        if posted {
            inner.forget(to, taken.slot);
        } else {
            inner.buffers.free(taken.slot); // another thread took the room
        }
        Ok(posted)
    }
}

impl ConnectionTransport {
    fn look(&self) -> Option<Packet> {
        let (packet, was_full) = self.fabric.0.receive_queue.pop()?;
        if was_full {
            self.fabric.progress(); // reposts the receives that were held back
        }
        Some(packet)
    }

    fn look_again(&self) -> Option<Packet> {
        self.fabric.progress();
        self.look()
    }
}

impl Transport for ConnectionTransport {
    fn packet_max(&self, _to: Rank) -> usize {
        SharedReceiveQueue::SLOT as usize
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, to: Rank, head: &[u8], body: &[u8]) -> Poll<Result<(), Fault>> {
        let fabric = &self.fabric;
        fabric.0.peer(to)?;
        let len = head.len() + body.len();
        if len > self.packet_max(to) {
            return Poll::Ready(Err(Fault::new(FaultKind::TooLong).with_detail(len as u32)));
        }
        if fabric.0.is_cutting(to) {
            fabric.0.endpoint.register_waker(cx, u64::MAX); // the end of the cut wakes it
            return Poll::Pending;
        }
        fabric.ended(Patience::on(to))?;
        if fabric.try_send(to, head, body)? {
            return Poll::Ready(Ok(()));
        }
        fabric.0.turn();
        fabric.0.endpoint.register_waker(cx, u64::MAX);
        Poll::Pending
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>, patience: Patience) -> Poll<Result<Arrival, Fault>> {
        let mut found = self.look().or_else(|| self.look_again());
        if found.is_none()
            && let Err(fault) = self.fabric.wait_on(patience)
        {
            found = self.look_again(); // a packet before the end counts
            if found.is_none() {
                return Poll::Ready(Err(fault));
            }
        }
        self.current = found;
        match &self.current {
            Some(packet) => Poll::Ready(Ok(Arrival { from: packet.from, len: packet.bytes().len() })),
            None => {
                self.fabric.0.endpoint.register_waker(cx, patience.deadline);
                Poll::Pending
            }
        }
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        let bytes = self.current.as_ref().and_then(|packet| packet.bytes().get(offset..)).unwrap_or_default();
        let len = into.len().min(bytes.len());
        into[..len].copy_from_slice(&bytes[..len]);
    }
}

//! The packets of cards: sends into the receiver's receive queue for packets.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use onesided_job::fork;
use onesided_remote_memory::{Fault, FaultKind, Liveness, Patience, Rank, RemoteMemory};

use crate::verbs::arrivals::{LONGEST, Packet as Received};
use crate::verbs::fast_path;
use crate::verbs::peer::{Peer, REFUSED};
use crate::verbs::queue::{LIST, WorkRequest};
use crate::verbs::raw::{INLINE, Verb};
use crate::verbs::traffic::Traffic;
use crate::verbs::{Verbs, VerbsWaits};
use crate::waiting::drive::is_blocking;
use crate::waiting::peer_status::PeerStatus;
use crate::{
    Arrival, Channel, ChannelCounts, ChannelTo, DatagramTransport, Either, NOBODY, Packet, Renewed, Transport,
};

/// One of so many looks that [wait for nothing](Transport::try_recv), and find nothing, does what a wait does.
const WAITS: u32 = 16;

/// A packet that a post may copy, in bytes.
const SHORT: usize = INLINE as usize;

/// The packets of a rank on cards: over its connections, or over datagrams. Dropping it gives it
/// back.
pub type VerbsTransport = Either<ConnectionTransport, DatagramTransport<VerbsWaits>>;

/// The packets of a rank over its connections.
#[derive(Debug)]
pub struct ConnectionTransport {
    fabric: Verbs,
    /// The packet that was received last.
    current: Option<Received>,
    /// Receives to be posted again.
    unposted: Vec<u32>,
    /// How many looks that are no waits have found nothing.
    looks: u32,
    /// What was reported last.
    renewed: Option<(Rank, Renewed)>,
    list: List,
}

/// Packets to one peer that are to be posted together.
#[derive(Debug, Default)]
struct List {
    is_open: bool,
    to: Option<Rank>,
    packets: Vec<WorkRequest>,
}

impl Drop for ConnectionTransport {
    fn drop(&mut self) {
        self.give_back();
        if let Some(arrivals) = self.fabric.0.arrivals.get() {
            arrivals.post(&mut self.unposted);
        }
        self.fabric.0.has_transport.store(true, Ordering::Release);
    }
}

impl Verbs {
    pub(super) fn take_transport(&self) -> Result<VerbsTransport, Fault> {
        let has_connections = self.0.datagrams.is_none() || self.0.limits.beside_datagrams;
        if has_connections {
            self.0.arrivals().map_err(|error| error.fault())?;
        }
        let _ = self.0.buffers.ignored(); // before packets take all
        if !self.0.has_transport.swap(false, Ordering::Acquire) {
            return Err(Fault::of(FaultKind::Refused, self.rank()));
        }
        let fabric = Self(Arc::clone(&self.0), Traffic::Messages);
        let connections = has_connections.then(|| {
            // Packets have buffers, however little may be registered later.
            if let Some(taken) = self.0.buffers.take(LONGEST as usize) {
                self.0.buffers.free(taken.slot);
            }
            let (fabric, unposted, list) = (fabric.clone(), Vec::new(), List::default());
            ConnectionTransport { fabric, current: None, unposted, looks: 0, renewed: None, list }
        });
        Ok(match (&self.0.datagrams, connections) {
            (None, Some(connections)) => Either::First(connections),
            (Some(datagrams), connections) => {
                let waits = VerbsWaits(fabric, connections);
                Either::Second(DatagramTransport::new(Arc::clone(&datagrams.machine), waits))
            }
            (None, None) => unreachable!("packets take one of the two"),
        })
    }
}

impl ConnectionTransport {
    /// Sends if there is room now.
    fn try_send(
        (fabric, list): (&Verbs, &mut List),
        peer: &Peer,
        Packet { head, body, solicited, .. }: Packet<'_>,
    ) -> Result<bool, Fault> {
        let inner = &*fabric.0;
        let (len, verb) = (head.len() + body.len(), Verb::Send { solicited });
        if !list.is_open && len <= SHORT.min(peer.queue.inline.load(Ordering::Relaxed) as usize) {
            let mut bytes = [0; SHORT];
            bytes[..head.len()].copy_from_slice(head);
            bytes[head.len()..len].copy_from_slice(body);
            let post = || inner.try_post_copy(peer, verb, &bytes[..len]);
            return Ok(post() || (inner.progress() > 0 && post()));
        }
        if !peer.has_room(1) {
            list.post(fabric);
            if !inner.has_room(peer.id) && (inner.progress() == 0 || !inner.has_room(peer.id)) {
                return Ok(false);
            }
        }
        let taken = match inner.buffers.take(len) {
            Some(taken) => taken,
            None => {
                list.post(fabric); // until it is posted, its slots stay
                inner.take_slot(len)?
            }
        };
        taken.buffer.write(0, head);
        taken.buffer.write(head.len(), body);
        let packet = WorkRequest::new(verb, &taken, len);
        let is_sent = match list.is_open {
            true => list.push(fabric, peer, packet),
            false => inner.try_post(peer, packet),
        };
        if !is_sent {
            inner.buffers.free(taken.slot); // another thread took the room
        } else if !list.is_open {
            inner.forget(peer.id, taken.slot);
        }
        Ok(is_sent)
    }

    /// Writes a packet into the ring of its receiver, if there is room now.
    pub(super) fn try_place(&self, to: Rank, Packet { head, body, .. }: Packet<'_>) -> Result<bool, Fault> {
        fork::check()?;
        let (inner, peer) = (&*self.fabric.0, self.fabric.peer(to)?);
        let written = fast_path::written(head.len() + body.len());
        if written <= SHORT.min(peer.queue.inline.load(Ordering::Relaxed) as usize) {
            let mut bytes = [0; SHORT];
            fast_path::fill([head, body], |at, from| bytes[at..][..from.len()].copy_from_slice(from));
            return Ok(inner.try_place(peer, Err(&bytes[..written])));
        }
        let Some(taken) = inner.buffers.take(written) else { return Ok(false) };
        fast_path::fill([head, body], |at, from| taken.buffer.write(at, from));
        let is_placed = inner.try_place(peer, Ok((taken.slot, taken.buffer.local(written as u32))));
        match is_placed {
            true => inner.forget(peer.id, taken.slot),
            false => inner.buffers.free(taken.slot),
        }
        Ok(is_placed)
    }

    /// Of a rank that has ended, or whose connection is broken.
    #[cold]
    fn poll_ended(&self, cx: &Context<'_>, peer: &Peer) -> Poll<Result<(), Fault>> {
        let (fabric, to) = (&self.fabric, peer.id.rank);
        // While a rank is being cut, or its death may still show, the end of that wakes this.
        if fabric.0.is_cutting(to) {
            fabric.0.endpoint.register_waker(cx, u64::MAX);
            return Poll::Pending;
        }
        fabric.ended(Patience::on(to))?;
        fabric.0.turn();
        match fabric.0.detection_until(peer.id) {
            // When all that came over it is received.
            None if fabric.0.may_renew(peer.id) => {
                fabric.0.endpoint.register_waker(cx, u64::MAX);
                Poll::Pending
            }
            None => Poll::Ready(Err(fabric.0.fault(peer.id, REFUSED))),
            Some(until) => {
                fabric.0.endpoint.register_waker(cx, until);
                Poll::Pending
            }
        }
    }

    fn give_back(&mut self) {
        if let Some(slot) = self.current.take().and_then(|packet| packet.slot())
            && self.fabric.0.arrivals.get().is_none_or(|arrivals| arrivals.receives.post(slot).is_err())
        {
            self.unposted.push(slot);
        }
    }

    /// Makes a broken connection anew, if what came over it is received, and says why it broke.
    #[cold]
    pub(super) fn renew(&mut self) -> Option<Fault> {
        self.fabric.0.has_to_renew.store(false, Ordering::Relaxed);
        let (fault, renewed) = self.fabric.0.renew_one()?;
        self.renewed = fault.rank().map(|rank| (rank, renewed));
        Some(fault)
    }

    /// The next packet, if there is one.
    fn next_packet(&mut self) -> Option<Arrival> {
        let found = self.next_drained();
        if found.is_some() || !self.fabric.0.has_one_queue {
            return found;
        }
        self.fabric.0.drain_all(); // another thread may have taken it from the queue, and not yet put it there
        self.next_drained()
    }

    /// The same of what was drained, if all have one queue.
    #[inline]
    pub(super) fn next_drained(&mut self) -> Option<Arrival> {
        self.give_back();
        self.current = self.fabric.0.arrivals.get()?.next(&mut self.unposted);
        self.current.as_ref().map(|packet| Arrival { from: packet.from, channel: packet.channel, len: packet.len })
    }
}

impl List {
    /// `false`: there is no space for the packet.
    fn push(&mut self, fabric: &Verbs, to: &Peer, packet: WorkRequest) -> bool {
        if self.packets.len() == LIST || self.to != Some(to.id.rank) {
            self.post(fabric);
        }
        let is_listed = to.list();
        if is_listed {
            self.to = Some(to.id.rank);
            self.packets.push(packet);
        }
        is_listed
    }

    fn post(&mut self, fabric: &Verbs) {
        if let Some(Ok(peer)) = self.to.take().map(|to| fabric.peer(to)) {
            fabric.0.post_packets(peer, &self.packets);
        }
        self.packets.clear();
    }
}

impl Transport for ConnectionTransport {
    /// A send is behind the writes on its queue pair, which places them in order and ends with one that
    /// fails; those over other rails are not there.
    #[inline]
    fn channels(&self, _to: Rank) -> &[ChannelTo] {
        const ALONE: ChannelTo =
            ChannelTo { channel: Channel::Connection, packet_max: LONGEST as usize, follows_writes: true };
        if self.fabric.has_rails() { &[ChannelTo { follows_writes: false, ..ALONE }] } else { &[ALONE] }
    }

    fn channel_counts(&self) -> ChannelCounts {
        self.fabric.0.connection_counts()
    }

    #[inline]
    fn poll_send(&mut self, cx: &mut Context<'_>, to: Rank, packet: Packet<'_>) -> Poll<Result<(), Fault>> {
        fork::check()?;
        let (fabric, peer) = (&self.fabric, self.fabric.peer(to)?);
        packet.check(LONGEST as usize)?;
        if fabric.0.job_segment.liveness(to) != Liveness::Alive || peer.connection.is_broken() {
            return self.poll_ended(cx, peer);
        }
        if Self::try_send((fabric, &mut self.list), peer, packet)? {
            return Poll::Ready(Ok(()));
        }
        fabric.0.turn();
        fabric.0.endpoint.register_waker(cx, u64::MAX);
        Poll::Pending
    }

    fn set_list(&mut self, is_open: bool) {
        self.list.is_open = is_open;
        self.list.post(&self.fabric); // at its end; there is nothing at its begin
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>, patience: Patience) -> Poll<Result<Arrival, Fault>> {
        let mut found = self.next_packet();
        if found.is_none() {
            if !is_blocking() {
                self.fabric.0.progress();
            }
            if self.fabric.0.has_to_renew.load(Ordering::Relaxed) {
                found = self.next_packet();
                if found.is_none() {
                    if let Some(fault) = self.renew() {
                        return Poll::Ready(Err(fault));
                    }
                    found = self.next_packet(); // what was saved
                }
            }
            if found.is_none()
                && let Err(fault) = self.fabric.wait_on(patience)
            {
                found = self.next_packet(); // a packet before the end counts
                if found.is_none() {
                    return Poll::Ready(Err(fault));
                }
            }
        }
        if let Some(arrival) = found {
            return Poll::Ready(Ok(arrival));
        }
        self.fabric.0.turn();
        self.fabric.0.endpoint.register_waker(cx, patience.deadline);
        Poll::Pending
    }

    /// Does all that a wait does now and then.
    #[inline]
    fn try_recv(&mut self, me: Rank) -> Poll<Result<Arrival, Fault>> {
        if let Some(arrival) = self.next_packet() {
            return Poll::Ready(Ok(arrival));
        }
        self.looks = self.looks.wrapping_add(1);
        if self.looks.is_multiple_of(WAITS) {
            return self.poll_recv(&mut Context::from_waker(NOBODY), Patience::on(me));
        }
        Poll::Pending
    }

    fn spin(&mut self, polls: u32) {
        if let Some(arrivals) = self.fabric.0.arrivals.get() {
            arrivals.spin(polls, &mut self.unposted);
        }
    }

    fn renewed(&mut self, rank: Rank) -> Option<Renewed> {
        self.renewed.take_if(|(renewed, _)| *renewed == rank).map(|(_, renewed)| renewed)
    }

    #[inline]
    fn read(&self, offset: usize, into: &mut [u8]) {
        if let (Some(packet), Some(arrivals)) = (&self.current, self.fabric.0.arrivals.get()) {
            arrivals.read(packet, offset, into);
        }
    }
}

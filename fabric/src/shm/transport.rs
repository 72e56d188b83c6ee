//! The packets of shared memory: the lanes of the job segment.

use std::hint::spin_loop;
use std::sync::Arc;
use std::task::{Context, Poll};

use onesided_job::fork::is_child;
use onesided_job::lock;
use onesided_remote_memory::{Fault, FaultKind, Patience, Rank, RemoteMemory, Watch};

use crate::SHORTEST_LIMIT;
use crate::interface::transport::{Arrival, Channel, ChannelTo, Packet, Transport};
use crate::shm::lane::{CELL_WORDS, Lane, Reader, Writer};
use crate::shm::{JobSegment, Shm};
use crate::waiting::peer_status::PeerStatus;

/// A full lane's reader rings no doorbell when it makes room, so a sender polls again after this
/// many nanoseconds.
const FULL: u64 = 20_000;

/// The ends of a rank's lanes.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    /// By receiver.
    writers: Vec<Outgoing>,
    /// The open ones, and the number of openings that they were counted at.
    readers: Vec<Incoming>,
    opened: u32,
    /// The reader that was looked at last. The next one is looked at next.
    current: usize,
    /// The length of its packet that was received last, until it is taken out.
    received: Option<usize>,
}

/// Where a lane is in the job segment; 0 if that was not asked yet.
type LaneOffset = u64;

/// A lane from this rank.
#[derive(Debug, Default)]
struct Outgoing {
    lane: LaneOffset,
    writer: Writer,
    /// Whether the receiver's handler was told that the lane is full.
    is_told: bool,
}

/// A lane to this rank.
#[derive(Debug)]
struct Incoming {
    from: Rank,
    lane: LaneOffset,
    reader: Reader,
    /// What is in it is no packet.
    is_broken: bool,
}

/// The packets of a rank on shared memory. Dropping it gives it back.
#[derive(Debug)]
pub struct ShmTransport {
    shm: Shm,
    channel: ChannelTo,
    lanes: Lanes,
}

impl Drop for ShmTransport {
    fn drop(&mut self) {
        *lock(&self.shm.0.lanes) = Some(std::mem::take(&mut self.lanes));
    }
}

impl Shm {
    pub(super) fn take_transport(&self) -> Result<ShmTransport, Fault> {
        let lanes = lock(&self.0.lanes).take();
        let shm = Self(Arc::clone(&self.0));
        let packet_max = Lane::packet_max(shm.job_segment().lane_cells());
        let channel = ChannelTo { channel: Channel::Lane, packet_max, follows_writes: false };
        lanes.map(|lanes| ShmTransport { shm, channel, lanes }).ok_or(Fault::of(FaultKind::Refused, self.me()))
    }
}

#[inline]
fn lane(job_segment: &JobSegment, at: LaneOffset) -> Lane<'_> {
    let (count, cells) = job_segment.lane(at).split_at(CELL_WORDS);
    let (cells, _) = cells.as_chunks();
    Lane { taken: &count[0], cells }
}

impl ShmTransport {
    /// Takes the packet that was received last out, and finds the next one: the length.
    #[inline]
    fn next_packet(&mut self) -> Option<usize> {
        let job_segment = self.shm.job_segment();
        let lanes = &mut self.lanes;
        if let Some(taken) = lanes.received.take() {
            let Incoming { lane: offset, reader, .. } = &mut lanes.readers[lanes.current];
            reader.take(job_segment.lane_cells(), taken, || lane(job_segment, *offset));
        }
        let opened = job_segment.opened_lanes(self.shm.me());
        if opened != lanes.opened {
            lanes.open(job_segment, self.shm.me(), opened);
        }
        let count = lanes.readers.len();
        for _ in 0..count {
            lanes.current = if lanes.current + 1 >= count { 0 } else { lanes.current + 1 };
            let Incoming { lane: offset, reader, is_broken, .. } = &mut lanes.readers[lanes.current];
            let len = reader.peek(lane(job_segment, *offset));
            if len.is_some() && !*is_broken {
                return len;
            }
        }
        None
    }

    /// Why a wait has ended, if it has: no packet comes, or goes, any more.
    #[inline]
    fn ended(&self, patience: Patience) -> Result<(), Fault> {
        match patience {
            Patience { deadline: u64::MAX, watch: Watch::Rank(rank) | Watch::RankAndFailures(rank) }
                if self.shm.job_segment().is_alive(rank) && !is_child() =>
            {
                Ok(())
            }
            _ => self.shm.out_of_patience(patience),
        }
    }

    /// Leaves a lane with something that is no packet.
    #[cold]
    fn leave(&mut self, len: usize) -> Fault {
        let broken = &mut self.lanes.readers[self.lanes.current];
        broken.is_broken = true;
        Fault::of(FaultKind::Protocol, broken.from).with_detail(len as u32)
    }

    /// Wakes the handler of a rank.
    #[cold]
    fn solicit(&self, to: Rank) {
        if self.shm.job_segment().solicit(to) {
            // The kernel often wakes a thread on the core of who wakes it.
            std::thread::yield_now();
        }
    }

    /// Finds the lane to a rank, before its first packet.
    #[cold]
    fn find_lane(&mut self, to: Rank) {
        let writers = &mut self.lanes.writers;
        if writers.len() <= to.index() {
            writers.resize_with(to.index() + 1, Default::default);
        }
        writers[to.index()].lane = self.shm.job_segment().lane_offset(self.shm.me(), to);
    }
}

impl Lanes {
    #[cold]
    fn open(&mut self, job_segment: &JobSegment, me: Rank, opened: u32) {
        let known = |rank| self.readers.iter().any(|known| known.from == rank);
        let new: Vec<_> = job_segment.lanes_to(me).filter(|rank| !known(*rank)).collect();
        self.readers.extend(new.into_iter().map(|from| Incoming {
            from,
            lane: job_segment.lane_offset(from, me),
            reader: Reader::default(),
            is_broken: false,
        }));
        self.opened = opened;
    }
}

impl Transport for ShmTransport {
    #[inline]
    fn channels(&self, _to: Rank) -> &[ChannelTo] {
        std::slice::from_ref(&self.channel)
    }

    #[inline]
    fn poll_send(&mut self, cx: &mut Context<'_>, to: Rank, packet: Packet<'_>) -> Poll<Result<(), Fault>> {
        self.ended(Patience::on(to))?;
        packet.check(self.channel.packet_max)?;
        if !matches!(self.lanes.writers.get(to.index()), Some(Outgoing { lane: 1.., .. })) {
            self.find_lane(to);
        }
        let job_segment = self.shm.job_segment();
        let Outgoing { lane: offset, writer, is_told } = &mut self.lanes.writers[to.index()];
        let is_new = writer.is_new();
        if !writer.push(lane(job_segment, *offset), packet.head, packet.body) {
            if !std::mem::replace(is_told, true) {
                job_segment.solicit(to); // who computes has a handler to make room
            }
            self.shm.0.endpoint.register_waker(cx, self.shm.now().saturating_add(FULL));
            return Poll::Pending;
        }
        *is_told = false;
        if is_new {
            job_segment.open_lane(self.shm.me(), to);
        }
        job_segment.wake(to);
        if packet.solicited {
            self.solicit(to);
        }
        Poll::Ready(Ok(()))
    }

    #[inline]
    fn poll_recv(&mut self, cx: &mut Context<'_>, patience: Patience) -> Poll<Result<Arrival, Fault>> {
        let mut found = self.next_packet();
        if found.is_none()
            && let Err(fault) = self.ended(patience)
        {
            // The peer status was read before the lanes: a packet sent before the end counts.
            found = self.next_packet();
            if found.is_none() {
                return Poll::Ready(Err(fault));
            }
        }
        match found {
            Some(len) if len > self.channel.packet_max => Poll::Ready(Err(self.leave(len))),
            Some(len) => {
                self.lanes.received = Some(len);
                let from = self.lanes.readers[self.lanes.current].from;
                Poll::Ready(Ok(Arrival { from, channel: Channel::Lane, len }))
            }
            None => {
                self.shm.0.endpoint.register_waker(cx, patience.deadline);
                Poll::Pending
            }
        }
    }

    /// Of the rank that the last packet came from.
    #[inline]
    fn spin(&mut self, polls: u32) {
        if let Some(Incoming { lane: offset, reader, .. }) = self.lanes.readers.get_mut(self.lanes.current) {
            let lane = lane(self.shm.job_segment(), *offset);
            let mut polls = 0..polls;
            while reader.peek(lane).is_none() && polls.next().is_some() {
                reader.prefetch(lane);
                spin_loop();
            }
        }
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        if let Some(Incoming { lane: at, reader, .. }) = self.lanes.readers.get(self.lanes.current) {
            reader.read(lane(self.shm.job_segment(), *at), offset, into);
        }
    }

    #[inline]
    fn first(&self) -> [u8; SHORTEST_LIMIT] {
        let current = self.lanes.readers.get(self.lanes.current);
        let first = |of: &Incoming| of.reader.first(lane(self.shm.job_segment(), of.lane));
        current.map_or([0; SHORTEST_LIMIT], first)
    }
}

//! The packets of shared memory: the lanes of the job segment.

use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};

use onesided_remote_memory::{Fault, FaultKind, Patience, Rank, RemoteMemory};

use crate::fabric::check_rank;
use crate::peer_status::PeerStatus;
use crate::shm::lane::{CELL_WORDS, Lane, Reader, Writer};
use crate::shm::{JobSegment, Shm};
use crate::transport::{Arrival, Transport};

/// A full lane's reader rings no doorbell when it makes room, so a sender polls again after this
/// many nanoseconds.
const FULL: u64 = 20_000;

/// The ends of a rank's lanes.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    /// By receiver.
    writers: Vec<Writer>,
    /// The open ones, `None` if what is in them is no packet, and the number of openings that they
    /// were counted at.
    readers: Vec<(Rank, Option<Reader>)>,
    opened: u32,
    /// The reader that is looked at next.
    next: usize,
    /// The reader of the packet that was received last, and its length.
    current: Option<(usize, usize)>,
}

/// The packets of a rank on shared memory. Dropping it gives it back.
#[derive(Debug)]
pub struct ShmTransport {
    shm: Shm,
    lanes: Lanes,
}

impl Drop for ShmTransport {
    fn drop(&mut self) {
        *self.shm.0.lanes.lock().unwrap_or_else(PoisonError::into_inner) = Some(std::mem::take(&mut self.lanes));
    }
}

impl Shm {
    pub(super) fn take_transport(&self) -> Result<ShmTransport, Fault> {
        let lanes = self.0.lanes.lock().unwrap_or_else(PoisonError::into_inner).take();
        let shm = Self(Arc::clone(&self.0));
        lanes.map(|lanes| ShmTransport { shm, lanes }).ok_or(Fault::of(FaultKind::Refused, self.me()))
    }
}

#[inline]
fn lane(job_segment: &JobSegment, from: Rank, to: Rank) -> Lane<'_> {
    let (count, cells) = job_segment.lane(from, to).split_at(CELL_WORDS);
    let (cells, _) = cells.as_chunks();
    Lane { taken: &count[0], cells }
}

impl ShmTransport {
    /// The next packet, and the reader that has it.
    #[inline]
    fn look(&mut self) -> Option<(usize, Result<usize, Fault>)> {
        let (job_segment, me) = (self.shm.job_segment(), self.shm.me());
        let lanes = &mut self.lanes;
        let opened = job_segment.opened_lanes(me);
        if opened != lanes.opened {
            lanes.open(job_segment, me, opened);
        }
        let count = lanes.readers.len();
        for _ in 0..count {
            let at = lanes.next;
            lanes.next = if at + 1 == count { 0 } else { at + 1 };
            let (from, reader) = &mut lanes.readers[at];
            let lane = lane(job_segment, *from, me);
            if let Some(len) = reader.as_mut().and_then(|reader| reader.peek(lane)) {
                if len <= Lane::packet_max(lane.cells.len()) {
                    return Some((at, Ok(len)));
                }
                *reader = None;
                return Some((at, Err(Fault::of(FaultKind::Protocol, *from).with_detail(len as u32))));
            }
        }
        None
    }
}

impl Lanes {
    #[cold]
    fn open(&mut self, job_segment: &JobSegment, me: Rank, opened: u32) {
        let known = |rank| self.readers.iter().any(|(known, _)| *known == rank);
        let new: Vec<_> = job_segment.lanes_to(me).filter(|rank| !known(*rank)).collect();
        self.readers.extend(new.into_iter().map(|rank| (rank, Some(Reader::default()))));
        self.opened = opened;
    }
}

impl Transport for ShmTransport {
    #[inline]
    fn packet_max(&self, _to: Rank) -> usize {
        Lane::packet_max(self.shm.job_segment().lane_cells())
    }

    #[inline]
    fn poll_send(&mut self, cx: &mut Context<'_>, to: Rank, head: &[u8], body: &[u8]) -> Poll<Result<(), Fault>> {
        check_rank(&self.shm, to)?;
        self.shm.ended(Patience::on(to))?;
        let (job_segment, me) = (self.shm.job_segment(), self.shm.me());
        if self.lanes.writers.len() <= to.index() {
            self.lanes.writers.resize_with(to.index() + 1, Writer::default);
        }
        let (writer, lane) = (&mut self.lanes.writers[to.index()], lane(job_segment, me, to));
        let len = head.len() + body.len();
        if len > Lane::packet_max(lane.cells.len()) {
            return Poll::Ready(Err(Fault::new(FaultKind::TooLong).with_detail(len as u32)));
        }
        let is_new = writer.is_new();
        if !writer.push(lane, head, body) {
            self.shm.0.endpoint.register_waker(cx, self.shm.now().saturating_add(FULL));
            return Poll::Pending;
        }
        if is_new {
            job_segment.open_lane(me, to);
        }
        job_segment.wake(to);
        Poll::Ready(Ok(()))
    }

    fn poll_send_solicited(
        &mut self,
        cx: &mut Context<'_>,
        to: Rank,
        head: &[u8],
        body: &[u8],
    ) -> Poll<Result<(), Fault>> {
        let sent = self.poll_send(cx, to, head, body)?;
        if sent.is_ready() && self.shm.job_segment().solicit(to) {
            // The kernel often wakes a thread on the core of who wakes it.
            std::thread::yield_now();
        }
        sent.map(Ok)
    }

    #[inline]
    fn poll_recv(&mut self, cx: &mut Context<'_>, patience: Patience) -> Poll<Result<Arrival, Fault>> {
        if let Some((at, len)) = self.lanes.current.take() {
            let (from, reader) = &mut self.lanes.readers[at];
            if let Some(reader) = reader {
                reader.take(lane(self.shm.job_segment(), *from, self.shm.me()), len);
            }
        }
        let mut found = self.look();
        if found.is_none()
            && let Err(fault) = self.shm.out_of_patience(patience)
        {
            // The peer status was read before the lanes: a packet sent before the end counts.
            found = self.look();
            if found.is_none() {
                return Poll::Ready(Err(fault));
            }
        }
        match found {
            Some((at, Ok(len))) => {
                self.lanes.current = Some((at, len));
                Poll::Ready(Ok(Arrival { from: self.lanes.readers[at].0, len }))
            }
            Some((_, Err(fault))) => Poll::Ready(Err(fault)),
            None => {
                self.shm.0.endpoint.register_waker(cx, patience.deadline);
                Poll::Pending
            }
        }
    }

    #[inline]
    fn read(&self, offset: usize, into: &mut [u8]) {
        if let Some((at, _)) = self.lanes.current
            && let (from, Some(reader)) = &self.lanes.readers[at]
        {
            reader.read(lane(self.shm.job_segment(), *from, self.shm.me()), offset, into);
        }
    }
}

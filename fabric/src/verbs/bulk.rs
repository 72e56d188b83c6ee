//! Bulk transfers, and flush.

use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::task::{Context, Poll};

use onesided_job::fork;
use onesided_job::lock;
use onesided_remote_memory::{Fault, FaultKind, Patience, Rank, RegionId, RemoteMemory};

use crate::verbs::bounce_buffers::LONGEST;
use crate::verbs::mixed::DataPath;
use crate::verbs::peer::Peer;
use crate::verbs::queue::{InFlight, WorkRequest};
use crate::verbs::rails::{Stripes, moves};
use crate::verbs::raw::{Local, MemoryRegion, Remote, UserRegion, Verb};
use crate::verbs::segment::check_within;
use crate::verbs::traffic::{ConnectionId, Traffic};
use crate::verbs::words::Posted;
use crate::verbs::{Verbs, VerbsSegment, VerbsTransport, VerbsWord};
use crate::waiting::peer_status::{PeerStatus, check_rank};
use crate::waiting::tasks::endpoint;
use crate::{
    Capabilities, Drive, EitherFuture, Endpoint, Error, Events, Fabric, Fence, Fencing, Landing, Launch, Segment,
    SegmentKey, SolicitedEvents, UserMemory,
};

/// How many reads of a long get are in flight at once.
const AHEAD: usize = 4;

/// A transfer between registered segments, in flight.
#[derive(Debug)]
#[must_use = "the transfer is posted, but only awaiting tells when it is done"]
pub struct VerbsTransfer(Transfer);

#[derive(Debug)]
enum Transfer {
    Ended(Result<(), Fault>),
    /// Its last request: those of one connection complete in order.
    Last(Posted),
    /// Over several rails.
    Striped(Box<Stripes>),
}

impl Future for VerbsTransfer {
    type Output = Result<(), Fault>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Transfer::Ended(outcome) => Poll::Ready(*outcome),
            Transfer::Last(last) => last.poll(cx),
            Transfer::Striped(stripes) => stripes.poll(cx),
        }
    }
}

/// A get: completed at post, or in flight on the card.
pub type VerbsGet<'b> = EitherFuture<Ready<Result<(), Fault>>, CardGet<'b>>;

/// A get in flight: reads into bounce buffers, and copies into the caller's buffer in order.
#[derive(Debug)]
#[must_use = "the buffer is filled only when it is awaited"]
pub struct CardGet<'b> {
    fabric: Verbs,
    rank: Rank,
    from: Remote,
    into: &'b mut [u8],
    /// How many bytes have been requested, and how many are in the buffer.
    posted: usize,
    done: usize,
    reads: [Option<Posted>; AHEAD],
    fault: Option<Fault>,
}

impl CardGet<'_> {
    /// Posts reads while there is space for them.
    fn post(&mut self) {
        while self.posted < self.into.len() && self.fault.is_none() {
            let read = &mut self.reads[self.posted / LONGEST % AHEAD];
            if read.is_some() {
                return;
            }
            let len = LONGEST.min(self.into.len() - self.posted);
            match self.fabric.0.take_slot(len) {
                Ok(taken) => {
                    let verb = Verb::Read { from: self.from.after(self.posted as u64) };
                    self.fabric.0.post(self.fabric.to(self.rank), [WorkRequest::new(verb, &taken, len)]);
                    *read = Some(Posted::new(&self.fabric, self.rank, taken.slot));
                    self.posted += len;
                }
                Err(fault) => self.fault = Some(fault),
            }
        }
    }
}

impl Future for CardGet<'_> {
    type Output = Result<(), Fault>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let get = &mut *self;
        while get.done < get.into.len() {
            get.post();
            if let Some(fault) = get.fault {
                return Poll::Ready(Err(fault));
            }
            let read = &mut get.reads[get.done / LONGEST % AHEAD];
            let Some(posted) = read else { return Poll::Ready(Err(Fault::new(FaultKind::Closed))) };
            match posted.poll(cx) {
                Poll::Ready(Ok(())) => {
                    let end = get.into.len().min(get.done + LONGEST);
                    get.fabric.0.buffers.buffer(posted.slot).read(&mut get.into[get.done..end]);
                    get.done = end;
                    *read = None;
                }
                Poll::Ready(Err(fault)) => {
                    get.fault = Some(fault);
                    return Poll::Ready(Err(fault));
                }
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// A flush in flight.
#[derive(Debug)]
#[must_use = "nothing is known to be complete before it is awaited"]
pub struct VerbsFlush<'f> {
    fabric: &'f Verbs,
    target: Rank,
    /// How many of the requests to the target have to complete.
    posted: u64,
}

impl Future for VerbsFlush<'_> {
    type Output = Result<(), Fault>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let peer = match self.fabric.peer(self.target) {
            Ok(peer) => peer,
            Err(fault) => return Poll::Ready(Err(fault)),
        };
        // For a close target, the completions are there at the first poll.
        let done = || peer.queue.has_completed(self.posted);
        if !done() && (self.fabric.progress() == 0 || !done()) {
            fork::check()?;
            self.fabric.0.report_packets(peer);
            self.fabric.0.turn();
            self.fabric.0.endpoint.register_waker(cx, u64::MAX);
            return Poll::Pending;
        }
        if !peer.has_deferred() {
            return Poll::Ready(Ok(()));
        }
        if let Some(until) = self.fabric.0.detection_until(peer.id) {
            self.fabric.0.endpoint.register_waker(cx, until);
            return Poll::Pending;
        }
        let ended = self.fabric.ended(Patience::on(self.target));
        Poll::Ready(peer.take_deferred().map_or(Ok(()), |fault| ended.and(Err(fault))))
    }
}

impl Fabric for Verbs {
    type Segment = VerbsSegment;
    type Transfer = VerbsTransfer;
    type Get<'b> = VerbsGet<'b>;
    type Flush<'f> = VerbsFlush<'f>;
    type Transport = VerbsTransport;

    fn transport(&self) -> Result<VerbsTransport, Fault> {
        self.take_transport()
    }

    fn for_messages(&self) -> Self {
        Self(Arc::clone(&self.0), Traffic::Messages)
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities
    }

    fn host_of(&self, rank: Rank) -> u32 {
        let host = || check_rank(self, rank).map_or(0, |()| self.0.job_segment.host_of(rank));
        self.0.paths.pretended.get(rank.index()).copied().unwrap_or_else(host)
    }

    fn allocate(&self, len: u64) -> Result<VerbsSegment, Error> {
        let own = self.publish(MemoryRegion::new(&self.0.domain, len)?)?;
        self.0.share(&own)?;
        Ok(own)
    }

    fn register(&self, memory: UserMemory) -> Result<VerbsSegment, Error> {
        memory.check(self.rank())?;
        self.publish(UserRegion::new(&self.0.domain, memory)?)
    }

    /// Peers' operations in flight then fail at this rank's card, and their connections are lost.
    fn reclaim(&self, own: &VerbsSegment) -> Result<Option<UserMemory>, Fault> {
        self.0.progress();
        if lock(&self.0.in_flight).values().any(|InFlight { segments: (one, other), .. }| one.is(own) || other.is(own))
        {
            return Ok(None);
        }
        own.reclaim().map(Some)
    }

    fn part(&self, own: &VerbsSegment, offset: u64, len: u64) -> Result<VerbsSegment, Fault> {
        own.part(offset, len)
    }

    fn fencing(&self) -> Option<&dyn Fencing> {
        Some(self)
    }

    fn endpoint(&self) -> &dyn Endpoint {
        self
    }

    fn events(&self, of: Events) -> Option<&dyn SolicitedEvents> {
        match of {
            Events::Packets => Some(self),
            Events::Completions => (!self.0.has_one_queue).then_some(&*self.0 as _),
        }
    }

    /// Reads the owner's region table, one-sided: a key whose segment is gone is refused here. The
    /// exchange then provides the memory of a peer of this host.
    fn open(&self, key: &SegmentKey) -> Result<VerbsSegment, Error> {
        let rank = key.rank;
        let own = || {
            if rank == self.rank() {
                let whole = self.0.region_table.find(key.region)?;
                let offset = check_within(&whole.key(), key)?;
                return if whole.key() == *key { Ok(Some(whole)) } else { whole.part(offset, key.len).map(Some) };
            }
            // A message's memory stays until the message was moved; a wrong key breaks the connection of
            // messages, which is made anew. To look it up would wait behind packets without receives.
            if self.1 == Traffic::Memory {
                check_within(&self.look_up(rank, key.region)?, key)?;
            }
            Ok(None)
        };
        match own().map_err(|fault| Error::Open { rank, what: "look its region up".into(), fault, source: None })? {
            Some(own) => Ok(own),
            None if key.region == RegionId(0) && self.0.paths.reach(rank) => self.world_segment(rank),
            None => self.0.of_peer(*key),
        }
    }

    fn world_segment(&self, rank: Rank) -> Result<VerbsSegment, Error> {
        if rank == self.rank() {
            return Ok(self.0.region_table.home().clone());
        }
        self.0.world_of_peer(rank, || {
            let what = || "find its world segment".into();
            let found = self.look_up(rank, RegionId(0));
            self.0.of_peer(found.map_err(|fault| Error::Open { rank, what: what(), fault, source: None })?)
        })
    }

    fn word_in<'s>(&'s self, segment: &'s VerbsSegment, offset: u64) -> Result<VerbsWord<'s>, Fault> {
        segment.word(offset)
    }

    fn same_host_word<'s>(&'s self, segment: &'s VerbsSegment, offset: u64) -> Result<VerbsWord<'s>, Fault> {
        let word = segment.same_host_word(offset)?;
        self.check_connected(segment.rank())?;
        Ok(word)
    }

    #[inline]
    fn put(&self, to: &VerbsSegment, offset: u64, from: &[u8]) -> Result<(), Fault> {
        to.check(offset, from.len() as u64)?;
        if let DataPath::Cpu(memory) = self.data_path(to) {
            return match self.check_usable(memory.rank()) {
                Ok(()) => memory.write(offset, from),
                Err(fault) => {
                    self.defer(fault); // reported by the flush, as on the card's path
                    Ok(())
                }
            };
        }
        let mut at = offset;
        for bytes in from.chunks(LONGEST) {
            let taken = self.0.take_slot(bytes.len())?;
            taken.buffer.write(0, bytes);
            let write = WorkRequest::new(Verb::Write { to: to.remote(at) }, &taken, bytes.len());
            self.0.post_and_forget(self.to(to.rank()), write);
            at += bytes.len() as u64;
        }
        self.note_put(to);
        Ok(())
    }

    #[inline]
    fn get<'b>(&self, from: &VerbsSegment, offset: u64, into: &'b mut [u8]) -> VerbsGet<'b> {
        let checked = from.check(offset, into.len() as u64);
        if let DataPath::Cpu(memory) = self.data_path(from) {
            let checked = checked.and_then(|()| self.check_usable(memory.rank()));
            return EitherFuture::first(ready(checked.and_then(|()| memory.read(offset, into))));
        }
        let mut get = self.get_from(from.rank(), from.remote(offset), into);
        get.fault = checked.err();
        get.post();
        EitherFuture::second(get)
    }

    fn rdma_write(&self, from: (&VerbsSegment, u64), to: (&VerbsSegment, u64), len: u64) -> VerbsTransfer {
        match self.copied(from, to, len, |mine, theirs| mine.0.transfer(mine.1, theirs, len)) {
            Some(copied) => VerbsTransfer(Transfer::Ended(copied)),
            None => {
                let transfer = self.transfer(from, to, len, true);
                self.note_put(to.0);
                transfer
            }
        }
    }

    fn rdma_read(&self, from: (&VerbsSegment, u64), into: (&VerbsSegment, u64), len: u64) -> VerbsTransfer {
        match self.copied(into, from, len, |mine, theirs| theirs.0.transfer(theirs.1, mine, len)) {
            Some(copied) => VerbsTransfer(Transfer::Ended(copied)),
            None => self.transfer(into, from, len, false),
        }
    }

    /// A write's completion means that the target's card has received it, not that it is placed in
    /// memory. A later read on the same connection proves the placement, because it is answered
    /// from memory after the writes. So a flush after writes posts a read; requests complete in
    /// order, so the read's completion is also theirs. An atomic, or any other read, posted after
    /// the writes proves the same.
    ///
    /// A full fence completes the CPU's puts, which `put x; flush; get y` needs as well.
    fn flush(&self, target: Rank) -> VerbsFlush<'_> {
        if self.0.paths.reach(target) {
            fence(Ordering::SeqCst);
        }
        if let Ok(peer) = self.peer(target) {
            // A read that another thread posts after them is counted as posted, or a second one is
            // posted.
            if peer.queue.is_unproven() {
                match self.0.take_slot(8) {
                    Ok(taken) => {
                        self.0.post_and_forget(peer.id, WorkRequest::new(Verb::Read { from: peer.home }, &taken, 8))
                    }
                    Err(fault) => peer.defer(fault),
                }
            }
        }
        self.flush_local(target)
    }

    fn flush_local(&self, target: Rank) -> VerbsFlush<'_> {
        VerbsFlush { fabric: self, target, posted: self.peer(target).map_or(0, |peer| peer.queue.posted()) }
    }

    fn landing_max(&self, peer: Rank) -> u64 {
        self.longest_landing(peer)
    }

    fn land(&self, into: &VerbsSegment, len: u64) -> Result<(SegmentKey, Box<dyn Landing>), Fault> {
        self.begin_landing(into, len)
    }

    fn launch(&self, from: (&VerbsSegment, u64), to: &SegmentKey) -> Result<Launch, Fault> {
        self.begin_launch(from, to)
    }

    fn read_direct(&self, segment: &VerbsSegment, offset: u64, into: &mut [u8]) -> Result<(), Fault> {
        segment.read(offset, into)
    }

    fn write_direct(&self, segment: &VerbsSegment, offset: u64, from: &[u8]) -> Result<(), Fault> {
        segment.write(offset, from)
    }
}

impl Fencing for Verbs {
    /// Not within a host, where the peer may have the memory mapped.
    fn fence_of(&self, rank: Rank) -> Option<Fence> {
        let reaches = rank != self.0.rank && rank.0 < self.size() && !self.0.paths.reach(rank);
        reaches.then_some(Fence::Revoke)
    }

    fn fence(&self, rank: Rank) -> Result<bool, Fault> {
        match self.fence_of(rank) {
            Some(_) => self.0.end_access(rank, true),
            None => Err(Fault::of(FaultKind::Unsupported, rank)),
        }
    }
}

endpoint!(Verbs, |verbs| verbs.0.job_segment, verbs.0.job());

/// For what the CPU does in place of the card: see `mixed`.
impl Verbs {
    #[inline]
    pub(super) const fn is_for_messages(&self) -> bool {
        matches!(self.1, Traffic::Messages)
    }

    /// How many requests were posted to a rank so far.
    pub(super) fn posted(&self, rank: Rank) -> u64 {
        self.peer(rank).map_or(0, |peer| peer.queue.posted())
    }

    /// Whether the first `count` requests to a rank have completed, and the writes among the first
    /// `writes` are known to be in memory.
    pub(super) fn has_placed(&self, rank: Rank, count: u64, writes: u64) -> bool {
        let settled = |peer: &Peer| peer.queue.has_completed(count) && peer.queue.has_proven(writes);
        self.peer(rank).is_ok_and(|peer| settled(peer) || (self.progress() > 0 && settled(peer)))
    }

    /// The fault of a post to a rank that has died or left, or whose connection is lost.
    pub(super) fn check_usable(&self, rank: Rank) -> Result<(), Fault> {
        self.ended(Patience::on(rank))?;
        self.check_connected(rank)
    }

    /// The fault of a post to a rank whose connection is lost.
    pub(super) fn check_connected(&self, rank: Rank) -> Result<(), Fault> {
        match self.0.job_segment.is_lost(self.rank(), rank) {
            false => Ok(()),
            true => Err(Fault::of(FaultKind::ConnectionLost, rank)),
        }
    }

    /// Stores an unawaited fault for the next flush.
    pub(super) fn defer(&self, fault: Fault) {
        if let Some(Ok(peer)) = fault.rank().map(|rank| self.peer(rank)) {
            peer.defer(fault);
        }
    }
}

impl Verbs {
    /// The connection that operations on a rank's memory use.
    #[inline]
    pub(super) const fn to(&self, rank: Rank) -> ConnectionId {
        ConnectionId { rank, traffic: self.1 }
    }

    pub(super) fn peer(&self, rank: Rank) -> Result<&Peer, Fault> {
        self.0.peer(self.to(rank))
    }

    /// A get from any remote address.
    pub(super) fn get_from<'b>(&self, rank: Rank, from: Remote, into: &'b mut [u8]) -> CardGet<'b> {
        let reads = [const { None }; AHEAD];
        CardGet { fabric: self.clone(), rank, from, into, posted: 0, done: 0, reads, fault: None }
    }

    /// Moves bytes between an own segment and any segment, over rails if it is long enough for them, else
    /// in the fewest requests that the card's limit allows.
    fn transfer(
        &self,
        (own, own_offset): (&VerbsSegment, u64),
        (other, offset): (&VerbsSegment, u64),
        len: u64,
        writes: bool,
    ) -> VerbsTransfer {
        let run = || {
            own.check(own_offset, len)?;
            other.check(offset, len)?;
            own.local(own_offset)?;
            if let Some(rails) = self.rails_for(len) {
                let ends = [(own.clone(), own_offset), (other.clone(), offset)];
                return Ok(Transfer::Striped(Box::new(Stripes::start(self, rails, ends, len, writes))));
            }
            let mut last = Transfer::Ended(Ok(()));
            let mut at = 0;
            while at < len {
                let piece = (len - at).min(self.0.capabilities.longest_transfer);
                let local = Local { len: piece as u32, ..own.local(own_offset + at)? };
                let taken = self.0.take_slot(0)?;
                let request = WorkRequest::new(moves(writes, other.remote(offset + at)), &taken, 0);
                self.0.keep(taken.slot, InFlight { segments: (own.clone(), other.clone()), len: piece });
                self.0.post(self.to(other.rank()), [WorkRequest { local, keeps: true, ..request }]);
                last = Transfer::Last(Posted::new(self, other.rank(), taken.slot));
                at += piece;
            }
            Ok(last)
        };
        VerbsTransfer(run().unwrap_or_else(|fault| Transfer::Ended(Err(fault))))
    }
}

//! Operations on words, and waiting for them.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::task::{Context, Poll};

use ibverbs_sys::ibv_wc_status;
use onesided_job::fork;
use onesided_remote_memory::{
    At, Chain, Fault, FaultKind, Link, Liveness, Notify, Patience, Rank, RegionId, RemoteMemory,
};

use crate::verbs::bounce_buffers::TakenSlot;
use crate::verbs::peer::Peer;
use crate::verbs::queue::WorkRequest;
use crate::verbs::raw::Verb;
use crate::verbs::segment::{Entry, RegionTable};
use crate::verbs::traffic::ConnectionId;
use crate::verbs::{Inner, Verbs, VerbsWord};
use crate::waiting::drive;
use crate::waiting::peer_status::check_rank;
use crate::{SegmentKey, block_on};

/// An operation on a word, in flight.
#[derive(Debug)]
#[must_use = "the operation is posted, but only awaiting tells how it went"]
pub struct VerbsOp(State);

impl VerbsOp {
    /// An operation that needs no card.
    pub(super) const fn ended(end: Result<u64, Fault>) -> Self {
        Self(State::Ended(end))
    }
}

#[derive(Debug)]
enum State {
    Posted(Posted),
    /// Not posted; its result.
    Ended(Result<u64, Fault>),
    Taken,
}

/// The caller's reference to a slot.
#[derive(Debug)]
pub(super) struct Posted {
    pub(super) fabric: Verbs,
    pub(super) rank: Rank,
    pub(super) slot: u32,
    /// Whether the result was taken, so that a drop reports nothing.
    told: bool,
}

impl Posted {
    pub(super) fn new(fabric: &Verbs, rank: Rank, slot: u32) -> Self {
        Self { fabric: fabric.clone(), rank, slot, told: false }
    }

    fn to(&self) -> ConnectionId {
        self.fabric.to(self.rank)
    }

    /// Ready when the operation has completed.
    #[inline]
    pub(super) fn poll(&mut self, cx: &Context<'_>) -> Poll<Result<(), Fault>> {
        let Inner { buffers, .. } = &*self.fabric.0;
        // For a close target, the completion is there at the first poll.
        let status = buffers.status(self.slot).or_else(|| {
            self.fabric.0.progress();
            buffers.status(self.slot)
        });
        if let Some(until) = status.filter(|status| *status != 0).and_then(|_| self.fabric.0.detection_until(self.to()))
        {
            self.fabric.0.endpoint.register_waker(cx, until);
            return Poll::Pending;
        }
        self.told = status.is_some();
        match status {
            Some(0) => Poll::Ready(Ok(())),
            Some(status) => Poll::Ready(Err(self.fabric.0.fault(self.to(), status))),
            None => {
                fork::check()?;
                self.fabric.0.turn();
                self.fabric.0.endpoint.register_waker(cx, u64::MAX);
                Poll::Pending
            }
        }
    }
}

impl Posted {
    /// The status of its completion, if it has completed.
    pub(super) fn status(&self) -> Option<u32> {
        self.fabric.0.buffers.status(self.slot)
    }

    /// Drops it; a failure is the caller's to report.
    pub(super) fn end(mut self) {
        self.told = self.status().is_some();
    }

    /// The result value; `None` if the answer was lost.
    #[inline]
    fn value(&self) -> Option<u64> {
        let inner = &*self.fabric.0;
        let value = inner.buffers.word(self.slot).load(Ordering::Acquire);
        (inner.unanswered != Some(value)).then_some(value)
    }

    /// Gives up the connection, so that the operation ends like the others in flight there.
    #[cold]
    fn lose_answer(&self) {
        let inner = &*self.fabric.0;
        let _ = inner.peer(self.to()).map(Peer::fail);
        inner.buffers.set_status(self.slot, ibv_wc_status::IBV_WC_WR_FLUSH_ERR);
    }
}

impl Drop for Posted {
    fn drop(&mut self) {
        if self.told {
            self.fabric.0.buffers.free(self.slot);
        } else {
            self.fabric.0.forget(self.to(), self.slot);
        }
    }
}

impl Future for VerbsOp {
    type Output = Result<u64, Fault>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let result = match &mut self.0 {
            State::Posted(posted) => match posted.poll(cx) {
                Poll::Ready(Ok(())) => match posted.value() {
                    Some(value) => Ok(value),
                    None => {
                        posted.lose_answer();
                        return self.poll(cx);
                    }
                },
                Poll::Ready(Err(fault)) => Err(fault),
                Poll::Pending => return Poll::Pending,
            },
            State::Ended(end) => *end,
            State::Taken => Err(Fault::new(FaultKind::Closed)), // polled after completion
        };
        self.0 = State::Taken;
        Poll::Ready(result)
    }
}

/// See [`RemoteMemory::wait_until`].
#[derive(Debug)]
#[must_use = "nothing is waited for before it is awaited"]
pub struct VerbsWait<'f, P> {
    fabric: &'f Verbs,
    own: Result<&'f AtomicU64, Fault>,
    predicate: P,
    patience: Patience,
}

impl<P: Fn(u64) -> bool + Unpin + Send> Future for VerbsWait<'_, P> {
    type Output = Result<u64, Fault>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let own = match self.own {
            Ok(own) => own,
            Err(fault) => return Poll::Ready(Err(fault)),
        };
        let look = || Some(own.load(Ordering::Acquire)).filter(|value| (self.predicate)(*value));
        if let Some(value) = look() {
            return Poll::Ready(Ok(value));
        }
        if let Err(fault) = self.fabric.wait_on(self.patience) {
            return Poll::Ready(look().ok_or(fault)); // a write before the end counts
        }
        self.fabric.0.endpoint.register_waker(cx, self.patience.deadline);
        Poll::Pending
    }
}

/// See [`RemoteMemory::pause`].
#[derive(Debug)]
#[must_use = "nothing is waited for before it is awaited"]
pub struct VerbsPause<'f> {
    fabric: &'f Verbs,
    until: u64,
}

impl Future for VerbsPause<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.fabric.now() >= self.until {
            return Poll::Ready(());
        }
        self.fabric.0.endpoint.register_waker(cx, self.until);
        Poll::Pending
    }
}

impl RemoteMemory for Verbs {
    type Word<'f> = VerbsWord<'f>;
    type Op = VerbsOp;
    type Wait<'f, P: Fn(u64) -> bool + Unpin + Send + 'f> = VerbsWait<'f, P>;
    type Pause<'f> = VerbsPause<'f>;

    #[inline]
    fn rank(&self) -> Rank {
        self.0.rank
    }

    #[inline]
    fn size(&self) -> u32 {
        self.0.connector.addresses.len() as u32
    }

    /// A peer's region is looked up in its region table on first use, one-sided.
    fn word(&self, at: At) -> Result<VerbsWord<'_>, Fault> {
        let segment = match at.rank == self.0.rank {
            true => self.0.region_table.pin(at.region)?,
            false => self.0.opened.get((at.rank, at.region), || self.look_up(at.rank, at.region))?,
        };
        segment.word(at.offset)
    }

    fn write_is_atomic(&self) -> bool {
        false
    }

    #[inline]
    fn post_link(&self, link: Link<VerbsWord<'_>>) -> VerbsOp {
        if link.word().is_on_same_host() {
            return self.by_cpu(link);
        }
        let posted = self.operate(Step::of(link));
        self.note(link);
        posted
    }

    /// One list, one doorbell: every link after a read or an atomic is fenced against overtaking
    /// it.
    fn post<const N: usize>(&self, links: [Link<VerbsWord<'_>>; N]) -> Chain<VerbsOp, N> {
        if links.iter().any(|link| link.word().is_on_same_host()) {
            return Chain::of(links.map(|link| link.waited().then_some(self.post_link(link))));
        }
        let steps = links.map(Step::of);
        let rank = steps.first().map_or(self.0.rank, |step| step.rank);
        let refused = |fault| Chain::of(links.map(|link| link.waited().then_some(VerbsOp::ended(Err(fault)))));
        if let Some(other) = steps.iter().find(|step| step.rank != rank) {
            return refused(Fault::of(FaultKind::Unsupported, other.rank));
        }
        if matches!(links.first(), Some(Link::Read { .. })) && self.0.paths.reach(rank) {
            fence(Ordering::SeqCst); // the rest of the chain comes after the CPU's stores as well
        }
        let mut requests = [None; N];
        for (at, (step, link)) in steps.iter().zip(&links).enumerate() {
            match self.0.take_slot(WORD) {
                Ok(taken) => {
                    requests[at] = Some(WorkRequest { unsignaled: !link.waited(), ..step.request(&self.0, &taken) })
                }
                Err(fault) => {
                    requests.iter().flatten().for_each(|request| self.0.buffers.free(request.slot));
                    return refused(fault);
                }
            }
        }
        let requests = requests.map(|request| request.expect("each has a slot"));
        if self.0.fences || !has_order_to_keep(&links) {
            self.0.post(self.to(rank), requests);
        } else {
            self.post_apart(rank, &links, requests);
        }
        links.into_iter().for_each(|link| self.note(link));
        Chain::of(std::array::from_fn(|at| {
            // Dropping an unawaited operation detaches its slot.
            let posted = Posted::new(self, rank, requests[at].slot);
            links[at].waited().then(|| VerbsOp(State::Posted(posted)))
        }))
    }

    fn load(&self, own: VerbsWord<'_>) -> Result<u64, Fault> {
        Ok(own.own()?.load(Ordering::Acquire))
    }

    fn store(&self, own: VerbsWord<'_>, value: u64) -> Result<(), Fault> {
        own.own()?.store(value, Ordering::Release);
        Ok(())
    }

    fn wait_until<'f, P>(&'f self, word: VerbsWord<'f>, predicate: P, patience: Patience) -> VerbsWait<'f, P>
    where
        P: Fn(u64) -> bool + Unpin + Send + 'f,
    {
        VerbsWait { fabric: self, own: word.own(), predicate, patience }
    }

    fn pause<'f>(&'f self, _word: VerbsWord<'f>, nanos: u64) -> VerbsPause<'f> {
        VerbsPause { fabric: self, until: self.now().saturating_add(nanos) }
    }

    fn now(&self) -> u64 {
        drive::now()
    }

    fn liveness(&self, rank: Rank) -> Liveness {
        if rank.0 < self.size() { self.0.liveness(rank) } else { Liveness::Left }
    }

    /// Reads a word of the home's cut table. A rank that has lost the connection to the home
    /// cannot. If the home's host is the rank's, and the rank lives, its CPU has refused to access the
    /// home's memory since the loss was recorded, which is before the cut.
    async fn has_cut(&self, home: Rank, rank: Rank) -> Result<bool, Fault> {
        check_rank(self, home)?;
        if self.liveness(home) != Liveness::Alive
            || matches!(self.liveness(rank), Liveness::Left | Liveness::NeverJoined)
        {
            return Ok(true);
        }
        if home == self.0.rank {
            return Ok(self.0.region_table.has_cut(rank));
        }
        let from = self.peer(home)?.home.after(RegionTable::cut_of(rank));
        let number = self.operate(Step { rank: home, verb: Verb::Read { from }, value: 0 }).await?;
        Ok(number != 0)
    }

    fn failure(&self, index: u32) -> Option<Rank> {
        self.0.failures.get(index)
    }

    /// A failure counts once when it is noticed, and once when this rank has cut the failed one.
    fn ends(&self) -> u32 {
        self.0.job_segment.changes().wrapping_add(self.0.failures.count())
    }

    fn lost_connection(&self, home: Rank, from: Rank) -> Option<Rank> {
        let known = |rank: &Rank| *rank >= from && self.0.knows_lost(home, *rank);
        self.0.job_segment.lost_connections(home).find(known)
    }
}

/// The length of a word in bytes.
const WORD: usize = 8;

/// An operation on a word, as a work request needs it.
#[derive(Clone, Copy)]
struct Step {
    rank: Rank,
    verb: Verb,
    /// The value of a write.
    value: u64,
}

impl Step {
    #[inline(always)] // for a constant link, only the stores remain
    fn of(link: Link<VerbsWord<'_>>) -> Self {
        let (word, verb, value) = match link {
            Link::Read { word, .. } => (word, Verb::Read { from: word.remote() }, 0),
            Link::Write { word, value, notify: Notify::No, .. } => (word, Verb::Write { to: word.remote() }, value),
            Link::Write { word, value, notify: Notify::Yes, .. } => {
                (word, Verb::WriteAndRing { to: word.remote() }, value)
            }
            Link::CompareSwap { word, expected, new, .. } => {
                (word, Verb::CompareSwap { at: word.remote(), expected, new }, 0)
            }
            Link::FetchAdd { word, add, .. } => (word, Verb::FetchAdd { at: word.remote(), add }, 0),
        };
        Self { rank: word.rank(), verb, value }
    }

    #[inline]
    fn request(self, inner: &Inner, taken: &TakenSlot<'_>) -> WorkRequest {
        if self.verb.writes() {
            taken.buffer.word().store(self.value, Ordering::Relaxed);
        } else if let Some(nothing) = inner.unanswered {
            taken.buffer.word().store(nothing, Ordering::Relaxed);
        }
        WorkRequest::new(self.verb, taken, WORD)
    }
}

/// Whether an awaited read is followed by anything but reads, or a write by an atomic.
fn has_order_to_keep<W>(links: &[Link<W>]) -> bool {
    let behind_first = |is_first: fn(&Link<W>) -> bool, is_behind: fn(&Link<W>) -> bool| {
        links.iter().skip_while(|link| !is_first(link)).any(is_behind)
    };
    behind_first(|link| matches!(link, Link::Read { waited: true, .. }), |link| !matches!(link, Link::Read { .. }))
        || behind_first(
            |link| matches!(link, Link::Write { .. }),
            |link| matches!(link, Link::CompareSwap { .. } | Link::FetchAdd { .. }),
        )
}

impl Verbs {
    /// Posts a chain without fences. A read whose answer is lost is repeated, and must not see
    /// later links, which are therefore posted after the answer. An atomic is posted when the
    /// writes before it have completed, or its own answer may be lost (see `device`).
    #[cold]
    fn post_apart<const N: usize>(&self, rank: Rank, links: &[Link<VerbsWord<'_>>; N], requests: [WorkRequest; N]) {
        for (link, request) in links.iter().zip(requests) {
            self.0.post(self.to(rank), [WorkRequest { unsignaled: false, ..request }]);
            if matches!(link, Link::Read { waited: true, .. }) {
                self.0.wait_for(request.slot);
            }
        }
    }

    fn operate(&self, step: Step) -> VerbsOp {
        match self.0.take_slot(WORD) {
            Ok(taken) => {
                self.0.post(self.to(step.rank), [step.request(&self.0, &taken)]);
                VerbsOp(State::Posted(Posted::new(self, step.rank, taken.slot)))
            }
            Err(fault) => VerbsOp::ended(Err(fault)),
        }
    }

    /// Reads a region's entry in its owner's region table.
    pub(super) fn look_up(&self, rank: Rank, region: RegionId) -> Result<SegmentKey, Fault> {
        let peer = self.peer(rank)?;
        let mut bytes = [0; Entry::BYTES as usize];
        let key = if region == RegionId(0) {
            SegmentKey { rank, region, len: crate::WORLD_BYTES, address: peer.home.address, rkey: peer.home.key }
        } else {
            block_on(self, self.get_from(rank, peer.home.after(Entry::offset(region)), &mut bytes))?;
            Entry::decode(&bytes, rank, region)?
        };
        Ok(key)
    }
}

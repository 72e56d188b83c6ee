//! Messages of datagrams that are received into memory of users (UD-ZCopy: koop-2008, section 3.2).
//!
//! A rank has a few queue pairs for such messages beside that of its packets, made at first use. One at a time is for a
//! message: for each datagram it has a receive with the datagram's place. Its immediate data is its number, so that the
//! [`Placement`] knows what is lost or came in another one's place; the 40 bytes of a route that precede each datagram go
//! elsewhere.
//!
//! A late datagram must not reach the next message's memory. So each message has a key of its own (Q_Key), which the card
//! compares: it drops those of earlier messages, however late they are, and the queue pair need not rest in between. A
//! queue pair is reset before its memory goes to others, unless all of its receives were used.

use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use onesided_job::lock;
use onesided_remote_memory::{Fault, FaultKind, Rank, RegionId, RemoteMemory, debug};

use crate::datagrams::{Placement, Places};
use crate::verbs::Verbs;
use crate::verbs::datagrams::CardDatagrams;
use crate::verbs::device::Device;
use crate::verbs::raw::{LandingQueue, LaunchQueue, Local};
use crate::verbs::segment::VerbsSegment;
use crate::waiting::drive::now;
use crate::{ChannelCounts, ChannelMemory, Landing, Launch, Missing, SegmentKey};

/// How many messages are received so at a time.
const QUEUES: u32 = 4;
/// How many datagrams a message has at most.
const RECEIVES: u32 = 4096;
/// How many datagrams to others are under way at a time.
const SENDS: u32 = 256;
/// When a sleeping task looks again, in nanoseconds: these completions wake nobody.
const SOON: u64 = 50_000;

/// What a rank receives and sends so.
#[derive(Debug)]
pub(super) struct Landings {
    /// How many receives a queue pair has.
    receives: u32,
    port: u8,
    queues: Mutex<Queues>,
    launches: Mutex<Option<Arc<Mutex<LaunchQueue>>>>,
    /// Datagrams that came in their place, those that were moved, and those that were asked for again.
    landed: AtomicU64,
    moved: AtomicU64,
    missing: AtomicU64,
}

#[derive(Debug)]
struct Queues {
    free: Vec<LandingQueue>,
    made: u32,
    /// That of the last message.
    key: u32,
}

impl Landings {
    pub(super) fn new(device: &Device) -> Self {
        let most = device.attributes.max_qp_wr.min(device.attributes.max_cqe - 1);
        let queues = Queues { free: Vec::new(), made: 0, key: RandomState::new().hash_one(0) as u32 };
        Self {
            receives: RECEIVES.min(most.max(0) as u32),
            port: device.port,
            queues: Mutex::new(queues),
            launches: Mutex::default(),
            landed: AtomicU64::new(0),
            moved: AtomicU64::new(0),
            missing: AtomicU64::new(0),
        }
    }

    /// What its queue pairs take of this rank's memory.
    pub(super) fn memory(&self) -> ChannelMemory {
        let (made, sends) = (lock(&self.queues).made, if lock(&self.launches).is_some() { SENDS } else { 0 });
        let requests = u64::from(made) * u64::from(self.receives) + u64::from(sends);
        ChannelMemory { count: made + u32::from(sends > 0), bytes: requests * ChannelMemory::REQUEST }
    }

    pub(super) fn counts(&self, counts: ChannelCounts) -> ChannelCounts {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        ChannelCounts {
            landed: count(&self.landed),
            moved: count(&self.moved),
            missing: count(&self.missing),
            ..counts
        }
    }
}

/// The memory of a message, and the queue pair that receives it until it is over.
struct VerbsLanding {
    fabric: Verbs,
    queue: Option<LandingQueue>,
    into: VerbsSegment,
    placement: Placement,
}

debug!([] VerbsLanding, |this| "VerbsLanding({} datagrams, {})", this.placement.places().count(), this.fabric.0.rank);

impl VerbsLanding {
    /// Ends what is received, so that the next message may have the queue pair.
    fn close(&mut self) {
        let (Some(queue), Some(landings)) = (self.queue.take(), self.fabric.landings()) else { return };
        let is_closed = queue.close().is_ok();
        let mut queues = lock(&landings.landings.queues);
        match is_closed {
            true => queues.free.push(queue),
            false => queues.made -= 1, // it is destroyed
        }
    }
}

impl Drop for VerbsLanding {
    fn drop(&mut self) {
        self.close();
    }
}

impl Landing for VerbsLanding {
    fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<Result<Missing, Fault>> {
        let Self { fabric, queue: Some(queue), placement, .. } = self else {
            return Poll::Ready(Err(Fault::new(FaultKind::Closed)));
        };
        queue.poll(|(slot, number, len)| placement.arrived(slot, number, len));
        let now = now();
        if placement.waits(now).is_some() {
            fabric.0.turn();
            fabric.0.endpoint.register_waker(cx, now + SOON);
            return Poll::Pending;
        }
        self.close();
        let into = &self.into;
        let settled = self.placement.settle(|at, bytes| into.read(at, bytes), |at, bytes| into.write(at, bytes));
        let (missing, ChannelCounts { landed, moved, missing: lost, .. }) = settled?;
        if let Some(CardDatagrams { landings, .. }) = self.fabric.landings() {
            landings.landed.fetch_add(landed, Ordering::Relaxed);
            landings.moved.fetch_add(moved, Ordering::Relaxed);
            landings.missing.fetch_add(lost, Ordering::Relaxed);
        }
        Poll::Ready(Ok(missing))
    }
}

/// The datagrams of a message, from memory of this rank.
struct VerbsLaunch {
    fabric: Verbs,
    queue: Arc<Mutex<LaunchQueue>>,
    from: VerbsSegment,
    offset: u64,
    to: (Rank, u32, u32),
    places: Places,
    next: u32,
    /// When it has left, all have.
    last: Option<u64>,
}

impl Future for VerbsLaunch {
    type Output = Result<(), Fault>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { fabric, queue, from, offset, to: (rank, number, key), places, next, last } = &mut *self;
        let Some(handle) = fabric.0.connector.handle(&fabric.0.domain, fabric.0.rank, *rank) else {
            return Poll::Ready(Err(Fault::of(FaultKind::ConnectionLost, *rank)));
        };
        let (start, count) = (from.local(*offset)?, places.count());
        let mut queue = lock(queue);
        queue.poll();
        while !queue.is_broken && *next < count {
            let pieces = (*next..).map_while(|number| {
                let (at, len) = places.of(number)?;
                Some((number, Local { address: start.address + at, len, ..start }))
            });
            let (posted, end) = queue.post((handle, *number, *key), pieces, |number| number + 1 == count);
            if posted == 0 {
                break;
            }
            *next += posted as u32;
            *last = Some(end);
        }
        if queue.is_broken {
            return Poll::Ready(Err(Fault::of(FaultKind::ConnectionLost, *rank)));
        }
        if *next == count && last.is_none_or(|last| queue.has_left(last)) {
            return Poll::Ready(Ok(()));
        }
        drop(queue);
        fabric.0.turn();
        fabric.0.endpoint.register_waker(cx, now() + SOON);
        Poll::Pending
    }
}

impl Verbs {
    fn landings(&self) -> Option<&CardDatagrams> {
        self.0.datagrams.as_ref()
    }

    /// The longest message to a rank, or of one, that may go so.
    pub(super) fn longest_landing(&self, peer: Rank) -> u64 {
        let is_other = peer != self.0.rank;
        let of_card = |card: &CardDatagrams| u64::from(card.landings.receives) * u64::from(card.longest());
        self.landings().filter(|_| is_other).map_or(0, of_card)
    }

    pub(super) fn begin_landing(&self, into: &VerbsSegment, len: u64) -> Result<(SegmentKey, Box<dyn Landing>), Fault> {
        let refused = |kind| Fault::of(kind, self.0.rank);
        let card = self.landings().ok_or(refused(FaultKind::Unsupported))?;
        let (landings, unit) = (&card.landings, card.longest());
        if len == 0 || len > u64::from(landings.receives) * u64::from(unit) {
            return Err(refused(FaultKind::Unsupported));
        }
        into.check(0, len)?;
        let start = into.local(0)?;
        let (queue, key) = {
            let mut queues = lock(&landings.queues);
            queues.key = queues.key.wrapping_add(1) & 0x7fff_ffff; // the highest bit stands for another key
            let queue = match queues.free.pop() {
                Some(queue) => queue,
                None if queues.made == QUEUES => return Err(refused(FaultKind::Full)),
                None => {
                    let made = LandingQueue::new(&self.0.domain, landings.port, landings.receives);
                    let made = made.map_err(|_| refused(FaultKind::NoMemory))?;
                    queues.made += 1;
                    made
                }
            };
            (queue, queues.key)
        };
        let address = u64::from(queue.number()) | u64::from(unit) << u32::BITS;
        let placement = Placement::new(Places::new(len, unit));
        let places = placement.places().all();
        let places = places.map(|(at, len)| Local { address: start.address + at, len, ..start });
        let is_open = queue.open(key, places).is_ok();
        // What is dropped here is closed.
        let landing = VerbsLanding { fabric: self.clone(), queue: Some(queue), into: into.clone(), placement };
        if !is_open {
            return Err(refused(FaultKind::NoMemory));
        }
        let key = SegmentKey { rank: self.0.rank, region: RegionId(0), len, address, rkey: key };
        Ok((key, Box::new(landing)))
    }

    pub(super) fn begin_launch(
        &self,
        (from, offset): (&VerbsSegment, u64),
        &SegmentKey { rank, len, address, rkey, .. }: &SegmentKey,
    ) -> Result<Launch, Fault> {
        let refused = |kind| Fault::of(kind, rank);
        let card = self.landings().ok_or(refused(FaultKind::Unsupported))?;
        from.check(offset, len)?;
        let (number, unit) = (address as u32, (address >> u32::BITS) as u32);
        // The number of a queue pair has 24 bits.
        if unit != card.longest() || len > self.longest_landing(rank) || number >> 24 != 0 || rank.0 >= self.size() {
            return Err(refused(FaultKind::Unsupported));
        }
        let queue = {
            let mut queue = lock(&card.landings.launches);
            match queue.as_ref().filter(|queue| !lock(queue).is_broken) {
                Some(queue) => Arc::clone(queue),
                None => {
                    let made = LaunchQueue::new(&self.0.domain, card.landings.port, SENDS);
                    let made = Arc::new(Mutex::new(made.map_err(|_| refused(FaultKind::NoMemory))?));
                    Arc::clone(queue.insert(made))
                }
            }
        };
        Ok(Box::pin(VerbsLaunch {
            fabric: self.clone(),
            queue,
            from: from.clone(),
            offset,
            to: (rank, number, rkey),
            places: Places::new(len, unit),
            next: 0,
            last: None,
        }))
    }
}

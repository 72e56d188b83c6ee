//! A rank's end of the shared-memory fabric.

use std::collections::HashMap;
use std::future::{Ready, poll_fn, ready};
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_utils::CachePadded;
use onesided_remote_memory::{
    At, Chain, Fault, FaultKind, Link, Liveness, Mailbox, Message, Notify, Patience, Port, Rank, RegionId, RemoteMemory,
};

use crate::bootstrap::{Job, Process};
use crate::crowd::Crowd;
use crate::drive;
use crate::endpoint::{Driver, Endpoint};
use crate::fabric::check_rank;
use crate::full::FullAfter;
use crate::once_table::OnceTable;
use crate::ports::Ports;
use crate::shm::arena::{Arena, Owner, PIECE};
use crate::shm::board::{Board, BoardRing};
use crate::shm::lent::{Between, Lent};
use crate::shm::ring::{Reader, Writer};
use crate::shm::serving::Service;
use crate::shm::waits::{ShmPause, ShmRecv, ShmSend, ShmWait};
use crate::shm::{Mapping, ShmSegment};
use crate::{
    AtomicAgent, Capabilities, Drive, Error, Fabric, Path, Segment, SegmentKey, ServerThread, Task, Ticket, UserMemory,
    WORDLESS, WORLD_BYTES,
};

/// A rank's end of the shared-memory fabric. All clones are the same rank; the last one that is dropped leaves the job.
#[derive(Clone, Debug)]
pub struct Shm(pub(super) Arc<Inner>);

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) job: Job,
    crowd: Crowd,
    next_region: AtomicU32,
    /// Regions that were reached by [`At`], kept until the end: words are borrowed from them.
    reached: Box<[OnceTable<ShmSegment>]>,
    /// The same of the pieces of each rank's arena, by slot.
    pub(super) pieces: Box<[OnceTable<ShmSegment>]>,
    /// This rank's arena, once it has allocated; those of the others that were met.
    pub(super) arena: Mutex<Option<Arc<Owner>>>,
    pub(super) arenas: Box<[OnceLock<Arc<Arena>>]>,
    worlds: Box<[ShmSegment]>,
    pub(super) outboxes: Box<[CachePadded<Mutex<Writer>>]>,
    inbox: Mutex<Box<[Reader]>>,
    pub(super) ports: Ports,
    pub(super) endpoint: Endpoint<Seat>,
    pub(super) full_after: FullAfter,
    /// What this rank has lent.
    service: Arc<Service>,
    /// Peers' lent memory that was opened, once for all who reach it from here: they share one line to its owner.
    opened: Mutex<HashMap<(Rank, RegionId), Weak<Lent>>>,
}

/// Marks the regions that are lent and not mapped: what is published of them is their control page.
const LENT: u32 = 1 << 31;

/// Whether a region is a piece of an arena.
const fn is_piece(region: RegionId) -> bool {
    region.0 & (LENT | PIECE) == PIECE
}

/// A word of shared memory, mapped here.
#[derive(Clone, Copy, Debug)]
pub struct ShmWord<'f> {
    pub(super) word: &'f AtomicU64,
    pub(super) owner: Rank,
}

impl<'f> ShmWord<'f> {
    /// The word itself, if it is this rank's own.
    #[inline]
    pub(crate) fn own(self, me: Rank) -> Result<&'f AtomicU64, Fault> {
        if self.owner == me { Ok(self.word) } else { Err(Fault::of(FaultKind::NotOwn, self.owner)) }
    }

    /// What a read finds.
    #[inline]
    pub(crate) fn load(self) -> u64 {
        self.word.load(Ordering::Acquire)
    }

    /// A write.
    #[inline]
    pub(crate) fn store(self, value: u64) {
        self.word.store(value, Ordering::Release);
    }

    /// What a compare-swap finds.
    #[inline]
    pub(crate) fn compare_swap(self, expected: u64, new: u64) -> u64 {
        let (Ok(found) | Err(found)) = self.word.compare_exchange(expected, new, Ordering::AcqRel, Ordering::Acquire);
        found
    }

    /// What a fetch-add finds.
    #[inline]
    pub(crate) fn fetch_add(self, add: u64) -> u64 {
        self.word.fetch_add(add, Ordering::AcqRel)
    }
}

impl Shm {
    /// The endpoint of a job's rank.
    ///
    /// # Errors
    /// [`Error::NoFabric`] if the ranks are on several hosts. [`Error::Operation`] if the board does not hold what it
    /// should. [`Error::Join`] if [`FULL_AFTER`](crate::FULL_AFTER) makes no sense.
    pub fn new(job: Job) -> Result<Self, Error> {
        let hosts = job.hosts();
        if hosts > 1 {
            let what = format!("the job's ranks are on {hosts} hosts, and shm joins ranks of one host; use verbs");
            return Err(Error::NoFabric { name: "shm".into(), what });
        }
        let board = Arc::clone(&job.board);
        let ranks = || (0..board.size()).map(Rank);
        let world = |rank| {
            let memory = Arc::clone(board.memory());
            ShmSegment::new(memory, (board.world(rank), WORLD_BYTES), (rank, RegionId(0)), None)
        };
        let worlds =
            ranks().map(world).collect::<Result<_, _>>().map_err(Error::operation("map the world segments"))?;
        Ok(Self(Arc::new(Inner {
            crowd: Crowd::new(),
            next_region: AtomicU32::new(1),
            reached: ranks().map(|_| OnceTable::default()).collect(),
            pieces: ranks().map(|_| OnceTable::default()).collect(),
            arena: Mutex::default(),
            arenas: ranks().map(|_| OnceLock::new()).collect(),
            worlds,
            outboxes: ranks().map(|_| CachePadded::default()).collect(),
            inbox: Mutex::new(ranks().map(|_| Reader::default()).collect()),
            ports: Ports::default(),
            service: Arc::default(),
            opened: Mutex::default(),
            endpoint: Endpoint::new(Seat { board, rank: job.rank }),
            full_after: FullAfter::read()?,
            job,
        })))
    }

    /// Sets what [`FULL_AFTER`](crate::FULL_AFTER) says: for tests, which do not wait for a minute.
    #[doc(hidden)]
    pub fn set_full_after(&self, after: Duration) {
        self.0.full_after.set(after);
    }

    pub(super) fn board(&self) -> &Board {
        &self.0.job.board
    }

    pub(super) fn me(&self) -> Rank {
        self.0.job.rank
    }

    /// The next region's number, with a mark.
    pub(super) fn next_region(&self, mark: u32) -> RegionId {
        RegionId(self.0.next_region.fetch_add(1, Ordering::Relaxed) & !(LENT | PIECE) | mark)
    }

    fn between(&self) -> Between {
        let Inner { job, service, .. } = &*self.0;
        Between { board: Arc::clone(&job.board), service: Arc::clone(service), me: job.rank }
    }

    /// `NotOwn` for what lies at a peer.
    #[inline]
    fn check_own(&self, owner: Rank) -> Result<(), Fault> {
        if owner == self.me() { Ok(()) } else { Err(Fault::of(FaultKind::NotOwn, owner)) }
    }

    /// Takes in what has arrived from all peers.
    pub(super) fn take_in(&self) -> Result<(), Fault> {
        // Waits for another thread that is at it: what that one takes in may be for us.
        let mut inbox = self.0.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        for (from, reader) in (0..).map(Rank).zip(inbox.iter_mut()) {
            let ring = BoardRing::new(self.board(), from, self.me());
            while let Some(port) = reader.peek(&ring) {
                if usize::from(port.0) < Port::COUNT && !self.0.ports.has_room(port) {
                    break;
                }
                let message = reader.take(&ring, from)?;
                self.0.ports.push(port, message).map_err(|_| Fault::of(FaultKind::Protocol, from))?;
            }
        }
        Ok(())
    }
}

impl Inner {
    fn leave(&self) {
        if std::thread::panicking() {
            self.job.board.declare_dead(self.job.rank); // whoever unwinds has not done what the others wait for
        } else {
            self.job.board.leave(self.job.rank);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.leave();
    }
}

impl RemoteMemory for Shm {
    type Word<'f> = ShmWord<'f>;
    type Op = Ready<Result<u64, Fault>>;
    type Wait<'f, P: Fn(u64) -> bool + Unpin + Send + 'f> = ShmWait<'f, P>;
    type Pause<'f> = ShmPause<'f>;

    #[inline]
    fn rank(&self) -> Rank {
        self.me()
    }

    #[inline]
    fn size(&self) -> u32 {
        self.board().size()
    }

    fn word(&self, at: At) -> Result<ShmWord<'_>, Fault> {
        check_rank(self, at.rank)?;
        if at.region == RegionId(0) {
            return self.0.worlds[at.rank.index()].word(at.offset);
        }
        if at.region.0 & LENT != 0 {
            self.0.job.exchange.fetch(at.rank, at.region).map_err(|error| error.fault())?;
            return Err(Fault::of(FaultKind::Unsupported, at.rank).with_detail(WORDLESS));
        }
        if is_piece(at.region) {
            return self.piece(at.rank, at.region)?.word(at.offset);
        }
        let reach = || {
            let memory = self.0.job.exchange.fetch(at.rank, at.region).map_err(|error| error.fault())?;
            let all = (0, memory.len() as u64);
            ShmSegment::new(memory, all, (at.rank, at.region), None)
        };
        self.0.reached[at.rank.index()].get_or_try_init(at.region.0, reach)?.word(at.offset)
    }

    #[inline]
    fn read(&self, word: ShmWord<'_>) -> Self::Op {
        ready(Ok(word.load()))
    }

    #[inline]
    fn write(&self, word: ShmWord<'_>, value: u64, notify: Notify) -> Self::Op {
        word.store(value);
        if notify == Notify::Yes {
            self.board().wake(word.owner);
        }
        ready(Ok(0))
    }

    #[inline]
    fn compare_swap(&self, word: ShmWord<'_>, expected: u64, new: u64) -> Self::Op {
        ready(Ok(word.compare_swap(expected, new)))
    }

    #[inline]
    fn fetch_add(&self, word: ShmWord<'_>, add: u64) -> Self::Op {
        ready(Ok(word.fetch_add(add)))
    }

    fn post<const N: usize>(&self, links: [Link<ShmWord<'_>>; N]) -> Chain<Self::Op, N> {
        Chain::of(links.map(|link| {
            if let Link::Read { .. } = link {
                fence(Ordering::SeqCst); // what the links before it wrote may still be in this core's store buffer
            }
            link.waited().then_some(self.post_link(link))
        }))
    }

    #[inline]
    fn load(&self, own: ShmWord<'_>) -> Result<u64, Fault> {
        own.own(self.me()).map(|own| own.load(Ordering::Acquire))
    }

    #[inline]
    fn store(&self, own: ShmWord<'_>, value: u64) -> Result<(), Fault> {
        own.own(self.me()).map(|own| own.store(value, Ordering::Release))
    }

    fn wait_until<'f, P>(&'f self, own: ShmWord<'f>, predicate: P, patience: Patience) -> ShmWait<'f, P>
    where
        P: Fn(u64) -> bool + Unpin + Send + 'f,
    {
        ShmWait { shm: self, own, predicate, patience }
    }

    #[inline]
    fn pause<'f>(&'f self, _word: ShmWord<'f>, nanos: u64) -> ShmPause<'f> {
        ShmPause { shm: self, nanos, until: None }
    }

    fn now(&self) -> u64 {
        drive::now()
    }

    fn liveness(&self, rank: Rank) -> Liveness {
        if rank.0 < self.size() { self.board().liveness(rank) } else { Liveness::Left }
    }

    fn failed_rank(&self) -> Option<Rank> {
        self.board().failed_rank()
    }
}

impl Mailbox for Shm {
    type Send<'f> = ShmSend<'f>;
    type Recv<'f> = ShmRecv<'f>;

    fn send<'f>(&'f self, to: Rank, port: Port, bytes: &[u8], notify: Notify) -> ShmSend<'f> {
        let message = check_rank(self, to).and_then(|()| {
            if usize::from(port.0) >= Port::COUNT {
                return Err(Fault::new(FaultKind::Protocol).with_detail(u32::from(port.0)));
            }
            Message::new(self.me(), bytes)
        });
        let mut send = ShmSend { shm: self, to, port, notify, message, sent: false, until: None };
        send.try_now();
        send
    }

    fn recv(&self, port: Port, patience: Patience) -> ShmRecv<'_> {
        ShmRecv { shm: self, port, patience }
    }
}

impl Shm {
    /// Memory that a rank has lent, as it was opened before or is now.
    fn open_lent(&self, place: (Rank, RegionId), page: Arc<Mapping>) -> Result<Arc<Lent>, Fault> {
        let mut opened = self.0.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lent) = opened.get(&place).and_then(Weak::upgrade) {
            return Ok(lent);
        }
        let lent = Arc::new(Lent::open(self.between(), place.0, page)?);
        opened.retain(|_, lent| lent.strong_count() > 0);
        opened.insert(place, Arc::downgrade(&lent));
        Ok(lent)
    }
}

impl Fabric for Shm {
    type Segment = ShmSegment;
    type Transfer = Ready<Result<(), Fault>>;
    type Get<'b> = Ready<Result<(), Fault>>;
    type Flush<'f> = Ready<Result<(), Fault>>;

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            completes_at_post: true,
            memory_survives: true,
            ordered: true,
            ..Capabilities::new("shm", AtomicAgent::Cpu)
        }
    }

    fn allocate(&self, len: u64) -> Result<ShmSegment, Error> {
        self.allocate_one(len)
    }

    fn allocate_two(&self, lens: [u64; 2]) -> Result<(ShmSegment, ShmSegment), Error> {
        self.allocate_both(lens)
    }

    fn populate(&self, own: &ShmSegment) -> Result<(), Error> {
        self.populate_own(own)
    }

    fn register(&self, memory: UserMemory) -> Result<ShmSegment, Error> {
        let len = memory.len() as u64;
        let failed = |what: &str, kind, source| Error::Allocate {
            len,
            what: what.into(),
            fault: Fault::of(kind, self.me()),
            source,
        };
        if memory.is_empty() {
            return Err(failed("there are no bytes to register", FaultKind::OutOfRange, None));
        }
        if !memory.start().addr().get().is_multiple_of(8) {
            return Err(failed("the memory does not begin at a multiple of 8", FaultKind::Misaligned, None));
        }
        let lent = Lent::new(self.between(), memory).map_err(|(source, _)| {
            let (what, kind) = explain(&source);
            failed(what, kind, Some(source))
        })?;
        let (id, lent) = (self.next_region(LENT), Arc::new(lent));
        let exchange = Arc::clone(&self.0.job.exchange);
        exchange.publish(id, lent.control.memory())?;
        let own = Process::own();
        let alone = (0..self.size()).all(|rank| self.board().process(Rank(rank)) == Some(own));
        // Taken back with it if nobody is there to serve it.
        let segment = ShmSegment::of_lent(Arc::clone(&lent), (self.me(), id), Some(exchange));
        if !alone && self.0.service.add(&lent) {
            let service = Arc::clone(&self.0.service);
            let serving = poll_fn(move |_| if service.serve() { Poll::Pending } else { Poll::Ready(()) });
            self.serve(Box::pin(serving)).map_err(|fault| {
                self.0.service.stopped();
                failed("no thread to serve peers (see `ulimit -u` and `ulimit -v`)", fault.kind(), None)
            })?;
        }
        Ok(segment)
    }

    fn reclaim(&self, own: &ShmSegment) -> Result<Option<UserMemory>, Fault> {
        let lent = own.lent().filter(|lent| lent.is_whole());
        let memory = lent.ok_or(Fault::of(FaultKind::Unsupported, own.rank()))?.memory.take_back()?;
        own.retract();
        Ok(memory)
    }

    fn part(&self, own: &ShmSegment, offset: u64, len: u64) -> Result<ShmSegment, Fault> {
        self.check_own(own.rank())?;
        own.part(offset, len)
    }

    fn change(
        &self,
        segment: &ShmSegment,
        offset: u64,
        words: usize,
        change: &mut dyn FnMut(usize, u64) -> u64,
    ) -> Result<(), Fault> {
        let lent = segment.lent().ok_or(Fault::of(FaultKind::Unsupported, segment.rank()))?;
        let bytes = words.checked_mul(8).ok_or(Fault::of(FaultKind::OutOfRange, segment.rank()))?;
        lent.memory.change(lent.place(offset, bytes)?, words, change)
    }

    fn mapped<'s>(&self, segment: &'s ShmSegment) -> Option<&'s [AtomicU64]> {
        segment.words()
    }

    fn path(&self, segment: &ShmSegment) -> Path {
        segment.lent().map_or(Path::Cpu, |lent| lent.memory.path())
    }

    fn open(&self, key: &SegmentKey) -> Result<ShmSegment, Error> {
        let failed = |what: &str, kind| Error::Open {
            rank: key.rank,
            what: what.into(),
            fault: Fault::of(kind, key.rank),
            source: None,
        };
        check_rank(self, key.rank).map_err(|_| failed("the world has no such rank", FaultKind::NoSuchRank))?;
        if key.region == RegionId(0) {
            return self.world_segment(key.rank);
        }
        if is_piece(key.region) {
            return self.open_piece(key);
        }
        let memory = self.0.job.exchange.fetch(key.rank, key.region)?;
        if key.region.0 & LENT != 0 {
            let lent = self.open_lent((key.rank, key.region), memory);
            let lent = lent.map_err(|fault| failed("it is lent no longer", fault.kind()))?;
            let all = lent.len();
            let segment = ShmSegment::of_lent(lent, (key.rank, key.region), None);
            let part =
                if (key.address, key.len) == (0, all) { Ok(segment) } else { segment.part(key.address, key.len) };
            return part.map_err(|fault| failed("the key is of no part of the region", fault.kind()));
        }
        if key.len == 0 || key.len > memory.len() as u64 {
            return Err(failed("the key's length is not the region's", FaultKind::OutOfRange));
        }
        ShmSegment::new(memory, (0, key.len), (key.rank, key.region), None).map_err(Error::operation("open"))
    }

    fn world_segment(&self, rank: Rank) -> Result<ShmSegment, Error> {
        check_rank(self, rank).map_err(Error::operation("open a world segment"))?;
        Ok(self.0.worlds[rank.index()].clone())
    }

    #[inline]
    fn word_in<'s>(&'s self, segment: &'s ShmSegment, offset: u64) -> Result<ShmWord<'s>, Fault> {
        segment.word(offset)
    }

    #[inline]
    fn words_in<'s, const N: usize>(&'s self, segment: &'s ShmSegment, offset: u64) -> Result<[ShmWord<'s>; N], Fault> {
        segment.words_at(offset)
    }

    #[inline]
    fn put(&self, to: &ShmSegment, offset: u64, from: &[u8]) -> Result<(), Fault> {
        to.write(offset, from)
    }

    #[inline(always)] // a small get is less than a call
    fn get(&self, from: &ShmSegment, offset: u64, into: &mut [u8]) -> Ready<Result<(), Fault>> {
        ready(from.read(offset, into))
    }

    #[inline]
    fn put_pieces<'p>(&self, to: &ShmSegment, mut pieces: impl Iterator<Item = (u64, &'p [u8])>) -> Result<(), Fault> {
        match to.lent() {
            Some(lent) => lent.write_pieces(pieces),
            None => pieces.try_for_each(|(offset, from)| to.write(offset, from)),
        }
    }

    #[inline]
    fn get_pieces<'p>(
        &self,
        from: &ShmSegment,
        mut pieces: impl Iterator<Item = (u64, &'p mut [u8])>,
    ) -> Result<(), Fault> {
        match from.lent() {
            Some(lent) => lent.read_pieces(pieces),
            None => pieces.try_for_each(|(offset, into)| from.read(offset, into)),
        }
    }

    fn rdma_write(&self, from: (&ShmSegment, u64), to: (&ShmSegment, u64), len: u64) -> Self::Transfer {
        ready(self.check_own(from.0.rank()).and_then(|()| from.0.transfer(from.1, to, len)))
    }

    fn rdma_read(&self, from: (&ShmSegment, u64), into: (&ShmSegment, u64), len: u64) -> Self::Transfer {
        ready(self.check_own(into.0.rank()).and_then(|()| from.0.transfer(from.1, into, len)))
    }

    #[inline]
    fn flush(&self, target: Rank) -> Self::Flush<'_> {
        // Whoever's later store we do not see has to see what we stored: that takes the full fence. rustc 1.95 makes it
        // a locked `or` on x86-64, 8 ns; older ones that make it an `mfence` pay 17 ns.
        fence(Ordering::SeqCst);
        ready(check_rank(self, target))
    }

    /// Nothing to do: a release is a store or an atomic of release order.
    #[inline]
    fn flush_before_release(&self, _target: Rank) -> Self::Flush<'_> {
        ready(Ok(()))
    }

    #[inline]
    fn flush_local(&self, target: Rank) -> Self::Flush<'_> {
        ready(check_rank(self, target))
    }

    fn read_own(&self, own: &ShmSegment, offset: u64, into: &mut [u8]) -> Result<(), Fault> {
        self.check_own(own.rank())?;
        own.read(offset, into)
    }

    fn write_own(&self, own: &ShmSegment, offset: u64, from: &[u8]) -> Result<(), Fault> {
        self.check_own(own.rank())?;
        own.write(offset, from)
    }

    fn can_kill(&self, rank: Rank) -> bool {
        self.board().process(rank).is_some_and(|process| !process.is_own())
    }

    fn kill(&self, rank: Rank) -> Result<(), Fault> {
        match self.board().process(rank).filter(|process| !process.is_own()) {
            Some(process) => process.kill().map_err(|_| Fault::of(FaultKind::Refused, rank)),
            None => Err(Fault::of(FaultKind::Unsupported, rank)),
        }
    }

    fn spawn(&self, task: Task) {
        self.0.endpoint.spawn(task);
    }

    fn serve(&self, task: Task) -> Result<(), Fault> {
        self.0.endpoint.serve(task)
    }

    fn serve_apart(&self, task: Task, attendant: ServerThread) -> Result<Option<JoinHandle<()>>, Fault> {
        crate::assist::spawn(self, task, attendant).map(Some)
    }

    fn leave(&self) {
        self.0.endpoint.settle();
        self.0.leave();
    }
}

impl Drive for Shm {
    #[inline]
    fn progress(&self) -> usize {
        0 // an operation is done when it returns, and mail is taken in by whoever receives
    }

    fn arm(&self) -> Ticket {
        self.0.endpoint.driver().arm()
    }

    fn sleep(&self, ticket: Ticket, until: u64) {
        self.0.endpoint.driver().sleep(ticket, until);
    }

    fn disarm(&self, _ticket: Ticket) {
        self.board().doorbell(self.me()).disarm();
    }

    fn oversubscribed(&self) -> bool {
        self.0.crowd.is(self.board(), self.me())
    }

    fn shares_its_core(&self) -> bool {
        self.0.crowd.attends()
    }

    fn unfinished(&self) -> usize {
        self.0.endpoint.adopted()
    }
}

/// A rank's place on the board, without its part in the job.
#[derive(Debug)]
pub(super) struct Seat {
    board: Arc<Board>,
    rank: Rank,
}

impl Driver for Seat {
    fn now(&self) -> u64 {
        drive::now()
    }

    fn progress(&self) {}

    fn arm(&self) -> Ticket {
        self.board.doorbell(self.rank).arm()
    }

    fn sleep(&self, ticket: Ticket, until: u64) {
        match until.checked_sub(self.now()) {
            _ if until == u64::MAX => self.board.sleep(self.rank, ticket, Duration::MAX),
            None | Some(0) => std::thread::yield_now(), // somebody tries without a pause, and others need the core
            Some(nanos) => self.board.sleep(self.rank, ticket, Duration::from_nanos(nanos)),
        }
        self.board.doorbell(self.rank).disarm();
    }

    fn wake(&self) {
        self.board.wake(self.rank);
    }

    fn wake_others(&self, armed: Ticket) -> Ticket {
        self.board.wake_others(self.rank, armed)
    }
}

/// What a failure to make or map memory means, and what would help.
pub(crate) fn explain(source: &io::Error) -> (&'static str, FaultKind) {
    use rustix::io::Errno;
    match source.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOMEM | Errno::NOSPC) => {
            ("no memory (see the limits on memory and on /dev/shm's file system)", FaultKind::NoMemory)
        }
        Some(Errno::MFILE | Errno::NFILE) => ("no file descriptors left (raise `ulimit -n`)", FaultKind::NoDescriptors),
        Some(Errno::FBIG) => ("the file size limit is too small (raise `ulimit -f`)", FaultKind::NoMemory),
        _ => ("the system refused", FaultKind::Refused),
    }
}

/// Runs `ranks` threads, each with an endpoint of one job, and gives what each returned: for tests of what stands on
/// this fabric; [`crate::threads`] is for everybody else.
///
/// # Errors
/// [`Error::Join`]: no memory for the board, or no threads.
///
/// # Panics
/// If a rank panics: the others see it as dead, and the panic goes on here when all have ended.
pub fn threads<T: Send>(ranks: u32, run: impl Fn(Shm) -> T + Sync) -> Result<Vec<T>, Error> {
    crate::bootstrap::local::threads(ranks, |job| Ok(run(Shm::new(job)?)))
}

//! Segments and bulk data of shared memory: a transfer is a copy.

use std::future::{Ready, poll_fn, ready};
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Weak};
use std::task::Poll;

use onesided_job::{Process, lock};
use onesided_remote_memory::{Fault, FaultKind, Rank, RegionId, RemoteMemory};

use crate::shm::control::Control;
use crate::shm::region::{USER_MEMORY, is_block};
use crate::shm::transport::ShmTransport;
use crate::shm::user_region::UserRegion;
use crate::shm::words::ShmWord;
use crate::shm::{Shm, ShmSegment};
use crate::waiting::peer_status::check_rank;
use crate::waiting::tasks::endpoint;
use crate::{
    AtomicAgent, Capabilities, Endpoint, Error, Events, Fabric, Fence, Fencing, PeerProcesses, Segment, SegmentKey,
    SolicitedEvents, UserMemory,
};

impl Shm {
    /// User memory of a rank, already open or opened now.
    fn open_user(&self, place: (Rank, RegionId), page: ShmSegment) -> Result<Arc<UserRegion>, Fault> {
        let mut opened = lock(&self.0.opened);
        let user = match opened.get(&place).and_then(Weak::upgrade) {
            Some(user) => user,
            None => {
                let user = Arc::new(UserRegion::open(self.between(), place.0, page)?);
                opened.retain(|_, user| user.strong_count() > 0);
                opened.insert(place, Arc::downgrade(&user));
                user
            }
        };
        if user.is_shut() {
            return Err(Fault::of(FaultKind::NoSuchRegion, place.0));
        }
        Ok(user)
    }
}

impl Fabric for Shm {
    type Segment = ShmSegment;
    type Transfer = Ready<Result<(), Fault>>;
    type Get<'b> = Ready<Result<(), Fault>>;
    type Flush<'f> = Ready<Result<(), Fault>>;
    type Transport = ShmTransport;

    fn transport(&self) -> Result<ShmTransport, Fault> {
        self.take_transport()
    }

    #[inline(always)] // nothing is left of it
    fn as_shm(&self) -> Option<&Self> {
        Some(self)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            completes_at_post: true,
            memory_survives: true,
            ordered: true,
            ..Capabilities::new("shm", AtomicAgent::Cpu)
        }
    }

    fn allocate(&self, len: u64) -> Result<ShmSegment, Error> {
        self.publish(self.create(len)?)
    }

    fn allocate_two(&self, lens: [u64; 2]) -> Result<(ShmSegment, ShmSegment), Error> {
        self.allocate_both(lens)
    }

    fn register(&self, memory: UserMemory) -> Result<ShmSegment, Error> {
        memory.check(self.me())?;
        let len = memory.len() as u64;
        let control = self.allocate(Control::length(self.size())).map_err(|error| match error {
            Error::Allocate { what, fault, source, .. } => Error::Allocate { len, what, fault, source },
            other => other,
        })?;
        let id = RegionId(control.key().region.0 | USER_MEMORY);
        let user = Arc::new(UserRegion::new(self.between(), control, memory));
        let own = Process::own();
        let alone = (0..self.size()).all(|rank| self.job_segment().process(Rank(rank)) == Some(own));
        if !alone && self.0.service.add(&user) {
            let service = Arc::clone(&self.0.service);
            let serving = poll_fn(move |_| if service.serve() { Poll::Pending } else { Poll::Ready(()) });
            self.0.endpoint.serve(Box::pin(serving)).map_err(|fault| {
                self.0.service.stopped();
                self.failed(len, "no thread to serve peers (see `ulimit -u` and `ulimit -v`)", fault.kind(), None)
            })?;
        }
        Ok(ShmSegment::of_user(user, (self.me(), id)))
    }

    fn reclaim(&self, own: &ShmSegment) -> Result<Option<UserMemory>, Fault> {
        let user = own.user_memory().filter(|user| user.is_whole());
        user.ok_or(Fault::of(FaultKind::Unsupported, own.rank()))?.memory.take_back()
    }

    fn part(&self, own: &ShmSegment, offset: u64, len: u64) -> Result<ShmSegment, Fault> {
        self.check_own(own.rank())?;
        own.part(offset, len)
    }

    fn open(&self, key: &SegmentKey) -> Result<ShmSegment, Error> {
        let failed = |what, kind| Error::open(key.rank, what, kind);
        check_rank(self, key.rank).map_err(|_| failed("the world has no such rank", FaultKind::NoSuchRank))?;
        if key.region == RegionId(0) {
            return self.world_segment(key.rank);
        }
        if is_block(key.region) {
            return self.open_block(key);
        }
        if key.region.0 & USER_MEMORY != 0 {
            let region = RegionId(key.region.0 & !USER_MEMORY);
            let len = Control::length(self.size());
            let control = self.open(&SegmentKey { region, len, address: 0, ..*key })?;
            let user = self.open_user((key.rank, key.region), control);
            let user = user.map_err(|fault| failed("it is registered no longer", fault.kind()))?;
            let all = user.len();
            let segment = ShmSegment::of_user(user, (key.rank, key.region));
            let part =
                if (key.address, key.len) == (0, all) { Ok(segment) } else { segment.part(key.address, key.len) };
            return part.map_err(|fault| failed("the key is of no part of the region", fault.kind()));
        }
        let memory = self.0.job.exchange.fetch(key.rank, key.region)?;
        if key.len == 0 || key.len > memory.len() as u64 {
            return Err(failed("the key's length is not the region's", FaultKind::OutOfRange));
        }
        ShmSegment::new(memory, (0, key.len), (key.rank, key.region), self.me(), None).map_err(Error::operation("open"))
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
    fn words_in<'s, const N: usize>(&'s self, segment: &'s ShmSegment, offset: u64) -> Option<[ShmWord<'s>; N]> {
        segment.words_at(offset)
    }

    #[inline]
    fn put(&self, to: &ShmSegment, offset: u64, from: &[u8]) -> Result<(), Fault> {
        to.write(offset, from)
    }

    #[inline(always)] // a small get is cheaper than a call
    fn get(&self, from: &ShmSegment, offset: u64, into: &mut [u8]) -> Ready<Result<(), Fault>> {
        ready(from.read(offset, into))
    }

    #[inline]
    fn put_pieces<'p>(&self, to: &ShmSegment, mut pieces: impl Iterator<Item = (u64, &'p [u8])>) -> Result<(), Fault> {
        match to.user_memory() {
            Some(user) => user.write_pieces(pieces),
            None => pieces.try_for_each(|(offset, from)| to.write(offset, from)),
        }
    }

    #[inline]
    fn get_pieces<'p>(
        &self,
        from: &ShmSegment,
        mut pieces: impl Iterator<Item = (u64, &'p mut [u8])>,
    ) -> Result<(), Fault> {
        match from.user_memory() {
            Some(user) => user.read_pieces(pieces),
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
        // If this rank does not see another's later store, that rank must see this one's stores,
        // which takes a full fence. rustc 1.95 compiles it to a locked `or` on x86-64, 8 ns; older
        // versions to an `mfence`, 17 ns.
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

    #[inline]
    fn read_direct(&self, segment: &ShmSegment, offset: u64, into: &mut [u8]) -> Result<(), Fault> {
        segment.read(offset, into)
    }

    #[inline]
    fn write_direct(&self, segment: &ShmSegment, offset: u64, from: &[u8]) -> Result<(), Fault> {
        segment.write(offset, from)
    }

    fn fencing(&self) -> Option<&dyn Fencing> {
        Some(self)
    }

    fn endpoint(&self) -> &dyn Endpoint {
        self
    }

    fn processes(&self) -> Option<&dyn PeerProcesses> {
        self.may_copy_by_kernel().then_some(self)
    }

    fn events(&self, of: Events) -> Option<&dyn SolicitedEvents> {
        (of == Events::Packets).then_some(self)
    }
}

impl Fencing for Shm {
    /// A process that has not joined yet is another one: threads are there from the beginning.
    fn fence_of(&self, rank: Rank) -> Option<Fence> {
        self.job_segment().process(rank).is_none_or(|process| !process.is_own()).then_some(Fence::Kill)
    }

    fn fence(&self, rank: Rank) -> Result<bool, Fault> {
        match self.job_segment().process(rank).filter(|process| !process.is_own()) {
            Some(process) => process.kill().map(|()| true).map_err(|_| Fault::of(FaultKind::Refused, rank)),
            None => Err(Fault::of(FaultKind::Unsupported, rank)),
        }
    }
}

endpoint!(Shm, |shm| shm.job_segment(), shm.0.job);

//! Segments, bulk data and background work of one of two fabrics.

use std::sync::atomic::AtomicU64;

use onesided_remote_memory::{Fault, Rank};

use crate::dispatch::Either::{self, First, Second};
use crate::dispatch::FOREIGN;
use crate::dispatch::future::{EitherFuture, aside};
use crate::dispatch::table::forward;
use crate::interface::note::Note;
use crate::{
    Capabilities, Endpoint, Error, Events, Fabric, Fencing, Landing, Launch, Path, PeerProcesses, Segment, SegmentKey,
    SolicitedEvents, UserMemory,
};

#[deny(clippy::missing_trait_methods)]
impl<A: Fabric, B: Fabric> Fabric for Either<A, B> {
    type Segment = Either<A::Segment, B::Segment>;
    type Transfer = EitherFuture<A::Transfer, B::Transfer>;
    /// The second one's is boxed, because a larger variant would be copied with the first one's.
    type Get<'b> = EitherFuture<A::Get<'b>, Box<B::Get<'b>>>;
    type Flush<'f> = EitherFuture<A::Flush<'f>, B::Flush<'f>>;
    type Transport = Either<A::Transport, B::Transport>;

    forward! {
        make fn transport(&self) -> Result<Self::Transport, Fault>;
        #[cfg(not(onesided_loom))]
        #[inline(always)]
        call fn as_shm(&self) -> Option<&crate::shm::Shm>;
        call fn capabilities(&self) -> Capabilities;
        call fn host_of(&self, rank: Rank) -> u32;

        make fn allocate(&self, len: u64) -> Result<Self::Segment, Error>;
        make fn open(&self, key: &SegmentKey) -> Result<Self::Segment, Error>;
        make fn world_segment(&self, rank: Rank) -> Result<Self::Segment, Error>;
        make fn register(&self, memory: UserMemory) -> Result<Self::Segment, Error>;
        call_of fn reclaim(&self, own: &Self::Segment) -> Result<Option<UserMemory>, Fault>;
        make_of fn part(&self, own: &Self::Segment, offset: u64, len: u64) -> Result<Self::Segment, Fault>;

        #[inline(always)]
        make_of fn word_in<'s>(&'s self, segment: &'s Self::Segment, offset: u64) -> Result<Self::Word<'s>, Fault>;
        make_of fn same_host_word<'s>(&'s self, segment: &'s Self::Segment, offset: u64) -> Result<Self::Word<'s>, Fault>;

        #[inline(always)]
        call_of fn put(&self, to: &Self::Segment, offset: u64, from: &[u8]) -> Result<(), Fault>;
        #[inline]
        call_of fn put_pieces<'p>(
            &self,
            to: &Self::Segment,
            pieces: impl Iterator<Item = (u64, &'p [u8])>,
        ) -> Result<(), Fault>;
        #[inline]
        call_of fn get_pieces<'p>(
            &self,
            from: &Self::Segment,
            pieces: impl Iterator<Item = (u64, &'p mut [u8])>,
        ) -> Result<(), Fault>;
        #[inline(always)]
        begin fn flush(&self, target: Rank) -> Self::Flush<'_>;
        #[inline(always)]
        begin fn flush_before_release(&self, target: Rank) -> Self::Flush<'_>;
        #[inline(always)]
        begin fn flush_local(&self, target: Rank) -> Self::Flush<'_>;
        call_of fn read_direct(&self, segment: &Self::Segment, offset: u64, into: &mut [u8]) -> Result<(), Fault>;
        call_of fn write_direct(&self, segment: &Self::Segment, offset: u64, from: &[u8]) -> Result<(), Fault>;

        call fn landing_max(&self, peer: Rank) -> u64;
        call_of fn land(&self, into: &Self::Segment, len: u64) -> Result<(SegmentKey, Box<dyn Landing>), Fault>;

        call fn fencing(&self) -> Option<&dyn Fencing>;
        call fn endpoint(&self) -> &dyn Endpoint;
        call fn processes(&self) -> Option<&dyn PeerProcesses>;
        call fn events(&self, of: Events) -> Option<&dyn SolicitedEvents>;
    }

    #[inline(always)] // nothing is left of it
    fn note(&self, note: impl FnOnce() -> Option<Note>) {
        match self {
            First(fabric) => fabric.note(note),
            Second(fabric) => fabric.note(note),
        }
    }

    fn allocate_two(&self, lens: [u64; 2]) -> Result<(Self::Segment, Self::Segment), Error> {
        match self {
            First(fabric) => fabric.allocate_two(lens).map(|(one, other)| (First(one), First(other))),
            Second(fabric) => fabric.allocate_two(lens).map(|(one, other)| (Second(one), Second(other))),
        }
    }

    #[inline(always)]
    fn words_in<'s, const N: usize>(&'s self, segment: &'s Self::Segment, offset: u64) -> Option<[Self::Word<'s>; N]> {
        match (self, segment) {
            (First(fabric), First(segment)) => fabric.words_in(segment, offset).map(|words| words.map(First)),
            (Second(fabric), Second(segment)) => {
                aside(move || fabric.words_in(segment, offset)).map(|words| words.map(Second))
            }
            _ => None,
        }
    }

    #[inline(always)]
    fn get<'b>(&self, from: &Self::Segment, offset: u64, into: &'b mut [u8]) -> Self::Get<'b> {
        match (self, from) {
            (First(fabric), First(from)) => EitherFuture::first(fabric.get(from, offset, into)),
            (Second(fabric), Second(from)) => {
                EitherFuture::second(aside(move || Box::new(fabric.get(from, offset, into))))
            }
            _ => EitherFuture::failed(FOREIGN),
        }
    }

    fn for_messages(&self) -> Self {
        match self {
            First(fabric) => First(fabric.for_messages()),
            Second(fabric) => Second(fabric.for_messages()),
        }
    }

    fn rdma_write(&self, from: (&Self::Segment, u64), to: (&Self::Segment, u64), len: u64) -> Self::Transfer {
        match (self, from.0, to.0) {
            (First(fabric), First(a), First(b)) => EitherFuture::first(fabric.rdma_write((a, from.1), (b, to.1), len)),
            (Second(fabric), Second(a), Second(b)) => {
                EitherFuture::second(fabric.rdma_write((a, from.1), (b, to.1), len))
            }
            _ => EitherFuture::failed(FOREIGN),
        }
    }

    fn launch(&self, from: (&Self::Segment, u64), to: &SegmentKey) -> Result<Launch, Fault> {
        match (self, from.0) {
            (First(fabric), First(segment)) => fabric.launch((segment, from.1), to),
            (Second(fabric), Second(segment)) => fabric.launch((segment, from.1), to),
            _ => Err(FOREIGN),
        }
    }

    fn rdma_read(&self, from: (&Self::Segment, u64), into: (&Self::Segment, u64), len: u64) -> Self::Transfer {
        match (self, from.0, into.0) {
            (First(fabric), First(a), First(b)) => EitherFuture::first(fabric.rdma_read((a, from.1), (b, into.1), len)),
            (Second(fabric), Second(a), Second(b)) => {
                EitherFuture::second(fabric.rdma_read((a, from.1), (b, into.1), len))
            }
            _ => EitherFuture::failed(FOREIGN),
        }
    }
}

#[deny(clippy::missing_trait_methods)]
impl<A: Segment, B: Segment> Segment for Either<A, B> {
    forward! {
        #[inline(always)]
        call fn rank(&self) -> Rank;
        #[cfg(not(onesided_loom))]
        #[inline(always)]
        call fn as_shm(&self) -> Option<&crate::shm::ShmSegment>;
        call fn len(&self) -> u64;
        call fn key(&self) -> SegmentKey;
        call fn path(&self) -> Path;
        call fn mapped(&self) -> Option<&[AtomicU64]>;
        call fn populate(&self) -> Result<(), Error>;
        call fn change(&self, offset: u64, words: usize, change: &mut dyn FnMut(usize, u64) -> u64) -> Result<(), Fault>;
    }
}

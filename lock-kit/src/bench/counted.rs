//! A fabric that counts its operations.

use std::ops::{Add, Sub};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use onesided_fabric::remote_memory::{At, Chain, Fault, Link, Liveness, Patience, Rank, RemoteMemory};
use onesided_fabric::shm::Shm;
use onesided_fabric::{
    Capabilities, Drive, Endpoint, Error, Events, Fabric, Fencing, Landing, Launch, Note, PeerProcesses, Polls,
    SegmentKey, SolicitedEvents, Tasks, UserMemory, delegate,
};

/// The operations of a rank on words, those on its own words included. Loads, stores and waits in
/// its own memory are not counted: nothing leaves the rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operations {
    /// Reads of a word.
    pub reads: u64,
    /// Writes of a word.
    pub writes: u64,
    /// Compare-swaps.
    pub compare_swaps: u64,
    /// Fetch-adds.
    pub fetch_adds: u64,
}

impl Operations {
    /// The sum of all kinds.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.reads + self.writes + self.compare_swaps + self.fetch_adds
    }

    fn with(self, other: Self, each: fn(u64, u64) -> u64) -> Self {
        Self {
            reads: each(self.reads, other.reads),
            writes: each(self.writes, other.writes),
            compare_swaps: each(self.compare_swaps, other.compare_swaps),
            fetch_adds: each(self.fetch_adds, other.fetch_adds),
        }
    }
}

impl Sub for Operations {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        self.with(before, u64::sub)
    }
}

impl Add for Operations {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        self.with(more, u64::add)
    }
}

/// A fabric that counts the operations on words. Its clones share the counts.
#[derive(Clone, Debug)]
pub struct Counted<F> {
    inner: F,
    counts: Arc<[AtomicU64; 4]>,
}

const READS: usize = 0;
const WRITES: usize = 1;
const COMPARE_SWAPS: usize = 2;
const FETCH_ADDS: usize = 3;

impl<F> Counted<F> {
    /// Starts at zero.
    pub fn new(inner: F) -> Self {
        Self { inner, counts: Arc::default() }
    }

    /// The counts so far.
    #[must_use]
    pub fn operations(&self) -> Operations {
        let [reads, writes, compare_swaps, fetch_adds] =
            std::array::from_fn(|kind| self.counts[kind].load(Ordering::Relaxed));
        Operations { reads, writes, compare_swaps, fetch_adds }
    }

    fn count_link<W>(&self, link: &Link<W>) {
        let kind = match link {
            Link::Read { waited: false, .. } => return, // keeps an order
            Link::Read { .. } => READS,
            Link::Write { .. } => WRITES,
            Link::CompareSwap { .. } => COMPARE_SWAPS,
            Link::FetchAdd { .. } => FETCH_ADDS,
        };
        self.counts[kind].fetch_add(1, Ordering::Relaxed);
    }
}

impl<F: RemoteMemory> RemoteMemory for Counted<F> {
    type Word<'f> = F::Word<'f>;
    type Op = F::Op;
    type Wait<'f, P: Fn(u64) -> bool + Unpin + Send + 'f> = F::Wait<'f, P>;
    type Pause<'f> = F::Pause<'f>;

    fn post_link(&self, link: Link<Self::Word<'_>>) -> Self::Op {
        self.count_link(&link);
        self.inner.post_link(link)
    }

    fn post<const N: usize>(&self, links: [Link<Self::Word<'_>>; N]) -> Chain<Self::Op, N> {
        links.iter().for_each(|link| self.count_link(link));
        self.inner.post(links)
    }

    fn wait_until<'f, P>(&'f self, own: Self::Word<'f>, predicate: P, patience: Patience) -> Self::Wait<'f, P>
    where
        P: Fn(u64) -> bool + Unpin + Send + 'f,
    {
        self.inner.wait_until(own, predicate, patience)
    }

    async fn has_cut(&self, home: Rank, rank: Rank) -> Result<bool, Fault> {
        self.inner.has_cut(home, rank).await
    }

    delegate! {
        inner:
        fn rank(&self) -> Rank;
        fn size(&self) -> u32;
        fn word(&self, at: At) -> Result<Self::Word<'_>, Fault>;
        fn write_is_atomic(&self) -> bool;
        fn load(&self, own: Self::Word<'_>) -> Result<u64, Fault>;
        fn store(&self, own: Self::Word<'_>, value: u64) -> Result<(), Fault>;
        fn take_values(&self, own: Self::Word<'_>, each: &mut dyn FnMut(u64)) -> bool;
        fn pause<'f>(&'f self, word: Self::Word<'f>, nanos: u64) -> Self::Pause<'f>;
        fn now(&self) -> u64;
        fn liveness(&self, rank: Rank) -> Liveness;
        fn has_failed(&self, home: Rank, rank: Rank) -> bool;
        fn failure(&self, index: u32) -> Option<Rank>;
        fn ends(&self) -> u32;
        fn lost_connection(&self, home: Rank, from: Rank) -> Option<Rank>;
    }
}

#[deny(clippy::missing_trait_methods)] // a fabric may override any of them
impl<F: Fabric> Fabric for Counted<F> {
    type Segment = F::Segment;
    type Transfer = F::Transfer;
    type Get<'b> = F::Get<'b>;
    type Flush<'f> = F::Flush<'f>;
    type Transport = F::Transport;

    fn for_messages(&self) -> Self {
        Self { inner: self.inner.for_messages(), counts: Arc::clone(&self.counts) }
    }

    /// None: what is written for shared memory would not be counted.
    fn as_shm(&self) -> Option<&Shm> {
        None
    }

    fn words_in<'s, const N: usize>(&'s self, segment: &'s Self::Segment, offset: u64) -> Option<[Self::Word<'s>; N]> {
        self.inner.words_in(segment, offset)
    }

    delegate! {
        inner:
        fn transport(&self) -> Result<F::Transport, Fault>;
        fn capabilities(&self) -> Capabilities;
        fn host_of(&self, rank: Rank) -> u32;
        fn allocate(&self, len: u64) -> Result<Self::Segment, Error>;
        fn allocate_two(&self, lens: [u64; 2]) -> Result<(Self::Segment, Self::Segment), Error>;
        fn open(&self, key: &SegmentKey) -> Result<Self::Segment, Error>;
        fn world_segment(&self, rank: Rank) -> Result<Self::Segment, Error>;
        fn register(&self, memory: UserMemory) -> Result<Self::Segment, Error>;
        fn reclaim(&self, own: &Self::Segment) -> Result<Option<UserMemory>, Fault>;
        fn part(&self, own: &Self::Segment, offset: u64, len: u64) -> Result<Self::Segment, Fault>;
        fn word_in<'s>(&'s self, segment: &'s Self::Segment, offset: u64) -> Result<Self::Word<'s>, Fault>;
        fn same_host_word<'s>(&'s self, segment: &'s Self::Segment, offset: u64) -> Result<Self::Word<'s>, Fault>;
        fn put(&self, to: &Self::Segment, offset: u64, from: &[u8]) -> Result<(), Fault>;
        fn get<'b>(&self, from: &Self::Segment, offset: u64, into: &'b mut [u8]) -> Self::Get<'b>;
        fn put_pieces<'p>(
            &self,
            to: &Self::Segment,
            pieces: impl Iterator<Item = (u64, &'p [u8])>,
        ) -> Result<(), Fault>;
        fn get_pieces<'p>(
            &self,
            from: &Self::Segment,
            pieces: impl Iterator<Item = (u64, &'p mut [u8])>,
        ) -> Result<(), Fault>;
        fn rdma_write(&self, from: (&Self::Segment, u64), to: (&Self::Segment, u64), len: u64) -> Self::Transfer;
        fn rdma_read(&self, from: (&Self::Segment, u64), into: (&Self::Segment, u64), len: u64) -> Self::Transfer;
        fn landing_max(&self, peer: Rank) -> u64;
        fn land(&self, into: &Self::Segment, len: u64) -> Result<(SegmentKey, Box<dyn Landing>), Fault>;
        fn launch(&self, from: (&Self::Segment, u64), to: &SegmentKey) -> Result<Launch, Fault>;
        fn flush(&self, target: Rank) -> Self::Flush<'_>;
        fn flush_before_release(&self, target: Rank) -> Self::Flush<'_>;
        fn flush_local(&self, target: Rank) -> Self::Flush<'_>;
        fn read_direct(&self, segment: &Self::Segment, offset: u64, into: &mut [u8]) -> Result<(), Fault>;
        fn write_direct(&self, segment: &Self::Segment, offset: u64, from: &[u8]) -> Result<(), Fault>;
        fn fencing(&self) -> Option<&dyn Fencing>;
        fn endpoint(&self) -> &dyn Endpoint;
        fn processes(&self) -> Option<&dyn PeerProcesses>;
        fn events(&self, of: Events) -> Option<&dyn SolicitedEvents>;
        fn note(&self, note: impl FnOnce() -> Option<Note>);
    }
}

#[deny(clippy::missing_trait_methods)]
impl<F: Drive> Drive for Counted<F> {
    fn again(&self) -> Option<Result<Self, Error>> {
        self.inner.again().map(|again| again.map(|inner| Self { inner, counts: Arc::clone(&self.counts) }))
    }

    delegate! {
        inner:
        fn progress(&self) -> usize;
        fn polls(&self) -> Polls;
        fn tasks(&self) -> &Tasks;
    }
}

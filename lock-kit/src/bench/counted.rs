//! A fabric that counts its operations.

use std::ops::{Add, Sub};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use onesided_fabric::remote_memory::{At, Chain, Fault, Link, Liveness, Notify, Patience, Rank, RemoteMemory};
use onesided_fabric::{Capabilities, Drive, Error, Fabric, Path, SegmentKey, ServerThread, Task, Ticket, UserMemory};

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
}

impl Sub for Operations {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            reads: self.reads - before.reads,
            writes: self.writes - before.writes,
            compare_swaps: self.compare_swaps - before.compare_swaps,
            fetch_adds: self.fetch_adds - before.fetch_adds,
        }
    }
}

impl Add for Operations {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        Self {
            reads: self.reads + more.reads,
            writes: self.writes + more.writes,
            compare_swaps: self.compare_swaps + more.compare_swaps,
            fetch_adds: self.fetch_adds + more.fetch_adds,
        }
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

    fn count(&self, kind: usize) {
        self.counts[kind].fetch_add(1, Ordering::Relaxed);
    }

    fn count_link<W>(&self, link: &Link<W>) {
        self.count(match link {
            Link::Read { .. } => READS,
            Link::Write { .. } => WRITES,
            Link::CompareSwap { .. } => COMPARE_SWAPS,
            Link::FetchAdd { .. } => FETCH_ADDS,
        });
    }
}

impl<F: RemoteMemory> RemoteMemory for Counted<F> {
    type Word<'f> = F::Word<'f>;
    type Op = F::Op;
    type Wait<'f, P: Fn(u64) -> bool + Unpin + Send + 'f> = F::Wait<'f, P>;
    type Pause<'f> = F::Pause<'f>;

    fn rank(&self) -> Rank {
        self.inner.rank()
    }

    fn size(&self) -> u32 {
        self.inner.size()
    }

    fn word(&self, at: At) -> Result<Self::Word<'_>, Fault> {
        self.inner.word(at)
    }

    fn read(&self, word: Self::Word<'_>) -> Self::Op {
        self.count(READS);
        self.inner.read(word)
    }

    fn write(&self, word: Self::Word<'_>, value: u64, notify: Notify) -> Self::Op {
        self.count(WRITES);
        self.inner.write(word, value, notify)
    }

    fn compare_swap(&self, word: Self::Word<'_>, expected: u64, new: u64) -> Self::Op {
        self.count(COMPARE_SWAPS);
        self.inner.compare_swap(word, expected, new)
    }

    fn fetch_add(&self, word: Self::Word<'_>, add: u64) -> Self::Op {
        self.count(FETCH_ADDS);
        self.inner.fetch_add(word, add)
    }

    fn write_is_atomic(&self) -> bool {
        self.inner.write_is_atomic()
    }

    fn post<const N: usize>(&self, links: [Link<Self::Word<'_>>; N]) -> Chain<Self::Op, N> {
        links.iter().for_each(|link| self.count_link(link));
        self.inner.post(links)
    }

    fn load(&self, own: Self::Word<'_>) -> Result<u64, Fault> {
        self.inner.load(own)
    }

    fn store(&self, own: Self::Word<'_>, value: u64) -> Result<(), Fault> {
        self.inner.store(own, value)
    }

    fn wait_until<'f, P>(&'f self, own: Self::Word<'f>, predicate: P, patience: Patience) -> Self::Wait<'f, P>
    where
        P: Fn(u64) -> bool + Unpin + Send + 'f,
    {
        self.inner.wait_until(own, predicate, patience)
    }

    fn pause<'f>(&'f self, word: Self::Word<'f>, nanos: u64) -> Self::Pause<'f> {
        self.inner.pause(word, nanos)
    }

    fn now(&self) -> u64 {
        self.inner.now()
    }

    fn liveness(&self, rank: Rank) -> Liveness {
        self.inner.liveness(rank)
    }

    async fn has_cut(&self, home: Rank, rank: Rank) -> Result<bool, Fault> {
        self.inner.has_cut(home, rank).await
    }

    fn failures(&self) -> u32 {
        self.inner.failures()
    }

    fn failure(&self, index: u32) -> Option<Rank> {
        self.inner.failure(index)
    }

    fn lost_connection(&self, home: Rank, from: Rank) -> Option<Rank> {
        self.inner.lost_connection(home, from)
    }
}

impl<F: Fabric> Fabric for Counted<F> {
    type Segment = F::Segment;
    type Transfer = F::Transfer;
    type Get<'b> = F::Get<'b>;
    type Flush<'f> = F::Flush<'f>;
    type Transport = F::Transport;

    fn transport(&self) -> Result<F::Transport, Fault> {
        self.inner.transport()
    }

    fn for_messages(&self) -> Self {
        Self { inner: self.inner.for_messages(), counts: Arc::clone(&self.counts) }
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn keeps_order(&self, target: Rank) -> bool {
        self.inner.keeps_order(target)
    }

    fn host_of(&self, rank: Rank) -> u32 {
        self.inner.host_of(rank)
    }

    fn allocate(&self, len: u64) -> Result<Self::Segment, Error> {
        self.inner.allocate(len)
    }

    fn populate(&self, own: &Self::Segment) -> Result<(), Error> {
        self.inner.populate(own)
    }

    fn allocate_two(&self, lens: [u64; 2]) -> Result<(Self::Segment, Self::Segment), Error> {
        self.inner.allocate_two(lens)
    }

    fn open(&self, key: &SegmentKey) -> Result<Self::Segment, Error> {
        self.inner.open(key)
    }

    fn world_segment(&self, rank: Rank) -> Result<Self::Segment, Error> {
        self.inner.world_segment(rank)
    }

    fn register(&self, memory: UserMemory) -> Result<Self::Segment, Error> {
        self.inner.register(memory)
    }

    fn reclaim(&self, own: &Self::Segment) -> Result<Option<UserMemory>, Fault> {
        self.inner.reclaim(own)
    }

    fn part(&self, own: &Self::Segment, offset: u64, len: u64) -> Result<Self::Segment, Fault> {
        self.inner.part(own, offset, len)
    }

    fn change(
        &self,
        segment: &Self::Segment,
        offset: u64,
        words: usize,
        change: &mut dyn FnMut(usize, u64) -> u64,
    ) -> Result<(), Fault> {
        self.inner.change(segment, offset, words, change)
    }

    fn mapped<'s>(&self, segment: &'s Self::Segment) -> Option<&'s [AtomicU64]> {
        self.inner.mapped(segment)
    }

    fn read_mapped(&self, segment: &Self::Segment, offset: u64, into: &mut [u8]) -> Result<(), Fault> {
        self.inner.read_mapped(segment, offset, into)
    }

    fn write_mapped(&self, segment: &Self::Segment, offset: u64, from: &[u8]) -> Result<(), Fault> {
        self.inner.write_mapped(segment, offset, from)
    }

    fn path(&self, segment: &Self::Segment) -> Path {
        self.inner.path(segment)
    }

    fn word_in<'s>(&'s self, segment: &'s Self::Segment, offset: u64) -> Result<Self::Word<'s>, Fault> {
        self.inner.word_in(segment, offset)
    }

    fn words_in<'s, const N: usize>(
        &'s self,
        segment: &'s Self::Segment,
        offset: u64,
    ) -> Result<[Self::Word<'s>; N], Fault> {
        self.inner.words_in(segment, offset)
    }

    fn same_host_word<'s>(&'s self, segment: &'s Self::Segment, offset: u64) -> Result<Self::Word<'s>, Fault> {
        self.inner.same_host_word(segment, offset)
    }

    fn put(&self, to: &Self::Segment, offset: u64, from: &[u8]) -> Result<(), Fault> {
        self.inner.put(to, offset, from)
    }

    fn get<'b>(&self, from: &Self::Segment, offset: u64, into: &'b mut [u8]) -> Self::Get<'b> {
        self.inner.get(from, offset, into)
    }

    fn put_pieces<'p>(&self, to: &Self::Segment, pieces: impl Iterator<Item = (u64, &'p [u8])>) -> Result<(), Fault> {
        self.inner.put_pieces(to, pieces)
    }

    fn get_pieces<'p>(
        &self,
        from: &Self::Segment,
        pieces: impl Iterator<Item = (u64, &'p mut [u8])>,
    ) -> Result<(), Fault> {
        self.inner.get_pieces(from, pieces)
    }

    fn rdma_write(&self, from: (&Self::Segment, u64), to: (&Self::Segment, u64), len: u64) -> Self::Transfer {
        self.inner.rdma_write(from, to, len)
    }

    fn rdma_read(&self, from: (&Self::Segment, u64), into: (&Self::Segment, u64), len: u64) -> Self::Transfer {
        self.inner.rdma_read(from, into, len)
    }

    fn flush(&self, target: Rank) -> Self::Flush<'_> {
        self.inner.flush(target)
    }

    fn flush_before_release(&self, target: Rank) -> Self::Flush<'_> {
        self.inner.flush_before_release(target)
    }

    fn post_release(&self, release: Link<Self::Word<'_>>) {
        self.count_link(&release);
        self.inner.post_release(release);
    }

    fn flush_local(&self, target: Rank) -> Self::Flush<'_> {
        self.inner.flush_local(target)
    }

    fn read_own(&self, own: &Self::Segment, offset: u64, into: &mut [u8]) -> Result<(), Fault> {
        self.inner.read_own(own, offset, into)
    }

    fn write_own(&self, own: &Self::Segment, offset: u64, from: &[u8]) -> Result<(), Fault> {
        self.inner.write_own(own, offset, from)
    }

    fn spawn(&self, task: Task) {
        self.inner.spawn(task);
    }

    fn serve(&self, task: Task) -> Result<(), Fault> {
        self.inner.serve(task)
    }

    fn serve_apart(&self, task: Task, kind: ServerThread) -> Result<Option<JoinHandle<()>>, Fault> {
        self.inner.serve_apart(task, kind)
    }

    fn can_kill(&self, rank: Rank) -> bool {
        self.inner.can_kill(rank)
    }

    fn kill(&self, rank: Rank) -> Result<(), Fault> {
        self.inner.kill(rank)
    }

    fn can_revoke(&self, rank: Rank) -> bool {
        self.inner.can_revoke(rank)
    }

    fn revoke(&self, rank: Rank) -> Result<bool, Fault> {
        self.inner.revoke(rank)
    }

    fn leave(&self) {
        self.inner.leave();
    }

    fn again(&self) -> Option<Result<Self, Error>> {
        self.inner.again().map(|again| again.map(|inner| Self { inner, counts: Arc::clone(&self.counts) }))
    }

    fn abort(&self, status: u8) -> ! {
        self.inner.abort(status)
    }
}

impl<F: Drive> Drive for Counted<F> {
    fn progress(&self) -> usize {
        self.inner.progress()
    }

    fn arm(&self) -> Ticket {
        self.inner.arm()
    }

    fn sleep(&self, ticket: Ticket, until: u64) {
        self.inner.sleep(ticket, until);
    }

    fn disarm(&self, ticket: Ticket) {
        self.inner.disarm(ticket);
    }

    fn relax(&self) {
        self.inner.relax();
    }

    fn spins(&self) -> u32 {
        self.inner.spins()
    }

    fn oversubscribed(&self) -> bool {
        self.inner.oversubscribed()
    }

    fn shares_its_core(&self) -> bool {
        self.inner.shares_its_core()
    }

    fn unfinished(&self) -> usize {
        self.inner.unfinished()
    }
}

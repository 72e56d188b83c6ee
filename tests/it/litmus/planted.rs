//! A simulated fabric that breaks promises on purpose.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use onesided_fabric::remote_memory::{At, Fault, Link, Liveness, Notify, Patience, Rank, RemoteMemory};
use onesided_fabric::{Capabilities, Endpoint, Error, Fabric, Segment, SegmentKey, delegate};
use onesided_sim::{SimFabric, SimSegment, Word};

/// The flaw, in the regions of windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    /// A flush waits for nothing.
    IdleFlush,
    /// Puts leave after the call returns, in any order, and flushes do not wait for them.
    LatePuts,
    /// A rank's writes to its own memory take effect after the call returns, as from a store
    /// buffer, and fences do not wait for them.
    LateOwn,
    /// 8 bytes are put and got as two halves.
    TornBytes,
    /// A compare-and-swap on a lock's word always succeeds.
    OpenLocks,
    /// An atomic operation returns its value before it takes effect.
    LateAtomics,
    /// Atomic operations are a read and a write.
    TornAtomics,
    /// The version of a record always reads as its first value.
    StaleVersion,
    /// Puts and gets of a rank's own memory take effect immediately, ahead of words of other
    /// regions that were posted before them, and the fabric does not report it.
    EarlyBytes,
    /// The same, reported: that is no flaw, because the caller can ask.
    ReportedEarlyBytes,
}

#[derive(Clone, Debug)]
pub(super) struct Planted {
    inner: SimFabric,
    flaw: Flaw,
    count: Arc<AtomicU64>,
}

type Boxed<'f, T> = Pin<Box<dyn Future<Output = Result<T, Fault>> + Send + 'f>>;

impl Planted {
    pub(super) fn new(inner: SimFabric, flaw: Flaw) -> Self {
        Self { inner, flaw, count: Arc::default() }
    }

    /// Whether a word lies in the data of a window, which is allocated before the words of its
    /// lock.
    fn is_data(word: Word) -> bool {
        word.at().region.0 % 2 == 1
    }

    fn flawed(&self, flaw: Flaw, word: Word) -> bool {
        self.flaw == flaw && Self::is_data(word)
    }

    fn has_early_bytes(&self) -> bool {
        matches!(self.flaw, Flaw::EarlyBytes | Flaw::ReportedEarlyBytes)
    }

    /// Whether bytes of this segment overtake what was posted before.
    fn is_early(&self, segment: &SimSegment) -> bool {
        self.has_early_bytes() && segment.rank() == self.inner.rank() && segment.key().region.0 != 0
    }

    /// Runs something after some time, even if it is not waited for.
    fn later(&self, act: impl FnOnce(SimFabric) + Send + 'static) {
        let inner = self.inner.clone();
        let nanos = self.count.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15) % 20_000;
        self.inner.spawn(Box::pin(async move {
            let own = inner.world_segment(inner.rank()).unwrap();
            inner.pause(inner.word_in(&own, 0).unwrap(), nanos).await;
            act(inner.clone());
        }));
    }
}

impl RemoteMemory for Planted {
    type Word<'f> = Word;
    type Op = Boxed<'static, u64>;
    type Wait<'f, P: Fn(u64) -> bool + Unpin + Send + 'f> = onesided_sim::Wait<'f, P>;
    type Pause<'f> = onesided_sim::Pause<'f>;

    fn post_link(&self, link: Link<Word>) -> Self::Op {
        let inner = self.inner.clone();
        match link {
            Link::Read { word, .. }
                if self.flaw == Flaw::StaleVersion && word.at().region.0 != 0 && word.at().offset == 56 =>
            {
                Box::pin(async { Ok(0) })
            }
            Link::CompareSwap { word, expected, new, .. } => {
                if self.flaw == Flaw::OpenLocks && word.at().region.0 != 0 {
                    let read = inner.read(word);
                    return Box::pin(async move { read.await.map(|_| expected) });
                }
                if self.has_early_bytes() && word.at().rank == inner.rank() && word.at().region.0 != 0 {
                    // A slow card, and bytes that do not wait for it.
                    return Box::pin(async move {
                        let own = inner.world_segment(inner.rank()).unwrap();
                        let until = inner.now() + 20_000;
                        while inner.now() < until {
                            inner.pause(inner.word_in(&own, 0).unwrap(), until - inner.now()).await; // may end early
                        }
                        inner.compare_swap(word, expected, new).await
                    });
                }
                if self.flawed(Flaw::LateAtomics, word) {
                    self.later(move |inner| drop(inner.compare_swap(word, expected, new)));
                    return Box::pin(inner.read(word));
                }
                if self.flawed(Flaw::TornAtomics, word) {
                    let read = inner.read(word);
                    return Box::pin(async move {
                        let found = read.await?;
                        if found == expected {
                            inner.write(word, new, Notify::No).await?;
                        }
                        Ok(found)
                    });
                }
                Box::pin(inner.compare_swap(word, expected, new))
            }
            Link::FetchAdd { word, add, .. } => {
                if self.flawed(Flaw::LateAtomics, word) {
                    self.later(move |inner| drop(inner.fetch_add(word, add)));
                    return Box::pin(inner.read(word));
                }
                if self.flawed(Flaw::TornAtomics, word) {
                    // By the endpoint, because a posted sum is not waited for.
                    let read = inner.read(word);
                    self.endpoint().spawn(Box::pin(async move {
                        if let Ok(found) = read.await {
                            drop(inner.write(word, found.wrapping_add(add), Notify::No));
                        }
                    }));
                    return Box::pin(self.inner.read(word));
                }
                Box::pin(inner.fetch_add(word, add))
            }
            Link::Read { .. } | Link::Write { .. } => Box::pin(inner.post_link(link)),
        }
    }

    fn wait_until<'f, P>(&'f self, own: Word, predicate: P, patience: Patience) -> Self::Wait<'f, P>
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
        fn word(&self, at: At) -> Result<Word, Fault>;
        fn load(&self, own: Word) -> Result<u64, Fault>;
        fn store(&self, own: Word, value: u64) -> Result<(), Fault>;
        fn pause<'f>(&'f self, word: Word, nanos: u64) -> Self::Pause<'f>;
        fn now(&self) -> u64;
        fn liveness(&self, rank: Rank) -> Liveness;
        fn failure(&self, index: u32) -> Option<Rank>;
        fn ends(&self) -> u32;
        fn lost_connection(&self, home: Rank, from: Rank) -> Option<Rank>;
    }
}

impl Fabric for Planted {
    type Segment = SimSegment;
    type Transfer = onesided_sim::Transfer;
    type Get<'b> = Boxed<'b, ()>;
    type Flush<'f> = Boxed<'f, ()>;
    type Transport = onesided_sim::SimTransport;

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = self.inner.capabilities();
        capabilities.ordered &= self.flaw != Flaw::ReportedEarlyBytes;
        capabilities
    }

    fn put(&self, to: &SimSegment, offset: u64, from: &[u8]) -> Result<(), Fault> {
        let window = to.key().region.0 != 0;
        if self.is_early(to) {
            return self.inner.write_direct(to, offset, from);
        }
        match self.flaw {
            Flaw::LatePuts if window => {
                let (to, from) = (to.clone(), from.to_vec());
                self.later(move |inner| inner.put(&to, offset, &from).unwrap_or_default());
                Ok(())
            }
            Flaw::TornBytes if window && from.len() == 8 => {
                self.inner.put(to, offset, &from[..4])?;
                self.inner.put(to, offset + 4, &from[4..])
            }
            _ => self.inner.put(to, offset, from),
        }
    }

    fn get<'b>(&self, from: &SimSegment, offset: u64, into: &'b mut [u8]) -> Boxed<'b, ()> {
        if self.is_early(from) {
            let read = self.inner.read_direct(from, offset, into);
            return Box::pin(async move { read });
        }
        if self.flaw != Flaw::TornBytes || into.len() != 8 {
            return Box::pin(self.inner.get(from, offset, into));
        }
        let (low, high) = into.split_at_mut(4);
        let (low, high) = (self.inner.get(from, offset, low), self.inner.get(from, offset + 4, high));
        Box::pin(async move {
            low.await?;
            high.await
        })
    }

    fn flush(&self, target: Rank) -> Boxed<'_, ()> {
        match self.flaw {
            Flaw::IdleFlush => Box::pin(async { Ok(()) }),
            _ => Box::pin(self.inner.flush(target)),
        }
    }

    fn write_direct(&self, own: &SimSegment, offset: u64, from: &[u8]) -> Result<(), Fault> {
        if self.flaw == Flaw::LateOwn && own.key().region.0 % 2 == 1 {
            let (own, from) = (own.clone(), from.to_vec());
            self.later(move |inner| inner.write_direct(&own, offset, &from).unwrap_or_default());
            return Ok(());
        }
        self.inner.write_direct(own, offset, from)
    }

    delegate! {
        inner:
        fn transport(&self) -> Result<Self::Transport, Fault>;
        fn allocate(&self, len: u64) -> Result<SimSegment, Error>;
        fn open(&self, key: &SegmentKey) -> Result<SimSegment, Error>;
        fn world_segment(&self, rank: Rank) -> Result<SimSegment, Error>;
        fn word_in<'s>(&'s self, segment: &'s SimSegment, offset: u64) -> Result<Word, Fault>;
        fn rdma_write(&self, from: (&SimSegment, u64), to: (&SimSegment, u64), len: u64) -> onesided_sim::Transfer;
        fn rdma_read(&self, from: (&SimSegment, u64), into: (&SimSegment, u64), len: u64) -> onesided_sim::Transfer;
        fn read_direct(&self, own: &SimSegment, offset: u64, into: &mut [u8]) -> Result<(), Fault>;
        fn endpoint(&self) -> &dyn Endpoint;
    }
}

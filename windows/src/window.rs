//! The window.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use fabric::remote_memory::{Fault, FaultKind, Liveness, Rank};
use fabric::{Agent, Drive, Fabric, Segment, SegmentKey, Task, World, block_on};
use lock_algos::{Mode, TestAndSet};

use crate::local::Local;
use crate::lock::{Home, LockRequest};
use crate::lock_all::LockAllRequest;
use crate::part::Keys;
use crate::signals::Counts;
use crate::{Builder, Element, Epochs, Error, ExposureEpoch, FenceRequest, StartRequest};

/// How long a window's end waits for what nobody else waits for, and how long between two looks, in nanoseconds.
const SETTLE: u64 = 5_000_000_000;
const TURN: u64 = 50_000;

/// What the lock's words take of the hidden region beside each rank's part: one cache line.
pub(crate) const LOCK_BYTES: u64 = 64;

/// Memory of type `[T]` on every rank of a world, which every rank may read, write and lock without its owner's help.
///
/// ```
/// # use windows::Window;
/// fabric::threads(2, |world| {
///     let scores = Window::<u64>::allocate(&world, 1024)?;
///     let next = (world.rank() + 1) % world.size();
///     let epoch = scores.lock_exclusive(next).wait()?;
///     let old = epoch.fetch_add(0, 1).wait()?;
///     epoch.put(8, &[old, 42])?;
///     epoch.unlock()?;
///     scores.close()
/// })
/// .unwrap()
/// .into_iter()
/// .collect::<Result<(), windows::Error>>()
/// .unwrap();
/// ```
///
/// Cheap to clone; all clones are the same window. Threads may share it. Offsets and lengths are in elements.
///
/// A window that is dropped without [`close`](Self::close) has ended for this rank alone. On shared memory this rank's hold of
/// the memory is freed, and peers that have reached it keep it. Where memory is registered with a card it stays until this
/// rank leaves the world, because a peer that met a freed part would lose its connection: whoever makes many windows closes
/// them.
pub struct Window<T, F: Fabric = fabric::Any> {
    inner: Arc<Inner<F>>,
    /// Keeps this rank in the world, which `inner` does not: work in the background holds on to that.
    world: World<F>,
    element: PhantomData<fn() -> T>,
}

/// What a window is, whatever its elements are.
pub(crate) struct Inner<F: Fabric> {
    pub(crate) world: World<F>,
    pub(crate) name: Arc<str>,
    pub(crate) algorithm: TestAndSet,
    pub(crate) own: F::Segment,
    pub(crate) own_locks: F::Segment,
    keys: Vec<Keys>,
    targets: Box<[OnceLock<Target<F>>]>,
    pub(crate) counts: Counts,
    /// Whether an operation is done when it is posted.
    pub(crate) immediate: bool,
    /// The first error of something that nobody could be told of: a release after a drop.
    stuck: Mutex<Option<Error>>,
    /// How much of that is under way: it still reaches into peers' memory.
    background: AtomicUsize,
    /// Whether all ranks have ended the window: nobody reaches into this rank's part any more.
    ended: AtomicBool,
}

/// A part whose window was dropped and not closed, which other ranks do not know of.
impl<F: Fabric> Drop for Inner<F> {
    fn drop(&mut self) {
        // Memory that is shared stays as long as a peer has it mapped. A card would end the connection to a peer that finds
        // it gone.
        if !*self.ended.get_mut() && self.fabric().capabilities().agent == Agent::Card {
            self.world.keep(self.own.clone());
            self.world.keep(self.own_locks.clone());
        }
    }
}

/// Something under way that nobody waits for but the window's end.
struct Background<F: Fabric>(Arc<Inner<F>>);

impl<F: Fabric> Drop for Background<F> {
    fn drop(&mut self) {
        self.0.background.fetch_sub(1, Ordering::Release);
    }
}

/// A rank's part of the window, as it is reached from here.
pub(crate) struct Target<F: Fabric> {
    /// As the window's world counts.
    pub(crate) rank: u32,
    pub(crate) data: F::Segment,
    pub(crate) locks: F::Segment,
    /// In elements.
    pub(crate) len: usize,
}

impl<F: Fabric> Inner<F> {
    pub(crate) fn new(
        world: World<F>,
        name: Arc<str>,
        algorithm: TestAndSet,
        (own, own_locks): (F::Segment, F::Segment),
        keys: Vec<Keys>,
    ) -> Self {
        let targets = keys.iter().map(|_| OnceLock::new()).collect();
        let (counts, stuck) = (Counts::default(), Mutex::new(None));
        let immediate = world.fabric().capabilities().immediate;
        Self {
            world,
            name,
            algorithm,
            own,
            own_locks,
            keys,
            targets,
            counts,
            immediate,
            stuck,
            background: AtomicUsize::new(0),
            ended: AtomicBool::new(false),
        }
    }

    pub(crate) const fn fabric(&self) -> &F {
        self.world.fabric()
    }

    /// A target, reached when it is first needed.
    #[inline]
    pub(crate) fn target(&self, rank: u32) -> Result<&Target<F>, Fault> {
        match self.targets.get(rank as usize).and_then(OnceLock::get) {
            Some(target) => Ok(target),
            None => self.reach(rank),
        }
    }

    #[cold]
    #[inline(never)]
    fn reach(&self, rank: u32) -> Result<&Target<F>, Fault> {
        let keys = self.keys.get(rank as usize).ok_or(Fault::of(FaultKind::NoSuchRank, Rank(rank)))?;
        let open =
            |key: &SegmentKey| self.fabric().open(key).map_err(|error| self.why_unreachable(key.rank, error.fault()));
        // A part that does not fit the address space of this process cannot be reached by it anyway.
        let len = usize::try_from(keys.len).unwrap_or(usize::MAX);
        let target = Target { rank, data: open(&keys.data)?, locks: open(&keys.locks)?, len };
        Ok(self.targets[rank as usize].get_or_init(|| target))
    }

    /// A rank that has ended took its regions with it: that is what there is to tell.
    fn why_unreachable(&self, rank: Rank, fault: Fault) -> Fault {
        match self.fabric().liveness(rank) {
            Liveness::Left if fault.kind() == FaultKind::NoSuchRegion => Fault::of(FaultKind::PeerLeft, rank),
            Liveness::Dead if fault.kind() == FaultKind::NoSuchRegion => Fault::of(FaultKind::PeerDied, rank),
            _ if fault.kind() == FaultKind::NoSuchRegion => Fault::of(FaultKind::NoSuchRegion, rank),
            _ => fault,
        }
    }

    /// Names the operation that a fault ended. Cold, and the only place where the path of an operation meets a rich error.
    #[cold]
    #[inline(never)]
    pub(crate) fn failed(&self, operation: &'static str, target: u32, fault: Fault) -> Error {
        let (window, fault) = (self.name.clone(), self.world.translate(fault));
        match fault.kind() {
            FaultKind::NoSuchRank => Error::Rank { operation, target, size: self.world.size(), window },
            _ => Error::Operation { operation, target, window, fault },
        }
    }

    /// Leaves a release, or what is under way of a request that was given up, to the endpoint; the window's end waits for it.
    pub(crate) fn adopt(self: &Arc<Self>, task: Task) {
        self.background.fetch_add(1, Ordering::Relaxed);
        let background = Background(Arc::clone(self));
        self.fabric().adopt(Box::pin(async move {
            let _background = background;
            task.await;
        }));
    }

    /// Waits until nothing is left of what the endpoint does for this window: after the window's end, peers free what it
    /// reaches into. None of it waits for another rank.
    async fn settle(&self) -> Result<(), Fault> {
        let fabric = self.fabric();
        let until = fabric.now().saturating_add(SETTLE);
        while self.background.load(Ordering::Acquire) > 0 {
            if fabric.now() >= until {
                return Err(Fault::new(FaultKind::TimedOut));
            }
            let own = fabric.world_segment(fabric.rank()).map_err(|error| error.fault())?;
            fabric.pause(fabric.word_in(&own, 0)?, TURN).await;
        }
        Ok(())
    }

    /// Keeps an error that nobody can be told of now.
    pub(crate) fn keep(&self, error: Error) {
        self.stuck.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    /// The error that was kept, once.
    pub(crate) fn kept(&self) -> Result<(), Error> {
        match self.stuck.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// How many elements a rank's part has; 0 for a rank that there is not.
    pub(crate) fn len(&self, rank: u32) -> usize {
        self.keys.get(rank as usize).map_or(0, |keys| usize::try_from(keys.len).unwrap_or(usize::MAX))
    }

    /// A lock's words at a target.
    pub(crate) fn home<'w>(&'w self, target: &'w Target<F>) -> Home<'w, F> {
        Home { fabric: self.fabric(), locks: &target.locks }
    }
}

// Of one fabric, so that nobody need name one: the builder allocates on any.
impl<T: Element> Window<T> {
    /// Chooses a name, a lock and more before the window is allocated, on whatever fabric.
    #[must_use]
    pub fn builder() -> Builder<T> {
        Builder::default()
    }
}

impl<T: Element, F: Fabric> Window<T, F> {
    pub(crate) fn from_inner(world: &World<F>, inner: Inner<F>) -> Self {
        Self { inner: Arc::new(inner), world: world.clone(), element: PhantomData }
    }

    pub(crate) const fn inner(&self) -> &Arc<Inner<F>> {
        &self.inner
    }

    /// How many elements a rank's part has; 0 for a rank that there is not.
    pub fn len(&self, rank: u32) -> usize {
        self.inner.len(rank)
    }

    /// The name that it was given.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The world that it belongs to.
    pub const fn world(&self) -> &World<F> {
        &self.world
    }

    /// This rank's own part, to be read and written at once. What peers do at the same time is theirs to order: under a
    /// lock, or before a barrier.
    pub fn local(&self) -> Local<'_, T, F> {
        Local::new(&self.inner)
    }

    /// Locks a rank's part for this origin alone (`MPI_Win_lock`, exclusive). The first operation has left when the call
    /// returns; the request is then waited for or awaited.
    #[inline]
    pub fn lock_exclusive(&self, target: u32) -> LockRequest<'_, T, F> {
        LockRequest::start(self, target, Mode::Exclusive)
    }

    /// Locks a rank's part together with other shared holders (`MPI_Win_lock`, shared).
    #[inline]
    pub fn lock_shared(&self, target: u32) -> LockRequest<'_, T, F> {
        LockRequest::start(self, target, Mode::Shared)
    }

    /// Locks every rank's part shared (`MPI_Win_lock_all`). The first operation to every rank has left when the call
    /// returns.
    pub fn lock_all(&self) -> LockAllRequest<'_, T, F> {
        LockAllRequest::start(self)
    }

    /// The first fence (`MPI_Win_fence`): when it was waited for, every rank may operate on every part, until the next.
    /// Collective.
    ///
    /// ```
    /// # use windows::{Op, Window};
    /// # fabric::threads(3, |world| {
    /// let sums = Window::<f64>::allocate(&world, 2)?;
    /// let epoch = sums.fence().wait()?;
    /// epoch.at((world.rank() + 1) % 3)?.put(0, &[1.5])?;
    /// let epoch = epoch.fence().wait()?; // everybody sees what everybody has put
    /// assert_eq!(sums.local().read(0..1), [1.5]);
    /// epoch.at(0)?.accumulate(1, &[0.5], Op::Sum).wait()?;
    /// epoch.end()?;
    /// assert_eq!(sums.local().read(1..2), [if world.rank() == 0 { 1.5 } else { 0.0 }]);
    /// sums.close()
    /// # }).unwrap().into_iter().collect::<Result<(), windows::Error>>().unwrap();
    /// ```
    ///
    /// MPI's assertions are what the types say: the first fence has nothing before it (`MPI_MODE_NOPRECEDE`), and
    /// [`FenceEpoch::end`](crate::FenceEpoch::end) nothing behind it (`MPI_MODE_NOSUCCEED`). With `MPI_MODE_NOSTORE` and
    /// `MPI_MODE_NOPUT` no fabric of this library could save anything: a fence flushes the targets that this rank operated
    /// on, and is a barrier.
    pub const fn fence(&self) -> FenceRequest<'_, T, F> {
        FenceRequest::new(self)
    }

    /// Exposes this rank's part to some origins (`MPI_Win_post`): they may operate on it once they have
    /// [started](Self::start). Blocks nobody; one word is posted to each origin.
    ///
    /// ```
    /// # use windows::Window;
    /// # fabric::threads(3, |world| {
    /// let window = Window::<u64>::allocate(&world, 3)?;
    /// if world.rank() == 0 {
    ///     let exposure = window.post(&[1, 2])?;
    ///     exposure.wait()?; // both have completed
    ///     assert_eq!(window.local().read(0..3), [0, 1, 2]);
    /// } else {
    ///     let epoch = window.start(&[0]).wait()?; // it has posted
    ///     epoch.at(0)?.put(world.rank() as usize, &[world.rank().into()])?;
    ///     epoch.complete()?;
    /// }
    /// window.close()
    /// # }).unwrap().into_iter().collect::<Result<(), windows::Error>>().unwrap();
    /// ```
    ///
    /// A rank that is named twice counts once; this rank may be among them. One thread of a rank at a time posts, and one
    /// starts. Of MPI's assertions `MPI_MODE_NOCHECK` is
    /// [`StartRequest::no_check`](crate::StartRequest::no_check), and with the others nothing could be saved.
    ///
    /// # Errors
    /// [`Error::Rank`], [`Error::Operation`] if an origin cannot be reached; then none has been told.
    pub fn post(&self, origins: &[u32]) -> Result<ExposureEpoch<'_, T, F>, Error> {
        ExposureEpoch::post(self, origins)
    }

    /// Begins an access of some targets' parts (`MPI_Win_start`), when it is waited for: then each of them has
    /// [exposed](Self::post) its part to this rank.
    pub fn start(&self, targets: &[u32]) -> StartRequest<'_, T, F> {
        StartRequest::new(self, targets)
    }

    /// Locks and unlocks in MPI's manner, by calls instead of guards, checked at run time.
    pub fn epochs(&self) -> Epochs<'_, T, F> {
        Epochs::new(self)
    }

    /// Which way operations on a rank's part take, and why; for people.
    pub fn explain(&self, target: u32) -> String {
        let fabric = self.inner.fabric();
        let capabilities = fabric.capabilities();
        let way = if capabilities.immediate { "done when the call returns" } else { "posted, completed by the fabric" };
        let mover = self.world.fabric_rank(target).map_or(capabilities.agent, |rank| fabric.mover(rank));
        let bytes = match mover {
            Agent::Cpu if mover != capabilities.agent => "; puts and gets by the Cpu, it is on this host",
            _ => "",
        };
        format!(
            "window \"{}\", rank {target}: {} elements of {} bytes over {}; operations are {way}{bytes}; atomics by the \
             {:?}; lock {}",
            self.name(),
            self.len(target),
            size_of::<T>(),
            capabilities.name,
            capabilities.agent,
            <TestAndSet as lock_algos::LockAlgorithm>::NAME,
        )
    }

    /// Ends the window on all ranks, without blocking the thread. Collective. See [`close`](Self::close).
    ///
    /// # Errors
    /// As [`close`](Self::close).
    ///
    /// # Cancel safety
    /// Not cancel safe: collective.
    pub async fn close_async(self) -> Result<(), Error> {
        let own = self.inner.world.rank();
        let flushed = async {
            self.inner.settle().await.map_err(|fault| self.inner.failed("close", own, fault))?;
            for target in self.inner.targets.iter().filter_map(OnceLock::get) {
                self.inner
                    .fabric()
                    .flush(target.fabric_rank())
                    .await
                    .map_err(|fault| self.inner.failed("close", target.rank, fault))?;
            }
            self.inner.kept()
        };
        let flushed = flushed.await;
        // Others wait for this rank even if something of its own failed.
        let barrier = self.inner.world.barrier().await.map_err(|error| Error::Collective {
            operation: "close",
            window: self.inner.name.clone(),
            fault: error.fault(),
        });
        self.inner.ended.store(barrier.is_ok(), Ordering::Relaxed);
        flushed.and(barrier)
    }
}

impl<T: Element, F: Drive> Window<T, F> {
    /// Allocates `len` zeroed elements on every rank (`MPI_Win_allocate`). Collective.
    ///
    /// # Errors
    /// See [`Builder::allocate`].
    pub fn allocate(world: &World<F>, len: usize) -> Result<Self, Error> {
        Builder::default().allocate(world, len)
    }

    /// Ends the window on all ranks: completes what this rank has posted, waits for the others, and reports what failed
    /// after its caller was gone. Collective.
    ///
    /// # Errors
    /// [`Error::Operation`] with the first failure of what was posted and not waited for, or of a release that a dropped
    /// guard or request left to the endpoint ([`TimedOut`](Error::is_timed_out) if a release is still under way after
    /// 5 s); [`Error::Collective`] where a rank died.
    pub fn close(self) -> Result<(), Error> {
        let inner = Arc::clone(&self.inner);
        block_on(inner.fabric(), self.close_async())
    }
}

impl<T, F: Fabric> Clone for Window<T, F> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), world: self.world.clone(), element: PhantomData }
    }
}

impl<T, F: Fabric> fmt::Debug for Window<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Window")
            .field("name", &self.inner.name)
            .field("element", &std::any::type_name::<T>())
            .field("lengths", &self.inner.keys.iter().map(|keys| keys.len).collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

impl<F: Fabric> fmt::Debug for Target<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}, {} elements", self.rank, self.len)
    }
}

impl<F: Fabric> Target<F> {
    /// The rank as the fabric names it.
    pub(crate) fn fabric_rank(&self) -> Rank {
        self.data.rank()
    }
}
